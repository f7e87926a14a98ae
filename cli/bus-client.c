/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <delayd/dbus.h>

#include "bus-client.h"

#define SEE_SERVICE "see 'systemctl status delayd' and 'journalctl -u delayd'"

static char *format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *format_text(const char *format, ...) {
        va_list arguments;
        char *text;
        int r;

        va_start(arguments, format);
        r = vasprintf(&text, format, arguments);
        va_end(arguments);

        return r < 0 ? NULL : text;
}

static uint64_t now_usec(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

/* sd-bus would let a peer that accepts and then says nothing hold us for 90 s. */
static int wait_until_ready(sd_bus *bus) {
        uint64_t deadline = now_usec() + BUS_CALL_TIMEOUT_USEC;
        int r;

        for (;;) {
                uint64_t now = now_usec();

                r = sd_bus_is_ready(bus);
                if (r != 0)
                        return r;
                if (now >= deadline)
                        return -ETIMEDOUT;

                r = sd_bus_process(bus, NULL);
                if (r < 0)
                        return r;
                if (r == 0) {
                        r = sd_bus_wait(bus, deadline - now);
                        if (r < 0 && r != -EINTR)
                                return r;
                }
        }
}

static char *explain_open(int r) {
        const char *address = getenv("DBUS_SYSTEM_BUS_ADDRESS");

        if (r == -ENOMEM)
                return NULL;
        if (!address)
                return format_text("Cannot reach the system bus: %s. Start it with 'systemctl start dbus', or "
                                   "set DBUS_SYSTEM_BUS_ADDRESS to the bus that delayd is on.", strerror(-r));

        return format_text("Cannot reach the bus '%s': %s. Set DBUS_SYSTEM_BUS_ADDRESS to the bus that delayd "
                           "is on.", address, strerror(-r));
}

int bus_open(sd_bus **ret, char **ret_error) {
        _cleanup_bus_ sd_bus *bus = NULL;
        int r;

        r = sd_bus_open_system(&bus);
        if (r >= 0)
                r = wait_until_ready(bus);
        if (r < 0) {
                *ret_error = explain_open(r);
                return r;
        }

        *ret = TAKE_PTR(bus);
        return 0;
}

int bus_new_call(sd_bus *bus, const char *method, sd_bus_message **ret) {
        return sd_bus_message_new_method_call(bus, ret, DELAYD_BUS_NAME, DELAYD_BUS_PATH,
                                              DELAYD_BUS_MANAGER_INTERFACE, method);
}

static bool error_is_one_of(const sd_bus_error *error, const char *const *names) {
        for (; *names; names++)
                if (sd_bus_error_has_name(error, *names))
                        return true;

        return false;
}

static bool starts_with(const char *s, const char *prefix) {
        return s && strncmp(s, prefix, strlen(prefix)) == 0;
}

static char *explain_away(const sd_bus_error *error) {
        const char *detail = error->message ?: error->name;

        if (starts_with(error->name, "org.freedesktop.DBus.Error.Spawn.") ||
            starts_with(error->name, "org.freedesktop.systemd1."))
                return format_text("The bus could not start delayd (%s): " SEE_SERVICE ".", detail);

        return format_text("delayd is not running on this bus: start it with 'systemctl start delayd', or set "
                           "DBUS_SYSTEM_BUS_ADDRESS to the bus that it is on.");
}

/* sd-bus gives its own failures the same names as errnos that the daemon returned. */
static bool is_connection_error(int r) {
        return r == -ECONNRESET || r == -ENOTCONN || r == -EPIPE || r == -ESHUTDOWN || r == -ECONNABORTED;
}

char *bus_explain(const sd_bus_error *error, int r) {
        static const char *const away[] = { SD_BUS_ERROR_SERVICE_UNKNOWN, SD_BUS_ERROR_NAME_HAS_NO_OWNER, NULL };
        static const char *const other_version[] = { SD_BUS_ERROR_UNKNOWN_METHOD, SD_BUS_ERROR_UNKNOWN_INTERFACE,
                                                     SD_BUS_ERROR_UNKNOWN_OBJECT, NULL };
        const char *detail;

        if (r == -ENOMEM)
                return NULL;
        if (sd_bus_error_has_name(error, SD_BUS_ERROR_NO_REPLY))
                return format_text("delayd left the bus or took longer than 10 s to answer: " SEE_SERVICE ".");
        if (r == -ETIMEDOUT)
                return format_text("delayd did not answer within 10 s: " SEE_SERVICE ".");
        if (!sd_bus_error_is_set(error) || (starts_with(error->name, "System.Error.") && is_connection_error(r)))
                return format_text("The connection to the bus failed: %s.", strerror(-r));

        detail = error->message && error->message[0] ? error->message : error->name;

        if (error_is_one_of(error, away) || starts_with(error->name, "org.freedesktop.DBus.Error.Spawn.") ||
            starts_with(error->name, "org.freedesktop.systemd1."))
                return explain_away(error);
        if (sd_bus_error_has_name(error, SD_BUS_ERROR_ACCESS_DENIED))
                return format_text("Access denied: %s. Run delayctl as root or as a member of the group "
                                   "'delayd'.", detail);
        if (error_is_one_of(error, other_version))
                return format_text("The delayd on this bus is of another version than this delayctl "
                                   DELAYD_VERSION ": %s", detail);

        if (starts_with(error->name, "System.Error."))
                return format_text("delayd could not answer (%s): " SEE_SERVICE ".", detail);

        return strdup(detail);
}

char *bus_explain_reply(int r) {
        if (r == -ENOMEM)
                return NULL;

        return format_text("The reply of delayd cannot be read (%s): is it of another version than this "
                           "delayctl " DELAYD_VERSION "?", strerror(-r));
}

int bus_call(sd_bus *bus, sd_bus_message *request, sd_bus_message **ret_reply, char **ret_error) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r;

        r = sd_bus_call(bus, request, BUS_CALL_TIMEOUT_USEC, &error, ret_reply);
        if (r < 0)
                *ret_error = bus_explain(&error, r);

        return r < 0 ? r : 0;
}

static int read_basic(sd_bus_message *message, char type, struct json_object **ret) {
        union {
                uint8_t y;
                int b; /* sd-bus reads booleans into an int */
                int16_t n;
                uint16_t q;
                int32_t i;
                uint32_t u;
                int64_t x;
                uint64_t t;
                double d;
                const char *s;
        } value = {};
        int r;

        r = sd_bus_message_read_basic(message, type, &value);
        if (r < 0)
                return r;
        if (r == 0)
                return -ENXIO;

        switch (type) {
        case SD_BUS_TYPE_BYTE:
                *ret = json_object_new_uint64(value.y);
                break;
        case SD_BUS_TYPE_BOOLEAN:
                *ret = json_object_new_boolean(value.b);
                break;
        case SD_BUS_TYPE_INT16:
                *ret = json_object_new_int64(value.n);
                break;
        case SD_BUS_TYPE_UINT16:
                *ret = json_object_new_uint64(value.q);
                break;
        case SD_BUS_TYPE_INT32:
                *ret = json_object_new_int64(value.i);
                break;
        case SD_BUS_TYPE_UINT32:
                *ret = json_object_new_uint64(value.u);
                break;
        case SD_BUS_TYPE_INT64:
                *ret = json_object_new_int64(value.x);
                break;
        case SD_BUS_TYPE_UINT64:
                *ret = json_object_new_uint64(value.t);
                break;
        case SD_BUS_TYPE_DOUBLE:
                /* JSON has no word for infinity and NaN. */
                *ret = isfinite(value.d) ? json_object_new_double(value.d) : NULL;
                return 0;
        case SD_BUS_TYPE_STRING:
        case SD_BUS_TYPE_OBJECT_PATH:
        case SD_BUS_TYPE_SIGNATURE:
                *ret = json_object_new_string(value.s);
                break;
        default:
                return -EOPNOTSUPP; /* a file descriptor */
        }

        return *ret ? 0 : -ENOMEM;
}

static int read_dictionary_entry(sd_bus_message *message, const char *signature, struct json_object *object) {
        _cleanup_json_ struct json_object *value = NULL;
        const char *key;
        int r;

        r = sd_bus_message_enter_container(message, SD_BUS_TYPE_DICT_ENTRY, signature);
        if (r < 0)
                return r;
        r = sd_bus_message_read_basic(message, SD_BUS_TYPE_STRING, &key);
        if (r < 0)
                return r;
        r = bus_read_json(message, &value);
        if (r < 0)
                return r;
        r = sd_bus_message_exit_container(message);
        if (r < 0)
                return r;

        if (json_object_object_add(object, key, value) < 0)
                return -ENOMEM;
        value = NULL;
        return 0;
}

/* An array of string-keyed entries is an object; signature is that of an element. */
static int read_elements(sd_bus_message *message, const char *signature, struct json_object **ret) {
        _cleanup_json_ struct json_object *values = NULL;
        bool dictionary = signature[0] == '{' && signature[1] == 's';
        int r;

        values = dictionary ? json_object_new_object() : json_object_new_array();
        if (!values)
                return -ENOMEM;

        while ((r = sd_bus_message_at_end(message, false)) == 0) {
                _cleanup_json_ struct json_object *value = NULL;

                if (dictionary) {
                        _cleanup_free_ char *entry = strndup(signature + 1, strlen(signature) - 2);

                        if (!entry)
                                return -ENOMEM;
                        r = read_dictionary_entry(message, entry, values);
                        if (r < 0)
                                return r;
                        continue;
                }

                r = bus_read_json(message, &value);
                if (r < 0)
                        return r;
                if (json_object_array_add(values, value) < 0)
                        return -ENOMEM;
                value = NULL;
        }
        if (r < 0)
                return r;

        *ret = TAKE_PTR(values);
        return 0;
}

/* The depth of the recursion is bounded by D-Bus: sd-bus refuses messages that nest deeper than 128. */
int bus_read_json(sd_bus_message *message, struct json_object **ret) {
        _cleanup_json_ struct json_object *value = NULL;
        const char *contents;
        char type;
        int r;

        r = sd_bus_message_peek_type(message, &type, &contents);
        if (r < 0)
                return r;
        if (r == 0)
                return -ENXIO;
        if (!contents)
                return read_basic(message, type, ret);

        r = sd_bus_message_enter_container(message, type, contents);
        if (r < 0)
                return r;
        if (type == SD_BUS_TYPE_VARIANT)
                r = bus_read_json(message, &value);
        else
                r = read_elements(message, type == SD_BUS_TYPE_ARRAY ? contents : "", &value);
        if (r < 0)
                return r;
        r = sd_bus_message_exit_container(message);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(value);
        return 0;
}

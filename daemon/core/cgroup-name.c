/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "core/cgroup-name.h"
#include "core/text.h"

#define CONTAINER_ID_LENGTH 64U /* SHA-256 in hex: docker, containerd, CRI-O, podman */
#define POD_UUID_LENGTH 36U
#define POD_HASH_LENGTH 32U     /* static pods: MD5 of their configuration */
#define UNIT_NAME_MAX 255U

/* A part of the path. */
struct span {
        const char *p; /* NULL: none */
        size_t n;
};

struct parsed {
        struct span unit, slice, user, container_id, pod_uid;
        const char *pod_qos;
};

#define LITERAL(s) ((struct span) { (s), sizeof(s) - 1 })

/* The locale must not decide, so no isalnum() and friends. */
static bool is_digit(char c) {
        return c >= '0' && c <= '9';
}

static bool is_hex(char c) {
        return is_digit(c) || (c >= 'a' && c <= 'f');
}

static bool equals(struct span s, struct span other) {
        return s.n == other.n && memcmp(s.p, other.p, s.n) == 0;
}

static bool contains(struct span s, struct span what) {
        return memmem(s.p, s.n, what.p, what.n);
}

static bool skip_prefix(struct span *s, struct span prefix) {
        if (s->n <= prefix.n || memcmp(s->p, prefix.p, prefix.n) != 0)
                return false;

        s->p += prefix.n;
        s->n -= prefix.n;
        return true;
}

static bool skip_suffix(struct span *s, struct span suffix) {
        if (s->n <= suffix.n || memcmp(s->p + s->n - suffix.n, suffix.p, suffix.n) != 0)
                return false;

        s->n -= suffix.n;
        return true;
}

static bool all(struct span s, bool (*is)(char c)) {
        for (size_t i = 0; i < s.n; i++)
                if (!is(s.p[i]))
                        return false;

        return s.n > 0;
}

static bool is_unit_char(char c) {
        return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr(":-_.\\@", c));
}

/* systemd puts a "_" before a unit name that would look like a file of the kernel's ("cpu.service"). */
static struct span unescape_prefix(struct span s) {
        (void) skip_prefix(&s, LITERAL("_"));
        return s;
}

static void parse_unit(struct span s, struct parsed *parsed) {
        static const struct span types[] = {
                { ".service", 8 }, { ".scope", 6 }, { ".socket", 7 }, { ".mount", 6 }, { ".swap", 5 },
        };
        struct span stem;

        s = stem = unescape_prefix(s);
        if (s.n > UNIT_NAME_MAX || !all(s, is_unit_char))
                return;

        if (skip_suffix(&stem, LITERAL(".slice"))) {
                parsed->slice = s;
                if (skip_prefix(&stem, LITERAL("user-")) && all(stem, is_digit))
                        parsed->user = stem;
                return;
        }

        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
                if (skip_suffix(&stem, types[i])) {
                        parsed->unit = s;
                        return;
                }
}

/*
 * Engines with the systemd driver make "ENGINE-ID.scope", those without "ID" or "ENGINE-ID" in a
 * directory of theirs; containerd that was given a slice by a kubelet with the other driver makes
 * "SLICE:cri-containerd:ID". Monitors ("conmon") bear the ID as well but are outside the container.
 */
static bool parse_container_hash(struct span s, struct parsed *parsed) {
        (void) skip_suffix(&s, LITERAL(".scope"));
        if (s.n < CONTAINER_ID_LENGTH)
                return false;

        struct span engine = { s.p, s.n - CONTAINER_ID_LENGTH };
        struct span id = { s.p + engine.n, CONTAINER_ID_LENGTH };
        if (!all(id, is_hex))
                return false;

        if (engine.n > 0) {
                char separator = engine.p[--engine.n];

                if (separator != '-' && separator != ':')
                        return false;
                if (equals(engine, LITERAL("conmon")) || skip_suffix(&engine, LITERAL("-conmon")))
                        return false;
        }

        parsed->container_id = id;
        return true;
}

static void parse_container(struct span s, struct span above, bool above_is_top, struct parsed *parsed) {
        if (parse_container_hash(s, parsed))
                return;

        struct span name = s;
        if ((skip_prefix(&name, LITERAL("machine-")) && skip_suffix(&name, LITERAL(".scope")))
            || (name = s, skip_prefix(&name, LITERAL("systemd-nspawn@")) && skip_suffix(&name, LITERAL(".service")))
            || (name = s, skip_prefix(&name, LITERAL("lxc.payload.")))
            || (name = s, above_is_top && equals(above, LITERAL("lxc"))))
                parsed->container_id = name;
}

static bool is_pod_uid(struct span s) {
        if (s.n == POD_HASH_LENGTH)
                return all(s, is_hex);
        if (s.n != POD_UUID_LENGTH)
                return false;

        for (size_t i = 0; i < s.n; i++) {
                bool dash = i == 8 || i == 13 || i == 18 || i == 23;

                if (dash ? s.p[i] != '-' && s.p[i] != '_' : !is_hex(s.p[i]))
                        return false;
        }

        return true;
}

/* "kubepods/burstable/podUID" with the cgroupfs driver, "kubepods-burstable-podUID.slice" with systemd's. */
static void parse_pod(struct span s, struct span above, struct parsed *parsed) {
        const char *colon = memchr(s.p, ':', s.n);
        if (colon)
                s.n = (size_t) (colon - s.p);

        if (contains(s, LITERAL("kubepods-burstable"))
            || (equals(above, LITERAL("kubepods")) && equals(s, LITERAL("burstable"))))
                parsed->pod_qos = "burstable";
        else if (contains(s, LITERAL("kubepods-besteffort"))
                 || (equals(above, LITERAL("kubepods")) && equals(s, LITERAL("besteffort"))))
                parsed->pod_qos = "besteffort";
        else if (contains(s, LITERAL("kubepods-pod")) || equals(s, LITERAL("kubepods")))
                parsed->pod_qos = "guaranteed";

        /* "SOMETHING-podUID.slice": the UID has a fixed length, so look from the end. */
        if (skip_suffix(&s, LITERAL(".slice")))
                for (size_t length = POD_HASH_LENGTH; length <= POD_UUID_LENGTH && length < s.n; length += 4) {
                        struct span stem = { s.p, s.n - length }, uid = { s.p + stem.n, length };

                        if (skip_suffix(&stem, LITERAL("-pod")) && is_pod_uid(uid))
                                parsed->pod_uid = uid;
                }
        else if (skip_prefix(&s, LITERAL("pod")) && is_pod_uid(s))
                parsed->pod_uid = s;
}

static void parse_path(const char *path, struct parsed *parsed) {
        struct span above = LITERAL("");

        for (unsigned depth = 0; *path; depth++) {
                path += strspn(path, "/");

                struct span s = { path, strcspn(path, "/") };
                if (s.n == 0)
                        break;

                parse_unit(s, parsed);
                parse_container(s, above, depth == 1, parsed);
                parse_pod(s, above, parsed);

                above = s;
                path += s.n;
        }
}

static int take(struct span s, bool unescape, char **ret) {
        if (!s.p)
                return 0;

        char *text = strndup(s.p, s.n);
        if (!text)
                return -ENOMEM;

        if (unescape && memchr(s.p, '\\', s.n)) {
                char *unescaped = text_unescape_unit(text);

                free(text);
                if (!unescaped)
                        return -ENOMEM;
                text = unescaped;
        }

        *ret = text;
        return 0;
}

int cgroup_name_parse(const char *path, struct cgroup_name *ret) {
        _cleanup_(cgroup_name_free) struct cgroup_name name = {};
        struct parsed parsed = {};

        parse_path(path, &parsed);

        if (take(parsed.unit, true, &name.unit) < 0 || take(parsed.slice, true, &name.slice) < 0
            || take(parsed.user, false, &name.user) < 0 || take(parsed.container_id, true, &name.container_id) < 0
            || take(parsed.pod_uid, false, &name.pod_uid) < 0)
                return -ENOMEM;

        if (name.pod_uid) {
                name.pod_qos = parsed.pod_qos;
                for (char *p = name.pod_uid; (p = strchr(p, '_'));)
                        *p = '-'; /* a dash would be a level of slices */
        }

        *ret = name;
        name = (struct cgroup_name) {};
        return 0;
}

void cgroup_name_free(struct cgroup_name *name) {
        free(name->unit);
        free(name->slice);
        free(name->user);
        free(name->container_id);
        free(name->pod_uid);
        *name = (struct cgroup_name) {};
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/address.h"

static bool is_port(const char *s) {
        unsigned long port = 0;
        size_t n = strspn(s, "0123456789");

        for (size_t i = 0; i < n && port <= UINT16_MAX; i++)
                port = port * 10 + (unsigned long) (s[i] - '0');
        return n > 0 && !s[n] && port <= UINT16_MAX;
}

int address_split(const char *address, char host[static ADDRESS_HOST_SIZE], const char **ret_port) {
        const char *begin = address, *end, *port;

        if (*address == '[') {
                begin = address + 1;
                end = strchr(begin, ']');
                if (!end || end == begin || end[1] != ':')
                        return -EINVAL;
                port = end + 2;
        } else {
                end = strrchr(address, ':');
                if (!end || memchr(address, ':', (size_t) (end - address)))
                        return -EINVAL;
                port = end + 1;
        }

        size_t size = (size_t) (end - begin);
        if (size >= ADDRESS_HOST_SIZE || !is_port(port))
                return -EINVAL;

        memcpy(host, begin, size);
        host[size] = '\0';
        *ret_port = port;
        return 0;
}

bool address_is_valid(const char *address) {
        char host[ADDRESS_HOST_SIZE];
        struct in6_addr number;
        const char *port;

        if (address_split(address, host, &port) < 0)
                return false;
        if (!*host)
                return true;

        if (*address != '[')
                return inet_pton(AF_INET, host, &number) == 1;

        /* A link-local address names its interface, too. */
        host[strcspn(host, "%")] = '\0';
        return inet_pton(AF_INET6, host, &number) == 1;
}

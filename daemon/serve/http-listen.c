/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "cleanup.h"
#include "core/address.h"
#include "log.h"
#include "serve/http-listen.h"

static void free_addresses(struct addrinfo **p) {
        if (*p)
                freeaddrinfo(*p);
}

/* Only numbers: a name would have to be asked of a resolver, which blocks. */
static int resolve(const char *host, const char *port, int family, struct addrinfo **ret) {
        const struct addrinfo hints = {
                .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                .ai_family = family,
                .ai_socktype = SOCK_STREAM,
        };

        return getaddrinfo(*host ? host : NULL, port, &hints, ret) == 0 ? 0 : -EINVAL;
}

static int open_socket(const struct addrinfo *ai, bool v6only) {
        const int on = 1, off = 0;
        _cleanup_close_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
            (ai->ai_family == AF_INET6 &&
             setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6only ? &on : &off, sizeof(on)) < 0) ||
            bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 ||
            listen(fd, SOMAXCONN) < 0)
                return -errno;

        return TAKE_FD(fd);
}

static int log_listen_error(int error, const char *address) {
        switch (-error) {
        case EINVAL:
                return log_error_errno(error, "Metrics.Listen=: \"%s\" is no address to listen on. Write 127.0.0.1:10066, "
                                              "[::1]:10066 or :10066 (all addresses)", address);
        case EADDRINUSE:
                return log_error_errno(error, "Cannot listen on %s: another program does. Stop it, or choose another "
                                              "address with Metrics.Listen= in the configuration", address);
        case EADDRNOTAVAIL:
                return log_warning_errno(error, "Not listening on %s: no network interface has this address. Correct "
                                                "Metrics.Listen= in the configuration", address);
        case EACCES:
                return log_error_errno(error, "Cannot listen on %s: ports below 1024 need CAP_NET_BIND_SERVICE. Choose "
                                              "another port with Metrics.Listen= in the configuration", address);
        case EAFNOSUPPORT:
                return log_warning_errno(error, "Not listening on %s: this host has no such protocol, or delayd's unit allows "
                                                "no sockets of its own and delayd-http.socket is off", address);
        default:
                return log_error_errno(error, "Cannot listen on %s, see Metrics.Listen= in the configuration", address);
        }
}

static int local_port(int fd, uint16_t *ret_port) {
        union {
                struct sockaddr sa;
                struct sockaddr_in in;
                struct sockaddr_in6 in6;
                struct sockaddr_storage storage;
        } u = {};
        socklen_t size = sizeof(u);

        if (getsockname(fd, &u.sa, &size) < 0)
                return -errno;

        *ret_port = u.sa.sa_family == AF_INET6 ? ntohs(u.in6.sin6_port) :
                    u.sa.sa_family == AF_INET ? ntohs(u.in.sin_port) : 0;
        return 0;
}

/* Returns the descriptor, or -EINVAL for what is no address. */
static int open_address(const char *address) {
        _cleanup_(free_addresses) struct addrinfo *ai = NULL;
        char host[ADDRESS_HOST_SIZE];
        const char *port;

        int r = address_split(address, host, &port);
        if (r >= 0)
                r = resolve(host, port, *host ? AF_UNSPEC : AF_INET6, &ai);
        if (r < 0)
                return r;

        /* ":PORT" is one socket for both protocols, and IPv4 alone on a host without IPv6. */
        int fd = open_socket(ai, *host);
        if (fd == -EAFNOSUPPORT && !*host) {
                freeaddrinfo(TAKE_PTR(ai));
                r = resolve(host, port, AF_INET, &ai);
                fd = r < 0 ? r : open_socket(ai, false);
        }

        return fd;
}

int http_listen(const char *address, bool quiet, uint16_t *ret_port) {
        _cleanup_close_ int fd = open_address(address);

        int r = fd < 0 ? fd : local_port(fd, ret_port);
        if (r < 0)
                return quiet ? r : log_listen_error(r, address);

        return TAKE_FD(fd);
}

int http_adopt(int fd, uint16_t *ret_port) {
        int r = sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1);
        if (r < 0)
                return r;
        if (r == 0)
                return -ENOTSOCK;

        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return -errno;

        return local_port(fd, ret_port);
}

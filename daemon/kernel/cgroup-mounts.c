/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "cleanup.h"
#include "kernel/cgroup-tree-internal.h"

#define MOUNTINFO_FIELDS_MAX 64
#define UNIFIED_POINT "/sys/fs/cgroup"

void cgroup_mount_free(struct cgroup_mount *mount) {
        free(mount->point);
        free(mount->controllers);
        *mount = (struct cgroup_mount) {};
}

void cgroup_mounts_free(struct cgroup_mount *mounts, size_t n) {
        for (size_t i = 0; i < n; i++)
                cgroup_mount_free(mounts + i);
        free(mounts);
}

/* The kernel writes space, tab, newline and backslash in octal: fs/proc_namespace.c, mangle(). */
static void unescape_octal(char *s) {
        char *end = s;

        while (*s) {
                if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0'
                    && s[3] <= '7') {
                        *end++ = (char) ((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
                        s += 4;
                } else
                        *end++ = *s++;
        }
        *end = '\0';
}

/* The controllers of the v1 hierarchy that was mounted with these options, as /proc/PID/cgroup names them. */
static int find_controllers(const char *options, const char *own_cgroups, char **ret) {
        *ret = NULL;

        for (const char *line = own_cgroups; *line;) {
                size_t length = strcspn(line, "\n"), number = strcspn(line, ":\n");
                const char *controllers = line + number + 1;

                if (number < length) {
                        size_t size = strcspn(controllers, ":\n");

                        if (cgroup_lists_meet(controllers, size, options, strlen(options))) {
                                *ret = strndup(controllers, size);
                                return *ret ? 1 : -ENOMEM;
                        }
                }

                line += length + (line[length] == '\n');
        }

        return 0;
}

/* Returns 1 and fills in ret if the line is one of a cgroup mount, else 0. */
static int parse_mount(char *line, const char *own_cgroups, struct cgroup_mount *ret) {
        char *fields[MOUNTINFO_FIELDS_MAX], *state, *field;
        size_t n = 0, dash = 0;

        for (char *p = line; n < MOUNTINFO_FIELDS_MAX && (field = strtok_r(p, " \n", &state)); p = NULL) {
                /* "ID PARENT DEVICE ROOT POINT OPTIONS [TAG]... - TYPE SOURCE OPTIONS" */
                if (n >= 6 && dash == 0 && strcmp(field, "-") == 0)
                        dash = n;
                fields[n++] = field;
        }

        if (dash == 0 || dash + 3 >= n)
                return 0;

        const char *type = fields[dash + 1], *options = fields[dash + 3];
        _cleanup_free_ char *controllers = NULL;

        if (strcmp(type, "cgroup") == 0) {
                int r = find_controllers(options, own_cgroups, &controllers);

                if (r <= 0)
                        return r;
        } else if (strcmp(type, "cgroup2") != 0)
                return 0;

        unescape_octal(fields[4]);

        char *point = strdup(fields[4]);
        if (!point)
                return -ENOMEM;

        *ret = (struct cgroup_mount) {
                .point = point,
                .mode = controllers ? CGROUP_V1 : CGROUP_UNIFIED,
                .partial = strcmp(fields[3], "/") != 0,
        };
        ret->controllers = TAKE_PTR(controllers);
        return 1;
}

int cgroup_mounts_parse(FILE *mountinfo, const char *own_cgroups, struct cgroup_mount **ret_mounts, size_t *ret_n) {
        _cleanup_free_ char *line = NULL;
        struct cgroup_mount *mounts = NULL;
        size_t n = 0, size = 0;
        bool have_v1 = false;
        int r = 0;

        while (getline(&line, &size, mountinfo) > 0) {
                struct cgroup_mount mount;

                r = parse_mount(line, own_cgroups, &mount);
                if (r < 0)
                        break;
                if (r == 0)
                        continue;

                struct cgroup_mount *grown = reallocarray(mounts, n + 1, sizeof(*mounts));
                if (!grown) {
                        cgroup_mount_free(&mount);
                        r = -ENOMEM;
                        break;
                }

                mounts = grown;
                mounts[n++] = mount;
                have_v1 = have_v1 || mount.mode == CGROUP_V1;
        }

        if (r < 0) {
                cgroup_mounts_free(mounts, n);
                return r;
        }

        /* What is mounted beside a unified hierarchy in its usual place does not make it a hybrid. */
        for (size_t i = 0; have_v1 && i < n; i++)
                if (mounts[i].mode == CGROUP_UNIFIED && strcmp(mounts[i].point, UNIFIED_POINT) != 0)
                        mounts[i].mode = CGROUP_HYBRID;

        *ret_mounts = mounts;
        *ret_n = n;
        return 0;
}

static int read_mounts(struct cgroup_mount **ret, size_t *ret_n) {
        _cleanup_free_ char *own_cgroups = NULL;

        _cleanup_fclose_ FILE *mountinfo = fopen("/proc/self/mountinfo", "re");
        if (!mountinfo)
                return -errno;

        ssize_t n = cgroup_read_file("/proc/self/cgroup", &own_cgroups);
        if (n < 0)
                return (int) n;

        return cgroup_mounts_parse(mountinfo, own_cgroups, ret, ret_n);
}

/* Opens what is there now. Returns a descriptor, -EINVAL if it is no cgroupfs, or another negative errno. */
static int open_root(const char *point, bool *ret_v1) {
        struct statfs fs;

        _cleanup_close_ int fd = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstatfs(fd, &fs) < 0)
                return -errno;

        if (fs.f_type != CGROUP2_SUPER_MAGIC && fs.f_type != CGROUP_SUPER_MAGIC)
                return -EINVAL;

        *ret_v1 = fs.f_type == CGROUP_SUPER_MAGIC;
        return TAKE_FD(fd);
}

/* How much a mount is wanted; 0: not at all. */
static unsigned rank(const struct cgroup_mount *mount, int fd) {
        struct stat st;

        if (mount->partial)
                return 0;
        if (!mount->controllers)
                return strcmp(mount->point, UNIFIED_POINT) == 0 ? 6 : 5;

        /* Two links are those of a directory without others in it. */
        bool populated = fstat(fd, &st) == 0 && st.st_nlink > 2;

        if (populated && strcmp(mount->controllers, "name=systemd") == 0)
                return 4;
        if (cgroup_lists_meet(mount->controllers, strlen(mount->controllers), "memory", strlen("memory")))
                return 3;
        return populated ? 2 : 1;
}

static int choose_any(struct cgroup_mount *mounts, size_t n, struct cgroup_mount **ret, int *ret_fd) {
        _cleanup_close_ int best_fd = -EBADF;
        struct cgroup_mount *best = NULL;
        unsigned best_rank = 0;

        for (size_t i = 0; i < n; i++) {
                bool v1 = false;

                _cleanup_close_ int fd = open_root(mounts[i].point, &v1);
                if (fd < 0 || v1 != !!mounts[i].controllers)
                        continue; /* another mount hides it, or it cannot be reached */

                unsigned r = rank(mounts + i, fd);
                if (r <= best_rank)
                        continue;

                if (best_fd >= 0)
                        close(best_fd);
                best = mounts + i;
                best_rank = r;
                best_fd = TAKE_FD(fd);
        }

        if (!best)
                return -ENOENT;

        *ret = best;
        *ret_fd = TAKE_FD(best_fd);
        return 0;
}

static int choose_given(
                const char *root, struct cgroup_mount *mounts, size_t n, struct cgroup_mount **ret, int *ret_fd) {

        bool v1 = false;

        _cleanup_close_ int fd = open_root(root, &v1);
        if (fd < 0)
                return fd;

        _cleanup_free_ char *point = realpath(root, NULL);
        if (!point)
                return -errno;

        /* The last one mounted there is the one that is seen. */
        for (size_t i = n; i-- > 0;)
                if (strcmp(mounts[i].point, point) == 0) {
                        if (mounts[i].partial || v1 != !!mounts[i].controllers)
                                return -EINVAL;

                        *ret = mounts + i;
                        *ret_fd = TAKE_FD(fd);
                        return 0;
                }

        return -EINVAL; /* a cgroup below the root: paths in /proc would not fit */
}

int cgroup_mount_choose(const char *root, struct cgroup_mount *ret, int *ret_fd) {
        struct cgroup_mount *mounts = NULL, *chosen = NULL;
        size_t n = 0;

        int r = read_mounts(&mounts, &n);
        if (r < 0)
                return r;

        if (root)
                r = choose_given(root, mounts, n, &chosen, ret_fd);
        else
                r = choose_any(mounts, n, &chosen, ret_fd);

        if (r >= 0 && chosen) {
                *ret = *chosen;
                *chosen = (struct cgroup_mount) {};
        }

        cgroup_mounts_free(mounts, n);
        return r;
}

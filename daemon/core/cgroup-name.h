/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What a cgroup's path alone says about it. Strings are NULL where the path does not say; they are
 * raw bytes from the path (decoded), not yet made fit for display.
 */
struct cgroup_name {
        char *unit;         /* systemd unit, "foo@a-b.service"; the innermost one */
        char *slice;        /* innermost slice, "system.slice" */
        char *user;         /* UID whose user slice it is in, "1000" */
        char *container_id; /* docker, containerd, CRI-O, podman; name of an LXC container or a machine (nspawn, libvirt) */
        char *pod_uid;      /* Kubernetes pod, with dashes; static pods have a hash without */
        const char *pod_qos; /* "guaranteed", "burstable", "besteffort"; a literal */
};

/* path is absolute within its hierarchy. Returns 0 or -ENOMEM. */
int cgroup_name_parse(const char *path, struct cgroup_name *ret);
void cgroup_name_free(struct cgroup_name *name); /* empties it */

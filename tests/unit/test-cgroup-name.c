/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cgroup-name.h"

/* Container ids, pod uids and the hash of a static pod, in the forms in which paths hold them. */
#define ID1 "4f2b0a6c1e9d8375a1b2c3d4e5f60718293a4b5c6d7e8f90112233445566778"
#define ID ID1 "9"
#define INNER "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define POD "0f7d3c1e-9a2b-4c5d-8e6f-a1b2c3d4e5f6"
#define POD_ "0f7d3c1e_9a2b_4c5d_8e6f_a1b2c3d4e5f6"
#define HASH "a9f0c2d4e6b8091a2b3c4d5e6f708192"
#define USER "/user.slice/user-1000.slice/user@1000.service"

static const struct {
        const char *path;
        const char *unit, *slice, *user, *container_id, *pod_uid, *pod_qos;
} cases[] = {
        /* Nothing to recognise. */
        { "/" },
        { "" },
        { "/a/b" },
        { "//a//b/" },

        /* systemd: system units. */
        { "/init.scope", "init.scope" },
        { "/system.slice", NULL, "system.slice" },
        { "/system.slice/nginx.service", "nginx.service", "system.slice" },
        { "/system.slice/nginx.service/worker", "nginx.service", "system.slice" },
        { "/system.slice/dbus.socket", "dbus.socket", "system.slice" },
        { "/system.slice/boot-efi.mount", "boot-efi.mount", "system.slice" },
        { "/system.slice/dev-disk-by\\x2duuid-1234\\x2dabcd.swap", "dev-disk-by-uuid-1234-abcd.swap", "system.slice" },
        { "/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service", "system-getty.slice" },
        { "/system.slice/system-systemd\\x2dfsck.slice/systemd-fsck@dev-disk-by\\x2dlabel-boot.service",
          "systemd-fsck@dev-disk-by-label-boot.service", "system-systemd-fsck.slice" },
        { "/system.slice/system-postgresql.slice/postgresql@15-main.service", "postgresql@15-main.service",
          "system-postgresql.slice" },
        { "/system.slice/foo@a\\x2db.service", "foo@a-b.service", "system.slice" },
        { "/system.slice/sshd@0-10.0.0.1:22-10.0.0.2:50000.service", "sshd@0-10.0.0.1:22-10.0.0.2:50000.service",
          "system.slice" },
        { "/system.slice/run-r0123456789abcdef0123456789abcdef.scope", "run-r0123456789abcdef0123456789abcdef.scope",
          "system.slice" },
        { "/system.slice/_cpu.service", "cpu.service", "system.slice" }, /* would look like a file of the cpu controller */
        { "/a.slice/a-b.slice/a-b-c.slice", NULL, "a-b-c.slice" },
        { "/system.slice/systemd-udevd.service/udev", "systemd-udevd.service", "system.slice" },

        /* systemd: users. */
        { "/user.slice/user-1000.slice/session-3.scope", "session-3.scope", "user-1000.slice", "1000" },
        { "/user.slice/user-1000.slice/session-c2.scope", "session-c2.scope", "user-1000.slice", "1000" },
        { "/user.slice/user-0.slice/user-runtime-dir@0.service", "user-runtime-dir@0.service", "user-0.slice", "0" },
        { USER "/init.scope", "init.scope", "user-1000.slice", "1000" },
        { USER "/app.slice/dbus.service", "dbus.service", "app.slice", "1000" },
        { USER "/app.slice/app-gnome-org.gnome.Terminal-4242.scope", "app-gnome-org.gnome.Terminal-4242.scope",
          "app.slice", "1000" },
        { USER "/app.slice/app-org.gnome.Terminal.slice/vte-spawn-0f7d3c1e-9a2b-4c5d-8e6f-a1b2c3d4e5f6.scope",
          "vte-spawn-0f7d3c1e-9a2b-4c5d-8e6f-a1b2c3d4e5f6.scope", "app-org.gnome.Terminal.slice", "1000" },
        { USER "/app.slice/app-glib-my\\x2dtool-7.scope", "app-glib-my-tool-7.scope", "app.slice", "1000" },
        { USER "/app.slice/app-dbus\\x2d:1.2\\x2dorg.gnome.Shell.slice/dbus-:1.2-org.gnome.Shell.Screencast@0.service",
          "dbus-:1.2-org.gnome.Shell.Screencast@0.service", "app-dbus-:1.2-org.gnome.Shell.slice", "1000" },
        { USER "/session.slice/pipewire.service", "pipewire.service", "session.slice", "1000" },
        { USER "/background.slice/tracker-miner-fs-3.service", "tracker-miner-fs-3.service", "background.slice", "1000" },
        { USER "/app.slice/snap.firefox.firefox-0f7d3c1e-9a2b-4c5d-8e6f-a1b2c3d4e5f6.scope",
          "snap.firefox.firefox-0f7d3c1e-9a2b-4c5d-8e6f-a1b2c3d4e5f6.scope", "app.slice", "1000" },
        { "/user.slice/user-abc.slice", NULL, "user-abc.slice" },

        /* Docker and nerdctl. */
        { "/docker/" ID, NULL, NULL, NULL, ID },
        { "/batch/" ID, NULL, NULL, NULL, ID }, /* --cgroup-parent=/batch */
        { "/docker/" ID "/system.slice/cron.service", "cron.service", "system.slice", NULL, ID },
        { "/docker/" ID "/docker/" INNER, NULL, NULL, NULL, INNER },
        { "/system.slice/docker-" ID ".scope", "docker-" ID ".scope", "system.slice", NULL, ID },
        { "/system.slice/docker-" ID ".scope/init", "docker-" ID ".scope", "system.slice", NULL, ID },
        { USER "/user.slice/docker-" ID ".scope", "docker-" ID ".scope", "user.slice", "1000", ID },
        { "/system.slice/nerdctl-" ID ".scope", "nerdctl-" ID ".scope", "system.slice", NULL, ID },
        { "/system.slice/docker.service", "docker.service", "system.slice" },
        { "/ecs/0f7d3c1e-9a2b-4c5d-8e6f-a1b2c3d4e5f6/" ID, NULL, NULL, NULL, ID },
        { "/system.slice/var-lib-docker-overlay2-" ID "-merged.mount", "var-lib-docker-overlay2-" ID "-merged.mount",
          "system.slice" },
        { "/docker/" ID1, NULL }, /* one digit short */
        { "/docker/" ID "0", NULL }, /* one too many */
        { "/docker/" ID1 "G", NULL },

        /* Podman. */
        { "/machine.slice/libpod-" ID ".scope/container", "libpod-" ID ".scope", "machine.slice", NULL, ID },
        { "/machine.slice/libpod-conmon-" ID ".scope", "libpod-conmon-" ID ".scope", "machine.slice" },
        { "/machine.slice/machine-libpod_pod_" INNER ".slice/libpod-" ID ".scope", "libpod-" ID ".scope",
          "machine-libpod_pod_" INNER ".slice", NULL, ID },
        { USER "/user.slice/libpod-" ID ".scope/container", "libpod-" ID ".scope", "user.slice", "1000", ID },
        { USER "/user.slice/user-libpod_pod_" INNER ".slice/libpod-" ID ".scope", "libpod-" ID ".scope",
          "user-libpod_pod_" INNER ".slice", "1000", ID },
        { "/libpod_parent/libpod-" ID, NULL, NULL, NULL, ID },
        { "/libpod_parent/conmon", NULL },
        { "/libpod_parent/conmon-" ID, NULL },
        { "/system.slice/web.service/libpod-payload-" ID, "web.service", "system.slice", NULL, ID },
        { "/system.slice/" ID "-1a2b3c4d.service", ID "-1a2b3c4d.service", "system.slice" }, /* health check, on the host */

        /* Machines and LXC. */
        { "/machine.slice/machine-debian.scope/payload", "machine-debian.scope", "machine.slice", NULL, "debian" },
        { "/machine.slice/machine-my\\x2dbox.scope", "machine-my-box.scope", "machine.slice", NULL, "my-box" },
        { "/machine.slice/systemd-nspawn@my\\x2dbox.service/payload/system.slice/cron.service", "cron.service",
          "system.slice", NULL, "my-box" },
        { "/machine.slice/systemd-nspawn@box.service/supervisor", "systemd-nspawn@box.service", "machine.slice", NULL,
          "box" },
        { "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator", "machine-qemu-1-vm.scope", "machine.slice",
          NULL, "qemu-1-vm" },
        { "/lxc.payload.web/system.slice/cron.service", "cron.service", "system.slice", NULL, "web" },
        { "/lxc.monitor.web", NULL },
        { "/lxc/101/ns", NULL, NULL, NULL, "101" },
        { "/a/lxc/101", NULL },

        /* Kubernetes, cgroupfs driver. */
        { "/kubepods", NULL },
        { "/kubepods/burstable/pod" POD, NULL, NULL, NULL, NULL, POD, "burstable" },
        { "/kubepods/burstable/pod" POD "/" ID, NULL, NULL, NULL, ID, POD, "burstable" },
        { "/kubepods/besteffort/pod" POD "/" ID, NULL, NULL, NULL, ID, POD, "besteffort" },
        { "/kubepods/pod" POD "/" ID, NULL, NULL, NULL, ID, POD, "guaranteed" },
        { "/kubepods/burstable/pod" HASH "/" ID, NULL, NULL, NULL, ID, HASH, "burstable" },
        { "/kubepods/besteffort/pod" POD "/crio-" ID, NULL, NULL, NULL, ID, POD, "besteffort" },
        { "/kubepods/besteffort/pod" POD "/crio-conmon-" ID, NULL, NULL, NULL, NULL, POD, "besteffort" },

        /* Kubernetes, systemd driver. */
        { "/kubepods.slice/kubepods-burstable.slice", NULL, "kubepods-burstable.slice" },
        { "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_ ".slice/cri-containerd-" ID ".scope",
          "cri-containerd-" ID ".scope", "kubepods-burstable-pod" POD_ ".slice", NULL, ID, POD, "burstable" },
        { "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD_ ".slice/crio-" ID ".scope/container",
          "crio-" ID ".scope", "kubepods-besteffort-pod" POD_ ".slice", NULL, ID, POD, "besteffort" },
        { "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD_ ".slice/crio-conmon-" ID ".scope",
          "crio-conmon-" ID ".scope", "kubepods-besteffort-pod" POD_ ".slice", NULL, NULL, POD, "besteffort" },
        { "/kubepods.slice/kubepods-pod" POD_ ".slice/docker-" ID ".scope", "docker-" ID ".scope",
          "kubepods-pod" POD_ ".slice", NULL, ID, POD, "guaranteed" },
        { "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" HASH ".slice/cri-containerd-" ID ".scope",
          "cri-containerd-" ID ".scope", "kubepods-burstable-pod" HASH ".slice", NULL, ID, HASH, "burstable" },
        { "/system.slice/containerd.service/kubepods-burstable-pod" POD_ ".slice:cri-containerd:" ID,
          "containerd.service", "system.slice", NULL, ID, POD, "burstable" }, /* kubelet and containerd disagree */
        { "/docker/" INNER "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" POD_ ".slice/cri-containerd-" ID
          ".scope", "cri-containerd-" ID ".scope", "kubelet-kubepods-pod" POD_ ".slice", NULL, ID, POD, "guaranteed" },
        { "/kubepods/burstable/pod" POD "0", NULL },
        { "/kubepods/burstable/podxyz", NULL },
        { "/custom/pod" POD, NULL, NULL, NULL, NULL, POD, NULL },

        /* Names that anybody may give. */
        { "/.service", NULL },
        { "/.slice/.scope/x", NULL },
        { "/a b.service", NULL },
        { "/\xff\xfe.service/\x01\x1b[31m.slice", NULL },
        { "/caf\xc3\xa9.service", NULL },
        { "/a\\x2.service", "a\\x2.service" }, /* no whole escape */
        { "/a\\x00b.service", "a\\x00b.service" },
        { "/-pod.slice/pod/machine-.scope/lxc.payload.", "machine-.scope", "-pod.slice" },
        { "/libpod-/crio-.scope/docker-.scope", "docker-.scope" },
        { "/:::/...", NULL },
        { "/foo.service (deleted)", NULL },
};

static void check(const char *path, const char *what, const char *got, const char *want) {
        if (got == want || (got && want && strcmp(got, want) == 0))
                return;

        fail_msg("%s: %s is %s, not %s", path, what, got ?: "(none)", want ?: "(none)");
}

static void paths_say_what_they_are(void **state) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct cgroup_name name;

                assert_int_equal(cgroup_name_parse(cases[i].path, &name), 0);
                check(cases[i].path, "unit", name.unit, cases[i].unit);
                check(cases[i].path, "slice", name.slice, cases[i].slice);
                check(cases[i].path, "user", name.user, cases[i].user);
                check(cases[i].path, "container", name.container_id, cases[i].container_id);
                check(cases[i].path, "pod", name.pod_uid, cases[i].pod_uid);
                check(cases[i].path, "QoS", name.pod_qos, cases[i].pod_qos);

                cgroup_name_free(&name);
                assert_null(name.unit);
        }
}

/* Every cut and every changed byte of real paths: under a sanitizer this shows reads out of bounds. */
static void mutilated_paths_do_no_harm(void **state) {
        static const char bytes[] = { '/', '-', '.', ':', '\\', '_', 'x', '\x80' };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                size_t n = strlen(cases[i].path);

                for (size_t at = 0; at < n; at++) {
                        /* Exactly as long as needed, so that one byte further is out of bounds. */
                        char *cut = strndup(cases[i].path, at);
                        char *changed = strdup(cases[i].path);
                        struct cgroup_name name;

                        assert_non_null(cut);
                        assert_non_null(changed);
                        changed[at] = bytes[at % sizeof(bytes)];

                        assert_int_equal(cgroup_name_parse(cut, &name), 0);
                        cgroup_name_free(&name);
                        assert_int_equal(cgroup_name_parse(changed, &name), 0);
                        assert_true(!name.container_id || *name.container_id);
                        cgroup_name_free(&name);
                        free(changed);
                        free(cut);
                }
        }
}

static void long_names_are_no_units(void **state) {
        char path[400] = "/";
        struct cgroup_name name;

        memset(path + 1, 'a', 255 - strlen(".service"));
        strcat(path, ".service");
        assert_int_equal(cgroup_name_parse(path, &name), 0);
        assert_string_equal(name.unit, path + 1);
        cgroup_name_free(&name);

        memset(path + 1, 'a', 256 - strlen(".service"));
        strcpy(path + 1 + 256 - strlen(".service"), ".service");
        assert_int_equal(cgroup_name_parse(path, &name), 0);
        assert_null(name.unit);
        cgroup_name_free(&name);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(paths_say_what_they_are),
                cmocka_unit_test(mutilated_paths_do_no_harm),
                cmocka_unit_test(long_names_are_no_units),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "core/diagnosis.h"

/* What holds for everybody on the host. */

static bool at_least(const struct host_facts *host, unsigned major, unsigned minor) {
        return host->major > major || (host->major == major && host->minor >= minor);
}

static void check_delay_accounting(struct diagnosis *d, const struct host_facts *host) {
        static const char *const id = "delay-accounting", *const title = "Delay accounting";

        if (host->task_delayacct > 0)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "kernel.task_delayacct is on.");
        else if (host->task_delayacct == 0)
                diagnosis_add(d, id, title, CHECK_WARN,
                              "Run 'sysctl kernel.task_delayacct=1' (for good: in /etc/sysctl.d/, or with the kernel option "
                              "\"delayacct\"), then restart the services to be watched: tasks that run already stay "
                              "without delays.",
                              "kernel.task_delayacct is off: the kernel counts no delays.");
        else if (host->task_delayacct != -ENOENT)
                diagnosis_add(d, id, title, CHECK_UNKNOWN, NULL, "kernel.task_delayacct cannot be read: %s.",
                              strerror(-host->task_delayacct));
        else if (!at_least(host, 5, 14) && host->boot_parameter != TRISTATE_OFF)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "On, as it is by default before Linux 5.14.");
        else if (!at_least(host, 5, 14))
                diagnosis_add(d, id, title, CHECK_WARN, "Boot without the kernel option \"nodelayacct\".",
                              "Off: the kernel was booted with \"nodelayacct\".");
        else
                diagnosis_add(d, id, title, CHECK_FAIL, "Use a kernel with CONFIG_TASK_DELAY_ACCT=y.",
                              "The kernel has no kernel.task_delayacct: it was built without delay accounting.");
}

static void check_boot_parameter(struct diagnosis *d, const struct host_facts *host) {
        static const char *const id = "boot-parameter", *const title = "Boot parameter";

        if (!at_least(host, 5, 14))
                return;

        if (host->boot_parameter == TRISTATE_ON)
                diagnosis_add(d, id, title, CHECK_OK, NULL,
                              "\"delayacct\" is on the kernel's command line: delays are counted from the first task on.");
        else
                diagnosis_add(d, id, title, CHECK_OK,
                              "To have these too, add \"delayacct\" to the kernel's command line.",
                              "\"delayacct\" is not on the kernel's command line: tasks that start before the sysctl is set "
                              "have no delays for life.");
}

static void check_pressure(struct diagnosis *d, const struct host_facts *host) {
        static const char *const id = "pressure", *const title = "Pressure (PSI)";

        if (host->pressure == 0)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "/proc/pressure/io can be read.");
        else
                diagnosis_add(d, id, title, host->delayed_dequeue == TRISTATE_ON ? CHECK_WARN : CHECK_OK,
                              "Boot with the kernel option psi=1; the kernel needs CONFIG_PSI=y.",
                              "/proc/pressure/io cannot be read (%s): there is no witness for long waits that the kernel may "
                              "have made up.", strerror(-host->pressure));
}

static void check_hidepid(struct diagnosis *d, const struct host_facts *host) {
        static const char *const id = "hidepid", *const title = "Process list";

        if (host->sees_others)
                diagnosis_add(d, id, title, CHECK_OK, NULL, "/proc shows the tasks of all users%s%s.",
                              host->hidepid[0] ? ", though it is mounted with hidepid=" : "", host->hidepid);
        else
                diagnosis_add(d, id, title, CHECK_WARN,
                              "Give the unit the group of the mount's gid= option with SupplementaryGroups=, or add "
                              "CAP_SYS_PTRACE to AmbientCapabilities= and CapabilityBoundingSet=; no ProtectProc= in it.",
                              "/proc hides the tasks of others (hidepid=%s): tasks that end soon may be unattributed.",
                              host->hidepid[0] ? host->hidepid : "?");
}

static void check_swapin(struct diagnosis *d, const struct host_facts *host) {
        if (host->major == 0)
                diagnosis_add(d, "swapin", "Meaning of swapin", CHECK_UNKNOWN, NULL,
                              "The version of the kernel is not understood: \"%s\".", host->release);
        else if (at_least(host, 5, 17))
                diagnosis_add(d, "swapin", "Meaning of swapin", CHECK_OK, NULL,
                              "Since Linux 5.17: the time to submit the read, or to decompress (zram, zswap). The wait for a "
                              "swap device counts as blkio.");
        else
                diagnosis_add(d, "swapin", "Meaning of swapin", CHECK_OK, NULL,
                              "Before Linux 5.17: the wait for the swap device, which does not count as blkio. Swap in memory "
                              "(zram, zswap) counts as nothing.");
}

static void check_clock(struct diagnosis *d, const struct host_facts *host) {
        static const char *const doubtful[] = { "hpet", "acpi_pm", "refined-jiffies", "jiffies", "pit" };

        for (size_t i = 0; i < sizeof(doubtful) / sizeof(doubtful[0]); i++)
                if (strcmp(host->clocksource, doubtful[i]) == 0) {
                        diagnosis_add(d, "clock", "Clock", CHECK_WARN,
                                      "Find out why the kernel does not trust the CPU's own clock (dmesg | grep -i clocksource).",
                                      "The clock source is %s: the clocks of CPUs may differ by as much as a short wait lasts.",
                                      host->clocksource);
                        return;
                }

        diagnosis_add(d, "clock", "Clock", CHECK_OK, NULL,
                      "Windows follow CLOCK_BOOTTIME, which nobody sets and which goes on during suspend%s%s.",
                      host->clocksource[0] ? "; the clock source is " : "", host->clocksource);
}

void diagnose_host(struct diagnosis *d, const struct host_facts *host) {
        check_delay_accounting(d, host);
        check_boot_parameter(d, host);
        check_pressure(d, host);
        check_hidepid(d, host);
        check_swapin(d, host);
        check_clock(d, host);
}

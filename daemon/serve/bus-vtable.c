/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "serve/bus-server.h"

const sd_bus_vtable bus_manager_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Version", "s", bus_property_version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_METHOD_WITH_ARGS(
                        "ListCgroups",
                        SD_BUS_ARGS("t", window_nsec, "s", kinds, "s", sort, "t", limit, "a{sv}", options),
                        SD_BUS_RESULT("t", window_nsec, "aa{sv}", cgroups),
                        bus_method_list_cgroups,
                        SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS(
                        "GetHistogram",
                        SD_BUS_ARGS("s", cgroup, "s", kind, "t", window_nsec, "a{sv}", options),
                        SD_BUS_RESULT("a{sv}", histogram),
                        bus_method_get_histogram,
                        SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS(
                        "ListTasks",
                        SD_BUS_ARGS("t", window_nsec, "s", kinds, "s", sort, "t", limit, "a{sv}", options),
                        SD_BUS_RESULT("t", window_nsec, "aa{sv}", tasks),
                        bus_method_list_tasks,
                        SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS(
                        "GetStatus",
                        SD_BUS_NO_ARGS,
                        SD_BUS_RESULT("a{sv}", status),
                        bus_method_get_status,
                        SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS(
                        "Diagnose",
                        SD_BUS_NO_ARGS,
                        SD_BUS_RESULT("aa{sv}", checks),
                        bus_method_diagnose,
                        SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

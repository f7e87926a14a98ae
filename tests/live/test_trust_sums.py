# SPDX-License-Identifier: LGPL-2.1-or-later
"""Conservation: what the kernel counted is counted once, to the last wait, less what was refused, which is counted too.

The kernel's side is read by a program of its own (taskstats.py): the exit records of all tasks of the test,
and the counters of those that still live.
"""
import time

import pytest

import taskstats
from daemon import wait_until

NSEC_PER_SEC = 1_000_000_000
ALL_KINDS = " ".join(taskstats.KINDS)


def family(records, pid):
    """The records of a process, its threads and all its descendants."""
    groups, size = {pid}, 0
    while len(groups) != size:
        size = len(groups)
        groups |= {record.tgid for record in records if record.ppid in groups}
    return [record for record in records if record.tgid in groups]


def live_records(cgroup):
    """Counters of all tasks that are in the cgroup, once they have come to rest."""
    def read():
        tids = [int(tid) for tid in (cgroup.directory / "cgroup.threads").read_text(encoding="ascii").split()]
        with taskstats.Socket() as sock:
            return {tid: sock.ask(tid) for tid in tids}

    def at_rest():
        before = read()
        time.sleep(0.2)
        after = read()
        moved = [tid for tid, record in after.items() if tid not in before or any(
            getattr(record, kind + "_count") != getattr(before[tid], kind + "_count") for kind in taskstats.KINDS)]
        return not moved and list(after.values())

    return wait_until("tasks at rest in %s" % cgroup.path, at_rest)


def truth_of(records, kind):
    return (sum(getattr(record, kind + "_count") for record in records),
            sum(getattr(record, kind + "_total") for record in records))


def wait_for_truth(daemon, cgroup, kind, waits):
    """The numbers of a cgroup when as many waits as the kernel counted are there."""
    def there():
        row = daemon.api_cgroup(cgroup.path)
        return row and row[kind]["waits"] + row[kind]["rejected_waits"] >= waits and row[kind]

    try:
        wait_until("%d %s waits in %s" % (waits, kind, cgroup.path), there)
    except AssertionError as error:
        raise AssertionError("%s: %r" % (error, daemon.api_cgroup(cgroup.path))) from None
    time.sleep(0.1)  # one too many would come now
    return daemon.api_cgroup(cgroup.path)[kind]


def assert_conserved(daemon, cgroup, records, kinds, nothing_refused):
    for kind in kinds:
        waits, total = truth_of(records, kind)
        found = wait_for_truth(daemon, cgroup, kind, waits)
        assert found["waits"] + found["rejected_waits"] == waits, kind
        if nothing_refused:
            assert found["rejected_waits"] == 0, kind
        if found["rejected_waits"] == 0:
            assert found["total_nsec"] == total, kind
        else:
            assert found["total_nsec"] <= sum(record.blkio_most() for record in records)
            assert found["total_nsec"] < total

        # What is exported is the same, cumulative.
        name = "delayd_cgroup_%s_delay_seconds" % kind
        if found["waits"]:
            assert daemon.metric(name + "_count", cgroup=cgroup.path) == found["waits"]
            assert daemon.metric(name + "_sum", cgroup=cgroup.path) == pytest.approx(
                found["total_nsec"] / NSEC_PER_SEC, rel=1e-12)


@pytest.mark.seconds(240)
@pytest.mark.parametrize("exit_filter", ["yes", "no"], ids=["filter", "no-filter"])
@pytest.mark.parametrize("fifo", [True, False], ids=["real-time", "usual"])
def test_a_mixed_load(start_daemon, cgroups, workload, cold_file, record_property, fifo, exit_filter):
    """Thousands of short and long tasks, threads and processes, in four cgroups at once."""
    daemon = start_daemon("--set", "Collect.ExitFilter=" + exit_filter).wait_ready()
    places = [cgroups("mixed-%d" % i) for i in range(4)]
    with taskstats.ExitRecords() as exits:
        loads = [workload(place, "mixed-load", seed + 1, 700, 8, cold_file, fifo=fifo)
                 for seed, place in enumerate(places)]
        for load in loads:
            load.first_line()

        # The long ones have waited and now sleep, the short ones are gone.
        alive = [live_records(place) for place in places]
        assert all(len(tasks) > 8 for tasks in alive)
        past = list(exits.drain())
        for load, place, tasks in zip(loads, places, alive):
            assert_conserved(daemon, place, family(past, load.pid) + tasks, ["blkio", "swapin"], fifo)

        for load in loads:
            load.finish()
            exits.wait_for(load.pid)
        records = [record for record in exits.drain() if record.comm == b"mixed-load"]

    families = [family(records, load.pid) for load in loads]
    assert sum(map(len, families)) == len(records), "the families share tasks, or lack some"
    for place, tasks in zip(places, families):
        assert_conserved(daemon, place, tasks, ["blkio", "swapin"], fifo)

    refused = sum(daemon.api_cgroup(place.path)["blkio"]["rejected_waits"] for place in places)
    told = "%d tasks, %d waits, %d refused" % (len(records), truth_of(records, "blkio")[0], refused)
    record_property("load", told)
    print(told)
    assert len(records) > 3000
    assert daemon.api("status")["exits"]["lost"] == 0
    daemon.stop()


@pytest.mark.seconds(240)
def test_all_eight_kinds(start_daemon, zram, cgroups, workload, cold_file, record_property):
    """Reads, swapping behind a memory limit, and copies on write; live at first, then to the end."""
    daemon = start_daemon("--set", "Collect.Kinds=" + ALL_KINDS).wait_ready()
    reading, swapping, mixed = cgroups("reading"), cgroups("swapping"), cgroups("forking")
    swapping.limit_memory(16 << 20)
    with taskstats.ExitRecords() as exits:
        reader = workload(reading, "cold-reader", "--blocks=60", "--threads=4", "--hold", cold_file, fifo=True)
        swapper = workload(swapping, "swapper", 48, "--hold", fifo=True)
        load = workload(mixed, "mixed-load", 9, 300, 4, cold_file, fifo=True)
        for program in (reader, swapper, load):
            program.first_line()
        for place in (swapping, mixed):
            tasks = live_records(place)
            past = family(exits.drain(), load.pid) if place is mixed else []
            assert_conserved(daemon, place, past + tasks, taskstats.KINDS, True)

        for program in (reader, swapper, load):
            program.finish()
            exits.wait_for(program.pid)
        everything = exits.drain()

    seen = {}
    for place, program in ((reading, reader), (swapping, swapper), (mixed, load)):
        records = family(everything, program.pid)
        assert_conserved(daemon, place, records, taskstats.KINDS, True)
        for kind in taskstats.KINDS:
            seen[kind] = seen.get(kind, 0) + truth_of(records, kind)[0]

    record_property("kinds", repr(seen))
    print(seen)
    for kind in ("cpu", "blkio", "swapin", "freepages", "wpcopy"):
        assert seen[kind] > 0, "the load had no %s waits" % kind
    daemon.stop()

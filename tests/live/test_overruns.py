# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon that is kept from reading: what it missed is counted to the record, and read again where the kernel still can tell."""
import signal
import time

import pytest

import taskstats
from daemon import wait_until

CHILDREN = 20_000
SMALL_BUFFER = ("--set", "Collect.ReceiveBuffer=64K")


def told(daemon):
    exits = daemon.api("status")["exits"]
    return exits["received"] + exits["lost"]


def settled(daemon, exits, wanted=lambda record: True):
    """How many records more (or fewer) the daemon knows of than we do, read at a moment when no task of the host exits."""
    def quiet():
        before = len(exits.drain())
        time.sleep(0.04)  # more than the time for which records are gathered
        if len(exits.drain()) != before:
            return None
        known = told(daemon)
        if len(exits.drain()) != before:
            return None
        return (known - sum(map(wanted, exits.records)),)

    return wait_until("a moment without exits", quiet, 60)[0]


def problem(daemon, name):
    return next((problem for problem in daemon.api("status")["problems"] if problem["id"] == name), None)


class Stopped:
    """The daemon stands still, as on a host that swaps or in a debugger."""

    def __init__(self, daemon):
        self.daemon = daemon

    def __enter__(self):
        self.daemon.process.send_signal(signal.SIGSTOP)

    def __exit__(self, *_):
        self.daemon.process.send_signal(signal.SIGCONT)


def test_each_record_is_received_or_counted_as_lost(start_daemon, cgroups, workload):
    daemon = start_daemon("--set", "Collect.ExitFilter=no", *SMALL_BUFFER).wait_ready()
    with taskstats.ExitRecords(256 << 20) as exits:
        offset = settled(daemon, exits)
        for parallel in (1, 16):
            lost = daemon.api("status")["exits"]["lost"]
            with Stopped(daemon):
                storm = workload(cgroups("overrun"), "fork-storm", CHILDREN, parallel)
                assert storm.finish(60)["children"] == CHILDREN
            assert settled(daemon, exits) == offset
            assert sum(record.ppid == storm.pid for record in exits.records) == CHILDREN
            now_lost = daemon.api("status")["exits"]["lost"]
            assert now_lost - lost > CHILDREN / 2
            assert now_lost <= daemon.metric("delayd_exits_lost_total") <= daemon.api("status")["exits"]["lost"]

            # It goes on as if nothing had been: the next storm, which it may read, arrives whole.
            lost, before = daemon.api("status")["exits"]["lost"], len(exits.records)
            workload(cgroups("after"), "fork-storm", 50, 1).finish()
            assert settled(daemon, exits) == offset
            if len(exits.records) - before < 100:  # not in somebody else's storm
                assert daemon.api("status")["exits"]["lost"] == lost

    found = problem(daemon, "exits-lost")
    assert "ReceiveBuffer=" in found["remedy"]
    assert daemon.api("status")["health"] == "degraded"
    daemon.stop()


def waited(record):
    return record.blkio_count > 0 or record.swapin_count > 0


def test_with_the_filter_on(start_daemon, cgroups, workload, cold_file):
    """Children that wait, in a storm of some that do not: only the former can be received or lost."""
    daemon = start_daemon(*SMALL_BUFFER).wait_ready()
    assert daemon.api("status")["exits"]["filter"] == "on"
    with taskstats.ExitRecords(256 << 20) as exits:
        offset = settled(daemon, exits, waited)
        with Stopped(daemon):
            storm = workload(cgroups("storm"), "fork-storm", CHILDREN, 4)
            readers = workload(cgroups("readers"), "short-readers", 1000, 4, 1, cold_file, fifo=True)
            readers.finish(60)
            storm.finish(60)
        assert settled(daemon, exits, waited) == offset
        assert daemon.api("status")["exits"]["lost"] > 500
        assert sum(waited(record) for record in exits.records if record.ppid == readers.pid) >= 900
    daemon.stop()


@pytest.mark.parametrize("exit_filter", ["yes", "no"])
def test_zombies_and_live_tasks_are_read_again(start_daemon, cgroups, workload, cold_file, exit_filter):
    """
    What was lost with a record is still with the zombie; and what arrived before does not count twice, be it of a
    zombie that has been one for long or of one that was accounted just now. No regular poll comes in between.
    """
    daemon = start_daemon("--set", "Collect.ExitFilter=" + exit_filter, "--set", "Collect.PollInterval=1h",
                          *SMALL_BUFFER).wait_ready()
    cgroup, live = cgroups("zombies"), cgroups("live")
    reader = workload(live, "cold-reader", "--blocks=5", "--hold", cold_file, fifo=True)
    reader.first_line()

    with taskstats.ExitRecords(256 << 20) as exits:
        first = workload(cgroup, "zombies", 60, 2, 2, cold_file, fifo=True)
        first.first_line()
        time.sleep(4)  # longer than the accounting remembers tasks that are over
        with Stopped(daemon):
            second = workload(cgroup, "zombies", 600, 2, 2, cold_file, fifo=True)
            second.first_line()
            records = [record for record in exits.drain() if record.ppid in (first.pid, second.pid)]
            assert len(records) == 660
            # A few wait once more after their record is made, on the rest of their way out; and the parents may have waited.
            zombies = [taskstats.live(tid) for tid in [first.pid, second.pid, *(record.tid for record in records)]]
        least, most = (sum(record.blkio_count for record in those) for those in (records, zombies))
        total_least, total_most = (sum(record.blkio_total for record in those) for those in (records, zombies))

        wait_until("the loss", lambda: problem(daemon, "exits-lost"))
        time.sleep(0.5)
        second.finish()
        assert daemon.api("status")["exits"]["lost"] > 200

        def counted():
            row = daemon.api_cgroup(cgroup.path)
            return row and row["blkio"]["waits"] >= least and row["blkio"]

        found = wait_until("%d waits" % least, counted)
        # Not more by what follows: zombies that are forgotten, and looked for once more.
        with Stopped(daemon):
            workload(cgroups("more"), "short-readers", 400, 2, 1, cold_file, fifo=True).finish()
        time.sleep(3)
        assert daemon.api_cgroup(cgroup.path)["blkio"] == found
        assert least <= found["waits"] <= most
        assert total_least <= found["total_nsec"] <= total_most

        first.finish()
        time.sleep(1.5)
        assert daemon.api_cgroup(cgroup.path)["blkio"] == found

    truth = taskstats.live(reader.pid)
    assert truth.blkio_count >= 3
    assert daemon.api_cgroup(live.path)["blkio"]["waits"] == truth.blkio_count
    daemon.stop()

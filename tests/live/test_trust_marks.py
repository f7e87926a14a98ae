# SPDX-License-Identifier: LGPL-2.1-or-later
"""Not accounted is not zero, and a wait without I/O is told apart."""
import time

import pytest

import taskstats
from daemon import wait_until
from hosttools import Delayacct


def told(program, command):
    program.process.stdin.write(command.encode() + b"\n")
    program.process.stdin.flush()
    return program.first_line()


def counts(daemon, cgroup):
    row = daemon.api_cgroup(cgroup.path)
    return row and (row["tasks"], row["unaccounted_tasks"])


def wait_for_counts(daemon, cgroup, tasks, unaccounted):
    try:
        # The kernel sends no record of a task without delays to a daemon that filters: a sweep misses it.
        wait_until("counts", lambda: counts(daemon, cgroup) == (tasks, unaccounted), 30)
    except AssertionError:
        pytest.fail("%r instead of %d tasks, %d of them unaccounted" % (counts(daemon, cgroup), tasks, unaccounted))
    assert daemon.metric("delayd_cgroup_tasks", cgroup=cgroup.path) == tasks
    assert daemon.metric("delayd_cgroup_unaccounted_tasks", cgroup=cgroup.path) == unaccounted


def test_tasks_that_are_not_accounted(start_daemon, cgroups, workload, cold_file):
    """Started while delay accounting was off: they wait, the kernel counts nothing, and delayd says so."""
    cgroup = cgroups("unaccounted")
    with Delayacct(on=False):
        before = workload(cgroup, "stepwise", cold_file, fifo=True)
        told(before, "read 30")
        daemon = start_daemon().wait_ready()
        after = workload(cgroup, "cold-reader", "--blocks=30", "--threads=3", "--hold", cold_file, fifo=True)
        after.first_line()
        wait_for_counts(daemon, cgroup, 2, 2)

    # Switched on: who was there stays without delays for life, who comes is accounted.
    late = workload(cgroup, "stepwise", cold_file, fifo=True)
    told(late, "read 12")
    told(before, "read 12")
    wait_for_counts(daemon, cgroup, 3, 2)
    assert taskstats.live(before.pid).blkio_count == 0
    truth = taskstats.live(late.pid)
    assert truth.blkio_count >= 12
    row = daemon.wait_for_waits_over_http(cgroup.path, "blkio", truth.blkio_count)
    assert row["waits"] == truth.blkio_count

    # Their children are accounted; when they end, they are no longer counted.
    with taskstats.ExitRecords() as exits:
        child = told(before, "fork 0 5 0")["pid"]
        record = exits.wait_for(child)
    assert record.blkio_count >= 5
    row = daemon.wait_for_waits_over_http(cgroup.path, "blkio", truth.blkio_count + record.blkio_count)
    assert row["waits"] == truth.blkio_count + record.blkio_count
    after.finish()
    wait_for_counts(daemon, cgroup, 2, 1)
    before.process.stdin.close()
    wait_for_counts(daemon, cgroup, 1, 0)
    daemon.stop()


def test_accounted_tasks_are_not_called_unaccounted(daemon, cgroups, workload, cold_file):
    """Nor is one that has had no wait at all."""
    cgroup = cgroups("accounted")
    workload(cgroup, "stepwise", cold_file)
    workload(cgroup, "/bin/sleep", "60")
    wait_for_counts(daemon, cgroup, 2, 0)
    time.sleep(2.5)
    wait_for_counts(daemon, cgroup, 2, 0)


@pytest.mark.parametrize("alive", [False, True], ids=["exited", "polled"])
def test_a_sleep_in_io_uring_is_no_io(daemon, cgroups, workload, alive):
    """It is a blkio wait to the kernel, and kept; and counted apart."""
    cgroup = cgroups("uring")
    warm_up = workload(cgroups("warm"), "uring-sleeper", 1)
    said = warm_up.finish()
    if said["error"]:
        pytest.skip("no io_uring: errno %d (sysctl kernel.io_uring_disabled?)" % -said["error"])

    msec = 2000
    with taskstats.ExitRecords() as exits:
        sleeper = workload(cgroup, "uring-sleeper", msec, fifo=True)
        if alive:
            time.sleep(0.5)
            assert daemon.api_cgroup(cgroup.path)["blkio"]["waits"] == 0, "a wait shows when it ends"
        sleeper.finish()
        record = exits.wait_for(sleeper.pid)
    if record.blkio_total < (msec - 100) * 1_000_000:
        pytest.skip("this kernel counts no blkio delay for a sleep in io_uring")

    assert record.read_bytes == 0 and record.majflt == 0
    row = daemon.wait_for_waits_over_http(cgroup.path, "blkio", record.blkio_count)
    assert row["waits"] == row["without_io_waits"] == record.blkio_count
    assert row["total_nsec"] == record.blkio_total
    assert row["max_nsec"] == record.blkio_max
    assert row["rejected_waits"] == 0


def test_reads_are_io(daemon, cgroups, workload, cold_file):
    cgroup = cgroups("reads")
    with taskstats.ExitRecords() as exits:
        reader = workload(cgroup, "cold-reader", "--blocks=15", cold_file, fifo=True)
        reader.finish()
        record = exits.wait_for(reader.pid)
    row = daemon.wait_for_waits_over_http(cgroup.path, "blkio", record.blkio_count)
    assert row["waits"] == record.blkio_count
    assert row["without_io_waits"] == 0

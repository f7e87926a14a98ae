# SPDX-License-Identifier: LGPL-2.1-or-later
"""The main job: every wait of a task arrives in its cgroup, with the kernel's own numbers."""
import math
import urllib.parse

import pytest

import taskstats
from daemon import wait_until
from hosttools import WORKLOADS, Cgroup, Launcher

NSEC_PER_SEC = 1_000_000_000


def assert_is_truth(delays, records, kind):
    """The daemon's numbers for a cgroup against the exit records of all its tasks."""
    waits = sum(getattr(record, kind + "_count") for record in records)
    total = sum(getattr(record, kind + "_total") for record in records)
    assert delays["waits"] + delays["rejected_waits"] == waits
    if delays["rejected_waits"] == 0:
        assert delays["total_nsec"] == total
    else:
        # Refused only where the kernel said what cannot be.
        assert not all(record.blkio_possible() for record in records)
        assert delays["total_nsec"] < total
    if delays["waits"]:
        assert delays["mean_nsec"] == pytest.approx(delays["total_nsec"] / delays["waits"], abs=1)
        assert delays["p50_nsec"] <= delays["p90_nsec"] <= delays["p99_nsec"] <= delays["max_nsec"]
        assert delays["max_nsec"] <= max(record.etime_usec for record in records) * 1000


def blkio(records):
    return sum(record.blkio_count for record in records), sum(record.blkio_total for record in records)


def read_cold(shell, cold_file, blocks=24, times=1):
    """Runs cold readers to their ends; returns the kernel's records of them and, last, of the shell that ran them."""
    with taskstats.ExitRecords() as exits:
        pids = [shell.run(WORKLOADS / "cold-reader", "--blocks=%d" % blocks, cold_file)["pid"] for _ in range(times)]
        return [exits.wait_for(pid) for pid in pids] + [taskstats.live(shell.pid)]


@pytest.fixture
def reader(daemon, cgroups, launcher, cold_file):
    """Makes a cgroup and returns it with the kernel's records of all its tasks: a short cold reader, and a shell."""
    def run(name, fifo=True, blocks=24):
        cgroup = cgroups(name)
        shell = launcher(cgroup, fifo)
        daemon.settle(cgroup)
        return cgroup, read_cold(shell, cold_file, blocks)

    return run


def test_a_reader_of_50ms_is_seen_whole(daemon, reader):
    cgroup, records = reader("short")
    assert records[0].etime_usec < 50_000
    assert records[0].blkio_count >= 12

    waits, total = blkio(records)
    delays = daemon.wait_for_waits(cgroup.path, "blkio", waits)
    assert delays["rejected_waits"] == 0
    assert_is_truth(delays, records, "blkio")
    assert delays["max_nsec"] <= max(record.blkio_max for record in records) * 2 ** 0.25

    labels = {"cgroup": cgroup.path}
    name = "delayd_cgroup_blkio_delay_seconds"
    metrics = daemon.metrics()
    assert metrics[name + "_count", frozenset(labels.items())] == waits
    assert metrics[name + "_sum", frozenset(labels.items())] == pytest.approx(total / NSEC_PER_SEC)
    assert metrics[name + "_bucket", frozenset({**labels, "le": "+Inf"}.items())] == waits


@pytest.mark.parametrize("round_", range(5))
def test_readers_of_the_usual_scheduling_class(daemon, reader, round_):
    """Here the fault of Linux 6.12 may strike; what it forged must not get in."""
    cgroup, records = reader("usual-%d" % round_, fifo=False)
    assert_is_truth(daemon.wait_for_waits(cgroup.path, "blkio", blkio(records)[0]), records, "blkio")


def test_many_short_readers_in_one_cgroup(daemon, cgroups, launcher, cold_file):
    cgroup = cgroups("many")
    shell = launcher(cgroup)
    daemon.settle(cgroup)
    records = read_cold(shell, cold_file, blocks=3, times=100)
    assert len(records) == 101
    assert_is_truth(daemon.wait_for_waits(cgroup.path, "blkio", blkio(records)[0]), records, "blkio")


def test_programs_that_are_moved_before_they_start(daemon, cgroups, workload, cold_file):
    """As a service manager does it: fork, move, exec. The notice of the move may lose its race on a busy host."""
    whole = 0
    for i in range(10):
        cgroup = cgroups("moved-%d" % i)
        with taskstats.ExitRecords() as exits:
            program = workload(cgroup, "cold-reader", "--blocks=8", "--pause=2", cold_file, fifo=True)
            program.finish()
            record = exits.wait_for(program.pid)
        try:
            whole += daemon.wait_for_waits(cgroup.path, "blkio", record.blkio_count, 2)["waits"] == record.blkio_count
        except AssertionError:
            pass
    assert whole >= 9


def test_waits_of_threads_add_up(daemon, cgroups, workload, cold_file):
    cgroup = cgroups("threads")
    with taskstats.ExitRecords() as exits:
        reader = workload(cgroup, "cold-reader", "--blocks=60", "--threads=6", cold_file, fifo=True)
        reader.finish()
        exits.wait_for(reader.pid)
        records = exits.of_group(reader.pid)
    assert len(records) == 6
    waits = sum(record.blkio_count for record in records)
    assert_is_truth(daemon.wait_for_waits(cgroup.path, "blkio", waits), records, "blkio")


def test_a_live_task_is_polled(daemon, cgroups, workload, cold_file):
    cgroup = cgroups("live")
    reader = workload(cgroup, "cold-reader", "--blocks=30", "--hold", cold_file, fifo=True)
    reader.first_line()
    truth = taskstats.live(reader.pid)
    assert truth.blkio_count >= 15

    delays = daemon.wait_for_waits(cgroup.path, "blkio", truth.blkio_count)
    assert delays["waits"] == truth.blkio_count
    assert delays["total_nsec"] == truth.blkio_total
    assert daemon.cgroup(cgroup.path)["tasks"] == 1
    tasks = [task for task in daemon.ctl_json("tasks", "--limit=0")["tasks"] if task["tid"] == reader.pid]
    assert len(tasks) == 1
    assert tasks[0]["comm"] == "cold-reader"
    assert tasks[0]["cgroup"] == cgroup.path
    assert tasks[0]["alive"] is True
    assert tasks[0]["blkio"]["waits"] == truth.blkio_count

    # Its exit record must add what is new since the poll, not the whole again.
    with taskstats.ExitRecords() as exits:
        reader.finish()
        record = exits.wait_for(reader.pid)
    delays = daemon.wait_for_waits(cgroup.path, "blkio", record.blkio_count)
    assert_is_truth(delays, [record], "blkio")


def test_a_slow_reader_is_counted_once_while_polled(daemon, cgroups, workload, cold_file):
    cgroup = cgroups("slow")
    with taskstats.ExitRecords() as exits:
        reader = workload(cgroup, "cold-reader", "--blocks=120", "--pause=30", cold_file, fifo=True)
        reader.finish()
        record = exits.wait_for(reader.pid)
    assert record.etime_usec > 3_000_000
    delays = daemon.wait_for_waits(cgroup.path, "blkio", record.blkio_count)
    assert_is_truth(delays, [record], "blkio")


@pytest.mark.parametrize("window", ["1m", "5m", "15m", "1h"])
def test_histogram_sums_to_the_waits(daemon, reader, window):
    cgroup, records = reader("histogram-" + window)
    delays = daemon.wait_for_waits(cgroup.path, "blkio", blkio(records)[0])

    answer = daemon.ctl_json("histogram", cgroup.path, "--kind=blkio", "--window=" + window)
    assert answer["cgroup"] == cgroup.path
    assert answer["kind"] == "blkio"
    assert answer["window_nsec"] == {"1m": 60, "5m": 300, "15m": 900, "1h": 3600}[window] * NSEC_PER_SEC
    assert answer["waits"] == delays["waits"] == sum(bucket["waits"] for bucket in answer["buckets"])
    assert answer["total_nsec"] == delays["total_nsec"]
    bounds = [bucket["le_nsec"] for bucket in answer["buckets"] if bucket["le_nsec"] is not None]
    assert bounds == sorted(set(bounds))
    for bound in bounds:
        quarter = 4 * math.log2(bound / NSEC_PER_SEC)
        assert quarter == pytest.approx(round(quarter), abs=0.01), "%d is no bound of four to the octave" % bound


def test_a_removed_cgroup_stays_for_a_while(daemon, cgroup_base, cold_file):
    cgroup = Cgroup(cgroup_base.path[1:] + "/removed")
    try:
        shell = Launcher(cgroup, fifo=True)
        try:
            daemon.settle(cgroup)
            waits, _total = blkio(read_cold(shell, cold_file))
        finally:
            shell.end()
    finally:
        cgroup.remove()
    assert daemon.wait_for_waits(cgroup.path, "blkio", waits)["waits"] == waits
    wait_until("the cgroup is marked as removed", lambda: daemon.cgroup(cgroup.path)["removed"])
    assert daemon.metric("delayd_cgroup_blkio_delay_seconds_count", cgroup=cgroup.path) == waits


def test_zram_swapin_equals_the_kernels_count(daemon, zram, cgroups, workload):
    cgroup = cgroups("swap")
    cgroup.limit_memory(16 << 20)
    with taskstats.ExitRecords() as exits:
        swapper = workload(cgroup, "swapper", 48, fifo=True)
        said = swapper.finish()
        record = exits.wait_for(swapper.pid)
    assert said["major_faults"] > 1000
    assert record.swapin_count > 1000

    delays = daemon.wait_for_waits(cgroup.path, "swapin", record.swapin_count)
    assert delays["waits"] == record.swapin_count
    assert delays["total_nsec"] == record.swapin_total
    assert daemon.metric("delayd_cgroup_swapin_delay_seconds_count", cgroup=cgroup.path) == record.swapin_count


def test_names_that_are_hard_to_print(daemon, cgroups, launcher, cold_file):
    """Any bytes may be in a cgroup's name; every output stays valid."""
    cgroup = cgroups('q"uote\\back\udcff\ttab-ü')

    def row():
        rows = daemon.ctl_json("cgroups", "--limit=0", "--window=1h")["cgroups"]
        return next((row for row in rows if "uote" in row["cgroup"]), None)

    shell = launcher(cgroup)
    wait_until("the cgroup with its shell", lambda: (row() or {}).get("tasks") == 1)
    waits, _total = blkio(read_cold(shell, cold_file, blocks=7))
    wait_until("its waits", lambda: row()["blkio"]["waits"] == waits)

    name = row()["cgroup"]
    assert "\\xff" in name.lower() and "\t" not in name
    assert daemon.metric("delayd_cgroup_blkio_delay_seconds_count", cgroup=name) == waits
    assert daemon.api("histogram?cgroup=" + urllib.parse.quote(name))["waits"] == waits
    assert daemon.ctl_json("histogram", name)["waits"] == waits

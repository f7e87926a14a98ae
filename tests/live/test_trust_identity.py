# SPDX-License-Identifier: LGPL-2.1-or-later
"""A task is a TID and a start time: whatever happens to numbers, leaders and cgroups, each wait counts once, where it happened.

The truth is the sum of the kernel's exit records of the TIDs that were there. The readers are real-time
tasks, so that the fault of Linux 6.12 takes no part and every number has to be exact.
"""
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import taskstats
from daemon import wait_until
from hosttools import WORKLOADS

LAUNCH = 0.1       # a move sooner after the fork is taken for a launch: all waits belong to the new cgroup
POLL = 1.5         # seconds: after these, delayd with its defaults has polled a task


def told(program, command):
    """What a stepwise program answers."""
    program.process.stdin.write(command.encode() + b"\n")
    program.process.stdin.flush()
    return program.first_line()


def free_pid():
    """A number that no task has, and whose neighbours are free as well."""
    pids_max = min(int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii")), 32_000)
    while True:
        pid = random.randrange(2000, pids_max - 100)
        if not any(Path("/proc/%d" % (pid + i)).exists() for i in range(20)):
            return pid


def stepwise(daemon, workload, cgroup, file, *prefix):
    return workload(cgroup, *prefix, WORKLOADS / "stepwise", file, fifo=True, gate=lambda: daemon.settle(cgroup))


def sums(records):
    return sum(record.blkio_count for record in records), sum(record.blkio_total for record in records)


def assert_counted(daemon, cgroup, waits, total):
    """Exactly these waits, and none refused."""
    def there():
        row = daemon.api_cgroup(cgroup.path)
        return row and row["blkio"]["waits"] + row["blkio"]["rejected_waits"] >= waits and row["blkio"]

    try:
        blkio = wait_until("%d waits in %s" % (waits, cgroup.path), there)
    except AssertionError as error:
        rows = [row for row in daemon.api("cgroups?window=1h&limit=0")["cgroups"] if row["blkio"]["waits"]]
        raise AssertionError("%s: %r; elsewhere: %r" % (
            error, daemon.api_cgroup(cgroup.path),
            {row["cgroup"]: row["blkio"]["waits"] for row in rows if not row["cgroup"].startswith(cgroup.path)})) from None
    time.sleep(0.1)
    blkio = daemon.api_cgroup(cgroup.path)["blkio"]
    assert (blkio["waits"], blkio["rejected_waits"], blkio["total_nsec"]) == (waits, 0, total)


def lifecycle(daemon, workload, cgroup, mode, blocks, msec, file, n_records, descendants=False):
    """Runs a mode of the program; returns the records of all tasks that it was."""
    with taskstats.ExitRecords() as exits:
        program = workload(cgroup, "lifecycle", mode, blocks, msec, file, fifo=True, gate=lambda: daemon.settle(cgroup))
        program.finish()

        def mine():
            return [record for record in exits.drain()
                    if record.tgid == program.pid or (descendants and record.ppid == program.pid)]

        wait_until("%d exit records" % n_records, lambda: len(mine()) >= n_records)
        records = mine()
    assert len(records) == n_records, [(record.tid, record.tgid, record.ppid, record.comm) for record in records]
    assert sums(records)[0] >= blocks
    return records


# Numbers that come back.

@pytest.mark.parametrize("first_blocks, first_msec, second_blocks, second_msec", [
    (5, 0, 3, 0),
    (3, 0, 5, 0),
    (30, 1500, 4, 0),
    (4, 0, 30, 1500),
    (6, 1500, 9, 1500),
], ids=["short-short", "short-longer", "polled-short", "short-polled", "both-polled"])
def test_a_pid_that_is_used_again(daemon, cgroups, workload, cold_file, record_property,
                                  first_blocks, first_msec, second_blocks, second_msec):
    """Two tasks of the same number in different cgroups, the second within milliseconds of the first's end."""
    places = [cgroups("earlier"), cgroups("later")]
    with taskstats.ExitRecords() as exits:
        makers = [stepwise(daemon, workload, place, cold_file) for place in places]
        for maker in makers:
            told(maker, "read 0")
        for _ in range(10):
            pid = free_pid()
            first = told(makers[0], "fork %d %d %d" % (pid, first_blocks, first_msec))
            second = told(makers[1], "fork %d %d %d" % (pid, second_blocks, second_msec))
            if first["pid"] == second["pid"] == pid:
                break  # nobody else took it
        for maker in makers:
            maker.process.stdin.close()
            maker.process.wait(10)
            exits.wait_for(maker.pid)
        records = [[record for record in exits.records if maker.pid in (record.tid, record.ppid)]
                   for maker in makers]

    assert first["pid"] == second["pid"] == pid
    gap = second["forked_nsec"] - first["reaped_nsec"]
    record_property("gap", "%.2f ms" % (gap / 1e6))
    assert gap < 100_000_000
    for place, found in zip(places, records):
        assert [record for record in found if record.tid == pid and record.blkio_count > 0], found
        assert_counted(daemon, place, *sums(found))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["up", "down"])
def test_a_pid_that_is_used_again_and_again(daemon, cgroups, workload, cold_file, order):
    """Twenty tasks of one number in turn, now here, now there, on two CPUs whose records come by separate ways."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("there is one CPU only")
    places = [cgroups("even"), cgroups("odd")]
    with taskstats.ExitRecords() as exits:
        makers = [stepwise(daemon, workload, place, cold_file, "/usr/bin/taskset", "-c", str(cpus[-cpu]))
                  for place, cpu in zip(places, order)]
        pid = free_pid()
        for turn in range(20):
            told(makers[turn % 2], "fork %d %d 0" % (pid, turn % 5 + 1))
        for maker in makers:
            maker.process.stdin.close()
            maker.process.wait(10)
            exits.wait_for(maker.pid)
        records = [[record for record in exits.records if maker.pid in (record.tid, record.ppid)]
                   for maker in makers]
    for place, found in zip(places, records):
        assert len([record for record in found if record.tid == pid]) > 1
        assert_counted(daemon, place, *sums(found))


# Threads and their leaders.

@pytest.mark.parametrize("msec", [0, 300, 2500], ids=["at-once", "soon", "polled"])
@pytest.mark.parametrize("blocks", [0, 12], ids=["no-waits-before", "waits-before"])
def test_exec_from_a_thread_that_does_not_lead(daemon, cgroups, workload, cold_file, blocks, msec):
    """It takes the leader's number and start time, and keeps its own counters."""
    cgroup = cgroups("exec")
    if blocks == 0:
        records = lifecycle(daemon, workload, cgroup, "exec-thread", 0, msec, cold_file, 4)
    else:
        records = lifecycle(daemon, workload, cgroup, "exec-thread", blocks, msec, cold_file, 4)
        leaders = [record for record in records if record.tid == record.tgid]
        assert len(leaders) == 2, "the old leader's record and that of the thread which took its number"
        assert sums(records)[0] >= 4 * blocks
    assert_counted(daemon, cgroup, *sums(records))


@pytest.mark.parametrize("msec", [0, 300, 4000], ids=["at-once", "soon", "polled"])
def test_a_leader_that_ends_before_its_threads(daemon, cgroups, workload, cold_file, msec):
    cgroup = cgroups("leader")
    records = lifecycle(daemon, workload, cgroup, "leader-first", 5, msec, cold_file, 4)
    assert_counted(daemon, cgroup, *sums(records))


def test_vfork_and_exec(daemon, cgroups, workload, cold_file):
    cgroup = cgroups("vfork")
    records = lifecycle(daemon, workload, cgroup, "vfork", 6, 0, cold_file, 9, descendants=True)
    assert_counted(daemon, cgroup, *sums(records))


@pytest.mark.parametrize("msec", [0, 5000, 13000], ids=["reaped", "for-5s", "beyond-a-sweep"])
def test_zombies_are_counted_once(daemon, cgroups, workload, cold_file, msec):
    """The kernel answers for a zombie until it is reaped, long after its exit record."""
    cgroup = cgroups("zombies")
    records = lifecycle(daemon, workload, cgroup, "zombies", 7, msec, cold_file, 9, descendants=True)
    assert_counted(daemon, cgroup, *sums(records))


def test_zombies_that_are_asked_for(start_daemon, cgroups, workload, cold_file):
    """A daemon that starts while there are zombies does not take their past for its own."""
    cgroup = cgroups("old-zombies")
    program = workload(cgroup, "lifecycle", "zombies", 7, 4000, cold_file, fifo=True)
    time.sleep(1)
    daemon = start_daemon().wait_ready()
    program.finish()
    time.sleep(0.5)
    row = daemon.api_cgroup(cgroup.path)
    assert row["blkio"]["waits"] == row["blkio"]["rejected_waits"] == 0
    daemon.stop()


# Tasks that move.

def test_waits_before_a_move_stay_where_they_were(daemon, cgroups, workload, cold_file):
    places = [cgroups("from"), cgroups("to")]
    reader = stepwise(daemon, workload, places[0], cold_file)
    time.sleep(LAUNCH)
    told(reader, "read 21")
    before = taskstats.live(reader.pid)
    assert before.blkio_count >= 10

    places[1].add(reader.pid)
    time.sleep(0.3)
    told(reader, "read 34")
    with taskstats.ExitRecords() as exits:
        reader.process.stdin.close()
        after = exits.wait_for(reader.pid)
    assert_counted(daemon, places[0], before.blkio_count, before.blkio_total)
    assert_counted(daemon, places[1], after.blkio_count - before.blkio_count, after.blkio_total - before.blkio_total)


def test_moves_to_and_fro(daemon, cgroups, workload, cold_file):
    places = [cgroups("here"), cgroups("there")]
    truth = [[0, 0], [0, 0]]
    reader = stepwise(daemon, workload, places[0], cold_file)
    time.sleep(LAUNCH)
    last = taskstats.live(reader.pid)
    truth[0] = [last.blkio_count, last.blkio_total]
    for turn in range(8):
        told(reader, "read %d" % (turn + 3))
        now = taskstats.live(reader.pid)
        truth[turn % 2][0] += now.blkio_count - last.blkio_count
        truth[turn % 2][1] += now.blkio_total - last.blkio_total
        last = now
        places[(turn + 1) % 2].add(reader.pid)
        time.sleep(0.2)
    for place, (waits, total) in zip(places, truth):
        assert_counted(daemon, place, waits, total)


def test_a_move_that_is_followed_at_once(daemon, cgroups, workload, cold_file):
    """No notice is early enough for these: the waits just after the move may be in either, and are in one."""
    places = [cgroups("left"), cgroups("entered")]
    reader = stepwise(daemon, workload, places[0], cold_file)
    time.sleep(LAUNCH)
    told(reader, "read 10")
    before = taskstats.live(reader.pid)
    with taskstats.ExitRecords() as exits:
        places[1].add(reader.pid)
        told(reader, "read 10")
        reader.process.stdin.close()
        after = exits.wait_for(reader.pid)

    def counted():
        rows = [daemon.api_cgroup(place.path)["blkio"] for place in places]
        return sum(row["waits"] for row in rows) >= after.blkio_count and rows

    rows = wait_until("all waits", counted)
    assert sum(row["waits"] for row in rows) == after.blkio_count
    assert sum(row["total_nsec"] for row in rows) == after.blkio_total
    assert rows[0]["waits"] >= before.blkio_count


# Tasks of the kernel.

def test_a_kernel_thread_waits_in_the_root_cgroup(daemon, cgroups, workload, disk_directory):
    """A journal thread of a file system is born, waits, and ends; the program that writes has only its own waits."""
    if not shutil.which("mkfs.ext4"):
        pytest.skip("mkfs.ext4 (package e2fsprogs) is not installed")
    image, point = disk_directory / "image", disk_directory / "mounted"
    point.mkdir()
    subprocess.run(["truncate", "--size=64M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)

    cgroup = cgroups("writer")
    with taskstats.ExitRecords() as exits:
        mount = subprocess.run(["mount", "-o", "loop,commit=1", image, point], check=False,
                               stderr=subprocess.PIPE, text=True)
        if mount.returncode != 0:
            pytest.skip("no loop mount: %s" % mount.stderr.strip())
        try:
            writers = []
            for i in range(12):
                writer = workload(cgroup, "/bin/dd", "if=/dev/zero", "of=%s" % (point / str(i)), "bs=4k",
                                  "count=64", "oflag=sync", "status=none", fifo=True, gate=lambda: daemon.settle(cgroup))
                writer.finish()
                writers.append(exits.wait_for(writer.pid))
            time.sleep(POLL)
        finally:
            subprocess.run(["umount", point], check=True)
        journal = wait_until("the journal thread's exit record", lambda: next(
            (record for record in exits.drain() if record.comm.startswith(b"jbd2/loop")), None))

    assert journal.blkio_count > 0
    assert_counted(daemon, cgroup, *sums(writers))

    def counted():
        tasks = daemon.ctl_json("tasks", "--limit=0", "--window=1h")["tasks"]
        return next((task for task in tasks if task["tid"] == journal.tid and not task["alive"]), None)

    task = wait_until("the journal thread", counted)
    assert task["cgroup"] == "/"
    assert task["comm"].startswith("jbd2/loop")
    assert task["blkio"]["waits"] + task["blkio"]["rejected_waits"] == journal.blkio_count
    if journal.blkio_possible():
        assert task["blkio"]["total_nsec"] <= journal.blkio_total
    else:
        assert task["blkio"]["rejected_waits"] > 0
    assert task["blkio"]["total_nsec"] <= journal.blkio_most()


def test_nothing_went_backwards(daemon):
    """After all of the above: no counter went down, and no exit was lost."""
    status = daemon.status()
    assert status["samples"]["reasons"]["backwards"] == 0
    assert status["exits"]["lost"] == 0

# SPDX-License-Identifier: LGPL-2.1-or-later
"""The tools that the other tests believe: does the kernel count here what we say that it counts?"""
import os

import pytest

import hosttools
import taskstats


# A read whose block arrives before the task has gone to sleep is no wait: so "about as many".
def test_cold_reads_wait_about_once_each(cgroups, workload, cold_file):
    cgroup = cgroups("truth")
    with taskstats.ExitRecords() as exits:
        reader = workload(cgroup, "cold-reader", "--blocks=40", cold_file, fifo=True)
        assert reader.finish()["reads"] == 40
        record = exits.wait_for(reader.pid)
    assert record.comm == b"cold-reader"
    assert record.tgid == reader.pid
    assert 20 <= record.blkio_count <= 60
    assert record.read_bytes >= 40 * 4096 & ~1023
    assert record.blkio_possible()


def test_dropped_caches_make_any_read_wait(cgroups, workload, disk_directory):
    path = hosttools.make_cold_file(disk_directory / "dropped", 4)
    cgroup = cgroups("truth")
    with taskstats.ExitRecords() as exits:
        hosttools.drop_caches()
        program = hosttools.Workload(cgroup, ["/bin/cat", path])
        program.process.communicate(timeout=30)
        record = exits.wait_for(program.pid)
        program.end()
    assert record.blkio_count > 0


def test_a_live_task_has_its_waits_before_it_exits(cgroups, workload, cold_file):
    reader = workload(cgroups("truth"), "cold-reader", "--blocks=20", "--hold", cold_file, fifo=True)
    reader.first_line()
    alive = taskstats.live(reader.pid)
    assert alive.blkio_count >= 10
    with taskstats.ExitRecords() as exits:
        reader.finish()
        record = exits.wait_for(reader.pid)
    assert record.blkio_count >= alive.blkio_count


def test_threads_have_records_of_their_own(cgroups, workload, cold_file):
    with taskstats.ExitRecords() as exits:
        reader = workload(cgroups("truth"), "cold-reader", "--blocks=40", "--threads=4", cold_file)
        reader.finish()
        exits.wait_for(reader.pid)
        records = exits.of_group(reader.pid)
    assert len(records) == 4
    assert sum(record.blkio_count for record in records) >= 20


def test_zram_swaps_in(zram, cgroups, workload):
    cgroup = cgroups("truth")
    cgroup.limit_memory(16 << 20)
    with taskstats.ExitRecords() as exits:
        swapper = workload(cgroup, "swapper", 48)
        said = swapper.finish()
        record = exits.wait_for(swapper.pid)
    assert said["major_faults"] > 1000
    assert record.swapin_count >= said["major_faults"]
    assert record.swapin_total > 0


@pytest.mark.parametrize("parallel", [1, 16])
def test_a_storm_leaves_a_record_of_each_child(cgroups, workload, parallel):
    with taskstats.ExitRecords() as exits:
        storm = workload(cgroups("truth"), "fork-storm", 5000, parallel)
        assert storm.finish()["children"] == 5000
        exits.wait_for(storm.pid)
        children = [record for record in exits.records if record.comm == b"fork-storm" and record.tid != storm.pid]
    assert len(children) == 5000


def test_an_unknown_task_is_no_such_process():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(taskstats.KernelError) as error:
        taskstats.live(pid)
    assert error.value.errno == 3

# SPDX-License-Identifier: LGPL-2.1-or-later
"""The distribution that delayd shows of a task which it can only poll, against every single one of its waits."""
import math
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import ftrace
import taskstats
from daemon import wait_until

SECONDS = 15
BUCKET = math.log(2) / 4  # of delayd's histograms
QUANTILES = (50, 90, 99)


def quantile(values, percent):
    return values[min(len(values) - 1, math.ceil(len(values) * percent / 100) - 1)]


def state_of(pid):
    return Path("/proc/%d/stat" % pid).read_text(encoding="ascii").rpartition(")")[2].split()[0]


@pytest.fixture
def fio(workload, disk_directory):
    """Starts a synchronous direct reader in a cgroup, stopped before it has read much; returns its worker's PID."""
    if not shutil.which("fio"):
        pytest.skip("fio is not installed")
    command = ["/usr/bin/fio", "--name=reader", "--filename=%s" % (disk_directory / "fio"), "--size=256M", "--direct=1",
               "--rw=randread", "--bs=4k", "--ioengine=psync", "--output=/dev/null"]
    # Elsewhere, for laying out the file waits for the disk as well.
    subprocess.run([*command, "--create_only=1"], check=True)
    workers = []

    def start(cgroup, iops):
        rate = ["--rate_iops=%d" % iops] if iops else []
        program = workload(cgroup, *command, "--time_based", "--runtime=600", *rate, fifo=True)

        def worker():
            assert program.process.poll() is None, "fio ended"
            return next((pid for pid in cgroup.processes()
                         if pid != program.pid and taskstats.live(pid).blkio_count > 0), None)

        workers.append(wait_until("fio's worker", worker, 60))
        os.kill(workers[0], signal.SIGSTOP)
        return workers[0]

    yield start
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.seconds(150)
@pytest.mark.parametrize("iops", [200, 5000, None], ids=["200-a-second", "5000-a-second", "unlimited"])
def test_quantiles_within_a_bucket(start_daemon, cgroups, fio, record_property, iops):
    cgroup = cgroups("fidelity")
    daemon = start_daemon().wait_ready()
    pid = fio(cgroup, iops)
    before = taskstats.live(pid)

    try:
        trace = ftrace.Waits(pid)
    except ftrace.TraceError as error:
        pytest.skip("no trace: %s" % error)
    try:
        os.kill(pid, signal.SIGCONT)
        time.sleep(SECONDS)
        os.kill(pid, signal.SIGSTOP)
        wait_until("the worker stopped", lambda: state_of(pid) == "T")
        waits = sorted(trace.stop())
        after = taskstats.live(pid)
    finally:
        trace.close()

    counted = after.blkio_count - before.blkio_count
    assert counted > 0.5 * SECONDS * min(iops or 1000, 1000), "the reader hardly waited"
    assert len(waits) == pytest.approx(counted, rel=0.02), "the trace does not show the waits that the kernel counts"

    def polled():
        row = daemon.api_cgroup(cgroup.path)["blkio"]
        return row["waits"] >= after.blkio_count and row

    shown = wait_until("all waits of the polled task", polled)
    assert shown["rejected_waits"] == 0
    assert shown["waits"] - counted < counted / 200, "too many waits before the trace"

    # The kernel's delay also holds the way from the waking to the end of the accounting, and the one before the switch.
    scale = (after.blkio_total - before.blkio_total) / counted / (sum(waits) / len(waits))
    lines = ["%s: %d waits, %.0f a second, %.1f %% exact; trace x %.2f" % (
        iops or "unlimited", counted, counted / SECONDS, 100 * shown["exact_waits"] / shown["waits"], scale)]
    off = {}
    for percent in QUANTILES:
        truth = quantile(waits, percent) * scale
        off[percent] = math.log(shown["p%d_nsec" % percent] / truth) / BUCKET
        lines.append("  p%d  delayd %9.1f us  trace %9.1f us  %+.2f buckets" % (
            percent, shown["p%d_nsec" % percent] / 1000, truth / 1000, off[percent]))
    print("\n" + "\n".join(lines))
    record_property("fidelity", "\n".join(lines))
    assert all(abs(buckets) <= 1 for buckets in off.values()), "\n".join(lines)
    daemon.stop()

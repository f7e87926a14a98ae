# SPDX-License-Identifier: LGPL-2.1-or-later
"""The distribution that delayd shows of a task that is only polled, against every single one of its waits.

On the live tests' host the reader has to be a real-time one, for the fault of Linux 6.12. Here it is as any task.
"""
import contextlib
import json
import math
import subprocess
import time

import ftrace
import taskstats
from guest import COLD_FILE, HERE, results, row_of, unit_command, wait_until

SECONDS = 15
BUCKET = math.log(2) / 4  # of delayd's histograms
QUANTILES = (50, 90, 99)


def quantile(values, percent):
    return values[min(len(values) - 1, math.ceil(len(values) * percent / 100) - 1)]


@contextlib.contextmanager
def direct_reader(name, rate):
    """A unit that reads between two lines; gives its PID and what takes the lines."""
    process = subprocess.Popen(unit_command(name, [HERE / "direct-reader", rate, COLD_FILE], []), text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def order():
        process.stdin.write("\n")
        process.stdin.flush()

    try:
        yield json.loads(process.stdout.readline())["pid"], order, process.stdout
    finally:
        process.stdin.close()
        process.wait(20)


def quantiles_within_a_bucket(name, rate):
    with direct_reader(name, rate) as (pid, order, said):
        before = taskstats.live(pid)
        trace = ftrace.Waits(pid)
        try:
            order()
            time.sleep(SECONDS)
            order()
            reads = json.loads(said.readline())["reads"]
            waits = sorted(trace.stop())
            after = taskstats.live(pid)
        finally:
            trace.close()

        def polled():
            row = row_of("/system.slice/%s.service" % name)
            return row and row["blkio"]["waits"] + row["blkio"]["rejected_waits"] >= after.blkio_count and row["blkio"]

        shown = wait_until("all waits of the polled task", polled)

    counted = after.blkio_count - before.blkio_count
    # The kernel's delay also holds the way from the waking to the end of the accounting, and the one before the switch:
    # a fifth of a short wait, and hardly anything of a long one.
    more = (after.blkio_total - before.blkio_total) / counted - sum(waits) / len(waits)
    lines = ["%d reads, %d waits (%d in the trace), %.0f a second, %.1f %% exact, %d refused; trace + %.1f us" % (
        reads, counted, len(waits), counted / SECONDS, 100 * shown["exact_waits"] / shown["waits"], shown["rejected_waits"],
        more / 1000)]
    off = []
    for percent in QUANTILES:
        truth = quantile(waits, percent) + more
        off.append(math.log(shown["p%d_nsec" % percent] / truth) / BUCKET)
        lines.append("  p%d  delayd %9.1f us  trace %9.1f us  %+.2f buckets" % (
            percent, shown["p%d_nsec" % percent] / 1000, truth / 1000, off[-1]))
    for line in lines:
        results.say("# " + line)

    assert counted > 0.5 * SECONDS * rate, "the reader hardly waited"
    assert abs(len(waits) - counted) <= 0.02 * counted, "the trace does not show the waits that the kernel counts"
    assert shown["rejected_waits"] == 0
    assert shown["waits"] - counted < counted / 200, "too many waits before the trace"
    return all(abs(buckets) <= 1 for buckets in off)

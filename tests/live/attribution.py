# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where the daemon put the waits of short-lived tasks, against where they were: the program scatter tells."""
import collections
import json
import os
import subprocess
import time
from dataclasses import dataclass, field

import hosttools
import taskstats
from daemon import wait_until

SOURCES = ("cache", "pidfd", "procfs", "parent", "none")
SURE = ("cache", "pidfd", "procfs")


@dataclass
class Outcome:
    name: str
    tasks: int = 0         # that waited
    waits: int = 0
    right: int = 0         # tasks in the right cgroup
    right_waits: int = 0   # waits in the cgroup where they were, by the cgroups' own sums
    missing: int = 0       # tasks that the daemon does not list
    by_source: collections.Counter = field(default_factory=collections.Counter)
    wrong: collections.Counter = field(default_factory=collections.Counter)  # by source
    examples: list = field(default_factory=list)
    late: float = 0.0      # share of the time in which the host kept a task like the daemon from running

    def silently_wrong(self):
        return sum(self.wrong[source] for source in SURE) + self.missing

    def share(self):
        return self.right / self.tasks

    def line(self):
        return "%-20s %6d %7d %8.3f%% %8.3f%% %6d %6.2f%%  %s" % (
            self.name, self.tasks, self.waits, 100 * self.share(), 100 * self.right_waits / self.waits,
            self.silently_wrong(), 100 * self.late,
            " ".join("%7s" % (self.by_source[source] if not self.wrong[source]
                              else "%d(%d)" % (self.by_source[source], self.wrong[source])) for source in SOURCES))


HEADER = "%-20s %6s %7s %9s %9s %6s %7s  %s   (wrong ones)" % (
    "class", "tasks", "waits", "tasks ok", "waits ok", "silent", "stalls",
    " ".join("%7s" % source for source in SOURCES))


class Stalls:
    """Watches how promptly the host lets a task run that has the daemon's priority."""

    def __enter__(self):
        self.process = subprocess.Popen([hosttools.WORKLOADS / "stalls"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=lambda: os.nice(-10))
        return self

    def __exit__(self, *_):
        out, _ = self.process.communicate(timeout=10)
        said = json.loads(out)
        self.share = said["late_nsec"] / said["elapsed_nsec"]


def compare(daemon, name, directories, start):
    """start() runs the program to its end and returns what it said. directories: (path of the cgroup, path on disk)."""
    with taskstats.ExitRecords() as exits, Stalls() as stalls:
        said = start()
        time.sleep(0.3)
        records = {record.tid: record for record in exits.drain()}

    outcome = Outcome(name, late=stalls.share)
    truth = collections.Counter()
    tasks = {}
    for tid, place in said["tasks"]:
        record = records[tid]
        if record.blkio_count > 0:
            truth[directories[place]] += record.blkio_count
            tasks[tid] = directories[place]
    outcome.tasks, outcome.waits = len(tasks), sum(truth.values())

    def counted():
        rows = daemon.api("cgroups?limit=0&window=1h")["cgroups"]
        found = {row["cgroup"]: row["blkio"]["waits"] + row["blkio"]["rejected_waits"] for row in rows}
        return sum(found.values()) >= outcome.waits and found

    found = wait_until("%d waits" % outcome.waits, counted)
    outcome.right_waits = outcome.waits - sum(max(waits - found.get(path, 0), 0) for path, waits in truth.items())

    listed = {task["tid"]: task for task in daemon.ctl_json("tasks", "--limit=0", "--window=1h")["tasks"]}
    for tid, path in tasks.items():
        if tid not in listed:
            outcome.missing += 1
            continue
        source = listed[tid]["attribution"]
        outcome.by_source[source] += 1
        if listed[tid]["cgroup"] == path:
            outcome.right += 1
        else:
            outcome.wrong[source] += 1
            if len(outcome.examples) < 5:
                outcome.examples.append((tid, path, listed[tid]["cgroup"], source))
    return outcome

# SPDX-License-Identifier: LGPL-2.1-or-later
"""What all rows of the bench share: the daemon under test, CPU time of a process, medians, and the raw numbers on disk."""
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import hosttools
from daemon import DELAYD, Daemon, free_port

BUILD = hosttools.BUILD
PROGRAMS = BUILD / "tests/bench"
RAW = hosttools.ROOT / "build/bench"


@dataclass
class Row:
    """One line of the table: what was measured, beside what, and what it may be."""
    name: str
    what: str
    own: str             # as a text with its unit
    reference: str
    value: float         # the number that the budget is about
    unit: str            # of it: "x", "%", "ms", "MiB", ""
    budget: float = None
    at_least: bool = False
    values: list = field(default_factory=list)  # of each run
    note: str = ""

    @property
    def met(self):
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget


def number(value):
    """A number with three digits that mean something."""
    if value == int(value) and abs(value) < 1e6:
        return "%d" % value
    return "%.3g" % value if abs(value) < 1000 else "%.0f" % value


def spread(values):
    return "%s to %s" % (number(min(values)), number(max(values))) if len(values) > 1 else ""


def program(name):
    return PROGRAMS / name


def workload(name):
    return hosttools.WORKLOADS / name


def cpu_nsec(pid):
    """What the main thread has run for; the daemon has no other."""
    return int(Path("/proc/%d/schedstat" % pid).read_text(encoding="ascii").split()[0])


def run_json(*args, **options):
    """Runs a program to its end; its last line is JSON."""
    result = subprocess.run([str(arg) for arg in args], check=True, text=True, stdout=subprocess.PIPE, **options)
    return json.loads(result.stdout.splitlines()[-1])


def child_cpu(*args, **options):
    """CPU time in ns of a program and all its children, and how long it ran."""
    start = time.monotonic()
    process = subprocess.Popen([str(arg) for arg in args], **options)
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, "%s: exit status %d" % (args[0], process.returncode)
    return {"user_nsec": int(usage.ru_utime * 1e9), "sys_nsec": int(usage.ru_stime * 1e9),
            "real_nsec": int((time.monotonic() - start) * 1e9)}


class Helper:
    """A program that says JSON when it is ready, and ends with its input."""

    def __init__(self, *args):
        self.process = subprocess.Popen([str(arg) for arg in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.first = json.loads(self.process.stdout.readline())

    def finish(self):
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, "%s failed" % self.process.args[0]
        return json.loads(out) if out.strip() else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Bench:
    """What a row is given: how much to do, and what it may use."""

    def __init__(self, quick, full, runs):
        self.quick = quick
        self.full = full
        self.runs = runs
        self.directory = Path(tempfile.mkdtemp(prefix="delayd-bench-", dir="/var/tmp"))

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def scale(self, quick, normal):
        return quick if self.quick else normal

    @contextlib.contextmanager
    def daemon(self, *args, root=True):
        """A delayd without a bus; root: with delay accounting on while it runs."""
        daemon = Daemon(self.directory / "delayd.log", None, "--bus=none", *args, port=free_port())
        try:
            daemon.wait_ready()
            yield daemon
            daemon.stop()
        finally:
            daemon.kill()

    @contextlib.contextmanager
    def cgroups(self, n, name="bench"):
        """n cgroups of ours under one parent."""
        parent = hosttools.Cgroup("delayd-%s-%d" % (name, os.getpid()))
        made = []
        try:
            for i in range(n):
                made.append(hosttools.Cgroup("%s/%03d" % (parent.directory.name, i)))
            yield made
        finally:
            for cgroup in reversed(made):
                cgroup.remove()
            parent.remove()

    def pairs(self, own, reference):
        """Runs both in alternation, each first in turn; returns [(own, reference)]."""
        done = []
        for i in range(self.runs):
            if i % 2:
                second = own()
                first = reference()
            else:
                first = reference()
                second = own()
            done.append((second, first))
        return done


def idle_cost(pid, seconds):
    """CPU time per second of a process that is left alone."""
    before, start = cpu_nsec(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_nsec(pid) - before) / (time.monotonic() - start)


def ratio_row(name, what, pairs, per, unit, budget, reference, note=""):
    """A row about own / reference, both in nanoseconds per something."""
    ratios = [own / ref for own, ref in pairs]
    return Row(name, what,
               own="%s ns/%s" % (number(statistics.median(own for own, _ in pairs)), per),
               reference="%s: %s ns/%s" % (reference, number(statistics.median(ref for _, ref in pairs)), per),
               value=statistics.median(ratios), unit=unit, budget=budget, values=ratios, note=note)


def save(name, rows, raw):
    RAW.mkdir(parents=True, exist_ok=True)
    content = {
        "row": name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "delayd": subprocess.run([DELAYD, "--version"], check=True, text=True, stdout=subprocess.PIPE).stdout.split()[1],
        "results": [dict(row.__dict__, met=row.met) for row in rows],
        "raw": raw,
    }
    (RAW / (name + ".json")).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

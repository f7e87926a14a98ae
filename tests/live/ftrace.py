# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every single wait of one task, from the scheduler's tracepoints: what no reader of sums can know.

A wait is the time from the sched_switch in which the task left its CPU uninterruptible to the sched_waking
that ended it. The trace is an instance of its own: nobody else's tracing is touched.
"""
import os
import re
import subprocess
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
UNINTERRUPTIBLE = 2  # TASK_UNINTERRUPTIBLE
LINE = re.compile(r"\s(\d+\.\d+): (sched_switch|sched_waking): ")


class TraceError(Exception):
    pass


class Waits:
    """Traces the waits of a task from its making until stop()."""

    def __init__(self, pid, buffer_kib=131072):
        self.mounted = not (TRACEFS / "instances").exists()
        if self.mounted:
            mount = subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], check=False,
                                   stderr=subprocess.PIPE, text=True)
            if mount.returncode != 0:
                raise TraceError(mount.stderr.strip())
        self.directory = TRACEFS / ("instances/delayd-test-%d" % os.getpid())
        try:
            self.directory.mkdir()
            self._write("trace_clock", "mono")
            self._write("buffer_size_kb", buffer_kib)
            self._write("events/sched/sched_switch/filter",
                        "prev_pid == %d && prev_state & %d" % (pid, UNINTERRUPTIBLE))
            self._write("events/sched/sched_waking/filter", "pid == %d" % pid)
            self._write("events/sched/sched_waking/enable", 1)
            self._write("events/sched/sched_switch/enable", 1)
        except OSError as error:
            self.close()
            raise TraceError("tracefs: %s" % error) from error

    def _write(self, name, value):
        (self.directory / name).write_text(str(value), encoding="ascii")

    def stop(self):
        """Ends the trace; returns the lengths of the waits in ns, in their order."""
        self._write("tracing_on", 0)
        for stats in self.directory.glob("per_cpu/cpu*/stats"):
            text = stats.read_text(encoding="ascii")
            if re.search(r"^(overrun|dropped events): [1-9]", text, re.MULTILINE):
                raise TraceError("the trace lost events:\n" + text)

        waits, began = [], None
        with open(self.directory / "trace", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = LINE.search(line)
                if not found:
                    continue
                seconds, _, fraction = found.group(1).partition(".")
                nsec = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
                if found.group(2) == "sched_switch":
                    began = nsec
                elif began is not None:
                    waits.append(nsec - began)
                    began = None
        return waits

    def close(self):
        if self.directory.exists():
            self.directory.rmdir()
        if self.mounted:
            subprocess.run(["umount", TRACEFS], check=False)

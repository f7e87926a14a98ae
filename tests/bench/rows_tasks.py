# SPDX-License-Identifier: LGPL-2.1-or-later
"""Live tasks: what asking for them costs beside a bare loop and beside iotop-c, and what an idle host costs."""
import contextlib
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from measure import Helper, Row, child_cpu, cpu_nsec, idle_cost, number, program, ratio_row, run_json

PROCESSES, THREADS = 500, 10
CGROUPS = 20


@contextlib.contextmanager
def idle_host(bench, processes=PROCESSES):
    """5,000 threads that do nothing, in a few cgroups."""
    with bench.cgroups(CGROUPS, "idle") as cgroups, \
            Helper(program("idle-threads"), processes, THREADS, *[cgroup.directory for cgroup in cgroups]) as host:
        yield [tid for cgroup in cgroups for tid in (cgroup.directory / "cgroup.threads").read_text(encoding="ascii").split()]
        host.finish()


def get_loop(tids, rounds):
    result = run_json(program("get-loop"), rounds, input="\n".join(tids))
    assert result["replies"] == result["requests"]
    return {"ns": result["cpu_nsec"] / result["requests"], **result}


def sampling(daemon, seconds):
    """ns per sample of a daemon that samples as often as it is told to."""
    def samples():
        counts = daemon.api("status")["samples"]
        return counts["accepted"] + counts["rejected"]

    before, cpu = samples(), cpu_nsec(daemon.process.pid)
    time.sleep(seconds)
    spent, taken = cpu_nsec(daemon.process.pid) - cpu, samples() - before
    return {"ns": spent / taken, "samples": taken, "spent_nsec": spent}


def polling(bench):
    # A kind that pressure says nothing of, so that every task is asked; idle tasks are asked each 400 ms.
    args = ["--set", "Collect.PollInterval=100ms", "--set", "Collect.Kinds=blkio swapin compact", "--set", "Collect.CpuBudget=100%"]
    with idle_host(bench) as tids, bench.daemon(*args) as daemon:
        time.sleep(2)
        raw = bench.pairs(lambda: sampling(daemon, bench.scale(2, 4)), lambda: get_loop(tids, bench.scale(4, 10)))
    pairs = [(own["ns"], reference["ns"]) for own, reference in raw]
    return [ratio_row("poll", "CPU per live task and poll, 5,000 threads", pairs, "poll", "x", 1.5, "batched GET loop",
                      "sweeps and all else that the daemon does included")], raw


def iotop_cost(samples):
    """CPU time per second of monitoring at one sample a second, start-up taken out."""
    once = child_cpu("iotop-c", "-b", "-n", 1, "-d", 1, stdout=subprocess.DEVNULL)
    more = child_cpu("iotop-c", "-b", "-n", 1 + samples, "-d", 1, stdout=subprocess.DEVNULL)
    cost = sum(more[key] - once[key] for key in ("user_nsec", "sys_nsec")) / samples
    return {"ns": cost, "once": once, "more": more}


def iotop(bench):
    if not shutil.which("iotop-c"):
        raise LookupError("iotop-c is not installed")
    seconds = bench.scale(4, 6)
    with idle_host(bench) as _tids, bench.daemon() as daemon:
        time.sleep(10)  # until tasks that never wait are known as such
        raw = bench.pairs(lambda: {"ns": idle_cost(daemon.process.pid, seconds)}, lambda: iotop_cost(seconds))
    own = statistics.median(run["ns"] for run, _ in raw)
    reference = statistics.median(run["ns"] for _, run in raw)
    ratios = [run["ns"] / ref["ns"] for run, ref in raw]
    return [Row("poll-iotop", "CPU per second at 5,000 threads", "%s ms/s" % number(own / 1e6),
                "iotop-c -b -d 1: %s ms/s" % number(reference / 1e6), value=statistics.median(ratios), unit="x",
                budget=0.125, values=ratios)], raw


def idle(bench):
    """CPU time of the daemon with 5,000 tasks more that never wait, and what it costs without them."""
    seconds = bench.scale(10, 20)
    raw = []
    for _ in range(max(1, bench.runs // 2)):
        with bench.daemon() as daemon:
            time.sleep(12)
            without = idle_cost(daemon.process.pid, seconds)
            with idle_host(bench):
                time.sleep(12)
                raw.append({"without": without, "with": idle_cost(daemon.process.pid, seconds),
                            "rss": daemon.api("status")["rss_bytes"]})
    shares = [run["with"] / 1e7 for run in raw]
    return [Row("idle", "cost of an idle host with 5,000 threads", "%s %% of a core" % number(statistics.median(shares)),
                "without them: %s %%" % number(statistics.median(run["without"] for run in raw) / 1e7),
                value=statistics.median(shares), unit="%", budget=0.2, values=shares)], raw


ROWS = {"poll": polling, "poll-iotop": iotop, "idle": idle}

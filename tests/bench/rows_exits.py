# SPDX-License-Identifier: LGPL-2.1-or-later
"""Exit records: what they cost beside a reader that throws them away, whether any is lost, and where they are put."""
import time

import hosttools
from daemon import wait_until
from measure import Helper, Row, cpu_nsec, idle_cost, program, ratio_row, run_json, workload

PARALLEL = 8
SETTLE_SECONDS = 5  # tasks that ended unseen are asked for once more, and entries are freed 2 s later


def storm(children, parallel=PARALLEL):
    return run_json(workload("fork-storm"), children, parallel)["elapsed_nsec"]


def discarding_reader(children):
    """ns per record of a reader that is drained every 10 ms."""
    with Helper(program("exit-reader")) as reader:
        elapsed = storm(children)
        time.sleep(0.1)
        result = reader.finish()
    assert result["lost"] == 0 and result["received"] >= children
    return {"ns": result["cpu_nsec"] / result["received"], "storm_nsec": elapsed, **result, "parents": None}


def daemon_cost(daemon, children):
    """ns per exit of the daemon in the same storm: all that it does about a child, from its fork to the end of its entry."""
    idle = idle_cost(daemon.process.pid, 2)
    before, start = cpu_nsec(daemon.process.pid), time.monotonic()
    elapsed = storm(children)
    time.sleep(SETTLE_SECONDS)
    seconds = time.monotonic() - start
    spent = cpu_nsec(daemon.process.pid) - before
    return {"ns": (spent - idle * seconds) / children, "spent_nsec": spent, "idle_nsec_per_second": idle,
            "seconds": seconds, "storm_nsec": elapsed}


def exit_row(bench, name, what, budget, args, note):
    children = bench.scale(20000, 50000)
    with bench.daemon(*args) as daemon:
        storm(2000)
        time.sleep(SETTLE_SECONDS)
        before = daemon.api("status")["exits"]
        raw = bench.pairs(lambda: daemon_cost(daemon, children), lambda: discarding_reader(children))
        after = daemon.api("status")["exits"]
    assert after["lost"] == 0
    pairs = [(own["ns"], reference["ns"]) for own, reference in raw]
    note += "; %d records reached the daemon of %d exits" % (after["received"] - before["received"],
                                                             2 * children * bench.runs)
    return [ratio_row(name, what, pairs, "exit", "x", budget, "discarding reader", note)], raw


def without_delay(bench):
    return exit_row(bench, "exit-without-delay", "CPU per exit without delay", 0.5, [],
                    "the daemon's share of fork events included")


def with_delay(bench):
    # Every child copies pages on write, so with that kind each record has a delay.
    return exit_row(bench, "exit-with-delay", "CPU per exit with delay, attributed and binned", 2.5,
                    ["--set", "Collect.Kinds=blkio wpcopy"], "kinds blkio and wpcopy, fork events included")


def lost(bench):
    """The fastest storms that the host can make, unfiltered."""
    children = bench.scale(20000, 100000)
    raw = []
    with bench.daemon("--set", "Collect.ExitFilter=no") as daemon:
        for parallel in (1, 2, 32, 256):
            before = daemon.api("status")["exits"]
            elapsed = storm(children, parallel)
            wait_until("all records", lambda: daemon.api("status")["exits"]["received"] - before["received"] >= children)
            raw.append({"parallel": parallel, "exits_per_second": children / elapsed * 1e9,
                        "lost": daemon.api("status")["exits"]["lost"] - before["lost"]})
    total = sum(run["lost"] for run in raw)
    return [Row("exits-lost", "exits lost in the fastest storm", "%d of %d" % (total, children * len(raw)), "the storms' own count",
                value=total, unit="", budget=0,
                note="%.0f exits/s" % max(run["exits_per_second"] for run in raw))], raw


def attribution(bench):
    """Children of 1 ms in 50 cgroups; the truth is the parent that each exit record names."""
    n, children = 50, bench.scale(100, 1000)
    raw, right, total = [], 0, 0
    with bench.cgroups(n, "storm") as cgroups, bench.daemon("--set", "Collect.Kinds=blkio wpcopy") as daemon:
        for _ in range(1 if bench.quick else 2):
            def waits():
                rows = daemon.api("cgroups?window=1h&limit=0")["cgroups"]
                return {row["cgroup"]: row["wpcopy"]["waits"] for row in rows}

            def settled():
                time.sleep(1.5)
                first = waits()
                time.sleep(1.5)
                return first == waits() and first

            with Helper(program("forkers"), children, 4, *[cgroup.directory for cgroup in cgroups]) as forkers, \
                    Helper(program("exit-reader"), "--by-parent") as witness:
                time.sleep(2)
                before = waits()
                assert forkers.finish() == {"done": True}
                parents = {parent["pid"]: parent for parent in witness.finish()["parents"]}
            time.sleep(2)
            after = waits()
            result = []
            for pid, cgroup in zip(forkers.first["pids"], cgroups):
                truth = parents[pid]
                assert truth["exits"] == children
                found = after.get(cgroup.path, 0) - before.get(cgroup.path, 0)
                result.append({"cgroup": cgroup.path, "exits": truth["exits"], "truth": truth["waits"], "found": found})
            raw.append({"cgroups": result, "exits": daemon.api("status")["exits"]})
            # The forkers' own exits are in it as well: a few waits too many are no error of the children's.
            right += sum(min(run["truth"], run["found"]) for run in result)
            total += sum(run["truth"] for run in result)
    return [Row("attribution", "exits put in the right cgroup, 1 ms children in 50 cgroups",
                "%d of %d waits" % (right, total), "exit records by parent", value=right / total * 100, unit="%",
                budget=99.9, at_least=True)], raw


ROWS = {
    "exit-without-delay": without_delay,
    "exit-with-delay": with_delay,
    "exits-lost": lost,
    "attribution": attribution,
}

# SPDX-License-Identifier: LGPL-2.1-or-later
"""CLI, HTTP and D-Bus: valid, in agreement, and polite to questions that make no sense."""
import json
import os
import shutil
import subprocess

import pytest

import hosttools
import taskstats
from daemon import NOBODY, wait_until


@pytest.fixture
def waited(daemon, cgroups, launcher, cold_file, request):
    """A cgroup with some waits in it."""
    cgroup = cgroups(request.node.name.replace("[", "-").replace("]", "").replace("/", "-"))
    shell = launcher(cgroup)
    daemon.settle(cgroup)
    with taskstats.ExitRecords() as exits:
        record = exits.wait_for(shell.run(hosttools.WORKLOADS / "cold-reader", "--blocks=12", cold_file)["pid"])
    daemon.wait_for_waits(cgroup.path, "blkio", record.blkio_count + taskstats.live(shell.pid).blkio_count)
    return cgroup


def test_promtool_finds_no_fault(daemon, waited):
    if not shutil.which("promtool"):
        pytest.skip("promtool (package prometheus) is not installed")
    body = daemon.http("/metrics")[2]
    check = subprocess.run(["promtool", "check", "metrics"], input=body, timeout=60, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert check.returncode == 0, check.stdout.decode()


def test_the_scrape_is_well_formed(daemon, waited):
    status, headers, body = daemon.http("/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert body.endswith(b"\n")

    lines = body.decode().splitlines()
    samples = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples)), "a series is there twice"

    metrics = daemon.metrics()
    histograms = {}
    for (name, labels), value in metrics.items():
        if name.endswith("_bucket"):
            rest = frozenset(label for label in labels if label[0] != "le")
            histograms.setdefault((name[:-len("_bucket")], rest), []).append((float(dict(labels)["le"]), value))
    assert histograms
    for (name, labels), buckets in histograms.items():
        counts = [count for _bound, count in sorted(buckets)]
        assert counts == sorted(counts), "%s of %r goes down" % (name, dict(labels))
        assert sorted(buckets)[-1][0] == float("inf")
        assert counts[-1] == metrics[name + "_count", labels]
        assert metrics[name + "_sum", labels] >= 0


@pytest.mark.parametrize("name", [
    "delayd_cgroup_tasks", "delayd_cgroup_unaccounted_tasks", "delayd_cgroup_info", "delayd_exits_received_total",
    "delayd_exits_lost_total", "delayd_exits_attributed_total", "delayd_samples_rejected_total",
    "delayd_polled_tasks", "delayd_poll_duration_seconds", "delayd_cgroups_overflowed_total",
    "delayd_task_delayacct_enabled", "delayd_build_info", "process_cpu_seconds_total",
    "process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds", "process_max_fds",
])
def test_the_documented_metrics_are_there(daemon, waited, name):
    assert any(sample == name for sample, _labels in daemon.metrics())


def test_health_and_readiness(daemon):
    for path in ("/-/healthy", "/-/ready"):
        assert daemon.http(path)[0] == 200
        assert daemon.http(path, method="HEAD")[0] == 200


def test_the_page_for_people(daemon):
    status, headers, body = daemon.http("/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert b"/metrics" in body


def test_the_three_interfaces_agree(daemon, waited):
    cli = daemon.cgroup(waited.path)
    rows = daemon.api("cgroups?window=1h&limit=0")["cgroups"]
    assert next(row for row in rows if row["cgroup"] == waited.path) == cli

    query = "histogram?cgroup=%s&kind=blkio&window=1h" % waited.path
    cli = daemon.ctl_json("histogram", waited.path, "--kind=blkio", "--window=1h")
    assert daemon.api(query) == cli

    call = daemon.call("GetHistogram", "ssta{sv}", waited.path, "blkio", 3600 * 10**9, 0)
    assert call.returncode == 0, call.stderr
    data = json.loads(call.stdout)["data"][0]
    assert data["waits"]["data"] == cli["waits"]
    assert data["total_nsec"]["data"] == cli["total_nsec"]


def test_status_has_its_fields(daemon):
    status = daemon.status()
    assert status["kernel"]["release"] == os.uname().release
    assert status["kernel"]["task_delayacct"] is True
    assert status["kernel"]["taskstats_version"] == taskstats.live(os.getpid()).version
    assert status["health"] == "ok", status["problems"]
    assert set(status["exits"]) >= {"received", "lost", "filter", "attributed"}
    assert set(status["exits"]["attributed"]) == {"cache", "pidfd", "procfs", "parent", "none"}
    assert status["cpu_nsec"] > 0 and status["rss_bytes"] > 0
    assert set(daemon.api("status")) >= set(status)


@pytest.mark.parametrize("arguments", [
    ["cgroups"], ["cgroups", "--kind=swapin"], ["cgroups", "--sort=p99", "--limit=3"], ["tasks"], ["status"],
    ["top", "-b", "-n", "1"],
])
def test_tables_for_people(daemon, waited, arguments):
    result = daemon.ctl(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "\x1b" not in result.stdout, "escape sequences in a pipe"
    assert result.stderr == ""


def test_histogram_draws_bars(daemon, waited):
    result = daemon.ctl("histogram", waited.path)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) > 2


def test_json_pretty_is_the_same(daemon, waited):
    pretty = daemon.ctl("--json=pretty", "histogram", waited.path)
    assert pretty.stdout.count("\n") > 5
    assert json.loads(pretty.stdout) == daemon.ctl_json("histogram", waited.path)


# Questions that make no sense.

@pytest.mark.parametrize("path, status, word", [
    ("/api/v1/histogram?cgroup=/no/such/cgroup&kind=blkio", 404, "/no/such/cgroup"),
    ("/api/v1/histogram?kind=blkio", 400, "cgroup"),
    ("/api/v1/histogram?cgroup=/&kind=disk", 400, "swapin"),
    ("/api/v1/cgroups?window=soon", 400, "window"),
    ("/api/v1/cgroups?sort=colour", 400, "sort"),
    ("/api/v1/cgroups?limit=-1", 400, "limit"),
    ("/api/v1/tasks", 404, ""),
    ("/nothing", 404, ""),
    ("/metrics/../../etc/passwd", 404, ""),
    ("/api/v1/histogram?cgroup=%ff%zz", 404, ""),
    ("/api/v1/histogram?cgroup=%00", 400, "NUL"),
])
def test_bad_questions_over_http(daemon, path, status, word):
    got, _headers, body = daemon.http(path)
    assert got == status, body
    assert word in body.decode()
    assert daemon.http("/-/healthy")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_reading_over_http(daemon, method):
    status, headers, _body = daemon.http("/metrics", method=method)
    assert status == 405
    assert "GET" in headers["Allow"]


def test_an_unknown_cgroup_over_dbus(daemon):
    call = daemon.call("GetHistogram", "ssta{sv}", "/no/such/cgroup", "blkio", 0, 0)
    assert call.returncode != 0
    assert "/no/such/cgroup" in call.stderr


@pytest.mark.parametrize("arguments", [
    ("GetHistogram", "ssta{sv}", "/", "disk", 0, 0),
    ("ListCgroups", "tssta{sv}", 0, "disk", "", 0, 0),
    ("ListCgroups", "tssta{sv}", 0, "", "colour", 0, 0),
    ("ListCgroups", "s", "x"),
    ("NoSuchMethod",),
])
def test_bad_questions_over_dbus(daemon, arguments):
    call = daemon.call(*arguments)
    assert call.returncode != 0
    assert call.stderr.strip()
    assert daemon.call("GetStatus").returncode == 0


@pytest.mark.parametrize("arguments, word", [
    (["histogram", "/no/such/cgroup"], "/no/such/cgroup"),
    (["histogram"], "histogram"),
    (["dance"], "dance"),
    (["cgroups", "--kind=disk"], "disk"),
    (["cgroups", "--window=soon"], "soon"),
    (["cgroups", "--sort=colour"], "colour"),
    (["cgroups", "--limit=-1"], "-1"),
    (["--json=xml", "status"], "xml"),
    (["--nonsense", "status"], "nonsense"),
])
def test_bad_questions_to_delayctl(daemon, arguments, word):
    result = daemon.ctl(*arguments)
    assert result.returncode == 1
    assert word in result.stderr
    assert len(result.stderr.splitlines()) <= 4
    assert result.stdout == ""


# Who may see what.

def test_cgroups_are_for_everyone(daemon, waited, public_copy):
    as_nobody = {"prefix": NOBODY, "program": public_copy / "delayctl"}
    rows = daemon.ctl_json("cgroups", "--limit=0", **as_nobody)["cgroups"]
    assert any(row["cgroup"] == waited.path for row in rows)
    assert daemon.ctl("status", **as_nobody).returncode == 0


def test_tasks_are_for_their_owner(daemon, cgroups, cold_file, workload, public_copy):
    reader = workload(cgroups("owner"), "cold-reader", "--blocks=12", "--hold", cold_file, fifo=True)
    reader.first_line()
    wait_until("the task", lambda: any(task["tid"] == reader.pid
                                       for task in daemon.ctl_json("tasks", "--limit=0")["tasks"]))
    result = daemon.ctl("--json=short", "tasks", "--limit=0", prefix=NOBODY, program=public_copy / "delayctl")
    seen = json.loads(result.stdout)["tasks"] if result.returncode == 0 else []
    assert not any(task["tid"] == reader.pid for task in seen)
    reader.finish()


def test_nobody_else_can_own_the_name(daemon):
    call = subprocess.run([*NOBODY, "busctl", "--address=" + daemon.bus_address, "call", "org.freedesktop.DBus",
                           "/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName", "su", "org.delayd1", "0"],
                          text=True, timeout=30, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert call.returncode != 0

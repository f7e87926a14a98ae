# SPDX-License-Identifier: LGPL-2.1-or-later
"""delayctl against a fake service on a private bus."""
import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time
import unicodedata
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DELAYCTL = os.environ["DELAYCTL"]
FAKE_DELAYD = os.environ["FAKE_DELAYD"]

CGROUP_KEYS = ["cgroup", "unit", "container_id", "removed", "tasks", "unaccounted_tasks"]
DELAY_KEYS = ["waits", "total_nsec", "mean_nsec", "p50_nsec", "p90_nsec", "p99_nsec", "max_nsec",
              "rejected_waits", "without_io_waits", "exact_waits"]
TASK_KEYS = ["tid", "tgid", "comm", "cgroup", "alive"]


class Bus:
    """A private dbus-daemon, with a fake delayd on it where a mode is given."""

    def __init__(self, directory, mode=None):
        self.address = f"unix:path={directory}/bus"
        self.daemon = subprocess.Popen(
            ["dbus-daemon", f"--config-file={HERE}/bus.conf", f"--address={self.address}", "--nofork",
             "--print-address=1"], stdout=subprocess.PIPE, text=True)
        assert self.daemon.stdout.readline()
        self.env = {"PATH": os.environ["PATH"], "DBUS_SYSTEM_BUS_ADDRESS": self.address, "LC_ALL": "C.UTF-8",
                    "TERM": "xterm"}
        self.fake = None
        if mode:
            self.start(mode)

    def start(self, mode):
        self.log = []
        self.fake = subprocess.Popen([FAKE_DELAYD, mode], env=self.env, stdout=subprocess.PIPE, text=True)
        assert self.fake.stdout.readline() == "ready\n"

    def stop(self):
        self.fake.kill()
        self.fake.wait()
        calls = self.fake.stdout.read().splitlines()
        self.fake.stdout.close()
        self.fake = None
        return calls

    def close(self):
        if self.fake:
            self.stop()
        self.daemon.kill()
        self.daemon.wait()
        self.daemon.stdout.close()

    def run(self, *arguments, env=None, **keywords):
        return subprocess.run([DELAYCTL, *arguments], env=self.env | (env or {}), capture_output=True, text=True,
                              timeout=30, **keywords)

    def lines(self, *arguments, **keywords):
        result = self.run(*arguments, **keywords)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        return result.stdout.splitlines()

    def json(self, *arguments):
        result = self.run("-j", *arguments)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)

    def error(self, *arguments, **keywords):
        result = self.run(*arguments, **keywords)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.startswith("delayctl: ")
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.stderr)
        return result.stderr


def bus_fixture(mode, scope="module"):
    @pytest.fixture(scope=scope)
    def fixture(tmp_path_factory):
        bus = Bus(tmp_path_factory.mktemp("bus"), mode)
        yield bus
        bus.close()
    return fixture


normal = bus_fixture("normal")
empty = bus_fixture("empty")
nobody = bus_fixture(None)
fresh = bus_fixture("normal", scope="function")


def width(text):
    """Columns on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def column_end(line, title):
    return width(line[:line.index(title) + len(title)])


# JSON

def test_json_cgroups(normal):
    reply = normal.json("cgroups")
    assert list(reply) == ["window_nsec", "cgroups"]
    assert reply["window_nsec"] == 300 * 10**9
    assert len(reply["cgroups"]) == 8
    for row in reply["cgroups"]:
        assert list(row) == [*CGROUP_KEYS, "blkio", "swapin", "slice", "pod_uid"]
        assert list(row["blkio"]) == list(row["swapin"]) == DELAY_KEYS

    first, quiet, unattributed = reply["cgroups"][0], reply["cgroups"][6], reply["cgroups"][7]
    assert first["unit"] == "postgresql.service"
    assert first["container_id"] is None and first["removed"] is False
    assert first["blkio"] == {"waits": 4321, "total_nsec": 61234567890, "mean_nsec": 14171388, "p50_nsec": 2345678,
                              "p90_nsec": 45678901, "p99_nsec": 234567890, "max_nsec": 2345678901,
                              "rejected_waits": 3, "without_io_waits": 7, "exact_waits": 4000}
    assert quiet["blkio"]["waits"] == 0 and quiet["blkio"]["max_nsec"] is None
    assert unattributed["cgroup"] == "(unattributed)" and unattributed["unit"] is None


def test_json_keeps_text_without_raw_controls(normal):
    result = normal.run("--json=short", "cgroups")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.stdout)
    names = [row["cgroup"] for row in json.loads(result.stdout)["cgroups"]]
    assert "/evil\x1b[2J\x07\x9b31m\x7f\u202edrowssap" in names
    assert "/system.slice/日本語.service" in names


def test_json_pretty_is_the_same(normal):
    result = normal.run("cgroups", "--json=pretty")
    assert result.stdout.count("\n") > 100
    assert json.loads(result.stdout) == normal.json("cgroups")
    assert '\\/' not in result.stdout


def test_json_kinds_and_limit(normal):
    reply = normal.json("cgroups", "--kind=swapin", "--limit=2", "--window=1m")
    assert reply["window_nsec"] == 60 * 10**9
    assert [list(row) for row in reply["cgroups"]] == [[*CGROUP_KEYS, "swapin", "slice", "pod_uid"]] * 2


def test_json_of_a_newer_daemon(fresh):
    fresh.stop()
    fresh.start("newer")
    for row in fresh.json("cgroups")["cgroups"]:
        assert list(row)[:6] == CGROUP_KEYS
        assert list(row)[-1] == "flavour" and row["flavour"] == ["a", "b"]


def test_json_of_a_tree(normal):
    rows = normal.json("cgroups", "--tree", "--limit=3")["cgroups"]
    assert [list(row) for row in rows] == [[*CGROUP_KEYS, "blkio", "swapin", "slice", "pod_uid", "subtree"]] * 3
    assert [list(row["subtree"]) for row in rows] == [["tasks", "unaccounted_tasks", "blkio", "swapin"]] * 3
    assert list(rows[0]["subtree"]["blkio"]) == DELAY_KEYS
    assert (rows[0]["blkio"]["waits"], rows[0]["subtree"]["blkio"]["waits"]) == (4321, 5321)
    assert all("subtree" not in row for row in normal.json("cgroups")["cgroups"])


def test_tree(normal):
    lines = normal.lines("cgroups", "--tree", "--kind=blkio", "--window=5m")
    assert lines[0].split() == ["CGROUP", "TASKS", "OWN", "WAITS", "OWN", "TOTAL", "WAITS", "TOTAL", "P50", "P99", "MAX"]
    assert lines[1].split() == ["/system.slice/postgresql.service", "112", "4321", "1min", "1s", "5321", "1min", "2s",
                                "2.346ms", "234.6ms", "2.346s"]
    assert "left out (--all shows them)" in lines[-1] and '"OWN" is the cgroup alone' in lines[-1]
    # By the subtree's total, or by name; both kinds have lines of their own.
    assert [line.split()[0] for line in normal.lines("cgroups", "--tree", "--kind=blkio", "--no-legend")][:2] == [
        "/system.slice/postgresql.service", lines[2].split()[0]]
    names = [line.split()[0] for line in normal.lines("cgroups", "--tree", "--kind=blkio", "--no-legend", "--all",
                                                      "--sort=cgroup")]
    assert len(names) == 8 and names[-1] == "(unattributed)" and names[-2].startswith("/system.slice/日本語")
    assert [line.split()[2] for line in normal.lines("cgroups", "--tree", "--no-legend", "--limit=2")] == ["blkio", "swapin"]


def test_a_tree_is_of_cgroups(normal):
    for verb in "tasks", "top", "status":
        result = normal.run(verb, "--tree")
        assert result.returncode == 1 and "--tree is for cgroups alone" in result.stderr


def test_a_tree_without_waits(empty):
    assert "No task waited" in empty.lines("cgroups", "--tree")[0]


def test_json_tasks(normal):
    reply = normal.json("tasks")
    assert list(reply) == ["window_nsec", "tasks"]
    assert [list(row) for row in reply["tasks"]] == [[*TASK_KEYS, "blkio", "swapin", "uid", "attribution"]] * 3
    assert [row["tgid"] for row in reply["tasks"]] == [1000, None, 1000]
    assert [row["alive"] for row in reply["tasks"]] == [True, True, False]
    assert reply["tasks"][1]["comm"] == "evil\x1b]0;x\x07"


def test_json_histogram(normal):
    reply = normal.json("histogram", "foo.service", "--kind=swapin", "--window=1h")
    assert list(reply)[:6] == ["cgroup", "kind", "window_nsec", "waits", "total_nsec", "buckets"]
    assert reply["cgroup"] == "foo.service" and reply["kind"] == "swapin"
    assert reply["window_nsec"] == 3600 * 10**9
    assert len(reply["buckets"]) == 41
    assert all(list(bucket) == ["le_nsec", "waits"] for bucket in reply["buckets"])
    assert [b["le_nsec"] is None for b in reply["buckets"]] == [False] * 40 + [True]
    assert sum(bucket["waits"] for bucket in reply["buckets"]) == reply["waits"] == 104


STATUS = {"version": None, "uptime_nsec": None, "health": None, "problems": ["id", "message", "remedy"],
          "kernel": ["release", "taskstats_version", "task_delayacct", "delayed_dequeue"],
          "exits": ["received", "lost", "filter", "attributed"], "samples": ["accepted", "rejected"],
          "polling": ["interval_nsec", "tasks", "last_duration_nsec"],
          "cgroups": ["tracked", "removed", "overflowed"], "cpu_nsec": None, "rss_bytes": None,
          "replay": None}


@pytest.mark.parametrize("which", ["normal", "empty"])
def test_json_status(which, request):
    reply = request.getfixturevalue(which).json("status")
    assert list(reply) == list(STATUS)
    for key, keys in STATUS.items():
        if key == "problems":
            assert all(list(problem)[:3] == keys for problem in reply[key])
        elif keys:
            assert list(reply[key])[:len(keys)] == keys
    assert list(reply["exits"]["attributed"]) == ["cache", "pidfd", "procfs", "parent", "none"]


def test_json_status_values(normal, empty):
    reply = normal.json("status")
    assert reply["kernel"]["task_delayacct"] is False and reply["exits"]["lost"] == 7
    assert reply["exits"]["attributed"]["cache"] == 123000 and reply["exits"]["attributed"]["none"] is None
    assert reply["problems"][1]["remedy"] is None
    assert empty.json("status")["problems"] == []


# Tables

def test_cgroups_table_is_aligned(normal):
    lines = normal.lines("cgroups")
    header, rows = lines[0], lines[1:lines.index("")]
    assert header.split() == ["CGROUP", "TASKS", "KIND", "WAITS", "TOTAL", "MEAN", "P50", "P90", "P99", "MAX", "EXACT"]
    assert len(rows) == 8
    end = column_end(header, "TASKS")
    for row in rows:
        assert width(row) == width(header)
        before = row
        while width(before) > end:
            before = before[:-1]
        assert before[-1] != " " and row[len(before)] == " "


def test_cgroups_sorted_across_kinds(normal):
    rows = [line.split() for line in normal.lines("--no-legend", "cgroups")]
    assert [(row[2], row[3]) for row in rows[:3]] == [("swapin", "1000"), ("blkio", "4321"), ("blkio", "100")]
    assert rows[1][:5] == ["/system.slice/postgresql.service", "12", "blkio", "4321", "1min"]

    rows = [line.split() for line in normal.lines("--no-legend", "cgroups", "--sort=waits", "--limit=2")]
    assert [row[3] for row in rows] == ["4321", "1000"]


def test_cgroups_of_one_kind(normal):
    lines = normal.lines("--kind=swapin", "cgroups")
    assert "KIND" not in lines[0]
    assert len(lines[1:lines.index("")]) == 2
    assert lines[2].split() == ["/system.slice/postgresql.service", "12", "5", "1.25ms", "250us", "200us", "400us",
                                "450us", "456.8us", "100%"]


def test_quiet_cgroups(normal):
    lines = normal.lines("cgroups")
    assert "quiet.service" not in "\n".join(lines)
    assert "2 cgroups without waits are left out (--all shows them)." in lines[lines.index("") + 1]
    lines = normal.lines("cgroups", "--all", "--kind=blkio")
    quiet = next(line for line in lines if "quiet.service" in line)
    assert quiet.split()[1:] == ["4", "0", "0s", "-", "-", "-", "-", "-", "-"]
    assert "left out" not in "\n".join(lines)


def test_footer(normal):
    footer = "\n".join(normal.lines("cgroups", "--window=7m", "--limit=3"))
    assert "the last 5min (the nearest that is kept to 7min)" in footer
    assert "The first 3 of 8 lines." in footer
    assert "3 waits of impossible length were rejected" in footer
    assert "4 tasks are not accounted" in footer
    assert normal.lines("cgroups", "--no-legend", "--limit=3")[-1].startswith("/kubepods.slice/")


def test_removed_cgroup(normal):
    row = next(line for line in normal.lines("cgroups") if "gone.service" in line)
    assert row.split()[1] == "removed"


def test_tables_have_no_raw_controls(normal):
    for verb in "cgroups", "tasks", "status":
        output = normal.run(verb).stdout
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", output)
    assert r"/evil\x1b[2J\x07\xc2\x9b31m\x7f\xe2\x80\xaedrowssap" in normal.run("cgroups").stdout


def test_other_locale(normal):
    output = normal.run("cgroups", env={"LC_ALL": "POSIX"}).stdout
    assert output.isascii() and r"/system.slice/\xe6\x97\xa5" in output
    lines = normal.lines("histogram", "foo.service", env={"LC_ALL": "POSIX"})
    assert lines[-2].endswith(" " + "#" * 60)
    environment = {key: value for key, value in normal.env.items() if key != "LC_ALL"}
    output = subprocess.run([DELAYCTL, "cgroups"], env=environment, capture_output=True, text=True).stdout
    assert "日本語.service" in output


def test_nothing(empty):
    assert empty.lines("cgroups")[0] == "No task waited for blkio or swapin in the last 5min."
    assert empty.lines("cgroups", "--kind=blkio", "--window=1h")[0] == "No task waited for blkio in the last 1h."
    assert empty.lines("tasks", "--no-legend") == ["No task waited in the last 5min."]
    assert "0 blkio waits" in empty.lines("histogram", "foo.service")[0]


def test_tasks_table(normal):
    lines = normal.lines("tasks", "--kind=blkio")
    assert lines[0].split()[:5] == ["TID", "TGID", "COMM", "CGROUP", "ALIVE"]
    rows = [line.split() for line in lines[1:lines.index("")]]
    assert [(row[0], row[1], row[4]) for row in rows] == [("1000", "1000", "yes"), ("1001", "-", "yes"),
                                                          ("1002", "1000", "no")]
    assert rows[1][2] == r"evil\x1b]0;x\x07"
    assert len({width(line) for line in lines[:4]}) == 1


def test_tasks_of_others(normal, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    note = "Only your own tasks are shown; root and the group delayd see all."
    assert note not in normal.run("tasks").stdout
    fake_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    path = Path(normal.address.removeprefix("unix:path="))
    for parent in [path, *path.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o777 if parent == path else parent.stat().st_mode | 0o011)
    copy = Path(f"/tmp/delayctl-test-{os.getpid()}")
    copy.write_bytes(Path(DELAYCTL).read_bytes())
    try:
        copy.chmod(0o755)
        result = subprocess.run([*fake_user, copy, "tasks"], env=normal.env, capture_output=True, text=True)
    finally:
        copy.unlink()
    assert result.returncode == 0, result.stderr
    assert note in result.stdout


def test_histogram_bars(normal):
    lines = normal.lines("histogram", "foo.service")
    assert lines[0] == "foo.service in the last 5min: 104 blkio waits, total 832us, mean 8us"
    assert lines[2].split() == ["ABOVE", "UP", "TO", "WAITS", "CUM%"]
    rows = [line.split() for line in lines[3:]]
    assert rows == [["5us", "6us", "3", "2.9", "█▊"], ["6us", "7us", "0", "2.9"],
                    ["7us", "8us", "100", "99.0", "█" * 60], ["8us", "10us", "1", "100.0", "▌"]]
    assert all(line == line.rstrip() for line in lines)


def test_histogram_of_many_buckets(normal):
    lines = normal.lines("histogram", "wide", "--no-legend")
    assert 8 < len(lines) <= 40
    rows = [line.split() for line in lines]
    assert sum(int(row[2]) for row in rows) == 861
    assert rows[-1][1] == "-" and rows[-1][3] == "100.0"
    assert all(above[0] == below[1] for below, above in zip(rows, rows[1:]))


def test_status(normal, empty):
    lines = normal.lines("status")
    assert lines[0].strip() == "Health: degraded"
    assert lines[1].strip() == "Problems: delay-accounting-off: The kernel does not count waits."
    assert lines[2].strip() == "remedy: sysctl kernel.task_delayacct=1"
    assert r"Evil \x1b[2J message." in lines[3]
    text = "\n".join(lines)
    assert "123456 received, 7 lost, filter on" in text
    assert "9.8.7, running for 2h 3min" in text
    assert "7.38s of CPU (0.10% of one), 7.0 MiB of memory" in text
    assert len({line.index(": ") for line in lines if re.match(" *[A-Z][a-z ]+: ", line)}) == 1
    assert empty.lines("status")[0].strip() == "Health: ok"


def test_color(normal):
    assert "\033[33mdegraded\033[0m" in normal.run("status", "--color=always").stdout
    assert "\033" not in normal.run("status").stdout
    assert "\033" in normal.run("status", "--color=always", env={"NO_COLOR": "1"}).stdout


# Calls

def test_options_reach_the_daemon(fresh):
    fresh.run("--window=90s", "cgroups", "--kind=swapin,blkio", "--sort=p99", "--limit=5", "-j")
    fresh.run("--sort=comm", "tasks")
    fresh.run("histogram", "/a b")
    assert fresh.stop() == ["ListCgroups window=90000000000 kinds=swapin blkio sort=p99 limit=5",
                            "ListTasks window=0 kinds= sort=comm limit=0",
                            "GetHistogram cgroup=/a b kind= window=0"]


# Errors

@pytest.mark.parametrize("arguments, words", [
    ([], ["top, cgroups, tasks, histogram, status, doctor"]),
    (["frobnicate"], ["frobnicate", "top, cgroups, tasks, histogram, status, doctor"]),
    (["cgroups", "extra"], ["extra"]),
    (["histogram"], ["CGROUP|UNIT"]),
    (["cgroups", "--json=xml"], ["xml", "short, pretty or off"]),
    (["cgroups", "--color=blue"], ["auto, always or never"]),
    (["cgroups", "--kind=disk"], ["disk", "cpu, blkio, swapin, freepages, thrashing, compact, wpcopy and irq"]),
    (["cgroups", "--kind="], ["blkio, swapin"]),
    (["cgroups", "--sort=size"], ["size", "total, waits, mean, p50, p90, p99, max, cgroup or comm"]),
    (["cgroups", "--sort=comm"], ["max or cgroup"]),
    (["tasks", "--sort=cgroup"], ["max or comm"]),
    (["cgroups", "--window=soon"], ["1m, 5m, 15m or 1h"]),
    (["cgroups", "--window=2h"], ["1m, 5m, 15m or 1h"]),
    (["cgroups", "--window=0"], ["1m, 5m, 15m or 1h"]),
    (["cgroups", "--limit=-1"], ["whole number"]),
    (["cgroups", "--limit=99999999999999999999"], ["whole number"]),
    (["top", "--delay=1ms"], ["100ms"]),
    (["top", "-n", "x"], ["iterations"]),
    (["histogram", "a", "--kind=blkio,swapin"], ["one"]),
    (["cgroups", "--kind=\x1b[2J"], [r"\x1b[2J"]),
])
def test_usage_errors(nobody, arguments, words):
    text = nobody.error(*arguments)
    assert text.endswith("Try 'delayctl --help'.\n") and text.count("\n") == 2
    for word in words:
        assert word in text


@pytest.mark.parametrize("arguments", [["--nonsense"], ["cgroups", "-x"], ["--window"]])
def test_unknown_options(nobody, arguments):
    result = nobody.run(*arguments)
    assert result.returncode == 1 and result.stderr.endswith("Try 'delayctl --help'.\n")


def test_help_and_version(nobody):
    assert "histogram CGROUP|UNIT" in "\n".join(nobody.lines("--help"))
    assert nobody.lines("cgroups", "-h") == nobody.lines("--help")
    assert max(len(line) for line in nobody.lines("-h")) <= 80
    assert re.fullmatch(r"delayctl \d+\.\d+\.\d+", nobody.lines("--version")[0])


def test_not_running(nobody):
    for verb in ["cgroups"], ["tasks"], ["status"], ["histogram", "x"], ["top"], ["top", "-j"]:
        text = nobody.error(*verb)
        assert "systemctl start delayd" in text and "DBUS_SYSTEM_BUS_ADDRESS" in text


def test_no_bus(nobody):
    for address in "unix:path=/nonexistent", "nonsense", "":
        text = nobody.error("status", env={"DBUS_SYSTEM_BUS_ADDRESS": address})
        assert "DBUS_SYSTEM_BUS_ADDRESS" in text


def test_silent_bus(nobody, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "bus"))
        listener.listen()
        start = time.monotonic()
        text = nobody.error("status", env={"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path}/bus"})
        assert "timed out" in text and 9 < time.monotonic() - start < 13


@pytest.mark.parametrize("mode, words", [
    ("denied", "Access denied: no such luck. Run delayctl as root"),
    ("garbled", "cannot be read"),
    ("old", "another version"),
    ("failing", "could not answer"),
])
def test_bad_daemons(fresh, mode, words):
    fresh.stop()
    fresh.start(mode)
    assert words in fresh.error("cgroups")
    if mode in ("garbled", "old"):
        assert words in fresh.error("histogram", "x")
        assert words in fresh.error("status")


def test_timeout(fresh):
    fresh.stop()
    fresh.start("deaf")
    start = time.monotonic()
    assert "did not answer within 10 s" in fresh.error("cgroups")
    assert 9 < time.monotonic() - start < 13


def test_errors_of_the_daemon(fresh):
    assert fresh.error("histogram", "nosuch.service") == \
        "delayctl: No cgroup or unit 'nosuch.service\\x1b[2J' is known.\n"
    assert fresh.error("cgroups", "--kind=irq") == "delayctl: The kind irq is not collected.\n"
    assert "valid UTF-8" in fresh.error("histogram", b"/\xff")
    assert "left the bus" in fresh.error("histogram", "leave")


def test_write_errors(normal):
    for arguments in ["cgroups"], ["-j", "cgroups"], ["--help"], ["--version"], ["top", "-b", "-n", "2", "-d", "100ms"]:
        with open("/dev/full", "w") as full:
            result = subprocess.run([DELAYCTL, *arguments], env=normal.env, stdout=full, stderr=subprocess.PIPE,
                                    text=True, timeout=10)
        assert result.returncode == 1
        assert "No space left on device" in result.stderr

    for restore in True, False:  # SIGPIPE kills, or is ignored by who started us
        reading, writing = os.pipe()
        os.close(reading)
        result = subprocess.run([DELAYCTL, "top", "-n", "0", "-d", "100ms"], env=normal.env, stdout=writing,
                                stderr=subprocess.PIPE, text=True, timeout=10, restore_signals=restore)
        os.close(writing)
        assert result.returncode == (-signal.SIGPIPE if restore else 1)


# top without a terminal

def test_top_batch(normal):
    lines = normal.lines("top", "-b", "-n", "2", "-d", "200ms")
    starts = [i for i, line in enumerate(lines) if re.match(r"delayctl top, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line)]
    assert len(starts) == 2 and lines[starts[1] - 1] == ""
    for start in starts:
        assert lines[start + 1].startswith("CGROUP")
        assert lines[start + 3].startswith("/system.slice/postgresql.service")


def test_top_is_one_table_in_a_pipe(normal):
    assert sum(line.startswith("delayctl top") for line in normal.lines("top")) == 1


def test_top_json(normal):
    start = time.monotonic()
    lines = normal.lines("top", "-j", "-n", "3", "-d", "100ms")
    assert time.monotonic() - start >= 0.2
    assert [len(json.loads(line)["cgroups"]) for line in lines] == [8] * 3


# top on a terminal

class Terminal:
    def __init__(self, bus, *arguments, columns=140, rows=24, term="xterm"):
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen([DELAYCTL, *arguments], env=bus.env | {"TERM": term}, stdin=slave,
                                        stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.output = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.master], [], [], left)[0]:
            yield os.read(self.master, 65536).decode(errors="replace")

    def expect(self, pattern, seconds=5):
        """Reads until a frame matches, and returns what came since the last match."""
        for text in itertools.chain([""], self.read(seconds)):
            self.output += text
            if re.search(pattern, self.output, re.DOTALL):
                seen, self.output = self.output, ""
                return seen
        raise AssertionError(f"{pattern!r} did not appear in {self.output!r}")

    def frame(self, pattern):
        """Reads until a whole frame matches."""
        return self.expect(pattern + r".*\033\[J")

    def send(self, keys):
        os.write(self.master, keys.encode())

    def finish(self):
        status = self.process.wait(timeout=5)
        self.rest = self.expect(r"\033\[\?25h\033\[\?1049l")
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.slave)
        os.close(self.master)
        return status


@pytest.fixture
def terminal(normal):
    terminals = []

    def make(*arguments, **keywords):
        terminals.append(Terminal(normal, *arguments, **keywords))
        return terminals[-1]

    yield make
    for each in terminals:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_top_live(terminal):
    top = terminal("top", "-d", "1h")
    first = top.frame("drowssap")
    assert first.startswith("\033[?1049h")
    assert "blkio swapin, last 5min, by total, every 1h" in first
    assert re.search("cri-containerd-0a1b2.*postgresql.service", first, re.DOTALL)

    top.send("k")
    top.frame("cgroups, blkio, last 5min.*gone.service.*gone.service")  # at once, and with the answer
    top.send("k")
    frames = top.frame("cgroups, swapin, last 5min.*postgresql.service")
    assert "No task waited" not in frames and "gone.service" not in frames.split("\033[H")[-1]
    top.send("k")
    top.frame("cgroups, blkio swapin, last")
    top.send("w")
    top.frame("last 15min")
    top.send("\033[15~\033OMh")  # F5 and Enter of the keypad are not the orders 5 and M; help
    frames = top.frame("Any key goes back")
    assert "by p50" not in frames and "by mean" not in frames
    top.send("xM")
    top.frame("by mean")
    top.send("s")
    top.frame("by p50")
    top.send("-")
    top.frame("every 59min 59s")
    top.send("t")
    top.frame(r"tasks, blkio.*TID.*evil\\x1b\]")
    top.resize(50, 8)
    frame = top.frame("last 15min[^\n]*…").split("\033[H")[-1]
    lines = re.sub(r"\033\[[0-9?;]*[A-Za-z]|\r", "", frame).split("\n")
    assert 3 < len(lines) <= 8 and max(map(width, lines)) <= 50
    top.send("q")
    assert top.finish() == 0


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_top_restores_on_signals(terminal, signal_number):
    top = terminal("top")
    top.expect("postgresql")
    top.process.send_signal(signal_number)
    assert top.finish() == -signal_number


def test_top_control_c(terminal):
    top = terminal("top")
    top.expect("postgresql")
    top.send("\x03")
    assert top.finish() == -signal.SIGINT


def test_top_suspends(terminal):
    top = terminal("top", "-d", "1h")
    top.frame("drowssap")
    top.process.send_signal(signal.SIGTSTP)
    top.expect(r"\033\[\?1049l")
    assert os.WIFSTOPPED(os.waitpid(top.process.pid, os.WUNTRACED)[1])
    assert termios.tcgetattr(top.slave) == top.before
    top.process.send_signal(signal.SIGCONT)
    top.expect(r"\033\[\?1049h.*postgresql")
    assert not termios.tcgetattr(top.slave)[3] & termios.ECHO
    top.send("q")
    assert top.finish() == 0


def test_top_iterations(terminal):
    top = terminal("top", "-n", "2", "-d", "100ms")
    assert top.finish() == 0
    assert top.rest.count("postgresql.service") >= 4


def test_top_survives_the_daemon(fresh):
    top = Terminal(fresh, "top", "-d", "100ms")
    try:
        top.expect("postgresql")
        fresh.stop()
        top.expect("delayd is not running on this bus.*postgresql")
        fresh.start("empty")
        top.expect("No task waited for blkio or swapin")
        fresh.daemon.kill()
        fresh.daemon.wait()
        top.expect("Cannot reach the bus")
        top.send("q")
        assert top.finish() == 0
    finally:
        top.process.kill()


def test_top_says_at_once_what_is_wrong(nobody):
    top = Terminal(nobody, "top")
    top.expect("delayctl: delayd is not running on this bus")
    assert top.process.wait(timeout=5) == 1
    assert "\033[?1049h" not in top.output


def test_top_on_a_dumb_terminal(terminal):
    top = terminal("top", "-n", "1", term="dumb")
    assert "\033" not in top.expect("rejected and are in no number")
    assert top.process.wait(timeout=5) == 0

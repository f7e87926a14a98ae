# SPDX-License-Identifier: LGPL-2.1-or-later
"""Cgroups that come and go, in numbers, at the same path, below each other, and with names that nobody would choose."""
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import hosttools
from daemon import wait_until

BYTES = [byte for byte in range(1, 256) if byte not in b"/\n"]


@pytest.fixture
def own(start_daemon):
    """A daemon of the test's own, with settings."""
    def start(*settings):
        return start_daemon(*(word for setting in settings for word in ("--set", setting))).wait_ready()
    return start


def memory(daemon):
    """The daemon's own: not what its libraries share with others, which comes and goes with them."""
    for line in Path("/proc/%d/status" % daemon.process.pid).read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def read_in(directory, file, blocks=3):
    """A process in the cgroup waits for the disk and ends."""
    subprocess.run([hosttools.WORKLOADS / "cold-reader", "--blocks=%d" % blocks, file], check=True,
                   stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                   preexec_fn=lambda: (directory / "cgroup.procs").write_text("0"))


def waits(row):
    return row["blkio"]["waits"] + row["blkio"]["rejected_waits"]


def churn(base, n, file, every):
    """n cgroups, one after the other; in one of so many a task waits."""
    for i in range(n):
        directory = base / ("churn-%d" % i)
        directory.mkdir()
        if i % every == 0:
            read_in(directory, file)
        hosttools.Cgroup.remove_directory(directory)


@pytest.mark.seconds(600)
def test_memory_is_flat_after_many_cgroups(own, cgroups, cold_file):
    daemon = own("Collect.Retention=1s", "Collect.PollInterval=500ms")
    base = cgroups("churn").directory
    sizes = []
    total = int(os.environ.get("DELAYD_TEST_CHURN", "20000"))
    for _ in range(5):
        churn(base, total // 5, cold_file, 200)
        wait_until("removed cgroups are forgotten", lambda: daemon.api("status")["cgroups"]["removed"] < 10, 30)
        sizes.append(memory(daemon))
    print("anonymous memory after each of 5 x %d cgroups: %s KiB" % (total // 5, [size // 1024 for size in sizes]))
    assert daemon.api("status")["cgroups"]["overflowed"] == 0
    assert max(sizes[2:]) <= sizes[1] + (1 << 20), sizes
    assert max(sizes) < 16 << 20
    daemon.stop()


@pytest.mark.seconds(300)
def test_memory_is_flat_after_fork_storms(own, cgroups, workload):
    daemon = own("Collect.Retention=1s")
    sizes = []
    for _ in range(4):
        workload(cgroups("forks"), "fork-storm", 30_000, 16).finish(60)
        time.sleep(5)  # until tasks that have ended are forgotten
        sizes.append(memory(daemon))
    print("anonymous memory after each of 4 x 30,000 forks: %s KiB" % [size // 1024 for size in sizes])
    assert max(sizes[2:]) <= sizes[1] + (1 << 20), sizes
    daemon.stop()


def test_more_cgroups_than_there_is_room_for(own, cgroups, cold_file):
    """They share one entry, with their waits and in every output."""
    before = sum(1 for _ in os.walk(hosttools.cgroup2_root()))
    daemon = own("Collect.MaxCgroups=%d" % (before + 5))
    made = [cgroups("many-%d" % i) for i in range(12)]
    wait_until("some found no place", lambda: daemon.api("status")["cgroups"]["overflowed"] >= 1)
    for cgroup in made:
        read_in(cgroup.directory, cold_file, 5)

    def everything_counted():
        rows = {row["cgroup"]: row for row in daemon.api("cgroups?limit=0&window=1h")["cgroups"]}
        own_rows = [rows[cgroup.path] for cgroup in made if cgroup.path in rows]
        overflow = rows.get("(overflow)")
        return overflow and len(own_rows) < 12 and sum(map(waits, own_rows)) + waits(overflow) >= 30 and overflow

    overflow = wait_until("all waits, in cgroups and (overflow)", everything_counted)
    assert waits(overflow) > 0
    status = daemon.api("status")
    assert status["cgroups"]["tracked"] + status["cgroups"]["removed"] <= before + 5
    wait_until("the problem is told", lambda: any(
        problem["id"] == "cgroups-overflowed" for problem in daemon.api("status")["problems"]))
    assert daemon.metric("delayd_cgroups_overflowed_total") >= status["cgroups"]["overflowed"]
    assert daemon.metric("delayd_cgroup_blkio_delay_seconds_count", cgroup="(overflow)") >= overflow["blkio"]["waits"]
    daemon.stop()


def test_a_path_that_is_used_again_is_a_new_cgroup(own, cgroup_base, cold_file):
    daemon = own()
    directory = cgroup_base.directory / "again"
    path = cgroup_base.path + "/again"
    counts = []

    def existing():
        rows = [row for row in daemon.api("cgroups?limit=0&window=1h")["cgroups"]
                if row["cgroup"] == path and not row["removed"]]
        assert len(rows) <= 1
        return rows[0] if rows else None

    for blocks in (8, 3, 5):
        directory.mkdir()
        try:
            read_in(directory, cold_file, blocks)
            wait_until("the new cgroup's waits", lambda: existing() and waits(existing()) > 0)
            time.sleep(0.3)
            row = existing()
            counts.append(waits(row))
            # One series for each label set; it belongs to the cgroup that is there.
            body = daemon.http("/metrics")[2].decode()
            series = [line.rsplit(" ", 1)[0] for line in body.splitlines() if line and line[0] != "#"]
            assert len(series) == len(set(series))
            assert daemon.metric("delayd_cgroup_blkio_delay_seconds_count", cgroup=path) == row["blkio"]["waits"]
        finally:
            hosttools.Cgroup.remove_directory(directory)
        wait_until("its removal", lambda: existing() is None)

    rows = [row for row in daemon.api("cgroups?limit=0&window=1h")["cgroups"] if row["cgroup"] == path]
    assert sorted(map(waits, rows)) == sorted(counts)
    assert all(abs(count - blocks) <= 3 for count, blocks in zip(counts, (8, 3, 5))), counts
    daemon.stop()


def test_a_subtree_counts_each_wait_once(daemon, cgroups, cold_file):
    top = cgroups("tree")
    directories = [top.directory / name for name in ("a", "a/b", "a/b/c", "d")]
    paths = [top.path, *(top.path + "/" + name for name in ("a", "a/b", "a/b/c", "d"))]
    try:
        for i, directory in enumerate(directories):
            directory.mkdir()
            read_in(directory, cold_file, 4 + i)
        read_in(top.directory, cold_file, 9)

        def rows():
            found = {row["cgroup"]: row for row in daemon.ctl_json("cgroups", "--tree", "--window=1h")["cgroups"]
                     if row["cgroup"] in paths and waits(row) > 0}
            return len(found) == 5 and found

        found = wait_until("waits in each", rows)
        for path, row in found.items():
            below = [other for name, other in found.items() if name == path or name.startswith(path + "/")]
            assert waits(row["subtree"]) == sum(map(waits, below))
            assert row["subtree"]["blkio"]["total_nsec"] == sum(other["blkio"]["total_nsec"] for other in below)
        # HTTP says the same, and without "recursive" nothing of it.
        api = {row["cgroup"]: row for row in daemon.api("cgroups?recursive=yes&window=1h&limit=0")["cgroups"]}
        assert all(api[path]["subtree"]["blkio"]["waits"] == row["subtree"]["blkio"]["waits"] for path, row in found.items())
        assert "subtree" not in daemon.api_cgroup(top.path)

        text = daemon.ctl("cgroups", "--tree", "--kind=blkio", "--window=1h", "--sort=cgroup", "--no-legend").stdout
        lines = text.splitlines()
        names = [line.split()[0] for line in lines]
        at = names.index(top.directory.name)
        indent = [len(line) - len(line.lstrip()) for line in lines[at:at + 5]]
        assert names[at:at + 5] == [top.directory.name, "a", "b", "c", "d"]
        assert [depth - indent[0] for depth in indent] == [0, 2, 4, 6, 2]
        own, subtree = [int(lines[at].split()[i]) for i in (2, 4)]
        assert own == found[top.path]["blkio"]["waits"] and subtree == found[top.path]["subtree"]["blkio"]["waits"]
    finally:
        for directory in reversed(directories):
            if directory.exists():
                hosttools.Cgroup.remove_directory(directory)


def is_shown(byte):
    return byte < 128 and chr(byte).isprintable()


def has_controls(text):
    return any(ord(char) < 32 and char != "\n" or 127 <= ord(char) < 160 for char in text)


def test_every_byte_in_a_name(daemon, cgroups, cold_file):
    """All of the bytes that the kernel allows, each in a cgroup where a task waited."""
    base = cgroups("names")
    directories = {byte: os.fsencode(str(base.directory)) + b"/n" + bytes([byte]) + b"e" for byte in BYTES}
    shown = {byte: base.path + "/n" + (chr(byte) if is_shown(byte) else "\\x%02x" % byte) + "e" for byte in BYTES}
    for directory in directories.values():
        os.mkdir(directory)
    try:
        said = subprocess.run([hosttools.WORKLOADS / "scatter", "fork", str(len(BYTES)), "8", "1", cold_file,
                               *directories.values()],
                              check=True, stdout=subprocess.PIPE, timeout=60,
                              preexec_fn=lambda: (base.directory / "cgroup.procs").write_text("0"))
        assert len(json.loads(said.stdout)["tasks"]) == len(BYTES)

        def rows_of(rows):
            return {row["cgroup"] for row in rows if row["cgroup"].startswith(base.path + "/")}

        wait_until("all of them", lambda: len(rows_of(daemon.api("cgroups?limit=0")["cgroups"])) == len(BYTES))
        assert rows_of(daemon.api("cgroups?limit=0")["cgroups"]) == set(shown.values())
        assert rows_of(daemon.ctl_json("cgroups", "--limit=0")["cgroups"]) == set(shown.values())

        status, _headers, body = daemon.http("/metrics")
        assert status == 200
        body.decode("utf-8")
        checked = subprocess.run(["promtool", "check", "metrics"], input=body, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, check=False)
        assert checked.returncode == 0, checked.stdout
        labels = {dict(labels)["cgroup"] for name, labels in daemon.metrics() if name == "delayd_cgroup_tasks"}
        assert set(shown.values()) <= labels

        table = daemon.ctl("cgroups", "--all", "--no-legend", "--kind=blkio").stdout
        assert all(name in table for name in shown.values())
        for text in (table, daemon.ctl("cgroups", "--tree", "--all", "--kind=blkio").stdout,
                     daemon.ctl("top", "-b", "-n1").stdout, daemon.http("/")[2].decode("utf-8")):
            assert text and not has_controls(text)

        # Each can be asked for by the name that is shown.
        for byte in BYTES[::16]:
            assert daemon.ctl_json("histogram", "--kind=blkio", shown[byte])["cgroup"] == shown[byte]
    finally:
        for directory in directories.values():
            hosttools.Cgroup.remove_directory(directory)

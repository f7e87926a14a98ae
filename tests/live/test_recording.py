# SPDX-License-Identifier: LGPL-2.1-or-later
"""What was recorded gives the same numbers again, to the last wait, without root."""
import csv
import struct
import subprocess
import zlib

import pytest

from daemon import Bus, Daemon, wait_until
from hosttools import ROOT, Delayacct

FIXTURES = ROOT / "tests/fixtures"
UNPRIVILEGED = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]


@pytest.fixture
def place(run_directory, request):
    """A directory that other users can read, for one test."""
    directory = run_directory / request.node.name.replace("/", "-").replace("[", "-").rstrip("]")
    directory.mkdir()
    directory.chmod(0o755)
    return directory


@pytest.fixture
def replay(place, public_copy):
    """Starts replays as an ordinary user."""
    started = []

    def start(path):
        started.append(Daemon(place / ("replay-%d.log" % len(started)), None, "--bus=none", "--replay", path,
                              prefix=UNPRIVILEGED, program=public_copy / "delayd"))
        return started[-1]

    yield start
    for daemon in started:
        daemon.kill()


def unpacked(path):
    """All that is in the blocks of a recording."""
    data = path.read_bytes()
    assert data[:8] == b"\x89DLYD\r\n\x1a"
    at, blocks = 16, []
    while at < len(data):
        mark, _number, stored, size = struct.unpack_from("<4sIII", data, at)
        assert mark == b"DBLK"
        blocks.append(zlib.decompress(data[at + 40:at + 40 + stored]))
        assert len(blocks[-1]) == size
        at += 40 + stored
    return b"".join(blocks)


def cgroups_of(daemon):
    return {row["cgroup"]: row for row in daemon.api("cgroups?window=1h&limit=0")["cgroups"]}


def without_tasks(row):
    """Tasks come and go between a question and the end of the recording."""
    return {key: value for key, value in row.items() if key not in ("tasks", "unaccounted_tasks", "removed")}


def histograms_of(daemon, paths):
    return [daemon.api("histogram?window=%s&kind=%s&cgroup=%s" % (window, kind, path))
            for path in paths for kind in ("blkio", "swapin") for window in ("5m", "1h")]


@pytest.fixture
def record(start_daemon, cgroups, workload, cold_file, place):
    """Records a run with readers in two cgroups. Returns the file, and what the daemon said in the end."""
    def run(option):
        path = place / "recording"
        daemon = start_daemon(option, path, "--set", "Collect.PollInterval=3s").wait_ready()
        short, long_lived = cgroups("recorded-secret-short"), cgroups("recorded-secret-long")
        living = workload(long_lived, "cold-reader", "--blocks=20", "--hold", cold_file, fifo=True)
        living.first_line()
        for _ in range(5):
            workload(short, "cold-reader", "--blocks=6", cold_file, fifo=True).finish()
        # One is polled alone, so that replies count as well as exits. A read is about a wait.
        def waits(cgroup):
            return cgroups_of(daemon)[cgroup.path]["blkio"]["waits"]

        wait_until("waits in both", lambda: min(waits(short), waits(long_lived)) >= 10, 15)

        before = daemon.api("status")["samples"]["accepted"]
        while True:
            rows = cgroups_of(daemon)
            histograms = histograms_of(daemon, (short.path, long_lived.path))
            after = daemon.api("status")["samples"]["accepted"]
            if after == before:
                break
            before = after
        status = daemon.api("status")
        daemon.stop()
        living.end()
        path.chmod(0o644)
        return path, rows, histograms, status, (short.path, long_lived.path)

    return run


def test_a_replay_equals_the_run(record, replay):
    path, rows, histograms, status, ours = record("--record")
    again = replay(path).wait_ready()

    now = again.api("status")
    replayed = cgroups_of(again)
    assert histograms_of(again, ours) == histograms
    for name, row in rows.items():
        # On a busy host something may have been sampled between the last question and the end.
        if name in ours or now["samples"] == status["samples"]:
            assert without_tasks(replayed[name]) == without_tasks(row)
        else:
            assert replayed[name]["blkio"]["waits"] >= row["blkio"]["waits"]

    # The kernel that was recorded, and nothing of this one.
    assert now["replay"] == str(path)
    assert now["health"] == status["health"] and now["problems"] == status["problems"]
    assert now["kernel"] == status["kernel"]
    assert 0 <= now["exits"]["received"] - status["exits"]["received"] < 100
    assert 0 <= now["samples"]["accepted"] - status["samples"]["accepted"] < 1000
    assert status["uptime_nsec"] <= now["uptime_nsec"] < status["uptime_nsec"] + 2_000_000_000
    again.stop()
    assert path.stat().st_uid == 0


def test_a_recording_is_for_its_owner_alone(start_daemon, place):
    path = place / "recording"
    start_daemon("--record", path).wait_ready().stop()
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_anonymous_recording_has_no_names_but_all_numbers(record, replay):
    path, rows, _histograms, status, ours = record("--record-anonymous")
    content = unpacked(path)
    for name in (b"recorded-secret", b"cold-reader", b"delayd-test-", b"python3"):
        assert name not in content

    again = replay(path).wait_ready()
    replayed = cgroups_of(again)
    assert not any(name in replayed for name in ours)
    numbers = [(row["blkio"], row["swapin"]) for row in replayed.values()]
    assert all((rows[name]["blkio"], rows[name]["swapin"]) in numbers for name in ours)
    if again.api("status")["samples"] == status["samples"]:
        assert all((row["blkio"], row["swapin"]) in numbers for row in rows.values())
    assert len(replayed) == len(rows)
    again.stop()


def test_a_replay_is_on_the_bus(place, start_daemon):
    """On one of its own, for the name on the other belongs to the daemon of the other tests."""
    path = place / "recording"
    start_daemon("--record", path).wait_ready().stop()
    bus = Bus(place).start()
    daemon = Daemon(place / "root.log", bus.address, "--replay", path)
    try:
        daemon.wait_ready()
        status = wait_until("the name on the bus", lambda: daemon.ctl("--json=short", "status").returncode == 0
                            and daemon.status())
        assert status["replay"] == str(path)
        assert daemon.ctl_json("cgroups", "--limit=0")["cgroups"]
        assert str(path) in daemon.ctl("status").stdout
        daemon.stop()
    finally:
        daemon.kill()
        bus.stop()


@pytest.mark.parametrize("kernel, faulty", [("6.1", False), ("6.12", True), ("6.18", True)])
def test_captures_hold_nothing_impossible(replay, place, kernel, faulty):
    name = "exits-linux-%s" % kernel
    path = place / "capture"
    path.write_bytes((FIXTURES / (name + ".bin")).read_bytes())
    path.chmod(0o644)
    with open(FIXTURES / (name + ".tsv"), encoding="utf-8", newline="") as file:
        records = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["kind"] == "PID"]

    daemon = replay(path).wait_ready()
    row = cgroups_of(daemon)["(unattributed)"]
    for kind in ("blkio", "swapin"):
        waits = sum(int(record[kind + "_count"]) for record in records)
        total = sum(int(record[kind + "_delay"]) for record in records)
        waiting = [int(record["etime_us"]) * 1000 for record in records if int(record[kind + "_count"])]
        assert row[kind]["waits"] + row[kind]["rejected_waits"] == waits
        assert row[kind]["total_nsec"] <= sum(waiting)
        assert row[kind]["max_nsec"] <= max(waiting, default=0)
        if faulty and kind == "blkio":
            assert total > sum(waiting), "the capture is one of the kernel's fault"
            assert row[kind]["rejected_waits"] > 0
        else:
            assert row[kind]["total_nsec"] == total
    exits = daemon.api("status")["exits"]
    assert exits["received"] == exits["attributed"]["none"] == len(records)
    daemon.stop()


def test_without_room_the_recording_stops_and_delayd_goes_on(start_daemon, place, replay, workload, cgroups):
    mount = place / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "delayd-test", mount], check=True)
    try:
        daemon = start_daemon("--record", mount / "recording", "--set", "Collect.ExitFilter=no").wait_ready()
        storm = workload(cgroups("unrecorded"), "fork-storm", 30_000, 4)
        storm.finish(100)
        problem = wait_until("recording-stopped", lambda: next(
            (p for p in daemon.api("status")["problems"] if p["id"] == "recording-stopped"), None))
        assert "No space left" in problem["message"] and problem["remedy"]
        received = daemon.api("status")["exits"]["received"]
        workload(cgroups("later"), "fork-storm", 200, 1).finish(100)
        wait_until("exits after it", lambda: daemon.api("status")["exits"]["received"] >= received + 200)
        daemon.stop()

        (mount / "recording").chmod(0o644)
        assert_damaged(replay(mount / "recording"), "the end")
    finally:
        subprocess.run(["umount", mount], check=True)


def assert_damaged(daemon, word):
    daemon.wait_ready()
    status = daemon.api("status")
    problem = next(p for p in status["problems"] if p["id"] == "recording-damaged")
    assert word in problem["message"]
    daemon.process.terminate()
    code, log = daemon.wait_end()
    assert code == 1
    assert problem["message"] in log
    return status


def test_what_is_before_the_damage_is_used(start_daemon, place, replay):
    path = place / "recording"
    daemon = start_daemon("--record", path).wait_ready()
    wait_until("some samples", lambda: daemon.api("status")["uptime_nsec"] > 3_000_000_000)
    accepted = daemon.api("status")["samples"]["accepted"]
    daemon.stop()
    whole = path.read_bytes()

    path.write_bytes(whole[:-20])
    path.chmod(0o644)
    status = assert_damaged(replay(path), "cut short")
    assert 0 < status["samples"]["accepted"] <= accepted + 500

    broken = bytearray(whole)
    broken[-20] ^= 0x10
    path.write_bytes(broken)
    assert_damaged(replay(path), "checksum")


@pytest.mark.parametrize("content, word", [
    (b"", "neither"),
    (b"What a day.\n" * 20, "neither"),
    (b"\x89DLYD\r\n\x1a\x02\0\0\0\x69\x20\x9f\x57", "format version 2"),
    (b"\x89DLYD\r\n\x1a\x01\0\0\0\x69\x20\x9f\x57", "damaged"),
    (b"\x89DLYD\r\n\x1a", "damaged"),
], ids=["empty", "text", "version", "header", "short"])
def test_foreign_files_are_refused(replay, place, content, word):
    path = place / "file"
    path.write_bytes(content)
    path.chmod(0o644)
    status, log = replay(path).wait_end()
    assert status == 1
    assert word in log and str(path) in log


def test_files_that_cannot_be_opened(start_daemon, place):
    for option in ("--replay", "--record"):
        status, log = start_daemon(option, place / "missing" / "file").wait_end()
        assert status == 1
        assert "missing/file" in log and "No such file" in log
    status, log = start_daemon("--record", "/dev/full").wait_end()
    assert status == 1 and "No space left" in log


def test_a_replay_asks_the_kernel_nothing(replay, place, start_daemon):
    """Not even whether delay accounting is on: what status says is the recording's."""
    path = place / "recording"
    start_daemon("--record", path).wait_ready().stop()
    path.chmod(0o644)
    with Delayacct(on=False):
        daemon = replay(path).wait_ready()
        status = daemon.api("status")
        assert status["kernel"]["task_delayacct"] is True
        assert "delay-accounting-off" not in [problem["id"] for problem in status["problems"]]
        daemon.stop()

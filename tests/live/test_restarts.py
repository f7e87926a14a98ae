# SPDX-License-Identifier: LGPL-2.1-or-later
"""Counters go on where they were, whatever ends the daemon; what cannot be used or written does not stop it."""
import errno
import http.client
import os
import random
import re
import struct
import subprocess
import threading
import time
import zlib

import pytest

import taskstats
from daemon import wait_until
from supervisor import Supervisor
from test_overruns import problem, settled

COUNTER = re.compile(rb"^(delayd_[a-z_]+(?:_total|_bucket|_count|_sum)(?:\{[^\n]*\})?) (\S+)$", re.M)
BLKIO_COUNT = "delayd_cgroup_blkio_delay_seconds_count"
HEADER_SIZE, OFFSET_VERSION, OFFSET_BOOT_ID, OFFSET_CRC = 60, 8, 16, 56


def counters(text):
    return {name: float(value) for name, value in COUNTER.findall(text)}


def counters_of(daemon):
    return counters(daemon.http("/metrics")[2])


def assert_no_lower(before, after, cgroups=()):
    """No counter of before is lower now. Those of cgroups may be gone, but not those of the given ones."""
    lower = {name: (value, after.get(name)) for name, value in before.items() if after.get(name, value) < value}
    assert not lower, lower
    gone = [name for name in before if name not in after
            and (b"cgroup=" not in name or any(b'"%s"' % cgroup.path.encode() in name for cgroup in cgroups))]
    assert not gone, gone


class Scraper:
    """Scrapes as fast as it can, and knows the last answer that came through."""

    def __init__(self, daemon):
        self.port = daemon.port
        self.last = b""
        self.scrapes = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            while True:
                connection.request("GET", "/metrics")
                response = connection.getresponse()
                body = response.read()
                if response.status == 200:
                    self.last = body
                    self.scrapes += 1
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def result(self):
        self.thread.join(15)
        assert not self.thread.is_alive()
        return counters(self.last)


@pytest.fixture
def supervise(host, tmp_path):
    started = []

    def start(*args, **options):
        directory = tmp_path / ("supervisor-%d" % len(started))
        directory.mkdir()
        started.append(Supervisor(directory, *args, **options))
        return started[-1]

    yield start
    for supervisor in started:
        supervisor.end()


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a file system of its own that is full soon."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "delayd-test", path], check=True)
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def read(reader, blocks):
    """Lets a stepwise program wait for the disk."""
    reader.process.stdin.write(b"read %d\n" % blocks)
    reader.process.stdin.flush()
    reader.first_line()


def waits_of(daemon, cgroup):
    return daemon.metric(BLKIO_COUNT, cgroup=cgroup.path) or 0


def wait_for_live(daemon, cgroup, tid):
    """Until the waits of a live task are all counted: as the kernel has them, no more and no less."""
    def equal():
        before = taskstats.live(tid)
        row = daemon.api_cgroup(cgroup.path)
        if not row or taskstats.live(tid).blkio_count != before.blkio_count:
            return None
        blkio = row["blkio"]
        return (blkio["waits"], blkio["total_nsec"]) == (before.blkio_count, before.blkio_total) and before

    try:
        return wait_until("waits of task %d" % tid, equal, 20)
    except AssertionError as error:
        raise AssertionError("%s: the kernel has %r, delayd %r\n%s" % (
            error, taskstats.live(tid), daemon.api_cgroup(cgroup.path), daemon.log())) from None


KILLS = 100


@pytest.mark.seconds(300)
def test_a_hundred_kills_take_nothing_back(start_daemon, cgroups, workload, cold_file, tmp_path):
    options = ("--set", "State.SaveInterval=100ms", "--set", "Collect.PollInterval=100ms")
    state = tmp_path / "state"
    state.mkdir()
    quiet, busy = cgroups("killed"), cgroups("killed-busy")
    chance = random.Random(5)

    daemon = start_daemon(*options, state=state).wait_ready()
    port = daemon.port
    reader = workload(quiet, "stepwise", cold_file, fifo=True,
                      gate=lambda: wait_until("the reader's place", lambda: daemon.api_cgroup(quiet.path)))
    load = workload(busy, "short-readers", 1000000, 4, 2, cold_file)
    seen, scrapes, before = {}, 0, 0
    for kill in range(KILLS):
        if kill % 10 == 9:
            time.sleep(chance.uniform(0, 0.08))  # while it starts
            scraper = None
        else:
            daemon.wait_ready()
            scraper = Scraper(daemon)
            time.sleep(chance.uniform(0, 0.15))
        read(reader, 3)
        time.sleep(chance.uniform(0, 0.1))
        assert daemon.process.poll() is None, daemon.log()
        daemon.kill()
        read(reader, 2)
        if scraper:
            last = scraper.result()
            if last:
                assert_no_lower(seen, last, [quiet, busy])
                seen = last
            scrapes += scraper.scrapes
        daemon = start_daemon(*options, state=state, port=port)
        assert load.process.poll() is None

    daemon.wait_ready()
    after = counters_of(daemon)
    assert_no_lower(seen, after, [quiet, busy])
    assert scrapes > KILLS and len(seen) > 50
    assert not list(state.glob("*.old"))

    # The windows hold what the counters do, and a task that lived through it all has no wait too many or too few.
    load.end()
    time.sleep(0.5)
    row = daemon.api_cgroup(busy.path)
    assert row["blkio"]["waits"] == waits_of(daemon, busy) > 1000
    assert wait_for_live(daemon, quiet, reader.pid).blkio_count >= 4 * KILLS
    before = counters_of(daemon)
    daemon.stop()
    daemon = start_daemon(*options, state=state, port=port).wait_ready()
    assert_no_lower(before, counters_of(daemon), [quiet, busy])
    assert "without saving" not in daemon.log()


def test_a_stop_and_a_start_later(start_daemon, bus, cgroups, workload, cold_file, tmp_path):
    """Counters, windows and tasks go on; a task that lived on has its waits of the time in between, once."""
    cgroup = cgroups("stopped")
    daemon = start_daemon(state=tmp_path, bus_address=bus.address).wait_ready()
    reader = workload(cgroup, "stepwise", cold_file, fifo=True)
    read(reader, 20)
    with taskstats.ExitRecords() as exits:
        short = workload(cgroup, "cold-reader", "--blocks=9", cold_file, fifo=True)
        short.finish()
        gone = exits.wait_for(short.pid)

    def complete():
        live = taskstats.live(reader.pid)
        row = daemon.api_cgroup(cgroup.path)["blkio"]
        return (row["waits"], row["total_nsec"]) == (live.blkio_count + gone.blkio_count, live.blkio_total + gone.blkio_total)

    def tasks():
        return {(task["tid"], task["comm"], task["alive"], task["cgroup"]): task["blkio"]["waits"]
                for task in daemon.ctl_json("tasks", "--limit=0", "--window=1h")["tasks"] if task["cgroup"] == cgroup.path}

    wait_until("all waits", complete, 20)
    shown = tasks()
    assert len(shown) == 2
    before = counters_of(daemon)
    read(reader, 20)
    daemon.stop()
    read(reader, 20)
    time.sleep(0.5)
    daemon = start_daemon(state=tmp_path, bus_address=bus.address).wait_ready()
    assert_no_lower(before, counters_of(daemon), [cgroup])
    wait_until("all waits", complete, 20)
    wait_until("both tasks", lambda: tasks().keys() == shown.keys())
    assert sum(tasks().values()) == waits_of(daemon, cgroup) >= sum(shown.values()) + 35
    assert waits_of(daemon, cgroup) == daemon.api_cgroup(cgroup.path)["blkio"]["waits"]
    assert "Going on from the state of" in daemon.log()


@pytest.mark.seconds(200)
def test_restarts_in_a_storm_lose_no_record(supervise, cgroups, workload, cold_file, tmp_path):
    supervisor = supervise("--set", "Collect.ExitFilter=no", runtime=tmp_path)
    daemon = supervisor.start().wait_ready()
    n_sockets = len(supervisor.names())
    assert supervisor.names() == sorted("exits-%d" % i for i in range(n_sockets)) and n_sockets > 0
    cgroup = cgroups("restarted")
    with taskstats.ExitRecords(256 << 20) as exits:
        offset = settled(daemon, exits)
        storm = workload(cgroup, "short-readers", 12000, 4, 2, cold_file, fifo=True,
                         gate=lambda: wait_until("the storm's place", lambda: daemon.api_cgroup(cgroup.path)))
        before, restarts = {}, 0
        while restarts < 10:
            now = counters_of(daemon)
            assert_no_lower(before, now, [cgroup])
            before = now
            daemon = supervisor.restart()
            restarts += 1
            exits.drain()
            daemon.wait_ready()
            assert [name for name in supervisor.names() if name != "state"] == sorted("exits-%d" % i for i in range(n_sockets))
            assert daemon.process.poll() is None
        during = storm.process.poll() is None
        storm.finish(60)
        assert during, "the storm was over before the restarts were"
        assert settled(daemon, exits) == offset
        records = [record for record in exits.records if storm.pid in (record.tid, record.ppid)]

    assert len(records) == 12001
    waits, total = sum(r.blkio_count for r in records), sum(r.blkio_total for r in records)
    blkio = daemon.api_cgroup(cgroup.path)["blkio"]
    assert (blkio["waits"], blkio["total_nsec"]) == (waits, total), daemon.log()
    assert daemon.api("status")["exits"]["lost"] == 0
    assert_no_lower(before, counters_of(daemon), [cgroup])


def test_a_crash_under_a_supervisor(supervise, cgroups, workload, cold_file, tmp_path):
    """Without a directory of its own the counters are those that were shown last, and the sockets go on."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    supervisor = supervise(runtime=runtime)
    daemon = supervisor.start().wait_ready()
    cgroup = cgroups("crashed")
    gate = {"gate": lambda: wait_until("its place", lambda: daemon.api_cgroup(cgroup.path))}
    with taskstats.ExitRecords() as exits:
        reader = workload(cgroup, "cold-reader", "--blocks=10", cold_file, fifo=True, **gate)
        reader.finish()
        first = exits.wait_for(reader.pid)
        wait_until("its waits", lambda: waits_of(daemon, cgroup) == first.blkio_count)
        supervisor.crash()
        reader = workload(cgroup, "cold-reader", "--blocks=10", cold_file, fifo=True)
        reader.finish()
        second = exits.wait_for(reader.pid)
    daemon = supervisor.start().wait_ready()
    assert "without saving" in daemon.log()
    # Nobody told of the second one's cgroup, for it came and went while nobody listened.
    delays = {row["cgroup"]: row["blkio"]["waits"] for row in daemon.api("cgroups?window=1h&limit=0")["cgroups"]}
    assert delays[cgroup.path] >= first.blkio_count
    assert sum(delays.values()) >= first.blkio_count + second.blkio_count
    daemon.stop()


def test_a_store_that_was_emptied(supervise, tmp_path):
    """After a full stop the sockets are new ones, and the file has the state."""
    supervisor = supervise(state=tmp_path)
    supervisor.start().wait_ready()
    before = counters_of(supervisor.daemon)
    supervisor.daemon.stop()
    assert "state" in supervisor.names()
    for _name, fd in supervisor.store:
        os.close(fd)
    supervisor.store = []
    daemon = supervisor.start().wait_ready()
    assert_no_lower(before, counters_of(daemon))
    names = [name for name in supervisor.names() if name.startswith("exits-")]
    assert names and len(set(names)) == len(names)
    daemon.stop()


def forge(state, offset, new):
    """Changes bytes of the header, and the checksum with them."""
    state = bytearray(state)
    state[offset:offset + len(new)] = new
    struct.pack_into("<I", state, OFFSET_CRC, zlib.crc32(state[HEADER_SIZE:], zlib.crc32(state[:OFFSET_CRC])))
    return bytes(state)


@pytest.mark.parametrize("what, spoil", [
    ("truncated", lambda state: state[:len(state) // 2]),
    ("truncated", lambda state: b""),
    ("damaged", lambda state: state[:100] + bytes([state[100] ^ 1]) + state[101:]),
    ("damaged", lambda state: b"Once upon a time there was a state file." * 100),
    ("damaged", lambda state: forge(state, HEADER_SIZE, b"\xff" * 40)),
    ("of another version", lambda state: forge(state, OFFSET_VERSION, b"\x63")),
    ("of an earlier boot", lambda state: forge(state, OFFSET_BOOT_ID, b"\0\1\2\3")),
])
def test_what_cannot_be_used_is_set_aside(start_daemon, tmp_path, what, spoil):
    daemon = start_daemon(state=tmp_path).wait_ready()
    daemon.stop()
    (tmp_path / "counters").unlink(missing_ok=True)
    state = tmp_path / "state"
    whole = state.read_bytes()
    spoiled = spoil(whole)
    state.write_bytes(spoiled)
    daemon = start_daemon(state=tmp_path).wait_ready()
    assert "state %s" % what in daemon.log() or "is %s" % what in daemon.log()
    assert "state.old" in daemon.log()
    assert (tmp_path / "state.old").read_bytes() == spoiled
    assert daemon.api("status")["health"] == "ok" or not problem(daemon, "state-unwritable")
    daemon.stop()
    assert state.read_bytes()[:8] == whole[:8]


@pytest.mark.parametrize("make", [
    lambda path: path.mkdir(),
    lambda path: os.mkfifo(path),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
])
def test_what_is_no_state_file(start_daemon, tmp_path, make):
    make(tmp_path / "state")
    make(tmp_path / "counters")
    daemon = start_daemon("--set", "State.SaveInterval=100ms", state=tmp_path).wait_ready()
    daemon.metrics()
    time.sleep(0.3)
    daemon.stop()


def test_a_full_disk(small_disk, start_daemon):
    daemon = start_daemon("--set", "State.SaveInterval=100ms", state=small_disk).wait_ready()
    wait_until("a saved state", (small_disk / "state").exists)
    saved = (small_disk / "state").read_bytes()
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    found = wait_until("the problem", lambda: problem(daemon, "state-unwritable"))
    assert "No space left" in found["message"] and found["remedy"]
    before = counters_of(daemon)
    time.sleep(1.2)
    assert counters_of(daemon)[b"delayd_samples_accepted_total"] > before[b"delayd_samples_accepted_total"]
    assert (small_disk / "state").read_bytes()[:8] == saved[:8]  # what was there is left as it was
    filler.unlink()
    wait_until("the problem to clear", lambda: not problem(daemon, "state-unwritable"))
    before = counters_of(daemon)
    daemon.kill()
    daemon = start_daemon(state=small_disk).wait_ready()
    assert_no_lower(before, counters_of(daemon))
    daemon.stop()


def test_a_directory_that_goes_and_comes(start_daemon, tmp_path):
    directory = tmp_path / "state"
    daemon = start_daemon("--set", "State.SaveInterval=100ms", state=directory).wait_ready()
    assert "No such file" in problem(daemon, "state-unwritable")["message"]
    directory.mkdir()
    wait_until("the problem to clear", lambda: not problem(daemon, "state-unwritable"))
    wait_until("a saved state", (directory / "state").exists)
    for _ in range(2):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        wait_until("the problem", lambda: problem(daemon, "state-unwritable"))
        directory.mkdir()
        wait_until("the problem to clear", lambda: not problem(daemon, "state-unwritable"))
    daemon.stop()


def test_two_daemons_do_not_share_a_directory(start_daemon, tmp_path):
    first = start_daemon("--set", "State.SaveInterval=100ms", state=tmp_path).wait_ready()
    second = start_daemon("--set", "State.SaveInterval=100ms", state=tmp_path).wait_ready()
    assert not problem(first, "state-unwritable")
    assert "another delayd" in problem(second, "state-unwritable")["message"]
    before = counters_of(first)
    first.stop()
    wait_until("the problem to clear", lambda: not problem(second, "state-unwritable"))
    second.stop()
    assert before


def test_a_changed_number_of_kinds(start_daemon, tmp_path):
    daemon = start_daemon(state=tmp_path).wait_ready()
    before = counters_of(daemon)
    daemon.stop()
    daemon = start_daemon("--set", "Collect.Kinds=blkio cpu swapin", state=tmp_path).wait_ready()
    assert_no_lower(before, counters_of(daemon))
    daemon.stop()
    daemon = start_daemon("--set", "Collect.Kinds=cpu", state=tmp_path).wait_ready()
    assert counters_of(daemon)[b"delayd_samples_accepted_total"] >= before[b"delayd_samples_accepted_total"]
    daemon.stop()

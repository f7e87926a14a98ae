# SPDX-License-Identifier: LGPL-2.1-or-later
"""Broken surroundings: the rest goes on, status names the problem with its remedy, and it goes with its cause."""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

import hosttools
from daemon import DELAYD, Bus, Daemon, environment, free_port, wait_until


def problem(daemon, name):
    return next((problem for problem in daemon.api("status")["problems"] if problem["id"] == name), None)


def gone(daemon, name, seconds=20):
    wait_until("the problem %s is gone" % name, lambda: problem(daemon, name) is None, seconds)


@contextlib.contextmanager
def sysctl(name, value):
    path = Path("/proc/sys") / name.replace(".", "/")
    before = path.read_text(encoding="ascii")
    path.write_text(str(value), encoding="ascii")
    try:
        yield
    finally:
        path.write_text(before, encoding="ascii")


def still_counts(daemon, cgroup, workload, cold_file):
    """Waits arrive in their cgroup, whatever else is wrong."""
    before = daemon.api_cgroup(cgroup.path)
    before = before["blkio"]["waits"] if before else 0
    workload(cgroup, "cold-reader", "--blocks=20", cold_file, fifo=True).finish()

    def counted():
        row = daemon.api_cgroup(cgroup.path)
        return row and row["blkio"]["waits"] + row["blkio"]["rejected_waits"] >= before + 15

    wait_until("the waits in %s" % cgroup.path, counted)


# The bus

def test_dbus_daemon_killed_and_restarted(host, tmp_path, cgroups, workload, cold_file):
    bus = Bus(tmp_path).start()
    daemon = Daemon(tmp_path / "delayd.log", bus.address)
    try:
        daemon.wait_ready()
        assert daemon.ctl("status").returncode == 0
        bus.process.kill()
        bus.process.wait()
        found = wait_until("the problem", lambda: problem(daemon, "bus-unavailable"))
        assert "dbus" in found["remedy"]
        still_counts(daemon, cgroups("without-a-bus"), workload, cold_file)
        bus.socket.unlink()
        bus.start()
        wait_until("the name is there again", lambda: daemon.ctl("status").returncode == 0, 20)
        gone(daemon, "bus-unavailable")
        daemon.stop()
    finally:
        daemon.kill()
        bus.stop()


# The journal

class Journal:
    """Takes messages where journald would."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path = path
        self.sock.bind(str(path))
        self.sock.settimeout(5)

    def texts(self):
        """The messages until now."""
        self.sock.setblocking(False)
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                fields, _, message = self.sock.recv(65536).partition(b"\nMESSAGE\n")
                size, = struct.unpack("<Q", message[:8])
                assert b"PRIORITY=" in fields and len(message) == 8 + size + 1
                found.append(message[8:-1].decode())
        return found

    def close(self):
        self.sock.close()
        self.path.unlink()


@pytest.fixture
def journal_directory(tmp_path):
    """What delayd sees as /run/systemd/journal."""
    directory = tmp_path / "journal"
    directory.mkdir()
    return directory


def with_journal(directory):
    script = ('mkdir -p /run/systemd/journal && mount --bind "$0" /run/systemd/journal && '
              'export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) && exec "$@"')
    return ["unshare", "--mount", "--propagation=private", "--", "sh", "-c", script, directory]


def test_without_a_journal(start_daemon, journal_directory, cgroups, workload, cold_file):
    path = journal_directory / "socket"
    journal = Journal(path)
    daemon = start_daemon(prefix=with_journal(journal_directory)).wait_ready()
    assert any("Linux" in text for text in journal.texts())
    assert problem(daemon, "journal-unavailable") is None

    journal.close()
    found = wait_until("the problem", lambda: problem(daemon, "journal-unavailable"))
    assert "systemd-journald" in found["remedy"]
    still_counts(daemon, cgroups("without-a-journal"), workload, cold_file)

    journal = Journal(path)
    gone(daemon, "journal-unavailable")
    assert any("journal-unavailable is gone" in text for text in journal.texts())

    # Nobody reads: a full socket is no reason to wait, and messages are lost again.
    for _ in range(600):
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.001)
    start = time.monotonic()
    assert daemon.http("/-/ready")[0] == 200
    assert time.monotonic() - start < 5
    wait_until("the problem", lambda: problem(daemon, "journal-unavailable"))
    journal.texts()
    gone(daemon, "journal-unavailable")
    journal.close()
    daemon.stop()


def test_standard_error_without_a_reader(host, tmp_path):
    """Started by a script that ends: messages go nowhere, the daemon goes on."""
    port = free_port()
    read, write = os.pipe()
    process = subprocess.Popen([DELAYD, "--bus=none", "--set", "Metrics.Listen=127.0.0.1:%d" % port], env=environment(None),
                               stdin=subprocess.DEVNULL, stdout=write, stderr=write)
    os.close(write)
    daemon = Daemon.__new__(Daemon)
    daemon.process, daemon.port, daemon.log_path = process, port, "/dev/null"
    try:
        daemon.wait_ready()
        os.close(read)
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
            time.sleep(0.1)
        assert daemon.http("/-/ready")[0] == 200
        daemon.stop()
    finally:
        daemon.kill()


# Clients

def test_clients_that_go_away(start_daemon, cgroups):
    """In the middle of an answer, of a request, and without one: no signal, no error, no descriptor left behind."""
    daemon = start_daemon().wait_ready()
    before = daemon.api("status")
    fds = len(os.listdir("/proc/%d/fd" % daemon.process.pid))
    for i in range(60):
        client = socket.create_connection(("127.0.0.1", daemon.port), timeout=5)
        if i % 3 != 0:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 5 if i % 3 == 1 else b"GET /metr")
        # Reset, with the answers unread.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    wait_until("their descriptors are closed", lambda: len(os.listdir("/proc/%d/fd" % daemon.process.pid)) <= fds + 1)
    assert daemon.api("status")["uptime_nsec"] > before["uptime_nsec"]
    daemon.stop()


# Limits

def test_inotify_watches_exhausted(start_daemon, cgroups, workload, cold_file):
    with sysctl("fs.inotify.max_user_watches", 1):
        daemon = start_daemon().wait_ready()
        found = wait_until("the problem", lambda: problem(daemon, "cgroup-watch"))
        assert "max_user_watches" in found["remedy"]
        cgroup = cgroups("unwatched")
        wait_until("the cgroup, by a sweep", lambda: daemon.api_cgroup(cgroup.path), 15)
        still_counts(daemon, cgroup, workload, cold_file)
    gone(daemon, "cgroup-watch")
    cgroup = cgroups("watched")
    wait_until("the cgroup, at once", lambda: daemon.api_cgroup(cgroup.path), 2)
    daemon.stop()


def test_inotify_instances_exhausted(start_daemon, cgroups, workload, cold_file):
    with sysctl("fs.inotify.max_user_instances", 0):
        daemon = start_daemon().wait_ready()
        found = wait_until("the problem", lambda: problem(daemon, "cgroup-watch"))
        assert "max_user_instances" in found["remedy"]
        still_counts(daemon, cgroups("unwatched"), workload, cold_file)
    gone(daemon, "cgroup-watch")
    cgroup = cgroups("watched")
    wait_until("the cgroup, at once", lambda: daemon.api_cgroup(cgroup.path), 2)
    daemon.stop()


def set_limit(daemon, resource, soft):
    subprocess.run(["prlimit", "--pid=%d" % daemon.process.pid, "--%s=%s:" % (resource, soft)], check=True)


@pytest.mark.seconds(180)
def test_file_descriptors_exhausted(start_daemon, cgroups, workload, cold_file):
    """No cgroup can be read, no client taken: nothing is forgotten for it, nothing counted twice, and no CPU is burnt."""
    daemon = start_daemon("--set", "Collect.ExitFilter=no").wait_ready()
    cgroup = cgroups("reader")
    reader = workload(cgroup, "cold-reader", "--blocks=20", "--hold", cold_file, fifo=True)
    reader.first_line()
    before = wait_until("its waits", lambda: (daemon.api_cgroup(cgroup.path) or {}).get("blkio", {}).get("waits", 0) >= 15
                        and daemon.api_cgroup(cgroup.path))
    used = len(os.listdir("/proc/%d/fd" % daemon.process.pid))

    with contextlib.ExitStack() as clients:
        kept = clients.enter_context(socket.create_connection(("127.0.0.1", daemon.port), timeout=10))
        kept.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in kept.recv(4096)
        set_limit(daemon, "nofile", used + 1)
        for _ in range(5):  # they wait in the queue of the socket
            clients.enter_context(socket.create_connection(("127.0.0.1", daemon.port), timeout=10))

        stat = Path("/proc/%d/stat" % daemon.process.pid)
        def ticks():
            return sum(map(int, stat.read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]))
        start, first = time.monotonic(), ticks()
        time.sleep(13)  # longer than sweeps are apart
        share = (ticks() - first) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - start)
        assert share < 0.3, "%d %% of a CPU" % (share * 100)
        kept.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while (data := kept.recv(65536)):
            answer += data
        assert b"file-descriptors" in answer and b"LimitNOFILE=" in answer

    set_limit(daemon, "nofile", 1024)
    gone(daemon, "file-descriptors")
    time.sleep(2.5)
    after = daemon.api_cgroup(cgroup.path)
    assert after["tasks"] == before["tasks"] == 1
    assert after["blkio"]["waits"] == before["blkio"]["waits"]
    still_counts(daemon, cgroup, workload, cold_file)
    daemon.stop()


def test_memory_that_cannot_be_had(start_daemon, cgroups, workload, cold_file):
    """Allocations fail: some waits may be missing, and that is said; the daemon lives and goes on."""
    if "ASAN_OPTIONS" in os.environ:
        pytest.skip("AddressSanitizer ends the program where memory is short")
    daemon = start_daemon("--set", "Collect.ExitFilter=no").wait_ready()
    size = int(Path("/proc/%d/statm" % daemon.process.pid).read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGESIZE")
    set_limit(daemon, "as", size)
    storm = workload(cgroups("storm"), "fork-storm", 30_000, 200)
    made = [cgroups("full-%d" % i) for i in range(300)]
    storm.finish(60)
    assert daemon.process.poll() is None, daemon.log()
    set_limit(daemon, "as", "unlimited")
    wait_until("a cgroup", lambda: daemon.api_cgroup(made[-1].path), 20)
    assert daemon.api("status")["exits"]["received"] > 30_000 - daemon.api("status")["exits"]["lost"]
    found = problem(daemon, "memory")
    if found:  # else it got by with what it had
        assert "MemoryMax=" in found["remedy"]
    still_counts(daemon, cgroups("after"), workload, cold_file)
    daemon.stop()


def test_memory_pressure(host, tmp_path, cgroups, workload, cold_file, disk_directory):
    """In a cgroup with hardly more memory than it needs, which another program of it keeps filling with pages of files."""
    cgroup = cgroups("delayd")
    cgroup.limit_memory(24 << 20)
    with open(disk_directory / "big", "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    script = "".join("echo 0 > %s/cgroup.procs; " % directory for directory in filter(None, (cgroup.directory, cgroup.limited)))
    daemon = Daemon(tmp_path / "delayd.log", None, "--bus=none", "--set", "Collect.ExitFilter=no",
                    prefix=["sh", "-c", script + 'exec "$@"', "sh"])
    try:
        daemon.wait_ready()
        before = daemon.api("status")["exits"]
        filler = subprocess.Popen(["sh", "-c", script + 'while :; do cat "$1" >/dev/null; done', "sh", disk_directory / "big"])
        try:
            workload(cgroups("storm"), "fork-storm", 20_000, 8).finish(60)
            time.sleep(3)
        finally:
            filler.kill()
            filler.wait()
        wait_until("the exits", lambda: sum(daemon.api("status")["exits"][key] - before[key] for key in ("received", "lost"))
                   >= 20_000, 20)
        still_counts(daemon, cgroups("reader"), workload, cold_file)
        daemon.stop()
    finally:
        daemon.kill()


# The host changes

@pytest.fixture
def second_cpu():
    online = Path("/sys/devices/system/cpu/cpu1/online")
    if not online.exists() or online.read_text(encoding="ascii").strip() != "1":
        pytest.skip("there is no second CPU that can be taken away")
    try:
        online.write_text("0", encoding="ascii")
    except OSError as error:
        pytest.skip("the kernel does not let a CPU go: %s" % error)
    online.write_text("1", encoding="ascii")
    yield online
    online.write_text("1", encoding="ascii")


def test_a_cpu_goes_and_comes_back(start_daemon, cgroups, workload, cold_file, second_cpu):
    daemon = start_daemon("--set", "Collect.ExitFilter=no").wait_ready()
    before = daemon.api("status")["exits"]
    for online in ("0", "1"):
        storm = workload(cgroups("hotplug"), "fork-storm", 10_000, 4)
        time.sleep(0.1)
        second_cpu.write_text(online, encoding="ascii")
        storm.finish(60)
    still_counts(daemon, cgroups("reader"), workload, cold_file)
    after = daemon.api("status")["exits"]
    assert after["received"] - before["received"] >= 20_000 and after["lost"] == 0

    # Also when one was away at the start.
    second_cpu.write_text("0", encoding="ascii")
    late = start_daemon("--set", "Collect.ExitFilter=no").wait_ready()
    second_cpu.write_text("1", encoding="ascii")
    before = late.api("status")["exits"]["received"]
    workload(cgroups("hotplug"), "fork-storm", 10_000, 4).finish(60)
    wait_until("the exits of both CPUs", lambda: late.api("status")["exits"]["received"] - before >= 10_000)
    late.stop()
    daemon.stop()


def test_the_time_of_day_jumps(start_daemon, cgroups, workload, cold_file, tmp_path):
    """A day ahead, and two back: windows keep what they have and lose what is too old, counters go on."""
    if "ASAN_OPTIONS" in os.environ:
        pytest.skip("nothing can be loaded before AddressSanitizer")
    jump = tmp_path / "jump"
    jump.write_text("0", encoding="ascii")
    preload = hosttools.WORKLOADS / "clock-jump.so"
    daemon = start_daemon(prefix=["env", "LD_PRELOAD=%s" % preload, "CLOCK_JUMP=%s" % jump]).wait_ready()
    cgroup = cgroups("reader")
    waits, uptime = 0, 0
    for seconds in ("86400", "-86400", "0"):
        still_counts(daemon, cgroup, workload, cold_file)
        before = daemon.api_cgroup(cgroup.path, "1m")["blkio"]
        assert before["waits"] + before["rejected_waits"] >= waits + 15
        waits = before["waits"] + before["rejected_waits"]
        jump.write_text(seconds, encoding="ascii")
        time.sleep(1.5)
        assert daemon.api_cgroup(cgroup.path, "1m")["blkio"] == before
        status = daemon.api("status")
        assert uptime < status["uptime_nsec"] < 60_000_000_000
        uptime = status["uptime_nsec"]
    daemon.stop()


def test_cgroups_change_under_a_walk(start_daemon, cgroups, workload, cold_file):
    """Made, filled, moved between and removed as fast as it goes, while sweeps read them."""
    daemon = start_daemon("--set", "Collect.PollInterval=50ms", "--set", "Collect.Retention=1s").wait_ready()
    base = cgroups("churn")
    end, made = time.monotonic() + 12, [0, 0]

    def churn(number):
        while time.monotonic() < end:
            paths = []
            directory = base.directory
            for depth in range(4):
                directory = directory / ("%d-%d" % (number, depth))
                directory.mkdir()
                paths.append(directory)
            child = subprocess.Popen(["sleep", "0.01"])
            for directory in paths:
                with contextlib.suppress(OSError):  # it has ended
                    (directory / "cgroup.procs").write_text(str(child.pid), encoding="ascii")
            child.wait()
            for directory in reversed(paths):
                for _ in range(200):
                    with contextlib.suppress(OSError):
                        directory.rmdir()
                        break
                    time.sleep(0.005)
            made[number] += 4

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) > 100

    still_counts(daemon, base, workload, cold_file)
    # In the end it has what there is, and nothing else.
    def rows():
        return {row["cgroup"] for row in daemon.api("cgroups?limit=0")["cgroups"]
                if row["cgroup"].startswith(base.path + "/") and not row["removed"]}
    wait_until("the removed ones are gone", lambda: not rows(), 15)
    assert daemon.api("status")["health"] == "ok", daemon.api("status")["problems"]
    daemon.stop()


def test_an_ipv6_address_that_is_missing(host, tmp_path):
    """The others are served; one that was chosen, and is not there, is a problem."""
    port = free_port()
    daemon = Daemon(tmp_path / "delayd.log", None, "--bus=none", "--set",
                    "Metrics.Listen=127.0.0.1:%d [2001:db8::7]:%d" % (port, port), port=port, listen=False)
    try:
        daemon.wait_ready()
        found = problem(daemon, "listen")
        assert "2001:db8::7" in found["message"] and "Metrics.Listen=" in found["remedy"]
        daemon.stop()
    finally:
        daemon.kill()

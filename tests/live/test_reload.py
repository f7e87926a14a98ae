# SPDX-License-Identifier: LGPL-2.1-or-later
"""SIGHUP: what can change changes at once, a bad file changes nothing, and systemd is told when."""
import ctypes
import os
import signal
import socket
import subprocess
import time

import pytest

import taskstats
from daemon import free_port, wait_until


class Notify:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.settimeout(10)
        self.path = path

    def message(self):
        return dict(line.split("=", 1) for line in self.sock.recv(4096).decode().splitlines())

    def until(self, key):
        while True:
            message = self.message()
            if key in message:
                return message


@pytest.fixture
def configured(start_daemon, tmp_path):
    """A daemon with a file of its own: write(text) and then reload()."""
    path = tmp_path / "delayd.conf"

    class Configured:
        file = path
        port = free_port()

        def write(self, text="", listen=None):
            listen = listen or "127.0.0.1:%d" % self.port
            path.write_text("[Metrics]\nListen=%s\n%s" % (listen, text), encoding="utf-8")

        def start(self, *args, prefix=()):
            self.daemon = start_daemon("-c", path, *args, port=self.port, listen=False, prefix=prefix)
            return self.daemon

        def reload(self):
            said = self.daemon.log().count("configuration")
            self.daemon.process.send_signal(signal.SIGHUP)
            wait_until("the reload", lambda: self.daemon.log().count("configuration") > said)

        def problems(self):
            return {problem["id"]: problem for problem in self.daemon.api("status")["problems"]}

    return Configured()


def buffers(pid):
    """The receive buffers that the kernel granted to the netlink sockets of a process, by a copy of each descriptor."""
    found = []
    pidfd = os.pidfd_open(pid)
    for entry in os.listdir("/proc/%d/fd" % pid):
        try:
            if not os.readlink("/proc/%d/fd/%s" % (pid, entry)).startswith("socket:"):
                continue
        except FileNotFoundError:
            continue
        copy = pidfd_getfd(pidfd, int(entry))
        with socket.socket(fileno=copy) as sock:
            if sock.family == socket.AF_NETLINK:
                found.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2)
    os.close(pidfd)
    return found


def pidfd_getfd(pidfd, fd):
    libc = ctypes.CDLL(None, use_errno=True)
    copy = libc.syscall(438, pidfd, fd, 0)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return copy


def test_keys_that_apply_at_once(configured, cgroups):
    configured.write()
    daemon = configured.start().wait_ready()
    before = daemon.api("status")
    assert before["polling"]["interval_nsec"] == 1_000_000_000 and before["exits"]["filter"] == "on"
    assert buffers(daemon.process.pid).count(8 << 20) >= 1

    configured.write("Buckets=1ms 1s\nMaxCgroups=0\n[Collect]\nPollInterval=200ms\nExitFilter=no\nReceiveBuffer=1M\n"
                     "Retention=1s\nCpuBudget=5%\n")
    configured.reload()
    after = daemon.api("status")
    assert after["polling"]["interval_nsec"] == 200_000_000
    assert after["exits"]["filter"] == "off"
    assert buffers(daemon.process.pid).count(1 << 20) >= len(os.sched_getaffinity(0))
    assert 8 << 20 not in buffers(daemon.process.pid)
    assert after["health"] == "ok", after["problems"]
    assert after["exits"]["received"] >= before["exits"]["received"], "counters go on"

    # Buckets: of histograms that there are, too. MaxCgroups and Retention: of cgroups from now on.
    bounds = {dict(labels)["le"] for name, labels in daemon.metrics() if name == "delayd_cgroup_blkio_delay_seconds_bucket"}
    assert len(bounds) in (0, 3)
    cgroup = cgroups("reloaded")
    wait_until("the cgroup", lambda: daemon.api_cgroup(cgroup.path))
    assert daemon.metric("delayd_cgroup_tasks", cgroup=cgroup.path) is None
    cgroup.remove()
    wait_until("the removed cgroup is forgotten", lambda: daemon.api_cgroup(cgroup.path) is None, 15)
    daemon.stop()


def test_the_poll_interval_governs_at_once(configured, cgroups, workload, cold_file):
    """From an hour to 100 ms: a live task is seen as soon as that, and not after the hour."""
    configured.write("[Collect]\nPollInterval=1h\n")
    daemon = configured.start().wait_ready()
    cgroup = cgroups("polled")
    reader = workload(cgroup, "cold-reader", "--blocks=5", "--hold", cold_file, fifo=True)
    reader.first_line()
    waits = taskstats.live(reader.pid).blkio_count
    assert waits >= 3
    time.sleep(1.5)
    row = daemon.api_cgroup(cgroup.path)
    assert row["blkio"]["waits"] < waits

    configured.write("[Collect]\nPollInterval=100ms\n")
    configured.reload()
    wait_until("its waits", lambda: daemon.api_cgroup(cgroup.path)["blkio"]["waits"] == waits, 3)
    daemon.stop()


@pytest.mark.parametrize("text, word", [
    ("[Collect]\nPollInterval=never\n", "never"),
    ("[Collect\n", ":3"),
    ("[Collect]\nPollInterval=5s\nnonsense\n", ":5"),
])
def test_a_bad_file_changes_nothing(configured, text, word):
    configured.write()
    daemon = configured.start().wait_ready()
    other = free_port()
    configured.write("MaxCgroups=5\n" + text, listen="127.0.0.1:%d" % other)
    configured.reload()
    problem = wait_until("the problem", lambda: configured.problems().get("reload-failed"))
    assert str(configured.file) in problem["message"], problem
    assert "--check-config" in problem["remedy"]
    status = daemon.api("status")
    assert status["health"] == "degraded" and status["polling"]["interval_nsec"] == 1_000_000_000
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", other), timeout=5)

    configured.write()
    configured.reload()
    assert configured.problems() == {}
    assert daemon.api("status")["health"] == "ok"
    daemon.stop()


def test_keys_that_take_a_restart(configured):
    configured.write()
    daemon = configured.start().wait_ready()
    configured.write("[Collect]\nKinds=blkio cpu\nCgroupRoot=/sys/fs/cgroup/elsewhere\nPollInterval=3s\n")
    configured.reload()
    problem = configured.problems()["restart-needed"]
    assert "Collect.Kinds=" in problem["message"] and "Collect.CgroupRoot=" in problem["message"]
    assert "restart" in problem["remedy"]
    # All else has changed.
    assert daemon.api("status")["polling"]["interval_nsec"] == 3_000_000_000
    assert "cpu" not in daemon.api("cgroups?limit=1")["cgroups"][0]

    configured.write("[Collect]\nPollInterval=3s\n")
    configured.reload()
    assert configured.problems() == {}
    daemon.stop()


def test_listening_elsewhere(configured):
    """New sockets are opened before old ones are closed; a connection on an address that stays is kept."""
    configured.write()
    daemon = configured.start().wait_ready()
    old, new = configured.port, free_port()
    kept = socket.create_connection(("127.0.0.1", old), timeout=10)

    configured.write(listen="127.0.0.1:%d 127.0.0.1:%d" % (old, new))
    configured.reload()
    for port in (old, new):
        daemon.port = port
        assert daemon.http("/-/ready")[0] == 200
    kept.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
    assert b" 200 " in kept.recv(4096)
    kept.close()

    # One that cannot be had: refused, and nothing else of the file holds either.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        configured.write("[Collect]\nPollInterval=7s\n",
                         listen="127.0.0.1:%d 127.0.0.1:%d" % (free_port(), taken.getsockname()[1]))
        configured.reload()
    assert daemon.api("status")["polling"]["interval_nsec"] == 1_000_000_000
    assert "reload-failed" in configured.problems()

    configured.write(listen="127.0.0.1:%d" % new)
    configured.reload()
    daemon.port = new
    assert daemon.http("/-/ready")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", old), timeout=5)
    assert configured.problems() == {}
    daemon.stop()


def test_an_address_that_the_host_does_not_have_yet(configured, tmp_path):
    """The others are served, the problem is shown, and goes with the address."""
    configured.write(listen="127.0.0.1:%d 198.51.100.7:%d" % (configured.port, configured.port))
    daemon = configured.start().wait_ready()
    problem = configured.problems()["listen"]
    assert "198.51.100.7" in problem["message"] and "Listen=" in problem["remedy"]
    subprocess.run(["ip", "address", "add", "198.51.100.7/32", "dev", "lo"], check=True)
    try:
        wait_until("the problem is gone", lambda: "listen" not in configured.problems(), 15)
        socket.create_connection(("198.51.100.7", configured.port), timeout=5).close()
    finally:
        subprocess.run(["ip", "address", "del", "198.51.100.7/32", "dev", "lo"], check=True)
    daemon.stop()


def test_systemd_is_told(configured, tmp_path):
    notify = Notify(tmp_path / "notify")
    configured.write()
    daemon = configured.start(prefix=["env", "NOTIFY_SOCKET=%s" % notify.path])
    assert notify.until("READY")["READY"] == "1"
    for text in ("", "[Collect]\nPollInterval=never\n"):
        configured.write(text)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        daemon.process.send_signal(signal.SIGHUP)
        message = notify.message()
        assert message["RELOADING"] == "1"
        assert before <= int(message["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        # Also when nothing came of it: else systemd would wait for the end.
        assert notify.message()["READY"] == "1"
    daemon.process.send_signal(signal.SIGTERM)
    assert notify.until("STOPPING")["STOPPING"] == "1"
    assert daemon.process.wait(5) == 0


def test_included_cgroups_have_series(configured, cgroups):
    configured.write("Include=*/delayd-test-*\nExclude=*/*-hidden*\n")
    shown, hidden = cgroups("shown"), cgroups("a-hidden")
    daemon = configured.start().wait_ready()
    assert daemon.metric("delayd_cgroup_tasks", cgroup=shown.path) == 0
    assert daemon.metric("delayd_cgroup_tasks", cgroup=hidden.path) is None
    assert daemon.metric("delayd_cgroup_tasks", cgroup="/") is None
    assert daemon.metric("delayd_cgroup_tasks", cgroup="(other)") > 0
    assert daemon.api_cgroup(hidden.path)
    daemon.stop()


def test_a_storm_of_reloads(configured, cgroups, workload):
    """Nothing is lost in the meantime."""
    configured.write("[Collect]\nExitFilter=no\n")
    daemon = configured.start().wait_ready()
    storm = workload(cgroups("storm"), "fork-storm", 20_000, 4)
    reloads = 0
    while storm.process.poll() is None:
        configured.write("[Collect]\nExitFilter=no\nReceiveBuffer=%dM\nPollInterval=%dms\n" % (4 + reloads % 8, 100 + reloads))
        daemon.process.send_signal(signal.SIGHUP)
        reloads += 1
        time.sleep(0.02)
    storm.finish()
    assert reloads > 5

    def attributed():
        return daemon.api_cgroup("/") and sum(daemon.api("status")["exits"]["attributed"].values())

    wait_until("all exits", lambda: attributed() >= 20_000)
    assert daemon.api("status")["exits"]["lost"] == 0
    daemon.stop()

# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every delay in the right cgroup, at storm rates: tasks that live for a millisecond, in 50 cgroups.

The program scatter knows where each of them waited, the kernel's exit records how often. A task that is moved, or
begins elsewhere than its parent, can only be looked at while it is there: where the host does not let the daemon
run within the millisecond, the answer has to say that it is a guess.
"""
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import attribution
import hosttools
from daemon import Bus, Daemon, wait_until

PLACES = 50
CHILDREN = 1000
PARALLEL = 8
INHERITED = ["fork", "exec", "threads", "double-fork"]
MOVED = ["move", "move-exec", "moved", "moved-exec"]

SYS_PIDFD_GETFD = 438
NETLINK_CONNECTOR = 11
PROC_CN_MCAST_IGNORE = 2

V1_WANTED = ("freezer", "pids", "memory", "name=systemd")


def v1_root():
    found = {controller: point for point, kind, options in hosttools.mounts() if kind == "cgroup"
             for controller in options}
    return next((found[controller] for controller in V1_WANTED if controller in found), None)


@pytest.fixture(scope="module")
def own_bus():
    directory = Path(tempfile.mkdtemp(prefix="delayd-test-", dir="/run"))
    directory.chmod(0o755)
    bus = Bus(directory).start()
    yield bus
    bus.stop()
    shutil.rmtree(directory)


@pytest.fixture
def watched(own_bus, tmp_path):
    """A daemon with the priority that its unit gives it."""
    started = []

    def start(*args):
        started.append(Daemon(tmp_path / "delayd.log", own_bus.address, *args, prefix=("nice", "-n", "-10")))
        return started[-1].wait_ready()

    yield start
    for daemon in started:
        daemon.kill()


def remove(directory):
    for _ in range(200):
        try:
            directory.rmdir()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("cannot remove %s" % directory)


class Places:
    """Many cgroups, and one beside them in which the program starts."""

    def __init__(self, root, name):
        self.base = root / name
        self.directories = [self.base / ("p%02d" % i) for i in range(PLACES)]
        self.home = self.base / "home"
        self.made = [self.base, self.home, *self.directories]
        for directory in self.made:
            directory.mkdir()
        self.paths = ["/" + str(directory.relative_to(root)) for directory in self.directories]
        self.holders = []

    def occupy(self):
        """Nobody is told when a task comes into a cgroup that has one."""
        for directory in self.directories:
            self.holders.append(subprocess.Popen(
                ["sleep", "1000"], preexec_fn=lambda at=directory: (at / "cgroup.procs").write_text("0")))

    def run(self, kind, file):
        program = subprocess.run(
            [hosttools.WORKLOADS / "scatter", kind, str(CHILDREN), str(PARALLEL), "1", file, *self.directories],
            check=True, stdout=subprocess.PIPE, timeout=60,
            preexec_fn=lambda: (self.home / "cgroup.procs").write_text("0"))
        return json.loads(program.stdout)

    def remove(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
        for directory in reversed(self.made):
            remove(directory)


@pytest.fixture
def places(request):
    made = []

    def make(root):
        name = "delayd-test-%s" % request.node.name.replace("/", "-").replace("[", "-").rstrip("]")
        made.append(Places(root, name))
        return made[-1]

    yield make
    for each in made:
        each.remove()


@pytest.fixture(scope="module")
def table():
    return []


def check(outcome, kind, table, capsys):
    with capsys.disabled():
        if not table:
            print("\n" + attribution.HEADER)
        print(outcome.line())
    table.append(outcome)

    assert outcome.tasks > CHILDREN / 20, "the disk is too fast, or delay accounting was turned off"
    assert outcome.silently_wrong() <= outcome.tasks / 1000, outcome.examples
    if kind not in INHERITED:
        # Whoever could not be looked at in time.
        assert outcome.share() >= 0.999 - 3 * outcome.late, outcome.examples
    else:
        assert outcome.share() >= 0.999, outcome.examples


@pytest.mark.parametrize("kind", INHERITED + MOVED + ["into", "into-exec"])
def test_v2(watched, places, cold_file, table, capsys, kind):
    here = places(hosttools.cgroup2_root())
    daemon = watched()
    check(attribution.compare(daemon, "v2 " + kind, here.paths, lambda: here.run(kind, cold_file)), kind, table, capsys)
    daemon.stop()


@pytest.mark.parametrize("kind", ["into", "into-exec", "moved"])
def test_v2_where_others_are(watched, places, cold_file, table, capsys, kind):
    here = places(hosttools.cgroup2_root())
    here.occupy()
    daemon = watched()
    check(attribution.compare(daemon, "v2 beside others " + kind, here.paths, lambda: here.run(kind, cold_file)),
          kind, table, capsys)
    daemon.stop()


@pytest.mark.parametrize("kind", INHERITED + MOVED + ["moved-thread"])
def test_v1(watched, places, cold_file, table, capsys, kind):
    root = v1_root()
    if not root:
        pytest.skip("no v1 hierarchy is mounted")
    here = places(root)
    daemon = watched("--set", "Collect.CgroupRoot=%s" % root)
    assert daemon.status()["kernel"]["cgroup_hierarchy"].startswith("v1 (")
    check(attribution.compare(daemon, "v1 " + kind, here.paths, lambda: here.run(kind, cold_file)), kind, table, capsys)
    daemon.stop()


# When the events fail.

def connector_socket(daemon):
    """The daemon's own socket of the proc connector, as another descriptor for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(daemon.process.pid)
    try:
        for name in os.listdir("/proc/%d/fd" % daemon.process.pid):
            fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(name), 0)
            if fd < 0:
                continue
            try:
                sock = socket.socket(fileno=fd)
            except OSError:
                os.close(fd)
                continue
            if sock.family == socket.AF_NETLINK and sock.proto == NETLINK_CONNECTOR:
                return sock
            sock.close()
    finally:
        os.close(pidfd)
    raise AssertionError("the daemon has no proc connector")


def send_to_connector(sock, operation):
    message = struct.pack("=IIIIHHI", 1, 1, 0, 0, 4, 0, operation)
    sock.send(struct.pack("=IHHII", 16 + len(message), 3, 0, 0, 0) + message)


def test_a_feed_that_goes_silent_is_opened_again(watched, places, cold_file, capsys):
    here = places(hosttools.cgroup2_root())
    daemon = watched()
    # The kernel forgets that somebody listens: as dead as it can be, and nobody is told.
    with connector_socket(daemon) as sock:
        send_to_connector(sock, PROC_CN_MCAST_IGNORE)
    time.sleep(1.2)
    blind = attribution.compare(daemon, "feed is dead", here.paths, lambda: here.run("into", cold_file))
    assert blind.silently_wrong() <= blind.tasks / 1000, blind.examples

    wait_until("the feed is opened again", lambda: "stopped telling of forks" in daemon.log(), 15)
    # It is known to work again by the first event, for which somebody must fork.
    wait_until("the problem is gone", lambda: subprocess.run(["true"], check=True) and "proc-connector is gone" in daemon.log(), 15)
    assert all(problem["id"] != "proc-connector" for problem in daemon.status()["problems"])
    again = attribution.compare(daemon, "feed is back", here.paths, lambda: here.run("fork", cold_file))
    with capsys.disabled():
        print("\n%s\n%s" % (blind.line(), again.line()))
    assert again.share() >= 0.999, again.examples
    assert again.by_source["none"] == 0
    daemon.stop()


def test_a_daemon_that_was_kept_from_reading(watched, places, cold_file, workload, capsys):
    """More forks than its buffer holds: what is not known is said to be so, and found again by a sweep."""
    here = places(hosttools.cgroup2_root())
    daemon = watched()

    def run_unseen():
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            workload(None, "fork-storm", 20_000, 8).finish(60)
            return here.run("exec", cold_file)
        finally:
            daemon.process.send_signal(signal.SIGCONT)

    outcome = attribution.compare(daemon, "after a stop", here.paths, run_unseen)
    with capsys.disabled():
        print("\n" + outcome.line())
    assert outcome.silently_wrong() <= outcome.tasks / 1000, outcome.examples

    wait_until("the loss is told", lambda: any(problem["id"] == "events-lost" for problem in daemon.status()["problems"]))
    time.sleep(2)
    again = attribution.compare(daemon, "and later", here.paths, lambda: here.run("fork", cold_file))
    assert again.share() >= 0.999, again.examples
    daemon.stop()

# SPDX-License-Identifier: LGPL-2.1-or-later
import collections
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

import hosttools
from daemon import DELAYCTL, DELAYD, Bus, Daemon

TEST_SECONDS = 120


def pytest_collection_modifyitems(items):
    reason = None
    if os.geteuid() != 0:
        reason = "needs root: run \"sudo tests/run\""
    elif not hosttools.in_initial_namespaces():
        reason = "needs the host's own user, PID and network namespaces, not a container's"
    elif not hosttools.DELAYACCT.exists():
        reason = "the kernel has no kernel.task_delayacct (CONFIG_TASK_DELAY_ACCT, Linux 5.14 and later)"
    elif not hosttools.cgroup2_root():
        reason = "no cgroup v2 hierarchy is mounted"
    if reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """No test hangs: after TEST_SECONDS (or what its marker "seconds" says) it fails, with its clean-up."""
    marker = item.get_closest_marker("seconds")
    seconds = marker.args[0] if marker else TEST_SECONDS

    def too_long(_signal, _frame):
        raise TimeoutError("the test took longer than %d s" % seconds)

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_configure(config):
    # Whoever ends the run, the host gets back its switch, swap and cgroups.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("markers", "seconds(n): time limit of the test instead of %d s" % TEST_SECONDS)


@pytest.fixture(scope="session", autouse=True)
def host():
    """This run has the host to itself, and delay accounting is on."""
    signal.alarm(0)  # waiting for another run is not the test's own time
    lock = hosttools.lock_host(900)
    signal.alarm(TEST_SECONDS)
    with lock, hosttools.Delayacct(on=True):
        yield


@pytest.fixture(autouse=True)
def accounting_on(host):
    """Whatever another program did to the switch in the meantime."""
    hosttools.DELAYACCT.write_text("1", encoding="ascii")


@pytest.fixture(scope="session")
def cgroup_base(host):
    base = hosttools.Cgroup("delayd-test-%d" % os.getpid())
    yield base
    base.remove()


@pytest.fixture(scope="session")
def used_names():
    return collections.Counter()


@pytest.fixture
def cgroups(cgroup_base, used_names):
    """Makes cgroups, by name; they are removed when the test ends. No path comes twice, for a removed one is still shown."""
    made = []

    def make(name):
        used_names[name] += 1
        if used_names[name] > 1:
            name = "%s-%d" % (name, used_names[name])
        made.append(hosttools.Cgroup("%s/%s" % (cgroup_base.path[1:], name)))
        return made[-1]

    yield make
    for cgroup in reversed(made):
        cgroup.remove()


@pytest.fixture
def workload(cgroups):
    """Starts test programs; whatever still runs when the test ends is ended, by its own PID."""
    started = []

    def start(cgroup, name, *args, **options):
        started.append(hosttools.Workload(cgroup, [hosttools.WORKLOADS / name, *args], **options))
        return started[-1]

    yield start
    for program in started:
        program.end()


@pytest.fixture
def launcher(cgroups):
    """Starts shells that run programs in a cgroup; they are real-time tasks, which the fault of Linux 6.12 spares."""
    started = []

    def start(cgroup, fifo=True):
        started.append(hosttools.Launcher(cgroup, fifo))
        return started[-1]

    yield start
    for shell in started:
        shell.end()


@pytest.fixture(scope="session")
def disk_directory():
    """A directory on a disk that waits: not a tmpfs, as /tmp may be."""
    path = Path(tempfile.mkdtemp(prefix="delayd-test-", dir="/var/tmp"))
    kind = subprocess.run(["stat", "-f", "-c", "%T", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    if kind.strip() in ("tmpfs", "ramfs", "overlayfs"):
        shutil.rmtree(path)
        pytest.skip("/var/tmp is on %s, where reads do not wait" % kind.strip())
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def cold_file(disk_directory):
    return hosttools.make_cold_file(disk_directory / "cold", 256)


@pytest.fixture(scope="session")
def zram(host):
    try:
        device = hosttools.Zram(256 << 20)
    except LookupError as error:
        pytest.skip(str(error))
    yield device
    device.close()


@pytest.fixture(scope="session")
def public_copy():
    """Copies of what other users run in tests: they may not reach a checkout in someone's home."""
    path = Path(tempfile.mkdtemp(prefix="delayd-test-", dir="/var/tmp"))
    path.chmod(0o755)
    shutil.copy(DELAYD, path / "delayd")
    shutil.copy(DELAYCTL, path / "delayctl")
    shutil.copytree(hosttools.ROOT / "packaging", path / "packaging")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def run_directory():
    """Where buses have their sockets: open to other users, as /run/dbus is."""
    path = Path(tempfile.mkdtemp(prefix="delayd-test-", dir="/run"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def bus(run_directory):
    bus = Bus(run_directory).start()
    yield bus
    bus.stop()


@pytest.fixture(scope="session")
def daemon(host, bus, run_directory):
    """The delayd that most tests look at; with room for what other programs on the host do to cgroups meanwhile."""
    daemon = Daemon(run_directory / "delayd.log", bus.address,
                    "--set", "Collect.MaxCgroups=200000", "--set", "Metrics.MaxCgroups=200000")
    try:
        daemon.wait_ready()
        yield daemon
        daemon.stop()
    finally:
        daemon.kill()


@pytest.fixture
def start_daemon(host, tmp_path):
    """Starts daemons of a test's own; by default without a bus."""
    started = []

    def start(*args, bus_address=None, **options):
        if bus_address is None:
            args += ("--bus=none",)
        started.append(Daemon(tmp_path / ("delayd-%d.log" % len(started)), bus_address, *args, **options))
        return started[-1]

    yield start
    for daemon in started:
        daemon.kill()

# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the live tests change on the host, each as an object that undoes it: sysctl, cgroups, zram, processes."""
import fcntl
import json
import os
import shlex
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DELAYD_BUILD", ROOT / "build")).resolve()
WORKLOADS = BUILD / "tests/live/workloads"
DELAYACCT = Path("/proc/sys/kernel/task_delayacct")
LOCK = "/run/lock/delayd-tests.lock"

BLOCK_DISTANCE = 64 * 1024  # of cold-reader


def in_initial_namespaces():
    """Whether taskstats can work here; the numbers are those of include/linux/proc_ns.h."""
    try:
        network = os.stat("/proc/1/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    except PermissionError:
        network = True  # cannot be told
    return (network and os.stat("/proc/self/ns/user").st_ino == 0xEFFFFFFD
            and os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC)


def lock_host(seconds):
    """One run of the live tests at a time: they share the sysctl and zram0. Closing the file unlocks."""
    file = open(LOCK, "w", encoding="ascii")
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError("another run of the live tests holds %s" % LOCK) from None
            time.sleep(0.2)


class Delayacct:
    """kernel.task_delayacct, given back as it was."""

    def __init__(self, on):
        self.before = DELAYACCT.read_text(encoding="ascii")
        DELAYACCT.write_text("1" if on else "0", encoding="ascii")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        DELAYACCT.write_text(self.before, encoding="ascii")


def mounts():
    """(mount point, file system type, super options) of every mount."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, right = line.split(" - ", 1)
        kind, _source, options = right.split(" ", 2)
        yield Path(left.split(" ")[4]), kind, options.split(",")


def cgroup2_root():
    return next((point for point, kind, _ in mounts() if kind == "cgroup2"), None)


def memory_v1_root():
    return next((point for point, kind, options in mounts() if kind == "cgroup" and "memory" in options), None)


class Cgroup:
    """A cgroup of a test in the v2 hierarchy, with a memory limit wherever the memory controller is."""

    def __init__(self, path):
        self.directory = cgroup2_root() / path
        self.path = "/" + path
        self.directory.mkdir()
        self.limited = None

    def limit_memory(self, size):
        if memory_v1_root():
            self.limited = memory_v1_root() / ("delayd-test-%d-%s" % (os.getpid(), self.directory.name))
            self.limited.mkdir(exist_ok=True)
            (self.limited / "memory.limit_in_bytes").write_text(str(size), encoding="ascii")
        else:
            for parent in (cgroup2_root(), self.directory.parent):
                (parent / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            (self.directory / "memory.max").write_text(str(size), encoding="ascii")

    def enter(self):
        """Moves the calling process, between fork and exec."""
        (self.directory / "cgroup.procs").write_text("0", encoding="ascii")
        if self.limited:
            (self.limited / "cgroup.procs").write_text("0", encoding="ascii")

    def add(self, pid):
        """Moves a process that is there."""
        (self.directory / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def processes(self):
        return [int(pid) for pid in (self.directory / "cgroup.procs").read_text(encoding="ascii").split()]

    def pressure(self, resource):
        """How long some task in it has stalled, in ns; None where the kernel does not tell."""
        try:
            some = (self.directory / (resource + ".pressure")).read_text(encoding="ascii").splitlines()[0]
        except OSError:
            return None
        return int(some.rpartition("total=")[2]) * 1000

    @staticmethod
    def remove_directory(directory):
        for _ in range(100):
            try:
                os.rmdir(directory)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)  # tasks that have just ended keep it busy for a moment
        raise AssertionError("cannot remove %r" % directory)

    def remove(self):
        for directory in filter(None, (self.limited, self.directory)):
            self.remove_directory(directory)


class Workload:
    """A running test program. Its first line of output is a JSON object."""

    def __init__(self, cgroup, args, fifo=False, stdin=subprocess.PIPE, gate=None):
        """gate: called when the process is in its cgroup, and it becomes the program only after that."""
        def prepare():
            if cgroup:
                cgroup.enter()
            if fifo:
                # A real-time task is dequeued at once, so that the fault of Linux 6.12 cannot strike it.
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        args = [str(arg) for arg in args]
        if gate:
            args = ["/bin/sh", "-c", 'read -r go && exec "$@"', "sh", *args]
        self.process = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE, preexec_fn=prepare)
        self.pid = self.process.pid
        if gate:
            gate()
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()

    def first_line(self):
        line = self.process.stdout.readline()
        assert line, "%s said nothing and ended with %r" % (self.process.args[0], self.process.wait(10))
        return json.loads(line)

    def finish(self, timeout=60):
        """Lets it end and returns what it said."""
        out, _ = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, "%s: exit status %d" % (self.process.args[0], self.process.returncode)
        return json.loads(out) if out else None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


class Launcher:
    """A shell that lives in a cgroup and runs programs there one after the other, as a service's main process does."""

    def __init__(self, cgroup, fifo=False):
        self.shell = Workload(cgroup, ["/bin/sh", "-c", 'while read -r line; do eval "$line"; done'], fifo=fifo)
        self.pid = self.shell.pid

    def run(self, *args):
        """Runs a program to its end and returns what it said."""
        self.shell.process.stdin.write((" ".join(shlex.quote(str(arg)) for arg in args) + "\n").encode())
        self.shell.process.stdin.flush()
        return self.shell.first_line()

    def end(self):
        self.shell.end()


class Zram:
    """zram0 as swap, with no other program's data: refuses a device that is in use."""

    DEVICE = Path("/dev/zram0")
    SYSFS = Path("/sys/block/zram0")

    def __init__(self, size):
        if not self.SYSFS.exists():
            subprocess.run(["modprobe", "zram"], check=False, stderr=subprocess.DEVNULL)
        if not self.SYSFS.exists():
            raise LookupError("the kernel has no zram device")
        if int((self.SYSFS / "disksize").read_text(encoding="ascii")) != 0:
            raise LookupError("zram0 is in use")
        (self.SYSFS / "disksize").write_text(str(size), encoding="ascii")
        try:
            subprocess.run(["mkswap", self.DEVICE], check=True, stdout=subprocess.DEVNULL)
            # Above every other swap space, so that pages go here.
            subprocess.run(["swapon", "--priority", "32000", self.DEVICE], check=True)
        except BaseException:
            self._reset()
            raise

    def _reset(self):
        (self.SYSFS / "reset").write_text("1", encoding="ascii")

    def close(self):
        subprocess.run(["swapoff", self.DEVICE], check=True)
        self._reset()


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def make_cold_file(path, blocks):
    """A file on a real disk that holds this many blocks for cold-reader; written through, so that it can be dropped."""
    with open(path, "wb") as file:
        file.write(os.urandom(blocks * BLOCK_DISTANCE))
        file.flush()
        os.fsync(file.fileno())
    return path

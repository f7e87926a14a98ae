# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the checks in the virtual machine share: results, units with known waits, delayd's answers."""
import contextlib
import json
import os
import subprocess
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = "/dev/ttyS1"
COLD_FILE = "/var/tmp/cold"
PORT = 10066
NSEC_PER_SEC = 1_000_000_000
# Without a TSC that the kernel trusts it takes delays with a clock that is right to a tick only.
ROUGH_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text(encoding="ascii") != "tsc\n"
CLOCK_ERROR_NSEC = 20_000_000 if ROUGH_CLOCK else 0
STARTED = time.monotonic()


class Skip(Exception):
    """Not to be had in this version or on this kernel; says what."""


class Results:
    """A line for each check to the host, as soon as it is known."""

    def __init__(self):
        self.file = open(RESULTS, "w", encoding="utf-8", errors="replace")

    def say(self, text):
        self.file.write(text + "\n")
        self.file.flush()
        print(text)

    def report(self, good, name, comment=""):
        self.say("%s - %s%s" % ("ok" if good else "not ok", name, comment))

    def run(self, name, function):
        started = time.monotonic()
        try:
            function()
        except Skip as skip:
            self.report(True, name, " # SKIP %s" % skip)
        except Exception:  # pylint: disable=broad-except
            self.report(False, name)
            for line in traceback.format_exc().splitlines()[-12:]:
                self.say("# " + line)
        else:
            self.report(True, name, " # after %.0f s, took %.1f s" % (started - STARTED, time.monotonic() - started))


results = Results()


def run(*command, check=True, **options):
    """Runs a command and returns the completed process, with its output as text."""
    result = subprocess.run([str(word) for word in command], text=True, timeout=120, check=False,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert not check or result.returncode == 0, "%s ended with %d: %s%s" % (
        command, result.returncode, result.stdout, result.stderr)
    return result


def output(*command, **options):
    return run(*command, **options).stdout.strip()


def wait_until(what, condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "%s: not within %g s" % (what, seconds)
        time.sleep(0.25)


# Units.

def unit_properties(unit, *names):
    lines = output("systemctl", "show", unit, *["--property=" + name for name in names]).splitlines()
    found = dict(line.split("=", 1) for line in lines)
    return found[names[0]] if len(names) == 1 else [found[name] for name in names]


def main_pid():
    return int(unit_properties("delayd.service", "MainPID"))


def is_active(unit="delayd.service"):
    return unit_properties(unit, "ActiveState") == "active"


def unit_command(name, command, properties):
    return ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--unit=" + name,
            *["--property=" + text for text in properties], *[str(word) for word in command]]


def run_unit(name, *command, properties=()):
    """Runs a command as a transient service and returns what it printed."""
    return output(*unit_command(name, command, properties))


def read_slowly(name, blocks, *arguments, properties=()):
    """The command of a unit whose reads do wait, though the disk is the memory of the host."""
    return unit_command(name, [HERE / "cold-reader", "--blocks=%d" % blocks, *arguments, COLD_FILE],
                        ["IOReadBandwidthMax=/var/tmp 256K", *properties])


@contextlib.contextmanager
def reader_that_stays(name, blocks, properties=()):
    """A unit that has read slowly and then does nothing; gives its process."""
    process = subprocess.Popen(read_slowly(name, blocks, "--hold", properties=properties),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield json.loads(process.stdout.readline())["pid"]
    finally:
        process.stdin.close()
        process.wait(20)


def write_drop_in(unit, text):
    directory = Path("/run/systemd/system/%s.d" % unit)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "check.conf").write_text(text, encoding="ascii")
    run("systemctl", "daemon-reload")


def remove_drop_in(unit):
    directory = Path("/run/systemd/system/%s.d" % unit)
    (directory / "check.conf").unlink()
    directory.rmdir()
    run("systemctl", "daemon-reload")


# What delayd says.

def http(path, host="127.0.0.1", port=PORT):
    with urllib.request.urlopen("http://%s:%d%s" % (host, port, path), timeout=30) as response:
        return response.read().decode()


def listening(host="127.0.0.1", port=PORT):
    try:
        http("/-/healthy", host, port)
    except (urllib.error.URLError, OSError):
        return False
    return True


def metrics():
    """{line before the value: value}"""
    lines = [line.rsplit(" ", 1) for line in http("/metrics").splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def delayctl(*arguments, user=None, check=True):
    prefix = ["runuser", "-u", user, "--"] if user else []
    return run(*prefix, "delayctl", *arguments, check=check)


def ask(*arguments, user=None):
    return json.loads(delayctl("--json=short", *arguments, user=user).stdout)


def rows(*arguments, user=None):
    return ask("cgroups", "--all", "--limit=0", "--window=1h", *arguments, user=user)["cgroups"]


def row_of(cgroup):
    return next((row for row in rows() if row["cgroup"] == cgroup), None)


def wait_ready():
    wait_until("delayd.service is active", is_active)
    wait_until("HTTP", listening)
    # The bus name comes after READY=1, and on a bus that had no policy for it yet some seconds later.
    wait_until("D-Bus", lambda: delayctl("status", check=False).returncode == 0)


def wait_for_waits(cgroup, kind, waits):
    """The numbers of a cgroup once as many waits are counted or refused as the kernel counted."""
    found = {}

    def there():
        row = row_of(cgroup)
        found["row"] = row
        return row and row[kind]["waits"] + row[kind]["rejected_waits"] >= waits

    try:
        wait_until("%d waits" % waits, there, 20)
    except AssertionError as error:
        raise AssertionError("%s in %s, which shows %r" % (error, cgroup, found["row"])) from None
    return found["row"]


def counters():
    """Everything that must never go back."""
    return {name: value for name, value in metrics().items()
            if name.split("{")[0].endswith(("_total", "_count", "_sum", "_bucket")) and not name.startswith("process_")}


def make_file(path, mebibytes):
    """Of noise and on the disk, for cold-reader to drop from the page cache."""
    with open(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return path


def assert_is_truth(delays, record, kind):
    count, total = getattr(record, kind + "_count"), getattr(record, kind + "_total")
    assert delays["waits"] + delays["rejected_waits"] == count, (delays, record)
    if delays["rejected_waits"] == 0:
        assert delays["total_nsec"] == total
    assert delays["p50_nsec"] <= delays["p90_nsec"] <= delays["p99_nsec"] <= delays["max_nsec"]
    assert delays["max_nsec"] <= record.etime_usec * 1000 + CLOCK_ERROR_NSEC


def assert_healthy():
    """No problem but what the kernel's are."""
    problems = [problem for problem in ask("status")["problems"]
                if not problem["id"].startswith(("delayed-dequeue", "kernel-"))]
    assert problems == []

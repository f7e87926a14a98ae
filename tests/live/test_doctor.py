# SPDX-License-Identifier: LGPL-2.1-or-later
"""delayctl doctor on the running kernel: what it finds, with and without a daemon, and that it goes with its cause."""
import json
import signal
import time

import pytest

import hosttools
from daemon import Bus, delayctl, wait_until

STATUS = {"ok": 0, "degraded": 1, "failing": 2}
CHECKS = {"taskstats", "capability", "user-namespace", "pid-namespace", "network-namespace", "exit-records", "receive-buffer",
          "proc-connector", "cgroups", "delay-accounting", "pressure", "hidepid", "swapin", "clock", "delayed-dequeue"}


def examine(bus_address, **options):
    """The checks by their ids, and the word for all of them."""
    result = delayctl(bus_address, "--json=short", "doctor", **options)
    assert result.stderr == ""
    reply = json.loads(result.stdout)
    results = [check["result"] for check in reply["checks"]]
    expected = "failing" if "fail" in results else "degraded" if "warn" in results else "ok"
    assert reply["health"] == expected
    assert result.returncode == STATUS[expected]
    return {check["id"]: check for check in reply["checks"]}, expected


@pytest.fixture
def own_bus(tmp_path):
    """A bus on which the name is free."""
    bus = Bus(tmp_path).start()
    yield bus
    bus.stop()


def test_of_a_daemon(daemon):
    checks, _word = examine(daemon.bus_address)
    assert CHECKS <= checks.keys()
    status = daemon.status()
    for name in CHECKS - {"delayed-dequeue", "pressure"}:
        assert checks[name]["result"] == "ok", checks[name]
    assert "Version %d" % status["kernel"]["taskstats_version"] in checks["taskstats"]["message"]
    assert status["kernel"]["cgroup_hierarchy"] in checks["cgroups"]["message"]
    assert checks["daemon"]["result"] == "ok"
    if status["kernel"]["delayed_dequeue"] == "on":
        assert "NO_DELAY_DEQUEUE" in checks["delayed-dequeue"]["remedy"]
    # Each problem of status is there, too.
    assert {problem["id"] for problem in status["problems"]} <= checks.keys()

    result = daemon.ctl("doctor")
    assert "delayd is " in result.stdout.splitlines()[-1]
    assert all(check["title"] in result.stdout for check in checks.values())


def test_other_users_may_ask(daemon):
    result = daemon.ctl("doctor", prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert "delayd runs and answers." in result.stdout


def test_delay_accounting_that_is_off_or_late(start_daemon, own_bus, cgroups, workload, cold_file):
    """Off: named with its remedy. On again: the tasks that started meanwhile are counted, with where they are."""
    with hosttools.Delayacct(on=False):
        daemon = start_daemon(bus_address=own_bus.address)
        daemon.wait_ready()
        checks, word = examine(own_bus.address)
        assert word != "ok"
        assert checks["delay-accounting"]["result"] == "warn"
        assert "sysctl kernel.task_delayacct=1" in checks["delay-accounting"]["remedy"]
        cgroup = cgroups("late")
        workload(cgroup, "cold-reader", "--blocks=250", "--hold", cold_file).first_line()

    wait_until("the check", lambda: examine(own_bus.address)[0]["delay-accounting"]["result"] == "ok")

    def unaccounted():
        check = examine(own_bus.address)[0]["unaccounted-tasks"]
        return check if check["result"] == "warn" else None

    check = wait_until("the unaccounted task", unaccounted)
    assert "restart" in check["remedy"].lower()
    total = sum(row["unaccounted_tasks"] for row in daemon.api("cgroups?limit=0")["cgroups"])
    assert int(check["message"].split()[0]) == pytest.approx(total, abs=20)
    daemon.stop()


@pytest.fixture
def no_daemon(tmp_path):
    """A bus address behind which nobody is."""
    return "unix:path=%s" % (tmp_path / "bus")


def test_without_a_daemon(no_daemon):
    checks, word = examine(no_daemon)
    assert word in ("failing", "degraded")  # another delayd may run on the host
    assert CHECKS <= checks.keys()
    for name in CHECKS - {"delayed-dequeue", "pressure"}:
        assert checks[name]["result"] == "ok", checks[name]
    assert "arrived" in checks["exit-records"]["message"]
    assert checks["dbus"]["result"] == "warn"


@pytest.mark.parametrize("prefix, name, word", [
    (["unshare", "--net", "--"], "network-namespace", "PrivateNetwork="),
    (["unshare", "--pid", "--fork", "--mount-proc", "--"], "pid-namespace", "PrivatePIDs="),
    (["unshare", "--user", "--map-root-user", "--"], "user-namespace", "PrivateUsers="),
])
def test_in_another_namespace(no_daemon, prefix, name, word):
    checks, health = examine(no_daemon, prefix=prefix)
    assert health == "failing"
    assert checks[name]["result"] == "fail" and word in checks[name]["remedy"]
    assert checks["exit-records"]["result"] in ("fail", "unknown")


def test_in_another_time_namespace(no_daemon):
    checks, _health = examine(no_daemon, prefix=["unshare", "--time", "--fork", "--"])
    assert checks["time-namespace"]["result"] == "warn"


def test_without_privileges(no_daemon):
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    checks, _health = examine(no_daemon, prefix=prefix)
    assert checks["capability"]["result"] == "unknown" and "root" in checks["capability"]["remedy"]
    assert checks["taskstats"]["result"] == "ok"
    assert checks["exit-records"]["result"] == "unknown"


def test_hidden_processes(no_daemon):
    """As an ordinary user where /proc is mounted with hidepid=2."""
    script = ("mount -t proc -o hidepid=2 proc /proc && "
              'exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"')
    checks, _health = examine(no_daemon, prefix=["unshare", "--mount", "--", "sh", "-c", script, "sh"])
    assert checks["hidepid"]["result"] == "warn" and "SupplementaryGroups=" in checks["hidepid"]["remedy"]
    assert "hidepid=" in checks["hidepid"]["message"]


def test_a_daemon_that_does_not_answer(start_daemon, own_bus):
    daemon = start_daemon(bus_address=own_bus.address).wait_ready()
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        start = time.monotonic()
        checks, _health = examine(own_bus.address)
        assert time.monotonic() - start < 20
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert checks["daemon"]["result"] == "warn" and "10 s" in checks["daemon"]["message"]
    assert checks["delay-accounting"]["result"] == "ok"
    daemon.stop()

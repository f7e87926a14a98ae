# SPDX-License-Identifier: LGPL-2.1-or-later
"""delayctl doctor: what it makes of a daemon's answers, of other answers and of none."""
import json
import re

import pytest

from test_delayctl import bus_fixture

normal = bus_fixture("normal")
empty = bus_fixture("empty")
nobody = bus_fixture(None)
fresh = bus_fixture("normal", scope="function")

CHECK_KEYS = ["id", "title", "result", "message", "remedy"]


def doctor(bus, *arguments, **keywords):
    """Exit status, the word for all, and the checks by their ids."""
    result = bus.run("-j", "doctor", *arguments, **keywords)
    assert result.stderr == "" and result.stdout.count("\n") == 1
    reply = json.loads(result.stdout)
    assert list(reply) == ["health", "checks"]
    assert all(list(check) == CHECK_KEYS for check in reply["checks"])
    assert all(check["result"] in ("ok", "warn", "fail", "unknown") for check in reply["checks"] if check["id"] != "evil")
    return result.returncode, reply["health"], {check["id"]: check for check in reply["checks"]}


def test_fine(empty):
    status, health, checks = doctor(empty)
    assert (status, health) == (0, "ok")
    assert list(checks) == ["daemon", "dbus", "taskstats"]
    assert checks["taskstats"]["remedy"] is None


def test_degraded(normal):
    status, health, checks = doctor(normal)
    assert (status, health) == (1, "degraded")
    assert checks["delay-accounting"]["result"] == "warn"
    assert checks["daemon"]["result"] == checks["dbus"]["result"] == "ok"


def test_not_working(fresh):
    fresh.stop()
    fresh.start("failing")
    status, health, checks = doctor(fresh)
    assert (status, health) == (2, "failing")
    assert checks["polling"]["remedy"] == "Restart delayd."


def test_text(normal):
    result = normal.run("doctor")
    assert result.returncode == 1 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["ok", "Daemon", "delayd", "runs", "and", "answers."]
    row = next(i for i, line in enumerate(lines) if "Delay accounting" in line)
    assert lines[row].startswith("warn ")
    assert lines[row + 1].strip() == "Remedy: Run 'sysctl kernel.task_delayacct=1'."
    assert lines[row + 1].index("Remedy") == lines[row].index("kernel.")
    assert lines[-1] == "delayd is degraded: 3 checks are ok, 1 warn, 0 fail, 1 are unknown."
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.stdout)
    assert "\033[33mwarn" in normal.run("doctor", "--color=always").stdout
    assert "checks are ok" not in normal.run("doctor", "--no-legend").stdout


@pytest.mark.parametrize("mode, words", [
    ("old", "another version"),
    ("replay", "shows a recording"),
])
def test_daemons_that_cannot_tell(fresh, mode, words):
    """The rest is looked at by delayctl itself."""
    fresh.stop()
    fresh.start(mode)
    status, _health, checks = doctor(fresh)
    assert status in (1, 2)
    assert checks["daemon"]["result"] == "warn" and words in checks["daemon"]["message"]
    assert "delay-accounting" in checks and "swapin" in checks


def test_a_garbled_reply(fresh):
    fresh.stop()
    fresh.start("garbled")
    assert "cannot be read" in fresh.error("doctor")


def test_without_a_daemon(nobody):
    status, _health, checks = doctor(nobody)
    assert status in (1, 2)
    assert checks["daemon"]["result"] in ("fail", "warn")  # another delayd may run on the host
    assert checks["dbus"]["result"] == "ok"
    for name in ("taskstats", "capability", "user-namespace", "pid-namespace", "network-namespace", "delay-accounting",
                 "proc-connector", "cgroups", "pressure", "hidepid", "swapin", "clock", "delayed-dequeue"):
        assert checks[name]["message"], name


def test_without_a_bus(nobody, tmp_path):
    status, _health, checks = doctor(nobody, env={"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path}/none"})
    assert status in (1, 2)
    assert checks["dbus"]["result"] == "warn" and "Cannot reach the bus" in checks["dbus"]["message"]
    assert checks["daemon"]["result"] in ("fail", "warn")

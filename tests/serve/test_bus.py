# SPDX-License-Identifier: LGPL-2.1-or-later
"""org.delayd1 on a private bus, through busctl."""
import json
import os
import shutil
import subprocess
import time

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("dbus-daemon") or not shutil.which("busctl"),
                                reason="no dbus-daemon or busctl")

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to ask as other users")

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow send_destination="*"/>
    <allow eavesdrop="false"/>
    {own}
  </policy>
</busconfig>
"""


class Bus:
    def __init__(self, directory):
        self.socket = directory / "bus"
        self.address = f"unix:path={self.socket}"
        self.config = directory / "bus.conf"
        self.env = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self.address}
        self.process = None

    def start(self, own='<allow own="org.delayd1"/>'):
        self.config.write_text(CONFIG.format(socket=self.socket, own=own))
        self.process = subprocess.Popen(["dbus-daemon", f"--config-file={self.config}", "--nofork", "--print-address"],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline()
        self.socket.chmod(0o666)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.socket.unlink(missing_ok=True)

    def run(self, *arguments, **options):
        return subprocess.run(["busctl", f"--address={self.address}", "--json=short", *arguments],
                              capture_output=True, text=True, timeout=30, **options)

    def call(self, method, *arguments, **options):
        result = self.run("call", "org.delayd1", "/org/delayd1", "org.delayd1.Manager", method, *arguments, **options)
        assert result.returncode == 0, result.stderr
        return plain(json.loads(result.stdout)["data"])

    def error(self, method, *arguments):
        result = self.run("call", "org.delayd1", "/org/delayd1", "org.delayd1.Manager", method, *arguments)
        assert result.returncode != 0
        return result.stderr

    def wait_for_name(self, timeout=20):
        deadline = time.monotonic() + timeout
        while "org.delayd1" not in self.run("list", "--acquired").stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def plain(value):
    """Variants as busctl writes them ({"type":…, "data":…}) become their values."""
    if isinstance(value, dict):
        if set(value) == {"type", "data"}:
            return plain(value["data"])
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


@pytest.fixture
def bus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bus")
    for parent in (directory, directory.parent, directory.parent.parent):
        parent.chmod(0o755)
    b = Bus(directory)
    b.start()
    yield b
    b.stop()


@pytest.fixture
def server(bus, start):
    s = start("bus", env=bus.env)
    s.wait_for("ready")
    bus.wait_for_name()
    return s


def test_introspection_has_names(bus, server):
    result = bus.run("--xml-interface", "introspect", "org.delayd1", "/org/delayd1")
    for name in ("ListCgroups", "GetHistogram", "ListTasks", "GetStatus", "Version", "window_nsec", "options", "cgroups"):
        assert f'name="{name}"' in result.stdout, result.stdout
    result = bus.run("get-property", "org.delayd1", "/org/delayd1", "org.delayd1.Manager", "Version")
    assert json.loads(result.stdout)["type"] == "s"


def test_list_cgroups(bus, server):
    window, cgroups = bus.call("ListCgroups", "tssta{sv}", "0", "", "", "2", "0")
    assert window == 300 * 10**9
    assert [c["cgroup"] for c in cgroups] == ["/job", "/system.slice/db.service"]
    assert list(cgroups[0]) == ["cgroup", "removed", "tasks", "unaccounted_tasks", "blkio", "swapin"]
    assert list(cgroups[1])[:3] == ["cgroup", "unit", "slice"]
    assert cgroups[0]["removed"] is True and cgroups[1]["removed"] is False
    assert cgroups[1]["blkio"]["waits"] == 4 and cgroups[1]["blkio"]["total_nsec"] == 2003000001
    assert list(cgroups[0]["swapin"]) == ["waits", "total_nsec", "rejected_waits", "without_io_waits", "exact_waits"]

    window, cgroups = bus.call("ListCgroups", "tssta{sv}", str(3600 * 10**9), "swapin", "cgroup", "0", "1",
                               "recursive", "b", "true")
    assert window == 3600 * 10**9
    root = next(c for c in cgroups if c["cgroup"] == "/")
    assert root["swapin"]["waits"] == 0 and "blkio" not in root
    assert root["subtree"]["swapin"]["waits"] == 1 and "blkio" not in root["subtree"]
    assert sum(c["swapin"]["waits"] for c in cgroups if c["cgroup"][0] == "/") == 1
    assert '/we"ird\\x2d\\x0a\\xffé' in [c["cgroup"] for c in cgroups]


def test_get_histogram(bus, server):
    [histogram] = bus.call("GetHistogram", "ssta{sv}", "db.service", "", "0", "0")
    assert (histogram["cgroup"], histogram["kind"], histogram["waits"]) == ("/system.slice/db.service", "blkio", 4)
    assert len(histogram["buckets"]) == 130
    assert "le_nsec" not in histogram["buckets"][-1] and "le_nsec" in histogram["buckets"][0]
    assert sum(b["waits"] for b in histogram["buckets"]) == 4
    [histogram] = bus.call("GetHistogram", "ssta{sv}", "/", "blkio", "0", "1", "recursive", "b", "true")
    assert histogram["waits"] == 11 and histogram["recursive"] is True


def test_get_status(bus, server):
    [status] = bus.call("GetStatus")
    assert status["health"] == "ok" and status["problems"] == []
    assert status["exits"]["attributed"] == {"cache": 2, "pidfd": 0, "procfs": 0, "parent": 0, "none": 1}


@pytest.mark.parametrize("method,arguments,text", [
    ("ListCgroups", ["tssta{sv}", "0", "disk", "", "0", "0"], "blkio, swapin"),
    ("ListCgroups", ["tssta{sv}", "0", "cpu", "", "0", "0"], "Collect.Kinds="),
    ("ListCgroups", ["tssta{sv}", "0", "", "size", "0", "0"], "p50, p90"),
    ("ListCgroups", ["tssta{sv}", str(3601 * 10**9), "", "", "0", "0"], "up to one hour"),
    ("ListCgroups", ["tssta{sv}", "0", "", "", "0", "1", "deep", "b", "true"], 'Unknown option "deep"'),
    ("ListCgroups", ["tssta{sv}", "0", "", "", "0", "1", "recursive", "s", "true"], "is a boolean"),
    ("ListTasks", ["tssta{sv}", "0", "", "", "0", "1", "recursive", "b", "true"], "Unknown option"),
    ("GetHistogram", ["ssta{sv}", "/nowhere", "", "0", "0"], "No cgroup"),
    ("GetHistogram", ["ssta{sv}", "", "", "0", "0"], "No cgroup"),
    ("GetHistogram", ["ssta{sv}", "/", "blkio swapin", "0", "0"], "one kind"),
    ("GetStatus", ["s", "x"], "Invalid arguments"),
])
def test_bad_arguments(bus, server, method, arguments, text):
    assert text in bus.error(method, *arguments)
    assert bus.call("GetStatus")


def tids(reply):
    return [t["tid"] for t in reply[1]]


LIST_TASKS = ["ListTasks", "tssta{sv}", "0", "", "", "0", "0"]


def test_own_user_sees_all_tasks(bus, server):
    reply = bus.call(*LIST_TASKS)
    assert tids(reply) == [100, 99, 101]
    assert reply[1][2]["comm"] == 'we"ird\\x0a\\xff'


@NEEDS_ROOT
def test_others_see_their_own_tasks(bus, server):
    assert tids(bus.call(*LIST_TASKS, user=65534, group=65534, extra_groups=[])) == []
    assert tids(bus.call(*LIST_TASKS, user=1, group=65534, extra_groups=[])) == [99, 101]
    # Cgroups are for everyone.
    assert len(bus.call("ListCgroups", "tssta{sv}", "0", "", "", "0", "0", user=65534, group=65534, extra_groups=[])[1]) == 7


@NEEDS_ROOT
def test_members_of_the_group_see_all_tasks(bus, start, tmp_path, monkeypatch):
    """With an /etc/group of its own, in a mount namespace of its own."""
    groups = tmp_path / "group"
    groups.write_text("root:x:0:\ndelayd:x:64999:\n")
    wrapper = tmp_path / "serve"
    wrapper.write_text(f'#!/bin/sh\nmount --bind {groups} /etc/group && exec {os.environ["SERVE_PROGRAM"]} "$@"\n')
    wrapper.chmod(0o755)
    outer = tmp_path / "outer"
    outer.write_text(f'#!/bin/sh\nexec unshare --mount {wrapper} "$@"\n')
    outer.chmod(0o755)
    monkeypatch.setenv("SERVE_PROGRAM", str(outer))

    start("bus", env=bus.env).wait_for("ready")
    bus.wait_for_name()
    assert tids(bus.call(*LIST_TASKS, user=65534, group=65534, extra_groups=[64999])) == [100, 99, 101]
    assert tids(bus.call(*LIST_TASKS, user=65534, group=64999, extra_groups=[])) == [100, 99, 101]
    assert tids(bus.call(*LIST_TASKS, user=65534, group=65534, extra_groups=[64998])) == []


def test_bus_comes_late_and_goes_away(bus, start):
    bus.stop()
    server = start("bus", "127.0.0.1:0", env=bus.env)
    server.wait_for("The system bus cannot be reached")
    server.wait_for("ready")

    def health():
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", server.ports[0], timeout=5)
        connection.request("GET", "/api/v1/status")
        status = json.loads(connection.getresponse().read())
        connection.close()
        return status["health"], [p["id"] for p in status["problems"]]

    assert health() == ("degraded", ["bus-unavailable"])
    bus.start()
    bus.wait_for_name()
    assert bus.call("GetStatus")[0]["problems"] == []

    bus.stop()
    deadline = time.monotonic() + 5
    while health() != ("degraded", ["bus-unavailable"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    bus.start()
    bus.wait_for_name()
    assert health() == ("ok", [])
    assert server.stop() == 0


def test_name_is_refused_or_taken(bus, server, start):
    second = start("bus", env=bus.env)
    second.wait_for("Another process owns the bus name org.delayd1")
    assert second.stop() == 0
    assert server.stop() == 0

    bus.stop()
    bus.start(own='<deny own="*"/>')
    third = start("bus", env=bus.env)
    third.wait_for("/usr/share/dbus-1/system.d")
    assert third.stop() == 0


def test_many_callers_at_once(bus, server):
    callers = [subprocess.Popen(["busctl", f"--address={bus.address}", "--json=short", "call", "org.delayd1", "/org/delayd1",
                                 "org.delayd1.Manager", *LIST_TASKS], stdout=subprocess.PIPE, text=True)
               for _ in range(20)]
    for c in callers:
        out, _ = c.communicate(timeout=30)
        assert c.returncode == 0 and len(json.loads(out)["data"][1]) == 3


def test_stops_while_asked(bus, server):
    callers = [subprocess.Popen(["busctl", f"--address={bus.address}", "call", "org.delayd1", "/org/delayd1",
                                 "org.delayd1.Manager", *LIST_TASKS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for _ in range(5)]
    assert server.stop() == 0
    for c in callers:
        c.wait(30)

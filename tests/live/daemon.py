# SPDX-License-Identifier: LGPL-2.1-or-later
"""A private bus, a delayd on it, and what a user asks of them: HTTP, D-Bus and delayctl."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import hosttools

DELAYD = hosttools.BUILD / "daemon/delayd"
DELAYCTL = hosttools.BUILD / "cli/delayctl"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def wait_until(what, condition, seconds=10.0):
    """Polls until condition() is true and returns its value; what says what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("%s: not within %g s" % (what, seconds))
        time.sleep(0.05)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Bus:
    """A dbus-daemon as strict as a system bus, with delayd's own policy."""

    def __init__(self, directory):
        self.socket = directory / "bus"
        self.address = "unix:path=%s" % self.socket
        self.config = directory / "bus.conf"
        template = (hosttools.ROOT / "packaging/private-bus.conf.in").read_text(encoding="utf-8")
        policy = hosttools.ROOT / "systemd/org.delayd1.conf"
        self.config.write_text(template.replace("@SOCKET@", str(self.socket)).replace("@POLICY@", str(policy)),
                               encoding="utf-8")
        self.log = directory / "bus.log"
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["dbus-daemon", "--config-file=%s" % self.config, "--nofork", "--nopidfile", "--nosyslog"],
                stderr=log)
        wait_until("socket of the bus", self.socket.is_socket)
        return self

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(10)
            self.process = None
            self.socket.unlink(missing_ok=True)


def environment(bus_address):
    env = {key: value for key, value in os.environ.items()
           if key not in ("JOURNAL_STREAM", "NOTIFY_SOCKET", "RUNTIME_DIRECTORY", "STATE_DIRECTORY")}
    env["DBUS_SYSTEM_BUS_ADDRESS"] = bus_address or "unix:path=/nonexistent/bus"
    return env


def delayctl(bus_address, *args, prefix=(), program=DELAYCTL, **options):
    return subprocess.run([*prefix, program, *args], env=environment(bus_address), text=True, timeout=30,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)


class Daemon:
    def __init__(self, log, bus_address, *args, port=None, prefix=(), program=DELAYD, listen=True, state="none"):
        """state: the directory in which it goes on from another's numbers, and leaves its own."""
        args = ("--set", "State.Directory=%s" % state, *args)
        self.port = port or free_port()
        self.bus_address = bus_address
        self.log_path = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                [*prefix, program, *(["--set", "Metrics.Listen=127.0.0.1:%d" % self.port] if listen else []), *args],
                env=environment(bus_address), stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def log(self):
        return Path(self.log_path).read_text(encoding="utf-8", errors="replace")

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, "delayd ended with %d:\n%s" % (self.process.returncode, self.log())
            try:
                return self.http("/-/ready")[0] == 200
            except OSError:
                return False

        wait_until("delayd ready", ready)
        return self

    def wait_end(self, seconds=15):
        """Waits until it ends by itself; returns its exit status and what it said."""
        try:
            return self.process.wait(seconds), self.log()
        except subprocess.TimeoutExpired:
            raise AssertionError("delayd still runs after %d s:\n%s" % (seconds, self.log())) from None
        finally:
            self.kill()

    def stop(self):
        """A stop that was asked for is quick and clean."""
        assert self.process.poll() is None, "delayd ended with %d:\n%s" % (self.process.returncode, self.log())
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(5)
        finally:
            self.kill()
        assert status == 0, "delayd stopped with %d:\n%s" % (status, self.log())

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    # What its users ask.

    def http(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def api(self, path):
        status, headers, body = self.http("/api/v1/" + path)
        assert status == 200, body
        assert headers["Content-Type"].startswith("application/json")
        return json.loads(body)

    def metrics(self):
        """{(sample name, frozenset of labels): value}"""
        status, _headers, body = self.http("/metrics")
        assert status == 200
        return {(sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(body.decode())
                for sample in family.samples}

    def metric(self, name, **labels):
        return self.metrics().get((name, frozenset(labels.items())))

    def ctl(self, *args, **options):
        return delayctl(self.bus_address, *args, **options)

    def ctl_json(self, *args, **options):
        result = self.ctl("--json=short", *args, **options)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("\n") == 1
        return json.loads(result.stdout)

    def status(self):
        return self.ctl_json("status")

    def cgroup(self, path, *args):
        """The row of a cgroup in "delayctl cgroups", or None."""
        rows = self.ctl_json("cgroups", "--limit=0", "--window=1h", *args)["cgroups"]
        return next((row for row in rows if row["cgroup"] == path), None)

    def api_cgroup(self, path, window="1h"):
        """The row of a cgroup over HTTP, or None."""
        rows = self.api("cgroups?limit=0&window=" + window)["cgroups"]
        return next((row for row in rows if row["cgroup"] == path), None)

    def wait_for_waits_over_http(self, path, kind, waits):
        """As wait_for_waits(), for daemons without a bus."""
        def there():
            row = self.api_cgroup(path)
            return row and row[kind]["waits"] + row[kind]["rejected_waits"] >= waits and row[kind]

        try:
            return wait_until("%d %s waits in %s" % (waits, kind, path), there)
        except AssertionError as error:
            raise AssertionError("%s; the row is %r\n%s" % (error, self.api_cgroup(path), self.log())) from None

    def wait_for_waits(self, path, kind, waits, seconds=10):
        """The delays of a kind, once all of them are there: counted, or refused as impossible and counted as that."""
        def there():
            row = self.cgroup(path)
            return row and row[kind]["waits"] + row[kind]["rejected_waits"] >= waits and row[kind]

        try:
            return wait_until("%d %s waits in %s" % (waits, kind, path), there, seconds)
        except AssertionError as error:
            raise AssertionError("%s; the row is %r\n%s" % (error, self.cgroup(path), self.log())) from None

    def settle(self, cgroup):
        """Waits until the tasks of a cgroup are known to be in it."""
        wait_until("tasks of %s" % cgroup.path,
                   lambda: (self.cgroup(cgroup.path) or {}).get("tasks") == len(cgroup.processes()))

    def call(self, member, signature="", *args, prefix=()):
        """A bare D-Bus call, as another program would make it; returns the completed process."""
        command = [*prefix, "busctl", "--address=" + self.bus_address, "--json=short", "call", "org.delayd1",
                   "/org/delayd1", "org.delayd1.Manager", member]
        if signature:
            command += [signature, *map(str, args)]
        return subprocess.run(command, text=True, timeout=30, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sockets that a service manager passes: served instead of Metrics.Listen=, told apart by their names."""
import http.client
import os
import socket
import subprocess

import pytest

from daemon import DELAYD, Daemon, environment, free_port, wait_until


class PassedSockets(Daemon):
    """A delayd that is given sockets the way systemd does it: from descriptor 3 on, with names."""

    def __init__(self, log, sockets, *args):
        self.port = 0
        self.log_path = log
        env = environment(None)
        env.update(LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES=":".join(name for _sock, name in sockets))

        first = 100
        script = ""
        for number, (sock, _name) in enumerate(sockets):
            os.dup2(sock.fileno(), first + number, inheritable=True)
            script += "exec %d<&%d %d<&-; " % (3 + number, first + number, first + number)
        # LISTEN_PID has to be the number that delayd will have.
        script += 'export LISTEN_PID=$$; exec "$@"'
        copies = range(first, first + len(sockets))
        try:
            with open(log, "wb") as file:
                self.process = subprocess.Popen(
                    ["bash", "-c", script, "bash", DELAYD, "--bus=none", "--set", "State.Directory=none", *args], env=env, pass_fds=copies,
                    stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        finally:
            for copy in copies:
                os.close(copy)


@pytest.fixture
def pass_sockets(tmp_path):
    started = []

    def start(sockets, *args):
        started.append(PassedSockets(tmp_path / ("delayd-%d.log" % len(started)), sockets, *args))
        return started[-1]

    yield start
    for daemon in started:
        daemon.kill()


def listening(family=socket.AF_INET, address=("127.0.0.1", 0)):
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(address)
    sock.listen()
    return sock


class LocalConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


def test_every_socket_is_served(pass_sockets, tmp_path):
    path = str(tmp_path / "http")
    with listening() as tcp, listening(socket.AF_UNIX, path) as local, listening() as other:
        daemon = pass_sockets([(tcp, "http"), (other, "other"), (local, "http")])
        daemon.port = tcp.getsockname()[1]
        other_port = other.getsockname()[1]
        daemon.wait_ready()
        assert daemon.api("status")["health"]

        connection = LocalConnection(path)
        connection.request("GET", "/-/ready")
        assert connection.getresponse().status == 200
        connection.close()

    # What has another name is not served and, being nobody's, closed.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", other_port), timeout=5)
    daemon.stop()


def test_they_replace_listen_and_that_is_said(pass_sockets):
    port = free_port()
    with listening() as sock:
        daemon = pass_sockets([(sock, "http")], "--set", "Metrics.Listen=127.0.0.1:%d" % port)
        daemon.port = sock.getsockname()[1]
        daemon.wait_ready()
    assert "Metrics.Listen= is not used" in daemon.log()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_nothing_is_said_without_listen(pass_sockets):
    with listening() as sock:
        daemon = pass_sockets([(sock, "http")])
        daemon.port = sock.getsockname()[1]
        daemon.wait_ready()
    assert "Metrics.Listen=" not in daemon.log()


def datagram():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@pytest.mark.parametrize("make", [datagram, socket.socket])
def test_what_does_not_listen_is_refused(pass_sockets, make):
    with make() as sock:
        daemon = pass_sockets([(sock, "http")])
    status, log = daemon.wait_end()
    assert status == 1
    assert "no listening stream socket" in log


def test_a_socket_keeps_its_queue_while_delayd_starts(pass_sockets):
    with listening() as sock:
        connection = socket.create_connection(sock.getsockname(), timeout=10)
        connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        daemon = pass_sockets([(sock, "http")])
        answer = wait_until("an answer", lambda: connection.recv(4096))
        connection.close()
    assert answer.startswith(b"HTTP/1.0 200") or answer.startswith(b"HTTP/1.1 200"), answer
    daemon.stop()

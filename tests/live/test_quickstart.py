# SPDX-License-Identifier: LGPL-2.1-or-later
"""The first command that a newcomer runs, where it installs nothing: in the foreground."""
import glob
import os
import signal
import socket
import subprocess

import pytest

import hosttools
from daemon import NOBODY, free_port

QUICKSTART = hosttools.ROOT / "packaging/quickstart"

pytestmark = pytest.mark.seconds(600)  # it builds


def quickstart(*args, prefix=(), program=QUICKSTART):
    return subprocess.run([*prefix, program, *args], text=True, timeout=590, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def assert_given_back(before):
    assert traces() == before
    assert hosttools.DELAYACCT.read_text(encoding="ascii").strip() == "0"


def traces():
    return sorted(glob.glob("/run/delayd-quickstart.*") + glob.glob("/var/tmp/delayd-demo.*")
                  + glob.glob("/sys/fs/cgroup/**/delayd-demo", recursive=True))


@pytest.fixture
def accounting_off(accounting_on):
    with hosttools.Delayacct(on=False):
        yield


def test_once(accounting_off):
    before = traces()
    result = quickstart("--foreground", "--once", "--port=%d" % free_port())
    assert result.returncode == 0, result.stdout
    assert "Turned kernel.task_delayacct on" in result.stdout
    assert "/delayd-demo in the last 1min: " in result.stdout
    assert 'delayd_cgroup_blkio_delay_seconds_count{cgroup="/delayd-demo"}' in result.stdout
    assert "export DBUS_SYSTEM_BUS_ADDRESS=unix:path=" in result.stdout
    assert_given_back(before)


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal(accounting_off, signal_):
    before = traces()
    with subprocess.Popen([QUICKSTART, "--foreground", "--port=%d" % free_port()], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) as process:
        try:
            for line in process.stdout:
                if "until you press Ctrl-C" in line:
                    break
            else:
                raise AssertionError("quickstart ended with %d" % process.wait(10))
            os.kill(process.pid, signal_)
            process.stdout.read()
            assert process.wait(10) == 128 + signal_
        finally:
            process.kill()
    assert_given_back(before)


def test_with_its_port_in_use():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        result = quickstart("--foreground", "--once", "--port=%d" % port)
    assert result.returncode == 1
    assert "port %d is in use" % port in result.stdout
    assert "--port=" in result.stdout


@pytest.mark.parametrize("arguments, word", [
    (["--nonsense"], "nonsense"), (["--port=many"], "many"), (["--port=70000"], "70000"), (["--port="], "port"),
])
def test_bad_options(arguments, word):
    result = quickstart(*arguments)
    assert result.returncode == 1
    assert word in result.stdout


def test_without_root(public_copy):
    result = quickstart("--once", prefix=NOBODY, program=public_copy / "packaging/quickstart")
    assert result.returncode == 1
    assert "sudo packaging/quickstart" in result.stdout

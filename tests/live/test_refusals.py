# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where delayd cannot work it says why and what helps, with exit status 1: no crash, no hang, no silence."""
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from daemon import DELAYCTL, DELAYD, NOBODY, Bus, Daemon, delayctl, environment, free_port, wait_until
from hosttools import ROOT, Delayacct


def refused(daemon, *words):
    """It ended by itself with status 1 and named each of the words."""
    status, log = daemon.wait_end()
    assert status == 1, log
    for word in words:
        assert word.lower() in log.lower(), "no \"%s\" in:\n%s" % (word, log)


def test_without_cap_net_admin(start_daemon):
    refused(start_daemon(prefix=["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]), "CAP_NET_ADMIN")


def test_as_an_ordinary_user(start_daemon, public_copy):
    refused(start_daemon(prefix=NOBODY, program=public_copy / "delayd"), "CAP_NET_ADMIN")


@pytest.mark.parametrize("flags, name", [
    (["--net"], "network namespace"),
    (["--pid", "--fork", "--mount-proc"], "pid namespace"),
    (["--user", "--map-root-user"], "user namespace"),
])
def test_in_another_namespace(start_daemon, flags, name):
    refused(start_daemon(prefix=["unshare", *flags, "--"]), name)


def test_with_the_port_in_use(start_daemon):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        refused(start_daemon(port=port), str(port), "in use", "Listen")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "127.0.0.1:99999", "[::1:10066", "host.invalid:1"])
def test_with_a_bad_address(start_daemon, address):
    refused(start_daemon("--set", "Metrics.Listen=" + address), address)


@pytest.mark.parametrize("arguments, word", [
    (["--nonsense"], "nonsense"),
    (["--set", "Collect.PollInterval"], "Section.Key=VALUE"),
    (["--set", "Collect.Nonsense=1"], "Nonsense"),
    (["--set", "Collect.PollInterval=never"], "never"),
    (["--set", "Collect.Kinds=disk"], "disk"),
    (["--bus=maybe"], "maybe"),
    (["-c", "/nonexistent/delayd.conf"], "/nonexistent/delayd.conf"),
    (["argument"], "argument"),
])
def test_bad_command_lines(arguments, word):
    result = subprocess.run([DELAYD, *arguments], text=True, timeout=15, check=False, env=environment(None),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert result.returncode == 1
    assert word in result.stderr
    assert len(result.stderr.splitlines()) <= 4


def check_config(path):
    return subprocess.run([DELAYD, "-c", path, "--check-config"], text=True, timeout=15, check=False,
                          env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("text, line", [
    ("[Collect]\nPollInterval=fast\n", 2),
    ("# a comment\n\n[Collect]\nKinds=blkio\nMaxCgroups=-5\n", 5),
    ("[Collect]\nCpuBudget=200%\n", 2),
    ("[Collect]\nExitFilter=perhaps\n", 2),
    ("[Metrics]\nListen=127.0.0.1:1\nMaxCgroups=many\n", 3),
    ("[Collect\n", 1),
])
def test_bad_values_are_refused_with_file_and_line(tmp_path, text, line):
    path = tmp_path / "delayd.conf"
    path.write_text(text, encoding="utf-8")
    result = check_config(path)
    assert result.returncode == 1
    assert "%s:%d" % (path, line) in result.stderr


def test_unknown_keys_only_warn(tmp_path):
    path = tmp_path / "delayd.conf"
    path.write_text("[Collect]\nSpeed=fast\n[Weather]\nRain=yes\n", encoding="utf-8")
    result = check_config(path)
    assert result.returncode == 0, result.stderr
    assert "%s:2" % path in result.stderr and "Speed" in result.stderr
    assert "%s:4" % path in result.stderr and "Rain" in result.stderr


@pytest.mark.parametrize("option", ["-c", "--replay"])
@pytest.mark.parametrize("kind, words", [("pipe", "pipe"), ("directory", "Is a directory")])
def test_what_is_no_file_is_refused_at_once(tmp_path, option, kind, words):
    path = tmp_path / kind
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    run = subprocess.run([DELAYD, "--bus=none", "--set", "State.Directory=none", option, path], text=True, timeout=15,
                         check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert run.returncode == 1, run.stdout
    assert words in run.stdout and str(path) in run.stdout


def test_nothing_in_a_file_steers_the_terminal(tmp_path):
    path = tmp_path / "delayd.conf"
    path.write_bytes(b"[Metrics]\n\033]0;title\007=1\nListen=\033[31mred\302\233\177\n")
    run = check_config(path)
    assert run.returncode == 1
    assert "title" in run.stdout + (run.stderr or "") and "red" in run.stdout + (run.stderr or "")
    assert not set(run.stdout + (run.stderr or "")) & set("\033\007\177\u009b")


def test_a_nul_byte_is_a_fault(tmp_path):
    path = tmp_path / "delayd.conf"
    path.write_bytes(b"[Collect]\nKinds=blkio\0swapin\n")
    run = check_config(path)
    assert run.returncode == 1
    assert "%s:2" % path in run.stdout + (run.stderr or "")


def test_every_fault_is_named(tmp_path):
    path = tmp_path / "delayd.conf"
    path.write_text("nonsense\n[Collect]\n  PollInterval=fast\nKinds\n\n[Broken\n[Metrics]\nListen=nonsense\n"
                    "Include=" + " ".join("/slice-%d/*" % number for number in range(100)) + "\n"
                    "Buckets=" + " ".join("%gms" % (0.02 * 1.4 ** number) for number in range(40)) + " ; to 10 s\n"
                    "MaxCgroups=many\n", encoding="utf-8")
    result = check_config(path)
    assert result.returncode == 1
    faults = {int(line.split(":")[2]) for line in result.stderr.splitlines()}
    assert faults == {1, 3, 4, 6, 8, 11}, result.stderr


def test_keys_of_later_versions(tmp_path):
    path = tmp_path / "delayd.conf"
    path.write_text("[Metrics]\nTLSCertificate=/etc/delayd/tls.pem\nTLSKey=/etc/delayd/tls.key\nUsersFile=\n"
                    "[Episodes]\nThreshold=1s\n", encoding="utf-8")
    result = check_config(path)
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert ["%s:%d" % (path, number) in line for number, line in zip((2, 3, 6), lines, strict=True)] == [True] * 3
    assert all("not supported by this version" in line for line in lines)


def test_drop_ins_are_read_after_the_file(tmp_path):
    path = tmp_path / "delayd.conf"
    path.write_text("[Collect]\nPollInterval=1s\n", encoding="utf-8")
    drop_in = tmp_path / "delayd.conf.d" / "10-x.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Collect]\nPollInterval=bad\n", encoding="utf-8")
    result = check_config(path)
    assert result.returncode == 1
    assert "%s:2" % drop_in in result.stderr


def test_the_shipped_configuration_is_good(tmp_path):
    path = tmp_path / "delayd.conf"
    shipped = (ROOT / "systemd/delayd.conf").read_text(encoding="utf-8")
    # The defaults that its comments show must be values that are understood.
    path.write_text("\n".join(line[1:] if line.startswith("#") and not line.startswith("# ") else line
                              for line in shipped.splitlines()) + "\n", encoding="utf-8")
    result = check_config(path)
    assert result.returncode == 0, result.stderr
    assert "nknown" not in result.stderr


def test_version():
    version = re.search(r"^ *version: '([^']*)',$", (ROOT / "meson.build").read_text(encoding="utf-8"), re.MULTILINE)[1]
    for program in (DELAYD, DELAYCTL):
        result = subprocess.run([program, "--version"], text=True, timeout=15, check=False, stdout=subprocess.PIPE)
        assert result.returncode == 0
        assert version in result.stdout.split()


def test_delay_accounting_off(start_daemon, daemon):
    """It starts, is degraded, names the remedy, and recovers when the remedy is taken."""
    def problems():
        return {problem["id"]: problem for problem in daemon.api("status")["problems"]}

    with Delayacct(on=False):
        own = start_daemon().wait_ready()
        status = own.api("status")
        assert status["health"] == "degraded"
        assert status["kernel"]["task_delayacct"] is False
        assert any("kernel.task_delayacct=1" in problem["remedy"] for problem in status["problems"])
        assert own.metric("delayd_task_delayacct_enabled") == 0
        # A daemon that runs already notices.
        wait_until("the running daemon notices", lambda: daemon.status()["health"] == "degraded")
        assert "kernel.task_delayacct" in daemon.ctl("status").stdout
    wait_until("the problem is gone", lambda: own.api("status")["health"] == "ok")
    wait_until("the problem is gone", lambda: not problems())
    own.stop()


def test_delayctl_without_a_bus():
    result = delayctl(None, "status")
    assert result.returncode == 1
    assert "bus" in result.stderr.lower()


def test_delayctl_without_a_daemon(tmp_path):
    bus = Bus(tmp_path).start()
    try:
        result = delayctl(bus.address, "status")
    finally:
        bus.stop()
    assert result.returncode == 1
    assert "delayd" in result.stderr


def test_a_bus_that_comes_late_and_goes_and_comes_back(host, tmp_path):
    bus = Bus(tmp_path)
    daemon = Daemon(tmp_path / "delayd.log", bus.address)
    try:
        daemon.wait_ready()
        status = daemon.api("status")
        assert status["health"] == "degraded"
        assert any("bus" in problem["id"] for problem in status["problems"])
        for _ in range(2):
            bus.start()
            wait_until("delayctl answers", lambda: daemon.ctl("status").returncode == 0, 30)
            wait_until("health is ok", lambda: daemon.api("status")["health"] == "ok")
            bus.stop()
            wait_until("health is degraded", lambda: daemon.api("status")["health"] == "degraded")
            assert daemon.http("/metrics")[0] == 200
        daemon.stop()
    finally:
        daemon.kill()
        bus.stop()


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_quick_and_clean(start_daemon, signal_):
    daemon = start_daemon().wait_ready()
    start = time.monotonic()
    daemon.process.send_signal(signal_)
    assert daemon.process.wait(5) == 0
    assert time.monotonic() - start < 2


def test_two_daemons_on_one_port(start_daemon):
    port = free_port()
    first = start_daemon(port=port).wait_ready()
    refused(start_daemon(port=port), str(port), "in use")
    first.stop()

# SPDX-License-Identifier: LGPL-2.1-or-later
"""The checks of a life as a service, and as a package: restarts, reloads, upgrades, removal."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import taskstats
from guest import (HERE, NSEC_PER_SEC, ask, assert_healthy, assert_is_truth, counters, delayctl, is_active, listening, main_pid,
                   output, read_slowly, remove_drop_in, row_of, run, unit_properties, wait_for_waits, wait_ready, wait_until,
                   write_drop_in)


#
# A life as a service.
#

def comes_back():
    """it is started again when it is killed, and no counter that was seen goes back"""
    pid = main_pid()
    before = counters()
    os.kill(pid, signal.SIGKILL)
    wait_until("another process", lambda: main_pid() not in (0, pid))
    wait_ready()
    assert unit_properties("delayd.service", "NRestarts") == "1"
    assert_continues(before)


def is_watched():
    """it is started again when it hangs"""
    write_drop_in("delayd.service", "[Service]\nWatchdogSec=3s\n")
    run("systemctl", "restart", "delayd.service")
    wait_ready()
    pid = main_pid()
    time.sleep(4)
    assert main_pid() == pid
    os.kill(pid, signal.SIGSTOP)
    wait_until("another process", lambda: main_pid() not in (0, pid))
    remove_drop_in("delayd.service")
    run("systemctl", "restart", "delayd.service")
    wait_ready()


def assert_continues(before):
    """No counter of before is lower now, but for delayd's own cgroup: systemd makes it anew, and it is another one."""
    after = counters()
    back = {name: (value, after.get(name)) for name, value in before.items()
            if after.get(name, -1) < value and 'cgroup="/system.slice/delayd.service"' not in name}
    assert not back, back


def restart_loses_nothing():
    """a restart loses no exit record, and no counter goes back"""
    run(*read_slowly("before", 20))
    wait_for_waits("/system.slice/before.service", "blkio", 1)

    def waits_of(cgroup):
        row = row_of(cgroup)
        return row["blkio"]["waits"] + row["blkio"]["rejected_waits"] if row else 0

    received = ask("status")["exits"]["received"]
    with taskstats.ExitRecords() as exits:
        reader = subprocess.Popen(read_slowly("meanwhile", 150, "--pause=50"), stdout=subprocess.PIPE)
        wait_for_waits("/system.slice/meanwhile.service", "blkio", 1)
        before, unattributed = counters(), waits_of("(unattributed)")
        write_drop_in("delayd.service", "[Service]\nExecStartPre=/bin/sleep 5\n")
        restart = subprocess.Popen(["systemctl", "restart", "delayd.service"])
        wait_until("delayd is down", lambda: unit_properties("delayd.service", "SubState") == "start-pre")
        # Its cgroup comes and goes while nobody looks, but its record is kept.
        brief = json.loads(output(*read_slowly("brief", 30)))
        assert unit_properties("delayd.service", "SubState") == "start-pre"
        assert restart.wait(30) == 0
        remove_drop_in("delayd.service")
        brief = exits.wait_for(brief["pid"])
        said = json.loads(reader.communicate(timeout=60)[0])
        record = exits.wait_for(said["pid"])
    wait_ready()
    assert_continues(before)
    delays = wait_for_waits("/system.slice/meanwhile.service", "blkio", record.blkio_count)["blkio"]
    assert_is_truth(delays, record, "blkio")
    assert waits_of("(unattributed)") - unattributed >= brief.blkio_count > 0
    assert not row_of("/system.slice/brief.service")
    exits = ask("status")["exits"]
    assert exits["lost"] == 0 and exits["received"] > received


def reloads():
    """systemctl reload takes over a changed configuration, and a bad one leaves the old in force"""
    drop_in = Path("/etc/delayd/delayd.conf.d/check.conf")
    pid = main_pid()

    def interval():
        return ask("status")["polling"]["interval_nsec"]

    try:
        drop_in.write_text("[Collect]\nPollInterval=3s\n", encoding="ascii")
        run("systemctl", "reload", "delayd.service")
        wait_until("the new interval", lambda: interval() == 3 * NSEC_PER_SEC)
        drop_in.write_text("[Collect]\nPollInterval=never\n", encoding="ascii")
        assert run("systemctl", "reload", "delayd.service", check=False).returncode != 0
        os.kill(pid, signal.SIGHUP)
        time.sleep(1)
        assert interval() == 3 * NSEC_PER_SEC
    finally:
        drop_in.unlink()
    run("systemctl", "reload", "delayd.service")
    wait_until("the old interval", lambda: interval() == NSEC_PER_SEC)
    assert main_pid() == pid


def other_address():
    """changed addresses of delayd-http.socket are taken over by a restart"""
    write_drop_in("delayd-http.socket", "[Socket]\nListenStream=\nListenStream=127.0.0.1:10069\n")
    run("systemctl", "restart", "delayd.service")
    wait_until("the other port", lambda: listening(port=10069))
    assert not listening()
    remove_drop_in("delayd-http.socket")
    run("systemctl", "restart", "delayd.service")
    wait_ready()


def without_http():
    """with the sockets masked it goes on without HTTP"""
    run("systemctl", "mask", "--runtime", "delayd-http.socket")
    run("systemctl", "restart", "delayd.service")
    wait_until("delayd.service is active", is_active)
    wait_until("D-Bus", lambda: delayctl("status", check=False).returncode == 0)
    assert not listening()
    run("systemctl", "unmask", "--runtime", "delayd-http.socket")
    run("systemctl", "restart", "delayd.service")
    wait_ready()


def stops():
    """a stop is not undone by a scrape; a question over D-Bus starts it, if it is enabled"""
    run("systemctl", "stop", "delayd.service")
    assert not listening()
    time.sleep(1)
    assert not is_active()
    assert delayctl("status", user="alice").returncode == 0
    assert is_active()
    wait_ready()

    run("systemctl", "disable", "--now", "delayd.service")
    assert unit_properties("delayd-http.socket", "ActiveState") == "inactive"
    assert delayctl("status", check=False).returncode != 0
    assert not is_active()
    run("systemctl", "enable", "--now", "delayd.service")
    wait_ready()


def survives_the_bus():
    """it goes on while the bus is away, and is on it again afterwards"""
    pid = main_pid()
    run("systemctl", "restart", "dbus.service")
    wait_ready()
    assert main_pid() == pid


def can_opt_out():
    """a link in /etc/sysctl.d leaves delay accounting off, and delayd says that it is"""
    link, knob = Path("/etc/sysctl.d/50-delayd.conf"), Path("/proc/sys/kernel/task_delayacct")
    link.symlink_to("/dev/null")
    try:
        knob.write_text("0", encoding="ascii")
        run("/lib/systemd/systemd-sysctl")
        assert knob.read_text(encoding="ascii") == "0\n"
        run("systemctl", "restart", "delayd.service")
        wait_ready()
        status = ask("status")
        assert status["health"] == "degraded" and status["kernel"]["task_delayacct"] is False
        assert any("task_delayacct" in problem["message"] for problem in status["problems"])
    finally:
        link.unlink()
        run("/lib/systemd/systemd-sysctl")
    assert knob.read_text(encoding="ascii") == "1\n"
    run("systemctl", "restart", "delayd.service")
    wait_ready()
    assert_healthy()


#
# The package.
#

def autopkgtest():
    """the test of the Debian package passes"""
    run(HERE / "service")


def dpkg(*arguments):
    return run("dpkg", *arguments, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def upgrades():
    """an upgrade restarts it, keeps a changed configuration, and no counter goes back"""
    Path("/etc/delayd/delayd.conf").write_text("[Collect]\nPollInterval=2s\n", encoding="ascii")
    run("systemctl", "restart", "delayd.service")
    wait_ready()
    before, pid = counters(), main_pid()
    dpkg("-i", HERE / "newer.deb")
    wait_ready()
    assert main_pid() != pid
    assert unit_properties("delayd-http.socket", "ActiveState") == "active"
    assert output("systemctl", "--failed", "--no-legend") == ""
    assert Path("/etc/delayd/delayd.conf").read_text(encoding="ascii").startswith("[Collect]\nPollInterval=2s")
    assert ask("status")["polling"]["interval_nsec"] == 2 * NSEC_PER_SEC
    assert_continues(before)


def is_removed():
    """removed, it leaves its configuration and nothing that runs"""
    pid = main_pid()
    Path("/etc/delayd/delayd.conf.d/retention.conf").unlink()  # not of the package
    dpkg("-r", "delayd")
    assert not Path("/proc/%d" % pid).exists() and not listening()
    assert unit_properties("delayd.service", "LoadState") in ("not-found", "masked")
    assert Path("/etc/delayd/delayd.conf").exists() and Path("/var/lib/delayd").is_dir()


def is_installed():
    """installed on a running host, it starts, with delay accounting on"""
    Path("/proc/sys/kernel/task_delayacct").write_text("0", encoding="ascii")
    dpkg("-P", "delayd")
    dpkg("-i", HERE / "delayd.deb")
    wait_ready()
    assert Path("/proc/sys/kernel/task_delayacct").read_text(encoding="ascii") == "1\n"
    assert_healthy()


def is_purged():
    """purged, it leaves nothing"""
    dpkg("-P", "delayd")
    left = output("find", "/etc", "/usr", "/lib", "/run", "/var/lib", "/var/cache", "-xdev",
                  "(", "-name", "*delayd*", "-o", "-name", "*delayctl*", ")",
                  "-not", "-name", "*delayd-check*", "-not", "-name", "delayd-probe*").splitlines()
    assert not left, left
    assert not is_active()

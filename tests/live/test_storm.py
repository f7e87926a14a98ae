# SPDX-License-Identifier: LGPL-2.1-or-later
"""Nothing is lost at the fastest fork storm that the host can make."""
import pytest

import taskstats
from daemon import wait_until
from hosttools import WORKLOADS

CHILDREN = 50_000


def attributed(daemon):
    return sum(daemon.api("status")["exits"]["attributed"].values())


@pytest.mark.parametrize("parallel", [1, 32])
def test_every_exit_arrives(start_daemon, cgroups, workload, parallel):
    daemon = start_daemon("--set", "Collect.ExitFilter=no").wait_ready()
    before = daemon.api("status")["exits"]
    assert before["filter"] == "off"

    storm = workload(cgroups("storm-%d" % parallel), "fork-storm", CHILDREN, parallel)
    assert storm.finish(100)["children"] == CHILDREN

    wait_until("%d exits" % CHILDREN,
               lambda: daemon.api("status")["exits"]["received"] - before["received"] > CHILDREN)
    after = daemon.api("status")["exits"]
    assert after["lost"] == 0
    assert daemon.metric("delayd_exits_lost_total") == 0
    # Each of them was put somewhere, be it the unattributed entry.
    wait_until("all exits attributed", lambda: attributed(daemon) - sum(before["attributed"].values()) >= CHILDREN)
    daemon.stop()


def test_the_filter_spares_the_daemon_and_loses_nothing(start_daemon, cgroups, workload, launcher, cold_file):
    """In the storm tasks wait; their records must come through, and no others are needed."""
    daemon = start_daemon().wait_ready()
    before = daemon.api("status")["exits"]
    assert before["filter"] == "on"

    cgroup = cgroups("in-the-storm")
    shell = launcher(cgroup)

    def row():
        rows = daemon.api("cgroups?window=1h&limit=0")["cgroups"]
        return next((row for row in rows if row["cgroup"] == cgroup.path), None)

    wait_until("the shell in its cgroup", lambda: (row() or {}).get("tasks") == 1)
    with taskstats.ExitRecords() as exits:
        storm = workload(cgroups("storm"), "fork-storm", CHILDREN, 8)
        readers = []
        for _ in range(10):
            readers.append(shell.run(WORKLOADS / "cold-reader", "--blocks=5", cold_file)["pid"])
            exits.drain()
        assert storm.process.poll() is None, "the storm was over before the readers were"
        while storm.process.poll() is None:
            exits.drain()
        storm.finish()
        # The storm uses up all numbers: theirs, too. Ours are those of the readers.
        records = [record for record in exits.drain() if record.tid in readers and record.ppid == shell.pid]
        assert len(records) == len(readers)
        records.append(taskstats.live(shell.pid))

    waits = sum(record.blkio_count for record in records)
    assert waits >= 25
    found = wait_until("%d waits in %s" % (waits, cgroup.path),
                       lambda: row()["blkio"]["waits"] >= waits and row()["blkio"])
    assert found["waits"] == waits
    assert found["total_nsec"] == sum(record.blkio_total for record in records)
    after = daemon.api("status")["exits"]
    assert after["lost"] == 0
    assert after["received"] - before["received"] < CHILDREN / 10
    daemon.stop()

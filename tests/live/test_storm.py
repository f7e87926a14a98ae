# SPDX-License-Identifier: LGPL-2.1-or-later
"""Nothing is lost at the fastest fork storm that the host can make."""
import pytest

import taskstats
from daemon import wait_until

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


def test_the_filter_spares_the_daemon_and_loses_nothing(start_daemon, cgroups, workload, cold_file):
    """In the storm a task waits; its record must come through, and no other's is needed."""
    daemon = start_daemon().wait_ready()
    before = daemon.api("status")["exits"]
    assert before["filter"] == "on"

    cgroup = cgroups("in-the-storm")
    with taskstats.ExitRecords() as exits:
        storm = workload(cgroups("storm"), "fork-storm", CHILDREN, 8)
        readers = []
        for _ in range(10):
            reader = workload(cgroup, "cold-reader", "--blocks=5", cold_file, fifo=True)
            reader.finish()
            readers.append(reader.pid)
            exits.drain()
        assert storm.process.poll() is None, "the storm was over before the readers were"
        while storm.process.poll() is None:
            exits.drain()
        storm.finish()
        records = [exits.wait_for(pid) for pid in readers]

    waits = sum(record.blkio_count for record in records)
    total = sum(record.blkio_total for record in records)
    assert waits >= 25

    def delays():
        rows = daemon.api("cgroups?window=1h&limit=0")["cgroups"]
        row = next((row for row in rows if row["cgroup"] == cgroup.path), None)
        return row and row["blkio"]["waits"] >= waits and row["blkio"]

    found = wait_until("%d waits in %s" % (waits, cgroup.path), delays)
    assert found["waits"] == waits
    assert found["total_nsec"] == total
    after = daemon.api("status")["exits"]
    assert after["lost"] == 0
    assert after["received"] - before["received"] < CHILDREN / 10
    daemon.stop()

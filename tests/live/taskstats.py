# SPDX-License-Identifier: LGPL-2.1-or-later
"""The kernel's own numbers, read without any code of the daemon: the truth of the live tests.

Raw generic netlink and a table of offsets of its own. Only what the tests compare is decoded, and
only the layouts that kernels v8 to v17 really sent.
"""
import os
import select
import socket
import struct
import time
from dataclasses import dataclass

NETLINK_GENERIC = 16
SOL_NETLINK = 270
NETLINK_NO_ENOBUFS = 5
SO_RCVBUFFORCE = 33
SO_MEMINFO = 55
SK_MEMINFO_DROPS = 8

GENL_ID_CTRL = 0x10
CTRL_CMD_GETFAMILY = 3
CTRL_ATTR_FAMILY_ID = 1
CTRL_ATTR_FAMILY_NAME = 2

NLMSG_ERROR = 2
NLM_F_REQUEST = 1
NLM_F_ACK = 4

TASKSTATS_CMD_GET = 1
CMD_ATTR_PID = 1
CMD_ATTR_REGISTER_CPUMASK = 3
CMD_ATTR_DEREGISTER_CPUMASK = 4
TYPE_PID = 1
TYPE_STATS = 3
TYPE_AGGR_PID = 4

# Offsets of 8-byte fields: layout A (v8 to v14, v16 and later) and B (v15 alone).
FIELDS = {
    "cpu_count": (16, 16),
    "cpu_total": (24, 24),
    "blkio_count": (32, 48),
    "blkio_total": (40, 56),
    "swapin_count": (48, 80),
    "swapin_total": (56, 88),
    "freepages_count": (312, 360),
    "freepages_total": (320, 368),
    "thrashing_count": (328, 392),
    "thrashing_total": (336, 400),
    "compact_count": (352, 432),
    "compact_total": (360, 440),
    "wpcopy_count": (400, 496),
    "wpcopy_total": (408, 504),
    "irq_count": (416, 528),
    "irq_total": (424, 536),
    "cpu_run_virtual": (72, 120),
    "etime_usec": (144, 192),
    "minflt": (168, 216),
    "majflt": (176, 224),
    "read_bytes": (248, 296),
}
KINDS = ("cpu", "blkio", "swapin", "freepages", "thrashing", "compact", "wpcopy", "irq")
FIELD_BLKIO_MAX = (448, 64)
OFFSET_COMM = (80, 128)
OFFSET_PID = (128, 176)
OFFSET_PPID = (132, 180)
OFFSET_TGID = (368, 464)
OFFSET_AC_FLAG = 8


@dataclass
class Record:
    tid: int
    version: int
    tgid: int
    ppid: int
    comm: bytes
    flags: int
    cpu_count: int
    cpu_total: int
    blkio_count: int
    blkio_total: int
    swapin_count: int
    swapin_total: int
    freepages_count: int
    freepages_total: int
    thrashing_count: int
    thrashing_total: int
    compact_count: int
    compact_total: int
    wpcopy_count: int
    wpcopy_total: int
    irq_count: int
    irq_total: int
    cpu_run_virtual: int
    etime_usec: int
    minflt: int
    majflt: int
    read_bytes: int
    blkio_max: int  # 0 where the kernel does not tell (before v15)

    def lifetime_nsec(self):
        return self.etime_usec * 1000

    def blkio_most(self):
        """The most that the task can have waited: what it neither ran nor stood in the run queue."""
        slack_nsec = 2_000_000
        return max(self.lifetime_nsec() + slack_nsec - self.cpu_run_virtual - self.cpu_total, 0)

    def blkio_possible(self):
        """False where delayed dequeue (Linux 6.12 and later) credited a wait that the task cannot have had."""
        return self.blkio_total <= self.blkio_most()


class KernelError(OSError):
    pass


def align(n):
    return (n + 3) & ~3


def attribute(kind, payload):
    head = struct.pack("=HH", 4 + len(payload), kind)
    return head + payload + bytes(align(len(payload)) - len(payload))


def attributes(data):
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4 or offset + length > len(data):
            raise ValueError("netlink attribute of length %d at %d" % (length, offset))
        yield kind & 0x3FFF, data[offset + 4:offset + length]
        offset += align(length)


def messages(datagram):
    offset = 0
    while offset + 16 <= len(datagram):
        length, kind, _flags, sequence, port = struct.unpack_from("=IHHII", datagram, offset)
        if length < 16 or offset + length > len(datagram):
            raise ValueError("netlink message of length %d at %d" % (length, offset))
        yield kind, sequence, port, datagram[offset + 16:offset + length]
        offset += align(length)


def decode(tid, stats):
    version = struct.unpack_from("=H", stats)[0]
    layout = 1 if version == 15 or (version == 14 and len(stats) == 560) else 0

    def u64(offsets):
        offset = offsets[layout]
        return struct.unpack_from("=Q", stats, offset)[0] if offset + 8 <= len(stats) else 0

    pid, = struct.unpack_from("=I", stats, OFFSET_PID[layout])
    if pid != tid:
        raise ValueError("record of task %d says it is of task %d" % (tid, pid))
    tgid = struct.unpack_from("=I", stats, OFFSET_TGID[layout])[0] if version >= 12 else 0
    comm = stats[OFFSET_COMM[layout]:OFFSET_COMM[layout] + 32].split(b"\0")[0]
    ppid, = struct.unpack_from("=I", stats, OFFSET_PPID[layout])
    return Record(tid=tid, version=version, tgid=tgid, ppid=ppid, comm=comm, flags=stats[OFFSET_AC_FLAG],
                  blkio_max=u64(FIELD_BLKIO_MAX) if version >= 15 else 0,
                  **{name: u64(offsets) for name, offsets in FIELDS.items()})


def per_task_records(payload):
    """The AGGR_PID records of one generic netlink message; those of thread groups are sums, and not wanted."""
    for kind, value in attributes(payload[4:]):
        if kind != TYPE_AGGR_PID:
            continue
        tid, stats = None, None
        for inner, data in attributes(value):
            if inner == TYPE_PID:
                tid, = struct.unpack("=I", data[:4])
            elif inner == TYPE_STATS:
                stats = data
        if tid is not None and stats is not None:
            yield decode(tid, stats)


class Socket:
    def __init__(self, buffer_bytes=1 << 20):
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer_bytes)
        self.sock.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        self.sock.settimeout(5)
        self.sock.bind((0, 0))
        self.sequence = 0
        self.family = GENL_ID_CTRL
        self.family = self._resolve("TASKSTATS")

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, command, kind, payload, flags=0):
        self.sequence += 1
        body = struct.pack("=BBH", command, 1, 0) + attribute(kind, payload)
        head = struct.pack("=IHHII", 16 + len(body), self.family, NLM_F_REQUEST | flags, self.sequence, 0)
        self.sock.send(head + body)
        return self.sequence

    def answer(self, sequence):
        """The answer to a request (None for an acknowledgement); exit records that arrive before it are kept."""
        while True:
            for kind, reply_sequence, port, payload in messages(self.sock.recv(1 << 16)):
                if port == 0 and kind == self.family:
                    self.unexpected(payload)  # exit records carry no port, and a sequence of their CPU
                elif reply_sequence == sequence and kind == NLMSG_ERROR:
                    error, = struct.unpack_from("=i", payload)
                    if error:
                        raise KernelError(-error, os.strerror(-error))
                    return None
                elif reply_sequence == sequence:
                    return payload

    def unexpected(self, _payload):
        pass

    def ask(self, tid):
        """The counters of a task that still exists."""
        payload = self.answer(self.send(TASKSTATS_CMD_GET, CMD_ATTR_PID, struct.pack("=I", tid)))
        return next(per_task_records(payload))

    def drops(self):
        info = self.sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36)
        return struct.unpack("=9I", info)[SK_MEMINFO_DROPS]

    def _resolve(self, name):
        payload = self.answer(self.send(CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0"))
        for kind, value in attributes(payload[4:]):
            if kind == CTRL_ATTR_FAMILY_ID:
                return struct.unpack("=H", value[:2])[0]
        raise KernelError(2, "the kernel has no family %s" % name)


def live(tid):
    """The counters of a task that still exists."""
    with Socket() as sock:
        return sock.ask(tid)


class ExitRecords(Socket):
    """Collects the exit records of all tasks from its making on."""

    def __init__(self, buffer_bytes=64 << 20):
        super().__init__(buffer_bytes)
        with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
            self.mask = file.read().strip().encode() + b"\0"
        self.records = []
        self.answer(self.send(TASKSTATS_CMD_GET, CMD_ATTR_REGISTER_CPUMASK, self.mask, NLM_F_ACK))

    def close(self):
        try:
            self.send(TASKSTATS_CMD_GET, CMD_ATTR_DEREGISTER_CPUMASK, self.mask)
        finally:
            super().close()

    def unexpected(self, payload):
        self.records.extend(per_task_records(payload))

    def drain(self):
        """Takes in all that has arrived."""
        while select.select([self.sock], [], [], 0)[0]:
            datagram = self.sock.recv(1 << 16)
            for kind, _sequence, _port, payload in messages(datagram):
                if kind == self.family:
                    self.unexpected(payload)
        assert self.drops() == 0, "the truth reader lost records: give it a larger buffer"
        return self.records

    def wait_for(self, tid, timeout=5.0):
        deadline = time.monotonic() + timeout
        while True:
            for record in reversed(self.drain()):
                if record.tid == tid:  # the last one, for the number may have had another owner
                    return record
            if time.monotonic() > deadline:
                raise AssertionError("no exit record of task %d within %g s" % (tid, timeout))
            time.sleep(0.005)

    def of_group(self, tgid):
        """Records of all threads of a process that have arrived."""
        return [record for record in self.drain() if record.tgid == tgid]

# SPDX-License-Identifier: LGPL-2.1-or-later
"""What systemd does for a service with a descriptor store, as far as delayd uses it: sd_notify(3), sd_listen_fds(3)."""
import array
import os
import select
import signal
import socket
import subprocess
import threading

from daemon import DELAYD, Daemon, environment, free_port


class Supervisor:
    """Runs one delayd after the other, each with the descriptors that the one before has left."""

    def __init__(self, directory, *args, state="none", runtime=None):
        self.directory = directory
        self.args = ("--bus=none", "--set", "State.Directory=%s" % state, *args)
        self.runtime = runtime
        self.port = free_port()
        self.store = []  # (name, descriptor)
        self.messages = []
        self.daemon = None
        self.starts = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(directory / "notify"))
        self.ended = threading.Event()
        self.listener = threading.Thread(target=self._listen)
        self.listener.start()

    def _listen(self):
        while not self.ended.is_set():
            if select.select([self.socket], [], [], 0.05)[0]:
                self._receive()

    def _receive(self):
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        data, ancillary, _flags, _address = self.socket.recvmsg(65536, room)
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[:len(content) - len(content) % fds.itemsize])
        lines = data.decode().splitlines()
        fields = dict(line.split("=", 1) for line in lines)
        self.messages.append(fields)
        if fields.get("FDSTOREREMOVE") == "1":
            for name, fd in self.store:
                if name == fields["FDNAME"]:
                    os.close(fd)
            self.store = [(name, fd) for name, fd in self.store if name != fields["FDNAME"]]
        elif fields.get("FDSTORE") == "1":
            assert fields["FDPOLL"] == "0"
            self.store += [(fields["FDNAME"], fd) for fd in fds]
            return
        for fd in fds:
            os.close(fd)  # that of a barrier, above all

    def names(self):
        return sorted(name for name, _fd in self.store)

    def start(self):
        env = environment(None)
        env["NOTIFY_SOCKET"] = str(self.directory / "notify")
        if self.runtime:
            env["RUNTIME_DIRECTORY"] = str(self.runtime)
        fds = [fd for _name, fd in self.store]
        prepare = None
        program = [DELAYD]
        if fds:
            env.update(LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=":".join(name for name, _fd in self.store))
            # LISTEN_PID has to be the number that delayd will have.
            program = ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", DELAYD]

            def prepare():
                # First out of the way, as some may be in the place of others.
                copies = [os.dup2(fd, 200 + i) for i, fd in enumerate(fds)]
                for i, copy in enumerate(copies):
                    os.dup2(copy, 3 + i)
                    os.close(copy)

        self.starts += 1
        self.daemon = Daemon.__new__(Daemon)
        self.daemon.port = self.port
        self.daemon.bus_address = None
        self.daemon.log_path = self.directory / ("delayd-%d.log" % self.starts)
        with open(self.daemon.log_path, "wb") as file:
            self.daemon.process = subprocess.Popen(
                [*program, "--set", "Metrics.Listen=127.0.0.1:%d" % self.port, *self.args],
                env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, preexec_fn=prepare,
                pass_fds=range(3, 3 + len(fds)) if fds else ())
        return self.daemon

    def restart(self):
        self.daemon.stop()
        return self.start()

    def crash(self):
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait(10)

    def end(self):
        if self.daemon:
            self.daemon.kill()
        self.ended.set()
        self.listener.join()
        self.socket.close()
        for _name, fd in self.store:
            os.close(fd)

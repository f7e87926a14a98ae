# SPDX-License-Identifier: LGPL-2.1-or-later
"""Starts the program under test and gives it back its end."""
import os
import subprocess
import threading

import pytest


class Server:
    def __init__(self, *arguments, cgroups=0, env=None):
        self.lines = []
        self.ports = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen([os.environ["SERVE_PROGRAM"], str(cgroups), *arguments],
                                        stdout=subprocess.PIPE, text=True, env=env)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                if line.startswith("port "):
                    self.ports.append(int(line.split()[1]))
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)
            self.changed.notify_all()

    def wait_for(self, text, timeout=20):
        with self.changed:
            found = self.changed.wait_for(
                lambda: None in self.lines or any(text in line for line in self.lines), timeout)
            assert found and any(text in (line or "") for line in self.lines), (text, self.lines)

    def stop(self):
        """Ends it and returns its exit status: not 0 after a crash or a complaint of a sanitizer."""
        self.process.terminate()
        status = self.process.wait(20)
        self.reader.join(20)
        return status


@pytest.fixture
def start():
    servers = []

    def starter(*arguments, **options):
        server = Server(*arguments, **options)
        servers.append(server)
        return server

    yield starter
    for server in servers:
        if server.process.poll() is None:
            assert server.stop() == 0

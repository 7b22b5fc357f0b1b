"""
Tests for :mod:`twisted_exec.program.systemd`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.systemd import READY, STOPPING, VARIABLE, notify


class NotifyTests(SynchronousTestCase):
    """Tests for :func:`notify`."""

    def listen(self, address: str) -> socket.socket:
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(told.close)
        told.setblocking(False)
        told.bind(address)
        return told

    def test_told(self) -> None:
        """States arrive at a socket file and at an abstract socket."""
        # The path of a socket is short; a test's own directory may not be.
        directory = tempfile.mkdtemp(prefix="notify-")
        self.addCleanup(shutil.rmtree, directory)
        name = secrets.token_hex(8)
        for path, address in ((f"{directory}/s", f"{directory}/s"), (f"@{name}", f"\0{name}")):
            listening = self.listen(address)
            for state in (READY, STOPPING):
                self.assertTrue(notify(state, {VARIABLE: path}))
                self.assertEqual(listening.recv(100), state.encode())

    def test_nobody(self) -> None:
        """Without systemd, or without its socket, nothing happens."""
        gone = os.path.abspath(self.mktemp())
        for path in ("", "relative", "vsock:2:1", gone[:100], "/" + "x" * 200):
            self.assertFalse(notify(READY, {VARIABLE: path}))
        self.assertFalse(notify(READY, {}))

    def test_full(self) -> None:
        """notify() returns False instead of blocking when the listener does not read."""
        name = secrets.token_hex(8)
        self.listen(f"\0{name}")
        told = [notify(READY, {VARIABLE: f"@{name}"}) for _ in range(5000)]
        self.assertFalse(told[-1])

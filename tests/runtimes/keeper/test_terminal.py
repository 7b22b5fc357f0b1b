"""
Tests for :mod:`twisted_exec.runtimes.keeper.terminal`.

What a keeper's terminals carry is tested with the keeper's client; here is what a full terminal does.
"""

from __future__ import annotations

import contextlib
import os
import pty
import tty

from twisted.internet.protocol import ProcessProtocol
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.keeper.read_mark import ReadMark
from twisted_exec.runtimes.keeper.terminal import KeptTerminal


class WriteTests(SynchronousTestCase):
    """Input on its way to a terminal."""

    def setUp(self) -> None:
        master, self.machine = pty.openpty()
        self.addCleanup(os.close, self.machine)
        tty.setraw(self.machine)
        os.set_blocking(master, False)
        os.set_blocking(self.machine, False)
        self.reactor = MemoryReactorClock()
        mark = ReadMark(self.mktemp())
        self.addCleanup(mark.close)
        self.terminal = KeptTerminal(self.reactor, master, ProcessProtocol(), mark, "vm")
        self.addCleanup(self.terminal.release)
        self.terminal.begin(b"")

    def read(self) -> bytes:
        """Return what the machine has got."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.machine, 65_536):
                data += piece
        return data

    def test_at_once(self) -> None:
        """Input does not wait for the reactor."""
        self.terminal.write(b"ls\r")
        self.assertEqual(self.read(), b"ls\r")
        self.assertNotIn(self.terminal, self.reactor.getWriters())

    def test_full(self) -> None:
        """What a full terminal does not take waits, and what is typed later comes behind it."""
        typed = bytes(range(256)) * 1024
        self.terminal.write(typed)
        self.terminal.write(b"last")
        self.assertIn(self.terminal, self.reactor.getWriters())
        got = b""
        while self.terminal in self.reactor.getWriters():
            got += self.read()
            self.terminal.doWrite()
        self.assertEqual(got + self.read(), typed + b"last")

    def test_left(self) -> None:
        """A terminal that is let go of gives back what was not written."""
        self.terminal.write(bytes(1 << 18))
        got = self.read()
        waiting = self.terminal.release()
        self.assertEqual(len(got) + len(waiting), 1 << 18)

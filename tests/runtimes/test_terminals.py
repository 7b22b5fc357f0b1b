"""
Tests for :mod:`twisted_exec.runtimes.terminals`.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.internet.testing import AccumulatingProtocol
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes import terminals
from twisted_exec.runtimes.processes import ProcessFamily, ProcessTable
from twisted_exec.runtimes.terminals import TerminalProcess


class ReadTests(SynchronousTestCase):
    """How much of a terminal's output is read in one turn of the reactor."""

    def setUp(self) -> None:
        self.terminal, self.printing = os.pipe()
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(os.close, self.printing)
        os.set_blocking(self.terminal, False)
        self.line = AccumulatingProtocol()
        family = ProcessFamily(ProcessTable(Clock(), "UNUSED"), lambda value: False)
        self.process = TerminalProcess(self.line, family)
        self.process.makeConnection(SimpleNamespace(fd=self.terminal))

    def printed(self, first: int, rest: int) -> int:
        """Return the number of bytes that the line has after a read by the reactor."""
        os.write(self.printing, b"x" * rest)
        self.process.childDataReceived(1, b"x" * first)
        return len(self.line.data)

    def test_much(self) -> None:
        """Output that follows a full read is read in the same turn."""
        self.patch(terminals, "READ_SECONDS", 600.0)
        self.assertEqual(self.printed(4096, 20_000), 24_096)

    def test_little(self) -> None:
        """After a short read the line gets it without another read."""
        self.patch(terminals, "READ_SECONDS", 600.0)
        self.assertEqual(self.printed(100, 20_000), 100)

    def test_slow(self) -> None:
        """When the time of a turn is over, the rest is left to the next turn."""
        self.patch(terminals, "READ_SECONDS", 0.0)
        self.assertEqual(self.printed(4096, 20_000), 4096)

"""
Tests for :mod:`twisted_exec.program.clock`.
"""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.clock import TURN_EVENTS, shorten_turns


class Readable(FileDescriptor):
    """One end of a socket pair, with a byte that nobody reads: always readable."""

    def __init__(self, reactor: Any, reads: Counter[Readable]) -> None:
        super().__init__(reactor)
        self.pair = socket.socketpair()
        self.pair[1].send(b"x")
        self.reads = reads
        self.closes: list[Readable] = []
        self.error: Exception | None = None
        self.reasons: list[Failure] = []

    def fileno(self) -> int:
        return self.pair[0].fileno()

    def doRead(self) -> None:
        self.reads[self] += 1
        for each in self.closes:
            self.reactor.removeReader(each)
        if self.error is not None:
            raise self.error

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self.reasons.append(reason)


class ShortTurnsTests(SynchronousTestCase):
    """Tests for :func:`shorten_turns`."""

    def setUp(self) -> None:
        self.reactor = EPollReactor()
        self.addCleanup(self.reactor._poller.close)
        self.addCleanup(self.reactor.waker.connectionLost, None)
        self.reads: Counter[Readable] = Counter()

    def readables(self, number: int) -> list[Readable]:
        made = []
        for _ in range(number):
            made.append(Readable(self.reactor, self.reads))
            for end in made[-1].pair:
                self.addCleanup(end.close)
            self.reactor.addReader(made[-1])
        return made

    def test_turns(self) -> None:
        """A turn handles some of many events, and all descriptors have equally many turns."""
        readables = self.readables(4 * TURN_EVENTS)
        shorten_turns(self.reactor)
        self.reactor.doIteration(0)
        self.assertEqual(self.reads.total(), TURN_EVENTS)
        for _ in range(4 * 5 - 1):
            self.reactor.doIteration(0)
        self.assertEqual(self.reads, dict.fromkeys(readables, 5))

    def test_closed(self) -> None:
        """An event of a descriptor that was closed in the same turn is dropped."""
        first, second = self.readables(2)
        first.closes, second.closes = [second], [first]
        shorten_turns(self.reactor)
        self.reactor.doIteration(0)
        self.assertEqual(self.reads.total(), 1)

    def test_error(self) -> None:
        """A descriptor that fails is disconnected and logged; the others go on."""
        failing, other = self.readables(2)
        failing.error = ValueError("broken")
        shorten_turns(self.reactor)
        self.reactor.doIteration(0)
        self.reactor.doIteration(0)
        self.assertEqual(self.reads, {failing: 1, other: 2})
        self.assertEqual([each.type for each in failing.reasons], [ValueError])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_timeout(self) -> None:
        """Without events a turn ends at its time limit; a reactor that stops does not wait."""
        shorten_turns(self.reactor)
        for timeout in (0.001, False):
            self.reactor.doIteration(timeout)

    def test_others(self) -> None:
        """A running reactor and one of another kind keep their loop."""
        self.reactor.running = True
        select = SelectReactor()
        self.addCleanup(select.waker.connectionLost, None)
        for each in (self.reactor, select):
            shorten_turns(each)
            self.assertNotIn("doIteration", vars(each))

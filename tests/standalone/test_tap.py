"""
Tests for :mod:`twisted_exec.standalone.tap`.
"""

from __future__ import annotations

import os

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.trial.unittest import TestCase

from twisted_exec.standalone.tap import stop_with_parent


class Stopped:
    """
    The reactor, but that to stop it is told to the test.

    As the real one, it counts as running until all its services have stopped.
    """

    running = True

    def __init__(self) -> None:
        self.stopped: Deferred[None] = Deferred()
        self.refused: Deferred[None] = Deferred()

    def __getattr__(self, name: str) -> object:
        return getattr(_reactor, name)

    def stop(self) -> None:
        if self.stopped.called:
            self.refused.callback(None)
            raise ReactorNotRunning("Can't stop reactor that isn't running.")
        self.stopped.callback(None)


class StopWithParentTests(TestCase):
    """Tests for :func:`stop_with_parent`."""

    def setUp(self) -> None:
        self.ours, self.theirs = os.pipe()
        self.addCleanup(os.close, self.ours)
        self.reactor = Stopped()
        stop_with_parent(self.reactor, self.ours)

    async def test_ends(self) -> None:
        """It stops when the other end is closed, however much was written before."""
        os.write(self.theirs, b"x" * 10000)
        os.close(self.theirs)
        await self.reactor.stopped

    async def test_stopping(self) -> None:
        """The parent process closes its end and sends SIGTERM: the program stops without an error."""
        self.reactor.stop()
        os.close(self.theirs)
        await self.reactor.refused

    async def test_stopped_already(self) -> None:
        """A program that has stopped is not stopped again."""
        self.reactor.running = False
        os.close(self.theirs)
        while self.ours in [reader.fileno() for reader in _reactor.getReaders()]:
            turn: Deferred[None] = Deferred()
            _reactor.callLater(0, turn.callback, None)
            await turn
        self.assertFalse(self.reactor.stopped.called)

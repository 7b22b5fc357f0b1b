"""
Tests for :mod:`twisted_exec.program.handover.channel`.
"""

from __future__ import annotations

import os
import socket

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.tls.support import reactor
from twisted_exec.program.handover.channel import STOP, HandoverChannel, Lingering, Message


class _Process:
    """A process that lingers."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stopped: Deferred[Message] = Deferred()
        self.left: Deferred[None] = Deferred()
        self.channel = HandoverChannel.over(
            reactor, ours, self.stopped.callback, lambda: self.left.callback(None)
        )


class LingeringTests(TestCase):
    """Tests for :class:`Lingering`."""

    def processes(self, number: int) -> list[_Process]:
        processes = [_Process() for _ in range(number)]
        for each in processes:
            self.addCleanup(self.end, each)
        return processes

    def end(self, process: _Process) -> Deferred[None]:
        process.channel.close()
        return process.left

    async def test_stop(self) -> None:
        """Each process is stopped; the end of the last one is the end of the wait."""
        one, two = self.processes(2)
        lingering = Lingering()
        lingering.attach(reactor, [one.theirs, two.theirs])
        gone = lingering.stop()
        for each in (one, two):
            self.assertEqual(await each.stopped, {STOP: True})
        await self.end(one)
        self.assertFalse(gone.called)
        two.channel.close()
        await gone

    async def test_none(self) -> None:
        """Processes that have ended are not waited for."""
        lingering = Lingering()
        self.assertTrue(lingering.stop().called)
        (one,) = self.processes(1)
        one.channel.close()
        lingering.attach(reactor, [one.theirs])
        await lingering.stop()
        self.assertEqual(lingering.descriptors(), [])

    async def test_left(self) -> None:
        """A successor stops a process that this one has left to it."""
        (one,) = self.processes(1)
        lingering, successor = Lingering(), Lingering()
        lingering.attach(reactor, [one.theirs])
        (number,) = lingering.descriptors()
        copy = socket.socket(fileno=os.dup(number))
        lingering.leave()
        self.assertTrue(lingering.stop().called)
        await deferLater(reactor, 0)
        successor.attach(reactor, [copy])
        gone = successor.stop()
        await one.stopped
        self.assertFalse(one.left.called)
        one.channel.close()
        await gone

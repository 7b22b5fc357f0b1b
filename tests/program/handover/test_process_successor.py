"""
Tests for both sides of a hand-over, within one process.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.program.handover.doubles import Process
from tests.tls.support import reactor
from twisted_exec.program.handover.interfaces import HANDOVER_SECONDS, ServiceState

TIMES = 50


class ProcessCase(TestCase):
    """Processes that end with the test."""

    async def first(self) -> Process:
        process = Process()
        self.addCleanup(self.settle)
        self.addCleanup(process.end)
        await process.listen()
        process.hand_over.ready()
        return process

    async def begin(self, process: Process) -> Process:
        successor = await process.begin()
        self.addCleanup(successor.end)
        return successor

    async def replace(self, process: Process) -> Process:
        successor = await self.begin(process)
        await successor.replace()
        await self.settle()
        return successor

    async def settle(self) -> None:
        for _ in range(5):
            await deferLater(reactor, 0)

    async def descriptors(self) -> list[str]:
        await self.settle()
        return sorted(os.listdir("/proc/self/fd"))


class LeakTests(ProcessCase):
    """Descriptors over many hand-overs."""

    async def test_replaced(self) -> None:
        """A hand-over leaves no descriptor open."""
        process, counts = await self.first(), []
        for _ in range(TIMES):
            successor = await self.replace(process)
            process.service.lingers.callback(None)
            self.assertTrue(process.ended.called)
            process = successor
            counts.append(len(await self.descriptors()))
        self.assertEqual(set(counts[1:]), {counts[1]})

    async def test_failed(self) -> None:
        """A hand-over that fails leaves no descriptor open, and the next one begins as the first did."""
        process, counts = await self.first(), []
        oldest = process
        process = await self.replace(process)
        failures = (
            self.dies,
            self.dies_with_state,
            self.hangs,
            self.hangs_with_state,
            self.is_older,
        )
        for number in range(TIMES):
            successor = await self.begin(process)
            await failures[number % len(failures)](process, successor)
            await self.settle()
            self.assertTrue(successor.ended.called)
            self.assertEqual(process.clock.getDelayedCalls(), [])
            if number >= len(failures):
                counts.append(len(await self.descriptors()))
        self.assertEqual(set(counts), {counts[0]})
        # It still stops the process before it.
        self.assertFalse(oldest.ended.called)
        await process.lingering.stop()
        self.assertTrue(oldest.ended.called)

    async def dies(self, process: Process, successor: Process) -> None:
        successor.end()

    async def dies_with_state(self, process: Process, successor: Process) -> None:
        await successor.take_over()
        successor.end()

    async def hangs(self, process: Process, successor: Process) -> None:
        process.clock.advance(HANDOVER_SECONDS)

    async def hangs_with_state(self, process: Process, successor: Process) -> None:
        await successor.take_over()
        await successor.listen()
        process.clock.advance(HANDOVER_SECONDS)

    async def is_older(self, process: Process, successor: Process) -> None:
        successor.service.state_version = 0
        with self.assertRaises(EOFError):
            await successor.take_over()


class KilledPredecessorTests(ProcessCase):
    """The predecessor ends during the hand-over."""

    async def test_before_state(self) -> None:
        """The successor ends, too, because it has nothing to continue."""
        process = await self.first()
        process.service.freeze = Deferred[ServiceState]  # type: ignore[method-assign,assignment]
        successor = await self.begin(process)
        over = Deferred.fromCoroutine(successor.take_over())
        while "freeze" not in str(process.service.calls) and not process.clock.getDelayedCalls():
            await deferLater(reactor, 0)
        await self.settle()
        process.end()
        problem: Any = None
        try:
            await over
        except EOFError as error:
            problem = error
        self.assertIn("has ended", str(problem))

    async def test_with_state(self) -> None:
        """The successor continues, and has the processes before the predecessor."""
        oldest = await self.first()
        process = await self.replace(oldest)
        successor = await self.begin(process)
        await successor.take_over()
        process.end()
        await self.settle()
        await successor.listen()
        assert successor.predecessor is not None
        await successor.predecessor.ready()
        successor.hand_over.ready()
        self.assertEqual(len(successor.lingering.descriptors()), 1)
        await successor.lingering.stop()
        self.assertTrue(oldest.ended.called)


class SignalTests(ProcessCase):
    """Signals at moments that are special."""

    async def test_before_ready(self) -> None:
        """A request for a hand-over that comes too early is done when the program is ready."""
        process = await self.first()
        successor = await self.begin(process)
        started = successor.started
        successor.hand_over.begin()
        successor.hand_over.begin()
        await successor.replace()
        successor.clock.advance(0)
        third = await started
        self.addCleanup(third.end)
        self.assertFalse(successor.started.called)
        await third.replace()
        self.assertEqual(successor.service.calls, ["inherit", "freeze", "retire"])

    async def test_stop_before_go(self) -> None:
        """A successor that stops when its predecessor is about to leave stops that one, too."""
        oldest = await self.first()
        process = await self.replace(oldest)
        successor = await self.begin(process)
        await successor.take_over()
        await successor.listen()
        assert successor.predecessor is not None
        successor.predecessor.ready()
        successor.predecessor.stopping()
        await successor.lingering.stop()
        self.assertTrue(process.ended.called)
        self.assertTrue(oldest.ended.called)

    async def test_stop_during_thaw(self) -> None:
        """A program that stops while it takes its work up again accepts no connections any more."""
        await self.stop_during_thaw(Deferred())

    async def test_stop_during_thaw_that_goes_on(self) -> None:
        """The same if the service takes its work up although the program stops."""
        await self.stop_during_thaw(Deferred(lambda thawing: thawing.callback(None)))

    async def stop_during_thaw(self, thawing: Deferred[None]) -> None:
        process = await self.first()
        process.service.thaw = lambda: thawing  # type: ignore[method-assign]
        successor = await self.begin(process)
        await successor.take_over()
        successor.end()
        await self.settle()
        process.hand_over.abandon()
        await self.settle()
        (listening,) = process.sockets.sockets()
        numbers = [each.fileno() for each in reactor.getReaders()]
        self.assertNotIn(listening.socket.fileno(), numbers)
        started = process.started
        process.hand_over.begin()
        await self.settle()
        self.assertFalse(started.called)

    async def test_generations(self) -> None:
        """The newest process stops all before it, whichever of them have ended."""
        processes = [await self.first()]
        for _ in range(5):
            processes.append(await self.replace(processes[-1]))
        processes[1].service.lingers.callback(None)
        processes[3].service.lingers.callback(None)
        await self.settle()
        self.assertEqual(
            [each.ended.called for each in processes], [False, True, False, True, False, False]
        )
        await processes[-1].lingering.stop()
        self.assertEqual(
            [each.ended.called for each in processes], [True, True, True, True, True, False]
        )

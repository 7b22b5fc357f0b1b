"""
Tests for :mod:`twisted_exec.tls.fast.loop`.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.selectreactor import SelectReactor
from twisted.python import log
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.tls.fast.loop import TURN_EVENTS, shorten_turns, use_monotonic_clock


class SteadyTimersTests(SynchronousTestCase):
    """Tests for :func:`use_monotonic_clock`."""

    def setUp(self) -> None:
        self.reactor = SelectReactor()
        self.addCleanup(self.reactor.waker.connectionLost, None)
        self.wall = 1e9
        self.reactor.seconds = lambda: self.wall

    def test_clock_is_set_back(self) -> None:
        """A timer is due in time although the wall clock is an hour behind by then."""
        use_monotonic_clock(self.reactor)
        fired: list[float] = []
        self.reactor.callLater(0, lambda: fired.append(time.monotonic()))
        self.wall -= 3600
        self.reactor.runUntilCurrent()
        self.assertEqual(len(fired), 1)

    def test_clock_is_set_forward(self) -> None:
        """A timer is not due because the wall clock is an hour ahead."""
        use_monotonic_clock(self.reactor)
        late = self.reactor.callLater(60, self.fail)
        self.wall += 3600
        self.reactor.runUntilCurrent()
        self.assertTrue(late.active())

    def test_reactor_in_use(self) -> None:
        """A reactor that has timers keeps its clock: theirs are times of that one."""
        self.reactor.callLater(60, self.fail)
        use_monotonic_clock(self.reactor)
        self.assertEqual(self.reactor.seconds(), self.wall)


class Readable(FileDescriptor):
    """One end of a socket pair, with a byte that nobody reads: always readable."""

    def __init__(self, reactor: Any, reads: Counter[Readable]) -> None:
        super().__init__(reactor)
        self.pair = socket.socketpair()
        self.pair[1].send(b"x")
        self.reads = reads
        self.closes: list[Readable] = []

    def fileno(self) -> int:
        return self.pair[0].fileno()

    def ends(self, callback: str) -> None:
        """End with the next turn, and fail in the callback of this name."""
        self.failing = callback
        if callback == "doWrite":
            self.reactor.addWriter(self)

    failing = ""

    def _fail(self, callback: str) -> None:
        if callback == self.failing:
            raise ValueError(f"{callback} is broken")

    def doRead(self) -> Exception | None:
        self.reads[self] += 1
        for each in self.closes:
            self.reactor.removeReader(each)
        self._fail("doRead")
        if self.failing == "readConnectionLost":
            return ConnectionDone()
        return ConnectionLost() if self.failing == "connectionLost" else None

    def doWrite(self) -> None:
        self._fail("doWrite")

    def logPrefix(self) -> str:
        return "failing" if self.failing else "other"

    def readConnectionLost(self, reason: Failure) -> None:
        self._fail("readConnectionLost")

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self._fail("connectionLost")


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

    def test_errors(self) -> None:
        """
        A descriptor that fails in any of its callbacks is logged with its prefix; the others have
        their turn, and only it is disconnected.
        """
        shorten_turns(self.reactor)
        for callback in ("doRead", "doWrite", "connectionLost", "readConnectionLost"):
            with self.subTest(callback):
                failing, other = self.readables(2)
                failing.ends(callback)
                logged: list[dict[str, Any]] = []
                log.addObserver(logged.append)
                try:
                    self.reactor.doIteration(0)
                finally:
                    log.removeObserver(logged.append)
                self.assertEqual(self.reads[other], 1)
                errors = [each for each in logged if each["isError"]]
                self.assertTrue(errors, callback)
                self.assertEqual({each["system"] for each in errors}, {"failing"})
                self.flushLoggedErrors(ValueError)
                self.reactor.doIteration(0)
                self.assertNotIn(failing, self.reactor.getReaders())
                self.assertIn(other, self.reactor.getReaders())
                self.reactor.removeReader(other)

    def test_main_loop(self) -> None:
        """Timers, calls from threads and reads have their turns until the reactor stops."""
        shorten_turns(self.reactor)
        (readable,) = self.readables(1)
        seen: list[str] = []

        def call(name: str, *following: Any) -> None:
            seen.append(name)
            if following:
                self.reactor.callLater(*following)

        def broken() -> None:
            raise ValueError("broken")

        def at_last() -> None:
            call("last")
            self.reactor.stop()

        timer = (0.01, call, "timer", 0.01, at_last)
        self.reactor.callLater(0, broken)
        self.reactor.callLater(0, self.reactor.callFromThread, call, "thread", *timer)
        self.reactor.callLater(3e6, call, "never")  # longer than one wait of epoll
        self.reactor.addSystemEventTrigger("during", "shutdown", call, "shutdown")
        self.reactor.startRunning(installSignalHandlers=False)
        self.reactor.mainLoop()
        self.assertEqual(seen, ["thread", "timer", "last", "shutdown"])
        self.assertGreater(self.reads[readable], 0)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_waits(self) -> None:
        """Without anything to read a turn waits for the next timer."""
        shorten_turns(self.reactor)
        waits: list[float] = []
        now = 0.0

        def poll(timeout: float, most: int) -> list[tuple[int, int]]:
            nonlocal now
            waits.append(timeout)
            now += min(timeout, 3)
            return []

        self.patch(self.reactor, "_poller", SimpleNamespace(poll=poll))
        self.reactor.seconds = lambda: now
        self.reactor.callLater(5, lambda: None)
        self.reactor.callLater(11, self.reactor.stop)
        self.reactor.startRunning(installSignalHandlers=False)
        self.reactor.mainLoop()
        self.assertEqual(waits, [5, 2, 6, 3, False])

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
            self.assertNotIn("mainLoop", vars(each))

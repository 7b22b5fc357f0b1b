"""
Tests for :mod:`twisted_exec.tls.fast.loop`.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

from twisted.internet import tcp
from twisted.internet.abstract import FileDescriptor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.selectreactor import SelectReactor
from twisted.python import log
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.transports import swap_protocol
from twisted_exec.tls.fast.loop import (
    FEW,
    OTHERS_SECONDS,
    STREAMS_SECONDS,
    ReadyDescriptors,
    shorten_turns,
    use_monotonic_clock,
)
from twisted_exec.tls.fast.transport import AtOnce


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


STREAMS, OTHERS = range(100), range(100, 200)


class ReadyDescriptorsTests(SynchronousTestCase):
    """
    Tests for :class:`ReadyDescriptors`, whose clock of CPU time goes on by what each event costs.

    :ivar costs: seconds by descriptor; others cost nothing.
    """

    def setUp(self) -> None:
        self.cpu = 0.0
        self.looks = 0  # at the clock
        self.costs: dict[int, float] = {}
        self.handled: list[int] = []
        self.ready = ReadyDescriptors(STREAMS.__contains__, self.look)

    def look(self) -> float:
        self.looks += 1
        return self.cpu

    def turn(self, *descriptors: int) -> list[int]:
        """Return the descriptors that are handled in one turn, in order."""
        self.handled.clear()
        for descriptor, _ in self.ready.in_order([(each, 1) for each in descriptors]):
            self.handled.append(descriptor)
            self.cpu += self.costs.get(descriptor, 0.0)
        return list(self.handled)

    def test_streams_first(self) -> None:
        """A key is handled before requests that were ready before, and these one by one."""
        requests = OTHERS[:3]
        self.costs = dict.fromkeys(requests, OTHERS_SECONDS)
        for each in requests:
            self.assertEqual(self.turn(*requests, 5), [5, each])

    def test_others_in_order(self) -> None:
        """Requests share a part of each turn, those first that were left in the turn before."""
        requests = OTHERS[:3]
        self.costs = dict.fromkeys(requests, OTHERS_SECONDS * 0.6)
        first, second, third = requests
        self.assertEqual(self.turn(*requests), [first, second])
        self.assertEqual(self.turn(*requests), [third, first])

    def test_many_streams(self) -> None:
        """However much streams have to do, each has its turns, and so have requests."""
        streams = STREAMS[:6]
        self.costs = dict.fromkeys(streams, STREAMS_SECONDS / 4)
        self.assertEqual(self.turn(*OTHERS[:1], *streams), [0, 1, 2, 3, *OTHERS[:1]])
        self.assertEqual(self.turn(*OTHERS[:1], *streams), [4, 5, 0, 1, *OTHERS[:1]])

    def test_no_longer_ready(self) -> None:
        """What waited before and is not ready now has no claim."""
        first, second, third = OTHERS[:3]
        self.costs = dict.fromkeys(OTHERS[:3], OTHERS_SECONDS)
        self.assertEqual(self.turn(first, second, third), [first])
        self.assertEqual(self.turn(first, third), [third])
        self.assertEqual(self.turn(second, first), [first])

    def test_few_streams(self) -> None:
        """Few streams need no clock, and are handled in the kernel's order."""
        streams = STREAMS[:FEW]
        self.costs = dict.fromkeys(streams, STREAMS_SECONDS)
        self.assertEqual(self.turn(*reversed(streams)), [*reversed(streams)])
        self.assertEqual(self.looks, 0)


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

    def test_streams_first(self) -> None:
        """A stream, and what is no connection, are handled before a port and a connection with requests."""
        order: list[str] = []

        class Named(AtOnce, Readable):
            def __init__(self, reactor: Any, reads: Counter[Readable]) -> None:
                Readable.__init__(self, reactor, reads)
                self.protocol = Protocol()

            def doRead(self) -> None:
                order.append("stream" if self.is_stream else "request")

        class Listening(tcp.Port):
            def doRead(self) -> None:
                order.append("port")

        class Pty(Readable):
            def doRead(self) -> None:
                order.append("pty")

        listening = Listening(0, Factory(), interface="127.0.0.1", reactor=self.reactor)
        connections = [Named(self.reactor, self.reads) for _ in range(2)]
        swap_protocol(connections[1], Protocol())
        ends = [Pty(self.reactor, self.reads), *connections]
        for each in ends:
            for end in each.pair:
                self.addCleanup(end.close)
        listening.startListening()
        self.addCleanup(listening.socket.close)
        client = socket.create_connection(("127.0.0.1", listening.getHost().port))
        self.addCleanup(client.close)
        for each in (connections[0], connections[1], ends[0]):
            self.reactor.addReader(each)
        shorten_turns(self.reactor)
        self.reactor.doIteration(0)
        self.assertEqual(set(order[:2]), {"stream", "pty"})
        self.assertEqual(set(order[2:]) - {"request", "port"}, set())
        self.assertTrue(order[2:])

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

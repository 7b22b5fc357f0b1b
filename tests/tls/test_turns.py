"""
Tests for :mod:`twisted_exec.tls.turns`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet import unix
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import gatherResults
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.streaming.places import KINDS, PlacesTestCase, turn
from twisted_exec.tls import endpoints, turns
from twisted_exec.tls.fast import accepting, transport
from twisted_exec.tls.fast.transport import TURN_ACCEPTS
from twisted_exec.tls.turns import CONNECTION_SECONDS, SLICE_BYTES, TURN_SECONDS, IFramed, Turns

reactor: Any = _reactor
FRAME_SECONDS = 0.00001
"""What a frame costs in these tests."""


class Cost:
    """A clock of CPU time, which the protocols advance."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class TurnClock(Clock):
    """A clock whose turns take one second: a call with delay 0 runs in the next turn."""

    def callLater(self, delay: float, *call: Any, **keywords: Any) -> Any:
        return super().callLater(delay or 1, *call, **keywords)


@implementer(IFramed)
class Frames(Protocol):
    """
    Takes frames: one byte with a length, and a payload of that many bytes.

    :ivar frames: payloads of complete frames.
    :ivar pieces: sizes of what was delivered.
    :ivar on_frame: called behind each frame.
    """

    transport: Any

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.frames: list[bytes] = []
        self.pieces: list[int] = []
        self.lost: list[BaseException | None] = []
        self.on_frame: Any = lambda: None
        self._buffer = b""

    def frame_rest(self, size: int) -> int | None:
        return max(0, 1 + self._buffer[0] - len(self._buffer)) if self._buffer else 0

    def dataReceived(self, data: bytes) -> None:
        self.pieces.append(len(data))
        self._buffer += data
        while self._buffer and len(self._buffer) > self._buffer[0]:
            size = self._buffer[0]
            frame, self._buffer = self._buffer[1 : 1 + size], self._buffer[1 + size :]
            self.cost.seconds += FRAME_SECONDS
            self.frames.append(frame)
            self.on_frame()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.append(reason.value)


class Whole(Frames):
    """Frames that are taken in whole reads."""

    def frame_rest(self, size: int) -> int | None:
        return None


class Connection(turns.TurnTaking):
    """
    A connection whose reads the tests make up.

    :ivar reading: whether it reads.
    """

    def __init__(self, protocol: Any, shared: Turns) -> None:
        self.protocol, self.shared = protocol, shared
        self.reading, self.aborted = True, False

    def turns(self) -> Turns:
        return self.shared

    def hold_reading(self) -> None:
        self.reading = False

    def read_on(self) -> None:
        self.reading = True

    def abortConnection(self) -> None:
        self.aborted = True
        self.drop_rest()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.resume_rest()

    def connection_lost(self) -> None:
        self.deliver_rest(self._lose)

    def _lose(self) -> None:
        if not self._lost:
            self.protocol.connectionLost(Failure(ConnectionLost()))


class Shaking(turns.TurnTaking):
    """A connection whose handshake has one step, which takes a millisecond."""

    def __init__(self, case: TurnsTests, host: str, done: list[str]) -> None:
        self._case, self._host, self._done = case, host, done

    def read(self) -> None:
        """The step may be made."""
        if self._case.turns.admits_handshake(self._host):
            self.take_turn()
        else:
            self._case.turns.wait_for_handshake(self, self._host)

    def take_turn(self) -> None:
        self._done.append(self._host)
        self._case.turns.shakes(self._host)
        self._case.cost.seconds += 0.001
        self._case.turns.used(self, 0.001)


FLOOD = b"\x01x" * 65_536
"""A read of 128 KiB with as many frames as fit."""

KEY = b"\x01k"


class TurnsTests(SynchronousTestCase):
    """Connections of one reactor with test clocks."""

    def setUp(self) -> None:
        self.clock, self.cost = TurnClock(), Cost()
        self.turns = Turns(self.clock, self.cost)

    def connection(self) -> Any:
        return Connection(Frames(self.cost), self.turns)

    def turn(self) -> float:
        """A turn of the reactor; its cost."""
        before = self.cost.seconds
        self.clock.advance(1)
        return self.cost.seconds - before

    def finish(self) -> int:
        """Turn until nothing waits; the number of turns."""
        count = 0
        while self.clock.getDelayedCalls():
            self.turn()
            count += 1
        return count

    def test_key(self) -> None:
        """A key is handled when it is read, without another turn."""
        quiet = self.connection()
        quiet.deliver(KEY)
        self.assertEqual(quiet.protocol.frames, [b"k"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_flood(self) -> None:
        """A read full of small frames takes many short turns, and nothing is lost or reordered."""
        busy = self.connection()
        flood = b"".join(b"\x02" + index.to_bytes(2, "big") for index in range(43_690))
        busy.deliver(flood)
        self.assertFalse(busy.reading)
        self.assertLess(self.cost.seconds, 2 * CONNECTION_SECONDS)
        while self.clock.getDelayedCalls():
            self.assertLess(self.turn(), 2 * CONNECTION_SECONDS)
        self.assertEqual(b"".join(b"\x02" + each for each in busy.protocol.frames), flood)
        self.assertTrue(busy.reading)

    def test_key_beside_a_flood(self) -> None:
        """The key of another connection is handled at once in each turn."""
        busy, quiet = self.connection(), self.connection()
        busy.deliver(FLOOD)
        keys = 0
        while not busy.reading:
            quiet.deliver(KEY)
            keys += 1
            self.assertEqual(len(quiet.protocol.frames), keys)
            self.turn()
        self.assertGreater(keys, 100)

    def test_many_floods(self) -> None:
        """Many busy connections share a turn, each gets its part, and a key passes them all."""
        crowd = [self.connection() for _ in range(50)]
        for busy in crowd:
            busy.deliver(FLOOD)
        quiet = self.connection()
        for _ in range(100):
            self.assertLess(self.turn(), TURN_SECONDS + 2 * CONNECTION_SECONDS)
            quiet.deliver(KEY)
        self.assertEqual(len(quiet.protocol.frames), 100)
        shares = [len(busy.protocol.frames) for busy in crowd]
        self.assertLess(max(shares), 2 * min(shares))

    def test_many_small_reads(self) -> None:
        """Connections that send a little in each turn, all the time, are busy as well."""
        crowd = [self.connection() for _ in range(50)]
        slice_of_flood = FLOOD[:SLICE_BYTES]
        costs = []
        for _ in range(20):
            cost = self.turn()
            before = self.cost.seconds
            for busy in crowd:
                if busy.reading:
                    busy.deliver(slice_of_flood)
            costs.append(cost + self.cost.seconds - before)
        self.assertLess(max(costs[1:]), TURN_SECONDS + 2 * CONNECTION_SECONDS)

    def test_large_frames(self) -> None:
        """The rest of a frame is delivered in one piece."""
        busy = self.connection()
        busy.deliver((b"\xff" + b"x" * 255) * 500)
        self.finish()
        self.assertEqual(len(busy.protocol.frames), 500)
        self.assertLessEqual(len(busy.protocol.pieces), 501)

    def test_whole_reads(self) -> None:
        """A protocol that does not care for frames gets whole reads."""
        protocols: list[Any] = [Whole(self.cost), _Plain()]
        for protocol in protocols:
            plain = Connection(protocol, self.turns)
            plain.deliver(FLOOD)
            self.assertEqual(protocol.pieces, [len(FLOOD)])

    def test_paused(self) -> None:
        """A protocol that pauses its transport gets no further slice until it resumes it."""
        busy = self.connection()
        busy.protocol.on_frame = busy.pause
        busy.deliver(FLOOD)
        got = len(busy.protocol.frames)
        self.assertLessEqual(got, SLICE_BYTES)
        self.finish()
        self.assertEqual(len(busy.protocol.frames), got)
        self.assertFalse(busy.reading)
        busy.protocol.on_frame = lambda: None
        busy.resume()
        self.finish()
        self.assertEqual(len(busy.protocol.frames), 65_536)
        self.assertTrue(busy.reading)

    def test_paused_and_resumed_at_once(self) -> None:
        """Pausing and resuming within a frame changes nothing."""
        busy = self.connection()
        busy.protocol.on_frame = lambda: (busy.pause(), busy.resume())
        busy.deliver(FLOOD)
        self.finish()
        self.assertEqual(len(busy.protocol.frames), 65_536)
        self.assertTrue(busy.reading)

    def test_aborted(self) -> None:
        """After an abort nothing more is delivered."""
        busy = self.connection()
        busy.deliver(FLOOD)
        got = len(busy.protocol.frames)
        busy.abortConnection()
        self.finish()
        self.assertEqual(len(busy.protocol.frames), got)

    def test_lost(self) -> None:
        """The end of the connection follows all that was read, also while it is paused."""
        for is_paused in (False, True):
            busy = self.connection()
            protocol = busy.protocol
            busy.deliver(FLOOD)
            if is_paused:
                busy.pause()
            busy.connection_lost()
            busy.connection_lost()
            self.assertEqual(protocol.lost, [])
            self.finish()
            self.assertEqual(len(protocol.frames), 65_536)
            self.assertEqual([type(each) for each in protocol.lost], [ConnectionLost])

    def test_lost_and_aborted(self) -> None:
        """A protocol that aborts a connection that is lost learns of the end, and gets nothing more."""
        busy = self.connection()
        protocol = busy.protocol
        busy.deliver(FLOOD)
        busy.connection_lost()
        got = len(protocol.frames)
        busy.abortConnection()
        self.finish()
        self.assertEqual(len(protocol.frames), got)
        self.assertEqual(len(protocol.lost), 1)

    def test_replaced(self) -> None:
        """The rest of a read goes to the protocol that has taken over."""
        busy = self.connection()
        first, second = busy.protocol, Frames(self.cost)

        def upgrade() -> None:
            busy.protocol = second
            busy.unread(b"\x05first")

        first.on_frame = lambda: upgrade() if busy.protocol is first else None
        busy.deliver(FLOOD)
        self.finish()
        self.assertEqual(second.frames[0], b"first")
        self.assertEqual(len(first.frames) + len(second.frames), 65_537)

    def test_unread(self) -> None:
        """Bytes that are given back come first: at once, or in the next turn."""
        quiet = self.connection()
        quiet.unread(KEY)
        self.assertEqual(quiet.protocol.frames, [b"k"])
        quiet.unread(KEY, later=True)
        quiet.unread(b"\x01j")
        self.assertEqual((len(quiet.protocol.frames), quiet.reading), (1, False))
        self.finish()
        self.assertEqual(quiet.protocol.frames, [b"k", b"j", b"k"])
        self.assertTrue(quiet.reading)

    def test_one_in_a_turn(self) -> None:
        """A protocol may give back the rest of a read and gets it in the next turn."""
        busy = self.connection()

        def give_back() -> None:
            rest, busy.protocol._buffer = busy.protocol._buffer, b""
            if rest:
                busy.unread(rest, later=True)

        busy.protocol.on_frame = give_back
        busy.deliver(KEY * 600)
        for count in range(1, 5):
            self.assertEqual(len(busy.protocol.frames), count)
            self.turn()
        self.finish()
        self.assertEqual(len(busy.protocol.frames), 600)

    def test_failed(self) -> None:
        """A protocol that raises loses its connection; the others go on."""
        bad, good = self.connection(), self.connection()
        for busy in (bad, good):
            busy.deliver(FLOOD)
        bad.protocol.on_frame = lambda: 1 / 0
        self.finish()
        self.assertTrue(bad.aborted)
        self.assertEqual(len(good.protocol.frames), 65_536)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_failed_at_once(self) -> None:
        """An error in a read goes to the reactor, as without turns."""
        bad = self.connection()
        bad.protocol.on_frame = lambda: 1 / 0
        with self.assertRaises(ZeroDivisionError):
            bad.deliver(FLOOD)
        bad.connection_lost()
        self.finish()
        self.assertEqual(len(bad.protocol.lost), 1)

    def test_handshakes_by_address(self) -> None:
        """An address with many handshakes delays each other one by one of its own, and all get theirs."""
        done: list[str] = []
        crowd = [Shaking(self, "192.0.2.1", done) for _ in range(100)]
        others = [Shaking(self, f"192.0.2.{2 + number}", done) for number in range(10)]
        for each in [*crowd, *others]:
            each.read()
        self.assertLess(len(done), 6)
        for _ in range(10):
            self.turn()
        self.assertEqual(len(set(done)), 11)
        self.finish()
        self.assertEqual(len(done), 110)

    def test_first_of_an_address(self) -> None:
        """The first handshake of an address in a turn does not wait for those of another."""
        done: list[str] = []
        for _ in range(20):
            Shaking(self, "192.0.2.1", done).read()
        Shaking(self, "192.0.2.2", done).read()
        self.assertEqual(done[-1], "192.0.2.2")

    def test_no_overtaking(self) -> None:
        """Handshakes of an address come in order."""
        done: list[str] = []
        for _ in range(10):
            Shaking(self, "192.0.2.1", done).read()
        self.turns._spent_seconds = 0.0
        before = len(done)
        Shaking(self, "192.0.2.1", done).read()
        self.assertEqual(len(done), before)

    def test_handshakes_beside_floods(self) -> None:
        """Busy connections and handshakes do not hold up each other."""
        crowd, done = [self.connection() for _ in range(50)], []
        for busy in crowd:
            busy.deliver(FLOOD)
        for _ in range(20):
            Shaking(self, "192.0.2.1", done).read()
        for _ in range(20):
            self.turn()
        self.assertGreater(len(done), 10)
        frames = sum(len(busy.protocol.frames) for busy in crowd)
        self.finish()
        self.assertGreater(frames, 50)

    def test_origins(self) -> None:
        """A client is an IPv4 address, or a /64 of IPv6."""
        for one, other, is_same in (
            ("2001:db8::1", "2001:db8::ffff:1", True),
            ("2001:db8::1", "2001:db8:0:1::1", False),
            ("fe80::1%eth0", "fe80::2%eth1", True),
        ):
            origins = {turns.origin_of(IPv6Address("TCP", each, 1)) for each in (one, other)}
            self.assertEqual(len(origins) == 1, is_same)
        mapped = turns.origin_of(IPv6Address("TCP", "::ffff:192.0.2.1", 1))
        self.assertEqual(mapped, turns.origin_of(IPv4Address("TCP", "192.0.2.1", 2)))
        self.assertEqual(turns.origin_of(UNIXAddress(b"/run/exec.sock")), "")

    def test_same_turns(self) -> None:
        """All connections of a reactor share its turns."""
        self.assertIs(turns.turns_of(self.clock), turns.turns_of(self.clock))


class _Plain(Protocol):
    """Knows nothing of frames."""

    def __init__(self) -> None:
        self.pieces: list[int] = []

    def dataReceived(self, data: bytes) -> None:
        self.pieces.append(len(data))


class _Accepting(Factory):
    """Makes :class:`Frames` for sockets; their frames take real time."""

    noisy = False

    def __init__(self) -> None:
        self.made: list[Frames] = []

    def buildProtocol(self, addr: object) -> Frames:
        self.made.append(Frames(Cost()))
        return self.made[-1]


@implementer(IHandshakeListener)
class _Shaken(Protocol):
    """Reports the end of its handshake."""

    def __init__(self, crowd: _Crowd) -> None:
        self._crowd = crowd

    def handshakeCompleted(self) -> None:
        self._crowd.events.append("handshake")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._crowd.connected -= 1


class _Crowd(Factory):
    """Notes each connection and each handshake."""

    noisy = False

    def __init__(self) -> None:
        self.events: list[str] = []
        self.connected = self.made = 0

    def buildProtocol(self, addr: object) -> Protocol:
        self.events.append("connection")
        self.connected += 1
        self.made += 1
        return _Shaken(self)


class SocketTests(PlacesTestCase):
    """Turns of our transports, on real sockets."""

    kinds: tuple[str, ...] = KINDS

    async def flooded(self, kind: str) -> tuple[Frames, Frames, Any]:
        """A quiet and a busy connection: the server's ends, and the client's end of the busy one."""
        factory = _Accepting()
        endpoint = await self.listen(kind, factory)
        client = await endpoint.connect(Factory.forProtocol(Protocol))
        await self.until(lambda: factory.made)
        other = await endpoint.connect(Factory.forProtocol(Protocol))
        await self.until(lambda: len(factory.made) == 2)
        for each in (client, other):
            self.addCleanup(each.transport.abortConnection)
        busy, quiet = factory.made
        self.sent = False

        def type_once() -> None:
            if not self.sent:
                self.sent = True
                other.transport.write(KEY)
            _spin()

        busy.on_frame = type_once
        return busy, quiet, client

    async def test_key_beside_a_flood(self) -> None:
        """A key that is sent while a read is handled arrives before the rest of it."""
        for kind in self.kinds:
            busy, quiet, client = await self.flooded(kind)
            client.transport.write(FLOOD[:20_000])
            await self.until(lambda quiet=quiet: quiet.frames)
            self.assertLess(len(busy.frames), 10_000, kind)
            await self.until(lambda busy=busy: len(busy.frames) == 10_000)

    async def crowd(self, kind: str) -> list[Counter[str]]:
        """
        Connect many clients at once.

        A connection takes half a millisecond, and each step of a handshake a fifth of one.

        :return: the number of each event in each turn.
        """
        cost = iter(range(1_000_000))
        factory, seen = _Crowd(), []
        self.patch(turns.turns_of(reactor), "cpu", lambda: next(cost) / 5000 + factory.made / 2000)
        endpoint = await self.listen(kind, factory)
        opened = [endpoint.connect(Factory.forProtocol(Protocol)) for _ in range(40)]
        expected = 80 if kind == "tls" else 40
        while sum(map(Counter.total, seen)) < expected:
            factory.events.clear()
            await turn()
            seen.append(Counter(factory.events))
        for each in await gatherResults(opened):
            each.transport.abortConnection()
        await self.until(lambda: not factory.connected)
        return seen

    async def test_crowd(self) -> None:
        """Many connections at once are accepted in several turns, a few more if they take little time."""
        for kind in self.kinds:
            most = max(each["connection"] for each in await self.crowd(kind))
            self.assertLessEqual(most, TURN_SECONDS * 2000 + TURN_ACCEPTS, kind)

    async def test_handshakes(self) -> None:
        """The handshakes of many clients share the turns."""
        self.patch(transport, "TURN_ACCEPTS", 100)
        most = max(each["handshake"] for each in await self.crowd("tls"))
        self.assertLessEqual(most, TURN_SECONDS * 5000 + 1)

    async def test_end_behind_a_flood(self) -> None:
        """The end of the stream comes in the same read, and is reported behind all frames."""
        for kind in self.kinds:
            busy, _, client = await self.flooded(kind)
            client.transport.write(FLOOD[:20_000])
            client.transport.loseConnection()
            await self.until(lambda busy=busy: busy.lost)
            self.assertEqual(len(busy.frames), 10_000, kind)
            self.assertIsInstance(busy.lost[0], ConnectionDone, kind)

    async def test_reset_behind_a_flood(self) -> None:
        """A reset is reported after all frames that came before it."""
        for kind in self.kinds:
            busy, _, client = await self.flooded(kind)
            client.transport.write(FLOOD[:20_000])
            await self.until(lambda busy=busy: busy.frames)
            client.transport.abortConnection()
            await self.until(lambda busy=busy: busy.lost)
            self.assertEqual(len(busy.frames), 10_000, kind)

    async def test_paused(self) -> None:
        """Pausing the transport stops the rest of the read, resuming it goes on."""
        for kind in self.kinds:
            busy, _, client = await self.flooded(kind)
            busy.on_frame = busy.transport.pauseProducing
            client.transport.write(FLOOD[:20_000])
            await self.until(lambda busy=busy: busy.frames)
            got = len(busy.frames)
            for _ in range(10):
                await turn()
            self.assertEqual(len(busy.frames), got, kind)
            busy.on_frame = lambda: None
            busy.transport.resumeProducing()
            client.transport.write(KEY)
            await self.until(lambda busy=busy: len(busy.frames) == 10_001)

    async def test_closed_by_the_protocol(self) -> None:
        """A protocol that closes gets the rest of the read, and then the end."""
        for kind in self.kinds:
            busy, _, client = await self.flooded(kind)
            busy.on_frame = partial(_spin_and, busy.transport.loseConnection)
            client.transport.write(FLOOD[:20_000])
            await self.until(lambda busy=busy: busy.frames)
            client.transport.loseConnection()
            await self.until(lambda busy=busy: busy.lost)
            self.assertEqual(len(busy.frames), 10_000, kind)


class HandshakeTests(PlacesTestCase):
    """Handshakes on descriptors."""

    async def test_waiting(self) -> None:
        """The time that a client waits for its turn does not count for its time limit."""
        shared, waiting = turns.turns_of(reactor), []
        self.patch(shared, "admits_handshake", lambda origin: False)
        self.patch(shared, "wait_for_handshake", lambda *each: waiting.append(each))
        endpoint = await self.listen("tls", _Crowd())
        opening = endpoint.connect(Factory.forProtocol(Protocol))
        await self.until(lambda: waiting)
        (accepted, origin) = waiting.pop()
        self.assertEqual(origin, "127.0.0.1")
        accepted.take_turn()
        await self.until(lambda: waiting)
        (server, origin) = waiting.pop()
        self.assertEqual((origin, server.is_shaking), ("127.0.0.1", True))
        limit = server._deadline
        self.assertIsNone(limit._timer)
        server.take_turn()
        self.assertIsNotNone(limit._timer)
        while not opening.called:
            await self.until(lambda: waiting or opening.called)
            for each, _ in list(waiting):
                waiting.clear()
                each.take_turn()
        client = await opening
        await self.until(lambda: waiting)
        waiting.pop()[0].take_turn()
        self.assertEqual((server.is_shaking, limit._timer), (False, None))
        client.transport.abortConnection()

    async def test_most_accepted(self) -> None:
        """Connections are accepted before it is their address's turn, but only so many; and all get one."""
        self.patch(accepting, "_MOST_ACCEPTED", 5)
        shared, waiting = turns.turns_of(reactor), []
        admits, wait = shared.admits_handshake, shared.wait_for_handshake
        self.patch(shared, "admits_handshake", lambda origin: False)
        self.patch(shared, "wait_for_handshake", lambda *each: waiting.append(each))
        factory = _Crowd()
        endpoint = await self.listen("tls", factory)
        opening = [endpoint.connect(Factory.forProtocol(Protocol)) for _ in range(8)]
        await self.until(lambda: len(waiting) == 5)
        for _ in range(10):
            await turn()
        self.assertEqual((len(waiting), factory.made), (5, 0))
        shared.admits_handshake, shared.wait_for_handshake = admits, wait
        for each in waiting:
            wait(*each)
        for each in await gatherResults(opening):
            each.transport.abortConnection()
        await self.until(lambda: not factory.connected)


class ConnectTests(PlacesTestCase):
    """Outgoing UNIX connections."""

    async def test_once(self) -> None:
        """A connected socket does not connect again: the server may listen no more."""
        self.patch(unix.Client, "doConnect", lambda client: self.fail("connects again"))
        endpoint = await self.listen("unix", Factory.forProtocol(Protocol))
        client = await endpoint.connect(Factory.forProtocol(Protocol))
        client.transport.abortConnection()


class MemoryTLSTests(SocketTests):
    """The same for TLS above another transport."""

    kinds = ("tls",)

    def setUp(self) -> None:
        self.patch(endpoints, "PosixReactorBase", type("None", (), {}))

    async def test_certificate(self) -> None:
        """A protocol may look at its transport when the connection is lost, and not reported yet."""
        busy, _, client = await self.flooded("tls")
        seen: list[object] = []
        busy.on_frame = lambda: (_spin(), seen.append(busy.transport.getPeerCertificate()))
        client.transport.write(FLOOD[:20_000])
        await self.until(lambda: busy.frames)
        client.transport.abortConnection()
        await self.until(lambda: busy.lost)
        self.assertEqual(seen, [None] * 10_000)


def _spin() -> None:
    """Take about as long as a frame does."""
    sum(range(500))


def _spin_and(then: Callable[[], object]) -> None:
    _spin()
    then()

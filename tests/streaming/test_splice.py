"""Tests for :mod:`twisted_exec.streaming.splice`."""

from __future__ import annotations

import gc
import hashlib
import weakref
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IListeningPort,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.streaming.http.test_upgrade_server import Taker
from tests.tls.test_turns import Connection, TurnClock
from twisted_exec.streaming.splice import MAX_REMAINDER_BYTES, Splice
from twisted_exec.streaming.transports import close_behind
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.tls.fast.transport import socket_transport
from twisted_exec.tls.turns import CONNECTION_SECONDS, Turns
from twisted_exec.wire.endings import SHUTTING_DOWN, Ending
from twisted_exec.wire.frame_boundaries import MAX_TRACKED_BYTES, frame_boundaries
from twisted_exec.wire.spdy import FrameWriter
from twisted_exec.wire.upgrade import SPDY, WEBSOCKET

from .places import PlacesTestCase

ENDING = Ending(SHUTTING_DOWN, "we are going down")


class Transport(StringTransport):
    """A transport that remembers how it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[str] = []

    def loseConnection(self) -> None:
        self.closed.append("close")

    def abortConnection(self) -> None:
        self.closed.append("abort")

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert self.producer is None and streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None


@implementer(IHalfCloseableDescriptor)
class HalfClosing(Transport):
    """A transport with half-close."""

    def loseWriteConnection(self) -> None:
        self.closed.append("half")


class MemoryTests(SynchronousTestCase):
    """A splice between transports that the test drives."""

    kind: type[Transport] = Transport

    def setUp(self) -> None:
        self.clock = Clock()
        self.reasons: list[str] = []
        self.splice = Splice(self.clock, self.reasons.append, drain_seconds=30)
        self.user, self.machine = self.kind(), self.kind()

    def join(self) -> None:
        self.splice.user.makeConnection(self.user)
        self.splice.machine.makeConnection(self.machine)

    def lose(self, end: Any, reason: Exception | None = None) -> None:
        end.connectionLost(Failure(reason or ConnectionDone()))

    def test_nothing_is_kept(self) -> None:
        """After both connections have ended, the splice is freed without the garbage collector."""
        self.join()
        kept = [weakref.ref(each) for each in (self.splice, self.splice.user, self.splice.machine)]
        self.lose(self.splice.user)
        self.lose(self.splice.machine)
        self.user.producer = self.machine.producer = None
        gc.disable()
        self.addCleanup(gc.enable)
        del self.splice
        self.assertEqual([each() for each in kept], [None, None, None])

    def test_both_ways(self) -> None:
        """Bytes pass, and are counted."""
        self.join()
        self.splice.user.dataReceived(b"typed")
        self.splice.machine.dataReceived(b"printed")
        self.assertEqual((self.machine.value(), self.user.value()), (b"typed", b"printed"))
        self.assertEqual((self.splice.bytes_to_machine, self.splice.bytes_to_user), (5, 7))

    def test_machine_closed(self) -> None:
        """A WebSocket's Close is noticed if it is the last that the machine's side sends."""
        for data, closed in (
            ([b"\x88\x02\x03\xe8"], True),
            ([b"\x82\x05\x01text", b"\x88", b"\x02\x03", b"\xe8"], True),
            ([b"x" * 200 + b"\x88\x00"], True),
            ([b"x" * 200, b"\x88\x7d\x03\xea" + b"y" * 123], True),
            ([b"\x88\x02\x03\xe8", b"\x82\x01\x01"], False),
            ([b"\x88\x02\x03"], False),
            ([b"\x88\x01\x03"], False),
            ([b"\x88\x02\xff\xff"], False),
            ([], False),
        ):
            self.setUp()
            self.splice.watch_close()
            self.join()
            for piece in data:
                self.splice.machine.dataReceived(piece)
            self.assertEqual(self.splice.machine_closed, closed, data)
        self.splice.user.dataReceived(b"\x88\x82masked\x02\x03")
        self.assertFalse(self.splice.machine_closed)

    def test_early(self) -> None:
        """An end that is connected first waits, and its early bytes keep their order."""
        self.splice.machine.makeConnection(self.machine)
        self.assertEqual(self.machine.producerState, "paused")
        self.splice.machine.dataReceived(b"one ")
        self.splice.machine.dataReceived(b"two ")
        self.splice.user.makeConnection(self.user)
        self.splice.machine.dataReceived(b"three")
        self.assertEqual(self.user.value(), b"one two three")
        self.assertEqual(self.machine.producerState, "producing")
        self.assertEqual(self.user.producerState, "producing")

    def test_flow(self) -> None:
        """A full transport stops the other's reading, and no more than that."""
        self.join()
        flow: Any = self.user.producer
        flow.pauseProducing()
        self.assertEqual(self.machine.producerState, "paused")
        self.assertEqual(self.user.producerState, "producing")
        flow.resumeProducing()
        self.assertEqual(self.machine.producerState, "producing")
        flow.stopProducing()
        self.assertEqual(self.machine.closed, [])

    def test_one_end_closes(self) -> None:
        """When an end closes, the other closes after pending data, and its input is dropped."""
        self.join()
        self.splice.user.dataReceived(b"last words")
        self.machine.producerState = "paused"
        self.lose(self.splice.user)
        self.assertEqual(self.machine.value(), b"last words")
        self.assertIsNone(self.machine.producer)
        self.assertEqual(self.machine.producerState, "producing")
        self.assertEqual(self.machine.closed, ["half" if self.kind is HalfClosing else "close"])
        self.splice.machine.dataReceived(b"to nobody")
        self.assertEqual(self.reasons, [])
        self.lose(self.splice.machine)
        self.assertEqual(self.reasons, ["client closed"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reasons(self) -> None:
        """The reason names the end that closed first, and whether it closed cleanly."""
        for first, reason, told in (
            ("user", ConnectionDone(), "client closed"),
            ("user", ConnectionLost(), "client lost"),
            ("machine", ConnectionDone(), "backend closed"),
            ("machine", ConnectionLost(), "backend lost"),
        ):
            self.setUp()
            self.join()
            ends = [self.splice.user, self.splice.machine]
            if first == "machine":
                ends.reverse()
            self.lose(ends[0], reason)
            self.lose(ends[1], ConnectionLost())
            self.assertEqual(self.reasons, [told])

    def test_survivor_never_closes(self) -> None:
        """An end that does not take its last bytes is reset when its time is over."""
        self.join()
        self.lose(self.splice.machine)
        self.clock.advance(29)
        self.assertNotIn("abort", self.user.closed)
        self.clock.advance(1)
        self.assertEqual(self.user.closed[-1], "abort")
        self.lose(self.splice.user)
        self.assertEqual(self.reasons, ["backend closed"])

    def test_left_alone(self) -> None:
        """leave_seconds limits only the machine's end after the user has gone."""
        for first, seconds in (("user", 1), ("machine", 30)):
            self.setUp()
            self.splice = Splice(self.clock, self.reasons.append, drain_seconds=30, leave_seconds=1)
            self.join()
            gone = getattr(self.splice, first)
            survivor = self.machine if first == "user" else self.user
            self.lose(gone)
            self.clock.advance(seconds - 0.1)
            self.assertNotIn("abort", survivor.closed)
            self.clock.advance(0.2)
            self.assertIn("abort", survivor.closed)

    def test_lost_before_joined(self) -> None:
        """An end that is lost before the other comes still delivers what it said."""
        self.splice.machine.makeConnection(self.machine)
        self.splice.machine.dataReceived(b"goodbye")
        self.lose(self.splice.machine, ConnectionLost())
        self.assertEqual(self.reasons, [])
        self.splice.user.makeConnection(self.user)
        self.assertEqual(self.user.value(), b"goodbye")
        self.assertEqual(len(self.user.closed), 1)
        self.lose(self.splice.user)
        self.assertEqual(self.reasons, ["backend lost"])

    def test_cut(self) -> None:
        """A splice that is cut closes both ends, and tells why it was cut."""
        self.join()
        self.splice.cut("ShuttingDown")
        self.assertEqual((len(self.user.closed), len(self.machine.closed)), (1, 1))
        self.lose(self.splice.user)
        self.clock.advance(30)
        self.assertEqual(self.machine.closed[-1], "abort")
        self.lose(self.splice.machine)
        self.assertEqual(self.reasons, ["ShuttingDown"])
        self.splice.cut("again")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cut_before_joined(self) -> None:
        """Cutting a splice with only one end closes that end."""
        self.splice.user.makeConnection(self.user)
        self.splice.cut("no backend")
        self.assertEqual(len(self.user.closed), 1)

    def test_pause_user(self) -> None:
        """From the call on no byte of the user passes; the machine's output does."""
        self.join()
        self.splice.user.dataReceived(b"before ")
        self.splice.pause_user()
        self.assertEqual(self.user.producerState, "paused")
        self.splice.user.dataReceived(b"decrypted already")
        self.splice.machine.dataReceived(b"printed")
        self.assertEqual((self.machine.value(), self.user.value()), (b"before ", b"printed"))
        self.splice.resume_user()
        self.splice.user.dataReceived(b", and after")
        self.assertEqual(self.machine.value(), b"before decrypted already, and after")
        self.assertEqual(self.user.producerState, "producing")

    def test_pause_user_and_flow(self) -> None:
        """A machine whose buffer has room again does not resume a user whom the hop has paused."""
        for machine_first in (True, False):
            self.setUp()
            self.join()
            flow: Any = self.machine.producer
            flow.pauseProducing()
            self.splice.pause_user()
            (flow.resumeProducing if machine_first else self.splice.resume_user)()
            self.assertEqual(self.user.producerState, "paused")
            (self.splice.resume_user if machine_first else flow.resumeProducing)()
            self.assertEqual(self.user.producerState, "producing")

    def test_pause_user_before_joined(self) -> None:
        """A user who is paused before the machine is connected stays so."""
        self.splice.pause_user()
        self.splice.user.makeConnection(self.user)
        self.splice.user.dataReceived(b"early")
        self.splice.machine.makeConnection(self.machine)
        self.assertEqual((self.machine.value(), self.user.producerState), (b"", "paused"))
        self.splice.resume_user()
        self.assertEqual((self.machine.value(), self.user.producerState), (b"early", "producing"))

    def test_end_of_a_paused_user(self) -> None:
        """Bytes of a paused user are dropped when the session ends; the user's end is noticed."""
        for end in ("cut", "say", "lost", "left"):
            self.setUp()
            self.follow()
            self.splice.pause_user()
            self.splice.user.dataReceived(b"typed")
            if end == "cut":
                self.splice.cut("Revoked")
            elif end == "say":
                self.splice.say(ENDING)
            else:
                self.lose(self.splice.user if end == "left" else self.splice.machine)
            self.splice.user.dataReceived(b"typed")
            self.splice.pause_user()
            if end != "left":
                self.assertEqual(self.user.producerState, "producing", end)
            self.splice.resume_user()
            self.assertEqual(self.machine.value(), b"", end)
        self.lose(self.splice.machine)
        self.assertEqual(self.reasons, ["client closed"])
        self.splice.pause_user()
        self.splice.resume_user()

    def test_typed_behind_the_end(self) -> None:
        """
        Nothing passes once the splice is cut or says its last message: a closing transport may
        still queue what is written to it.
        """
        for end in (lambda: self.splice.cut("Revoked"), lambda: self.splice.say(ENDING)):
            self.setUp()
            self.follow()
            self.splice.machine.dataReceived(b"\x82\x05\x01ab")  # the message is not complete
            end()
            self.splice.user.dataReceived(b"typed")
            self.assertEqual(self.machine.value(), b"")

    def follow(self) -> None:
        self.splice.follow(frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True))
        self.join()

    def test_say(self) -> None:
        """A splice that tracks frames sends the ending as a last message, then closes."""
        self.follow()
        self.splice.machine.dataReceived(b"\x82\x03\x01ab")
        self.splice.say(ENDING)
        told = self.user.value()
        self.assertTrue(told.startswith(b"\x82\x03\x01ab\x82"), told)
        self.assertIn(b'"reason":"ShuttingDown"', told)
        self.assertEqual((len(self.user.closed), len(self.machine.closed)), (1, 1))
        self.splice.machine.dataReceived(b"\x82\x02\x01c")
        self.splice.say(ENDING)
        self.assertEqual(self.user.value(), told)
        self.lose(self.splice.machine)
        self.lose(self.splice.user)
        self.assertEqual(self.reasons, ["ShuttingDown"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_say_within_a_message(self) -> None:
        """The last message follows the one under way, which is read despite a paused user."""
        self.follow()
        self.splice.machine.dataReceived(b"\x82\x05\x01a")
        self.splice.machine.pauseProducing()
        self.splice.say(ENDING)
        self.assertEqual((self.user.value(), self.user.closed), (b"\x82\x05\x01a", []))
        self.assertEqual(self.machine.producerState, "producing")
        self.splice.machine.dataReceived(b"bc")
        self.assertEqual(self.user.closed, [])
        self.splice.machine.dataReceived(b"d\x82\x05\x01late")
        self.assertTrue(self.user.value().startswith(b"\x82\x05\x01abcd\x82"), self.user.value())
        self.assertNotIn(b"late", self.user.value())
        self.assertEqual(len(self.user.closed), 1)

    def test_say_within_an_endless_message(self) -> None:
        """An endless message is cut rather than buffered for a slow reader."""
        self.follow()
        self.splice.machine.dataReceived(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
        self.splice.machine.pauseProducing()
        self.splice.say(ENDING)
        piece = b"\x01" * (64 << 10)
        for _ in range(2 * MAX_REMAINDER_BYTES // len(piece)):
            self.splice.machine.dataReceived(piece)
        self.assertLess(len(self.user.value()), MAX_REMAINDER_BYTES + 2 * len(piece))
        self.assertNotIn(b"ShuttingDown", self.user.value())
        self.assertEqual((len(self.user.closed), len(self.machine.closed)), (1, 1))

    def test_lost_without_a_status(self) -> None:
        """
        If the machine's end vanishes without a status, the splice sends one: the session must not
        look successful.
        """
        for reason in (ConnectionDone(), ConnectionLost()):
            self.setUp()
            self.follow()
            self.splice.machine.dataReceived(b"\x82\x03\x01ab")
            self.lose(self.splice.machine, reason)
            self.assertIn(b"lost before the session's status", self.user.value())
            self.assertEqual(len(self.user.closed), 1)

    def test_lost_behind_a_status(self) -> None:
        """No status is added after another status or within a message."""
        for said in (b"\x82\x03\x03{}", b"\x82\x05\x01a"):
            self.setUp()
            self.follow()
            self.splice.machine.dataReceived(said)
            self.lose(self.splice.machine)
            self.assertEqual(self.user.value(), said)

    def test_nobody_to_tell(self) -> None:
        """A user who left, or was cut, gets nothing more."""
        self.follow()
        self.splice.cut("gone")
        self.lose(self.splice.machine)
        self.assertEqual(self.user.value(), b"")

    def test_say_unfollowed(self) -> None:
        """Without tracked frames, or without a user, no last message is sent."""
        self.join()
        self.splice.say(ENDING)
        self.assertEqual((self.user.value(), self.user.closed), (b"", []))
        self.setUp()
        self.follow()
        self.lose(self.splice.user)
        self.splice.say(ENDING)
        self.assertEqual(self.user.value(), b"")

    def test_followed_early(self) -> None:
        """Early bytes are tracked too, including the user's opening."""
        self.splice.follow(frame_boundaries(SPDY, "v4.channel.k8s.io", commands=True))
        self.splice.user.makeConnection(self.user)
        self.splice.user.dataReceived(FrameWriter().syn_stream(7, [(b"streamtype", b"error")]))
        self.splice.machine.makeConnection(self.machine)
        self.assertIsNone(self.splice.user.passing)
        self.splice.say(ENDING)
        self.assertIn(b"\x00\x00\x00\x07\x01", self.user.value())


class TurnTests(SynchronousTestCase):
    """The machine's bytes on a transport that delivers in turns."""

    def setUp(self) -> None:
        self.clock = TurnClock()
        self.splice = Splice(self.clock, lambda reason: None)
        self.user = Transport()
        self.splice.user.makeConnection(self.user)
        self.machine = Connection(self.splice.machine, Turns(self.clock, self.cpu))
        self.looks = 0

    def cpu(self) -> float:
        """A clock of CPU time by which a slice takes half of a connection's time."""
        self.looks += 1
        return self.looks * CONNECTION_SECONDS / 2

    def join(self) -> None:
        """Connect the machine, with transports that know no producers."""
        transport: Any = self.machine
        transport.write = lambda data: None
        transport.registerProducer = lambda producer, streaming: None
        transport.pauseProducing, transport.resumeProducing = (
            self.machine.pause,
            self.machine.resume,
        )
        self.splice.machine.makeConnection(transport)

    def follow(self) -> None:
        self.splice.follow(frame_boundaries(WEBSOCKET, "v5.channel.k8s.io", commands=True))

    def test_whole(self) -> None:
        """A splice that only copies gets whole reads."""
        self.join()
        self.machine.deliver(b"\x82\x00" * 30_000)
        self.assertEqual(len(self.user.value()), 60_000)

    def test_small_frames(self) -> None:
        """A splice that tracks frames spreads many small frames over several turns."""
        self.follow()
        self.join()
        self.machine.deliver(b"\x82\x00" * 30_000)
        turns = 0
        while self.clock.getDelayedCalls():
            self.assertLess(len(self.user.value()), 5_000 * (turns + 1))
            self.clock.advance(1)
            turns += 1
        self.assertEqual(self.user.value(), b"\x82\x00" * 30_000)
        self.assertEqual(self.splice.bytes_to_user, 60_000)

    def test_large_frames(self) -> None:
        """The rest of a large frame passes in one piece."""
        self.follow()
        self.join()
        frame = b"\x82\x7f" + (60_000).to_bytes(8, "big") + b"\1" * 60_000
        self.machine.deliver(frame)
        self.assertEqual(self.user.value(), frame)

    def test_user(self) -> None:
        """The user's frames count as long as they are tracked."""
        self.splice.follow(frame_boundaries(SPDY, "v4.channel.k8s.io", commands=True))
        self.join()
        self.assertEqual(self.splice.user.frame_rest(100), 0)
        self.splice.user.dataReceived(b"x" * (MAX_TRACKED_BYTES + 1))
        self.assertIsNone(self.splice.user.frame_rest(100))


class HalfCloseTests(MemoryTests):
    """The same where an end can be closed for one direction, and more."""

    kind = HalfClosing

    def test_half_close(self) -> None:
        """A half-close is passed on, and the answer to it comes back."""
        self.join()
        self.splice.user.dataReceived(b"question")
        self.splice.user.readConnectionLost()
        self.assertEqual(self.machine.closed, ["half"])
        self.assertIsNone(self.machine.producer)
        self.splice.machine.dataReceived(b"answer")
        self.assertEqual(self.user.value(), b"answer")
        self.assertEqual(self.user.closed, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.splice.machine.readConnectionLost()
        self.assertEqual((self.user.closed, self.machine.closed), (["close"], ["half", "close"]))
        self.lose(self.splice.machine)
        self.lose(self.splice.user)
        self.assertEqual(self.reasons, ["client closed"])

    def test_half_close_towards_tls(self) -> None:
        """If the other end has no half-close, the session ends."""
        self.machine = Transport()
        self.join()
        self.splice.user.readConnectionLost()
        self.assertEqual((self.user.closed, self.machine.closed), (["close"], ["close"]))
        self.lose(self.splice.user)
        self.lose(self.splice.machine)
        self.assertEqual(self.reasons, ["client closed"])

    def test_answer_to_our_half_close(self) -> None:
        """The end that survives closes after ours, and that is the end."""
        self.join()
        self.lose(self.splice.machine)
        self.splice.user.readConnectionLost()
        self.assertEqual(self.user.closed, ["half", "close"])
        self.lose(self.splice.user)
        self.assertEqual(self.reasons, ["backend closed"])


class _Side:
    """One end of :class:`AnyOrderTests`: what it did, and what must then be true."""

    def __init__(self, taker: Taker, transport: MemoryTransport) -> None:
        self.taker, self.transport = taker, transport
        self.sent = b""
        self.done = ""

    def act(self, action: str, amount: int) -> None:
        if self.done in ("close", "abort") or not self.transport.connected:
            return
        if action == "write" and not self.done:
            data = bytes([amount % 251]) * (amount * 997)
            self.sent += data
            self.transport.write(data)
        elif action == "pause":
            self.transport.pauseProducing()
        elif action == "resume":
            self.transport.resumeProducing()
        elif action == "half":
            self.done = self.done or action
            self.transport.loseWriteConnection()
        elif action in ("close", "abort"):
            self.done = action
            if action == "close":
                self.transport.loseConnection()
            else:
                self.transport.abortConnection()


ACTIONS = st.tuples(
    st.sampled_from(["user", "machine"]),
    st.sampled_from(["write", "write", "write", "pause", "resume", "half", "close", "abort"]),
    st.integers(0, 200),
    st.integers(0, 5),
)


class AnyOrderTests(SynchronousTestCase):
    """Properties of a splice for any order of actions."""

    def start(self, encrypted: dict[str, bool]) -> None:
        self.clock, self.network = Clock(), MemoryNetwork()
        self.reasons: list[str] = []
        self.splice = Splice(self.clock, self.reasons.append, drain_seconds=30)
        self.relayed: list[MemoryTransport] = []
        self.sides = {}
        for name, end in (("user", self.splice.user), ("machine", self.splice.machine)):
            taker = Taker()
            ours, theirs = self.network.join(end, taker, encrypted[name])
            self.relayed.append(ours)
            self.sides[name] = _Side(taker, theirs)

    def turn(self, times: int) -> None:
        for _ in range(times):
            for each in list(self.network.transports):
                each.step(20000)
            for each in self.relayed:
                # One buffer, and the reads that were on their way when it filled.
                self.assertLessEqual(len(each.queued), (64 << 10) + 2 * 20000)

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(ACTIONS, max_size=25),
        st.fixed_dictionaries({"user": st.booleans(), "machine": st.booleans()}),
        st.sampled_from(["user", "machine"]),
    )
    def test_any_order(
        self,
        actions: list[tuple[str, str, int, int]],
        encrypted: dict[str, bool],
        last: str,
    ) -> None:
        """
        Bytes are never changed or reordered, buffers stay small, and the splice ends once,
        even if the other end neither reads nor closes.
        """
        self.start(encrypted)
        for who, action, amount, turns in actions:
            if action == "half" and encrypted[who]:
                continue
            self.sides[who].act(action, amount)
            self.turn(turns)
        for side in self.sides.values():
            side.act("resume", 0)
        self.network.pump(20000)
        user, machine = self.sides["user"], self.sides["machine"]
        ways = [(user, machine), (machine, user)]
        for source, sink in ways:
            got = b"".join(sink.taker.received)
            self.assertTrue(source.sent.startswith(got))
            if source.done != "abort" and not sink.done:
                self.assertEqual(len(got), len(source.sent))
        survivor = "machine" if last == "user" else "user"
        self.sides[survivor].act("pause", 0)
        self.sides[last].act("close", 0)
        for _ in range(3):
            self.network.pump(20000)
            self.clock.advance(31)
        if not any(encrypted.values()):
            # Between sockets a close may be a half-close: the survivor decides.
            self.sides[survivor].act("resume", 0)
            self.network.pump(20000)
        if user.done == machine.done == "close":
            # Each may wait for the other to read what it sent before.  A kernel
            # gives such orphans up after some minutes.
            user.transport.abortConnection()
            self.network.pump(20000)
            self.clock.advance(31)
            self.network.pump(20000)
        self.assertEqual(len(self.reasons), 1)
        self.assertFalse(any(each.connected for each in self.relayed))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class Relay(Factory):
    """Splices every connection to one of its own."""

    noisy = False

    def __init__(self, backend: IStreamClientEndpoint, drain_seconds: float) -> None:
        self._backend, self._drain_seconds = backend, drain_seconds
        self.splices: list[Splice] = []
        self.ended: list[str] = []

    def buildProtocol(self, address: object) -> Protocol:
        splice = Splice(reactor, self.ended.append, drain_seconds=self._drain_seconds)
        self.splices.append(splice)
        self._backend.connect(Factory.forProtocol(lambda: splice.machine))
        return splice.user


class Backend(Taker):
    """The machine's end of a test."""


class SocketTests(PlacesTestCase):
    """A splice between real sockets, in every order of death."""

    drain_seconds = 10.0

    async def start(self, front: str, back: str) -> None:
        """One user, one relay, one backend."""
        self.backend = Backend()
        backend = await self.listen(back, Factory.forProtocol(lambda: self.backend))
        self.relay = Relay(backend, self.drain_seconds)
        relay = await self.listen(front, self.relay)
        self.user = Taker()
        await connectProtocol(relay, self.user)
        await self.until(lambda: self.backend.transport and self.relay.splices[0].user.joined)

    async def finish(self, reason: str) -> None:
        await self.until(lambda: self.relay.ended and self.user.lost and self.backend.lost)
        self.assertEqual(self.relay.ended, [reason])

    async def both_ways(self, front: str, back: str) -> None:
        """A few MiB each way at once, checked by hash; then a clean end."""
        await self.start(front, back)
        data = bytes(range(256)) * 4096 * 3
        sent = hashlib.sha256(data).digest()
        for here in (self.user, self.backend):
            here.transport.write(data)
        await self.until(lambda: min(self.user.size, self.backend.size) == len(data))
        for here in (self.user, self.backend):
            self.assertEqual(hashlib.sha256(b"".join(here.received)).digest(), sent)
        self.user.transport.loseConnection()
        await self.finish("client closed")

    async def tail(self, front: str, back: str) -> None:
        """The backend writes much and closes at once; a slow user receives all of it."""
        await self.start(front, back)
        self.user.transport.pauseProducing()
        size = 6 << 20
        self.backend.transport.write(b"x" * size)
        close_behind(self.backend.transport)
        for _ in range(200):
            await self.turn()
        self.user.transport.write(b"a ping that nobody reads")
        self.user.transport.resumeProducing()
        await self.until(lambda: self.user.lost)
        self.assertEqual(self.user.size, size)
        await self.finish("backend closed")

    async def user_resets(self, front: str, back: str) -> None:
        """The user resets while the backend reads nothing; both connections end."""
        await self.start(front, back)
        self.backend.transport.pauseProducing()
        self.user.transport.write(b"x" * (1 << 20))
        for _ in range(50):
            await self.turn()
        self.user.transport.abortConnection()
        self.backend.transport.resumeProducing()
        await self.until(lambda: self.relay.ended and self.backend.lost)
        self.assertIn(self.relay.ended, (["client lost"], ["client closed"]))

    async def backend_resets(self, front: str, back: str) -> None:
        """The backend resets while the user reads nothing."""
        await self.start(front, back)
        self.user.transport.pauseProducing()
        self.backend.transport.write(b"x" * (1 << 20))
        for _ in range(50):
            await self.turn()
        self.backend.transport.abortConnection()
        self.user.transport.resumeProducing()
        await self.until(lambda: self.relay.ended and self.user.lost)

    async def half_close(self, front: str, back: str) -> None:
        """The user ends its input; the backend's answer, much later, still comes."""
        await self.start(front, back)
        self.backend.readConnectionLost = self._answer_late  # type: ignore[method-assign]
        self.user.transport.write(b"question")
        self.user.transport.loseWriteConnection()
        await self.until(lambda: self.user.lost)
        self.assertEqual(b"".join(self.backend.received), b"question")
        self.assertEqual(self.user.size, 1 << 20)
        await self.finish("client closed")

    def _answer_late(self) -> None:
        def answer() -> None:
            self.backend.transport.write(b"a" * (1 << 20))
            self.backend.transport.loseConnection()

        reactor.callLater(0.02, answer)  # type: ignore[attr-defined]

    async def memory(self, front: str, back: str) -> None:
        """A user who does not read stops the backend; little is kept between them."""
        await self.start(front, back)
        self.user.transport.pauseProducing()
        producer = Endless(self.backend.transport)
        await self.until(lambda: producer.paused)
        splice = self.relay.splices[0]
        self.assertLess(queued(splice.user.transport), 256 << 10)
        passed = splice.bytes_to_user
        for _ in range(50):
            await self.turn()
        self.assertEqual(splice.bytes_to_user, passed)
        producer.stopProducing()
        self.user.transport.resumeProducing()
        await self.until(lambda: self.user.size == producer.written)
        self.backend.transport.loseConnection()
        await self.finish("backend closed")

    async def paused_user(self, front: str, back: str) -> None:
        """Nothing that a paused user types arrives, even when the backend reads again."""
        await self.start(front, back)
        splice, size = self.relay.splices[0], 16 << 20  # more than the kernel buffers
        self.backend.transport.pauseProducing()
        self.user.transport.write(b"x" * size)
        for _ in range(100):
            await self.turn()
        splice.pause_user()
        passed = splice.bytes_to_machine
        self.assertLess(passed, size)
        self.backend.transport.resumeProducing()
        await self.until(lambda: self.backend.size == passed)
        for _ in range(50):
            await self.turn()
        self.assertEqual(self.backend.size, passed)
        splice.resume_user()
        await self.until(lambda: self.backend.size == size)
        splice.pause_user()
        self.user.transport.write(b"typed behind the end")
        splice.cut("Revoked")
        await self.finish("Revoked")
        self.assertEqual(self.backend.size, size)

    async def turn(self) -> None:
        done: Deferred[None] = Deferred()
        reactor.callLater(0, done.callback, None)  # type: ignore[attr-defined]
        await done

    async def deaths(self, front: str, back: str) -> None:
        """Sessions that die in every order leave nothing behind."""
        deaths = ["loseConnection", "abortConnection"]
        await self.turn()
        before = reactor.getReaders()  # type: ignore[attr-defined]
        for how in deaths:
            for first in ("user", "backend", "both"):
                await self.start(front, back)
                for name in ("user", "backend"):
                    if first in (name, "both"):
                        getattr(getattr(self, name).transport, how)()
                await self.until(lambda: self.relay.ended and self.user.lost and self.backend.lost)
                self.assertEqual(len(self.relay.ended), 1)

        def left() -> list[Any]:
            readers = reactor.getReaders()  # type: ignore[attr-defined]
            new = [each for each in readers if each not in before]
            return [each for each in new if not IListeningPort.providedBy(each)]

        # Not a number: connections of an earlier test may end meanwhile.
        await self.until(lambda: not left())


class Endless(Protocol):
    """Writes without end, as long as it is let."""

    def __init__(self, transport: Any) -> None:
        self.to, self.paused, self.stopped, self.written = transport, False, False, 0
        transport.registerProducer(self, True)
        self._write()

    def _write(self) -> None:
        if not self.paused and not self.stopped:
            self.to.write(b"x" * 32768)
            self.written += 32768
            reactor.callLater(0, self._write)  # type: ignore[attr-defined]

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        if self.paused:
            self.paused = False
            self._write()

    def stopProducing(self) -> None:
        self.stopped = True
        self.to.unregisterProducer()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.stopped = True


def queued(transport: Any) -> int:
    """Return the number of bytes in a transport's own buffers."""
    socket: Any = socket_transport(transport)
    return len(socket.dataBuffer) - socket.offset + socket._tempDataLen


def _matrix() -> None:
    pairs = [("tcp", "tcp"), ("tls", "tls"), ("tls", "unix"), ("unix", "tcp"), ("tcp", "tls")]
    for front, back in pairs:
        names = [
            "both_ways",
            "tail",
            "user_resets",
            "backend_resets",
            "memory",
            "deaths",
            "paused_user",
        ]
        if "tls" not in (front, back):
            names.append("half_close")
        for name in names:
            act: Any = getattr(SocketTests, name)

            def test(
                self: SocketTests, act: Any = act, front: str = front, back: str = back
            ) -> Deferred[None]:
                return Deferred.fromCoroutine(act(self, front, back))

            test.__doc__ = f"{front} to {back}: {act.__doc__}"
            setattr(SocketTests, f"test_{front}_{back}_{name}", test)


_matrix()

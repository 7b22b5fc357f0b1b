"""
Tests for :mod:`twisted_exec.streaming.rejoin.splice`, with the transport at the machine's end: both ends of a stream
whose middle is lost.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Conflict
from twisted_exec.streaming.rejoin.splice import KEPT_BYTES
from twisted_exec.streaming.rejoinable_transport import (
    MOST_KEPT_BYTES,
    PING_BYTES,
    RejoinableTransport,
    TransportLife,
)
from twisted_exec.testing.network import MemoryNetwork
from twisted_exec.wire.channel import V5
from twisted_exec.wire.endings import INTERNAL, Ending, decode_ending

from .support import WAIT_SECONDS, Chain, Peer, frame

LOST = Ending(INTERNAL, "the machine's runtime did not come back")


class LossTests(SynchronousTestCase):
    """The connection in the middle is lost."""

    def setUp(self) -> None:
        self.chain = Chain()

    def test_both_directions(self) -> None:
        """What was on its way arrives once, over the new connection."""
        chain = self.chain
        chain.user.transport.write(b"date\n")
        chain.machine.transport.write(frame(b"\x01$ "))
        chain.network.pump()
        chain.user.transport.write(b"lost keys\n")
        chain.machine.transport.write(frame(b"\x01lost output"))
        chain.cut()
        self.assertEqual(chain.losses, 1)
        self.assertFalse(chain.splice.has_machine)
        self.assertIsNone(chain.machine.lost)
        chain.machine.transport.write(frame(b"\x01more"))
        chain.user.transport.write(b"later\n")
        chain.rejoin()
        chain.network.pump()
        self.assertEqual(chain.machine.got, b"date\nlost keys\nlater\n")
        expected = frame(b"\x01$ ") + frame(b"\x01lost output") + frame(b"\x01more")
        self.assertEqual(chain.user.got, expected)
        self.assertEqual(chain.splice.bytes_to_user, len(expected))
        self.assertEqual(chain.ends, [])

    def test_newest_connection_counts(self) -> None:
        """A connection that the machine's end still thinks alive is replaced."""
        chain = self.chain
        old = chain.middle
        old[0].abortConnection()  # the near end alone knows
        chain.user.transport.write(b"x")
        chain.rejoin()
        chain.network.pump()
        self.assertFalse(old[1].connected)
        self.assertEqual(chain.machine.got, b"x")
        self.assertIsNone(chain.machine.lost)

    def test_not_in_time(self) -> None:
        """After its wait the stream is over, and the user reads the reason."""
        chain = self.chain
        chain.machine.transport.write(frame(b"\x01$ "))
        chain.network.pump()
        chain.cut()
        chain.clock.advance(WAIT_SECONDS)
        self.assertEqual(chain.over, [True])
        self.assertIsNotNone(chain.machine.lost)
        with self.assertRaises(Conflict):
            chain.stream.check(0)
        chain.splice.give_up(LOST)
        chain.network.pump()
        status = chain.user.got.partition(frame(b"\x01$ "))[2]
        document = status[status.index(b"{") : status.rindex(b"}") + 1]
        self.assertEqual(decode_ending(document, V5), LOST)
        self.assertIsNotNone(chain.user.lost)
        self.assertEqual(chain.ends, [INTERNAL])

    def test_shorter_wait(self) -> None:
        """A session that has ended waits less, also if its connection is lost already."""
        for is_lost in (True, False):
            chain = Chain()
            chain.network.pump()
            if is_lost:
                chain.cut()
            chain.stream.wait_at_most(5)
            if not is_lost:
                chain.cut()
            chain.clock.advance(4.9)
            self.assertEqual(chain.over, [])
            chain.clock.advance(0.2)
            self.assertEqual(chain.over, [True])

    def test_user_leaves_meanwhile(self) -> None:
        """The splice ends, and cannot be rejoined."""
        chain = self.chain
        chain.network.pump()
        chain.cut()
        chain.user.transport.abortConnection()
        chain.splice.user.transport.resumeProducing()
        chain.network.pump()
        self.assertEqual(chain.ends, ["client closed"])
        self.assertFalse(chain.splice.can_rejoin(0))

    def test_user_lost(self) -> None:
        """The machine's end learns that the user has left before its own connection ends."""
        chain = self.chain
        chain.network.pump()
        chain.user.transport.abortConnection()
        chain.network.pump()
        self.assertEqual((chain.leaves, chain.ends), (1, []))
        self.assertTrue(chain.middle[1].connected)
        chain.splice.left()
        chain.network.pump()
        self.assertFalse(chain.middle[1].connected)
        self.assertEqual(chain.ends, ["client closed"])
        chain.splice.left()

    def test_user_lost_behind_status(self) -> None:
        """A client that leaves at the end of the session is not reported."""
        chain = self.chain
        chain.machine.transport.write(frame(b'\x03{"status":"Success"}'))
        chain.network.pump()
        chain.user.transport.abortConnection()
        chain.network.pump()
        self.assertEqual((chain.leaves, chain.ends), (0, ["client lost"]))

    def test_session_ended(self) -> None:
        """A connection that is lost behind the status is the end."""
        chain = self.chain
        chain.machine.transport.write(frame(b'\x03{"status":"Success"}'))
        chain.network.pump()
        chain.cut()
        self.assertEqual(chain.losses, 0)
        self.assertEqual(chain.ends, ["backend lost"])

    def test_cut_while_waiting(self) -> None:
        """A hop that ends the session does not wait for the machine."""
        chain = self.chain
        chain.network.pump()
        chain.cut()
        chain.splice.cut("cut")
        chain.network.pump()
        self.assertEqual(chain.ends, ["cut"])
        self.assertFalse(chain.splice.can_rejoin(0))

    def test_input_after_the_end(self) -> None:
        """What a user still sends, whose hop has given up or ended the session, is not kept."""
        for is_cut in (False, True):
            chain = Chain()
            chain.network.pump()
            chain.cut()
            if is_cut:
                chain.splice.cut("cut")
            else:
                chain.splice.give_up(LOST)
            chain.user.transport.write(b"keys")
            chain.network.pump()
            self.assertEqual(chain.splice.user.received, 4)
            self.assertEqual(chain.splice.user._early, [])

    def test_severed(self) -> None:
        """A hop that does not end the session does not keep the reason from the user."""
        chain = self.chain
        chain.machine.transport.write(frame(b"\x01$ "))
        chain.network.pump()
        chain.splice.sever_with(LOST)
        chain.network.pump()
        self.assertIn(LOST.message.encode(), chain.user.got)
        self.assertEqual(chain.losses, 0)
        self.assertEqual(chain.ends, [INTERNAL])
        self.assertFalse(chain.middle[0].connected)

    def test_severed_within_a_message(self) -> None:
        """No message goes into another one."""
        chain = self.chain
        chain.machine.transport.write(frame(b"\x01output")[:-1])
        chain.network.pump()
        chain.splice.sever_with(LOST)
        chain.network.pump()
        self.assertEqual(chain.user.got, frame(b"\x01output")[:-1])
        self.assertEqual(chain.ends, [INTERNAL])

    def test_user_told_first(self) -> None:
        """The user learns the reason at once; the machine's connection stays until its end closes it."""
        chain = self.chain
        chain.machine.transport.write(frame(b"\x01$ "))
        chain.network.pump()
        chain.splice.tell_user(LOST)
        chain.network.pump()
        self.assertIn(LOST.message.encode(), chain.user.got)
        told = chain.user.got
        chain.user.transport.loseConnection()
        chain.machine.transport.write(frame(b"\x01more"))
        chain.network.pump()
        self.assertEqual(chain.user.got, told)
        self.assertEqual((chain.ends, chain.leaves), ([], 0))
        self.assertTrue(chain.middle[0].connected)
        chain.machine.transport.write(frame(b"\x03\x88") + frame(b"", 8))
        chain.machine.transport.unregisterProducer()
        chain.machine.transport.loseConnection()
        chain.network.pump()
        self.assertEqual((chain.ends, chain.losses), ([INTERNAL], 0))

    def test_user_told_within_a_message(self) -> None:
        """The reason follows the message."""
        chain = self.chain
        message = frame(b"\x01output")
        chain.machine.transport.write(message[:-1])
        chain.network.pump()
        chain.splice.tell_user(LOST)
        chain.network.pump()
        self.assertEqual(chain.user.got, message[:-1])
        chain.machine.transport.write(message[-1:] + frame(b"\x01more"))
        chain.network.pump()
        self.assertTrue(chain.user.got.startswith(message))
        self.assertIn(LOST.message.encode(), chain.user.got)
        self.assertNotIn(b"more", chain.user.got)
        self.assertTrue(chain.middle[0].connected)

    def test_user_told_and_severed(self) -> None:
        """A machine's end that does not close the connection loses it."""
        chain = self.chain
        chain.splice.tell_user(LOST)
        chain.user.transport.loseConnection()
        chain.network.pump()
        chain.splice.sever_with(LOST)
        chain.network.pump()
        self.assertEqual((chain.ends, chain.losses), ([INTERNAL], 0))
        self.assertFalse(chain.middle[0].connected)

    def test_twice(self) -> None:
        """The connection may be lost again, also before anything came over it."""
        chain = self.chain
        for count in range(3):
            chain.user.transport.write(b"%d" % count)
            chain.machine.transport.write(frame(b"\x01%d" % count))
            chain.cut()
            chain.rejoin()
        chain.network.pump()
        self.assertEqual(chain.machine.got, b"012")
        self.assertEqual(chain.user.got, b"".join(frame(b"\x01%d" % count) for count in range(3)))
        self.assertEqual(chain.losses, 3)

    def test_closed_by_protocol(self) -> None:
        """A stream that its protocol closes does not wait."""
        chain = self.chain
        chain.machine.transport.write(frame(b"\x03\x88") + frame(b"", 8))
        chain.machine.transport.unregisterProducer()
        chain.machine.transport.loseConnection()
        chain.network.pump()
        self.assertEqual(chain.over, [True])
        self.assertIsNotNone(chain.machine.lost)
        self.assertEqual(chain.clock.getDelayedCalls(), [])

    def test_closed_by_protocol_meanwhile(self) -> None:
        """Without a connection, closing ends the stream."""
        for close in ("loseConnection", "loseWriteConnection", "abortConnection"):
            chain = Chain()
            chain.network.pump()
            chain.cut()
            getattr(chain.machine.transport, close)()
            chain.clock.advance(0)
            self.assertIsNotNone(chain.machine.lost, close)

    def test_closed_and_rejoined(self) -> None:
        """A closed stream sends what is missing over the new connection, and closes it."""
        status = frame(b"\x03\x88")
        for close, expected, cuts in (
            ("loseConnection", status, (False, True)),
            ("loseWriteConnection", status, (False, True)),
            ("abortConnection", b"", (True,)),
        ):
            for is_cut in cuts:
                chain = Chain()
                if is_cut:
                    chain.network.pump()
                    chain.cut()
                chain.machine.transport.write(status)
                chain.machine.transport.unregisterProducer()
                getattr(chain.machine.transport, close)()
                far, late = chain.stream.rejoin(0), Peer()
                chain.network.join(late, far)
                chain.network.pump()
                chain.clock.advance(0)
                self.assertEqual(late.got, expected, (close, is_cut))
                late.transport.loseConnection()
                chain.network.pump()
                self.assertEqual((chain.over, chain.stream.life), ([True], TransportLife.OVER))
                self.assertFalse(late.transport.connected, (close, is_cut))
                self.assertEqual(chain.clock.getDelayedCalls(), [])

    def test_paused_reader_stays_paused(self) -> None:
        """A protocol that has paused reading gets nothing over the new connection."""
        chain = self.chain
        chain.network.pump()
        chain.machine.transport.pauseProducing()
        chain.cut()
        chain.user.transport.write(b"x")
        chain.rejoin()
        chain.network.pump()
        self.assertEqual(chain.machine.got, b"")
        chain.machine.transport.resumeProducing()
        chain.network.pump()
        self.assertEqual(chain.machine.got, b"x")


class BoundsTests(SynchronousTestCase):
    """What is kept is bounded."""

    def setUp(self) -> None:
        self.chain = Chain()
        self.chain.network.pump()

    def test_far_behind(self) -> None:
        """A client that answers no ping is not paused, and its stream cannot go on from long ago."""
        chain = self.chain
        for _ in range(2 * MOST_KEPT_BYTES // 50_000):
            chain.machine.transport.write(frame(b"\x01" + bytes(50_000)))
            chain.network.pump()
        self.assertFalse(chain.machine.paused)
        with self.assertRaises(Conflict):
            chain.stream.check(0)
        chain.stream.check(chain.splice.machine.received)

    def test_asked(self) -> None:
        """The client is asked in time; what it has received is not kept."""
        chain, pings = self.chain, []

        def ping() -> bool:
            pings.append(True)
            return True

        chain.stream.ping = ping
        chain.machine.transport.write(bytes(PING_BYTES - 1))
        self.assertEqual(len(pings), 0)
        chain.machine.transport.write(bytes(PING_BYTES))
        self.assertEqual(len(pings), 1)
        chain.machine.transport.write(bytes(PING_BYTES))
        self.assertEqual(len(pings), 1)
        chain.stream.check(0)
        chain.stream.answered()
        with self.assertRaises(Conflict):
            chain.stream.check(0)
        chain.machine.transport.write(b"x")
        self.assertEqual(len(pings), 2)

    def test_some_answers(self) -> None:
        """A client that answers only some pings, and slowly, is never stopped by that."""
        chain = self.chain
        chain.stream.ping = lambda: True
        for turn in range(3 * MOST_KEPT_BYTES // 50_000):
            chain.machine.transport.write(frame(b"\x01" + bytes(50_000)))
            chain.stream.keep_alive()
            chain.network.pump()
            if turn % 7 == 0:
                chain.stream.answered()
            self.assertFalse(chain.machine.paused)

    def test_never_answered(self) -> None:
        """A client that answers no ping gets a few."""
        pings: list[bool] = []

        def ping() -> bool:
            pings.append(True)
            return True

        self.chain.stream.ping = ping
        for _ in range(100):
            self.chain.stream.keep_alive()
        self.assertEqual(len(pings), 16)

    def test_unknown_offsets(self) -> None:
        """Nobody has received more than was sent."""
        with self.assertRaises(Conflict):
            self.chain.stream.check(1)
        self.chain.cut()
        self.assertFalse(self.chain.splice.can_rejoin(1))

    def test_user_typed_too_much(self) -> None:
        """The user's bytes are kept up to a limit."""
        chain = self.chain
        for _ in range(2 * KEPT_BYTES // 50_000):
            chain.user.transport.write(frame(bytes(50_000)))
            chain.network.pump()
        chain.cut()
        self.assertFalse(chain.splice.can_rejoin(0))
        self.assertTrue(chain.splice.can_rejoin(chain.stream.received))

    def test_nothing_kept_without_wait(self) -> None:
        """A stream that does not wait ends with its connection."""
        machine = Peer()
        stream = RejoinableTransport(machine, Clock(), 0)
        network = MemoryNetwork()
        near, _ = network.join(Peer(), stream.connection())
        machine.transport.write(b"x")
        near.abortConnection()
        network.pump()
        self.assertIsNotNone(machine.lost)


_ACTS = st.lists(
    st.sampled_from(["type", "print", "cut", "rejoin", "pump", "step", "pong", "print much"]),
    max_size=60,
)


class AnyOrderTests(SynchronousTestCase):
    """Whatever happens in whatever order: each byte arrives once."""

    @given(acts=_ACTS, encrypted=st.booleans(), chunk=st.sampled_from([1, 7, 1000, 1 << 16]))
    def test_exact(self, acts: list[str], encrypted: bool, chunk: int) -> None:
        chain = Chain(encrypted)
        typed = printed = b""
        chain.stream.ping = lambda: True
        for number, act in enumerate(acts):
            if act == "type":
                keys = b"<%d>" % number
                typed += keys
                chain.user.transport.write(keys)
            elif act.startswith("print") and not chain.machine.paused:
                output = frame(b"\x01[%d]" % number * (2000 if act == "print much" else 1))
                printed += output
                chain.machine.transport.write(output)
            elif act == "cut":
                chain.cut()
            elif act == "rejoin" and not chain.splice.has_machine:
                chain.rejoin()
            elif act == "pump":
                chain.network.pump(max(chunk, 100))
            elif act == "step":
                for transport in list(chain.network.transports):
                    transport.step(chunk)
            elif act == "pong" and chain.user.got == printed:
                chain.stream.answered()
        if not chain.splice.has_machine:
            chain.rejoin()
        chain.network.pump()
        self.assertEqual(chain.machine.got, typed)
        self.assertEqual(chain.user.got, printed)
        self.assertEqual(chain.ends, [])

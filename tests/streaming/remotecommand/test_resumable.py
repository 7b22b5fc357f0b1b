"""Tests for :mod:`twisted_exec.streaming.remotecommand.resumable`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.streaming.frames import BytesMessage, CloseConnection, Peer, Ping, Pong
from tests.streaming.remotecommand.serving import NOON, LoneSession, ServeTestCase
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    RESTARTING,
    SHUTTING_DOWN,
    Break,
    Ending,
    IMarkTransport,
    IResumableAttachment,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.resumable import Acknowledgements, Resumption
from twisted_exec.streaming.remotecommand.server import READ_ONLY
from twisted_exec.testing.console import ResumableAttachment
from twisted_exec.wire.marks import Ack, At, EchoTime, Mark, MarkDecoder, Notice
from twisted_exec.wire.resize import Message, encode_message, encode_size, encode_wish
from twisted_exec.wire.resume import Position, Resumable
from twisted_exec.wire.session_terms import Right, Terms

KEY = "k" * 43
EPOCH = ResumableAttachment.epoch


class AcknowledgementTests(SynchronousTestCase):
    """When a client learns how much of its input is settled."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.marks: list[Mark] = []
        self.acks = Acknowledgements(self.clock, self.marks.append, 0)
        self.clock.advance(10)

    def test_burst(self) -> None:
        """A burst is acknowledged once, soon after its beginning."""
        for count in (1, 2, 3):
            self.acks.settled(count)
        self.clock.advance(0.049)
        self.assertEqual(self.marks, [])
        self.clock.advance(0.002)
        self.assertEqual(self.marks, [Ack(3)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_typing(self) -> None:
        """Somebody who types all the time gets one mark a second, and never has two timers."""
        for count in range(1, 101):  # for 10 s
            self.acks.settled(count)
            self.assertLessEqual(len(self.clock.getDelayedCalls()), 1)
            self.clock.advance(0.1)
        self.clock.advance(1)
        self.assertLessEqual(len(self.marks), 11)
        self.assertEqual(self.marks[-1], Ack(100))

    def test_much(self) -> None:
        """Each 4 KiB are acknowledged at once, and the rest within a second."""
        for count in range(1000, 21_000, 1000):
            self.acks.settled(count)
        self.assertEqual(self.marks, [Ack(5000), Ack(10_000), Ack(15_000), Ack(20_000)])
        self.acks.settled(20_001)
        self.clock.advance(1)
        self.assertEqual(self.marks[4:], [Ack(20_001)])

    def test_blocked(self) -> None:
        """While the client does not read, nothing is sent; afterwards one mark is."""
        self.acks.settled(1)
        self.acks.set_blocked(True)
        for count in range(1000, 100_000, 1000):
            self.acks.settled(count)
        self.clock.advance(5)
        self.assertEqual(self.marks, [])
        self.acks.set_blocked(False)
        self.assertEqual(self.marks, [Ack(99_000)])
        self.acks.set_blocked(True)
        self.acks.set_blocked(False)
        self.assertEqual((len(self.marks), self.clock.getDelayedCalls()), (1, []))

    def test_stop(self) -> None:
        """After the end nothing is sent, and no timer is left."""
        self.acks.settled(1)
        self.acks.stop()
        self.acks.set_blocked(False)
        self.clock.advance(5)
        self.assertEqual((self.marks, self.clock.getDelayedCalls()), ([], []))


class ResumableCase(ServeTestCase):
    """A session whose client can resume."""

    attachment: ResumableAttachment

    def setUp(self) -> None:
        self.clock = Clock()
        self.attach(ResumableAttachment())
        self.serving.resumption = self.resumption()

    def resumption(self, **more: Any) -> Resumption:
        return Resumption(Resumable(KEY, 60), LoneSession(self.attachment), **more)

    def open(self, query: bytes = b"", **resumption: Any) -> Peer:
        """Connect, and return a client that has seen the first marks."""
        if resumption:
            self.serving.resumption = self.resumption(**resumption)
        peer = Peer(self.server, query=query)
        self.assertIn(b"101 Switching Protocols", peer.head)
        return peer

    def heard(self, peer: Peer) -> list[object]:
        """Return marks, output as bytes, and other events since the last call."""
        marks, heard = MarkDecoder(), list[object]()
        for event in peer.events():
            if not isinstance(event, BytesMessage):
                heard.append(event)
            elif event.data[0] == 4:
                heard.extend(marks.feed(bytes(event.data[1:])))
            elif event.data[1:]:
                heard.append(bytes(event.data[1:]))
        return heard

    def acknowledged(self, peer: Peer) -> int | None:
        """Return the count of the last mark Ack that the client has got by now."""
        self.clock.advance(1)
        acks = [each for each in self.heard(peer) if isinstance(each, Ack)]
        return acks[-1].count if acks else 0


class BeginningTests(ResumableCase):
    """The beginning of a stream."""

    def test_new(self) -> None:
        """The 101 has the key; Ack comes first, then a ping, At, and output. The answer shows that the client has the key."""
        self.attachment.output = b"login: "
        peer = self.open()
        (value,) = [
            line.partition(b": ")[2].decode()
            for line in peer.head.split(b"\r\n")
            if line.startswith(b"X-Twisted-Exec-Resume:")
        ]
        self.assertEqual(Resumable.parse(value), Resumable(KEY, 60))
        ack, ping, *rest = self.heard(peer)
        self.assertEqual((ack, rest), (Ack(0), [At(Position(EPOCH, 0)), b"login: "]))
        self.assertIsInstance(ping, Ping)
        verifyObject(IMarkTransport, self.attachment.transport)
        verifyObject(IResumableAttachment, self.attachment)
        self.assertEqual(self.attachment.events, [])
        peer.say(Pong(b""))
        self.assertEqual(self.attachment.events, ["heard"])

    def test_resumed(self) -> None:
        """A resumed stream continues both counts, and is pinged to learn that the client is there."""
        self.attachment.output = b"login: "
        peer = self.open(position=Position(EPOCH, 3), settled=17)
        ack, ping, *rest = self.heard(peer)
        self.assertEqual((ack, rest), (Ack(17), [At(Position(EPOCH, 3)), b"in: "]))
        self.assertIsInstance(ping, Ping)
        self.assertEqual(self.attachment.events, ["resumed"])
        peer.say(Pong(b""))
        self.assertEqual(self.attachment.events, ["resumed", "heard", "answered"])
        peer.send(b"\0ab")
        self.assertEqual(self.attachment.transport.settled, 19)
        self.assertEqual(self.acknowledged(peer), 19)
        self.assertEqual(self.attachment.events, ["resumed", "heard", "answered"])

    def test_echo(self) -> None:
        """A client learns how fast the machine answers."""
        peer = self.open()
        self.heard(peer)
        self.attachment.transport.echoed(0.003)
        self.assertEqual(self.heard(peer), [EchoTime(3000)])

    def test_asked(self) -> None:
        """A question is answered once the client has read it, and not by an answer to an earlier ping."""
        peer = self.open()
        self.clock.advance(30)  # the ping that keeps the connection alive
        self.attachment.transport.ask()
        self.attachment.transport.ask()
        events = self.heard(peer)
        self.assertEqual(sum(isinstance(each, Ping) for each in events), 1)
        peer.say(Pong(b""))
        self.assertEqual(self.attachment.events, ["heard"])
        self.assertEqual([type(each) for each in self.heard(peer)], [Ping])
        peer.say(Pong(b""))
        peer.say(Pong(b""))
        self.assertEqual(self.attachment.events, ["heard", "answered"])
        self.attachment.transport.ask()
        self.assertEqual([type(each) for each in self.heard(peer)], [Ping])
        self.clock.advance(30)
        peer.say(Pong(b""))
        self.assertEqual(self.attachment.events, ["heard", "answered", "answered"])

    def test_unknown_count(self) -> None:
        """If nobody knows how much is settled, the client is told so, and counting begins anew."""
        peer = self.open(position=Position(EPOCH, 0), settled=None)
        self.assertEqual(self.heard(peer)[0], Ack(None))
        peer.send(b"\0ab")
        self.assertEqual(self.attachment.events, ["resumed", "heard"])
        self.assertEqual(self.acknowledged(peer), 2)

    def test_other_clients(self) -> None:
        """Without the request of the client there is no header and no mark."""
        self.serving.resumption = None
        peer = self.open()
        self.assertNotIn(b"resume", peer.head.lower())
        self.attachment.prints(b"x")
        peer.send(b"\0ab")
        self.clock.advance(2)
        self.assertEqual(peer.messages(), [b"\1", b"\1x"])
        self.assertFalse(IMarkTransport.providedBy(self.attachment.transport))
        peer.client.lose()
        self.assertEqual(self.attachment.events, [])
        self.assertEqual(len(self.attachment.detached_with), 1)


class SettledTests(ResumableCase):
    """What counts as settled input."""

    def test_pieces(self) -> None:
        """Each byte counts, and so does each BREAK, each role request and the end of input."""
        peer = self.open()
        peer.send(b"\0abc")
        peer.send(b"\4" + encode_wish(Break(), None))
        peer.send(b"\4" + encode_wish(Role.WRITER, None))
        peer.send(b"\4" + encode_size(TerminalSize(80, 24)))
        peer.send(b"\xff\0")
        self.assertEqual(self.attachment.transport.settled, 6)
        self.assertEqual(self.acknowledged(peer), 6)

    def test_message(self) -> None:
        """A message to other users does not count, for a client that sends it to an earlier release."""
        peer = self.open()
        peer.send(b"\0abc")
        peer.send(b"\4" + encode_message(Message("hello"), TerminalSize(80, 24)))
        self.assertEqual(self.attachment.messages, ["hello"])
        self.assertEqual(self.attachment.transport.settled, 3)

    def test_behind_the_end(self) -> None:
        """Input behind its end is discarded, and so it is settled."""
        peer = self.open()
        peer.send(b"\xff\0")
        peer.send(b"\0abc")
        peer.send(b"\4" + encode_wish(Break(), None))
        peer.send(b"\xff\0")
        self.assertEqual(self.acknowledged(peer), 5)
        self.assertEqual(self.attachment.received, b"")

    def test_waiting(self) -> None:
        """Input that waits for the machine is not settled, and stays unsettled at a loss."""
        peer = self.open()
        peer.send(b"\0abc")
        transport = self.attachment.transport
        transport.pause_input()
        peer.send(b"\0defg")
        self.assertEqual(transport.settled, 3)
        peer.client.lose()
        self.assertEqual(transport.settled, 3)
        self.assertEqual(self.attachment.received, b"abc")

    def test_dropped(self) -> None:
        """Input that is dropped with the right to drive, or refused without it, is settled."""
        peer = self.open()
        self.attachment.transport.pause_input()
        peer.send(b"\0abc")
        peer.send(b"\4" + encode_wish(Break(), None))
        assert self.serving.server is not None
        self.serving.server.hold_to(Terms(right=Right.OBSERVE))
        self.assertEqual(self.attachment.transport.settled, 4)
        peer.send(b"\0xy")
        self.assertEqual(self.acknowledged(peer), 6)
        self.assertIn("input refused", self.attachment.events)

    def test_read_only(self) -> None:
        """What an observer sends is settled, too; the notice about it is a mark."""
        peer = self.open(b"?readOnly=true&stdin=true&tty=true")
        self.heard(peer)
        peer.send(b"\0abc")
        peer.send(b"\4" + encode_wish(Break(), None))
        peer.send(b"\4" + encode_size(TerminalSize(80, 24)))
        self.assertEqual(self.heard(peer), [READ_ONLY])
        self.assertEqual(self.acknowledged(peer), 4)
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))

    def test_warning(self) -> None:
        """A warning about the time is a mark."""
        self.serving.terms = Terms(until=NOON + 100, policy="a/x")
        peer = self.open()
        self.heard(peer)
        self.clock.advance(91)
        (notice,) = [each for each in self.heard(peer) if isinstance(each, Notice)]
        self.assertTrue(notice.text.startswith("this session ends in 9s: "), notice)

    def test_client_that_does_not_read(self) -> None:
        """Acknowledgements do not pile up in memory."""
        peer = self.open()
        self.heard(peer)
        flow: Any = peer.client.transport.producer
        flow.pauseProducing()
        for _ in range(100):
            peer.send(b"\0" + b"x" * 5000)
        self.clock.advance(2)
        self.assertEqual(self.heard(peer), [])
        flow.resumeProducing()
        self.assertEqual(self.heard(peer), [Ack(500_000)])


class LossTests(ResumableCase):
    """The end of a connection."""

    def events(self) -> list[str]:
        return [each for each in self.attachment.events if each != "heard"]

    def ended(self) -> None:
        """Check that the attachment got one end, and that no timer is left."""
        self.clock.advance(60)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost(self) -> None:
        """A connection that ends without a Close is a loss."""
        peer = self.open()
        peer.send(b"\0a")
        peer.client.lose()
        self.assertEqual((self.events(), self.attachment.detached_with), (["away"], []))
        self.ended()

    def test_left(self) -> None:
        """A client that closes leaves for good."""
        peer = self.open()
        peer.say(CloseConnection(1000))
        peer.client.lose()
        self.assertEqual((self.events(), self.attachment.detached_with), ([], ["client closed"]))
        self.ended()

    def test_broken(self) -> None:
        """A client that breaks the protocol leaves for good."""
        peer = self.open()
        peer.send(b"\xff\1\1")
        peer.client.lose()
        self.assertEqual((self.events(), len(self.attachment.detached_with)), ([], 1))
        self.ended()

    def test_restart(self) -> None:
        """
        The client of a program that restarts reads which input the machine has got, and the reason; the session waits.
        """
        peer = self.open()
        peer.events()
        peer.send(b"\0abc")
        self.attachment.transport.pause_input()
        peer.send(b"\0de")
        assert self.serving.server is not None
        self.serving.server.end_by_hop(Ending(RESTARTING, "exec-runtime is restarting"))
        peer.send(b"\0f")
        ack, close = self.heard(peer)
        self.assertEqual(ack, Ack(3))
        assert isinstance(close, CloseConnection)
        self.assertEqual((close.code, close.reason), (1012, "exec-runtime is restarting"))
        self.assertEqual(self.attachment.received, b"abc")
        self.assertEqual((self.events(), self.attachment.detached_with), (["away"], []))
        peer.client.lose()
        self.ended()

    def test_restart_during_end(self) -> None:
        """A session that ends anyway is cut: its client comes back for the status."""
        peer = self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        assert self.serving.server is not None
        self.serving.server.end_by_hop(Ending(RESTARTING))
        self.assertTrue(peer.client.closed)
        self.assertEqual((self.events(), self.attachment.detached_with), (["away"], []))

    def test_ended_by_hop(self) -> None:
        """A session that was ended for another reason than the console's cannot be resumed."""
        peer = self.open()
        assert self.serving.server is not None
        self.serving.server.end_by_hop(Ending(SHUTTING_DOWN))
        peer.client.lose()
        self.assertEqual((self.events(), self.attachment.detached_with), ([], [SHUTTING_DOWN]))
        self.ended()

    def test_status_arrived(self) -> None:
        """A console that has ended is done when the client has answered its Close."""
        peer = self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        peer.events()
        peer.say(CloseConnection(1000))
        peer.client.lose()
        self.assertEqual((self.events(), self.attachment.detached_with), ([], [COMPLETED]))
        self.ended()

    def test_status_lost(self) -> None:
        """Until then the connection can be lost with the status, and the client come back for it."""
        peer = self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        peer.client.lose()
        self.assertEqual((self.events(), self.attachment.detached_with), (["away"], []))
        self.ended()
        again = self.open(position=Position(EPOCH, 0))
        self.attachment.transport.end(Ending(COMPLETED))
        *_, status, close = again.events()
        self.assertEqual(json.loads(status.data[1:])["status"], "Success")
        self.assertIsInstance(close, CloseConnection)

    def test_no_answer_to_close(self) -> None:
        """A client that does not answer the Close of the console can come back, too."""
        self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        self.clock.advance(15)
        self.assertEqual(self.events(), ["away"])
        self.ended()

    def test_producer(self) -> None:
        """A lost stream does not pace the attachment any more."""
        peer = self.open()
        transport = self.attachment.transport
        peer.client.lose()
        transport.write(b"nobody reads this")
        transport.end(Ending(COMPLETED))
        self.assertEqual(self.events(), ["away"])
        self.ended()

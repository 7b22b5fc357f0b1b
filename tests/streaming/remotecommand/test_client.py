"""Tests for :mod:`twisted_exec.streaming.remotecommand.client`."""

from __future__ import annotations

import base64
import re
from typing import Any

import wsproto
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from wsproto.connection import ConnectionType
from zope.interface import implementer

from tests.streaming.frames import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, LINE_LOST, Ending, TerminalSize
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import LOST, ConsoleClient, connect
from twisted_exec.testing.console import RecordingProducer, RecordingUser
from twisted_exec.wire import spdy
from twisted_exec.wire.endings import encode_status
from twisted_exec.wire.errors import LocalProtocolError
from twisted_exec.wire.marks import Ack, At, Mark, Notice
from twisted_exec.wire.resume import MARKS, Position, Resumable
from twisted_exec.wire.spdy import Data, FrameReader, FrameWriter, GoAway, RstStream, SynStream
from twisted_exec.wire.upgrade import accept_key

HEAD = UpgradeRequest(b"GET", b"/exec", b"server", [(b"Authorization", b"Bearer x")])


class _Transport(StringTransportWithDisconnection):
    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()


class Backend:
    """The server of one connection, driven by the test with wsproto."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.transport = _Transport()
        self.transport.protocol = protocol
        self.frames = wsproto.Connection(ConnectionType.SERVER)
        protocol.makeConnection(self.transport)

    @property
    def request(self) -> bytes:
        return self.transport.value()

    def subprotocol(self) -> bytes:
        found = re.search(rb"Sec-WebSocket-Protocol: (\S+)", self.request)
        assert found
        return found.group(1)

    def accept(
        self,
        more: bytes = b"",
        *,
        subprotocol: bytes | None = None,
        unnamed: bool = False,
        headers: bytes = b"",
    ) -> None:
        found = re.search(rb"Sec-WebSocket-Key: (\S+)", self.request)
        assert found
        if unnamed:
            named = b""
        else:
            chosen = self.subprotocol() if subprotocol is None else subprotocol
            named = b"Sec-WebSocket-Protocol: " + chosen + b"\r\n"
        self.transport.clear()
        self.raw(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Audit-Id: s-1\r\nSec-WebSocket-Accept: "
            + accept_key(found.group(1))
            + b"\r\n"
            + named
            + headers
            + b"\r\n"
            + more
        )

    def raw(self, data: bytes) -> None:
        self.transport.protocol.dataReceived(data)

    def frame(self, event: Any) -> bytes:
        data: bytes = self.frames.send(event)
        return data

    def send(self, message: bytes) -> None:
        self.raw(self.frame(BytesMessage(message)))

    def say(self, event: Any) -> None:
        self.raw(self.frame(event))

    def events(self) -> list[Any]:
        data = self.transport.value()
        self.transport.clear()
        if data:
            self.frames.receive_data(data)
        return list(self.frames.events())

    def messages(self) -> list[bytes]:
        events = self.events()
        assert all(isinstance(event, BytesMessage) for event in events), events
        return [bytes(event.data) for event in events]

    def lose(self, reason: Exception | None = None) -> None:
        if self.transport.connected:
            self.transport.connected = False
            self.transport.protocol.connectionLost(Failure(reason or ConnectionDone()))


@implementer(IStreamClientEndpoint)
class Backends:
    """An endpoint that keeps its connections' servers."""

    def __init__(self) -> None:
        self.all: list[Backend] = []

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        protocol = protocolFactory.buildProtocol(None)
        self.all.append(Backend(protocol))
        done: Deferred[Any] = Deferred()
        done.callback(protocol)
        return done


class ClientTestCase(SynchronousTestCase):
    """A user's end, connected to a server that the test drives."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Backends()
        self.user = RecordingUser()
        self.opening: Deferred[ConsoleClient] = connect(
            self.endpoint, HEAD, self.user, clock=self.clock, timeout_seconds=10
        )

    @property
    def backend(self) -> Backend:
        return self.endpoint.all[-1]

    def open(self, more: bytes = b"") -> ConsoleClient:
        self.backend.accept(more)
        return self.successResultOf(self.opening)


class ConnectTests(ClientTestCase):
    """Opening a console."""

    def test_request(self) -> None:
        """The request is a complete handshake, with what it was given."""
        lines = self.backend.request.split(b"\r\n")
        self.assertEqual(lines[0], b"GET /exec HTTP/1.1")
        for line in (
            b"Host: server",
            b"Authorization: Bearer x",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io",
        ):
            self.assertIn(line, lines)

    def test_open(self) -> None:
        """The user is attached, before anything comes."""
        frame = wsproto.Connection(ConnectionType.SERVER).send(BytesMessage(b"\x01hello"))
        client = self.open(frame)
        self.assertIs(self.user.stream, client)
        self.assertEqual(self.user.received, b"hello")
        self.assertEqual((client.session, client.can_half_close), ("s-1", True))

    def test_version_4(self) -> None:
        """A server that refuses version 5 is tried with version 4, on a new connection."""
        for refusal in ("bare 403", "other subprotocol", "none"):
            self.setUp()
            if refusal == "bare 403":
                self.backend.raw(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                self.backend.lose()
            else:
                chosen = b"v4.channel.k8s.io" if refusal.startswith("other") else b""
                self.backend.accept(subprotocol=chosen)
                self.assertTrue(self.endpoint.all[0].transport.aborted)
            self.assertEqual(len(self.endpoint.all), 2)
            self.assertEqual(self.backend.subprotocol(), b"v4.channel.k8s.io")
            client = self.open()
            self.assertFalse(client.can_half_close)
            with self.assertRaises(LocalProtocolError):
                client.end_input()

    def test_neither(self) -> None:
        """A server without a common protocol is an error."""
        self.backend.accept(subprotocol=b"channel.k8s.io")
        self.backend.accept(subprotocol=b"channel.k8s.io")
        self.backend.raw(
            b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v5.channel.k8s.io\r\n\r\n"
        )
        failure = self.failureResultOf(self.opening, BadGateway)
        self.assertIn("over SPDY that was not offered", failure.value.message)
        self.assertEqual(len(self.endpoint.all), 3)
        self.assertTrue(all(each.transport.aborted for each in self.endpoint.all))

    def test_last_word(self) -> None:
        """If all attempts are refused, the last refusal is reported."""
        for _ in range(2):
            self.backend.raw(b"HTTP/1.1 400 X\r\nContent-Length: 7\r\n\r\nupgrade")
        self.assertEqual(len(self.endpoint.all), 3)
        self.backend.raw(b"HTTP/1.1 400 X\r\nContent-Length: 4\r\n\r\nlast")
        error = self.failureResultOf(self.opening, APIError).value
        self.assertEqual((error.code, error.message), (400, "last"))

    def test_refused(self) -> None:
        """A Status of the server is the error; there is no second attempt."""
        body = b'{"kind":"Status","status":"Failure","code":404,"reason":"NotFound","message":"m"}'
        self.backend.raw(b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        error: APIError = self.failureResultOf(self.opening, APIError).value
        self.assertEqual((error.code, error.reason, error.message), (404, "NotFound", "m"))
        self.assertEqual(len(self.endpoint.all), 1)

    def test_bad_request(self) -> None:
        """A 400 that comes in a Status is about the request, not its protocol."""
        body = b'{"kind":"Status","status":"Failure","code":400,"message":"no pool"}'
        self.backend.raw(b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.failureResultOf(self.opening, APIError)
        self.assertEqual(len(self.endpoint.all), 1)

    def test_forbidden(self) -> None:
        """A 403 with a reason is not retried with another version."""
        self.backend.raw(b"HTTP/1.1 403 X\r\nContent-Length: 3\r\n\r\nno!")
        error = self.failureResultOf(self.opening, APIError).value
        self.assertEqual((error.code, error.message), (403, "no!"))

    def test_wrong_answers(self) -> None:
        """A 101 that does not answer this request is none."""
        head = (
            b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
        )
        for more in (b"", b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"):
            self.setUp()
            self.backend.raw(head + more + b"\r\n")
            self.failureResultOf(self.opening, BadGateway)
            self.assertTrue(self.backend.transport.aborted)

    def test_extension(self) -> None:
        """A server cannot use compression that was not offered."""
        self.backend.accept(subprotocol=b"v5.channel.k8s.io\r\nSec-WebSocket-Extensions: x")
        self.failureResultOf(self.opening, BadGateway)

    def test_cancel(self) -> None:
        """Cancelling closes the connection."""
        self.opening.cancel()
        self.failureResultOf(self.opening, CancelledError)
        self.assertTrue(self.backend.transport.aborted)

    def test_lost(self) -> None:
        """A connection lost before the answer is 502."""
        self.backend.lose()
        self.failureResultOf(self.opening, BadGateway)


class StreamTests(ClientTestCase):
    """Bytes, both ways."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.open()

    def test_input(self) -> None:
        """Input is sent on channel 0, in messages of at most 32 KiB; its end is signalled once."""
        self.client.write(b"x" * 40000)
        self.client.end_input()
        messages = self.backend.messages()
        self.assertEqual([len(message) for message in messages], [32769, 7233, 2])
        self.assertEqual({message[0] for message in messages[:2]}, {0})
        self.assertEqual(messages[2], b"\xff\0")

    def test_frames(self) -> None:
        """A frame of any length is read by others, though its mask is 0."""
        for length in (0, 125, 126, 0xFFFF, 0x10000):
            self.client.carrier.socket.send(b"x" * length)
            self.assertEqual(b"".join(self.backend.messages()), b"x" * length)

    def test_resize(self) -> None:
        """A size goes out on channel 4."""
        self.client.resize(TerminalSize(80, 24))
        self.assertEqual(self.backend.messages(), [b'\x04{"Width":80,"Height":24}\n'])

    def test_output(self) -> None:
        """Channels 1 and 2 are output; unknown channels are ignored."""
        for message in (b"\x01a", b"\x01", b"", b"\x02b", b"\x09x", b"\0x", b"\xff\x01", b"\xff"):
            self.backend.send(message)
        self.backend.say(TextMessage("\x01c"))
        self.assertEqual(self.user.received, b"abc")

    def test_paused(self) -> None:
        """Nothing is delivered between pause and resume, and the server is held back."""
        self.client.pause_output()
        self.assertEqual(self.backend.transport.producerState, "paused")
        self.backend.send(b"\x01one")  # read before the pause
        self.backend.send(b"\x01two")
        self.assertEqual(self.user.received, b"")
        self.client.resume_output()
        self.assertEqual(self.user.received, b"onetwo")
        self.assertEqual(self.backend.transport.producerState, "producing")

    def test_flow(self) -> None:
        """The user's producer is paced by the transport."""
        producer = RecordingProducer()
        self.client.registerProducer(producer, True)
        flow = self.backend.transport.producer
        flow.pauseProducing()
        late = RecordingProducer()
        self.client.registerProducer(late, True)
        flow.resumeProducing()
        self.assertEqual((producer.calls, late.calls), (["pause"], ["pause", "resume"]))
        self.client.unregisterProducer()
        flow.pauseProducing()
        self.assertEqual(len(late.calls), 2)

    def test_pings(self) -> None:
        """The server is pinged every 5 seconds."""
        for _ in range(20):
            self.clock.advance(5)
            (ping,) = self.backend.events()
            self.assertIsInstance(ping, Ping)
            self.backend.say(Pong())
        self.assertEqual(self.user.detached_with, [])

    def test_dead_server(self) -> None:
        """A server that answers no ping for 61 seconds is dead."""
        for _ in range(13):
            self.clock.advance(5)
        self.assertEqual(self.user.detached_with, [])
        for _ in range(2):
            self.clock.advance(5)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.user.detached_with, ["the server has not answered for 61 seconds"])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class MarkedUser(RecordingUser):
    """Records marks and output in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[bytes | Mark] = []

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.items.append(data)

    def mark_received(self, mark: Mark) -> None:
        self.items.append(mark)


class ResumableTests(ClientTestCase):
    """A connection of a session that can be resumed."""

    ANSWER = b"X-Twisted-Exec-Resume: key=" + b"k" * 43 + b"; seconds=60\r\n"
    FIRST_MARKS = b'\x04{"Ack":0}\n{"At":5,"Epoch":"00000000000000aa"}\n'

    def setUp(self) -> None:
        super().setUp()
        self.user: MarkedUser = MarkedUser()
        self.ask()

    def ask(self, resume: str = MARKS) -> None:
        self.opening.addErrback(lambda _: None).cancel()
        self.opening = connect(
            self.endpoint, HEAD, self.user, clock=self.clock, timeout_seconds=10, resume=resume
        )

    def answer(self) -> ConsoleClient:
        self.backend.accept(headers=self.ANSWER)
        return self.successResultOf(self.opening)

    def test_request(self) -> None:
        """The client asks over a WebSocket, and not over SPDY."""
        self.assertIn(b"\r\nX-Twisted-Exec-Resume: marks\r\n", self.backend.request)
        for _ in range(2):
            self.backend.raw(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        self.assertIn(b"SPDY", self.backend.request)
        self.assertNotIn(b"X-Twisted-Exec-Resume", self.backend.request)
        self.opening.cancel()
        self.failureResultOf(self.opening)

    def test_no_answer(self) -> None:
        """Without an answer the session is an ordinary one, and bytes on channel 4 are ignored."""
        client = self.open()
        self.assertIsNone(client.resumable)
        self.backend.send(self.FIRST_MARKS)
        self.backend.send(b"\x01out")
        self.assertEqual(self.user.items, [b"out"])

    def test_not_asked(self) -> None:
        """An answer without a question is ignored."""
        self.ask("")
        self.assertIsNone(self.answer().resumable)

    def test_bad_answer(self) -> None:
        """An answer that is not valid is an error of the server, and its key is in no message."""
        for answer in (b"key=short; seconds=1", b"key=" + b"k" * 43):
            self.ask()
            self.backend.accept(headers=b"X-Twisted-Exec-Resume: " + answer + b"\r\n")
            error = self.failureResultOf(self.opening, BadGateway).value
            self.assertIn("X-Twisted-Exec-Resume has no valid field", error.message)
            self.assertNotIn("k" * 43, error.message)
            self.assertTrue(self.backend.transport.aborted)

    def test_marks(self) -> None:
        """Marks, split anywhere, come in order with the output, also behind a pause."""
        client = self.answer()
        self.assertEqual(client.resumable, Resumable("k" * 43, 60))
        client.pause_output()
        self.backend.send(self.FIRST_MARKS[:9])
        self.backend.send(b"\x04" + self.FIRST_MARKS[9:])
        self.backend.send(b"\x01out")
        self.backend.send(b'\x04{"Notice":"hello","Kind":"message"}\n')
        self.assertEqual(self.user.items, [])
        client.resume_output()
        at = At(Position("00000000000000aa", 5))
        self.assertEqual(self.user.items, [Ack(0), at, b"out", Notice("hello")])

    def test_wrong_mark(self) -> None:
        """A mark that is not valid breaks the protocol: another connection would not help."""
        client = self.answer()
        self.backend.send(b'\x04{"Ack":-1}\n')
        self.assertTrue(client.broke_protocol)
        self.clock.pump([10, 10])
        (reason,) = self.user.detached_with
        self.assertEqual(reason, "the server broke the protocol: a mark Ack has no valid number")

    def test_silence(self) -> None:
        """A server that is silent for 20 seconds is lost, although output is blocked."""
        for blocked in (False, True):
            self.setUp()
            self.answer()
            self.clock.advance(3)
            self.backend.send(b"\x01.")
            if blocked:
                self.backend.transport.producer.pauseProducing()
            self.clock.pump([2, 5, 5, 5, 2.9])
            self.assertFalse(self.backend.transport.aborted)
            self.clock.advance(0.2)
            reason = "the server has not answered for 20 seconds"
            self.assertEqual(self.user.detached_with, [reason])

    def test_life(self) -> None:
        """Pongs, output and marks are signs of life; a paused stream waits for none, and then reads first."""
        client = self.answer()
        for event in (Pong(), BytesMessage(b"\x01."), BytesMessage(self.FIRST_MARKS)) * 10:
            self.clock.pump([5, 5, 5])
            self.backend.say(event)
        client.pause_output()
        self.clock.pump([5] * 20)
        client.resume_output()
        self.clock.advance(4)
        self.backend.say(Pong())
        self.clock.pump([5] * 3)
        self.assertEqual(self.user.detached_with, [])

    def test_round_trip(self) -> None:
        """Each ping that is answered measures the way to the server and back."""
        client = self.answer()
        self.assertIsNone(client.round_trip_seconds)
        self.clock.advance(0.1)
        self.backend.say(Pong())
        self.assertEqual(client.round_trip_seconds, 0.1)
        self.clock.advance(4.9)
        self.backend.say(Pong())
        for seconds in (0.25, 2.0):
            self.clock.advance(5)
            self.backend.send(b"\x01.")
            self.clock.advance(seconds)
            self.backend.say(Pong())
            self.assertEqual(client.round_trip_seconds, seconds)
            self.clock.advance(5 - seconds)
            self.backend.say(Pong())
        client.pause_output()
        self.clock.advance(5)
        client.resume_output()
        self.backend.say(Pong())
        self.assertEqual(client.round_trip_seconds, 0.0)

    def test_stopped(self) -> None:
        """A process that was stopped first reads what has come meanwhile."""
        self.answer()
        self.clock.pump([5, 5])
        self.clock.advance(3600)
        self.clock.pump([5, 5, 5])
        self.assertFalse(self.backend.transport.aborted)
        self.backend.say(Pong())
        self.clock.pump([5, 5, 5])
        self.assertEqual(self.user.detached_with, [])
        self.clock.pump([5, 5])
        self.assertEqual(len(self.user.detached_with), 1)

    def test_lost_while_paused(self) -> None:
        """
        A loss is known at once, also while the user reads nothing; the next connection repeats what
        was not delivered.
        """
        self.answer().pause_output()
        self.backend.send(b"\x01out")
        self.backend.lose()
        self.assertEqual((self.user.items, self.user.detached_with), ([], [LOST]))

    def test_ended_while_paused(self) -> None:
        """Behind a status nothing can be resumed, so output waits for the user."""
        client = self.answer()
        client.pause_output()
        self.backend.send(b"\x01out")
        self.backend.send(b"\x03" + encode_status(Ending(COMPLETED)))
        self.backend.lose()
        self.assertEqual(self.user.detached_with, [])
        client.resume_output()
        self.assertEqual((self.user.items, self.user.endings), ([b"out"], [Ending(COMPLETED)]))
        self.assertEqual(len(self.user.detached_with), 1)


class EndTests(ClientTestCase):
    """Ends of a session."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.open()

    def end(self, ending: Ending, code: int = 1000) -> None:
        self.backend.send(b"\x03" + encode_status(ending))
        self.backend.say(CloseConnection(code))

    def test_ended(self) -> None:
        """The status is delivered when the server closes; the Close is answered."""
        self.backend.send(b"\x01bye")
        self.backend.send(b"\x03" + encode_status(Ending(COMPLETED, exit_code=7)))
        self.assertEqual(self.user.endings, [])
        self.backend.say(CloseConnection(1000))
        (close,) = self.backend.events()
        self.assertEqual(close.code, 1000)
        (ending,) = self.user.endings
        self.assertEqual((ending.reason, ending.exit_code), (COMPLETED, 7))
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.assertTrue(self.backend.transport.connected == 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_status_in_pieces(self) -> None:
        """A status may come in several messages."""
        status = encode_status(Ending(LINE_LOST, "gone"))
        self.backend.send(b"\x03")
        self.backend.send(b"\x03" + status[:10])
        self.backend.send(b"\x03" + status[10:])
        self.backend.say(CloseConnection(1000))
        self.assertEqual(self.user.endings, [Ending(LINE_LOST, "gone")])

    def test_closed_without_status(self) -> None:
        """A polite Close without a status is a lost connection."""
        self.backend.send(b"\x01almost")
        self.backend.say(CloseConnection(1000))
        self.assertEqual((self.user.endings, self.user.detached_with), ([], [LOST]))

    def test_lost(self) -> None:
        """An end without a Close is a lost connection too."""
        for reason in (ConnectionDone(), ConnectionLost()):
            self.setUp()
            self.backend.lose(reason)
            self.assertEqual((self.user.endings, self.user.detached_with), ([], [LOST]))

    def test_lost_behind_the_status(self) -> None:
        """A connection that is lost after the status counts as ended normally."""
        self.backend.send(b"\x03" + encode_status(Ending(COMPLETED)))
        self.backend.lose(ConnectionLost())
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])
        self.assertEqual(self.user.detached_with, ["connection lost"])

    def test_any_close_code(self) -> None:
        """The status decides, not the code."""
        for code in (1011, 1014):
            self.setUp()
            self.end(Ending(COMPLETED), code)
            self.assertEqual(self.user.endings, [Ending(COMPLETED)])

    def test_unreadable_status(self) -> None:
        """An unreadable status is reported as a failure."""
        self.backend.send(b"\x03what")
        self.backend.say(CloseConnection(1000))
        (ending,) = self.user.endings
        self.assertEqual(
            (ending.reason, ending.message),
            (INTERNAL, "the server's status cannot be read: status is not JSON"),
        )

    def test_large_status(self) -> None:
        """A status without end is not kept."""
        self.backend.send(b"\x03" + b"x" * (65 << 10))
        (close,) = self.backend.events()
        self.assertEqual(close.code, 1002)
        self.clock.advance(5)
        self.clock.advance(5)
        self.assertEqual(
            self.user.detached_with, ["the server broke the protocol: the status is too large"]
        )

    def test_violation(self) -> None:
        """A server that breaks the protocol gets Close 1002, and the user the reason."""
        self.backend.raw(b"\x83\0")
        (close,) = self.backend.events()
        self.assertEqual(close.code, 1002)
        self.backend.say(CloseConnection(1002))
        (reason,) = self.user.detached_with
        self.assertIn("the server broke the protocol", reason)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slow_user(self) -> None:
        """The ending waits for the output, also when the connection is gone before."""
        self.client.pause_output()
        self.backend.send(b"\x01tail")
        self.end(Ending(COMPLETED))
        self.assertEqual((self.user.received, self.user.endings), (b"", []))
        self.assertEqual(self.user.detached_with, [])
        self.client.resume_output()
        self.assertEqual((self.user.received, self.user.endings), (b"tail", [Ending(COMPLETED)]))
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.client.resume_output()
        self.client.pause_output()

    def test_leave(self) -> None:
        """This side may leave: Close, and no status is expected."""
        self.client.leave()
        self.client.leave()
        (close,) = self.backend.events()
        self.assertEqual(close.code, 1000)
        self.client.write(b"too late")
        self.backend.raw(b"\x82\x09\x01too late")
        self.backend.say(CloseConnection(1000))
        self.assertEqual((self.user.received, self.user.endings), (b"", []))
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.assertFalse(self.backend.transport.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_leave_while_paused(self) -> None:
        """A user whose output is stuck can still leave."""
        self.client.pause_output()
        self.backend.send(b"\x01unread")
        self.client.leave()
        self.assertEqual(self.backend.transport.producerState, "producing")
        self.backend.say(CloseConnection(1000))
        self.assertEqual(self.user.detached_with, ["connection closed"])

    def test_leave_a_silent_server(self) -> None:
        """A server that does not answer the Close is not waited for long."""
        self.client.leave()
        self.clock.advance(5)
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_abort(self) -> None:
        """abort() resets the connection."""
        self.client.abort()
        self.client.abort()
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(len(self.user.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_abort_while_paused(self) -> None:
        """A user whose output is stuck hears of the end after abort(), too."""
        self.client.pause_output()
        self.backend.send(b"\x01unread")
        self.client.abort()
        self.assertEqual((self.user.received, len(self.user.detached_with)), (b"", 1))


class TextTests(ClientTestCase):
    """The older WebSocket protocols, for servers that speak nothing else."""

    def open_over(self, protocol: str) -> ConsoleClient:
        self.user = RecordingUser()
        self.opening = connect(
            self.endpoint,
            HEAD,
            self.user,
            clock=self.clock,
            timeout_seconds=10,
            protocols=(protocol,),
        )
        client = self.open()
        self.assertEqual((client.protocol, client.can_half_close), (protocol, False))
        return client

    def test_base64(self) -> None:
        """Messages are text both ways."""
        for protocol in ("v4.base64.channel.k8s.io", "base64.channel.k8s.io"):
            client = self.open_over(protocol)
            client.write(b"x" * 30000)
            client.resize(TerminalSize(80, 24))
            texts = self.backend.events()
            self.assertTrue(all(isinstance(each, TextMessage) for each in texts))
            self.assertEqual([len(each.data) for each in texts], [32769, 7233, 37])
            for text in ("1", "1aGk=", "9aGk=", "1!", "2aG8="):
                self.backend.say(TextMessage(text))
            self.assertEqual(self.user.received, b"hiho")

    def test_status_in_base64(self) -> None:
        """The status of version 4 is base64 too."""
        self.open_over("v4.base64.channel.k8s.io")
        status = base64.b64encode(encode_status(Ending(COMPLETED, exit_code=7))).decode()
        self.backend.say(TextMessage("3" + status))
        self.backend.say(CloseConnection(1000))
        self.assertEqual(self.user.endings[0].exit_code, 7)

    def test_version_4_lost(self) -> None:
        """As with version 5, an end without a status is a lost connection."""
        for protocol in ("v4.channel.k8s.io", "v4.base64.channel.k8s.io"):
            for event in (CloseConnection(1000), CloseConnection(1011), None):
                self.open_over(protocol)
                if event is None:
                    self.backend.lose()
                else:
                    self.backend.say(event)
                self.assertEqual((self.user.endings, self.user.detached_with), ([], [LOST]))

    def test_version_1(self) -> None:
        """Version 1 has no status: a polite Close is success, a text is a failure."""
        for protocol in ("channel.k8s.io", "base64.channel.k8s.io"):
            self.open_over(protocol)
            self.backend.say(CloseConnection(1000))
            self.assertEqual(self.user.endings, [Ending(COMPLETED)])
            self.open_over(protocol)
            in_base64 = protocol.startswith("base64")
            self.backend.say(TextMessage("3b2ghCg==") if in_base64 else TextMessage("\x03oh!\n"))
            self.backend.say(CloseConnection(1000))
            self.assertEqual(self.user.endings, [Ending(INTERNAL, "oh!")])

    def test_version_1_lost(self) -> None:
        """Any other end of version 1 is a lost connection."""
        for event in (CloseConnection(1011), None):
            self.open_over("channel.k8s.io")
            if event is None:
                self.backend.lose()
            else:
                self.backend.say(event)
            self.assertEqual((self.user.endings, self.user.detached_with), ([], [LOST]))

    def test_unnamed(self) -> None:
        """A server without subprotocols is tried without one."""
        self.user = RecordingUser()
        self.opening = connect(
            self.endpoint, HEAD, self.user, clock=self.clock, timeout_seconds=10, protocols=("",)
        )
        self.assertNotIn(b"Sec-WebSocket-Protocol", self.backend.request)
        self.backend.accept(subprotocol=b"x")
        self.failureResultOf(self.opening, BadGateway)
        for how in ({"unnamed": True}, {"subprotocol": b""}):  # as Go's server answers
            self.user = RecordingUser()
            self.opening = connect(
                self.endpoint,
                HEAD,
                self.user,
                clock=self.clock,
                timeout_seconds=10,
                protocols=("",),
            )
            self.backend.accept(**how)
            client = self.successResultOf(self.opening)
            client.write(b"hi")
            self.assertEqual(self.backend.messages(), [b"\0hi"])


class SPDYBackend:
    """The server of one connection, driven by the test in frames."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.writer, self.reader = FrameWriter(), FrameReader()
        self.types: dict[int, str] = {}

    def accept(self, version: bytes | None = b"v4.channel.k8s.io", more: bytes = b"") -> None:
        """Answer the request."""
        self.backend.transport.clear()
        line = b"" if version is None else b"X-Stream-Protocol-Version: " + version + b"\r\n"
        self.backend.raw(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: spdy/3.1\r\n"
            b"Audit-Id: s-1\r\n" + line + b"\r\n" + more
        )

    def reply(self) -> None:
        """Answer the streams that are opened, until no more are."""
        while opened := [each for each in self.frames() if isinstance(each, SynStream)]:
            for each in opened:
                self.backend.raw(self.writer.syn_reply(each.stream_id))

    def frames(self) -> list[Any]:
        """Frames from the client since the last call."""
        data = self.backend.transport.value()
        self.backend.transport.clear()
        self.reader.feed(data)
        found: list[Any] = []
        while (frame := self.reader.next_frame()) is not None:
            if isinstance(frame, SynStream):
                self.types[frame.stream_id] = dict(frame.headers)[b"streamtype"].decode()
            found.append(frame)
        return found

    def send(self, name: str, data: bytes, fin: bool = False) -> None:
        ids = {name: number for number, name in self.types.items()}
        self.backend.raw(b"".join(spdy.data(ids[name], data, fin)))


class SPDYTests(ClientTestCase):
    """A console over SPDY, from a server of frames."""

    def setUp(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.clock = Clock()
        self.endpoint = Backends()
        self.user = RecordingUser()
        self.opening = connect(
            self.endpoint,
            HEAD,
            self.user,
            clock=self.clock,
            timeout_seconds=10,
            protocols=(OVER_SPDY,),
        )
        self.server = SPDYBackend(self.backend)

    def up(self, version: bytes | None = b"v4.channel.k8s.io") -> ConsoleClient:
        """A session that is up."""
        self.server.accept(version)
        self.server.reply()
        return self.successResultOf(self.opening)

    def test_request(self) -> None:
        """The request offers all versions, a line for each, the best first."""
        lines = self.backend.request.split(b"\r\n")
        self.assertEqual(lines[0], b"POST /exec HTTP/1.1")
        for line in (
            b"Authorization: Bearer x",
            b"Connection: Upgrade",
            b"Upgrade: SPDY/3.1",
            b"Content-Length: 0",
        ):
            self.assertIn(line, lines)
        name = b"X-Stream-Protocol-Version: "
        self.assertEqual(
            [line.removeprefix(name) for line in lines if line.startswith(name)],
            [b"v4.channel.k8s.io", b"v3.channel.k8s.io", b"v2.channel.k8s.io", b"channel.k8s.io"],
        )

    def test_third_attempt(self) -> None:
        """A server that refuses all WebSockets is tried with SPDY."""
        self.opening = connect(self.endpoint, HEAD, self.user, clock=self.clock, timeout_seconds=10)
        self.backend.raw(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        self.backend.lose()
        self.backend.raw(b"HTTP/1.1 400 X\r\nContent-Length: 18\r\n\r\nmissing spdy stuff")
        self.server = SPDYBackend(self.backend)
        client = self.up()
        self.assertEqual((client.protocol, client.can_half_close), ("v4.channel.k8s.io", True))

    def test_open(self) -> None:
        """The user is attached once all streams are open."""
        self.server.accept()
        for number, name in ((1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")):
            self.assertNoResult(self.opening)
            self.assertEqual(
                self.server.frames(), [SynStream(number, ((b"streamtype", name.encode()),))]
            )
            self.backend.raw(self.server.writer.syn_reply(number))
        client = self.successResultOf(self.opening)
        self.assertIs(self.user.stream, client)
        self.assertEqual(client.session, "s-1")

    def test_versions(self) -> None:
        """Older versions have no sizes; a server that names none speaks the oldest."""
        for version, chosen, sizes in (
            (b"v3.channel.k8s.io", "v3.channel.k8s.io", True),
            (b"v2.channel.k8s.io", "v2.channel.k8s.io", False),
            (None, "channel.k8s.io", False),
        ):
            self.begin()
            client = self.up(version)
            self.assertEqual(
                (client.protocol, "resize" in self.server.types.values()), (chosen, sizes)
            )
            client.resize(TerminalSize(80, 24))
            self.assertEqual(bool(self.server.frames()), sizes)

    def test_talk(self) -> None:
        """Input, its end and sizes go out; output comes."""
        client = self.up()
        client.write(b"ls\n")
        client.resize(TerminalSize(80, 24))
        client.end_input()
        client.write(b"too late")
        self.assertEqual(
            self.server.frames(),
            [
                Data(3, b"ls\n"),
                Data(7, b'{"Width":80,"Height":24}\n'),
                Data(3, b"", True),
            ],
        )
        self.server.send("stdout", b"out")
        self.server.send("stdout", b"put")
        self.assertEqual(self.user.received, b"output")

    def test_ended(self) -> None:
        """The status is delivered when the server has ended the streams; then this side leaves."""
        self.up()
        self.server.send("stdout", b"bye", fin=True)
        self.assertEqual(self.user.endings, [])
        self.server.send("error", encode_status(Ending(COMPLETED, exit_code=7)), fin=True)
        self.assertEqual(self.user.received, b"bye")
        self.assertEqual(self.user.endings[0].exit_code, 7)
        *resets, last = self.server.frames()
        self.assertEqual(resets, [RstStream(number, 5) for number in (1, 3, 5, 7)])
        self.assertEqual(last, GoAway(0, 0))
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_older_kubelets(self) -> None:
        """If the server resets its streams after the status, the status counts."""
        self.up()
        self.server.send("error", encode_status(Ending(COMPLETED)))
        for number in (1, 3, 5, 7):
            self.backend.raw(spdy.rst_stream(number, 5))
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])

    def test_text(self) -> None:
        """Before version 4 the status is a text, or empty for success."""
        for version in (b"v3.channel.k8s.io", b"v2.channel.k8s.io", b"channel.k8s.io"):
            for text, ending in ((b"", Ending(COMPLETED)), (b"oh!", Ending(INTERNAL, "oh!"))):
                self.begin()
                self.up(version)
                self.server.send("error", text, fin=True)
                self.server.send("stdout", b"", fin=True)
                self.assertEqual(self.user.endings, [ending])

    def test_lost(self) -> None:
        """An end without a status is a lost connection, although kubectl reports success."""
        for end in (
            lambda: self.backend.lose(),
            lambda: self.backend.raw(spdy.go_away(7)),
            lambda: self.backend.raw(spdy.rst_stream(1, 5) + spdy.rst_stream(5, 5)),
        ):
            self.begin()
            self.up()
            self.server.send("stdout", b"almost")
            end()
            self.assertEqual(self.user.received, b"almost")
            self.assertEqual((self.user.endings, self.user.detached_with), ([], [LOST]))
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refused_streams(self) -> None:
        """If the server refuses a stream other than that for sizes, opening fails with 502."""
        self.server.accept()
        self.backend.raw(spdy.rst_stream(1, 3))
        error = self.failureResultOf(self.opening, BadGateway).value
        self.assertIn("the server refused the stream error", error.message)
        self.assertEqual((self.user.stream, self.user.detached_with), (None, []))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unanswered_streams(self) -> None:
        """A server that does not answer them is not waited for for ever."""
        self.server.accept()
        self.clock.advance(10)
        error = self.failureResultOf(self.opening, BadGateway).value
        self.assertEqual(error.message, "the streams were not opened within 10 s")
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.user.detached_with, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_goes_at_once(self) -> None:
        """A GOAWAY before the streams are open fails with 502."""
        self.server.accept(more=spdy.go_away(0))
        self.failureResultOf(self.opening, BadGateway)
        self.assertEqual(self.user.detached_with, [])

    def test_cancel(self) -> None:
        """Cancelling while the streams are opened closes the connection."""
        self.server.accept()
        self.opening.cancel()
        self.failureResultOf(self.opening, CancelledError)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_violation(self) -> None:
        """A server that breaks the protocol gets a GOAWAY, and the user the reason."""
        self.up()
        self.backend.raw(b"\xff" * 8)
        self.assertEqual(self.server.frames()[-1], GoAway(0, 1))
        (why,) = self.user.detached_with
        self.assertIn("the server broke the protocol: ", why)
        self.assertEqual(self.user.endings, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_large_status(self) -> None:
        """A status without end is not kept."""
        self.up()
        self.server.send("error", b"x" * (65 << 10))
        self.assertEqual(self.server.frames()[-1], GoAway(0, 1))
        self.assertEqual(
            self.user.detached_with, ["the server broke the protocol: the status is too large"]
        )

    def test_leave(self) -> None:
        """To leave, this side resets its streams and sends a GOAWAY."""
        client = self.up()
        client.leave()
        client.leave()
        client.write(b"too late")
        *resets, last = self.server.frames()
        self.assertEqual((len(resets), last), (4, GoAway(0, 0)))
        self.server.send("stdout", b"too late")
        self.backend.lose()
        self.assertEqual((self.user.received, self.user.endings), (b"", []))
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_leave_a_silent_server(self) -> None:
        """If the server does not close, this side soon does."""
        self.up().leave()
        self.clock.advance(5)
        self.assertEqual(self.user.detached_with, ["connection closed"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_pings(self) -> None:
        """The server is pinged, its pings are answered, and silence is death."""
        self.up()
        self.backend.raw(spdy.ping(2))
        self.assertEqual(self.server.frames(), [spdy.Ping(2)])
        for number in range(20):
            self.clock.advance(5)
            self.assertEqual(self.server.frames(), [spdy.Ping(2 * number + 1)])
            self.backend.raw(spdy.ping(2 * number + 1))
        for _ in range(14):
            self.clock.advance(5)
        self.assertEqual(self.user.detached_with, ["the server has not answered for 61 seconds"])

    def test_paused(self) -> None:
        """Nothing is delivered between pause and resume, and the server is held back."""
        client = self.up()
        client.pause_output()
        self.assertEqual(self.backend.transport.producerState, "paused")
        self.server.send("stdout", b"one")
        self.assertEqual(self.user.received, b"")
        client.resume_output()
        self.assertEqual(self.user.received, b"one")
        self.assertEqual(self.backend.transport.producerState, "producing")

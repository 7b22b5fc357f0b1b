"""Tests for :mod:`twisted_exec.streaming.remotecommand_client`."""

from __future__ import annotations

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

from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, LINE_LOST, Ending, TerminalSize
from twisted_exec.streaming.remotecommand_client import LOST, ConsoleClient, connect
from twisted_exec.streaming.upgrade_client import UpgradeRequest
from twisted_exec.testing.attachment import RecordingUser
from twisted_exec.testing.flow import RecordingProducer
from twisted_exec.wire.errors import LocalProtocolError
from twisted_exec.wire.remotecommand import encode_status
from twisted_exec.wire.upgrade import accept_key

from .frames import BytesMessage, CloseConnection, Ping, Pong, TextMessage

HEAD = UpgradeRequest(b"GET", b"/exec", b"server", [(b"Authorization", b"Bearer x")])


class _Transport(StringTransportWithDisconnection):
    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()


class Backend:
    """One connection's server, as the test plays it, with wsproto."""

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

    def accept(self, more: bytes = b"", *, subprotocol: bytes | None = None) -> None:
        found = re.search(rb"Sec-WebSocket-Key: (\S+)", self.request)
        assert found
        chosen = self.subprotocol() if subprotocol is None else subprotocol
        self.transport.clear()
        self.raw(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Audit-Id: s-1\r\nSec-WebSocket-Accept: " + accept_key(found.group(1)) + b"\r\n"
            b"Sec-WebSocket-Protocol: " + chosen + b"\r\n\r\n" + more
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
    """A user's end, before a server that the test plays."""

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
    """How a console is opened."""

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
        """A server that does not take version 5 is asked for version 4, on a new connection."""
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
        """A server that speaks neither is told so."""
        self.backend.accept(subprotocol=b"channel.k8s.io")
        self.backend.accept(subprotocol=b"channel.k8s.io")
        failure = self.failureResultOf(self.opening, BadGateway)
        self.assertEqual(failure.value.message, "the server does not speak v4.channel.k8s.io")
        self.assertEqual(len(self.endpoint.all), 2)

    def test_refused(self) -> None:
        """What the server says comes as the error it is; there is no second attempt."""
        body = b'{"kind":"Status","status":"Failure","code":404,"reason":"NotFound","message":"m"}'
        self.backend.raw(b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        error: APIError = self.failureResultOf(self.opening, APIError).value
        self.assertEqual((error.code, error.reason, error.message), (404, "NotFound", "m"))
        self.assertEqual(len(self.endpoint.all), 1)

    def test_forbidden(self) -> None:
        """A 403 that says why is no matter of versions."""
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
        """A server cannot compress what nobody offered to."""
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
        """Input goes out on channel 0, in messages of at most 32 KiB; its end is told once."""
        self.client.write(b"x" * 40000)
        self.client.end_input()
        messages = self.backend.messages()
        self.assertEqual([len(message) for message in messages], [32769, 7233, 2])
        self.assertEqual({message[0] for message in messages[:2]}, {0})
        self.assertEqual(messages[2], b"\xff\0")

    def test_frames(self) -> None:
        """A frame of any length is read by others, though its mask is 0."""
        for length in (0, 125, 126, 0xFFFF, 0x10000):
            self.client.socket.send(b"x" * length)
            self.assertEqual(b"".join(self.backend.messages()), b"x" * length)

    def test_resize(self) -> None:
        """A size goes out on channel 4."""
        self.client.resize(TerminalSize(80, 24))
        self.assertEqual(self.backend.messages(), [b'\x04{"Width":80,"Height":24}\n'])

    def test_output(self) -> None:
        """Channels 1 and 2 are output; what is unknown is passed over."""
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

    def test_living_server(self) -> None:
        """Output is a sign of life as well."""
        for _ in range(100):
            self.clock.advance(5)
            self.backend.send(b"\x01.")
        self.assertEqual(self.user.detached_with, [])

    def test_stopped_terminal(self) -> None:
        """While this side reads nothing it does not expect answers."""
        self.clock.advance(5)
        self.client.pause_output()
        for _ in range(100):
            self.clock.advance(5)
        self.client.resume_output()
        for _ in range(12):
            self.clock.advance(5)
        self.assertEqual(self.user.detached_with, [])

    def test_stuck_server(self) -> None:
        """Pings do not pile up before a server that reads nothing."""
        self.backend.transport.producer.pauseProducing()
        for _ in range(100):
            self.clock.advance(5)
        self.assertEqual(self.backend.transport.value(), b"")
        self.assertEqual(self.user.detached_with, [])


class EndTests(ClientTestCase):
    """How a session ends."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.open()

    def end(self, ending: Ending, code: int = 1000) -> None:
        self.backend.send(b"\x03" + encode_status(ending))
        self.backend.say(CloseConnection(code))

    def test_ended(self) -> None:
        """The status is told when the server closes; the Close is answered."""
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
        """So is any other end."""
        for reason in (ConnectionDone(), ConnectionLost()):
            self.setUp()
            self.backend.lose(reason)
            self.assertEqual((self.user.endings, self.user.detached_with), ([], [LOST]))

    def test_lost_behind_the_status(self) -> None:
        """A connection lost behind the status did its work."""
        self.backend.send(b"\x03" + encode_status(Ending(COMPLETED)))
        self.backend.lose(ConnectionLost())
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])
        self.assertEqual(self.user.detached_with, ["connection lost"])

    def test_any_close_code(self) -> None:
        """The status decides, not the code."""
        self.end(Ending(COMPLETED), 1011)
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])

    def test_unreadable_status(self) -> None:
        """A status that is none is a failure that says so."""
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
        """A server that breaks the protocol is told, and left."""
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
        """Or the connection is reset."""
        self.client.abort()
        self.client.abort()
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(len(self.user.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

"""
Both ends of a console against ``websockets``, which is neither autobahn nor wsproto.

The handshake, frames, fragments, pings and closes are all the other library's: what it
accepts is well-formed, and our code reads what it writes.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.streaming.remotecommand.serving import ServeTestCase
from tests.streaming.remotecommand.test_client import HEAD, Backends
from twisted_exec.streaming.interfaces import COMPLETED, LINE_LOST, Ending, TerminalSize
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.testing.console import EchoAttachment, RecordingUser
from twisted_exec.wire.channel import V4, V4_BASE64, V5
from twisted_exec.wire.endings import decode_status, encode_status


class Other:
    """
    The other library's end.

    :param write: gives bytes to ours.
    :param read: takes what ours wrote.
    """

    def __init__(self, protocol: Any, write: Any, read: Any) -> None:
        self.protocol, self._write, self._read = protocol, write, read
        self.found: list[Any] = []

    def flush(self) -> None:
        """Everything that is to be sent goes; everything that came is read."""
        moved = True
        while moved:
            data = b"".join(self.protocol.data_to_send())
            if data:
                self._write(data)
            answer = self._read()
            if answer:
                self.protocol.receive_data(answer)
            self.found += self.protocol.events_received()
            assert self.protocol.parser_exc is None, self.protocol.parser_exc
            moved = bool(data or answer)

    def frames(self, opcode: Opcode) -> list[bytes]:
        """The payloads of frames of one kind since the last time; each is a whole message."""
        self.flush()
        chosen = [each for each in self.found if isinstance(each, Frame) and each.opcode is opcode]
        self.found = [each for each in self.found if each not in chosen]
        assert all(each.fin for each in chosen)
        return [bytes(each.data) for each in chosen]

    def send(self, message: bytes, cuts: int = 1, ping: bytes = b"") -> None:
        """One message in ``cuts`` frames, a ping behind the first."""
        size = -(-len(message) // cuts) or 1
        parts = [message[at : at + size] for at in range(0, len(message), size)] or [b""]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            if number:
                self.protocol.send_continuation(part, fin=last)
            else:
                self.protocol.send_binary(part, fin=last)
                if ping:
                    self.protocol.send_ping(ping)
        self.flush()


class ServerEndTests(ServeTestCase):
    """Our server, their client."""

    limits = StreamLimits(message_bytes=64 << 10, input_bytes=1 << 20)

    def setUp(self) -> None:
        super().setUp()
        self.attach(EchoAttachment())

    def open(self, *subprotocols: str) -> Other:
        client = ClientProtocol(
            parse_uri("ws://server/exec"),
            subprotocols=[Subprotocol(each) for each in subprotocols or (V5,)],
            max_size=None,
        )
        self.connection = self.server.connect()
        other = Other(client, self.connection.send, self.connection.received)
        client.send_request(client.connect())
        other.flush()
        self.assertIs(client.state, State.OPEN, client.handshake_exc)
        self.assertTrue(isinstance(other.found.pop(0), Response))
        return other

    def test_handshake(self) -> None:
        """The answer is complete, names one protocol and no extension."""
        for offered, chosen in (((V5,), V5), ((V4, V5), V4), (("x.y", V4_BASE64), V4_BASE64)):
            self.setUp()
            other = self.open(*offered)
            self.assertEqual(other.protocol.subprotocol, chosen)
            self.assertEqual(other.protocol.extensions, [])

    def test_session(self) -> None:
        """A greeting, an echo, the status, Close 1000, and the end of the connection."""
        other = self.open()
        other.send(b"\0hello")
        other.send(b"\xff\0")
        greeting, echo, status = other.frames(Opcode.BINARY)
        self.assertEqual((greeting, echo, status[:1]), (b"\1", b"\1hello", b"\3"))
        self.assertEqual(decode_status(status[1:]).reason, COMPLETED)
        self.assertEqual(other.protocol.close_rcvd.code, 1000)
        self.assertTrue(self.connection.closed)
        self.assertFalse(self.connection.aborted)

    def test_text(self) -> None:
        """The base64 protocols are text, to this library as well."""
        other = self.open(V4_BASE64)
        other.protocol.send_text(b"0aGVsbG8=")
        self.assertEqual(other.frames(Opcode.TEXT), [b"1", b"1aGVsbG8="])

    @given(
        st.lists(
            st.tuples(
                st.binary(min_size=1, max_size=300), st.integers(1, 5), st.binary(max_size=9)
            ),
            max_size=8,
        )
    )
    def test_fragments(self, said: list[tuple[bytes, int, bytes]]) -> None:
        """Fragmented messages with pings in between arrive complete, and every ping is answered."""
        self.setUp()
        other = self.open()
        for data, cuts, ping in said:
            other.send(b"\0" + data, cuts, ping)
        expected = b"".join(data for data, _, _ in said)
        self.assertEqual(self.attachment.received, expected)
        echoed = b"".join(each[1:] for each in other.frames(Opcode.BINARY))
        self.assertEqual(echoed, expected)
        self.assertEqual(other.frames(Opcode.PONG), [ping for _, _, ping in said if ping])

    def test_large(self) -> None:
        """A megabyte comes in frames of 32 KiB, none of them in fragments."""
        other = self.open()
        other.frames(Opcode.BINARY)
        self.attachment.transport.write(b"x" * (1 << 20))
        frames = other.frames(Opcode.BINARY)
        self.assertEqual({len(each) for each in frames}, {(32 << 10) + 1})
        self.assertEqual(sum(len(each) - 1 for each in frames), 1 << 20)

    def test_pings_while_blocked(self) -> None:
        """A client that reads nothing for a while gets the latest pong, between whole frames."""
        other = self.open()
        flow = self.connection.transport.producer
        flow.pauseProducing()
        for number in range(100):
            other.protocol.send_ping(b"%d" % number)
        other.flush()
        self.attachment.transport.write(b"y" * 100_000)
        flow.resumeProducing()
        self.assertEqual(other.frames(Opcode.PONG), [b"99"])
        output = b"".join(each[1:] for each in other.frames(Opcode.BINARY))
        self.assertEqual(output, b"y" * 100_000)

    def test_closed_by_the_client(self) -> None:
        """Whatever code a client closes with: the answer is 1000, and then the connection ends."""
        for code in (1000, 1001, 1003, 1011, 3000, 4999, None):
            self.setUp()
            other = self.open()
            other.protocol.send_close(code)
            other.flush()
            self.assertEqual(other.protocol.close_rcvd.code, 1000)
            self.assertEqual(self.attachment.detached_with, ["client closed"])
            self.assertTrue(self.connection.closed)

    def test_wrong(self) -> None:
        """Protocol errors get the right close code, and the user gets the reason."""
        for frame, code in (
            (Frame(Opcode.CONT, b"x"), 1002),
            (Frame(Opcode.BINARY, b"\0" * ((64 << 10) + 1)), 1009),
            (Frame(Opcode.BINARY, b"\xff\0\0"), 1002),
        ):
            self.setUp()
            other = self.open()
            other.protocol.send_frame(frame)
            self.assertEqual(other.frames(Opcode.BINARY)[-1][:1], b"\3")
            self.assertEqual(other.protocol.close_rcvd.code, code, frame)
            self.assertEqual(len(self.attachment.detached_with), 1)


class ClientEndTests(SynchronousTestCase):
    """Our client, their server."""

    def setUp(self) -> None:
        self.clock, self.endpoint, self.user = Clock(), Backends(), RecordingUser()
        self.opening: Deferred[ConsoleClient] = connect(
            self.endpoint, HEAD, self.user, clock=self.clock, timeout_seconds=10
        )
        self.backend = self.endpoint.all[-1]
        self.transport = self.backend.transport
        self.server = ServerProtocol(subprotocols=[Subprotocol(V5)], max_size=None, origins=[None])
        self.other = Other(self.server, self.backend.raw, self._read)
        self.other.flush()
        (request,) = self.other.found
        self.assertIsInstance(request, Request)
        self.other.found.clear()
        self.server.send_response(self.server.accept(request))
        self.other.flush()
        self.assertIs(self.server.state, State.OPEN, self.server.handshake_exc)
        self.client = self.successResultOf(self.opening)

    def _read(self) -> bytes:
        data: bytes = self.transport.value()
        self.transport.clear()
        return data

    def test_session(self) -> None:
        """Input, sizes and the end of input in frames that it takes; output and the status."""
        self.client.write(b"hello")
        self.client.resize(TerminalSize(80, 24))
        self.client.end_input()
        typed, size, end = self.other.frames(Opcode.BINARY)
        self.assertEqual((typed, end), (b"\0hello", b"\xff\0"))
        self.assertEqual(size, b'\4{"Width":80,"Height":24}\n')
        self.other.send(b"\1")
        self.other.send(b"\1world")
        self.other.send(b"\3" + encode_status(Ending(COMPLETED, exit_code=7)))
        self.server.send_close(1000)
        self.other.flush()
        self.assertEqual(self.user.received, b"world")
        self.assertEqual([each.exit_code for each in self.user.endings], [7])
        self.assertEqual(self.server.close_rcvd.code, 1000)

    @given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.integers(1, 5)), max_size=8))
    def test_fragments(self, said: list[tuple[bytes, int]]) -> None:
        """Output in fragments, with pings in between, is one piece."""
        self.setUp()
        for data, cuts in said:
            self.other.send(b"\1" + data, cuts, b"?")
        self.assertEqual(self.user.received, b"".join(data for data, _ in said))
        self.assertEqual(self.other.frames(Opcode.PONG), [b"?"] * len(said))

    def test_pings_while_blocked(self) -> None:
        """While our output is blocked the latest ping is remembered, and answered then."""
        flow = self.transport.producer
        flow.pauseProducing()
        for number in range(100):
            self.server.send_ping(b"%d" % number)
        self.other.flush()
        flow.resumeProducing()
        self.assertEqual(self.other.frames(Opcode.PONG), [b"99"])

    def test_pings_while_held(self) -> None:
        """While answers are held the latest ping is remembered, also over blocked output, and answered then."""
        flow = self.transport.producer
        self.client.hold_answers(True)
        for number in range(100):
            self.server.send_ping(b"%d" % number)
        self.other.flush()
        flow.pauseProducing()
        flow.resumeProducing()
        self.assertEqual(self.other.frames(Opcode.PONG), [])
        self.client.hold_answers(False)
        self.assertEqual(self.other.frames(Opcode.PONG), [b"99"])

    def test_closed_without_a_status(self) -> None:
        """No code of a Close is success: only a Status is."""
        for code in (1000, 1001, 1011, 4000):
            self.setUp()
            self.server.send_close(code)
            self.other.flush()
            self.backend.lose()
            self.assertEqual([each.is_success for each in self.user.endings], [], code)
            self.assertEqual(len(self.user.detached_with), 1)

    def test_failure(self) -> None:
        """A failure status is delivered, whatever Close follows it."""
        for code in (1000, 1011):
            self.setUp()
            self.other.send(b"\3" + encode_status(Ending(LINE_LOST, "the line is lost")))
            self.server.send_close(code)
            self.other.flush()
            self.assertEqual(self.user.endings, [Ending(LINE_LOST, "the line is lost")])

    def test_leaving(self) -> None:
        """A client that leaves sends Close 1000, masked."""
        self.client.leave()
        self.other.flush()
        self.assertEqual(self.server.close_rcvd.code, 1000)

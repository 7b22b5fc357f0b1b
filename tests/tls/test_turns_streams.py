"""
One connection with many small frames does not keep the others waiting; see
:mod:`twisted_exec.tls.turns`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory

from tests.streaming.frames import handshake, masked
from tests.streaming.places import PlacesTestCase, turn
from tests.streaming.raw import Raw
from tests.streaming.spdy_peer import handshake as spdy_handshake
from twisted_exec.streaming.http.responses import Dispatcher, respond
from twisted_exec.streaming.http.site import MAX_CHUNKS, Request, Site
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire import spdy
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.spdy import FrameWriter

END = b"!"
"""The last input of a flood."""

FLOOD_BYTES = 120_000
"""Size of a flood: one or two reads of the server."""

TURNS = 4
"""A flood takes more turns of the server than this."""


class Attachment(RecordingAttachment):
    """An attachment that reports each input."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: Deferred[None] | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def input(self) -> Deferred[None]:
        """Fires with the next input."""
        self._waiting = Deferred()
        return self._waiting


class Machine(Dispatcher):
    """A console for each request."""

    def __init__(self) -> None:
        super().__init__()
        self.attachments: list[Attachment] = []
        self.echoes = 0

    async def dispatch(self, request: Request) -> None:
        if request.path == b"/echo":
            self.echoes += 1
            respond(request, 200, request.content.getvalue(), "text/plain")
            return
        self.attachments.append(Attachment())
        serve(request, self.attachments[-1], session="s", user="ann", clock=reactor)


def say(channel: Channel, data: bytes) -> bytes:
    """A client's message."""
    return masked(bytes((channel,)) + data)


def filled(frame: bytes) -> bytes:
    """As many frames as fit into one read."""
    return frame * (FLOOD_BYTES // len(frame))


class Consoles(PlacesTestCase):
    """Consoles of one server, over TLS."""

    async def setUp(self) -> None:
        self.machine = Machine()
        site = Site(self.machine, reactor)  # type: ignore[arg-type]
        self.endpoint = await self.listen("tls", site)
        self.quiet, self.quiet_attachment = await self.open(handshake(query=b"?stdin=1&tty=1"))

    async def connect(self) -> Any:
        """A client's connection."""
        user: Any = await self.endpoint.connect(Factory.forProtocol(Raw))
        self.addCleanup(self.gone, user)
        return user

    async def open(self, request: bytes) -> tuple[Any, Attachment]:
        """A user's connection, after its 101, and the console's attachment."""
        count = len(self.machine.attachments)
        user = await self.connect()
        user.transport.write(request)
        await self.until(lambda: b"\r\n\r\n" in user.received)
        self.assertEqual(user.code, 101)
        await self.until(lambda: len(self.machine.attachments) > count)
        return user, self.machine.attachments[-1]

    async def gone(self, user: Any) -> None:
        user.transport.abortConnection()
        await self.until(lambda: user.lost is not None)

    async def keys_until(self, is_over: Any) -> int:
        """Count the quiet user's keys that arrive, one by one, until is_over returns true."""
        keys = 0
        while not is_over():
            arrival = self.quiet_attachment.input()
            self.quiet.transport.write(say(Channel.STDIN, b"k"))
            await arrival
            keys += 1
        return keys

    async def flood_from(self, user: Any, attachment: Attachment, flood: bytes) -> None:
        """Send a flood that ends with :data:`END`; keys of another user arrive while it is handled."""
        user.transport.write(flood)
        keys = await self.keys_until(lambda: attachment.received.endswith(END))
        self.assertGreater(keys, TURNS)


class WebSocketTests(Consoles):
    """Floods over WebSocket."""

    async def flood(self, flood: bytes) -> Attachment:
        """Send frames; keys of another user arrive while they are handled."""
        user, attachment = await self.open(handshake(query=b"?stdin=1&tty=1"))
        await self.flood_from(user, attachment, flood + say(Channel.STDIN, END))
        return attachment

    async def test_input(self) -> None:
        """Input byte by byte."""
        attachment = await self.flood(filled(say(Channel.STDIN, b"x")))
        self.assertEqual(attachment.received.strip(b"x"), END)

    async def test_sizes(self) -> None:
        """Sizes."""
        await self.flood(filled(say(Channel.RESIZE, b'{"Width":80,"Height":24}')))

    async def test_invalid_sizes(self) -> None:
        """Sizes that no terminal has."""
        await self.flood(filled(say(Channel.RESIZE, b'{"Width":-1,"Height":24}')))

    async def test_empty(self) -> None:
        """Messages without content."""
        await self.flood(filled(say(Channel.STDIN, b"")))

    async def test_fragments(self) -> None:
        """Messages in many fragments."""
        fragments = masked(b"x", 0, fin=False) * 1000
        attachment = await self.flood(filled(masked(b"\0", fin=False) + fragments + masked(b"", 0)))
        self.assertEqual(attachment.received.strip(b"x"), END)

    async def test_pings(self) -> None:
        """Pings, all of which are answered."""
        await self.flood(filled(masked(b"", 9)))

    async def test_end_in_the_same_read(self) -> None:
        """A user who leaves right behind the flood is detached after all of it."""
        user, attachment = await self.open(handshake(query=b"?stdin=1&tty=1"))
        user.transport.write(filled(say(Channel.STDIN, b"x")) + say(Channel.STDIN, END))
        user.transport.loseConnection()
        await self.until(lambda: attachment.detached_with)
        self.assertTrue(attachment.received.endswith(END))

    async def test_behind_the_request(self) -> None:
        """A flood right behind the request is handled in turns too."""
        user = await self.connect()
        request = handshake(query=b"?stdin=1&tty=1")
        user.transport.write(request + filled(say(Channel.STDIN, b"x")) + say(Channel.STDIN, END))
        await self.until(lambda: len(self.machine.attachments) == 2)
        attachment = self.machine.attachments[-1]
        keys = await self.keys_until(lambda: attachment.received.endswith(END))
        self.assertGreater(keys, TURNS)


STREAMS = ("error", "stdin", "stdout", "resize")


class SPDYTests(Consoles):
    """Floods over SPDY."""

    async def flood(self, flood: bytes) -> Attachment:
        """Send frames; keys of another user arrive while they are handled."""
        user = await self.connect()
        writer = FrameWriter()
        user.transport.write(spdy_handshake(query=b"?stdin=1&stdout=1&tty=1"))
        for index, name in enumerate(STREAMS):
            headers = [(b"streamType", name.encode())]
            user.transport.write(writer.syn_stream(2 * index + 1, headers))
        await self.until(lambda: len(self.machine.attachments) > 1)
        attachment = self.machine.attachments[-1]
        await self.until(lambda: attachment.attachments)
        await self.flood_from(user, attachment, flood + self.data("stdin", END))
        return attachment

    def data(self, stream: str, data: bytes) -> bytes:
        return b"".join(spdy.data(2 * STREAMS.index(stream) + 1, data))

    async def test_input(self) -> None:
        """Input byte by byte."""
        attachment = await self.flood(filled(self.data("stdin", b"x")))
        self.assertEqual(attachment.received.strip(b"x"), END)

    async def test_sizes(self) -> None:
        """Sizes."""
        await self.flood(filled(self.data("resize", b'{"Width":80,"Height":24}')))

    async def test_pings(self) -> None:
        """Pings, all of which are answered."""
        await self.flood(filled(spdy.ping(1)))

    async def test_settings(self) -> None:
        """A flood of SPDY settings."""
        await self.flood(filled(b"\x80\x03\0\x04\0\0\0\x04\0\0\0\0"))

    async def test_windows(self) -> None:
        """A flood of SPDY window updates."""
        await self.flood(filled(b"\x80\x03\0\x09\0\0\0\x08\0\0\0\x01\0\0\0\x01"))

    async def test_resets(self) -> None:
        """Resets of streams that do not exist."""
        await self.flood(filled(spdy.rst_stream(99, spdy.CANCEL)))


POST = b"POST /echo HTTP/1.1\r\nHost: server\r\n"


def answers(client: Any) -> int:
    """Return the number of responses received."""
    return int(client.received.count(b"HTTP/1.1 200 "))


class HTTPTests(Consoles):
    """Floods over HTTP."""

    async def warm(self) -> Any:
        """A connection that has answered a request."""
        client = await self.connect()
        client.transport.write(POST + b"Content-Length: 0\r\n\r\n")
        await self.until(lambda: answers(client))
        client.received = b""
        return client

    async def test_pipelined(self) -> None:
        """Each turn handles one of many pipelined requests of a connection."""
        clients = [await self.warm() for _ in range(3)]
        before = self.machine.echoes
        for client in clients:
            client.transport.write(b"GET /echo HTTP/1.1\r\nHost: server\r\n\r\n" * 500)
        for _ in range(3):
            arrival = self.quiet_attachment.input()
            self.quiet.transport.write(say(Channel.STDIN, b"k"))
            await arrival
        self.assertLess(self.machine.echoes - before, 500)

    async def test_pipelined_bodies(self) -> None:
        """Pipelined requests with bodies are spread over turns too, in order."""
        client = await self.warm()
        bodies = [b"%05d" % number for number in range(100)]
        for body in bodies:
            client.transport.write(POST + b"Content-Length: 5\r\n\r\n" + body)
        await self.until(lambda: answers(client) == len(bodies))
        pieces = client.received.split(b"\r\n\r\n")[1:]
        self.assertEqual([piece[:5] for piece in pieces], bodies)

    async def test_requests_of_a_client_that_left(self) -> None:
        """Requests that wait for their turn are not carried out when the connection is lost."""
        client = await self.warm()
        client.transport.write((POST + b"Content-Length: 0\r\n\r\n") * 1000)
        await self.until(lambda: answers(client))
        client.transport.abortConnection()
        await self.until(lambda: client.lost)
        for _ in range(1100):
            await turn()
        self.assertLess(self.machine.echoes, 1000)

    async def test_chunks(self) -> None:
        """A body in small chunks is read in many turns."""
        client = await self.warm()
        client.transport.write(
            POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * MAX_CHUNKS + b"0\r\n\r\n"
        )
        keys = await self.keys_until(lambda: answers(client))
        self.assertGreater(keys, TURNS)
        self.assertEqual(client.body, b"x" * MAX_CHUNKS)

    async def test_large_body(self) -> None:
        """A large body comes whole."""
        client = await self.warm()
        body = bytes(range(256)) * 4096
        client.transport.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await self.until(lambda: len(client.body) == len(body))
        self.assertTrue(client.body == body)

    async def test_upgrade_behind_a_request(self) -> None:
        """An upgrade that is pipelined behind a request gets what came behind it."""
        client = await self.warm()
        client.transport.write(
            POST
            + b"Content-Length: 1\r\n\r\nx"
            + handshake(query=b"?stdin=1&tty=1")
            + filled(say(Channel.STDIN, b"x"))
            + say(Channel.STDIN, END)
        )
        await self.until(lambda: len(self.machine.attachments) == 2)
        attachment = self.machine.attachments[-1]
        await self.until(lambda: attachment.received.endswith(END))
        self.assertEqual(attachment.received.strip(b"x"), END)

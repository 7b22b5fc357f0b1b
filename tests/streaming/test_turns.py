"""
One connection with many small frames does not keep the others waiting; see :mod:`twisted_exec.tls.turns`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory

from tests.streaming.frames import handshake, masked
from tests.streaming.places import PlacesTestCase
from tests.streaming.raw import Raw
from twisted_exec.streaming.http.site import Dispatcher, Request, Site
from twisted_exec.streaming.remotecommand.server import serve
from twisted_exec.testing.attachment import RecordingAttachment
from twisted_exec.wire.channel import Channel

END = b"!"
"""The last input of a flood."""

FLOOD_BYTES = 60_000
"""Size of a flood: one read of the server."""


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

    async def dispatch(self, request: Request) -> None:
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

    async def open(self, request: bytes) -> tuple[Any, Attachment]:
        """A user's connection, after its 101, and the console's attachment."""
        count = len(self.machine.attachments)
        user: Any = await self.endpoint.connect(Factory.forProtocol(Raw))
        self.addCleanup(self.gone, user)
        user.transport.write(request)
        await self.until(lambda: b"\r\n\r\n" in user.received)
        self.assertEqual(user.code, 101)
        await self.until(lambda: len(self.machine.attachments) > count)
        return user, self.machine.attachments[-1]

    async def gone(self, user: Any) -> None:
        user.transport.abortConnection()
        await self.until(lambda: user.lost is not None)

    async def keys_until(self, is_over: Any) -> int:
        """How many keys of the quiet user arrive, one after the other, until something is over."""
        keys = 0
        while not is_over():
            arrival = self.quiet_attachment.input()
            self.quiet.transport.write(say(Channel.STDIN, b"k"))
            await arrival
            keys += 1
        return keys


class WebSocketTests(Consoles):
    """Floods over WebSocket."""

    async def flood(self, frames: bytes) -> Attachment:
        """Send frames; keys of another user arrive while they are handled."""
        user, attachment = await self.open(handshake(query=b"?stdin=1&tty=1"))
        user.transport.write(frames + say(Channel.STDIN, END))
        keys = await self.keys_until(lambda: attachment.received.endswith(END))
        self.assertGreater(keys, 5)
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
        """A message in many fragments."""
        fragments = filled(masked(b"x", 0, fin=False))
        attachment = await self.flood(masked(b"\0", fin=False) + fragments + masked(b"", 0))
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
        """A flood right behind the request is no exception."""
        user: Any = await self.endpoint.connect(Factory.forProtocol(Raw))
        self.addCleanup(self.gone, user)
        request = handshake(query=b"?stdin=1&tty=1")
        user.transport.write(request + filled(say(Channel.STDIN, b"x")) + say(Channel.STDIN, END))
        await self.until(lambda: len(self.machine.attachments) == 2)
        attachment = self.machine.attachments[-1]
        keys = await self.keys_until(lambda: attachment.received.endswith(END))
        self.assertGreater(keys, 5)

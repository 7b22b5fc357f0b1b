"""
Clients that take no output: the door keeps little of it, whatever they promise to take.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from tests import needs
from tests.cli.ssh.support import reactor
from twisted_exec.testing.console import RecordingAttachment

from .support import DoorCase

if needs.conch() is None:
    from twisted.conch.ssh.channel import SSHChannel
    from twisted.conch.ssh.connection import SSHConnection
    from twisted.conch.ssh.keys import Key
    from twisted.conch.ssh.userauth import SSHUserAuthClient

    from tests.ssh.client import PlainClient

    class _Login(SSHUserAuthClient):
        def __init__(self, user: bytes, key: Key, connection: SSHConnection) -> None:
            super().__init__(user, connection)
            self._key = key

        def getPublicKey(self) -> Key | None:
            return self._key.public() if not self.lastAuth or self.lastAuth == b"none" else None

        def getPrivateKey(self) -> Deferred[Key]:
            return succeed(self._key)

    class _Watching(SSHChannel):
        name = b"session"

        def channelOpen(self, specificData: bytes) -> None:
            self.conn.sendRequest(self, b"shell", b"")

    class _Connection(SSHConnection):
        def serviceStarted(self) -> None:
            super().serviceStarted()
            channel = _Watching(localWindow=(1 << 32) - 1, localMaxPacket=1 << 15)
            self.openChannel(channel)

    class Reckless(PlainClient):
        """Watches a console, and has a window without a limit."""

        def __init__(self, key: Key) -> None:
            super().__init__()
            self.key = key

        def connectionSecure(self) -> None:
            super().connectionSecure()
            self.requestService(_Login(b"vm", self.key, _Connection()))


PIECE = b"x" * 65536
MOST_KEPT = 1 << 20


@implementer(IPushProducer)
class Flood(RecordingAttachment):
    """
    Prints whenever it may.

    :ivar full: fires when it may not for the first time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full: Deferred[None] = Deferred()
        self.sent = 0
        self._may_print = True

    def attached(self, transport: Any) -> None:
        super().attached(transport)
        transport.registerProducer(self, True)
        self._print()

    def _print(self) -> None:
        if self._may_print and not self.detached_with:
            self.sent += len(PIECE)
            self.transport.write(PIECE)
            reactor.callLater(0, self._print)

    def pauseProducing(self) -> None:
        self._may_print = False

    def resumeProducing(self) -> None:
        if not self._may_print:
            self._may_print = True
            reactor.callLater(0, self._print)

    def stopProducing(self) -> None:
        self._may_print = False


class SlowReaderTests(DoorCase):
    """A client that does not read."""

    async def kept(self) -> int:
        """Return how much the door keeps for its connection, once the machine may not print any more."""
        still, sent = 0, -1
        while still < 20:
            still, sent = (still + 1, sent) if self.flood.sent == sent else (0, self.flood.sent)
            await self.tick()
        self.assertFalse(self.flood._may_print)
        [connection] = self.door.door.connections
        transport: Any = connection.transport
        channels = connection.service.channels.values()
        waiting = sum(
            len(each.buf) + sum(len(data) for _, data in each.extBuf) for each in channels
        )
        held = sum(len(payload) for _, payload in connection._held)
        return waiting + held + len(transport.dataBuffer) + int(transport._tempDataLen)

    async def closed(self) -> None:
        """The session is over, and nothing is on its way from the API server any more."""
        while not self.flood.detached_with or self.flood.transport.transport.connected:
            await self.tick()
        await self.tick()

    async def test_reckless(self) -> None:
        """A window of 4 GiB without reading is of no use to an attacker."""
        self.flood = self.serve(Flood())
        key = Key.fromString(Path(self.path("bob")).read_bytes())
        client = Reckless(key)
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
        await connectProtocol(endpoint, client)
        while not self.flood.attachments:
            await self.tick()
        client.transport.pauseProducing()
        self.assertLess(await self.kept(), MOST_KEPT)
        client.transport.abortConnection()
        await self.closed()

    async def test_stock(self) -> None:
        """So is stock ssh whose output nobody reads; it goes on when somebody does."""
        self.flood = self.serve(Flood())
        process = self.gate("vm@gate")
        while not self.flood.attachments:
            await self.tick()
        process.transport.pauseProducing()
        self.assertLess(await self.kept(), MOST_KEPT)
        sent = self.flood.sent
        process.transport.resumeProducing()
        while self.flood.sent < 2 * sent:
            await self.tick()
        process.signal(9)
        await self.closed()

"""Requests of :func:`twisted_exec.streaming.http.upgrade_client.ask_first` over spare connections."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from tests.chain import until
from tests.tls.support import LoopbackCase, Recorder, reactor
from twisted_exec.api.status import APIError
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.spares import PAUSE_SECONDS, SpareConnections

HEAD = UpgradeRequest(
    b"GET", b"/exec", b"server", [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
)
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
MISDIRECTED = b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n"
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


class Peer(Recorder):
    """The server's end of a connection: answers its first request, or closes."""

    answer = SWITCHED

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if self.received.endswith(b"\r\n\r\n"):
            self.transport.write(self.answer)
            if self.answer != SWITCHED:
                self.transport.loseConnection()


class SpareTests(LoopbackCase):
    """Openings that find a spare connection."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.clock = Clock()
        self.peers = self.recorders(Peer)
        port = await self.listen(self.peers, self.server_tls())
        tls = self.client_tls()
        self.spares = SpareConnections(self.clock)
        self.addCleanup(self.spares.close)
        inner = client_endpoint(reactor, "127.0.0.1", port.getHost().port, tls)
        self.endpoint = self.spares.endpoint("hop", inner, tls)

    async def ask(self, spares: bool = True) -> Upgraded:
        """An opening; its stream ends with the test."""
        label, upgraded = await ask_first(
            [("hop", self.endpoint)],
            HEAD,
            clock=self.clock,
            connect_seconds=5,
            answer_seconds=5,
            spares=spares,
        )
        self.assertEqual(label, "hop")
        self.addCleanup(upgraded.abort)
        answer: Upgraded = upgraded
        return answer

    async def spare(self) -> Peer:
        """Wait for the spare connection that an opening leaves; the peer's end."""
        coming = self.peers.next()
        self.clock.advance(PAUSE_SECONDS)
        peer: Peer = await coming
        await until(lambda: len(self.spares) and not peer.transport.is_shaking)
        turns = iter((False, False, True))  # for session tickets
        await until(lambda: next(turns))
        return peer

    def requests(self) -> list[int]:
        """How many requests each connection has received."""
        return [peer.received.count(b"GET /exec") for peer in self.peers.made]

    async def test_taken(self) -> None:
        """The second opening takes the connection that the first one left, and leaves another."""
        await self.ask()
        await self.spare()
        await self.ask()
        self.assertEqual(self.requests(), [1, 1])
        await self.spare()
        self.assertEqual(self.requests(), [1, 1, 0])

    async def test_not_taken(self) -> None:
        """Other requests take none, and leave none."""
        await self.ask()
        await self.spare()
        await self.ask(spares=False)
        self.assertEqual(self.requests(), [1, 0, 1])

    async def test_refused(self) -> None:
        """A refusal over a spare connection is the answer; it leaves no connection."""
        await self.ask()
        peer: Any = await self.spare()
        peer.answer = FORBIDDEN
        with self.assertRaises(UpgradeRefused) as caught:
            await self.ask()
        self.assertEqual((caught.exception.code, caught.exception.label), (403, "hop"))
        self.assertEqual((self.requests(), self.clock.getDelayedCalls()), ([1, 1], []))

    async def test_closed(self) -> None:
        """If the peer has closed the spare connection, the request goes over a new one."""
        await self.ask()
        peer = await self.spare()
        peer.transport.loseConnection()
        await until(lambda: not len(self.spares))
        await self.ask()
        self.assertEqual(self.requests(), [1, 0, 1])

    async def test_closed_meanwhile(self) -> None:
        """
        A peer that says that it has handled no request gets the same one over a new connection.

        It closes its end while the request is on its way.
        """
        await self.ask()
        peer: Any = await self.spare()
        peer.answer = MISDIRECTED
        await self.ask()
        self.assertEqual(self.requests(), [1, 1, 1])

    async def test_misdirected_otherwise(self) -> None:
        """Over a new connection this answer is a refusal as any other."""
        self.patch(Peer, "answer", MISDIRECTED)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.ask()
        self.assertEqual((caught.exception.code, self.requests()), (421, [1]))

    async def test_nothing_came_back(self) -> None:
        """A request that may have been received is never sent again."""
        await self.ask()
        peer: Any = await self.spare()
        peer.answer = b""
        with self.assertRaises(APIError) as caught:
            await self.ask()
        self.assertEqual(caught.exception.code, 502)
        self.assertIn("hop: the connection was closed before", caught.exception.message)
        self.assertEqual(self.requests(), [1, 1])

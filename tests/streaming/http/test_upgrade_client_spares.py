"""Requests of :func:`twisted_exec.streaming.http.upgrade_client.ask_first` over spare connections."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from tests.chain import until
from tests.tls.support import LoopbackCase, Recorder, reactor
from tests.wire.test_blocks import HOSTILE
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.streaming.http import site as site_module
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.streaming.http.upgrade_server import requested_protocol, take_over
from twisted_exec.tls import spares as spares_module
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import VerificationError
from twisted_exec.tls.fast.reuse import acceptance, offer
from twisted_exec.tls.spares import MOST_OF_PEER, PAUSE_SECONDS, SpareConnections
from twisted_exec.wire.blocks import Mark
from twisted_exec.wire.upgrade import SESSIONS_HEADER, switching_protocols

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


class Accepting(Factory):
    """A site, whose accepted connections are kept."""

    noisy = False

    def __init__(self, site: Site, accepted: list[Any]) -> None:
        self.site, self.accepted = site, accepted

    def buildProtocol(self, addr: Any) -> Any:
        protocol = self.site.buildProtocol(addr)
        self.accepted.append(protocol)
        return protocol


class Upgrades(Dispatcher):
    """Opens a session for each upgrade, and answers other requests."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[Recorder] = []
        self.offers: list[list[bytes]] = []

    async def dispatch(self, request: Request) -> None:
        self.offers.append(request.requestHeaders.getRawHeaders(SESSIONS_HEADER, []))
        if b"refused" in request.path:
            raise Forbidden("not you")
        if not requested_protocol(request):
            respond_json(request, 200, {})
            return
        self.sessions.append(Recorder())
        take_over(request, self.sessions[-1], switching_protocols(b"websocket"))


class SessionTests(LoopbackCase):
    """Openings over the connection of a session that has ended."""

    spare_seconds: Any = staticmethod(lambda _: 60.0)

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.upgrades, self.clock = Upgrades(), Clock()
        self.site = Site(self.upgrades, reactor, spare_seconds=self.spare_seconds)
        self.accepted: list[Any] = []
        port = await self.listen(Accepting(self.site, self.accepted), self.server_tls())
        self.port, self.tls = port.getHost().port, self.client_tls()
        self.spares = SpareConnections(self.clock)
        self.addCleanup(self.end)
        inner = client_endpoint(reactor, "127.0.0.1", self.port, self.tls)
        self.endpoint = self.spares.endpoint("hop", inner, self.tls)

    async def end(self) -> None:
        """End all connections."""
        self.spares.close()
        for session in self.upgrades.sessions:
            if not session.lost.called:
                session.transport.abortConnection()
        for channel in list(self.site.connections):
            channel.evict()
        await until(lambda: all(session.lost.called for session in self.upgrades.sessions))
        await until(lambda: not self.site.connections)

    async def ask(self, *, spares: bool = True, path: bytes = b"/exec") -> Recorder:
        """Open a session; its client."""
        _, upgraded = await ask_first(
            [("hop", self.endpoint)],
            UpgradeRequest(b"GET", path, b"server", HEAD.headers),
            clock=self.clock,
            connect_seconds=5,
            answer_seconds=5,
            spares=spares,
        )
        client = Recorder()
        upgraded.hand_over(client)
        self.addCleanup(upgraded.abort)
        return client

    async def session(self, **how: Any) -> None:
        """A session with bytes that look like frames, which its client ends; in order on both sides."""
        client = await self.ask(**how)
        server = self.upgrades.sessions[-1]
        for data in HOSTILE:
            client.transport.write(data)
            server.transport.write(data)
        whole = b"".join(HOSTILE)
        self.assertEqual(await server.has(len(whole)), whole)
        self.assertEqual(await client.has(len(whole)), whole)
        client.transport.loseConnection()
        self.assertIsInstance(await client.lost, ConnectionDone)
        self.assertIsInstance(await server.lost, ConnectionDone)
        self.assertEqual((server.received, client.received), (whole, whole))
        turns = iter((False, True))  # for what follows the session in the same turn
        await until(lambda: next(turns))

    async def test_one_connection(self) -> None:
        """Sessions follow each other over one connection; none is made in advance meanwhile."""
        for _ in range(5):
            await self.session()
        self.assertEqual((len(self.accepted), len(self.spares)), (1, 1))
        self.assertEqual(self.upgrades.offers, [[]] * 5)  # no handler sees them
        await self.ask()
        self.clock.advance(PAUSE_SECONDS)
        await until(lambda: len(self.accepted) == 2)

    async def test_ended_by_the_server(self) -> None:
        """Also if the server ends them."""
        for _ in range(3):
            client = await self.ask()
            self.upgrades.sessions[-1].transport.write(b"bye")
            self.upgrades.sessions[-1].transport.loseConnection()
            self.assertIsInstance(await client.lost, ConnectionDone)
            self.assertEqual(client.received, b"bye")
            await until(lambda: len(self.spares) == 1)
        self.assertEqual(len(self.accepted), 1)

    async def test_closed_before_the_server_is_ready(self) -> None:
        """A program that stops closes the connection, and waits for nothing."""
        client = await self.ask()
        server = self.upgrades.sessions[-1]
        server.transport.pauseProducing()  # it does not read that the client has ended, too
        server.transport.loseConnection()
        self.assertIsInstance(await client.lost, ConnectionDone)
        await until(lambda: any(call.getTime() > 1 for call in self.clock.getDelayedCalls()))
        self.spares.close()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        server.transport.resumeProducing()
        await server.lost

    async def test_left_after_the_stop(self) -> None:
        """A connection that is left after the program has stopped is closed, too."""
        client = await self.ask()
        self.upgrades.sessions[-1].transport.loseConnection()
        self.spares.close()
        self.assertIsInstance(await client.lost, ConnectionDone)
        await until(lambda: not self.site.connections)
        self.assertEqual((len(self.spares), self.clock.getDelayedCalls()), (0, []))

    async def test_refused(self) -> None:
        """A refusal over such a connection is the answer, and ends the connection."""
        await self.session()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.ask(path=b"/refused")
        self.assertEqual(caught.exception.code, 403)
        await until(lambda: not self.site.connections)
        await self.session()
        self.assertEqual(len(self.accepted), 2)

    async def test_not_offered(self) -> None:
        """Without an offer a session has its connection to itself."""
        await self.session(spares=False)
        await until(lambda: not self.site.connections)
        self.assertEqual(len(self.spares), 0)

    async def test_too_old(self) -> None:
        """A connection that is old carries no further session; both ends look at its age."""
        for module in (site_module, spares_module):
            await self.session()
            self.assertEqual(len(self.spares), 1)
            with patch.object(module, "OLDEST_SECONDS", 0.0):
                before = len(self.accepted)
                await self.session()
            self.assertEqual(len(self.accepted), before + 1)
            await until(lambda: not len(self.spares))

    async def test_drained(self) -> None:
        """A server that drains ends the connection with the session, or at once between sessions."""
        client = await self.ask()
        self.site.drain()
        client.transport.loseConnection()
        self.assertIsInstance(await client.lost, ConnectionDone)
        await until(lambda: self.upgrades.sessions[-1].lost.called)
        self.assertEqual(len(self.site.connections), 0)
        self.site.closing = False
        await self.session()
        await until(lambda: len(self.spares) == 1)
        self.site.drain()
        await until(lambda: not len(self.spares))
        self.site.closing = False
        await self.session()
        self.assertEqual(len(self.accepted), 3)

    async def test_drained_meanwhile(self) -> None:
        """A request that is on its way to a draining server goes over another connection."""
        await self.session()
        # Both ends are in this process: the client has not read what the server sends.
        self.site.drain()
        self.site.closing = False
        await self.session()
        self.assertEqual(len(self.accepted), 2)

    async def test_not_accepted_any_more(self) -> None:
        """The server looks at the client's certificate again before the next request."""
        await self.session()
        self.site.spare_seconds = lambda _: 0.0
        await self.session()
        self.assertEqual(len(self.accepted), 2)
        self.site.spare_seconds = self.spare_seconds

    async def test_peer_certificate(self) -> None:
        """The client judges the server's certificate again."""
        await self.session()
        verdicts = [VerificationError("withdrawn")]

        def judge(certificate: object) -> None:
            if verdicts:
                raise verdicts.pop()

        self.patch(self.tls, "judge", judge)
        await self.session()
        self.assertEqual((len(self.accepted), verdicts), (2, []))

    async def test_most(self) -> None:
        """Of sessions that end together a few connections are kept."""
        clients = [await self.ask() for _ in range(MOST_OF_PEER + 3)]
        for client in clients:
            client.transport.loseConnection()
        await until(lambda: all(each.lost.called for each in self.upgrades.sessions))
        await until(lambda: len(self.site.connections) == MOST_OF_PEER)
        self.assertEqual(len(self.spares), MOST_OF_PEER)

    async def test_closed(self) -> None:
        """A program that stops keeps no connection of a session that ends later."""
        client = await self.ask()
        self.spares.close()
        client.transport.loseConnection()
        await until(lambda: self.upgrades.sessions[-1].lost.called)
        await until(lambda: not self.site.connections)
        self.assertEqual(len(self.spares), 0)

    async def test_no_room(self) -> None:
        """A server at its limit of connections keeps none, so no request is lost with it."""
        client, session = await self.raw(b"")
        self.patch(self.site, "_max_connections", 0)
        client.transport.write(Mark.END.value)
        self.assertIsInstance(await session.lost, ConnectionDone)
        await client.lost
        self.assertTrue(client.received.endswith(b"\r\n\r\n" + Mark.END.value), client.received)

    async def raw(self, *headers: bytes, early: bytes = b"") -> tuple[Recorder, Recorder]:
        """A client of its own that sends these headers; its end and the session's."""
        recorder: Recorder = await client_endpoint(
            reactor, "127.0.0.1", self.port, self.tls
        ).connect(self.recorders())
        lines = [b"GET /exec HTTP/1.1", b"Host: x", b"Connection: Upgrade", b"Upgrade: websocket"]
        offered = [
            b"%s: %s" % (SESSIONS_HEADER, each or offer(recorder.transport)) for each in headers
        ]
        recorder.transport.write(b"\r\n".join([*lines, *offered, b"", early]))
        await until(lambda: b"\r\n\r\n" in recorder.received)
        return recorder, self.upgrades.sessions[-1]

    async def test_false_offers(self) -> None:
        """An offer of another connection, such as through a proxy that ends TLS, is not accepted."""
        other, _ = await self.raw()
        for values in ([offer(other.transport)], [acceptance(other.transport)], [b"1"]):
            client, session = await self.raw(*values)
            self.assertNotIn(SESSIONS_HEADER, client.received)
            session.transport.write(b"unframed")
            await until(lambda c=client: c.received.endswith(b"\r\n\r\nunframed"))

    async def test_early_bytes(self) -> None:
        """Bytes behind a request with an offer are the session's, which has its own connection."""
        client, session = await self.raw(b"", early=b"\0\0\0early")
        self.assertNotIn(SESSIONS_HEADER, client.received)
        self.assertEqual(await session.has(8), b"\0\0\0early")

    async def test_early_bytes_in_another_slice(self) -> None:
        """Bytes behind the request that the channel has not got yet end the connection."""
        for more in (b"", b"\0\0\0early"):
            tls = client_endpoint(reactor, "127.0.0.1", self.port, self.tls)
            recorder: Recorder = await tls.connect(self.recorders())
            head = b"GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            head += b"%s: %s\r\nPadding: " % (SESSIONS_HEADER, offer(recorder.transport))
            head += b"x" * (1020 - len(head)) + b"\r\n\r\n"
            recorder.transport.write(head + more)
            await until(lambda: self.upgrades.sessions)
            session = self.upgrades.sessions.pop()
            if more:
                self.assertNotIsInstance(await session.lost, ConnectionDone)
                self.assertEqual(session.received, b"")
            else:
                await until(lambda one=recorder: SESSIONS_HEADER in one.received)
                session.transport.abortConnection()
                await session.lost

    async def test_accepted(self) -> None:
        """The answer to an offer proves that it comes from the same connection's end."""
        client, session = await self.raw(b"")
        self.assertIn(b"%s: %s" % (SESSIONS_HEADER, acceptance(client.transport)), client.received)
        client.transport.write(b"\0\0\2hi\0\0\0GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertNotIsInstance(await session.lost, ConnectionDone)
        await client.lost
        self.assertEqual(len(self.upgrades.offers), 1)  # nothing behind the mark is a request


class Liar(Recorder):
    """
    A server that answers an upgrade as it likes.

    :ivar value: of its acceptance; empty for the true one.
    :ivar rest: what it sends behind the answer.
    """

    value, rest, has_answered = b"", b"", False

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if not self.has_answered and self.received.endswith(b"\r\n\r\n"):
            self.has_answered = True
            value = self.value or acceptance(self.transport)
            line = b"%s: %s\r\n\r\n" % (SESSIONS_HEADER, value)
            self.transport.write(SWITCHED[:-2] + line + self.rest)


class LyingTests(LoopbackCase):
    """Servers that accept what was not offered, or that end a session in a wrong way."""

    async def answered(self, value: bytes, rest: bytes = b"", *, spares: bool = True) -> Any:
        """A session whose server answers an offer with this value; both ends."""
        self.patch(Liar, "value", value)
        self.patch(Liar, "rest", rest)
        peers = self.recorders(Liar)
        port = await self.listen(peers, self.server_tls())
        tls, all_spares = self.client_tls(), SpareConnections(Clock())
        inner = client_endpoint(reactor, "127.0.0.1", port.getHost().port, tls)
        _, upgraded = await ask_first(
            [("hop", all_spares.endpoint("hop", inner, tls))],
            HEAD,
            clock=Clock(),
            connect_seconds=5,
            answer_seconds=5,
            spares=spares,
        )
        self.addCleanup(upgraded.abort)
        self.addCleanup(all_spares.close)
        client = Recorder()
        upgraded.hand_over(client)
        (peer,) = peers.made
        return client, peer, all_spares

    async def test_false_acceptance(self) -> None:
        """An answer without the proof accepts nothing, nor does an answer to no offer."""
        for value, spares in ((b"1", True), (b"", False)):
            client, peer, _ = await self.answered(value, b"\0\0\2", spares=spares)
            client.transport.write(b"!")
            self.assertEqual(await client.has(3), b"\0\0\2")
            await until(lambda p=peer: p.received.endswith(b"\r\n\r\n!"))

    async def test_with_the_answer(self) -> None:
        """The first bytes of a session may come with the answer."""
        client, peer, _ = await self.answered(b"", b"\0\0\5hello\0\0")
        self.assertEqual(await client.has(5), b"hello")
        peer.transport.write(b"\2hi")
        self.assertEqual(await client.has(7), b"hellohi")

    async def test_whole_session_with_the_answer(self) -> None:
        """A session that is over with the answer has its bytes, and its connection is kept."""
        client, peer, spares = await self.answered(b"", b"\0\0\5hello\0\0\0")
        self.assertIsInstance(await client.lost, ConnectionDone)
        self.assertEqual(client.received, b"hello")
        await until(lambda: peer.received.endswith(b"\0\0\0"))
        self.assertEqual(len(spares), 0)  # the server is not ready yet
        peer.transport.write(Mark.READY.value)
        await until(lambda: len(spares) == 1)

    async def test_speaks_between_sessions(self) -> None:
        """A server that says anything but that it is ready, or more than that, loses the connection."""
        for said in (b"HTTP/1.1 101 \r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0"):
            client, peer, spares = await self.answered(b"", b"\0\0\0")
            await client.lost
            await until(lambda p=peer: p.received.endswith(b"\0\0\0"))
            peer.transport.write(said)
            await peer.lost
            self.assertEqual(len(spares), 0)
        client, peer, spares = await self.answered(b"", b"\0\0\0")
        await client.lost
        peer.transport.write(Mark.READY.value)
        await until(lambda: len(spares) == 1)
        peer.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        await peer.lost
        self.assertEqual(len(spares), 0)


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

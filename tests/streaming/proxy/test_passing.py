"""
Tests for :mod:`twisted_exec.streaming.proxy`: requests and bytes that pass.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from twisted.internet import error
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from tests import soak
from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.proxy.support import SWITCHED, Proxying, ProxyTestCase
from tests.streaming.rejoin.test_stream import Restarted
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.openings import Openings
from twisted_exec.streaming.sessions.registry import Session, StreamRequest
from twisted_exec.testing.network import MemoryClient, MemoryServer


class MemoryTests(ProxyTestCase):
    """Sessions are freed by reference counts: programs collect garbage seldom."""

    def setUp(self) -> None:
        super().setUp()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def one(self) -> list[weakref.ref[Any]]:
        """One session from its request to its end; :return: what must not survive it."""
        self.backend = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        client = self.switched()
        (session,) = self.sessions.live()
        transports = client.transport, self.backend.transport
        kept = [weakref.ref(each) for each in (session, *(each.protocol for each in transports))]
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        client.lose()
        for transport in transports:
            transport.protocol = transport.producer = None  # a closed socket is forgotten, too
        return kept

    def test_session(self) -> None:
        """A session that is over is gone without the garbage collector, and so are its ends."""
        self.assertEqual([each() for each in self.one()], [None, None, None])

    def test_many(self) -> None:
        """Many sessions that open and close leave nothing behind."""
        sessions = soak.figure(self)
        for _ in range(100):
            self.one()
        self.records.clear()
        before = len(gc.get_objects())
        for _ in range(sessions):
            self.one()
        self.records.clear()
        self.assertEqual(len(self.sessions), 0)
        self.assertLess(len(gc.get_objects()) - before, sessions // 10)


class TurnTests(ProxyTestCase):
    """Many streams that are opened at once."""

    def setUp(self) -> None:
        super().setUp()
        self.sessions.openings = Openings(at_once=1)
        self.first, self.first_backend = self.ask(), self.backend

    def another(self) -> tuple[MemoryClient, OneConnection]:
        """A further client, and what it would be connected to."""
        backend = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", backend)]
        return self.ask(), backend

    def test_turns(self) -> None:
        """A stream waits until the previous one is open, and counts as a session only then."""
        second, backend = self.another()
        self.assertIsNone(backend.protocol)
        self.assertEqual(len(self.sessions), 1)
        self.first_backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIsNotNone(backend.protocol)
        backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertEqual([each.received()[9:12] for each in (self.first, second)], [b"101", b"101"])
        self.assertEqual((len(self.sessions), len(self.sessions.openings)), (2, 0))

    def test_refused(self) -> None:
        """A refusal ends a turn, too."""
        _, backend = self.another()
        self.first_backend.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.first.responses()[0].code, 502)
        self.assertIsNotNone(backend.protocol)

    def test_too_long(self) -> None:
        """After some seconds without a turn the client gets a recorded 429 with Retry-After."""
        second, backend = self.another()
        self.clock.advance(self.proxy.state.settings.wait_seconds)
        (answer,) = second.responses()
        self.assertEqual((answer.code, answer.headers["retry-after"]), (429, "2"))
        self.assertIn("being opened", answer.json()["message"])
        self.assertEqual(self.records.ends()[0][1], 429)
        self.first_backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIsNone(backend.protocol)
        self.assertEqual(len(self.sessions.openings), 0)

    def test_left(self) -> None:
        """A client that leaves while it waits gives its turn to the next one."""
        second, _ = self.another()
        _, backend = self.another()
        second.lose()
        self.first_backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIsNotNone(backend.protocol)
        backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertEqual(len(self.sessions.openings), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_other_hops(self) -> None:
        """A slow next hop does not delay requests to another."""
        self.admission.pool = "other"
        _, backend = self.another()
        self.assertIsNotNone(backend.protocol)


class UserTurnTests(ProxyTestCase):
    """Streams of several users that are opened at once."""

    resumed = b"key=" + b"k" * 43 + b"; session=s-0; epoch=0123456789abcdef; from=4096"

    def setUp(self) -> None:
        super().setUp()
        self.admission.more = {"resumes": True}
        self.sessions.locating = Openings(at_once=8, per_user=2, pace_seconds=0)
        self.sessions.openings = Openings(at_once=4, per_user=1, pace_seconds=0)
        self.server = MemoryServer(self, self.clock)

    def render(self, request: Request) -> object:
        """Serve a request of the admission's user, whom a gate would have found."""
        request.learn(user=self.admission.user)
        return Proxying(self.proxy).render(request)

    def another(self, request: bytes = handshake()) -> OneConnection:
        """Ask for a further stream; return what it would be connected to."""
        backend = OneConnection()
        self.admission.endpoints = [("10.0.0.1:1", backend)]
        self.addCleanup(self.ask(request).lose)
        return backend

    def open(self, backend: OneConnection) -> None:
        """Let the next hop open a stream."""
        backend.protocol.dataReceived(SWITCHED + b"\r\n")

    def test_quiet_user(self) -> None:
        """A user who opens many streams delays none of another's."""
        busy = [self.another() for _ in range(20)]
        self.assertEqual(sum(each.protocol is not None for each in busy), 1)
        self.admission.user = "eve"
        self.assertIsNotNone(self.another().protocol)

    def test_located_late(self) -> None:
        """What is decided for a stream is not much older than its user's turn."""
        first = self.another()
        for _ in range(9):
            self.another()
        self.assertEqual(self.admission.located, 3)
        self.open(first)
        self.assertEqual(self.admission.located, 4)

    def test_resumed(self) -> None:
        """A session that is resumed does not wait behind those that its user opens."""
        for _ in range(20):
            self.another()
        resume = handshake(b"X-Twisted-Exec-Resume: " + self.resumed)
        self.assertIsNotNone(self.another(resume).protocol)

    def test_all(self) -> None:
        """All streams come up in the end, in the order in which they were asked for."""
        hop = Restarted()
        self.admission.endpoints = [("10.0.0.1:1", hop)]
        clients = [self.ask() for _ in range(20)]
        for number, client in enumerate(clients):
            self.assertEqual(client.received(), b"")
            self.open(hop.connections[number])
            self.assertEqual(client.received()[9:12], b"101")
        self.assertEqual(len(self.sessions), 20)
        self.assertEqual((len(self.sessions.locating), len(self.sessions.openings)), (0, 0))
        self.assertEqual((self.sessions.locating.waiting, self.sessions.openings.waiting), (0, 0))


class PassTests(ProxyTestCase):
    """Requests that are proxied."""

    def test_request(self) -> None:
        """The backend gets the admission's request and only harmless headers of the client."""
        self.ask(
            handshake(
                b"Authorization: Bearer secret",
                b"X-Remote-User: root",
                b"x-remote-group: system:masters",
                b"Impersonate-User: root",
                b"Cookie: a=b",
                b"Proxy-Authorization: x",
                b"X-Twisted-Exec-User: root",
                b"Audit-Id: chosen",
                b"Keep-Alive: x",
                b"Connection: X-Named",
                b"X-Named: x",
                b"User-Agent: kubectl",
                protocols=b"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
            )
        )
        sent = self.backend.transport.value()
        head = [line.lower() for line in sent.split(b"\r\n")]
        self.assertEqual(head[0], b"get /backend?x=1 http/1.1")
        for line in (
            b"Host: backend:1",
            b"User-Agent: kubectl",
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io",
            b"Sec-WebSocket-Version: 13",
            b"X-Remote-User: ann",
            b"Audit-Id: s-1",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
        ):
            self.assertEqual(head.count(line.lower()), 1, line)
        for word in (
            b"secret",
            b"root",
            b"masters",
            b"Cookie",
            b"chosen",
            b"Named",
            b"c2VjcmV0",
            b"Keep-Alive",
        ):
            self.assertNotIn(word, sent)

    def test_visit(self) -> None:
        """What a request asked for is kept only if sessions have a watcher."""
        self.switched()
        (unseen,) = self.sessions.live()
        self.assertEqual((unseen.request, unseen.protocol), (StreamRequest(), ""))
        seen: list[tuple[StreamRequest, str]] = []

        class Watching:
            def began(self, session: Session) -> None:
                seen.append((session.request, session.protocol))

            def ended(self, session: Session) -> None:
                """Not looked at."""

        self.sessions.watcher = Watching()
        other = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", other)
        where = {"path": b"/machines/vm/exec", "query": b"?stdin=1&readOnly=1"}
        self.ask(handshake(**where))
        other.protocol.dataReceived(SWITCHED + b"\r\n")
        ((request, protocol),) = seen
        self.assertEqual(protocol, "websocket v5.channel.k8s.io")
        self.assertEqual((request.via, request.options.read_only), ("machines/exec", True))

    def test_only_a_bearer(self) -> None:
        """A subprotocol line that held nothing but a token is dropped."""
        self.ask(handshake(protocols=b"base64url.bearer.authorization.k8s.io.c2VjcmV0"))
        self.assertNotIn(b"Sec-WebSocket-Protocol", self.backend.transport.value())

    def test_post(self) -> None:
        """A SPDY request is a POST, whose protocol lines are passed on unchanged."""
        self.ask(
            b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: spdy/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n"
            b"X-Stream-Protocol-Version: channel.k8s.io\r\n\r\n"
        )
        head = self.backend.transport.value().split(b"\r\n")
        self.assertEqual(head[0], b"POST /backend?x=1 HTTP/1.1")
        self.assertIn(b"Upgrade: SPDY/3.1", head)
        self.assertEqual(head.count(b"Content-Length: 0"), 1)
        self.assertEqual(sum(line.startswith(b"X-Stream-Protocol-Version: ") for line in head), 2)

    def test_query(self) -> None:
        """Known query parameters are passed on in Kubernetes' form, and others are dropped."""
        for path, query, passed in (
            (b"/backend?x=1", b"", b"/backend?x=1"),
            (b"/backend?x=1", b"?x=2&command=sh&container=c", b"/backend?x=1"),
            (
                b"/backend",
                b"?stdout=true&stdin=1&tty=true",
                b"/backend?stdin=true&stdout=true&tty=true",
            ),
            (b"/backend?x=1", b"?output=1&error=1", b"/backend?x=1&stdout=true&stderr=true"),
        ):
            self.setUp()
            self.admission.path = path
            self.ask(handshake().replace(b"/exec", b"/exec" + query))
            line = self.backend.transport.value().partition(b"\r\n")[0]
            self.assertEqual(line, b"GET " + passed + b" HTTP/1.1")

    def test_whole_query(self) -> None:
        """If the admission gives a whole query, no parameter of the client is added."""
        self.admission.more = {"whole": True}
        self.ask(handshake().replace(b"/exec", b"/exec?input=1&output=1"))
        line = self.backend.transport.value().partition(b"\r\n")[0]
        self.assertEqual(line, b"GET /backend?x=1 HTTP/1.1")

    def test_response(self) -> None:
        """The client gets the handshake's headers and no others of the backend's."""
        client = self.ask()
        self.backend.protocol.dataReceived(
            SWITCHED + b"Sec-WebSocket-Accept: a\r\n"
            b"Set-Cookie: a=b\r\nServer: x\r\nLocation: /\r\n\r\n"
        )
        head = client.received().split(b"\r\n")
        self.assertEqual(head[0], b"HTTP/1.1 101 Switching Protocols")
        self.assertEqual(
            sorted(head[1:-2]),
            [
                b"Audit-Id: s-1",
                b"Connection: Upgrade",
                b"Sec-WebSocket-Accept: a",
                b"Sec-WebSocket-Protocol: v5.channel.k8s.io",
                b"Upgrade: websocket",
            ],
        )

    def test_bytes(self) -> None:
        """Every byte passes, also those that came early on either side; audit counts them."""
        client = self.ask(handshake() + b"early ")
        self.backend.transport.clear()
        self.backend.protocol.dataReceived(SWITCHED + b"\r\nhello ")
        end: Any = self.backend.transport.protocol
        client.send(b"late")
        end.dataReceived(b"world")
        self.assertEqual(self.backend.transport.value(), b"early late")
        self.assertTrue(client.received().endswith(b"\r\n\r\nhello world"))
        self.assertEqual(len(self.sessions), 1)
        client.lose()
        end.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        last = self.records[-1]
        self.assertEqual(
            (last["reason"], last["bytes_to_machine"], last["bytes_to_user"], last["machine"]),
            ("client closed", 10, 11, "vm"),
        )
        self.assertNotIn("code", last)

    def test_second_address(self) -> None:
        """If one address refuses the connection, the next is tried."""
        self.admission.endpoints.clear()
        first, second = self.add_backend(connected=False), self.add_backend()
        client = self.ask()
        self.assertIsNone(second.protocol)
        first.connecting.errback(error.ConnectionRefusedError())
        second.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIn(b"101 Switching", client.received())

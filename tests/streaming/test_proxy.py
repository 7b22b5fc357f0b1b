"""Tests for :mod:`twisted_exec.streaming.proxy`."""

from __future__ import annotations

import gc
import json
import re
import socket
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.passing import carry
from tests.streaming.sessions.test_registry import Records
from twisted_exec.api.status import APIError, BadGateway, Forbidden, NotFound, Unauthorized
from twisted_exec.observe.audit import Trail
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.streaming.carried import STOP_SECONDS
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.control import SILENCE_SECONDS, SILENT_TURNS
from twisted_exec.streaming.http.pages import adopt_page
from twisted_exec.streaming.http.site import Dispatcher, Request
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    RESUMED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
    IStreamLocator,
    Location,
    Subject,
)
from twisted_exec.streaming.proxy import END_SECONDS, LOG_LINES, Proxy
from twisted_exec.streaming.sessions.openings import Openings
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.session import ClientInfo, Session
from twisted_exec.testing.http import MemoryClient, MemoryServer
from twisted_exec.wire.resume import RoundTrip, parse_answer
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.upgrade import RESUME_SUBPROTOCOL

from .frames import handshake

SWITCHED = (
    b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)


@implementer(IStreamLocator)
class Locator:
    """Locates the endpoints that the test sets."""

    def __init__(self) -> None:
        self.endpoints: list[tuple[str, IStreamClientEndpoint]] = []
        self.headers: Sequence[tuple[bytes, bytes]] = [(b"X-Remote-User", b"ann")]
        self.path = b"/backend?x=1"
        self.problem: Exception | None = None
        self.pool = ""
        self.machine = ""
        """What is known of the subject when there is a problem."""
        self.later: Callable[[], Deferred[Location]] | None = None
        self.more: dict[str, Any] = {}
        self.waiting: Deferred[Location] | None = None

    def locate(self, context: RequestContext) -> Deferred[Location]:
        context.learn(session="s-1", user="ann", machine=self.machine)
        if self.problem is not None:
            return fail(Failure(self.problem))
        if self.waiting is not None:
            return self.waiting
        subject = replace(context.subject, machine="vm", caller="apiserver", pool=self.pool)
        return succeed(self.at(subject))

    def at(self, subject: Subject) -> Location:
        host, headers = b"backend:1", self.headers
        return Location(
            subject, self.endpoints, self.path, host, headers, later=self.later, **self.more
        )


class Proxying(Dispatcher):
    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy = proxy

    async def dispatch(self, request: Request) -> None:
        await carry(self.proxy, request)


class ProxyTestCase(SynchronousTestCase):
    """A proxy between a client and backends in memory."""

    limits = SessionLimits(100, 100)

    def setUp(self) -> None:
        self.clock = Clock()
        self.records = Records()
        self.sessions = Sessions(Trail(self.records, "poollet", self.clock), limits=self.limits)
        self.locator = Locator()
        self.backend = self.add_backend()
        self.proxy = Proxy(self.locator, hop="poollet", sessions=self.sessions, clock=self.clock)
        self.server = MemoryServer(Proxying(self.proxy), self.clock)

    def add_backend(self, connected: bool = True) -> OneConnection:
        backend = OneConnection(connected)
        self.locator.endpoints.append((f"10.0.0.{len(self.locator.endpoints)}:1", backend))
        return backend

    def ask(self, request: bytes = handshake()) -> MemoryClient:
        client = self.server.connect()
        client.send(request)
        return client

    def refused(self, client: MemoryClient) -> APIError:
        """Return the client's Status after checking that all is closed and recorded."""
        (answer,) = client.responses()
        status = answer.json()
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.code))
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        message = status["message"].removeprefix('machine "vm": ')
        self.assertEqual(self.records.ends(), [(message, answer.code)])
        return APIError(
            message,
            code=answer.code,
            reason=status["reason"],
            retry_after_seconds=int(answer.headers.get("retry-after", 0)),
        )

    def switched(self, early: bytes = b"") -> MemoryClient:
        """Return the client of an established session."""
        client = self.ask()
        self.backend.protocol.dataReceived(SWITCHED + b"\r\n" + early)
        return client


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
        self.locator.endpoints[:] = [("10.0.0.1:1", self.backend)]
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

    def test_6000(self) -> None:
        """6 000 sessions that open and close leave nothing behind."""
        for _ in range(100):
            self.one()
        self.records.all.clear()
        before = len(gc.get_objects())
        for _ in range(6000):
            self.one()
        self.records.all.clear()
        self.assertEqual(len(self.sessions), 0)
        self.assertLess(len(gc.get_objects()) - before, 600)


class TurnTests(ProxyTestCase):
    """Many streams that are opened at once."""

    def setUp(self) -> None:
        super().setUp()
        self.sessions.openings = Openings(at_once=1)
        self.first, self.first_backend = self.ask(), self.backend

    def another(self) -> tuple[MemoryClient, OneConnection]:
        """A further client, and what it would be connected to."""
        backend = OneConnection()
        self.locator.endpoints[:] = [("10.0.0.1:1", backend)]
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
        self.clock.advance(self.proxy.wait_seconds)
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
        self.locator.pool = "other"
        _, backend = self.another()
        self.assertIsNotNone(backend.protocol)


class PassTests(ProxyTestCase):
    """Requests that are proxied."""

    def test_request(self) -> None:
        """The backend gets the locator's request and only harmless headers of the client."""
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
        """Client details are collected only if sessions have a watcher."""
        self.switched()
        (unseen,) = self.sessions._live
        self.assertEqual(unseen.client_info, ClientInfo())
        seen: list[ClientInfo] = []

        class Watching:
            def began(self, session: Session) -> None:
                seen.append(session.client_info)

            def ended(self, session: Session) -> None:
                """Not looked at."""

        self.sessions.watcher = Watching()
        other = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", other)
        agent = b"User-Agent: k\xff" + b"x" * 200
        where = {"path": b"/machines/vm/exec", "query": b"?stdin=1&readOnly=1"}
        self.ask(handshake(agent, **where))
        other.protocol.dataReceived(SWITCHED + b"\r\n")
        (client,) = seen
        self.assertEqual(client.protocol, "websocket v5.channel.k8s.io")
        self.assertEqual((client.via, client.options.read_only), ("machines/exec", True))
        self.assertEqual(client.agent, "k\ufffd" + "x" * 126)
        self.assertTrue(client.address)

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
            self.locator.path = path
            self.ask(handshake().replace(b"/exec", b"/exec" + query))
            line = self.backend.transport.value().partition(b"\r\n")[0]
            self.assertEqual(line, b"GET " + passed + b" HTTP/1.1")

    def test_whole_query(self) -> None:
        """If the locator gives a whole query, no parameter of the client is added."""
        self.locator.more = {"whole": True}
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
        last = self.records.all[-1]
        self.assertEqual(
            (last["reason"], last["bytes_to_machine"], last["bytes_to_user"], last["machine"]),
            ("client closed", 10, 11, "vm"),
        )
        self.assertNotIn("code", last)

    def test_second_address(self) -> None:
        """If one address refuses the connection, the next is tried."""
        self.locator.endpoints.clear()
        first, second = self.add_backend(connected=False), self.add_backend()
        client = self.ask()
        self.assertIsNone(second.protocol)
        first.connecting.errback(error.ConnectionRefusedError())
        second.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIn(b"101 Switching", client.received())


class RefuseTests(ProxyTestCase):
    """Requests that are refused."""

    def test_locator(self) -> None:
        """The locator's refusal reaches the client unchanged and is recorded with the user."""
        for problem in (
            Unauthorized(),
            Forbidden("ann may not"),
            NotFound("machines", "vm"),
        ):
            self.setUp()
            self.locator.problem = problem
            refused = self.refused(self.ask())
            self.assertEqual((refused.code, refused.message), (problem.code, problem.message))
            self.assertEqual(self.records.all[0]["user"], "ann")
            self.assertIsNone(self.backend.protocol)

    def test_locator_fails(self) -> None:
        """A bug in a locator is recorded too, without its text."""
        self.locator.problem = ZeroDivisionError("secret")
        client = self.ask()
        self.assertEqual(client.responses()[0].code, 500)
        self.assertEqual(self.records.ends(), [("internal error", 500)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_told_by_the_locator(self) -> None:
        """The locator may replace the backend's refusal, also that of a 401."""
        for code in (401, 403, 404):
            self.setUp()
            self.locator.more = {"refusal": lambda error: BadGateway(f"{error.code}, so mend it")}
            client = self.ask()
            self.backend.protocol.dataReceived(
                b"HTTP/1.1 %d X\r\nContent-Length: 1\r\n\r\nx" % code
            )
            refused = self.refused(client)
            self.assertEqual((refused.code, refused.message), (502, f"{code}, so mend it"))

    def test_methods(self) -> None:
        """A stream is opened with GET or POST."""
        for method in (b"PUT", b"HEAD", b"DELETE", b"PATCH", b"OPTIONS", b"get"):
            client = self.ask(handshake().replace(b"GET", method))
            (answer,) = client.responses(method.decode())
            self.assertEqual((answer.code, answer.headers["allow"]), (405, "GET, POST"))

    def test_not_an_upgrade(self) -> None:
        """A request that is no upgrade is refused, after the look-ups."""
        request = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
        refused = self.refused(self.ask(request))
        self.assertEqual((refused.code, refused.message), (400, "Upgrade request required"))
        self.setUp()
        self.locator.problem = NotFound("machines", "vm")
        self.assertEqual(self.refused(self.ask(request)).code, 404)
        self.assertIsNone(self.backend.protocol)

    def test_named(self) -> None:
        """Every refusal names the machine exactly once."""
        for problem, told in (
            (BadGateway("down"), 'machine "vm": down'),
            (NotFound("machines", "vm"), 'machines "vm" not found'),
            (Forbidden("machine vm is not for ann"), "machine vm is not for ann"),
            (Forbidden("machine vm-2 is not vm"), 'machine "vm": machine vm-2 is not vm'),
        ):
            self.setUp()
            self.locator.problem, self.locator.machine = problem, "vm"
            (answer,) = self.ask().responses()
            self.assertEqual((answer.code, answer.json()["message"]), (problem.code, told))
        self.setUp()
        (answer,) = self.ask(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").responses()
        self.assertEqual(answer.json()["message"], 'machine "vm": Upgrade request required')

    def test_other_upgrades(self) -> None:
        """Upgrades other than websocket and SPDY/3.1 are refused."""
        for name in (b"h2c", b"TLS/1.0", b"websocket, h2c", b"SPDY/3"):
            self.setUp()
            refused = self.refused(self.ask(handshake().replace(b"websocket", name)))
            self.assertEqual(refused.code, 400)
            self.assertIn("only websocket and SPDY/3.1", refused.message)
            self.assertIsNone(self.backend.protocol)

    def test_body(self) -> None:
        """An upgrade request has no body."""
        refused = self.refused(self.ask(handshake(b"Content-Length: 1") + b"x"))
        self.assertEqual(refused.message, "an upgrade request has no body")

    def test_no_address(self) -> None:
        """A location without addresses is a 503."""
        self.locator.endpoints.clear()
        refused = self.refused(self.ask())
        self.assertEqual((refused.code, refused.reason), (503, "ServiceUnavailable"))

    def test_refused_connection(self) -> None:
        """If no address can be connected to, the 502 gives the reason for each."""
        self.locator.endpoints.clear()
        first, second = self.add_backend(connected=False), self.add_backend(connected=False)
        client = self.ask()
        first.connecting.errback(error.ConnectionRefusedError())
        second.connecting.errback(error.NoRouteError())
        refused = self.refused(client)
        self.assertEqual(
            (refused.code, refused.message),
            (502, "cannot connect to 10.0.0.0:1: connection refused; 10.0.0.1:1: no route to it"),
        )

    def test_slow_connection(self) -> None:
        """If no address accepts within its own time limit, the client gets a 504."""
        self.locator.endpoints.clear()
        self.add_backend(connected=False)
        self.add_backend(connected=False)
        client = self.ask()
        self.clock.advance(5)
        self.assertEqual(client.received(), b"")
        self.clock.advance(5)
        refused = self.refused(client)
        self.assertEqual(refused.code, 504)
        self.assertIn("10.0.0.1:1: no connection within 5 s", refused.message)

    def test_slow_and_refused(self) -> None:
        """If the last address refuses after others were slow, the result is 502, not 504."""
        self.locator.endpoints.clear()
        self.add_backend(connected=False)
        down = self.add_backend(connected=False)
        client = self.ask()
        self.clock.advance(5)
        down.connecting.errback(error.ConnectionRefusedError())
        self.assertEqual(self.refused(client).code, 502)

    def test_slow_answer(self) -> None:
        """A backend that takes the request and does not answer is 504."""
        client = self.ask()
        self.clock.advance(10)
        refused = self.refused(client)
        self.assertEqual(
            (refused.code, refused.message),
            (504, "10.0.0.0:1: no answer to the upgrade request within 10 s"),
        )
        self.assertTrue(self.backend.transport.aborted)

    def test_no_second_try(self) -> None:
        """A request that was sent is not sent to another address: it may have used up a token."""
        second = self.add_backend()
        client = self.ask()
        self.backend.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.refused(client).code, 502)
        self.assertIsNone(second.protocol)

    def test_backend_refuses(self) -> None:
        """A backend's Status is passed on; its connection is closed."""
        body = json.dumps(NotFound("machines", "vm").to_status()).encode()
        client = self.ask()
        self.backend.protocol.dataReceived(
            b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        refused = self.refused(client)
        self.assertEqual((refused.code, refused.reason), (404, "NotFound"))
        self.assertTrue(self.backend.transport.aborted)

    def test_backend_full(self) -> None:
        """Retry-After is passed on too."""
        client = self.ask()
        self.backend.protocol.dataReceived(
            b"HTTP/1.1 429 X\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nfull"
        )
        refused = self.refused(client)
        self.assertEqual((refused.code, refused.retry_after_seconds), (429, 9))

    def test_backend_does_not_know_us(self) -> None:
        """A backend's 401 is a 502 for the client, whose credentials are not the cause."""
        client = self.ask()
        self.backend.protocol.dataReceived(b"HTTP/1.1 401 X\r\nContent-Length: 2\r\n\r\nno")
        refused = self.refused(client)
        self.assertEqual(
            (refused.code, refused.message),
            (502, "10.0.0.0:1 does not accept this server's credentials"),
        )

    def test_redirect(self) -> None:
        """A redirect is not followed, and its target is not shown to the client."""
        client = self.ask()
        self.backend.protocol.dataReceived(
            b"HTTP/1.1 302 X\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n"
        )
        data = client.received()
        self.assertNotIn(b"evil", data)
        self.assertIn(b"invalid upgrade response: status code 302", data)
        self.assertTrue(data.startswith(b"HTTP/1.1 502 "))
        self.assertTrue(self.backend.transport.aborted)

    def test_nothing_behind_a_refusal(self) -> None:
        """Bytes behind a refused upgrade never reach the backend."""
        client = self.ask(handshake() + b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n")
        before = self.backend.transport.value()
        self.backend.protocol.dataReceived(b"HTTP/1.1 403 X\r\nContent-Length: 2\r\n\r\nno")
        self.assertEqual(self.backend.transport.value(), before)
        self.assertEqual([answer.code for answer in client.responses()], [403, 400])

    def test_client_leaves(self) -> None:
        """A client that leaves while it waits ends the attempt, and the audit records it."""
        for when in ("locating", "connecting", "answering"):
            self.setUp()
            self.locator.endpoints.clear()
            self.backend = self.add_backend(connected=when == "answering")
            if when == "locating":
                self.locator.waiting = Deferred()
            client = self.ask()
            client.lose()
            self.assertEqual(self.records.ends(), [("client closed", 499)])
            self.records.check_pairs()
            self.assertEqual(len(self.sessions), 0)
            if when == "answering":
                self.assertTrue(self.backend.transport.aborted)
                self.backend.protocol.connectionLost(Failure(ConnectionDone()))
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_client_left_unnoticed(self) -> None:
        """A client that left unnoticed before the answer is recorded as closed too."""

        class Deaf(Proxying):
            async def dispatch(self, request: Request) -> None:
                self.handling = Deferred.fromCoroutine(carry(self.proxy, request))
                await Deferred()

        deaf = Deaf(self.proxy)
        self.server = MemoryServer(deaf, self.clock)
        client = self.ask()
        client.lose()
        self.backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.failureResultOf(deaf.handling, CancelledError)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.records.ends(), [("client closed", 499)])

    def test_26_full(self) -> None:
        """Beyond the limit a session is refused with 429 and Retry-After."""
        self.limits = SessionLimits(1, 1)
        self.setUp()
        self.switched()
        (answer,) = self.ask().responses()
        self.assertEqual((answer.code, answer.headers["retry-after"]), (429, "10"))


class TermsTests(ProxyTestCase):
    """Sessions that are held to terms."""

    observer = Terms(right=Right.OBSERVE)
    accepted = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    def confirmed(self, terms: bytes) -> MemoryClient:
        """Return the client of a session whose next hop confirms these terms."""
        client = self.ask()
        header = b"X-Twisted-Exec-Terms: %s\r\n" % terms if terms else b""
        self.backend.protocol.dataReceived(SWITCHED + header + b"\r\n")
        return client

    def test_sent(self) -> None:
        """The terms are sent, and the confirmation is passed on."""
        self.locator.more = {"terms": self.observer}
        client = self.confirmed(b"right=observe")
        head = self.backend.transport.value().split(b"\r\n")
        self.assertIn(b"X-Twisted-Exec-Terms: right=observe", head)
        self.assertIn(b"X-Twisted-Exec-Terms: right=observe\r\n", client.received())

    def test_stricter(self) -> None:
        """A next hop may be stricter."""
        self.locator.more = {"terms": Terms(viewers=3)}
        client = self.confirmed(b"right=observe&viewers=2&policy=a%2Fb")
        self.assertIn(b"101 Switching", client.received())

    def test_not_confirmed(self) -> None:
        """A next hop that confirms less, or nothing, is left, and the user reads why."""
        for terms in (b"", b"right=drive", b"right=observe&later=1"):
            self.setUp()
            self.locator.more = {"terms": self.observer}
            refused = self.refused(self.confirmed(terms))
            self.assertEqual(refused.code, 501)
            self.assertIn("10.0.0.0:1 cannot hold a session to its terms", refused.message)
            self.assertTrue(self.backend.transport.aborted)

    def change(self, terms: Terms) -> OneConnection:
        """Change the terms of the session; return the connection of the request."""
        control = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", control)
        (session,) = self.sessions.live()
        session.hold_to(terms)
        return control

    def test_changed(self) -> None:
        """Nothing of the user passes until the next hop has confirmed the new terms."""
        client = self.confirmed(b"")
        machine = self.backend.transport
        machine.clear()
        control = self.change(self.observer)
        client.send(b"reboot")
        self.assertEqual(machine.value(), b"")
        line = control.transport.value().split(b"\r\n")[0]
        self.assertEqual(line, b"PATCH /backend?x=1&session=s-1&terms=right%3Dobserve HTTP/1.1")
        control.protocol.dataReceived(self.accepted)
        self.assertEqual(machine.value(), b"reboot")  # the next hop drops it
        self.assertEqual(self.records.ends(), [])

    def test_changed_twice(self) -> None:
        """A change waits for the answer to the one before; only then the user's bytes pass."""
        client = self.confirmed(b"")
        machine = self.backend.transport
        machine.clear()
        control = self.change(self.observer)
        (session,) = self.sessions.live()
        session.hold_to(Terms(people=2))
        client.send(b"x")
        second = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", second)
        self.assertEqual(control.transport.value().count(b"PATCH"), 1)
        control.protocol.dataReceived(self.accepted)
        self.assertIn(b"terms=people%3D2 HTTP", second.transport.value())
        self.assertEqual(machine.value(), b"")
        second.protocol.dataReceived(self.accepted)
        self.assertEqual(machine.value(), b"x")

    def test_refused(self) -> None:
        """A session whose next hop refuses, or is silent, ends; its input is lost."""
        for answer in (b"HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n", b""):
            self.setUp()
            client = self.confirmed(b"")
            machine = self.backend.transport
            machine.clear()
            control = self.change(self.observer)
            client.send(b"reboot")
            control.protocol.dataReceived(answer)
            (session,) = self.sessions.live()
            self.clock.advance(END_SECONDS)
            ending = session.ending
            assert ending is not None
            self.assertEqual(
                ending.message,
                "your rights at this console changed (right=observe), and the next hop did not"
                " confirm the change in time: open the console again",
            )
            self.clock.advance(END_SECONDS)
            self.assertEqual(machine.value(), b"")
            machine.protocol.connectionLost(Failure(ConnectionDone()))
            client.lose()
            self.assertEqual(self.records.ends(), [(REVOKED, None)])

    def test_silent(self) -> None:
        """The session of a silent next hop is cut at once when the change is not confirmed."""
        client = self.confirmed(b"")
        self.change(self.observer)
        (session,) = self.sessions.live()
        self.clock.pump([SILENCE_SECONDS / SILENT_TURNS] * SILENT_TURNS)
        assert session.ending is not None
        self.assertEqual(session.ending.reason, REVOKED)
        self.clock.advance(0)
        self.assertTrue(client.closed)
        self.assertTrue(self.backend.transport.aborted)
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.records.ends(), [(REVOKED, None)])

    def test_over_before_it_was_confirmed(self) -> None:
        """If the machine ends the session first, that is the reason; the change is given up."""
        client = self.confirmed(b"")
        control = OneConnection(connected=False)
        self.locator.endpoints[0] = ("10.0.0.0:1", control)
        (session,) = self.sessions.live()
        session.hold_to(self.observer)
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        client.lose()
        self.assertEqual(self.records.ends(), [("backend closed", None)])
        self.assertTrue(control.connecting.called)  # cancelled
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ResumeTests(ProxyTestCase):
    """Sessions whose client can resume them."""

    key, next_key = b"k" * 43, b"n" * 43
    answer = b"key=" + next_key + b"; seconds=60"
    resumed = b"key=" + key + b"; session=s-0; epoch=0123456789abcdef; from=4096"

    def setUp(self) -> None:
        super().setUp()
        self.locator.more = {"resumes": True}

    def request(self, value: bytes, **more: Any) -> bytes:
        return handshake(b"X-Twisted-Exec-Resume: " + value, **more)

    def answered(self, value: bytes, answer: bytes = answer) -> MemoryClient:
        """Return the client of a session whose next hop gives an answer."""
        client = self.ask(self.request(value))
        line = b"X-Twisted-Exec-Resume: " + answer + b"\r\n" if answer else b""
        self.backend.protocol.dataReceived(SWITCHED + line + b"\r\n")
        return client

    def sent(self) -> list[bytes]:
        """Return the values of the header that the next hop got."""
        lines = self.backend.transport.value().split(b"\r\n")
        return [line[23:] for line in lines if line.lower().startswith(b"x-twisted-exec-resume: ")]

    def test_first(self) -> None:
        """The header goes to the next hop, and its answer to the client."""
        client = self.answered(b"marks")
        self.assertEqual(self.sent(), [b"marks"])
        self.assertIn(b"X-Twisted-Exec-Resume: " + self.answer + b"\r\n", client.received())
        (session,) = self.sessions.live()
        self.assertEqual((session.resumable_seconds, session.resumes), (60, ""))

    def test_page(self) -> None:
        """A page gets the answer in the first message of the stream; nothing of the hop behind comes before."""

        class Serving(Proxying):
            async def dispatch(self, request: Request) -> None:
                adopt_page(request)
                await super().dispatch(request)

        self.server = MemoryServer(Serving(self.proxy), self.clock)
        value = RESUME_SUBPROTOCOL + b"bWFya3M7IGNyZWRpdD02NTUzNg"
        client = self.ask(handshake(protocols=b"v5.channel.k8s.io, " + value))
        self.assertEqual(self.sent(), [b"marks; credit=65536"])
        self.assertNotIn(b"base64url", self.backend.transport.value())
        line = b"X-Twisted-Exec-Resume: " + self.answer + b"\r\n\r\n"
        self.backend.protocol.dataReceived(SWITCHED + line + b"\x82\x02\x01x")
        _, _, stream = client.received().partition(b"\r\n\r\n")
        mark = b'\x04{"Session":"s-1","Key":"%s","Seconds":60}\n' % self.next_key
        self.assertEqual(stream, b"\x82" + bytes([len(mark)]) + mark + b"\x82\x02\x01x")

    def test_round_trips(self) -> None:
        """A hop adds the TCP round trip of its connection to the next one to the answer."""
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as connection,
        ):
            self.backend.transport.socket = connection
            client = self.answered(b"marks", self.answer + b"; hops=poollet/7")
        line = re.compile(rb"\r\nX-Twisted-Exec-Resume: (.*)\r\n")
        (answer,) = line.findall(client.received())
        first, second = parse_answer(answer.decode()).round_trips
        self.assertEqual((first.hop, second), ("poollet", RoundTrip("poollet", 7)))
        self.assertGreater(first.microseconds, 0)

    def test_resumed(self) -> None:
        """A resumed session names the one before in its records, and nobody's key."""
        client = self.answered(self.resumed)
        self.assertEqual(self.sent(), [self.resumed])
        (session,) = self.sessions.live()
        self.assertEqual((session.resumable_seconds, session.resumes), (60, "s-0"))
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        client.lose()
        self.assertEqual([each["resumes"] for each in self.records.all], ["s-0", "s-0"])
        for key in (self.key, self.next_key):
            self.assertNotIn(key.decode(), repr(self.records.all) + repr(session.__dict__))

    def test_busy_hop(self) -> None:
        """A session that goes on gets the time of the hop before, which leaves first; a new one does not."""
        self.proxy.continue_seconds = 60
        client = self.ask(self.request(self.resumed))
        self.clock.advance(59)
        self.assertFalse(self.backend.transport.aborted)
        client.lose()
        self.assertTrue(self.backend.transport.aborted)
        self.backend = OneConnection()
        self.locator.endpoints[:] = [("10.0.0.1:1", self.backend)]
        refused = self.ask(self.request(b"marks"))
        self.clock.advance(10)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(refused.responses()[0].code, 504)

    def test_old_hop(self) -> None:
        """Without an answer of the next hop the session is an ordinary one."""
        client = self.answered(b"marks", b"")
        self.assertNotIn(b"X-Twisted-Exec", client.received())
        (session,) = self.sessions.live()
        self.assertEqual(session.resumable_seconds, 0)

    def test_unasked(self) -> None:
        """An answer to a client that has not asked is dropped."""
        client = self.ask()
        line = b"X-Twisted-Exec-Resume: " + self.answer
        self.backend.protocol.dataReceived(SWITCHED + line + b"\r\n\r\n")
        self.assertNotIn(b"X-Twisted-Exec", client.received())

    def test_opened_instead(self) -> None:
        """A next hop that opens a session instead of resuming one is left."""
        refused = self.refused(self.answered(self.resumed, b""))
        self.assertEqual(refused.code, 409)
        self.assertIn("cannot resume a session", refused.message)
        self.assertTrue(self.backend.transport.aborted)

    def test_invalid_answer(self) -> None:
        """An answer that no client could use is an error of the next hop."""
        refused = self.refused(self.answered(b"marks", b"key=short; seconds=60"))
        self.assertEqual(refused.code, 502)
        self.assertTrue(self.backend.transport.aborted)

    def test_invalid(self) -> None:
        """A header that is not valid, or sent twice, is answered with 400."""
        for request in (
            self.request(b"mark"),
            self.request(b"key=short"),
            self.request(self.resumed + b"; from=1"),
            handshake(*[b"X-Twisted-Exec-Resume: marks"] * 2),
        ):
            self.setUp()
            (answer,) = self.ask(request).responses()
            self.assertEqual(answer.code, 400, request)
            self.assertIsNone(self.backend.protocol)
            self.records.check_pairs()
            self.assertNotIn(self.key.decode(), repr(self.records.all) + repr(answer.json()))

    def test_not_here(self) -> None:
        """Only a WebSocket that passes unread can be resumed."""
        spdy = (
            b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n"
            b"X-Twisted-Exec-Resume: %s\r\n\r\n"
        )
        tunnel = b"SPDY/3.1+portforward.k8s.io"
        for resumes, request in (
            (False, partial(self.request)),
            (True, lambda value: spdy % value),
            (True, partial(self.request, protocols=tunnel)),
        ):
            self.setUp()
            self.locator.more = {"resumes": resumes}
            (answer,) = self.ask(request(self.resumed)).responses()
            self.assertEqual(answer.code, 409)
            self.assertIn("cannot resume a session", answer.json()["message"])
            self.assertIsNone(self.backend.protocol)
            self.ask(request(b"marks"))
            self.assertEqual(self.sent(), [])
            self.assertTrue(self.backend.transport.value())

    def test_not_translated(self) -> None:
        """A next hop that does not speak the protocol is asked for another without the header."""
        self.ask(self.request(b"marks"))
        second = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", second)
        self.backend.protocol.dataReceived(b"HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n")
        self.backend = second
        self.assertIn(b"Upgrade", second.transport.value())
        self.assertEqual(self.sent(), [])

    def test_resumed_not_translated(self) -> None:
        """A request that resumes is not translated."""
        client = self.ask(self.request(self.resumed))
        self.backend.protocol.dataReceived(b"HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.refused(client).code, 403)

    def test_refused(self) -> None:
        """A refusal of the next hop reaches the client, and the session here goes on."""
        old = self.answered(b"marks")
        self.backend = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", self.backend)
        client = self.ask(self.request(self.resumed.replace(b"s-0", b"s-1")))
        self.assertTrue(self.sessions.is_being_resumed(Subject("s-1", user="ann")))
        self.backend.protocol.dataReceived(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(client.responses()[0].code, 404)
        self.assertFalse(self.sessions.is_being_resumed(Subject("s-1", user="ann")))
        self.clock.advance(60)
        self.assertFalse(old.closed)

    def test_superseded(self) -> None:
        """The connection that the session still has is cut, but its client may read why first."""
        self.limits = SessionLimits(2, 1)
        self.setUp()
        old, old_backend = self.answered(b"marks"), self.backend
        self.backend = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", self.backend)
        self.answered(self.resumed.replace(b"s-0", b"s-1"))
        old_backend.transport.protocol.dataReceived(b"resumed elsewhere")
        self.assertTrue(old.received().endswith(b"resumed elsewhere"))
        self.assertFalse(old.closed)
        self.clock.advance(STOP_SECONDS)
        self.assertTrue(old.closed)
        self.assertTrue(old_backend.transport.aborted)
        old.lose()
        old_backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.records.ends(), [(RESUMED, None)])
        self.assertEqual(len(self.sessions), 1)
        (answer,) = self.ask().responses()  # the user's limit counts the new session
        self.assertEqual(answer.code, 429)


class LossTests(ProxyTestCase):
    """
    Which sessions wait for their user after their connection is lost: those whose machine's side has
    not sent a Close.
    """

    close = b"\x88\x02\x03\xe8"

    def setUp(self) -> None:
        super().setUp()
        self.locator.more = {"resumes": True}
        self.client = self.ask(handshake(b"X-Twisted-Exec-Resume: marks"))
        line = b"X-Twisted-Exec-Resume: " + ResumeTests.answer
        self.backend.protocol.dataReceived(SWITCHED + line + b"\r\n\r\n")
        self.machine = self.backend.transport
        (self.session,) = self.sessions.live()
        self.machine.clear()

    def lose(self, reason: Exception | None = None) -> None:
        """Lose the connection to the machine's side."""
        self.machine.protocol.connectionLost(Failure(reason or ConnectionDone()))

    def over(self) -> bool:
        """Return whether the session waits, after checking that it is over here."""
        self.assertEqual(len(self.sessions), 0)
        return self.session.is_lost

    def test_client_killed(self) -> None:
        """The client's connection ends, and the machine's side leaves without a Close."""
        self.client.lose()
        self.lose()
        self.assertTrue(self.over())

    def test_user_left(self) -> None:
        """The machine's side answers the Close of a client that leaves."""
        self.client.send(b"\x88\x82abcd\x62\x8a")
        self.machine.protocol.dataReceived(self.close)
        self.lose()
        self.client.lose()
        self.assertFalse(self.over())

    def test_user_left_in_haste(self) -> None:
        """The answer counts also if the client has closed its connection meanwhile."""
        self.client.send(b"\x88\x82abcd\x62\x8a")
        self.client.lose()
        self.machine.protocol.dataReceived(self.close)
        self.lose()
        self.assertFalse(self.over())

    def test_console_ended(self) -> None:
        """The console's end is a status and a Close, whether or not the client answers."""
        self.machine.protocol.dataReceived(b"\x82\x03\x03{}" + self.close)
        self.client.lose()
        self.lose()
        self.assertFalse(self.over())

    def test_next_hop_killed(self) -> None:
        """A next hop that is killed or stopped sends no Close, however its connection ends."""
        for reason in (ConnectionDone(), error.ConnectionLost()):
            self.setUp()
            self.machine.protocol.dataReceived(b"\x82\x05\x01text")
            self.lose(reason)
            self.client.lose()
            self.assertTrue(self.over())

    def test_ended_here(self) -> None:
        """A session that this hop ends is over even if the machine's side is silent."""
        self.session.end(Ending(REVOKED, "role removed"))
        self.clock.advance(END_SECONDS)
        self.lose(error.ConnectionAborted())
        self.client.lose()
        self.assertFalse(self.over())
        self.assertEqual(self.records.ends(), [(REVOKED, None)])

    def test_stopped(self) -> None:
        """A hop that stops cuts the session: it says nothing to either side."""
        self.client.received()
        before = len(self.client.received())
        self.locator.endpoints.clear()  # nothing is asked for
        drained = self.sessions.drain(self.clock, 5, Ending(SHUTTING_DOWN, "going down"))
        self.client.send(b"\x82\x81abcdx")
        self.assertEqual(self.machine.value(), b"")
        self.assertEqual(len(self.client.received()), before)
        self.assertTrue(self.client.closed)
        self.lose()
        self.client.lose()
        self.successResultOf(drained)
        self.assertTrue(self.over())
        self.assertEqual(self.records.ends(), [(SHUTTING_DOWN, None)])

    def test_ordinary(self) -> None:
        """A session that cannot be resumed waits for nobody."""
        self.backend = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", self.backend)
        client = self.switched()
        session = self.sessions.live()[-1]
        client.lose()
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertFalse(session.is_lost)


class EndTests(ProxyTestCase):
    """Ending a session from this hop."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.switched()
        self.session_transport = self.backend.transport
        # The next connection carries the request to end it.
        self.control = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", self.control)

    def lose_backend(self) -> None:
        self.session_transport.protocol.connectionLost(Failure(ConnectionDone()))

    def end(self, reason: str = MACHINE_DELETED) -> None:
        self.sessions.end(lambda _: True, Ending(reason, "vm is gone"))

    def test_log_of_many(self) -> None:
        """Of many sessions that are cut in one second the log names the first ones."""
        (session,) = self.sessions.live()
        failure = Failure(BadGateway("it refuses"))
        levels = {}
        for second in range(2):
            with capturedLogs() as events:
                for _ in range(LOG_LINES + 5):
                    self.proxy.cutting(session, failure)
            levels[second] = [each["log_level"].name for each in events]
            self.clock.advance(1)
        self.assertEqual(levels[0], ["info"] * LOG_LINES + ["debug"] * 5)
        self.assertEqual(levels[1], levels[0])
        text = "poollet cuts session s-1, the next hop does not end or change it: it refuses"
        self.assertEqual(formatEvent(events[0]), text)

    def test_asked(self) -> None:
        """A DELETE with the session's own credentials gives the next hop the reason."""
        self.end()
        head = self.control.transport.value().split(b"\r\n")
        self.assertEqual(
            head[0],
            b"DELETE /backend?x=1&session=s-1&reason=MachineDeleted&message=vm+is+gone HTTP/1.1",
        )
        self.assertIn(b"X-Remote-User: ann", head)
        self.assertIn(b"Host: backend:1", head)
        self.assertEqual(self.session_transport.closed, [])
        self.control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertTrue(self.control.transport.aborted)
        self.lose_backend()
        self.client.lose()
        self.assertEqual(self.records.ends(), [(MACHINE_DELETED, None)])
        self.clock.advance(60)

    def test_input(self) -> None:
        """
        From the decision on no byte of the user passes.  When the next hop has agreed to end the
        session, it takes no input itself, and needs the user's part of the protocol's end.
        """
        sent = self.session_transport.value()
        self.client.send(b"before")
        self.end(REVOKED)
        self.client.send(b"behind")
        self.assertEqual(self.session_transport.value(), sent + b"before")
        self.control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.session_transport.value(), sent + b"beforebehind")
        self.clock.advance(END_SECONDS)
        self.client.send(b"late")
        self.assertEqual(self.session_transport.value(), sent + b"beforebehind")

    def test_input_of_a_foreign_session(self) -> None:
        """Nothing passes either when the next hop refuses to end the session."""
        sent = self.session_transport.value()
        self.proxy.cuts_when_refused = False
        self.end(REVOKED)
        self.client.send(b"one")
        self.control.protocol.dataReceived(b"HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n")
        self.client.send(b"two")
        self.clock.advance(END_SECONDS)
        self.client.send(b"three")
        self.assertEqual(self.session_transport.value(), sent)

    def test_input_while_connecting(self) -> None:
        """What the user of a session that is to end has sent early does not pass."""
        late = OneConnection(connected=False)
        self.locator.endpoints[0] = ("10.0.0.0:1", late)
        client = self.ask(handshake() + b"early")
        self.sessions.live()[-1].end(Ending(REVOKED, "no more"))
        late.protocol.makeConnection(late.transport)
        late.connecting.callback(late.protocol)
        self.locator.endpoints[0] = ("10.0.0.0:1", OneConnection())
        late.protocol.dataReceived(SWITCHED + b"\r\n")
        client.send(b"more")
        self.assertTrue(late.transport.value().endswith(b"\r\n\r\n"))
        self.clock.advance(60)

    def test_not_heeded(self) -> None:
        """A stream that does not end within 0.7 s of the DELETE is cut."""
        self.end(REVOKED)
        self.control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.clock.advance(END_SECONDS - 0.1)
        self.assertFalse(self.session_transport.aborted)
        self.clock.advance(0.1)
        self.assertTrue(self.session_transport.aborted)
        self.assertTrue(self.client.closed)
        self.lose_backend()
        self.assertEqual(self.records.ends(), [(REVOKED, None)])

    def test_status_on_its_way(self) -> None:
        """
        The last message of a machine that is gone may take 10 s through busy hops before the
        stream is cut.
        """
        for reason in (POWERED_OFF, MACHINE_DELETED, POOL_DELETED):
            self.setUp()
            self.end(reason)
            if reason != POWERED_OFF:  # that is no withdrawal: a busy hop need not even answer
                self.control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            self.clock.pump([0.1] * 9)
            self.clock.advance(9)
            self.assertFalse(self.session_transport.aborted, reason)
            self.session_transport.protocol.dataReceived(b"\x88\x00")
            self.assertTrue(self.client.received().endswith(b"\x88\x00"), reason)
            self.clock.advance(0.1)
            self.assertTrue(self.session_transport.aborted, reason)

    def test_silent(self) -> None:
        """A withdrawal or deletion cuts the sessions of a next hop that answers nothing, soon."""
        for reason in (MACHINE_DELETED, POOL_DELETED, REVOKED):
            self.setUp()
            self.proxy.cuts_when_refused = False  # which is about refusals
            self.end(reason)
            turns = [SILENCE_SECONDS / SILENT_TURNS] * SILENT_TURNS
            self.clock.pump(turns[1:])
            self.assertFalse(self.session_transport.aborted, reason)
            self.clock.pump([turns[0], 0])
            self.assertTrue(self.session_transport.aborted, reason)
            self.assertTrue(self.client.closed)
            self.lose_backend()
            self.assertEqual(self.records.ends(), [(reason, None)])
            self.clock.advance(60)

    def test_foreign(self) -> None:
        """A next hop that knows no such request has the stream cut at once."""
        self.end()
        self.control.protocol.dataReceived(b"HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n")
        self.clock.advance(0)
        self.assertTrue(self.session_transport.aborted)

    def test_foreign_and_patient(self) -> None:
        """Unless cuts_when_refused is set, a refused DELETE cuts the stream only after 0.7 s."""
        self.proxy.cuts_when_refused = False
        self.end(REVOKED)
        self.control.protocol.dataReceived(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
        self.clock.advance(END_SECONDS - 0.1)
        self.assertFalse(self.session_transport.aborted)
        self.clock.advance(0.1)
        self.assertTrue(self.session_transport.aborted)
        self.lose_backend()

    def test_unreachable(self) -> None:
        """If the next hop cannot be reached, the stream is cut after 0.7 s."""
        self.locator.endpoints[0] = ("10.0.0.0:1", OneConnection(connected=False))
        self.end(REVOKED)
        self.clock.advance(END_SECONDS)
        self.assertTrue(self.session_transport.aborted)
        self.clock.advance(60)

    def test_over_before_it_was_asked(self) -> None:
        """If the session ends first, the pending DELETE is cancelled."""
        self.locator.endpoints[0] = ("10.0.0.0:1", OneConnection(connected=False))
        self.end()
        self.lose_backend()
        self.client.lose()
        self.assertEqual(self.records.ends(), [(MACHINE_DELETED, None)])
        self.assertTrue(self.locator.endpoints[0][1].connecting.called)  # cancelled
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_ended_while_connecting(self) -> None:
        """A session that is ended before its stream is up ends as soon as the stream is up."""
        self.locator.endpoints[0] = ("10.0.0.0:1", OneConnection(connected=False))
        late = self.locator.endpoints[0][1]
        client = self.ask()
        self.sessions.live()[-1].end(Ending(REVOKED, "no more"))
        late.protocol.makeConnection(late.transport)
        late.connecting.callback(late.protocol)
        self.locator.endpoints[0] = ("10.0.0.0:1", OneConnection())
        late.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIn(b"101 Switching", client.received())
        self.clock.advance(2)
        self.assertTrue(late.transport.closed)

    def test_drain(self) -> None:
        """Draining ends every session, by the same way."""
        drained = self.sessions.drain(self.clock, 5, Ending(SHUTTING_DOWN))
        self.assertIn(b"reason=ShuttingDown", self.control.transport.value())
        self.clock.advance(1.9)  # more patience than for a right that was withdrawn
        self.assertFalse(self.session_transport.aborted)
        self.lose_backend()
        self.client.lose()
        self.successResultOf(drained)
        self.assertEqual(self.records.ends(), [(SHUTTING_DOWN, None)])


class EndHereTests(ProxyTestCase):
    """Ending a session whose next hop does not support DELETE."""

    def setUp(self) -> None:
        super().setUp()
        self.locator.more = {"ends_here": True}
        self.session = self.switched()
        self.end = self.backend.transport

    def test_told(self) -> None:
        """This hop itself sends the reason to the user, after the frame under way."""
        self.end.protocol.dataReceived(b"\x82\x05\x01a")
        self.session.received()
        self.sessions.end(lambda _: True, Ending(SHUTTING_DOWN, "going down"))
        self.assertEqual((self.session.received(), self.end.closed), (b"", []))
        self.end.protocol.dataReceived(b"bcd")
        told = self.session.received()
        self.assertIn(b'"message":"going down"', told)
        self.assertTrue(told.startswith(b"bcd\x82"), told)
        self.assertEqual(len(self.end.closed), 1)
        self.end.protocol.connectionLost(Failure(ConnectionDone()))
        self.session.lose()
        self.assertEqual(self.records.ends(), [(SHUTTING_DOWN, None)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_never_whole(self) -> None:
        """A message that does not end is cut off after 0.7 s."""
        self.end.protocol.dataReceived(b"\x82\x05\x01a")
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        self.clock.advance(END_SECONDS - 0.1)
        self.assertFalse(self.end.aborted)
        self.clock.advance(0.1)
        self.assertTrue(self.end.aborted)
        self.end.protocol.connectionLost(Failure(ConnectionDone()))


class EndElsewhereTests(ProxyTestCase):
    """Ending a session that has another id at the next hop."""

    def test_asked_by_its_name_there(self) -> None:
        """The DELETE uses the id from the next hop's Audit-Id header."""
        self.ask()
        self.backend.protocol.dataReceived(SWITCHED + b"Audit-Id: theirs\r\n\r\n")
        control = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", control)
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        self.assertIn(b"&session=theirs&", control.transport.value().split(b"\r\n")[0])
        self.clock.advance(60)

    def test_later(self) -> None:
        """If the locator has a later location, the DELETE uses its credentials."""
        control = OneConnection()

        def later() -> Deferred[Location]:
            headers = [(b"Authorization", b"Bearer tomorrow")]
            subject = Subject("s-1", "ann")
            return succeed(Location(subject, [("there", control)], b"/x", b"there:2", headers))

        self.locator.later = later
        self.ask()
        self.backend.protocol.dataReceived(SWITCHED + b"\r\n")
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        head = control.transport.value().split(b"\r\n")
        self.assertIn(b"Authorization: Bearer tomorrow", head)
        self.assertIn(b"Host: there:2", head)
        self.clock.advance(60)


class EndByRequestTests(ProxyTestCase):
    """Ending a session at the request of the previous hop."""

    def setUp(self) -> None:
        super().setUp()
        self.caller = "apiserver"
        self.proxy.caller_of = lambda request: succeed(self.caller)
        self.client = self.switched()
        self.control = OneConnection()
        self.locator.endpoints[0] = ("10.0.0.0:1", self.control)

    def delete(self, session: str) -> Any:
        return self.server.request("DELETE", f"/x?session={session}&reason=PoolDeleted&message=m")

    def test_ended(self) -> None:
        """The caller that opened a session may end it, and the ending is handed on."""
        answer = self.delete("s-1")
        self.assertEqual((answer.code, answer.json()["status"]), (200, "Success"))
        self.assertIn(
            b"session=s-1&reason=PoolDeleted&message=m HTTP", self.control.transport.value()
        )

    def test_terms(self) -> None:
        """
        The caller that opened a session changes only the terms that it has set itself, never those
        that this hop holds the session to.  Any other caller changes nothing.
        """
        (session,) = self.sessions.live()
        session.hold_to(Terms(right=Right.OBSERVE))
        for text, viewers in (("viewers%3D2", 2), ("right%3Dtakeover", 0), ("", 0)):
            answer = self.server.request("PATCH", f"/x?session=s-1&terms={text}")
            self.assertEqual(answer.code, 200)
            self.assertEqual(session.terms, Terms(Right.OBSERVE, viewers=viewers))
        self.caller = "mallory"
        answer = self.server.request("PATCH", "/x?session=s-1&terms=people%3D10")
        self.assertEqual(answer.code, 404)
        self.assertEqual(session.terms, Terms(Right.OBSERVE))

    def test_ended_together(self) -> None:
        """One request may end further sessions of the caller; the answer says which of them it did."""
        query = "reason=PoolDeleted&message=m"
        entries = [
            {"target": f"/x?session={name}&{query}", "headers": {}} for name in ("s-2", "s-1", "")
        ]
        body = json.dumps({"requests": entries}).encode()
        answer = self.server.request("DELETE", f"/x?session=s-1&{query}", body)
        self.assertEqual((answer.code, answer.json()["details"]), (200, {"done": [1]}))
        self.assertEqual(self.server.request("DELETE", f"/x?session=s-1&{query}", b"x").code, 400)
        self.caller = "mallory"
        self.assertEqual(self.server.request("DELETE", f"/x?session=s-1&{query}", body).code, 404)

    def test_other_caller(self) -> None:
        """Another caller gets 404, as for a session that does not exist."""
        self.caller = "mallory"
        self.assertEqual(self.delete("s-1").code, 404)
        self.assertIsNone(self.control.protocol)

    def test_unknown(self) -> None:
        """An unknown session is a 404, and a query without a session a 400."""
        self.assertEqual(self.delete("s-2").code, 404)
        self.assertEqual(self.delete("").code, 400)

    def test_unauthenticated(self) -> None:
        """An unauthenticated caller is refused with 401."""
        self.proxy.caller_of = lambda request: fail(Failure(Unauthorized()))
        self.assertEqual(self.delete("s-1").code, 401)

"""Tests for :mod:`twisted_exec.streaming.http.upgrade_client`."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import Any

from twisted.internet import defer, error
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.descriptors import no_descriptors
from tests.streaming.http.test_upgrade_server import Taker
from tests.streaming.places import KINDS, PlacesTestCase
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    GatewayTimeout,
    ServiceUnavailable,
    TooManyRequests,
)
from twisted_exec.streaming.http.upgrade_client import (
    MAX_ERROR_BYTES,
    RETRY_SECONDS,
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
    connect_first,
    upgrade,
)

HEAD = UpgradeRequest(
    b"GET", b"/exec?x=1", b"server:1", [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
)
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nUPGRADE: WebSocket\r\nX: y\r\n\r\n"
)


class AbortableTransport(StringTransport):
    """Remembers how it was closed; ``protocol`` is the protocol in use, as of a socket."""

    protocol: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[str] = []

    @property
    def aborted(self) -> bool:
        return "abort" in self.closed

    def abortConnection(self) -> None:
        self.closed.append("abort")

    def loseConnection(self) -> None:
        self.closed.append("close")

    def unregisterProducer(self) -> None:
        self.producer = None  # as a socket: whether or not there is one


@implementer(IStreamClientEndpoint)
class OneConnection:
    """An endpoint whose connection the test holds."""

    def __init__(self, connected: bool = True) -> None:
        self.transport = AbortableTransport()
        self.protocol: Any = None
        self.connecting: Deferred[Any] = Deferred()
        self._connected = connected

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        self.protocol = protocolFactory.buildProtocol(None)
        if self._connected:
            self.protocol.makeConnection(self.transport)
            self.connecting.callback(self.protocol)
        return self.connecting


class UpgradeTests(SynchronousTestCase):
    """Tests for :func:`upgrade`, without sockets."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = OneConnection()
        self.upgrading = upgrade(self.endpoint, HEAD, clock=self.clock, timeout_seconds=10)

    def answer(self, data: bytes) -> None:
        self.endpoint.protocol.dataReceived(data)

    def lose(self, reason: Exception | None = None) -> None:
        self.endpoint.protocol.connectionLost(Failure(reason or ConnectionDone()))

    def refusal(self) -> APIError:
        """The error for the user; the connection is closed."""
        refused = self.failureResultOf(self.upgrading, UpgradeRefused).value
        self.assertTrue(self.endpoint.transport.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return refused.as_api_error()

    def test_request(self) -> None:
        """The request is sent as it was given."""
        self.assertEqual(
            self.endpoint.transport.value(),
            b"GET /exec?x=1 HTTP/1.1\r\nHost: server:1\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )

    def test_meanwhile(self) -> None:
        """What takes time is done when the request has been sent."""
        endpoint, sent = OneConnection(), []

        def meanwhile() -> None:
            sent.append(endpoint.transport.value())

        upgrade(endpoint, HEAD, clock=self.clock, timeout_seconds=10, meanwhile=meanwhile)
        self.assertEqual(sent, [self.endpoint.transport.value()])

    def test_unsendable(self) -> None:
        """A header that HTTP cannot carry is an error of the request; the connection is closed."""
        endpoint = OneConnection()
        head = replace(HEAD, headers=[*HEAD.headers, (b"X", b"a\x0bb")])
        upgrading = upgrade(endpoint, head, clock=self.clock, timeout_seconds=10)
        problem = self.failureResultOf(upgrading, BadRequest).value
        self.assertEqual(problem.message, "a header of the request cannot be passed on")
        self.assertEqual((endpoint.transport.aborted, endpoint.transport.value()), (True, b""))

    def test_upgraded(self) -> None:
        """After the 101 the connection can be taken over, with the bytes that followed it."""
        self.answer(SWITCHED + b"early")
        upgraded: Upgraded = self.successResultOf(self.upgrading)
        self.assertIn((b"X", b"y"), upgraded.headers)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.endpoint.transport.producerState, "paused")
        self.answer(b" too")  # a TLS layer delivers in spite of the pause
        taker = Taker()
        upgraded.hand_over(taker)
        self.assertEqual(b"".join(taker.received), b"early too")
        self.assertEqual(self.endpoint.transport.producerState, "producing")
        self.assertIs(taker.transport, self.endpoint.transport)

    def test_every_split(self) -> None:
        """Wherever the answer is split, every byte arrives once."""
        data = b"HTTP/1.1 100 Continue\r\n\r\n" + SWITCHED + b"\r\nHTTP/1.1 200 OK\r\n\r\n"
        begin = data.index(b"\r\n\r\n", data.index(b"101")) + 4
        for cut in range(1, len(data)):
            self.setUp()
            self.answer(data[:cut])
            self.answer(data[cut:])
            taker = Taker()
            self.successResultOf(self.upgrading).hand_over(taker)
            self.assertEqual(b"".join(taker.received), data[begin:])

    def test_lost_before_it_was_taken(self) -> None:
        """A connection that ends right after its 101 is handed over, and its end is reported."""
        self.answer(SWITCHED + b"all of it")
        self.lose()
        taker = Taker()
        self.successResultOf(self.upgrading).hand_over(taker)
        self.assertEqual(taker.received, [b"all of it"])
        self.assertIsNotNone(taker.lost)

    def test_abort(self) -> None:
        """A connection that is not handed over is closed."""
        self.answer(SWITCHED)
        self.successResultOf(self.upgrading).abort()
        self.assertTrue(self.endpoint.transport.aborted)

    def test_other_upgrade(self) -> None:
        """A 101 for another protocol is refused."""
        self.answer(SWITCHED.replace(b"WebSocket", b"h2c"))
        self.failureResultOf(self.upgrading, BadGateway)
        self.assertTrue(self.endpoint.transport.aborted)

    def test_status(self) -> None:
        """A Status is passed on with its code, reason and details."""
        status = TooManyRequests("runtime full", 7).to_status()
        body = json.dumps(status).encode()
        self.answer(b"HTTP/1.1 429 Too Many\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        refused = self.refusal()
        self.assertEqual(refused.to_status(), status)
        self.assertEqual(refused.retry_after_seconds, 7)

    def test_text(self) -> None:
        """A text becomes a Status with the code; nothing in it reaches a terminal."""
        self.answer(
            b"HTTP/1.1 503 X\r\nRetry-After: 3\r\nContent-Length: 15\r\n\r\nno\r\n \x1b[2Jtoday\xff"
        )
        refused = self.refusal()
        self.assertEqual((refused.code, refused.reason), (503, "ServiceUnavailable"))
        self.assertEqual(refused.message, "no [2Jtoday\ufffd")
        self.assertEqual(refused.retry_after_seconds, 3)

    def test_status_of_a_stranger(self) -> None:
        """
        A Status from a server under foreign control is bounded and without control characters.
        """
        message = "no\r\n\x1b]0;title\x07\x9b31m " + "x" * 40_000
        status = {
            "kind": "Status",
            "message": message,
            "reason": "\x1b[2J",
            "details": {
                "retryAfterSeconds": -(10**9),
                "name": "v\x1b[2Jm",
                "ki\x1bnd": "machines",
                "causes": [{"message": "a\x1b[31mb", "field": "\x9b"}] * 120,
                "deep": [[[[[[["\x1b"]]]]]]],
            },
        }
        body = json.dumps(status).encode()
        self.answer(b"HTTP/1.1 503 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        refused = self.refusal()
        self.assertEqual(refused.message[:20], "no ]0;title 31m xxxx")
        self.assertLessEqual(len(refused.message), 2048)
        self.assertEqual(refused.reason, "[2J")
        self.assertEqual(refused.retry_after_seconds, 0)
        self.assertNotRegex(json.dumps(refused.to_status(), ensure_ascii=False), r"[\x00-\x1f\x9b]")
        self.assertNotIn("\\u001b", json.dumps(refused.to_status()))
        self.assertEqual(refused.details["name"], "v [2Jm")
        self.assertEqual(refused.details["causes"][0], {"message": "a [31mb", "field": ""})
        self.assertLessEqual(len(refused.details["causes"]), 100)

    def test_no_body(self) -> None:
        """Go's WebSocket server refuses with a bare status line and closes."""
        self.answer(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        self.assertNoResult(self.upgrading)
        self.lose()
        failure = self.failureResultOf(self.upgrading, UpgradeRefused)
        self.assertEqual((failure.value.code, failure.value.body), (403, b""))
        self.assertEqual(failure.value.as_api_error().message, "the server answered 403")

    def test_lying_status(self) -> None:
        """The HTTP status decides, whatever the body says."""
        body = b'{"kind":"Status","status":"Failure","code":200,"message":"m"}'
        self.answer(b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        refused = self.refusal()
        self.assertEqual((refused.code, refused.message), (404, "m"))

    def test_json_that_is_no_status(self) -> None:
        """Any other JSON is a text."""
        for body in (b"[]", b"{}", b'"x"', b"[" * 5000):
            self.setUp()
            self.answer(b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.assertEqual(self.refusal().code, 404)

    def test_redirect(self) -> None:
        """A redirect is neither followed nor passed on."""
        for code in (200, 204, 301, 302, 307, 308):
            self.setUp()
            self.answer(
                b"HTTP/1.1 %d X\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n" % code
            )
            refused = self.refusal()
            self.assertEqual(refused.code, 502)
            self.assertEqual(refused.message, f"invalid upgrade response: status code {code}")

    def test_large_body(self) -> None:
        """A body is read up to a limit, and no further."""
        self.answer(b"HTTP/1.1 500 X\r\n\r\n")
        for _ in range(MAX_ERROR_BYTES // 4096 - 1):
            self.answer(b"x" * 4096)
        self.assertNoResult(self.upgrading)
        self.answer(b"x" * 8192)
        failure = self.failureResultOf(self.upgrading, UpgradeRefused)
        self.assertEqual(len(failure.value.body), MAX_ERROR_BYTES)
        self.assertTrue(self.endpoint.transport.aborted)

    def test_slow_body(self) -> None:
        """A refusal with an incomplete body is reported with the part that arrived."""
        self.answer(b"HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\nhalf")
        self.clock.advance(10)
        self.assertEqual(self.refusal().message, "half")

    def test_cut_body(self) -> None:
        """A refusal whose connection is lost is reported with the part that arrived."""
        self.answer(b"HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\nhalf")
        self.lose(ConnectionLost())
        failure = self.failureResultOf(self.upgrading, UpgradeRefused)
        self.assertEqual(failure.value.as_api_error().message, "half")

    def test_slow_answer(self) -> None:
        """No answer in time is 504."""
        self.clock.advance(10)
        self.failureResultOf(self.upgrading, GatewayTimeout)
        self.assertTrue(self.endpoint.transport.aborted)

    def test_closed(self) -> None:
        """A connection closed instead of an answer is 502."""
        self.lose()
        self.failureResultOf(self.upgrading, BadGateway)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_not_http(self) -> None:
        """A response that is not HTTP, or whose head does not end, is a 502."""
        for data in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 X\r\n" + b"x: y\r\n" * 20000):
            self.setUp()
            self.answer(data)
            self.failureResultOf(self.upgrading, BadGateway)
            self.assertTrue(self.endpoint.transport.aborted)

    def test_cancel(self) -> None:
        """Cancelling closes the connection."""
        self.upgrading.cancel()
        self.failureResultOf(self.upgrading, defer.CancelledError)
        self.assertTrue(self.endpoint.transport.aborted)
        self.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ConnectTests(SynchronousTestCase):
    """Errors of connecting."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = OneConnection(connected=False)
        self.upgrading = upgrade(self.endpoint, HEAD, clock=self.clock, timeout_seconds=10)

    def test_words(self) -> None:
        """A failed connection is a 502 with a readable reason."""
        for problem, words in (
            (error.ConnectionRefusedError(), "connection refused"),
            (error.DNSLookupError(), "its name is not known"),
            (error.NoRouteError(), "no route to it"),
            (ValueError("one\ntwo"), "one two"),
            # Twisted wraps an error before the connection is made like this.
            (
                error.ConnectError(string=Failure(OSError(11, "no room"))),  # type: ignore[arg-type]
                "An error occurred while connecting: [Errno 11] no room.",
            ),
            (
                error.ConnectError(string=Failure(ConnectionDone())),  # type: ignore[arg-type]
                "An error occurred while connecting: Connection was closed cleanly.",
            ),
            (ValueError("a\x1b[2Jb"), "a [2Jb"),
            (ValueError(), "ValueError"),
        ):
            self.setUp()
            self.endpoint.connecting.errback(problem)
            failure = self.failureResultOf(self.upgrading, BadGateway)
            self.assertEqual(failure.value.message, words)

    def test_shortage(self) -> None:
        """
        What this program or its host lacks for a connection is a 503 with a remedy, and with the
        time after which to come again.
        """
        for number, words in (
            (errno.EMFILE, "no file descriptor is free: raise the limit (LimitNOFILE= of systemd"),
            (errno.ENFILE, "no file descriptor of the host is free (fs.file-max)"),
            (errno.EADDRNOTAVAIL, "no local port is free for it (net.ipv4.ip_local_port_range)"),
        ):
            self.setUp()
            self.endpoint.connecting.errback(error.getConnectError((number, os.strerror(number))))
            problem = self.failureResultOf(self.upgrading, ServiceUnavailable).value
            self.assertIn(words, problem.message)
            self.assertEqual(problem.retry_after_seconds, RETRY_SECONDS)

    def test_shortage_in_resolver(self) -> None:
        """A resolver without a descriptor finds no name: the message tells the cause."""
        with no_descriptors():
            self.endpoint.connecting.errback(error.DNSLookupError())
        problem = self.failureResultOf(self.upgrading, ServiceUnavailable).value
        self.assertIn("no file descriptor is free", problem.message)

    def test_endpoint_times_out(self) -> None:
        """An endpoint that gives up by itself is slow: 504."""
        self.endpoint.connecting.errback(error.TimeoutError())
        self.failureResultOf(self.upgrading, GatewayTimeout)

    def test_slow(self) -> None:
        """After the time limit the connection is given up."""
        self.clock.advance(10)
        self.failureResultOf(self.upgrading, GatewayTimeout)

    def test_cancel(self) -> None:
        """Cancelling cancels the connecting."""
        self.upgrading.cancel()
        self.failureResultOf(self.upgrading, defer.CancelledError)
        self.assertTrue(self.endpoint.connecting.called)

    def test_lost_at_once(self) -> None:
        """A connection that is lost before it could be used is 502."""
        self.endpoint.protocol.makeConnection(self.endpoint.transport)
        self.endpoint.protocol.connectionLost(Failure(ConnectionLost()))
        self.endpoint.connecting.callback(self.endpoint.protocol)
        self.failureResultOf(self.upgrading, BadGateway)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_speaks_first(self) -> None:
        """A server that sends bytes before the request is refused."""
        endpoint = OneConnection(connected=False)
        upgrade(endpoint, HEAD, clock=self.clock, timeout_seconds=10).addErrback(lambda _: None)
        endpoint.protocol.makeConnection(endpoint.transport)
        endpoint.protocol.dataReceived(b"220 hello\r\n")
        self.assertTrue(endpoint.transport.aborted)


class FirstTests(SynchronousTestCase):
    """A request to the first of several endpoints that accepts."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.away, self.there = OneConnection(connected=False), OneConnection()
        asking = ask_first(
            [("a:1", self.away), ("b:1", self.there)],
            HEAD,
            clock=self.clock,
            connect_seconds=5,
            answer_seconds=10,
        )
        self.asking = defer.Deferred.fromCoroutine(asking)
        self.away.connecting.errback(error.ConnectionRefusedError())

    def test_answered(self) -> None:
        """The answer comes with the label of the endpoint."""
        self.there.protocol.dataReceived(SWITCHED)
        label, upgraded = self.successResultOf(self.asking)
        self.assertEqual((label, type(upgraded)), ("b:1", Upgraded))

    def test_refused(self) -> None:
        """A refusal has the label, and keeps its message."""
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"
        self.there.protocol.dataReceived(answer)
        refused = self.failureResultOf(self.asking, UpgradeRefused).value
        self.assertEqual((refused.label, refused.as_api_error().message), ("b:1", "gone"))

    def test_late(self) -> None:
        """The message of any other error begins with the label."""
        self.clock.advance(10)
        late = self.failureResultOf(self.asking, APIError).value
        message = "b:1: no answer to the upgrade request within 10 s"
        self.assertEqual((late.code, late.message), (504, message))


class NoneTests(SynchronousTestCase):
    """No endpoint that accepts."""

    def problem(self, *problems: Exception) -> APIError:
        places = [(f"{each}:1", OneConnection(connected=False)) for each in "ab"]
        connecting = connect_first(places, clock=Clock(), timeout_seconds=5)
        asked = defer.Deferred.fromCoroutine(connecting)
        for (_, place), problem in zip(places, problems, strict=True):
            place.connecting.errback(problem)
        error: APIError = self.failureResultOf(asked, APIError).value
        return error

    def test_shortage(self) -> None:
        """503 if this program cannot connect anywhere; otherwise 502, with the reason of each."""
        refused, lacking = error.ConnectionRefusedError(), error.ConnectBindError(errno.EMFILE)
        self.assertEqual(self.problem(refused, lacking).code, 502)
        self.assertEqual(
            self.problem(refused, lacking).details["causes"],
            [{"reason": "ConnectionRefused", "message": "a:1: connection refused"}],
        )
        problem = self.problem(lacking, lacking)
        self.assertEqual((problem.code, problem.retry_after_seconds), (503, RETRY_SECONDS))
        self.assertIn("cannot connect to a:1: no file descriptor is free", problem.message)


class Answering(Protocol):
    """A backend: answers the first bytes it gets, then echoes."""

    transport: Any
    answered = False

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        if self.answered:
            self.transport.write(data)
        elif data.endswith(b"\r\n\r\n"):
            self.answered = True
            self.transport.write(self.answer)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True


class SocketTests(PlacesTestCase):
    """Upgrade requests on real sockets."""

    async def upgraded(self, kind: str, early: int) -> None:
        from twisted.internet import reactor

        backend = Answering(SWITCHED + b"x" * early)
        endpoint = await self.listen(kind, Factory.forProtocol(lambda: backend))
        upgraded = await upgrade(endpoint, HEAD, clock=reactor, timeout_seconds=600)
        taker = Taker()
        upgraded.hand_over(taker)
        await self.until(lambda: taker.size == early)
        taker.transport.write(b"hello")
        await self.until(lambda: taker.size == early + 5)
        taker.transport.loseConnection()
        await self.until(lambda: taker.lost and backend.lost)

    async def refused(self, kind: str) -> None:
        from twisted.internet import reactor

        backend = Answering(b"HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n")
        endpoint = await self.listen(kind, Factory.forProtocol(lambda: backend))
        with self.assertRaises(UpgradeRefused):
            await upgrade(endpoint, HEAD, clock=reactor, timeout_seconds=600)
        await self.until(lambda: backend.lost)


def _matrix() -> None:
    for kind in KINDS:
        for early in (0, 5, 1 << 20):

            def test(self: SocketTests, kind: str = kind, early: int = early) -> Deferred[None]:
                return Deferred.fromCoroutine(self.upgraded(kind, early))

            test.__doc__ = f"Over {kind}, {early} bytes behind the 101 arrive."
            setattr(SocketTests, f"test_{kind}_{early}", test)

        def refused(self: SocketTests, kind: str = kind) -> Deferred[None]:
            return Deferred.fromCoroutine(self.refused(kind))

        refused.__doc__ = f"Over {kind}, a refusal closes the backend's connection."
        setattr(SocketTests, f"test_{kind}_refused", refused)


_matrix()

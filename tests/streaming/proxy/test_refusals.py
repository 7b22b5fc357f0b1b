"""
Tests for :mod:`twisted_exec.streaming.proxy`: refused requests.
"""

from __future__ import annotations

import json

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ISSLTransport
from twisted.python.failure import Failure
from zope.interface import directlyProvides

from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.passing import carry
from tests.streaming.proxy.support import SWITCHED, Proxying, ProxyTestCase
from tests.streaming.rejoin.test_stream import Restarted
from twisted_exec.api.status import BadGateway, Forbidden, NotFound, Unauthorized
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.openings import AT_ONCE, Openings
from twisted_exec.testing.network import MemoryClient, MemoryServer


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
            self.assertEqual(self.records[0]["user"], "ann")
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
        (cause,) = refused.details["causes"]
        self.assertEqual(cause["reason"], "UpgradeRequired")
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


class SlowHopTests(ProxyTestCase):
    """Requests to a next hop that is slow, or silent, while others go there, too."""

    def setUp(self) -> None:
        super().setUp()
        self.sessions.openings = Openings(per_user=AT_ONCE)

    def another(self, backend: OneConnection) -> MemoryClient:
        """A further client of the same hop."""
        self.locator.endpoints = [("10.0.0.0:1", backend)]
        return self.ask()

    def test_slow_hop(self) -> None:
        """While the next hop answers others, a request waits for its answer, and then not longer than ever."""
        slow = self.ask()
        for _ in range(5):
            self.clock.advance(9)
            backend = OneConnection()
            other = self.another(backend)
            backend.protocol.dataReceived(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
            self.assertEqual(other.responses()[0].code, 404)
        self.clock.advance(9)
        self.assertEqual(slow.received(), b"")
        self.clock.advance(1)
        self.assertIn("within 55 s", slow.responses()[0].json()["message"])

    def test_slow_connections(self) -> None:
        """While connections to the next hop come up, others wait for theirs."""
        waiting = OneConnection(connected=False)
        slow = self.another(waiting)
        for _ in range(3):
            self.clock.advance(4)
            shaken = OneConnection()
            directlyProvides(shaken.transport, ISSLTransport)
            self.another(shaken)
        self.clock.advance(4)
        self.assertEqual(slow.received(), b"")
        self.clock.advance(1)
        self.assertIn("no connection within 17 s", slow.responses()[0].json()["message"])

    def test_silent_program(self) -> None:
        """Plain connections are no sign of life, because the kernel of a stopped program accepts them."""
        slow = self.another(OneConnection(connected=False))
        self.clock.advance(4)
        self.another(OneConnection())
        self.clock.advance(1)
        self.assertIn("no connection within 5 s", slow.responses()[0].json()["message"])

    def test_no_answers(self) -> None:
        """A hop that accepts connections and answers nothing is given up, however many try."""
        slow = self.ask()
        for _ in range(4):
            self.clock.advance(2)
            shaken = OneConnection()
            directlyProvides(shaken.transport, ISSLTransport)
            self.another(shaken)
        self.clock.advance(2)
        self.assertIn("within 10 s", slow.responses()[0].json()["message"])

    def test_silent_address(self) -> None:
        """An address that is silent is given up, although another one of the same hop answers."""
        silent, good = OneConnection(connected=False), Restarted()
        self.locator.endpoints = [("10.0.0.0:1", silent), ("10.0.0.1:1", good)]
        self.ask()
        self.clock.advance(4)
        self.locator.endpoints = [("10.0.0.1:1", good)]
        self.ask()
        good.connections[0].protocol.dataReceived(SWITCHED + b"\r\n")
        self.clock.advance(1)
        self.assertEqual(len(good.connections), 2)

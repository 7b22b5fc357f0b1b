"""
Tests for :mod:`twisted_exec.streaming.proxy`: refused requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from tests.retained import growth
from tests.streaming.frames import handshake
from tests.streaming.passing import carry
from tests.streaming.proxy.support import SWITCHED, Proxying, ProxyTestCase
from twisted_exec.api.status import BadGateway, Conflict, Forbidden, NotFound, Unauthorized
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryClient, MemoryServer


class RefuseTests(ProxyTestCase):
    """Requests that are refused."""

    def test_admission(self) -> None:
        """The admission's refusal reaches the client unchanged and is recorded with the user."""
        for problem in (
            Unauthorized(),
            Forbidden("ann may not"),
            NotFound("machines", "vm"),
        ):
            self.setUp()
            self.admission.problem = problem
            refused = self.refused(self.ask())
            self.assertEqual((refused.code, refused.message), (problem.code, problem.message))
            self.assertEqual(self.records[0]["user"], "ann")
            self.assertIsNone(self.backend.protocol)

    def test_admission_fails(self) -> None:
        """A bug in an admission is recorded too, without its text."""
        self.admission.problem = ZeroDivisionError("secret")
        client = self.ask()
        self.assertEqual(client.responses()[0].code, 500)
        self.assertEqual(self.records.ends(), [("internal error", 500)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

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
        self.admission.problem = NotFound("machines", "vm")
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
            self.admission.problem, self.admission.machine = problem, "vm"
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

    def test_client_leaves(self) -> None:
        """A client that leaves while it waits ends the attempt, and the audit records it."""
        for when in ("locating", "connecting", "answering"):
            self.setUp()
            self.admission.endpoints.clear()
            self.backend = self.add_backend(connected=when == "answering")
            if when == "locating":
                self.admission.waiting = Deferred()
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


class RetainedTests(ProxyTestCase):
    """Refused requests retain nothing."""

    def check(self, act: Callable[[], MemoryClient], name: object, first: int = 1) -> None:
        def refuse() -> None:
            self.admission.endpoints.clear()
            self.backend = self.add_backend()
            self.records.clear()
            client = act()
            client.lose()
            if self.backend.protocol is not None:
                self.assertTrue(self.backend.transport.aborted)
                self.backend.protocol.connectionLost(Failure(ConnectionDone()))
            self.assertEqual(len(self.records.ends()), 1)
            self.clock.advance(600)

        with self.subTest(name):
            beside = [self.clock, self.records, self.admission]
            self.assertEqual(growth(self.server, refuse, first=first, beside=beside), 0)

    def test_here(self) -> None:
        """The hop itself refuses the request."""
        for self.admission.problem in (
            Forbidden("no"),
            NotFound("machines", "vm"),
            Conflict("off"),
        ):
            self.check(self.ask, self.admission.problem)
        self.admission.problem = None
        self.check(lambda: self.ask(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"), "no upgrade")
        self.sessions.limits = SessionLimits(0, 0)
        self.check(self.ask, "too many sessions")

    def test_next_hop(self) -> None:
        """The next hop refuses it, or is gone."""

        def refused(line: bytes) -> MemoryClient:
            client = self.ask()
            head = b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % line
            self.backend.protocol.dataReceived(head)
            return client

        for line in (b"404 N", b"409 C", b"429 T", b"500 I", b"503 S"):
            self.check(partial(refused, line), line)

    def test_left(self) -> None:
        """The client leaves before the answer, or in the turn of the answer."""
        self.check(self.ask, "before the answer")

        def leave() -> MemoryClient:
            client = self.ask()
            self.backend.protocol.dataReceived(SWITCHED[:20])
            return client

        self.check(leave, "within the answer")
        withdrawn = Forbidden("the approval was withdrawn")
        self.admission.upstream.decided = partial(fail, withdrawn)
        self.check(self.switched, "not confirmed", first=10)  # of which ten are logged

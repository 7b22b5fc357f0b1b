"""Tests for :mod:`twisted_exec.streaming.text.relay`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import error
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.retained import growth
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.passing import carry
from tests.streaming.proxy.support import Admission, ScriptedUpstream
from tests.streaming.text.test_download import CHUNKED, chunk
from twisted_exec.api.obstacles import Obstacle
from twisted_exec.api.status import BadGateway, Forbidden, NotFound, Unauthorized
from twisted_exec.program.audit import Trail
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import MACHINE_DELETED, REVOKED, SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.testing.network import MemoryClient, MemoryServer, Response

GET = b"GET /log?follow=true HTTP/1.1\r\nHost: x\r\n"


class Relaying(Dispatcher):
    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self.relay = relay

    async def dispatch(self, request: Request) -> None:
        await carry(self.relay, request)


class RelayCase(SynchronousTestCase):
    """A relay between a client and backends in memory."""

    answer_seconds: float | None = 10
    keeps_connections = True
    resumes = False

    def setUp(self) -> None:
        self.clock = Clock()
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "poollet", self.clock))
        self.admission = Admission()
        self.admission.path = b"/log/T?follow=true"
        self.backend = self.add_backend()
        relay = Relay(
            self.admission,
            sessions=self.sessions,
            clock=self.clock,
            answer_seconds=self.answer_seconds,
            keeps_connections=self.keeps_connections,
            resumes=self.resumes,
        )
        self.server = MemoryServer(Relaying(relay), self.clock)

    def add_backend(self, connected: bool = True) -> OneConnection:
        backend = OneConnection(connected)
        self.admission.endpoints.append((f"10.0.0.{len(self.admission.endpoints)}:1", backend))
        return backend

    def ask(self, *lines: bytes) -> MemoryClient:
        client = self.server.connect()
        client.send(GET + b"".join(line + b"\r\n" for line in lines) + b"\r\n")
        return client

    def answer(self, data: bytes) -> None:
        self.backend.protocol.dataReceived(data)

    def following(self) -> MemoryClient:
        """A client that has the head and one line."""
        client = self.ask()
        self.answer(CHUNKED + chunk(b"one\n"))
        self.assertTrue(client.received().endswith(b"\r\n\r\n4\r\none\n\r\n"))
        return client

    def timed(self) -> list[Any]:
        """Return the pending delayed calls."""
        return list(self.clock.getDelayedCalls())

    def end(self) -> dict[str, Any]:
        """The audit end of the one session there was."""
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        (end,) = [record for record in self.records if record["event"] == "end"]
        return end


class PassTests(RelayCase):
    """Downloads that are relayed."""

    def test_request(self) -> None:
        """
        The backend gets the admission's request and the session id, and nothing of the client's.
        """
        self.ask(b"Authorization: Bearer secret", b"X-Remote-User: root", b"Cookie: a=b")
        self.assertEqual(
            self.backend.transport.value(),
            b"GET /log/T?follow=true HTTP/1.1\r\nHost: backend:1\r\n"
            b"X-Remote-User: ann\r\nAudit-Id: s-1\r\n\r\n",
        )

    def test_text(self) -> None:
        """Each piece passes at once; the end is the end; audit counts."""
        client = self.following()
        self.assertEqual(len(self.sessions), 1)
        self.answer(chunk(b"two\n"))
        self.assertEqual(client.received(), b"4\r\ntwo\n\r\n")
        self.answer(b"0\r\n\r\n")
        self.assertEqual(client.received(), b"0\r\n\r\n")
        self.assertFalse(client.closed)
        end = self.end()
        self.assertEqual(
            (end["reason"], end["bytes_to_user"], end["machine"]), ("backend closed", 8, "vm")
        )
        self.assertNotIn("code", end)
        self.assertTrue(self.backend.transport.aborted)

    def test_slow_client(self) -> None:
        """A slow client pauses the backend."""
        client = self.following()
        client.transport.producer.pauseProducing()
        self.assertEqual(self.backend.transport.producerState, "paused")
        client.transport.producer.resumeProducing()
        self.assertEqual(self.backend.transport.producerState, "producing")

    def test_client_leaves(self) -> None:
        """When the client leaves, its backend's connection is closed at once."""
        self.following().lose()
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], "client closed")

    def test_client_leaves_early(self) -> None:
        """A client may also leave before the backend has answered or been located."""
        self.ask().lose()
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual((self.end()["reason"], self.end()["code"]), ("client closed", 499))
        self.setUp()
        self.admission.waiting = Deferred()
        self.ask().lose()
        self.assertEqual(self.end()["code"], 499)

    def test_backend_is_lost(self) -> None:
        """If the backend is lost, the response ends without its final chunk."""
        client = self.following()
        self.backend.protocol.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(client.received(), b"")
        self.assertTrue(client.closed)
        self.assertEqual(self.end()["reason"], "backend lost")

    def test_second_address(self) -> None:
        """If one address refuses the connection, the next is tried."""
        self.admission.endpoints.clear()
        first, self.backend = self.add_backend(connected=False), self.add_backend()
        client = self.ask()
        first.connecting.errback(error.ConnectionRefusedError())
        self.answer(CHUNKED)
        self.assertIn(b"200 OK", client.received())


class EndTests(RelayCase):
    """Ends from this side."""

    def test_withdrawn(self) -> None:
        """If access is revoked, the log ends with the reason and without its final chunk."""
        client = self.following()
        self.sessions.end(lambda _: True, Ending(REVOKED, "ann may not"))
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: ann may not]", client.received())
        self.assertTrue(client.closed)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], REVOKED)

    def test_withdrawn_early(self) -> None:
        """If access is revoked before the backend answers, the text has the reason only."""
        client = self.ask()
        self.sessions.end(lambda _: True, Ending(REVOKED, "ann may not"))
        self.answer(CHUNKED + chunk(b"secret"))
        told = client.received()
        self.assertIn(b"AuthorizationWithdrawn", told)
        self.assertNotIn(b"secret", told)
        self.assertEqual(self.end()["reason"], REVOKED)

    def test_deleted(self) -> None:
        """The log of a deleted machine is complete when the backend ends it."""
        client = self.following()
        self.sessions.end(lambda _: True, Ending(MACHINE_DELETED, "it was deleted"))
        self.answer(chunk(b"last words\n") + b"0\r\n\r\n")
        self.assertTrue(client.received().endswith(b"b\r\nlast words\n\r\n0\r\n\r\n"))
        self.assertEqual(self.end()["reason"], MACHINE_DELETED)
        client.lose()
        self.assertEqual(self.timed(), [])

    def test_deleted_and_silent(self) -> None:
        """If the backend does not end a deleted machine's log, it ends after two seconds."""
        client = self.following()
        self.sessions.end(lambda _: True, Ending(MACHINE_DELETED, "it was deleted"))
        self.clock.advance(2)
        self.assertEqual(client.received(), b"0\r\n\r\n")
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], MACHINE_DELETED)

    def test_drain(self) -> None:
        """A hop that stops says so; a client that does not read is cut."""
        client = self.following()
        done = self.sessions.drain(self.clock, 3, "exec-poollet")
        self.successResultOf(done)
        self.assertIn(b"[twisted-exec: ShuttingDown: exec-poollet", client.received())


class SilentTests(RelayCase):
    """A backend that has nothing to pass on yet, and does not even say so: a kubelet does not."""

    answer_seconds = None

    def test_hours(self) -> None:
        """The relay waits for a silent backend without a time limit."""
        client = self.ask()
        self.clock.advance(7 * 3600)
        self.assertEqual(client.received(), b"")
        self.answer(CHUNKED + chunk(b"one\n"))
        self.assertIn(b"one\n", client.received())
        self.assertEqual(self.timed(), [])

    def test_client_leaves(self) -> None:
        """A client that leaves while waiting closes the backend's connection."""
        self.ask().lose()
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual((self.end()["reason"], self.end()["code"]), ("client closed", 499))

    def test_drain(self) -> None:
        """A drain ends the wait for a silent backend, and the text has the reason."""
        client = self.ask()
        done = self.sessions.drain(self.clock, 3, "exec-poollet")
        self.successResultOf(done)
        told = client.received()
        self.assertIn(b"200 OK", told)
        self.assertIn(b"[twisted-exec: ShuttingDown: exec-poollet", told)
        self.assertNotIn(b"\r\n0\r\n", told)
        self.assertTrue(client.closed)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], SHUTTING_DOWN)
        self.assertNotIn("code", self.end())

    def test_deleted(self) -> None:
        """If a machine without output is deleted, its log is empty and complete."""
        client = self.ask()
        self.sessions.end(lambda _: True, Ending(MACHINE_DELETED, "it was deleted"))
        self.assertTrue(client.received().endswith(b"\r\n\r\n0\r\n\r\n"))
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], MACHINE_DELETED)
        client.lose()
        self.assertEqual(self.timed(), [])

    def test_ended_while_connecting(self) -> None:
        """A download can also be ended before a backend is connected."""
        self.admission.endpoints.clear()
        self.add_backend(connected=False)
        client = self.ask()
        self.sessions.end(lambda _: True, Ending(REVOKED, "ann may not"))
        self.assertIn(b"AuthorizationWithdrawn", client.received())
        self.assertEqual(self.end()["reason"], REVOKED)

    def test_refused(self) -> None:
        """A late refusal is passed on as a refusal."""
        client = self.ask()
        self.clock.advance(100)
        self.answer(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\nno")
        (answer,) = client.responses()
        self.assertEqual((answer.code, self.end()["code"]), (404, 404))


class RefuseTests(RelayCase):
    """Downloads that are refused."""

    def refused(self, client: MemoryClient) -> Response:
        """A Status, on record with its code."""
        (answer,) = client.responses()
        status = answer.json()
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.code))
        self.assertEqual(self.end()["code"], answer.code)
        return answer

    def test_admission(self) -> None:
        """The admission's refusal reaches the client unchanged."""
        for problem in (Unauthorized(), Forbidden("ann may not"), NotFound("machines", "vm")):
            self.setUp()
            self.admission.problem = problem
            self.assertEqual(self.refused(self.ask()).code, problem.code)
            self.assertIsNone(self.backend.protocol)

    def test_methods(self) -> None:
        """A log is read with GET."""
        for method in (b"POST", b"HEAD", b"DELETE", b"PUT"):
            client = self.server.connect()
            client.send(GET.replace(b"GET", method) + b"\r\n")
            (answer,) = client.responses(method.decode())
            self.assertEqual((answer.code, answer.headers["allow"]), (405, "GET"))

    def test_backend(self) -> None:
        """
        A Status is passed on; a response that is no log is a 502 that names the machine, and the next hop among its causes.
        """
        body = json.dumps(NotFound("machines", "vm").to_status()).encode()
        for head, code, told in (
            (b"HTTP/1.1 404 X\r\n", 404, 'machines "vm" not found'),
            (b"HTTP/1.1 401 X\r\n", 502, "does not accept this server's credentials"),
            (b"HTTP/1.1 302 X\r\nLocation: /\r\n", 502, "status code 302, and no log"),
            (b"HTTP/1.1 200 X\r\nContent-Type: text/html\r\n", 502, "status code 200, and no log"),
        ):
            self.setUp()
            self.admission.upstream = ScriptedUpstream(Obstacle.POOLLET_FAILED)
            client = self.ask()
            self.answer(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = self.refused(client)
            self.assertEqual(answer.code, code)
            self.assertIn(told, answer.json()["message"])
            self.assertIn('"vm"', answer.json()["message"])
            reasons = [each["reason"] for each in answer.json()["details"].get("causes", [])]
            self.assertEqual(Obstacle.POOLLET_FAILED in reasons, code == 502)
            self.assertTrue(self.backend.transport.aborted)

    def test_meaning(self) -> None:
        """The admission may replace the backend's refusal, also that of a 401."""
        for code in (401, 403, 429):
            self.setUp()
            self.admission.upstream.meaning = lambda error: BadGateway(f"it said {error.code}")
            client = self.ask()
            self.answer(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % code)
            answer = self.refused(client)
            self.assertEqual(answer.code, 502)
            self.assertIn(f"it said {code}", answer.json()["message"])

    def test_down(self) -> None:
        """A refused connection is a 502, a missing answer a 504."""
        self.admission.endpoints.clear()
        self.add_backend(connected=False).connecting.errback(error.ConnectionRefusedError())
        self.assertEqual(self.refused(self.ask()).code, 502)
        self.setUp()
        client = self.ask()
        self.clock.advance(10)
        answer = self.refused(client)
        self.assertEqual(answer.code, 504)
        self.assertIn("10.0.0.0:1: no answer to the request", answer.json()["message"])

    def test_full(self) -> None:
        """Beyond the session limit, a download is refused with 429."""
        self.sessions.limits = SessionLimits(0, 0)
        self.assertEqual(self.refused(self.ask()).code, 429)


class RetainedTests(RelayCase):
    """Refused requests retain nothing."""

    def check(self, name: object, act: Callable[[], object] = lambda: None, code: int = 0) -> None:
        def refuse() -> None:
            self.admission.endpoints.clear()
            self.backend = self.add_backend()
            self.records.clear()
            client = self.ask()
            act()
            client.lose()
            if self.backend.protocol is not None:
                self.backend.protocol.connectionLost(Failure(ConnectionLost()))
            self.assertEqual(self.end()["code"], code)
            self.clock.advance(600)

        with self.subTest(name):
            beside = [self.clock, self.records, self.admission]
            self.assertEqual(growth(self.server, refuse, beside=beside), 0)

    def test_here(self) -> None:
        """The hop itself refuses the request."""
        for self.admission.problem in (Forbidden("no"), NotFound("machines", "vm")):
            self.check(self.admission.problem, code=self.admission.problem.code)
        self.admission.problem = None
        self.sessions.limits = SessionLimits(0, 0)
        self.check("too many sessions", code=429)

    def test_next_hop(self) -> None:
        """The next hop refuses it, or is gone."""
        for code in (403, 404, 409, 429, 503):
            head = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % code
            self.check(code, partial(self.answer, head), code)
        broken = partial(self.answer, CHUNKED[:20])
        self.check("within the head", broken, 499)

    def test_left(self) -> None:
        """The client leaves before the answer."""
        self.check("before the answer", code=499)

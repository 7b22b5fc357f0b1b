"""Tests for :mod:`twisted_exec.streaming.http.session_requests`, in memory."""

from __future__ import annotations

import json
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.test_upgrade_client import OneConnection
from twisted_exec.api.status import BadGateway, BadRequest, GatewayTimeout, NotFound
from twisted_exec.program.turns import URGENT_REST_SECONDS, URGENT_TURN_SECONDS
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.session_requests import (
    AT_ONCE,
    BUSY_REQUESTS,
    BUSY_SECONDS,
    KEEP_SECONDS,
    SILENCE_SECONDS,
    SILENT_TURNS,
    TOGETHER,
    FurtherRequest,
    SessionRequests,
    Silent,
    answer_all,
    further_requests,
)
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest
from twisted_exec.testing.network import MemoryNetwork


class Hop(Dispatcher):
    """
    Answers requests.

    :ivar asked: the targets of all requests.
    :ivar requests: the number of requests, those in bodies not counted.
    :ivar users: the users that requests in bodies named.
    :ivar knows_bodies: false for a hop of an earlier release.
    :ivar connections: the number of connections so far.
    :ivar pending: while a list, requests wait in it.
    :ivar seconds: that each request takes.
    """

    seconds = 0.0

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.asked: list[bytes] = []
        self.requests = 0
        self.users: list[bytes] = []
        self.knows_bodies = True
        self.pending: list[Deferred[None]] | None = None

    async def dispatch(self, request: Request) -> None:
        self.requests += 1
        self.asked.append(request.uri)
        if self.pending is not None:
            self.pending.append(Deferred())
            await self.pending[-1]
        if self.knows_bodies:
            await answer_all(request, self._handle, self._clock)
        else:
            self._handle(request)
            respond_json(request, 200, {})

    def _handle(self, request: Request | FurtherRequest) -> None:
        if isinstance(request, FurtherRequest):
            self.asked.append(request.path)
        if self.seconds:
            self._clock.advance(self.seconds)
        self.users += request.requestHeaders.getRawHeaders(b"X-Twisted-Exec-User", [])
        if b"unknown" in request.path:
            raise NotFound("sessions", "x")


class Place:
    """An endpoint whose connections the test holds."""

    def __init__(self) -> None:
        self.all: list[OneConnection] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        self.all.append(OneConnection(connected=False))
        return self.all[-1].connect(factory)


class ControlTests(SynchronousTestCase):
    """Tests for :class:`SessionRequests`."""

    def setUp(self) -> None:
        self.clock, self.network = Clock(), MemoryNetwork()
        self.hop = Hop(self.clock)
        self.endpoint = self.network.endpoint(Site(self.hop, self.clock))
        self.control = SessionRequests(self.clock, 5)

    def send(
        self,
        path: str,
        endpoint: Any = None,
        token: bytes = b"",
        method: bytes = b"DELETE",
        seconds: float = 1,
        *,
        awaits_silence: bool = True,
    ) -> Deferred[None]:
        headers = [(b"X-Twisted-Exec-User", b"ann")]
        if token:
            headers.append((b"Authorization", token))
        head = UpgradeRequest(method, path.encode(), b"hop", headers)
        place = [("hop", endpoint or self.endpoint)]
        return self.control.send(place, head, seconds, awaits_silence=awaits_silence)

    def finished(self) -> None:
        """Check that no connection and no timer is left."""
        self.clock.advance(KEEP_SECONDS)
        self.network.pump()
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.clock.pump([30, 30])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.control._peers, {})

    def test_one(self) -> None:
        """One request has a connection, which ends with the answer."""
        sent = self.send("/one")
        self.network.pump()
        self.assertIsNone(self.successResultOf(sent))
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.finished()

    def test_few(self) -> None:
        """After a few requests no connection is kept, and no timer waits."""
        for each in [self.send("/x") for _ in range(AT_ONCE + 2)]:
            self.network.pump()
            self.successResultOf(each)
        self.network.pump()
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.finished()

    def test_one_after_the_other(self) -> None:
        """
        When many sessions end one after the other, their requests share a connection.

        Otherwise each would need a handshake, which costs more than the end of a session.
        """
        for number in range(BUSY_REQUESTS + 30):
            if number == BUSY_REQUESTS:
                self.assertEqual(len(self.network.transports), 2 * number)
            sent = self.send("/x")
            self.network.pump()
            self.successResultOf(sent)
            self.clock.advance(BUSY_SECONDS / BUSY_REQUESTS / 2)
            self.network.pump()
        self.assertEqual(len(self.network.transports), 2 * BUSY_REQUESTS)
        self.finished()

    def test_silent(self) -> None:
        """A hop that answers nothing for 0.45 s fails the requests that do not wait for it."""
        self.hop.pending = []
        patient = self.send("/patient", seconds=10)
        hasty = [self.send(f"/{number}", seconds=10, awaits_silence=False) for number in range(99)]
        self.network.pump()
        self.clock.pump([SILENCE_SECONDS / SILENT_TURNS] * SILENT_TURNS)
        for each in hasty:
            self.assertIn("hop answers nothing", str(self.failureResultOf(each, Silent).value))
        self.assertNoResult(patient)
        pending, self.hop.pending = self.hop.pending, None
        for request in pending:
            request.callback(None)
        self.network.pump()
        self.successResultOf(patient)
        self.finished()

    def test_still_silent(self) -> None:
        """The requests after those that a silent hop has failed fail sooner, until it answers."""
        turn = SILENCE_SECONDS / SILENT_TURNS
        self.hop.pending = []
        first = self.send("/first", awaits_silence=False)
        self.network.pump()
        self.clock.pump([turn] * SILENT_TURNS)
        self.failureResultOf(first, Silent)
        later = self.send("/later", awaits_silence=False)
        self.network.pump()
        self.clock.advance(turn)
        self.failureResultOf(later, Silent)
        self.hop.pending = None
        alive = self.send("/alive", awaits_silence=False)
        self.network.pump()
        self.successResultOf(alive)
        self.hop.pending = []
        last = self.send("/last", awaits_silence=False)
        self.network.pump()
        self.clock.pump([turn] * (SILENT_TURNS - 1))
        self.assertNoResult(last)
        self.clock.advance(turn)
        self.failureResultOf(last, Silent)

    def test_silent_handshake(self) -> None:
        """So does a hop whose connections are never established."""
        place = Place()
        sent = self.send("/one", place, awaits_silence=False)
        self.clock.pump([SILENCE_SECONDS / SILENT_TURNS] * SILENT_TURNS)
        self.failureResultOf(sent, Silent)
        self.assertEqual(self.control._peers, {})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_sign_of_life(self) -> None:
        """Any answer of the hop shows that it is alive: the others have 0.45 s again."""
        self.hop.pending = []
        sent = [self.send(f"/{n}", seconds=10, awaits_silence=False) for n in range(300)]
        failures: list[Failure] = []
        for each in sent:
            each.addErrback(failures.append)
        self.network.pump()
        for _ in range(4):
            self.clock.pump([SILENCE_SECONDS / SILENT_TURNS] * (SILENT_TURNS - 1))
            self.hop.pending.pop().callback(None)
            self.network.pump()
        self.assertEqual(failures, [])
        self.clock.pump([SILENCE_SECONDS / SILENT_TURNS] * SILENT_TURNS)
        self.assertTrue(failures)
        for failure in failures:
            failure.trap(Silent)

    def test_busy_here(self) -> None:
        """A program that is busy itself reads what has arrived before it calls a hop silent."""
        self.hop.pending = []
        sent = self.send("/one", seconds=100, awaits_silence=False)
        self.network.pump()
        self.clock.advance(10 * SILENCE_SECONDS)  # one turn of the reactor
        self.assertNoResult(sent)
        self.hop.pending.pop().callback(None)
        self.network.pump()
        self.successResultOf(sent)
        self.finished()

    def test_refused(self) -> None:
        """A refusal is that of its own request."""
        sent = [self.send("/a"), self.send("/unknown"), *(self.send("/b") for _ in range(9))]
        self.network.pump()
        self.assertEqual(self.failureResultOf(sent.pop(1), UpgradeRefused).value.code, 404)
        for each in sent:
            self.successResultOf(each)
        self.finished()

    def test_many(self) -> None:
        """A thousand requests share a few connections."""
        sent = [self.send(f"/{number}") for number in range(1000)]
        self.network.pump()
        for each in sent:
            self.successResultOf(each)
        self.assertEqual(len(set(self.hop.asked)), 1000)
        self.assertEqual(len(self.network.transports), 2 * AT_ONCE)
        self.finished()

    def test_together(self) -> None:
        """Requests that wait travel together, each with what it says of its own stream."""
        for each in [self.send(f"/{number}?session=s") for number in range(1000)]:
            self.network.pump()
            self.successResultOf(each)
        self.assertLess(self.hop.requests, 1000 / TOGETHER + 2 * AT_ONCE)
        self.assertEqual(len(self.hop.asked), 1000)
        self.assertEqual(set(self.hop.users), {b"ann"})
        self.finished()

    def test_short_turns(self) -> None:
        """A hop handles many requests that have travelled together in several turns."""
        self.hop.seconds = 0.001
        turns: list[int] = []
        first = [self.send("/x") for _ in range(AT_ONCE)]
        sent = [self.send(f"/{number}") for number in range(TOGETHER)]
        self.network.pump()
        while not all(each.called for each in (*first, *sent)):
            before = len(self.hop.asked)
            self.clock.advance(URGENT_REST_SECONDS)
            self.network.pump()
            turns.append(len(self.hop.asked) - before)
        self.assertGreater(len(turns), 10)
        self.assertLessEqual(max(turns), AT_ONCE * URGENT_TURN_SECONDS / self.hop.seconds)
        self.hop.seconds = 0
        self.finished()

    def test_methods(self) -> None:
        """Requests of different methods do not travel together."""
        for each in [self.send("/x", method=(b"DELETE", b"PATCH")[n % 2]) for n in range(20)]:
            self.network.pump()
            self.successResultOf(each)
        self.assertEqual(self.hop.requests, 20)
        self.finished()

    def test_large(self) -> None:
        """Requests that would make a body larger than hops accept travel apart."""
        for each in [self.send(f"/{number}{'x' * 9000}") for number in range(50)]:
            self.network.pump()
            self.successResultOf(each)
        self.assertEqual(len(self.hop.asked), 50)
        self.finished()

    def test_older_hop(self) -> None:
        """A hop that does not know such bodies gets all requests one by one."""
        self.hop.knows_bodies = False
        for each in [self.send(f"/{number}") for number in range(100)]:
            self.network.pump()
            self.successResultOf(each)
        self.assertEqual(len(set(self.hop.asked)), 100)
        self.finished()

    def test_first_refused(self) -> None:
        """If the first of them is refused, the others are sent again."""
        sent = [self.send("/unknown") for _ in range(AT_ONCE + 1)]
        sent += [self.send(f"/{number}") for number in range(20)]
        self.network.pump()
        for each in sent[: AT_ONCE + 1]:
            self.failureResultOf(each, UpgradeRefused)
        for each in sent[AT_ONCE + 1 :]:
            self.successResultOf(each)
        self.finished()

    def test_bodies(self) -> None:
        """A body that is no list of requests is refused, and so are credentials in it."""
        entry = {"target": "/x", "headers": {}}
        for body in (
            [],
            {},
            {"requests": 1},
            {"requests": [1]},
            {"requests": [{}]},
            {"requests": [{**entry, "target": "/\u00e9"}]},
            {"requests": [{**entry, "headers": {"Authorization": "Bearer x"}}]},
            {"requests": [entry] * (TOGETHER + 1)},
        ):
            request: Any = SimpleNamespace(content=BytesIO(json.dumps(body).encode()))
            self.assertRaises(BadRequest, further_requests, request)

    def test_slices(self) -> None:
        """A busy connection is kept until the next slice of decisions."""
        for _ in range(3):
            sent = [self.send("/x") for _ in range(AT_ONCE * BUSY_REQUESTS)]
            self.network.pump()
            for each in sent:
                self.successResultOf(each)
            self.clock.advance(KEEP_SECONDS / 2)
        self.assertLess(len(self.network.transports), 3 * 2 * AT_ONCE)
        self.finished()

    def test_closed_meanwhile(self) -> None:
        """A request on a kept connection that the hop has closed is sent again on another."""
        for each in [self.send("/x") for _ in range(AT_ONCE * BUSY_REQUESTS)]:
            self.network.pump()
            self.successResultOf(each)
        self.hop.pending = []
        sent = self.send("/again")
        self.network.pump()
        (pending,) = self.hop.pending
        self.hop.pending = None
        for each in list(self.network.transports):
            each.abortConnection()
        self.network.pump()
        self.successResultOf(sent)
        self.assertEqual(self.hop.asked.count(b"/again"), 2)
        pending.addErrback(lambda _: None)
        self.finished()

    def test_closed_here(self) -> None:
        """Closing ends the kept connections, and one in use with its answer."""
        for each in [self.send("/x") for _ in range(AT_ONCE * BUSY_REQUESTS)]:
            self.network.pump()
            self.successResultOf(each)
        self.hop.pending = []
        sent = self.send("/last")
        self.network.pump()
        self.control.close()
        (pending,) = self.hop.pending
        pending.callback(None)
        self.network.pump()
        self.successResultOf(sent)
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.finished()

    def test_behind_an_answer(self) -> None:
        """Bytes behind an answer answer no request: the connection is closed, not kept."""
        for each in [self.send("/x") for _ in range(AT_ONCE * BUSY_REQUESTS)]:
            self.network.pump()
            self.successResultOf(each)
        self.clock.advance(KEEP_SECONDS)
        self.network.pump()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        for extra, kept in ((b"", True), (b"HTTP/1.1 200 OK\r\n", False)):
            endpoint = OneConnection()
            sent = self.send("/y", endpoint)
            endpoint.protocol.dataReceived(answer + extra)
            self.successResultOf(sent)
            self.assertEqual(endpoint.transport.aborted, not kept)
            endpoint.protocol.connectionLost()
        self.finished()

    def test_no_answer(self) -> None:
        """A hop that does not answer in time fails its requests, and gets no more of them there."""
        self.hop.pending = []
        sent = [self.send("/x"), self.send("/y")]
        self.network.pump()
        self.clock.advance(1)
        for each in sent:
            self.failureResultOf(each, GatewayTimeout)
        self.finished()

    def test_unreachable(self) -> None:
        """If no connection can be made, all requests fail with the reason."""
        place = Place()
        sent = [self.send("/x", place), self.send("/y", place)]
        for each in place.all:
            each.connecting.errback(ConnectionRefusedError())
        for one in sent:
            self.assertIn("cannot connect", str(self.failureResultOf(one, BadGateway).value))
        self.finished()

    def test_given_up(self) -> None:
        """When nobody waits for an answer any more, the attempt to connect ends."""
        place = Place()
        sent = [self.send("/x", place), self.send("/y", place)]
        for each in sent:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.assertTrue(all(each.connecting.called for each in place.all))
        self.finished()

    def test_given_up_later(self) -> None:
        """An answer that nobody waits for frees its connection for other requests."""
        self.hop.pending = []
        sent = [self.send("/x") for _ in range(2 * AT_ONCE)]
        self.network.pump()
        for each in sent[:AT_ONCE]:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        pending, self.hop.pending = self.hop.pending, None
        for one in pending:
            one.callback(None)
        self.network.pump()
        for each in sent[AT_ONCE:]:
            self.successResultOf(each)
        self.finished()

    def test_credentials(self) -> None:
        """Requests with other credentials have connections of their own."""
        for token in (b"Bearer a", b"Bearer b"):
            for _ in range(3):
                self.send("/x", token=token)
        self.assertEqual(len(self.control._peers), 2)
        self.network.pump()
        self.finished()

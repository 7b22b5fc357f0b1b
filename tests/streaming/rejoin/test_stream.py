"""Tests for :mod:`twisted_exec.streaming.rejoin.stream`."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.streaming.http.test_upgrade_client import OneConnection
from twisted_exec.api.obstacles import Obstacle
from twisted_exec.api.users import User
from twisted_exec.streaming.context import RequestContext, RequestIdentity
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, REVOKED, Ending
from twisted_exec.streaming.sessions.openings import Openings
from twisted_exec.testing.network import MemoryClient
from twisted_exec.wire.rejoin import Rejoin, received_text
from twisted_exec.wire.session_terms import Right, Terms

from ..frames import handshake, masked
from ..proxy.support import SWITCHED, ProxyTestCase, ScriptedUpstream

KEY = "k" * 43
OBSERVER = Terms(right=Right.OBSERVE)
KEYS = masked(b"\x00ls\n")
OUTPUT = b"\x82\x03\x01$ "
NAME = b"X-Twisted-Exec-Rejoin: "


class RejoinableTestCase(ProxyTestCase):
    """A proxy whose next hop accepts the offer to rejoin streams."""

    answer = b"key=" + KEY.encode() + b"; seconds=30"

    def setUp(self) -> None:
        super().setUp()
        self.admission.more = {"resumes": True}

    def opened(self, request: bytes = handshake()) -> MemoryClient:
        client = self.ask(request)
        self.switch(self.answer)
        return client

    def switch(self, value: bytes, more: bytes = b"", early: bytes = b"") -> None:
        header = NAME + value + b"\r\n" if value else b""
        self.backend.protocol.dataReceived(SWITCHED + header + more + b"\r\n" + early)

    def sent(self) -> list[bytes]:
        """Return the values of the header that the next hop got."""
        lines = self.backend.transport.value().split(b"\r\n")
        return [line[len(NAME) :] for line in lines if line.lower().startswith(NAME.lower())]

    def lose(self) -> None:
        """Lose the connection to the next hop; the next one is another."""
        lost, self.backend = self.backend, OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        protocol = lost.transport.protocol or lost.protocol  # the latter until the stream is up
        protocol.connectionLost(Failure(ConnectionLost()))


class OfferTests(RejoinableTestCase):
    """The header on its way."""

    def test_offered(self) -> None:
        """The first hop makes the offer, whatever the user sends, and keeps the key to itself."""
        client = self.opened(handshake(b"X-Twisted-Exec-Rejoin: key=mine; received=0"))
        self.assertEqual(self.sent(), [b"offer"])
        self.assertNotIn(b"X-Twisted-Exec", client.received())
        (session,) = self.sessions.live()
        self.assertFalse(session.is_rejoined_by_hop)

    def test_passed_on(self) -> None:
        """A hop in between passes on what the hop before says, and the answer."""
        admit = self.admission.admit

        def located(context: RequestContext) -> Any:
            hop = User("hop")
            context.identity = RequestIdentity(User("ann"), hop, b"offer")  # as the gate does
            return admit(context)

        self.admission.admit = located  # type: ignore[method-assign]
        client = self.opened()
        self.assertEqual(self.sent(), [b"offer"])
        self.assertIn(NAME + self.answer + b"\r\n", client.received())
        (session,) = self.sessions.live()
        self.assertTrue(session.is_rejoined_by_hop)
        self.sessions.drain(self.clock, 5, "exec-poollet")
        self.assertEqual(session.ending, None)
        self.assertTrue(client.closed)

    def test_not_offered(self) -> None:
        """Not to other makes, and not for clients that resume their sessions themselves."""
        self.admission.more = {}
        self.opened()
        self.assertEqual(self.sent(), [])
        self.setUp()
        self.opened(handshake(b"X-Twisted-Exec-Resume: marks"))
        self.assertEqual(self.sent(), [])

    def test_not_accepted(self) -> None:
        """Without a valid answer the stream ends with its connection."""
        for answer in (b"", b"key=short; seconds=30", b"nonsense"):
            self.setUp()
            client = self.ask()
            self.switch(answer)
            self.lose()
            self.assertTrue(client.closed, answer)


class OpeningTests(RejoinableTestCase):
    """The connection to the next hop is lost while the session is opened."""

    def test_lost_before_last_decision(self) -> None:
        """The stream that the next hop has opened is rejoined."""
        decided: Deferred[None] = Deferred()
        self.admission.upstream.decided = lambda: decided
        client = self.opened()
        self.lose()
        decided.callback(None)
        self.assertEqual(self.sent(), [Rejoin(KEY, 0).text().encode()])
        client.send(KEYS)
        self.switch(received_text(0).encode(), early=OUTPUT)
        self.assertTrue(self.backend.transport.value().endswith(KEYS))
        self.assertTrue(client.received().endswith(OUTPUT))
        (session,) = self.sessions.live()
        self.assertEqual(session.counts(), (len(KEYS), len(OUTPUT)))


class LostTests(RejoinableTestCase):
    """The connection to the next hop is lost."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.opened()
        self.backend.transport.protocol.dataReceived(OUTPUT)
        self.client.send(KEYS)
        self.lose()

    def test_rejoined(self) -> None:
        """The stream goes on behind the byte that each side has."""
        self.assertEqual(self.sent(), [Rejoin(KEY, len(OUTPUT)).text().encode()])
        head = self.backend.transport.value()
        self.assertIn(b"Audit-Id: s-1\r\n", head)
        self.assertNotIn(b"offer", head)
        self.backend.transport.clear()
        self.client.send(KEYS)
        self.switch(received_text(2).encode(), early=OUTPUT)
        self.assertEqual(self.backend.transport.value(), KEYS[2:] + KEYS)
        self.assertTrue(self.client.received().endswith(OUTPUT + OUTPUT))
        (session,) = self.sessions.live()
        self.assertEqual(session.counts(), (2 * len(KEYS), 2 * len(OUTPUT)))

    def test_located_again(self) -> None:
        """The machine may be elsewhere by now."""
        elsewhere = OneConnection()
        self.setUp()
        self.switch(received_text(len(KEYS)).encode())
        location = self.admission.location()
        self.admission.upstream.renewed = lambda _: succeed(location)
        self.client = self.opened_again()
        self.admission.endpoints = [("10.0.0.9:1", elsewhere)]
        location = self.admission.location()
        self.backend.transport.protocol.connectionLost(Failure(ConnectionLost()))
        self.assertIn(b"key=", elsewhere.transport.value())

    def opened_again(self) -> MemoryClient:
        self.backend = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        return self.opened()

    def test_terms(self) -> None:
        """A change of the terms meanwhile is in the next request, and must be confirmed."""
        self.backend.protocol.connectionLost(Failure(ConnectionDone()))
        (session,) = self.sessions.live()
        session.hold_to(OBSERVER)
        self.backend = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        self.clock.advance(0.1)
        self.assertIn(b"X-Twisted-Exec-Terms: right=observe\r\n", self.backend.transport.value())
        self.switch(received_text(0).encode())
        self.assertTrue(self.backend.transport.aborted)
        self.assertIn(b"does not hold the session to its terms", self.client.received())

    def test_terms_confirmed(self) -> None:
        """Then the stream goes on."""
        self.backend.protocol.connectionLost(Failure(ConnectionDone()))
        (session,) = self.sessions.live()
        session.hold_to(OBSERVER)
        self.backend = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        self.clock.advance(0.1)
        self.switch(received_text(0).encode(), b"X-Twisted-Exec-Terms: right=observe\r\n", OUTPUT)
        self.assertTrue(self.client.received().endswith(OUTPUT))

    def test_terms_changed_late(self) -> None:
        """A change while the request is on its way has a request of its own, and the user waits for its answer."""
        (session,) = self.sessions.live()
        session.hold_to(OBSERVER)
        control = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", control)]
        self.backend.transport.clear()
        self.switch(received_text(len(KEYS)).encode())
        self.client.send(KEYS)
        self.assertIn(b"terms=right%3Dobserve HTTP", control.transport.value())
        self.assertEqual(self.backend.transport.value(), b"")

    def test_ended_meanwhile(self) -> None:
        """A session that ends while there is no connection tells its user why, at once."""
        (session,) = self.sessions.live()
        session.end(Ending(REVOKED, "your role is gone"))
        self.assertIn(b"your role is gone", self.client.received())
        self.assertTrue(self.client.closed)
        self.client.lose()
        self.assertEqual(self.records.ends(), [(REVOKED, None)])
        self.assertTrue(self.backend.transport.aborted)

    def test_user_leaves_meanwhile(self) -> None:
        """Then nobody looks for another connection."""
        self.client.lose()
        self.assertEqual(len(self.sessions), 0)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slow_hop(self) -> None:
        """A hop that many streams rejoin at once gets more time at the next attempt."""
        first, self.backend = self.backend, OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        self.clock.advance(10)
        self.assertTrue(first.transport.aborted)
        self.clock.advance(0.1)
        self.assertIn(b"key=", self.backend.transport.value())
        self.clock.advance(15)
        self.assertFalse(self.backend.transport.aborted)
        self.switch(received_text(len(KEYS)).encode(), early=OUTPUT)
        self.assertTrue(self.client.received().endswith(OUTPUT + OUTPUT))

    def test_slow_handshake(self) -> None:
        """The same for a connection that is not established in time, TLS included."""
        slow, slower = OneConnection(connected=False), OneConnection(connected=False)
        self.admission.endpoints[:] = [("10.0.0.1:1", slow)]
        self.backend.protocol.connectionLost(Failure(ConnectionLost()))
        self.clock.advance(0.1)
        self.admission.endpoints[:] = [("10.0.0.1:1", slower)]
        self.clock.advance(5)
        self.clock.advance(0.1)
        self.clock.advance(8)
        self.backend = slower
        slower.protocol.makeConnection(slower.transport)
        slower.connecting.callback(slower.protocol)
        self.switch(received_text(len(KEYS)).encode(), early=OUTPUT)
        self.assertTrue(self.client.received().endswith(OUTPUT + OUTPUT))

    def test_given_up(self) -> None:
        """A refusal ends the session with the reason."""
        body = b'{"kind":"Status","code":404,"message":"there is no stream to rejoin"}'
        self.backend.protocol.dataReceived(
            b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.assertIn(b"there is no stream to rejoin", self.client.received())
        self.assertTrue(self.client.closed)


@implementer(IStreamClientEndpoint)
class Restarted:
    """The address of a hop that was started again; ``connections`` are those that it has accepted."""

    def __init__(self) -> None:
        self.connections: list[OneConnection] = []

    def connect(self, protocolFactory: IProtocolFactory) -> Any:
        self.connections.append(OneConnection())
        return self.connections[-1].connect(protocolFactory)


class TurnTests(RejoinableTestCase):
    """Many streams of one hop are lost at once."""

    def setUp(self) -> None:
        super().setUp()
        self.sessions.rejoinings = Openings(at_once=2)
        self.admission.upstream = ScriptedUpstream(Obstacle.POOLLET_FAILED)
        machines = []
        for _ in range(5):
            self.backend = OneConnection()
            self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
            self.client = self.opened()
            machines.append(self.backend)
        self.hop = Restarted()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.hop)]
        for machine in machines:
            machine.transport.protocol.connectionLost(Failure(ConnectionLost()))

    def rejoin(self, number: int) -> None:
        """Accept a stream over one of the connections."""
        self.backend = self.hop.connections[number]
        self.switch(received_text(0).encode())

    def test_unreachable(self) -> None:
        """The endings name the hop that this hop did not reach again."""
        for _ in range(60):
            self.clock.advance(1)
        self.assertIn(b'{"reason":"PoolletFailed"}', self.client.received())

    def test_some_at_once(self) -> None:
        """Some are rejoined at a time, so that the first of them are soon; the others follow at once."""
        for number in range(5):
            self.assertEqual(len(self.hop.connections), min(5, number + 2))
            self.rejoin(number)
        self.assertEqual((len(self.sessions), len(self.sessions.rejoinings)), (5, 0))
        self.assertEqual(self.records.ends(), [])

    def test_long_queue(self) -> None:
        """A stream waits for its turn for longer than a user who opens a console would."""
        self.clock.advance(9)
        self.rejoin(0)
        self.rejoin(1)
        self.clock.advance(9)
        self.assertEqual(len(self.hop.connections), 4)
        for number in (2, 3, 4):
            self.rejoin(number)
        self.assertEqual(self.records.ends(), [])

    def test_user_leaves(self) -> None:
        """A stream whose user leaves while it waits gives up its turn."""
        for session in self.sessions.live():
            session.cut()
        self.assertEqual((len(self.sessions), len(self.sessions.rejoinings)), (0, 0))


class WithdrawnTests(RejoinableTestCase):
    """The right to a session ends."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.opened()
        self.machine, self.backend = self.backend, OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        (session,) = self.sessions.live()
        session.end(Ending(REVOKED, "your role is gone"))

    def test_told_first(self) -> None:
        """The user learns it before the next hop answers; the next hop finds its session."""
        self.assertIn(b"your role is gone", self.client.received())
        self.assertTrue(self.client.closed)
        self.client.lose()
        line = self.backend.transport.value().split(b"\r\n")[0]
        self.assertTrue(
            line.startswith(b"DELETE /backend?x=1&session=s-1&reason=AuthorizationWithdrawn"), line
        )
        self.assertEqual(self.machine.transport.closed, [])
        self.backend.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.machine.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.records.ends(), [(REVOKED, None)])
        self.assertEqual(len(self.sessions), 0)

    def test_machine_deleted(self) -> None:
        """A user whose machine or pool is deleted learns it as soon."""
        for number, reason in enumerate((MACHINE_DELETED, POOL_DELETED), 2):
            self.admission.endpoints[:] = []
            self.backend = self.add_backend()
            client = self.opened()
            self.admission.endpoints[:] = [("10.0.0.1:1", OneConnection())]
            *_, session = self.sessions.live()
            session.end(Ending(reason, f"number {number} is deleted"))
            self.assertIn(b"number %d is deleted" % number, client.received())
            self.assertTrue(client.closed)

    def test_silent_hop(self) -> None:
        """A hop that does not end its session loses the connection in time."""
        self.client.lose()
        self.clock.advance(1)
        self.assertTrue(self.machine.transport.aborted)
        self.machine.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.records.ends(), [(REVOKED, None)])


class LeaveTests(RejoinableTestCase):
    """The user's connection is lost."""

    def test_told(self) -> None:
        """The machine's end learns it, and does not wait for this hop."""
        client = self.opened()
        machine, control = self.backend, OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", control)]
        client.lose()
        line = control.transport.value().split(b"\r\n")[0]
        self.assertTrue(line.startswith(b"DELETE /backend?x=1&session=s-1&reason=UserLeft"), line)
        self.assertEqual(machine.transport.closed, [])
        control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(machine.transport.closed, ["close"])

    def test_machine_ends_first(self) -> None:
        """The machine's connection may end before the answer to the request."""
        client = self.opened()
        machine, control = self.backend, OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", control)]
        client.lose()
        machine.transport.protocol.connectionLost(Failure(ConnectionDone()))
        control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.records.ends(), [("client closed", None)])
        self.assertEqual(len(self.sessions), 0)


class MemoryTests(RejoinableTestCase):
    """Sessions are freed by reference counts: programs collect garbage seldom."""

    def setUp(self) -> None:
        super().setUp()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def test_session(self) -> None:
        """A session that is over is gone without the garbage collector, also if it was rejoined."""
        for is_rejoined in (False, True):
            self.backend = OneConnection()
            self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
            client = self.opened()
            if is_rejoined:
                self.lose()
                self.switch(received_text(0).encode())
            (session,) = self.sessions.live()
            transports = client.transport, self.backend.transport
            kept = [
                weakref.ref(each) for each in (session, *(each.protocol for each in transports))
            ]
            del session
            self.backend.transport.protocol.dataReceived(b"\x88\x02\x03\xe8")
            self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
            client.lose()
            for transport in transports:
                transport.protocol = transport.producer = None
            self.assertEqual([each() for each in kept], [None] * 3, is_rejoined)

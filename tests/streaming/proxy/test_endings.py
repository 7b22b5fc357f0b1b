"""
Tests for :mod:`twisted_exec.streaming.proxy`: the end of sessions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.proxy.support import SWITCHED, ProxyTestCase
from twisted_exec.api.status import BadGateway, Unauthorized
from twisted_exec.api.users import User
from twisted_exec.streaming.context import RequestContext, RequestIdentity
from twisted_exec.streaming.http.session_requests import SILENCE_SECONDS, SILENT_TURNS
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
)
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.streaming.proxied import END_SECONDS, LOG_LINES, STOP_SECONDS
from twisted_exec.streaming.splice import LOST
from twisted_exec.testing.network import MemoryClient
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.spdy import FrameWriter


class EndTests(ProxyTestCase):
    """Ending a session from this hop."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.switched()
        self.session_transport = self.backend.transport
        # The next connection carries the request to end it.
        self.control = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", self.control)

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
                    self.proxy.state.log_cut(session, failure)
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
        self.change_settings(cuts_when_refused=False)
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
        self.admission.endpoints[0] = ("10.0.0.0:1", late)
        client = self.ask(handshake() + b"early")
        self.sessions.live()[-1].end(Ending(REVOKED, "no more"))
        late.protocol.makeConnection(late.transport)
        late.connecting.callback(late.protocol)
        self.admission.endpoints[0] = ("10.0.0.0:1", OneConnection())
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
            self.change_settings(cuts_when_refused=False)  # which is about refusals
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
        self.assertIn(b'"message":"vm is gone"', self.client.received())

    def test_foreign_and_patient(self) -> None:
        """Unless cuts_when_refused is set, a refused DELETE cuts the stream only after 0.7 s."""
        self.change_settings(cuts_when_refused=False)
        self.end(REVOKED)
        self.control.protocol.dataReceived(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
        self.clock.advance(END_SECONDS - 0.1)
        self.assertFalse(self.session_transport.aborted)
        self.clock.advance(0.1)
        self.assertTrue(self.session_transport.aborted)
        self.lose_backend()

    def test_unreachable(self) -> None:
        """If the next hop cannot be reached, the stream is cut after 0.7 s."""
        self.admission.endpoints[0] = ("10.0.0.0:1", OneConnection(connected=False))
        self.end(REVOKED)
        self.clock.advance(END_SECONDS)
        self.assertTrue(self.session_transport.aborted)
        self.clock.advance(60)

    def test_over_before_it_was_asked(self) -> None:
        """If the session ends first, the pending DELETE is cancelled."""
        self.admission.endpoints[0] = ("10.0.0.0:1", OneConnection(connected=False))
        self.end()
        self.lose_backend()
        self.client.lose()
        self.assertEqual(self.records.ends(), [(MACHINE_DELETED, None)])
        self.assertTrue(self.admission.endpoints[0][1].connecting.called)  # cancelled
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_ended_while_connecting(self) -> None:
        """A session that is ended before its stream is up ends as soon as the stream is up."""
        self.admission.endpoints[0] = ("10.0.0.0:1", OneConnection(connected=False))
        late = self.admission.endpoints[0][1]
        client = self.ask()
        self.sessions.live()[-1].end(Ending(REVOKED, "no more"))
        late.protocol.makeConnection(late.transport)
        late.connecting.callback(late.protocol)
        self.admission.endpoints[0] = ("10.0.0.0:1", OneConnection())
        late.protocol.dataReceived(SWITCHED + b"\r\n")
        self.assertIn(b"101 Switching", client.received())
        self.clock.advance(2)
        self.assertTrue(late.transport.closed)

    def test_drain(self) -> None:
        """Draining ends every session, by the same way."""
        drained = self.sessions.drain(self.clock, 5, "exec-poollet")
        self.assertIn(b"reason=ShuttingDown", self.control.transport.value())
        self.clock.advance(STOP_SECONDS - 0.1)  # more patience than for a right that was withdrawn
        self.assertFalse(self.session_transport.aborted)
        self.lose_backend()
        self.client.lose()
        self.successResultOf(drained)
        self.assertEqual(self.records.ends(), [(SHUTTING_DOWN, None)])


class EndHereTests(ProxyTestCase):
    """Ending a session whose next hop does not support DELETE."""

    def setUp(self) -> None:
        super().setUp()
        self.admission.more = {"ends_here": True}
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


class LostTests(ProxyTestCase):
    """The next hop is lost, and no hop can rejoin the stream."""

    lost = Failure(ConnectionLost())

    def lose(self, client: MemoryClient) -> bytes:
        """Lose the next hop; return what the client gets then."""
        client.received()
        self.backend.transport.protocol.connectionLost(self.lost)
        self.assertTrue(client.closed)
        return client.received()

    def change(self, change: Callable[[RequestContext], object]) -> None:
        """Change the context of the next request."""
        admit = self.admission.admit

        def located(context: RequestContext) -> Deferred[Location]:
            change(context)
            return admit(context)

        self.admission.admit = located  # type: ignore[method-assign]

    def test_told(self) -> None:
        """A client that cannot resume reads that the connection was lost."""
        client = self.switched(b"\x82\x03\x01$ ")
        told = self.lose(client)
        self.assertIn(LOST.encode(), told)
        self.assertTrue(told.endswith(b"\x88\x02\x03\xe8"), told)

    def test_spdy(self) -> None:
        """The same over SPDY, on the stream of errors."""
        client = self.ask(
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
        )
        self.backend.protocol.dataReceived(
            b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
        )
        client.send(FrameWriter().syn_stream(1, [(b"streamtype", b"error")]))
        told = self.lose(client)
        self.assertTrue(told.startswith(b"\x00\x00\x00\x01\x01"), told)
        self.assertIn(LOST.encode(), told)

    def test_within_a_message(self) -> None:
        """No message goes into another one."""
        self.assertEqual(self.lose(self.switched(b"\x82\x05\x01a")), b"")

    def test_behind_a_status(self) -> None:
        """A session that has ended gets no second status."""
        self.assertEqual(self.lose(self.switched(b"\x82\x03\x03{}")), b"")

    def test_ports(self) -> None:
        """Forwarded ports have no status."""
        self.change(lambda context: context.learn(subresource="portforward"))
        self.assertEqual(self.lose(self.switched()), b"")

    def test_resumes(self) -> None:
        """A client that can resume its session learns the reason from its next request."""
        self.admission.more = {"resumes": True}
        client = self.ask(handshake(b"X-Twisted-Exec-Resume: marks"))
        answer = b"X-Twisted-Exec-Resume: key=" + b"k" * 43 + b"; seconds=60\r\n"
        self.backend.protocol.dataReceived(SWITCHED + answer + b"\r\n")
        self.assertEqual(self.lose(client), b"")

    def test_previous_hop(self) -> None:
        """A previous hop that rejoins streams tells the client itself."""

        def offer(context: RequestContext) -> None:
            hop = User("hop")
            context.identity = RequestIdentity(User("ann"), hop, b"offer")  # as the gate does

        self.change(offer)
        self.assertEqual(self.lose(self.switched()), b"")


class EndElsewhereTests(ProxyTestCase):
    """Ending a session that has another id at the next hop."""

    def test_asked_by_its_name_there(self) -> None:
        """The DELETE uses the id from the next hop's Audit-Id header."""
        self.ask()
        self.backend.protocol.dataReceived(SWITCHED + b"Audit-Id: theirs\r\n\r\n")
        control = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", control)
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        self.assertIn(b"&session=theirs&", control.transport.value().split(b"\r\n")[0])
        self.clock.advance(60)

    def test_renewed(self) -> None:
        """If the admission renews the location, the DELETE uses the new credentials."""
        control = OneConnection()

        def renew(reason: Renewal) -> Deferred[Location]:
            self.assertIs(reason, Renewal.CONTROL)
            headers = [(b"Authorization", b"Bearer tomorrow")]
            return succeed(Location([("there", control)], b"/x", b"there:2", headers))

        self.admission.upstream.renewed = renew
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
        self.admission.endpoints[0] = ("10.0.0.0:1", self.control)

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

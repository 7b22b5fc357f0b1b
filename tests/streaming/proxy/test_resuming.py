"""
Tests for :mod:`twisted_exec.streaming.proxy`: sessions that are resumed, or wait for that.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet import error
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.proxy.support import SWITCHED, Proxying, ProxyTestCase, ResumingTestCase
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.http.browser_websocket import adopt_page
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import RESTARTING, RESUMED, REVOKED, Ending
from twisted_exec.streaming.proxied import END_SECONDS, STOP_SECONDS
from twisted_exec.streaming.sessions.registry import SessionLife
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.network import MemoryServer
from twisted_exec.wire.upgrade import RESUME_SUBPROTOCOL


class ResumeTests(ResumingTestCase):
    """Sessions whose client can resume them."""

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

    def test_resumed(self) -> None:
        """A resumed session names the one before in its records, and nobody's key."""
        client = self.answered(self.resumed)
        self.assertEqual(self.sent(), [self.resumed])
        (session,) = self.sessions.live()
        self.assertEqual((session.resumable_seconds, session.resumes), (60, "s-0"))
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        client.lose()
        self.assertEqual([each["resumes"] for each in self.records], ["s-0", "s-0"])
        for key in (self.key, self.next_key):
            self.assertNotIn(key.decode(), repr(self.records) + repr(session.__dict__))

    def test_busy_hop(self) -> None:
        """A session that goes on gets the time of the hop before, which leaves first; a new one does not."""
        self.change_settings(continue_seconds=60)
        client = self.ask(self.request(self.resumed))
        self.clock.advance(59)
        self.assertFalse(self.backend.transport.aborted)
        client.lose()
        self.assertTrue(self.backend.transport.aborted)
        self.backend = OneConnection()
        self.admission.endpoints[:] = [("10.0.0.1:1", self.backend)]
        refused = self.ask(self.request(b"marks"))
        self.clock.advance(10)
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(refused.responses()[0].code, 504)

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
            self.assertNotIn(self.key.decode(), repr(self.records) + repr(answer.json()))

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
            self.admission.more = {"resumes": resumes}
            (answer,) = self.ask(request(self.resumed)).responses()
            self.assertEqual(answer.code, 409)
            self.assertIn("cannot resume a session", answer.json()["message"])
            self.assertIsNone(self.backend.protocol)
            self.ask(request(b"marks"))
            self.assertEqual(self.sent(), [])
            self.assertTrue(self.backend.transport.value())

    def test_refused(self) -> None:
        """A refusal of the next hop reaches the client, and the session here goes on."""
        old = self.answered(b"marks")
        self.backend = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", self.backend)
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
        self.admission.endpoints[0] = ("10.0.0.0:1", self.backend)
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
        self.admission.more = {"resumes": True}
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
        return self.session.life is SessionLife.LOST

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

    def stop(self) -> tuple[Any, OneConnection]:
        """Stop this hop; return when it is drained, and the connection with its request to the next hop."""
        control = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", control)
        return self.sessions.drain(self.clock, 5, "exec-poollet"), control

    def test_stopped(self) -> None:
        """A hop that stops has the machine's side close the connection, and the session waits for its user."""
        drained, control = self.stop()
        head = control.transport.value().split(b"\r\n")[0]
        self.assertIn(b"DELETE /backend?x=1&restarts=s-1&", head)
        self.assertIn(b"exec-poollet", head)
        self.client.send(b"\x82\x81abcdx")
        self.assertEqual(self.machine.value(), b"")
        control.protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        close = b"\x88\x06\x03\xf4poll"
        self.machine.protocol.dataReceived(close)
        self.lose()
        self.assertTrue(self.client.received().endswith(close))
        self.client.lose()
        self.successResultOf(drained)
        self.assertTrue(self.over())
        self.assertEqual(self.records.ends(), [(RESTARTING, None)])

    def test_stopped_before_earlier_release(self) -> None:
        """A next hop that does not know the request, or has none, has the session cut, and no status is written."""
        for is_refused in (True, False):
            self.setUp()
            drained, control = self.stop()
            self.client.received()
            if is_refused:
                control.protocol.dataReceived(b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n")
                self.clock.advance(0)
            else:
                self.clock.advance(STOP_SECONDS)
            self.assertEqual(self.client.received(), b"")
            self.assertTrue(self.client.closed)
            self.lose()
            self.client.lose()
            self.successResultOf(drained)
            self.assertTrue(self.over())

    def test_all_stop(self) -> None:
        """The Close of a machine's side that stops at the same time, and cannot be asked, still arrives."""
        self.admission.endpoints.clear()
        drained = self.sessions.drain(self.clock, 5, "exec-poollet")
        self.clock.advance(STOP_SECONDS / 2)
        close = b"\x88\x06\x03\xf4poll"
        self.machine.protocol.dataReceived(close)
        self.lose()
        self.assertTrue(self.client.received().endswith(close))
        self.client.lose()
        self.successResultOf(drained)
        self.assertTrue(self.over())

    def test_ordinary(self) -> None:
        """A session that cannot be resumed waits for nobody."""
        self.backend = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", self.backend)
        client = self.switched()
        session = self.sessions.live()[-1]
        client.lose()
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertIs(session.life, SessionLife.OVER)

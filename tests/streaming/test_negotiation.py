"""
Tests for :mod:`twisted_exec.streaming.negotiation`.
"""

from __future__ import annotations

import json
import re
import socket

from twisted.internet import error
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ISSLTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides

from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.proxy.support import SWITCHED, ProxyTestCase, ResumingTestCase
from tests.streaming.rejoin.test_stream import Restarted
from twisted_exec.api.status import APIError, BadGateway, NotFound
from twisted_exec.streaming.negotiation import chosen_protocol
from twisted_exec.streaming.sessions.openings import AT_ONCE, Openings
from twisted_exec.testing.network import MemoryClient
from twisted_exec.wire.resume import Resumable, RoundTrip
from twisted_exec.wire.session_terms import Right, Terms


def _mend(error: APIError) -> APIError:
    return BadGateway(f"{error.code}, so mend it")


class RefusalTests(ProxyTestCase):
    """Next hops that refuse a request, or are not reached."""

    def test_told_by_the_admission(self) -> None:
        """The admission may replace the backend's refusal, also that of a 401."""
        for code in (401, 403, 404):
            self.setUp()
            self.admission.upstream.meaning = _mend
            client = self.ask()
            self.backend.protocol.dataReceived(
                b"HTTP/1.1 %d X\r\nContent-Length: 1\r\n\r\nx" % code
            )
            refused = self.refused(client)
            self.assertEqual((refused.code, refused.message), (502, f"{code}, so mend it"))

    def test_no_address(self) -> None:
        """A location without addresses is a 503."""
        self.admission.endpoints.clear()
        refused = self.refused(self.ask())
        self.assertEqual((refused.code, refused.reason), (503, "ServiceUnavailable"))

    def test_refused_connection(self) -> None:
        """If no address can be connected to, the 502 gives the reason for each."""
        self.admission.endpoints.clear()
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
        self.admission.endpoints.clear()
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
        self.admission.endpoints.clear()
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


class SlowHopTests(ProxyTestCase):
    """Requests to a next hop that is slow, or silent, while others go there, too."""

    def setUp(self) -> None:
        super().setUp()
        self.sessions.openings = Openings(per_user=AT_ONCE)

    def another(self, backend: OneConnection) -> MemoryClient:
        """A further client of the same hop."""
        self.admission.endpoints = [("10.0.0.0:1", backend)]
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
        self.admission.endpoints = [("10.0.0.0:1", silent), ("10.0.0.1:1", good)]
        self.ask()
        self.clock.advance(4)
        self.admission.endpoints = [("10.0.0.1:1", good)]
        self.ask()
        good.connections[0].protocol.dataReceived(SWITCHED + b"\r\n")
        self.clock.advance(1)
        self.assertEqual(len(good.connections), 2)


class TermsTests(ProxyTestCase):
    """Terms that the next hop must confirm."""

    observer = Terms(right=Right.OBSERVE)

    def test_sent(self) -> None:
        """The terms are sent, and the confirmation is passed on."""
        self.admission.more = {"terms": self.observer}
        client = self.confirmed(b"right=observe")
        head = self.backend.transport.value().split(b"\r\n")
        self.assertIn(b"X-Twisted-Exec-Terms: right=observe", head)
        self.assertIn(b"X-Twisted-Exec-Terms: right=observe\r\n", client.received())

    def test_stricter(self) -> None:
        """A next hop may be stricter."""
        self.admission.more = {"terms": Terms(viewers=3)}
        client = self.confirmed(b"right=observe&viewers=2&policy=a%2Fb")
        self.assertIn(b"101 Switching", client.received())

    def test_not_confirmed(self) -> None:
        """A next hop that confirms less, or nothing, is left, and the user reads why."""
        for terms in (b"", b"right=drive", b"right=observe&later=1"):
            self.setUp()
            self.admission.more = {"terms": self.observer}
            refused = self.refused(self.confirmed(terms))
            self.assertEqual(refused.code, 501)
            self.assertIn("10.0.0.0:1 cannot hold a session to its terms", refused.message)
            self.assertTrue(self.backend.transport.aborted)


class ResumptionTests(ResumingTestCase):
    """What the next hop learns about resuming a session, and its answer."""

    def test_first(self) -> None:
        """The header goes to the next hop, and its answer to the client."""
        client = self.answered(b"marks")
        self.assertEqual(self.sent(), [b"marks"])
        self.assertIn(b"X-Twisted-Exec-Resume: " + self.answer + b"\r\n", client.received())
        (session,) = self.sessions.live()
        self.assertEqual((session.resumable_seconds, session.resumes), (60, ""))

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
        first, second = Resumable.parse(answer.decode()).round_trips
        self.assertEqual((first.hop, second), ("poollet", RoundTrip("poollet", 7)))
        self.assertGreater(first.microseconds, 0)

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

    def test_not_translated(self) -> None:
        """A next hop that does not speak the protocol is asked for another without the header."""
        self.ask(self.request(b"marks"))
        second = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", second)
        self.backend.protocol.dataReceived(b"HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n")
        self.backend = second
        self.assertIn(b"Upgrade", second.transport.value())
        self.assertEqual(self.sent(), [])

    def test_resumed_not_translated(self) -> None:
        """A request that resumes is not translated."""
        client = self.ask(self.request(self.resumed))
        self.backend.protocol.dataReceived(b"HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.refused(client).code, 403)


class ProtocolTests(SynchronousTestCase):
    """Tests for :func:`chosen_protocol`."""

    def test_carriers(self) -> None:
        """WebSockets and SPDY name the protocol in different headers."""
        for name in (b"sec-websocket-protocol", b"X-Stream-Protocol-Version"):
            self.assertEqual(chosen_protocol([(name, b"v5.channel.k8s.io")]), "v5.channel.k8s.io")
        self.assertEqual(chosen_protocol([(b"Upgrade", b"websocket")]), "")

    def test_hostile(self) -> None:
        """A name that is no text or too long is shortened: it is in logs and lists of sessions."""
        name = chosen_protocol([(b"Sec-WebSocket-Protocol", b"\xff" + b"v" * 1000)])
        self.assertEqual(name, "\N{REPLACEMENT CHARACTER}" + "v" * 63)

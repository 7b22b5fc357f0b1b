"""
Tests for :mod:`twisted_exec.streaming.proxy`: terms of sessions.
"""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.proxy.support import ProxyTestCase
from twisted_exec.streaming.http.session_requests import SILENCE_SECONDS, SILENT_TURNS
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.streaming.proxied import END_SECONDS, TERMS_SECONDS
from twisted_exec.wire.session_terms import Right, Terms


class TermsTests(ProxyTestCase):
    """Sessions that are held to terms."""

    observer = Terms(right=Right.OBSERVE)
    accepted = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    def change(self, terms: Terms) -> OneConnection:
        """Change the terms of the session; return the connection of the request."""
        control = OneConnection()
        self.admission.endpoints[0] = ("10.0.0.0:1", control)
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
        self.admission.endpoints[0] = ("10.0.0.0:1", second)
        self.assertEqual(control.transport.value().count(b"PATCH"), 1)
        control.protocol.dataReceived(self.accepted)
        self.assertIn(b"terms=people%3D2 HTTP", second.transport.value())
        self.assertEqual(machine.value(), b"")
        second.protocol.dataReceived(self.accepted)
        self.assertEqual(machine.value(), b"x")

    def test_late(self) -> None:
        """
        On a busy host the confirmation may take seconds: the session goes on, because nothing of
        the user passes meanwhile.
        """
        client = self.confirmed(b"")
        machine = self.backend.transport
        machine.clear()
        control = self.change(self.observer)
        client.send(b"reboot")
        self.clock.pump([0.1] * int(10 * TERMS_SECONDS - 1))
        self.assertEqual(machine.value(), b"")
        control.protocol.dataReceived(self.accepted)
        self.assertEqual(machine.value(), b"reboot")  # the next hop drops it
        self.clock.advance(TERMS_SECONDS)
        (session,) = self.sessions.live()
        self.assertIsNone(session.ending)

    def test_refused(self) -> None:
        """A session whose next hop refuses, or never answers, ends; its input is lost."""
        for answer in (b"HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n", b""):
            self.setUp()
            client = self.confirmed(b"")
            machine = self.backend.transport
            machine.clear()
            control = self.change(self.observer)
            client.send(b"reboot")
            control.protocol.dataReceived(answer)
            (session,) = self.sessions.live()
            self.clock.advance(TERMS_SECONDS)
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

    def test_ended_before_it_was_confirmed(self) -> None:
        """If the whole right ends while the next hop is silent, the session is cut as usual."""
        client = self.confirmed(b"")
        self.change(self.observer)
        self.clock.advance(1)
        self.admission.endpoints[0] = ("10.0.0.0:1", OneConnection())
        (session,) = self.sessions.live()
        session.end(Ending(REVOKED, "no more"))
        self.clock.pump([SILENCE_SECONDS / SILENT_TURNS] * SILENT_TURNS)
        self.clock.advance(0)
        self.assertTrue(client.closed)
        self.assertTrue(self.backend.transport.aborted)
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.records.ends(), [(REVOKED, None)])

    def test_over_before_it_was_confirmed(self) -> None:
        """If the machine ends the session first, that is the reason; the change is given up."""
        client = self.confirmed(b"")
        control = OneConnection(connected=False)
        self.admission.endpoints[0] = ("10.0.0.0:1", control)
        (session,) = self.sessions.live()
        session.hold_to(self.observer)
        self.backend.transport.protocol.connectionLost(Failure(ConnectionDone()))
        client.lose()
        self.assertEqual(self.records.ends(), [("backend closed", None)])
        self.assertTrue(control.connecting.called)  # cancelled
        self.assertEqual(self.clock.getDelayedCalls(), [])

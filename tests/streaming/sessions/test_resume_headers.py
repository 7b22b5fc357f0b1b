"""
Tests for :mod:`twisted_exec.streaming.sessions.resume_headers`; for the header of clients that can resume
see also :mod:`tests.streaming.test_context`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from twisted_exec.api.status import BadGateway, BadRequest
from twisted_exec.streaming.sessions.resume_headers import (
    RequestedResumption,
    accepted_offer,
    confirmed_resumption,
    rejoin_headers,
    requested_rejoin,
    requested_resumption,
)
from twisted_exec.wire.rejoin import Rejoin, Rejoinable
from twisted_exec.wire.resume import Position, Resumable, Resume

KEY = "k" * 43


class RequestedResumptionTests(SynchronousTestCase):
    """The header of a client that resumes a session."""

    def test_next_hop(self) -> None:
        """The next hop gets the header without the machine, which has another UID in another cluster."""
        resume = Resume(KEY, "s-1", Position("0123456789abcdef", 7), "uid-1")
        requested = requested_resumption([f"{resume.text()}; credit=65536".encode()])
        assert requested is not None
        self.assertEqual((requested.resume, requested.credit), (resume, 65536))
        passed_on = f"{replace(resume, machine='').text()}; credit=65536"
        self.assertEqual(requested.value, passed_on.encode())
        new = requested_resumption([b"marks; credit=65536"])
        self.assertEqual(new, RequestedResumption(b"marks; credit=65536", None, 65536))


class ConfirmedResumptionTests(SynchronousTestCase):
    """The next hop's answer to a client that can resume."""

    def test_none(self) -> None:
        """An ordinary session has no header."""
        self.assertIsNone(confirmed_resumption([(b"Audit-Id", b"s-1")]))

    def test_confirmed(self) -> None:
        """The last header counts, in any case."""
        headers = [
            (b"X-Twisted-Exec-Resume", b"key=x"),
            (b"x-twisted-exec-resume", Resumable(KEY, 60).text().encode()),
        ]
        self.assertEqual(confirmed_resumption(headers), Resumable(KEY, 60))

    def test_invalid(self) -> None:
        """An answer that is not valid is an error of the next hop; the message has no key."""
        header = (b"X-Twisted-Exec-Resume", f"key={KEY}".encode())
        error = self.assertRaises(BadGateway, confirmed_resumption, [header])
        self.assertNotIn(KEY, error.message)


class RejoinTests(SynchronousTestCase):
    """The header of hops that rejoin streams."""

    def requested(self, *values: str) -> tuple[bool, Rejoin | None]:
        request = DummyRequest([b"exec"])
        request.requestHeaders.setRawHeaders("X-Twisted-Exec-Rejoin", list(values))
        return requested_rejoin(rejoin_headers(request))

    def test_requested(self) -> None:
        """A hop says nothing, offers to rejoin the stream, or rejoins one."""
        self.assertEqual(self.requested(), (False, None))
        self.assertEqual(self.requested("offer"), (True, None))
        rejoin = Rejoin(KEY, 7)
        self.assertEqual(self.requested(rejoin.text()), (False, rejoin))

    def test_invalid(self) -> None:
        """A value that is not valid, or a second header, is refused without its text."""
        for values in (["offers"], [f"key={KEY}"], ["offer", "offer"]):
            error = self.assertRaises(BadRequest, self.requested, *values)
            self.assertNotIn(KEY, error.message)

    def test_answer(self) -> None:
        """A hop that does not answer the offer, or wrongly, does not accept it."""
        self.assertEqual(accepted_offer(Rejoinable(KEY, 30).text().encode()), Rejoinable(KEY, 30))
        for value in (b"", b"offer", b"\xff"):
            self.assertIsNone(accepted_offer(value))

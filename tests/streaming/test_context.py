"""Tests for :mod:`twisted_exec.streaming.context`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from twisted_exec.api.status import BadRequest
from twisted_exec.api.users import User
from twisted_exec.streaming.context import RequestContext, RequestIdentity
from twisted_exec.wire.rejoin import OFFER, Rejoin
from twisted_exec.wire.resume import Position, Resume

RESUME = Resume("k" * 43, "s-1", Position("0123456789abcdef", 7))


class ResumptionTests(SynchronousTestCase):
    """What a client says about resuming its session."""

    def context(self, *values: str) -> RequestContext:
        request = DummyRequest([b"exec"])
        request.requestHeaders.setRawHeaders("X-Twisted-Exec-Resume", list(values))
        return RequestContext(request)

    def test_none(self) -> None:
        """Most clients cannot resume."""
        self.assertIsNone(RequestContext(DummyRequest([b"exec"])).resumption)

    def test_first(self) -> None:
        """The first request of a client that can."""
        resumption = self.context("marks").resumption
        assert resumption is not None
        self.assertEqual((resumption.resume, resumption.session), (None, ""))

    def test_resume(self) -> None:
        """A request that resumes a session; it is not printed with its key."""
        resumption = self.context(RESUME.text()).resumption
        assert resumption is not None
        self.assertEqual((resumption.resume, resumption.session), (RESUME, "s-1"))
        self.assertEqual(resumption.value, RESUME.text().encode())
        self.assertNotIn(RESUME.key, repr(resumption))

    def test_invalid(self) -> None:
        """A value that is not valid, or a second header, is refused without its text."""
        for values in (["mark"], [""], [RESUME.text() + ";x=1;x=2"], ["marks", "marks"]):
            with self.assertRaises(BadRequest) as caught:
                _ = self.context(*values).resumption
            self.assertNotIn(RESUME.key, caught.exception.message)

    def test_continues(self) -> None:
        """Requests that resume a session or rejoin a stream go on with an open one."""
        self.assertFalse(RequestContext(DummyRequest([b"exec"])).continues_session)
        self.assertFalse(self.context("marks").continues_session)
        self.assertTrue(self.context(RESUME.text()).continues_session)
        for value, continues in ((OFFER, False), (Rejoin("k" * 43, 7).text(), True)):
            context = RequestContext(DummyRequest([b"exec"]))
            context.identity = RequestIdentity(User("ann"), User("hop"), value.encode())
            self.assertIs(context.continues_session, continues)


class IdentityTests(SynchronousTestCase):
    """As whom a request is answered."""

    def test_before_the_gate(self) -> None:
        """A request has no user, no caller and no previous hop before the gate names them."""
        context = RequestContext(DummyRequest([b"exec"]))
        self.assertFalse(context.is_identified)
        self.assertEqual((context.caller, context.rejoin), (None, b""))
        context.identity = RequestIdentity(User("ann"))
        self.assertTrue(context.is_identified)
        self.assertEqual((context.user.name, context.caller, context.rejoin), ("ann", None, b""))

    def test_header_taken(self) -> None:
        """A session is resumed although the gate has taken the header out of the request."""
        request = DummyRequest([b"exec"])
        request.requestHeaders.setRawHeaders("X-Twisted-Exec-Resume", [RESUME.text()])
        context = RequestContext(request)
        request.requestHeaders.removeHeader("X-Twisted-Exec-Resume")
        assert context.resumption is not None
        self.assertEqual(context.resumption.session, "s-1")

"""Tests for :mod:`twisted_exec.streaming.sessions.hop_messages`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import parse_qs
from twisted.web.http_headers import Headers

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    INTERNAL,
    MACHINE_DELETED,
    RESTARTING,
    REVOKED,
    SESSION_DELETED,
    Ending,
)
from twisted_exec.streaming.sessions.hop_messages import (
    confirmed_terms,
    ending_query,
    forwarded_session_id,
    forwarded_terms,
    parse_ending,
    parse_terms_query,
    terms_query,
)
from twisted_exec.wire.session_terms import FULL, Right, Terms


class EndingQueryTests(SynchronousTestCase):
    """The query that passes an ending to the next hop."""

    def parsed(self, query: bytes) -> tuple[str, Ending]:
        return parse_ending(parse_qs(query, True))

    def test_there_and_back(self) -> None:
        """Reading a query gives the session and the ending that were written."""
        for message in ("", 'machine "é" was deleted & gone=1', "%2F?#"):
            ending = Ending(MACHINE_DELETED, message)
            self.assertEqual(self.parsed(ending_query("a-1", ending)), ("a-1", ending))
        restarts = Ending(RESTARTING, "exec-poollet is restarting")
        self.assertEqual(self.parsed(ending_query("a-1", restarts)), ("a-1", restarts))

    def test_causes(self) -> None:
        """Causes are passed on, if this release knows them."""
        ending = Ending(REVOKED, "no", causes=("NotRecorded", "PoolletFailed"))
        query = ending_query("a-1", ending)
        self.assertEqual(self.parsed(query), ("a-1", ending))
        self.assertEqual(self.parsed(query + b"&cause=%ff&cause=x"), ("a-1", ending))
        _, many = self.parsed(query + b"&cause=NoRoute" * 20)
        self.assertEqual(len(many.causes), 8)

    def test_user(self) -> None:
        """The user who has ended a session is passed on, bounded and printable."""
        ending = Ending(SESSION_DELETED, "é deleted it", user="é & user=x")
        self.assertEqual(self.parsed(ending_query("a-1", ending)), ("a-1", ending))
        _, bounded = self.parsed(b"session=a&user=" + b"x%1b" * 1000)
        self.assertEqual(bounded.user, "x" * 256)

    def test_unknown_reason(self) -> None:
        """An unknown reason, or one that is no failure, becomes an internal error."""
        for reason in ("Whatever", COMPLETED, ""):
            _, ending = self.parsed(b"session=a&reason=" + reason.encode())
            self.assertEqual(ending.reason, INTERNAL)

    def test_bounded(self) -> None:
        """A message is bounded and printable."""
        _, ending = self.parsed(b"session=a&message=" + b"x%1b" * 1000)
        self.assertEqual(ending.message, "x" * 256)

    def test_no_session(self) -> None:
        """A query without a valid session id is refused; so is a restart, by release 0.2.0."""
        self.assertNotIn(b"session=", ending_query("a-1", Ending(RESTARTING, "x")))
        for query in (b"", b"session=", b"session=a%20b", b"session=" + b"a" * 65, b"session=%ff"):
            with self.assertRaises(BadRequest):
                self.parsed(query)


class ForwardedIdTests(SynchronousTestCase):
    """Tests for :func:`forwarded_session_id`."""

    def test_id(self) -> None:
        """An id is a short word; anything else counts as missing."""

        class FakeRequest:
            requestHeaders = Headers()

        for value, session in (
            (b"2cf2b7cb-2f30-4c80-8d0f-7b055b22fb23", "2cf2b7cb-2f30-4c80-8d0f-7b055b22fb23"),
            (b"a\tb", None),
            (b"\xc3\xa9", None),
            (b"a" * 65, None),
            (b"", None),
        ):
            FakeRequest.requestHeaders.setRawHeaders(b"audit-id", [value])
            self.assertEqual(forwarded_session_id(FakeRequest()), session)
        FakeRequest.requestHeaders.removeHeader(b"audit-id")
        self.assertIsNone(forwarded_session_id(FakeRequest()))


OBSERVER = Terms(right=Right.OBSERVE)


class TermsTests(SynchronousTestCase):
    """Terms in headers and queries."""

    def test_forwarded(self) -> None:
        """The strictest of all headers count; a flood of headers is refused."""
        self.assertEqual(forwarded_terms([]), FULL)
        values = [b"right=drive", b"right=observe", b"viewers=3"]
        self.assertEqual(forwarded_terms(values), Terms(Right.OBSERVE, viewers=3))
        for bad in ([b"right=drive"] * 5, [b"recording=yes"], [b"\xff"]):
            with self.assertRaises(BadRequest):
                forwarded_terms(bad)

    def test_confirmed(self) -> None:
        """An answer that is missing or not understood confirms nothing."""
        name = b"x-twisted-exec-TERMS"
        self.assertEqual(confirmed_terms([(name, b"right=observe")]), OBSERVER)
        for headers in ([], [(name, b"right=observe&later=1")], [(b"Terms", b"right=observe")]):
            self.assertEqual(confirmed_terms(headers), FULL)

    def test_query(self) -> None:
        """The query of a change is read as it was written; it names a session."""
        for terms in (FULL, OBSERVER):
            query = parse_qs(terms_query("s-1", terms), keep_blank_values=1)
            self.assertEqual(parse_terms_query(query), ("s-1", terms))
        for bad in ({}, {b"session": [b"a b"]}, {b"session": [b"s"], b"terms": [b"later=1"]}):
            with self.assertRaises(BadRequest):
                parse_terms_query(bad)

"""Tests for :mod:`twisted_exec.streaming.sessions.hop_terms`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import parse_qs

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.sessions.hop_terms import (
    confirmed_terms,
    forwarded_terms,
    parse_terms_query,
    terms_query,
)
from twisted_exec.wire.session_terms import FULL, Right, Terms

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

"""
Tests for :mod:`twisted_exec.api.screens`.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.screens import Form, ScreenOptions, parse
from twisted_exec.api.status import Invalid

NOON = 1_795_176_000 * 10**9


class QueryTests(SynchronousTestCase):
    """The query of a screen."""

    def test_valid(self) -> None:
        """An offset, a time, or the present, in one of four forms; a hop encodes what it decoded."""
        cases = (
            (b"", ScreenOptions()),
            (b"unknown=x", ScreenOptions()),
            (b"as=svg&at=", ScreenOptions(form=Form.SVG)),
            (b"at=0&as=json", ScreenOptions(at_offset=0, form=Form.JSON)),
            (
                b"at=2026-11-20T12:00:00Z&as=ansi",
                ScreenOptions(at_nanoseconds=NOON, form=Form.ANSI),
            ),
        )
        for query, options in cases:
            self.assertEqual(parse(parse_qs(query), "vm"), options, query)
            self.assertEqual(parse(parse_qs(options.query()), "vm"), options, query)

    def test_invalid(self) -> None:
        """The message names the parameter and the values that are possible."""
        cases = (
            (b"as=png", 'as: Unsupported value: "png": supported values: "ansi", "json"'),
            (b"at=-1", "at: Invalid value"),
            (b"at=yesterday", "an RFC 3339 time such as"),
            (b"at=" + b"9" * 30, "at: Invalid value"),
        )
        for query, message in cases:
            with self.assertRaises(Invalid) as caught:
                parse(parse_qs(query), "vm")
            self.assertIn(message, caught.exception.message)

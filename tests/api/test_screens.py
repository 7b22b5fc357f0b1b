"""
Tests for :mod:`twisted_exec.api.screens`.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.screens import ScreenForm, ScreenOptions, TerminalState, parse, parse_state
from twisted_exec.api.status import Invalid

NOON = 1_795_176_000 * 10**9


class QueryTests(SynchronousTestCase):
    """The query of a screen."""

    def test_valid(self) -> None:
        """An offset, a time, or the present, in one of five forms; a hop encodes what it decoded."""
        cases = (
            (b"", ScreenOptions()),
            (b"unknown=x", ScreenOptions()),
            (b"as=svg&at=", ScreenOptions(form=ScreenForm.SVG)),
            (b"at=0&as=json", ScreenOptions(at_offset=0, form=ScreenForm.JSON)),
            (
                b"at=2026-11-20T12:00:00Z&as=ansi",
                ScreenOptions(at_nanoseconds=NOON, form=ScreenForm.ANSI),
            ),
            (b"as=state&size=80x24", ScreenOptions(form=ScreenForm.STATE, size=(80, 24))),
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
            (b"size=80", "size: Invalid value"),
            (b"size=0x24", "columns and rows, such as 80x24"),
            (b"size=80x" + b"9" * 30, "size: Invalid value"),
        )
        for query, message in cases:
            with self.assertRaises(Invalid) as caught:
                parse(parse_qs(query), "vm")
            self.assertIn(message, caught.exception.message)


class StateTests(SynchronousTestCase):
    """The answer in the form state."""

    def test_valid(self) -> None:
        """Unknown keys are ignored."""
        body = b'{"epoch":"0f","offset":7,"time":"t","columns":80,"rows":24,"output":"x"}'
        self.assertEqual(parse_state(body), TerminalState("0f", 7, 80, 24, "x"))

    def test_invalid(self) -> None:
        """An answer without a field, and one that is not an object, are refused."""
        for body in (
            b"{}",
            b"[]",
            b"",
            b'{"epoch":1,"offset":7,"columns":80,"rows":24,"output":"x"}',
            b"[" * 100_000,
        ):
            with self.assertRaises(ValueError):
                parse_state(body)

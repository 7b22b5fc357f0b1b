"""Tests for :mod:`twisted_exec.api.times`.  Go's messages come from kube-apiserver 1.33.1."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.times import nanoseconds, stamp

MOMENT = 1_795_150_800_123_456_789
LAYOUT = 'as "2006-01-02T15:04:05Z07:00"'


class MomentTests(SynchronousTestCase):
    """Tests for :func:`nanoseconds` and :func:`stamp`."""

    def test_stamp(self) -> None:
        """A stamp is in UTC and has nine fractional digits."""
        self.assertEqual(stamp(MOMENT), "2026-11-20T05:00:00.123456789Z")
        self.assertEqual(stamp(0), "1970-01-01T00:00:00.000000000Z")

    @given(st.integers(-(10**19), 10**20))
    def test_both_ways(self, time: int) -> None:
        """A written timestamp is read back unchanged."""
        self.assertEqual(nanoseconds(stamp(time)), time)

    def test_read(self) -> None:
        """Any zone and any fraction are read; digits beyond nanoseconds are dropped."""
        for text, told in (
            ("2026-11-20T05:00:00.123456789Z", MOMENT),
            ("2026-11-20T06:30:00,1234567891+01:30", MOMENT),
            ("2026-11-19T23:00:00.123456789-06:00", MOMENT),
            ("2026-11-20T5:00:00.123456789Z", MOMENT),
            ("1970-01-01T00:00:00Z", 0),
        ):
            self.assertEqual(nanoseconds(text), told, text)

    def test_no_time(self) -> None:
        """A text that is not a timestamp is refused with Go's message."""
        for text, told in (
            ("20", f'{LAYOUT}: cannot parse "20" as "2006"'),
            ("2026", f'{LAYOUT}: cannot parse "" as "-"'),
            ("2026-11-20 05:00:00Z", f'{LAYOUT}: cannot parse " 05:00:00Z" as "T"'),
            ("2026-11-20T05:00:00", f'{LAYOUT}: cannot parse "" as "Z07:00"'),
            ("2026-11-20T05:00:00.Z", f'{LAYOUT}: cannot parse ".Z" as "Z07:00"'),
        ):
            with self.assertRaises(ValueError) as caught:
                nanoseconds(text)
            self.assertEqual(str(caught.exception), f'parsing time "{text}" {told}')
        for text, told in (
            ("2026-13-20T05:00:00Z", "month out of range"),
            ("2026-11-31T05:00:00Z", "day out of range"),
            ("2026-11-20T25:00:00Z", "hour out of range"),
            ("2026-11-20T05:61:00Z", "minute out of range"),
            ("2026-11-20T05:00:61Z", "second out of range"),
            ("2026-11-20T05:00:00+99:00", "time zone offset hour out of range"),
            ("2026-11-20T05:00:00Zx", 'extra text: "x"'),
        ):
            with self.assertRaises(ValueError) as caught:
                nanoseconds(text)
            self.assertEqual(str(caught.exception), f'parsing time "{text}": {told}')

    def test_other_ages(self) -> None:
        """Years beyond Python's calendar are out of range."""
        for text in (
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
        ):
            with self.assertRaises(ValueError) as caught:
                nanoseconds(text)
            self.assertIn("year out of range", str(caught.exception))

    @given(st.text(max_size=40))
    def test_anything(self, text: str) -> None:
        """Any text is either a timestamp or a ValueError with a one-line message."""
        try:
            nanoseconds(text)
        except ValueError as problem:
            self.assertEqual(len(str(problem).splitlines()), 1)

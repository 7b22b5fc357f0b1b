"""
Tests for :mod:`twisted_exec.cli.times`.
"""

from __future__ import annotations

import argparse
import os
import time

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.times import duration, since_time


def _set_zone(name: str | None) -> None:
    if name is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = name
    time.tzset()


class SinceTests(SynchronousTestCase):
    """Times, and durations before now."""

    def test_without_zone(self) -> None:
        """A time without a zone is one of this host; a date is its midnight."""
        self.addCleanup(_set_zone, os.environ.get("TZ"))
        _set_zone("UTC-2")
        for text, same in (
            ("2026-11-24", "2026-11-23T22:00:00Z"),
            ("2026-11-24T10:30", "2026-11-24T08:30:00Z"),
            ("2026-11-24 10:30:05", "2026-11-24T08:30:05Z"),
            ("2026-11-24 10:30+01:00", "2026-11-24T09:30:00Z"),
        ):
            self.assertEqual(since_time(text), since_time(same))
        for text in ("2026-13-01", "2026-11-24T25:00"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "or 2026-11-20 08:00 here"):
                since_time(text)

    def test_neither(self) -> None:
        """The message shows a time and a duration."""
        for text in ("yesterday", "", "-5m", "20:18", "5x"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "no time .* no duration such"):
                since_time(text)


class DurationTests(SynchronousTestCase):
    """Tests for :func:`duration`."""

    def test_good(self) -> None:
        """Durations are written as in Go; a bare number is seconds."""
        for text, seconds in (
            ("7", 7.0),
            ("5s", 5.0),
            ("1m30s", 90.0),
            ("1.5h", 5400.0),
            ("500ms", 0.5),
            ("0", None),
            ("0s", None),
        ):
            self.assertEqual(duration(text), seconds)

    def test_bad(self) -> None:
        """Any other text is refused."""
        for text in ("", "-1", "-1s", "soon", "1d", "s", "5 s", "²", "1e9h", "99999h"):
            self.assertRaises(argparse.ArgumentTypeError, duration, text)

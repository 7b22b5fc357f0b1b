"""
Tests for :mod:`twisted_exec.api.times`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import times


class TimesTests(SynchronousTestCase):
    """Timestamps and ages."""

    def test_both_ways(self) -> None:
        """A written timestamp is read back as whole seconds."""
        self.assertEqual(times.timestamp(1_700_000_000.9), "2023-11-14T22:13:20Z")
        self.assertEqual(times.seconds("2023-11-14T22:13:20Z"), 1_700_000_000)

    def test_ages(self) -> None:
        """Ages are written as in kubectl."""
        minute, hour, day = 60, 3600, 86400
        for elapsed, told in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (5 * minute + 3, "5m3s"),
            (10 * minute, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 5 * minute, "7h5m"),
            (47 * hour, "47h"),
            (48 * hour, "2d"),
            (7 * day + 3 * hour, "7d3h"),
            (100 * day, "100d"),
            (800 * day, "2y70d"),
            (9 * 365 * day, "9y"),
        ]:
            self.assertEqual(times.human(elapsed), told)

    def test_unknown(self) -> None:
        """An unreadable timestamp has the age ``<unknown>``."""
        for text in [None, "", "yesterday", "2023-11-14T22:13:20"]:
            self.assertEqual(times.age(text, 0), "<unknown>")

    def test_moments(self) -> None:
        """Only RFC 3339 timestamps are accepted."""
        for good in ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000001+01:00"):
            self.assertTrue(times.is_moment(good), good)
        for bad in (
            "",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-11-14 22:13:20Z",
            "2023-13-14T22:13:20Z",
            "20231114T221320Z",
            "2023-11-14T22:13:20Z\n",
        ):
            self.assertFalse(times.is_moment(bad), bad)

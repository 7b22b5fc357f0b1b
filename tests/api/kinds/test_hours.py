"""
Tests for :mod:`twisted_exec.api.kinds.hours`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds.hours import DAYS, Hours, hours_problems, parse_hours, time_zone

BERLIN = "Europe/Berlin"
OFFICE = [{"days": ["Mon", "Tue", "Wed", "Thu", "Fri"], "from": "08:00", "to": "18:00"}]


def at(text: str, zone: str = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


class HoursTests(SynchronousTestCase):
    """When consoles may be used."""

    def hours(self, windows: Any, zone: str = BERLIN) -> Hours:
        self.assertEqual(list(hours_problems(windows, "hours")), [])
        return parse_hours(windows, zone)

    def test_office(self) -> None:
        """Office hours are open on working days, and say when they end and begin."""
        office = self.hours(OFFICE)
        friday = at("2026-11-20T17:59")
        self.assertEqual(office.closes(friday), at("2026-11-20T18:00"))
        closed = at("2026-11-20T18:00")
        self.assertIs(office.closes(closed), None)
        self.assertEqual(office.opens(closed), at("2026-11-23T08:00"))
        self.assertEqual(office.text(office.opens(closed)), "Mon 2026-11-23 08:00 Europe/Berlin")

    def test_night(self) -> None:
        """Hours may end on the next day, and belong to the day on which they begin."""
        night = self.hours([{"days": ["Sun"], "from": "22:00", "to": "02:00"}])
        self.assertEqual(night.closes(at("2026-11-23T01:00")), at("2026-11-23T02:00"))
        self.assertIs(night.closes(at("2026-11-22T01:00")), None)
        self.assertEqual(night.opens(at("2026-11-22T01:00")), at("2026-11-22T22:00"))

    def test_adjacent(self) -> None:
        """Hours that meet or overlap are one span; hours that cover the week never end."""
        halves = self.hours(
            [{"from": "00:00", "to": "12:00"}, {"days": ["Sat"], "from": "11:00", "to": "24:00"}]
        )
        self.assertEqual(halves.closes(at("2026-11-21T01:00")), at("2026-11-22T12:00"))
        whole = self.hours([{"from": "00:00", "to": "24:00"}])
        self.assertEqual(whole.closes(at("2026-11-21T01:00")), float("inf"))

    def test_changing_clocks(self) -> None:
        """Days on which the clocks change are shorter and longer, and nothing fails."""
        night = self.hours([{"from": "01:00", "to": "02:30"}])
        # In spring 02:30 is skipped and read with the winter's offset; in autumn the first counts.
        self.assertEqual(night.closes(at("2026-03-29T01:30")), at("2026-03-29T03:30"))
        self.assertEqual(night.closes(at("2026-10-25T01:30")), at("2026-10-25T02:30"))
        self.assertIs(night.closes(at("2026-10-25T02:30", fold=1)), None)

    def test_skipped(self) -> None:
        """Hours that the clocks skip begin a week later."""
        hours = self.hours([{"days": ["Sun"], "from": "02:30", "to": "03:15"}])
        self.assertEqual(hours.opens(at("2026-03-22T12:00")), at("2026-04-05T02:30"))

    @given(
        st.lists(
            st.fixed_dictionaries(
                {
                    "days": st.lists(st.sampled_from(DAYS), unique=True),
                    "from": st.integers(0, 1439),
                    "to": st.integers(0, 1440),
                }
            ).filter(lambda each: each["from"] != each["to"]),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from(["UTC", BERLIN, "America/St_Johns", "Australia/Lord_Howe"]),
        st.integers(1_767_225_600, 1_798_761_600),
    )
    def test_any(self, drafts: list[dict[str, Any]], zone: str, now: int) -> None:
        """Hours are open exactly until they close, and closed exactly until they open."""
        windows = [
            {**each, **{key: f"{each[key] // 60:02}:{each[key] % 60:02}" for key in ("from", "to")}}
            for each in drafts
        ]
        hours = self.hours(windows, zone)
        closes = hours.closes(now)
        if closes is None:
            opens = hours.opens(now)
            self.assertIsNotNone(hours.closes(opens))
            self.assertIs(hours.closes(opens - 1), None)
        elif closes != float("inf"):
            self.assertIs(hours.closes(closes), None)
            self.assertIsNotNone(hours.closes(closes - 1))

    def test_problems(self) -> None:
        """A time that is none, and hours without any time, are refused."""
        for first, last, message in (
            ("8:00", "18:00", 'Invalid value: "8:00": must be a time such as 08:30'),
            ("08:00", "24:01", 'Invalid value: "24:01": must be a time such as 08:30'),
            ("24:00", "08:00", 'Invalid value: "24:00": must be before 24:00'),
            (
                "08:00",
                "08:00",
                'Invalid value: "08:00": must not equal from: a whole day is 00:00 to 24:00',
            ),
        ):
            found = [
                each["message"] for each in hours_problems([{"from": first, "to": last}], "hours")
            ]
            self.assertEqual(found, [message])

    def test_zones(self) -> None:
        """Only names of time zones are accepted, and no paths."""
        self.assertEqual(str(time_zone("UTC")), "UTC")
        for name in ("Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "", "a\0b"):
            with self.assertRaises(ValueError) as caught:
                time_zone(name)
            self.assertIn("IANA name", str(caught.exception))

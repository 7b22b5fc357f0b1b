"""
Hours of console policies: times of the week in a time zone.

A time that the clocks skip is read as if they had not changed yet. If a time occurs twice, the
first counts, as in :mod:`zoneinfo`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MOST_WINDOWS = 32

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00", re.ASCII)
_DAY_MINUTES = 24 * 60
_WEEK_SECONDS = 7 * 86_400
_HORIZON_DAYS = 16
"""Every window begins again within a week, or within two if the clocks skip it once."""


@dataclass(frozen=True)
class Window:
    """
    One span of time on some days of each week.

    :param days: 0 is Monday.
    :param first: minute of the day at which it begins.
    :param last: minute at which it ends; not after ``first`` if it ends on the next day.
    """

    days: frozenset[int]
    first: int
    last: int

    def on(self, day: date, zone: tzinfo) -> tuple[float, float] | None:
        """Return the beginning and the end on a day (seconds since the epoch)."""
        if day.weekday() not in self.days:
            return None
        ends_tomorrow = self.last <= self.first
        first = _moment(day, self.first, zone)
        last = _moment(day + timedelta(days=ends_tomorrow), self.last, zone)
        return (first, last) if first < last else None


class Hours:
    """The hours of one policy."""

    def __init__(self, windows: Sequence[Window], zone: tzinfo) -> None:
        self._windows, self._zone = tuple(windows), zone
        self._cache = (0.0, 0.0, False)
        """Beginning and end of the present state of the hours, and whether they are open."""

    def closes(self, now: float) -> float | None:
        """
        Return when the hours end.

        :return: ``None`` if ``now`` is outside the hours; infinity if they never end.
        """
        until, is_open = self._now(now)
        if not is_open:
            return None
        return until if until < now + _WEEK_SECONDS else float("inf")

    def opens(self, now: float) -> float:
        """Return when hours begin after ``now``, which is outside them."""
        return self._now(now)[0]

    def _now(self, now: float) -> tuple[float, bool]:
        since, until, is_open = self._cache
        if not since <= now < until or (is_open and until >= now + _WEEK_SECONDS):
            until, is_open = self._evaluated(now)
            self._cache = now, until, is_open
        return until, is_open

    def _evaluated(self, now: float) -> tuple[float, bool]:
        end, spans = now, self._spans(now)
        for first, last in spans:
            if first <= end < last:
                end = last
        if end > now:
            return end, True
        return min((first for first, _ in spans if first > now), default=float("inf")), False

    def text(self, moment: float) -> str:
        """Return a moment in the time zone of the hours, for messages."""
        return f"{datetime.fromtimestamp(moment, self._zone):%a %Y-%m-%d %H:%M} {self._zone}"

    def _spans(self, now: float) -> list[tuple[float, float]]:
        today = datetime.fromtimestamp(now, self._zone).date()
        days = [today + timedelta(days=number) for number in range(-1, _HORIZON_DAYS)]
        spans = (window.on(day, self._zone) for day in days for window in self._windows)
        return sorted(span for span in spans if span is not None)


def parse_hours(windows: Sequence[Mapping[str, Any]], zone: str) -> Hours:
    """
    Parse the hours of a valid policy.

    :raises ValueError: there is no such time zone.
    """
    return Hours(tuple(map(_window, windows)), time_zone(zone))


def time_zone(name: str) -> tzinfo:
    """
    Return a time zone by its IANA name.

    :raises ValueError: there is no such zone.
    """
    if name == "UTC":
        return UTC
    # Imported here: clients import the kinds and need no time zones.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    problem = "must be the IANA name of a time zone, such as UTC or Europe/Berlin"
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        problem = "this server has no time zones besides UTC: install the package tzdata"
    raise ValueError(problem)


def hours_problems(windows: Sequence[Mapping[str, Any]], field: str) -> Iterator[Cause]:
    """Yield the problems of ``hours``, which fit the schema."""
    for at, each in enumerate(windows):
        here = f"{field}[{at}]"
        wrong = [key for key in ("from", "to") if not _TIME.fullmatch(each[key])]
        for key in wrong:
            yield fields.invalid(f"{here}.{key}", each[key], "must be a time such as 08:30")
        if not wrong and each["from"] == "24:00":
            yield fields.invalid(f"{here}.from", each["from"], "must be before 24:00")
        elif not wrong and each["from"] == each["to"]:
            detail = "must not equal from: a whole day is 00:00 to 24:00"
            yield fields.invalid(f"{here}.to", each["to"], detail)


def _window(each: Mapping[str, Any]) -> Window:
    days = frozenset(DAYS.index(day) for day in each.get("days") or DAYS)
    return Window(days, _minute(each["from"]), _minute(each["to"]))


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def _moment(day: date, minute: int, zone: tzinfo) -> float:
    more, minute = divmod(minute, _DAY_MINUTES)
    clock = time(*divmod(minute, 60), tzinfo=zone)
    return datetime.combine(day + timedelta(days=more), clock).timestamp()

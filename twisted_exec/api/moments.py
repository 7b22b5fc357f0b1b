"""
Points in time to the nanosecond, as Go reads and writes them in RFC 3339.

Numbers are nanoseconds since the epoch.  What is refused is refused in the words of Go's
``time.Parse``: it reads its layout piece by piece, and says where it got stuck.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta

from twisted_exec.api.fields import shown

NANOSECONDS = 10**9
"""In a second."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_PIECES = tuple(
    (name, re.compile(pattern, re.ASCII))
    for name, pattern in (
        ("2006", r"(?P<year>\d{4})"),
        ("-", "-"),
        ("01", r"(?P<month>\d\d)"),
        ("-", "-"),
        ("02", r"(?P<day>\d\d)"),
        ("T", "T"),
        ("15", r"(?P<hour>\d\d?)"),
        (":", ":"),
        ("04", r"(?P<minute>\d\d)"),
        (":", ":"),
        ("05", r"(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?"),
        ("Z07:00", r"Z|(?P<sign>[+-])(?P<zone_hour>\d\d):(?P<zone_minute>\d\d)"),
    )
)
_LIMITS = {
    "year": (1, 9999, "year"),
    "month": (1, 12, "month"),
    "hour": (0, 23, "hour"),
    "minute": (0, 59, "minute"),
    "second": (0, 59, "second"),
    "zone_hour": (0, 23, "time zone offset hour"),
    "zone_minute": (0, 59, "time zone offset minute"),
}


def nanoseconds(text: str) -> int:
    """
    What a text of RFC 3339 says; finer than a nanosecond is dropped.

    :raises ValueError: it is none, or not of the years 1 to 9999.
    """
    told = f"parsing time {shown(text)}"
    found = _pieces(text, told)
    numbers = {key: int(found[key] or 0) for key in (*_LIMITS, "day")}
    for key, (least, most, word) in _LIMITS.items():
        if not least <= numbers[key] <= most:
            raise ValueError(f"{told}: {word} out of range")
    if not 1 <= numbers["day"] <= monthrange(numbers["year"], numbers["month"])[1]:
        raise ValueError(f"{told}: day out of range")
    parts = ("year", "month", "day", "hour", "minute", "second")
    local = datetime(*(numbers[key] for key in parts), tzinfo=UTC)  # type: ignore[misc,arg-type]
    zone = timedelta(hours=numbers["zone_hour"], minutes=numbers["zone_minute"])
    try:
        moment = local + zone if found["sign"] == "-" else local - zone
    except OverflowError:
        raise ValueError(f"{told}: year out of range") from None
    fraction = (found["fraction"] or "")[:9].ljust(9, "0")
    return (moment - _EPOCH) // timedelta(seconds=1) * NANOSECONDS + int(fraction)


def _pieces(text: str, told: str) -> dict[str, str | None]:
    """The parts of a text, by name."""
    found: dict[str, str | None] = {}
    rest = text
    for name, pattern in _PIECES:
        match = pattern.match(rest)
        if match is None:
            raise ValueError(
                f"{told} as {shown(_LAYOUT)}: cannot parse {shown(rest)} as {shown(name)}"
            )
        found |= match.groupdict()
        rest = rest[match.end() :]
    if rest:
        raise ValueError(f"{told}: extra text: {shown(rest)}")
    return found


def stamp(time: int) -> str:
    """
    As the kubelet writes it before a line: in UTC, always with nine digits.

    :param time: nanoseconds since the epoch, of the years 1 to 9999.
    """
    whole, rest = divmod(time, NANOSECONDS)
    told = _EPOCH + timedelta(seconds=whole)
    return f"{told.isoformat()[:19]}.{rest:09d}Z"

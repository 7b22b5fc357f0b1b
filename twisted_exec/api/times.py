"""
Times as Kubernetes writes them, and ages as ``kubectl`` shows them.

Sources: ``k8s.io/apimachinery/pkg/apis/meta/v1/time.go`` and ``pkg/util/duration/duration.go``.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta

from twisted_exec.api.fields import shown

NANOSECONDS = 10**9
"""Nanoseconds per second."""

UNKNOWN = "<unknown>"
"""The age for an invalid time."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400  # seconds
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

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def nanoseconds(text: str) -> int:
    """
    Parse an RFC 3339 time, truncated to nanoseconds.

    :raises ValueError: the text is malformed.
    """
    context = f"parsing time {shown(text)}"
    pieces = _pieces(text, context)
    numbers = {key: int(pieces[key] or 0) for key in (*_LIMITS, "day")}
    for key, (least, most, word) in _LIMITS.items():
        if not least <= numbers[key] <= most:
            raise ValueError(f"{context}: {word} out of range")
    if not 1 <= numbers["day"] <= monthrange(numbers["year"], numbers["month"])[1]:
        raise ValueError(f"{context}: day out of range")
    parts = ("year", "month", "day", "hour", "minute", "second")
    local = datetime(*(numbers[key] for key in parts), tzinfo=UTC)  # type: ignore[misc,arg-type]
    zone = timedelta(hours=numbers["zone_hour"], minutes=numbers["zone_minute"])
    try:
        moment = local + zone if pieces["sign"] == "-" else local - zone
    except OverflowError:
        raise ValueError(f"{context}: year out of range") from None
    fraction = (pieces["fraction"] or "")[:9].ljust(9, "0")
    return (moment - _EPOCH) // timedelta(seconds=1) * NANOSECONDS + int(fraction)


def _pieces(text: str, context: str) -> dict[str, str | None]:
    pieces: dict[str, str | None] = {}
    rest = text
    for name, pattern in _PIECES:
        match = pattern.match(rest)
        if match is None:
            raise ValueError(
                f"{context} as {shown(_LAYOUT)}: cannot parse {shown(rest)} as {shown(name)}"
            )
        pieces |= match.groupdict()
        rest = rest[match.end() :]
    if rest:
        raise ValueError(f"{context}: extra text: {shown(rest)}")
    return pieces


def stamp(time: int) -> str:
    """
    Format a time as the kubelet writes it before a log line.

    :param time: nanoseconds since the epoch, within the years 1 to 9999.
    """
    whole, rest = divmod(time, NANOSECONDS)
    second = _EPOCH + timedelta(seconds=whole)
    return f"{second.isoformat()[:19]}.{rest:09d}Z"


def timestamp(seconds: float) -> str:
    """
    Format a time in RFC 3339, in UTC, to the second: ``2026-11-20T05:00:00Z``.

    :param seconds: since the epoch.
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(first: float, last: float) -> str:
    """
    Return a range of time for messages: ``from 2026-11-20T05:00:00Z to 2026-11-20T05:10:00Z``.

    :param first: seconds since the epoch, as is ``last``.
    """
    return f"from {timestamp(first)} to {timestamp(last)}"


def precise_timestamp(seconds: float) -> str:
    """
    Format a time in RFC 3339, in UTC, to the microsecond: the ``MicroTime`` of Leases.

    :param seconds: since the epoch.
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(text: str) -> float:
    """
    Parse a timestamp to seconds since the epoch.

    :raises ValueError: the text is not a timestamp.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone")
    return moment.timestamp()


def is_moment(text: str) -> bool:
    """Return whether a text is an RFC 3339 time in its usual form."""
    try:
        return _RFC3339.fullmatch(text) is not None and seconds(text) is not None
    except (ValueError, OverflowError):
        return False


def age(text: str | None, now: float) -> str:
    """Return the age for the AGE column: ``5m``, ``3d4h``; ``<unknown>`` for an invalid time."""
    if not text:
        return UNKNOWN
    try:
        return human(now - seconds(text))
    except (ValueError, OverflowError):
        return UNKNOWN


def human(elapsed_seconds: float) -> str:
    """Format a duration as ``kubectl`` does: ``119s``, ``5m30s``, ``47h``."""
    whole = int(elapsed_seconds)
    minutes, hours, days = whole // _MINUTE, whole // _HOUR, whole // _DAY
    forms = (
        (0, "0s" if whole >= -1 else "<invalid>"),
        (2 * _MINUTE, f"{whole}s"),
        (10 * _MINUTE, _two(minutes, "m", whole % 60, "s")),
        (3 * _HOUR, f"{minutes}m"),
        (8 * _HOUR, _two(hours, "h", minutes % 60, "m")),
        (2 * _DAY, f"{hours}h"),
        (8 * _DAY, _two(days, "d", hours % 24, "h")),
        (2 * 365 * _DAY, f"{days}d"),
        (8 * 365 * _DAY, _two(days // 365, "y", days % 365, "d")),
    )
    return next((form for end, form in forms if whole < end), f"{days // 365}y")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"

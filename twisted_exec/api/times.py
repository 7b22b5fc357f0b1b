"""
Points in time as Kubernetes writes them, and ages as ``kubectl`` shows them.

Sources: ``k8s.io/apimachinery/pkg/apis/meta/v1/time.go`` and
``pkg/util/duration/duration.go``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """
    RFC 3339 in UTC, to the second: ``2026-11-20T05:00:00Z``.

    :param seconds: since the epoch.
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_timestamp(seconds: float) -> str:
    """
    RFC 3339 in UTC, to the microsecond, as Leases have it: Kubernetes' ``MicroTime``.

    :param seconds: since the epoch.
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(text: str) -> float:
    """
    Seconds since the epoch.

    :raises ValueError: not a timestamp.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone")
    return moment.timestamp()


_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def is_moment(text: str) -> bool:
    """Whether this is a time as RFC 3339 writes it; Python alone would take much more."""
    try:
        return _RFC3339.fullmatch(text) is not None and seconds(text) is not None
    except (ValueError, OverflowError):
        return False


def age(text: str | None, now: float) -> str:
    """How long ago, as the AGE column shows it: ``5m``, ``3d4h``; unreadable is ``<unknown>``."""
    if not text:
        return "<unknown>"
    try:
        return human(now - seconds(text))
    except (ValueError, OverflowError):
        return "<unknown>"


def human(elapsed_seconds: float) -> str:
    """A duration in its one or two most telling units."""
    whole = int(elapsed_seconds)
    minutes, hours = whole // 60, whole // 3600
    days = hours // 24
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"

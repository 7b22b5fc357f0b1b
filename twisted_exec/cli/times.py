"""Durations and times as users write them in options."""

from __future__ import annotations

import argparse
import re
import time

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d+)?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST_SECONDS = 366 * 86400
_DAYS = re.compile(r"(\d{1,5})d", re.ASCII)


def duration(text: str) -> float | None:
    """
    Return seconds for ``1m30s``, ``500ms``, ``7`` or ``0.5``; ``None`` for 0.

    :raises argparse.ArgumentTypeError: it is no duration up to a year.
    """
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _DURATION.fullmatch(text):
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
    else:
        raise argparse.ArgumentTypeError(f'"{text}" is no duration such as 30, 5s or 1m30s')
    if seconds > _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f'"{text}" is longer than a year')
    return seconds or None


def since_time(text: str) -> int:
    """
    Return nanoseconds since the epoch for a time, or for a duration before now.

    A time without a zone is one of this host, and a date is its midnight, as for journalctl.

    :raises argparse.ArgumentTypeError: it is neither.
    """
    from datetime import datetime  # not needed by consoles

    from twisted_exec.api.times import NANOSECONDS, nanoseconds

    if text[:4].isdigit() and text[4:5] == "-":
        for read in (
            nanoseconds,
            lambda each: int(datetime.fromisoformat(each).timestamp()) * NANOSECONDS,
        ):
            try:
                return read(text)
            except (OverflowError, ValueError):
                continue
        message = f'"{text}" is not a time such as 2026-11-20T08:00:00Z, or 2026-11-20 08:00 here'
        raise argparse.ArgumentTypeError(message)
    days = _DAYS.match(text)
    rest = text[days.end() :] if days else text
    if not (_NUMBER.fullmatch(rest) or _DURATION.fullmatch(rest) or (days and not rest)):
        message = f'"{text}" is no time such as 2026-11-20T08:00:00Z, and no duration such as 10m'
        raise argparse.ArgumentTypeError(message)
    seconds = (duration(rest) or 0) if rest else 0
    seconds += int(days[1]) * 86400 if days else 0
    return time.time_ns() - int(seconds * NANOSECONDS)

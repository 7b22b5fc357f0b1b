"""The level of the log."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.logger import (
    FilteringLogObserver,
    LogBeginner,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
)

LEVELS = ("debug", "info", "warn", "error")

DEFAULT_LEVEL, QUIET_LEVEL = "info", "warn"


def read_level(text: str) -> str:
    """
    Check a level of the log.

    :raises ValueError: it is no level.
    """
    if text not in LEVELS:
        raise ValueError(f"{text!r} is no level: give {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return text


def log_level(text: str) -> str:
    try:
        return read_level(text)
    except ValueError as error:
        raise ValueError(f"--log-level: {error}") from None


def limit_log(level: str, beginner: LogBeginner = globalLogBeginner) -> None:
    """Leave messages below a level out of the log, once it begins."""
    begin = partial(LogBeginner.beginLoggingTo, beginner)
    least = LogLevel.levelWithName(level)

    def limited(observers: Any, *arguments: Any, **more: Any) -> None:
        predicate = LogLevelFilterPredicate(defaultLogLevel=least)
        begin(
            [FilteringLogObserver(observer, [predicate]) for observer in observers],
            *arguments,
            **more,
        )

    beginner.beginLoggingTo = limited  # type: ignore[method-assign]

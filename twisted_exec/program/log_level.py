"""
Level of the log of a program under twistd, which has no option for it.
"""

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
DEFAULT, QUIET = "info", "warn"


def read_level(text: str) -> str:
    """
    Coerce the value of an option.

    :raises ValueError: it is no level.
    """
    if text not in LEVELS:
        raise ValueError(f"{text!r} is none of {', '.join(LEVELS)}")
    return text


def limit_log(level: str, beginner: LogBeginner = globalLogBeginner) -> None:
    """
    Leave messages below a level out of the log, once it begins.

    twistd chooses and starts the observer of the log itself, after it has read the options.

    :param level: one of :data:`LEVELS`.
    """
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

"""
What each process of the client sets up: log, reactor and garbage collector.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from twisted.logger import globalLogBeginner, textFileLogObserver

_UNCOLLECTED = 20_000
"""New containers after which garbage is collected."""


def collect_garbage() -> None:
    """Collect garbage seldom from now on, and none that the imports made."""
    # Otherwise the first collection, and the one at Python's exit, visit all of it: a quarter of the CPU time of a
    # short session.
    gc.freeze()
    gc.set_threshold(_UNCOLLECTED)
    gc.enable()


def the_reactor() -> Any:
    """Return the reactor, as ``Any``: mypy knows only parts of its interface."""
    from twisted.internet import reactor

    return reactor


def start_log() -> None:
    """Send the log with its tracebacks to the configured file, or drop it."""
    observers = []
    path = os.environ.get("TWISTED_EXEC_LOG")
    if path:
        observers.append(textFileLogObserver(open(path, "a", encoding="utf-8")))  # noqa: SIM115
    globalLogBeginner.beginLoggingTo(observers, redirectStandardIO=False, discardBuffer=True)

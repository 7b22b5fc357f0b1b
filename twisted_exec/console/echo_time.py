"""
The time from input to its echo.

:mod:`twisted_exec.program.session_metrics` has its metric.
"""

from __future__ import annotations

from typing import Protocol
from weakref import ref

from twisted.internet.interfaces import IReactorTime

LONGEST_SECONDS = 2.0
"""Longest time from input to its echo; later output is no echo."""
_PAUSE_SECONDS = 1.0
"""Least time between two measurements of a console."""


class EchoUser(Protocol):
    """A session that has typed."""

    def echoed(self, seconds: float) -> None:
        """Take note of the time until the echo of its input."""


class EchoTime:
    """Measures the time from input to the next output about once a second, for the session that typed."""

    __slots__ = ("_clock", "_typed_at", "_viewer")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        # Its input is not answered yet.  It may leave before that, and is freed by reference counts.
        self._viewer: ref[EchoUser] | None = None
        self._typed_at = -_PAUSE_SECONDS

    def typed(self, viewer: EchoUser) -> None:
        now = self._clock.seconds()
        pause = LONGEST_SECONDS if self._viewer is not None else _PAUSE_SECONDS
        if now - self._typed_at >= pause:
            self._viewer, self._typed_at = ref(viewer), now

    def printed(self) -> None:
        if self._viewer is None:
            return
        viewer, self._viewer = self._viewer(), None
        seconds = self._clock.seconds() - self._typed_at
        if viewer is not None and seconds <= LONGEST_SECONDS:
            viewer.echoed(seconds)

    def forget(self) -> None:
        self._viewer = None

"""
The time that a machine takes to answer input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from twisted.internet.interfaces import IReactorTime

if TYPE_CHECKING:
    from .viewer import Viewer

LONGEST_SECONDS = 2.0
"""Later output is no echo.  At a password prompt, for example, a machine prints nothing for what is typed."""


class Echo:
    """
    Measures the time from input to the next output, for the session that typed.

    Input that follows before the machine has answered is not measured.
    """

    __slots__ = ("_clock", "_typed_at", "_viewer")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        # Its input is not answered yet.  It may leave before that, and is freed by reference counts.
        self._viewer: ref[Viewer] | None = None
        self._typed_at = 0.0

    def typed(self, viewer: Viewer) -> None:
        """Input of a session goes to the line."""
        now = self._clock.seconds()
        if self._viewer is None or now - self._typed_at > LONGEST_SECONDS:
            self._viewer, self._typed_at = ref(viewer), now

    def printed(self) -> None:
        """The machine has printed something."""
        if self._viewer is None:
            return
        viewer, self._viewer = self._viewer(), None
        seconds = self._clock.seconds() - self._typed_at
        if viewer is not None and seconds <= LONGEST_SECONDS:
            viewer.echoed(seconds)

    def forget(self) -> None:
        """Expect no answer: the line is closed."""
        self._viewer = None

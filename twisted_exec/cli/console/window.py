"""
The user's window: its size, and the picture of a program that draws in it.

The machine's program draws for the writer's window.  In the window of an observer with another size its
output may go wrong: the user reads so, and the server draws the picture again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.console.notices import NOBODY

if TYPE_CHECKING:
    from twisted_exec.cli.console.display import Display, UserTerminal
    from twisted_exec.cli.console.pausable_timers import PausableTimers
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream
    from twisted_exec.wire.resize import TerminalSize

_RESIZED_SECONDS = 0.3
"""Pause after which a user has resized the window."""

_REFRESH_SECONDS = 0.5
"""Time behind a program's output until its picture in a window of another size is drawn again."""
_REFRESHED_SECONDS = 2.0
"""Least time between two of these pictures: the server renders each."""


class WindowedSession(Protocol):
    """The session, as its window needs it; :class:`.ConsoleSession` describes the members."""

    @property
    def facts(self) -> ConsoleStream: ...
    @property
    def is_attached(self) -> bool: ...
    @property
    def is_carried(self) -> bool: ...
    @property
    def is_observer(self) -> bool: ...
    @property
    def is_talking(self) -> bool: ...


class Window:
    """
    The window of one session.

    :param timers: those of the session; ``resized``, ``compare`` and ``refresh`` are the window's.
    """

    def __init__(
        self,
        session: WindowedSession,
        clock: IReactorTime,
        timers: PausableTimers,
        terminal: UserTerminal,
        display: Display,
    ) -> None:
        self._session, self._clock, self._timers = session, clock, timers
        self._terminal, self._display = terminal, display
        self._unequal: tuple[TerminalSize, TerminalSize] | None = None
        """The sizes of this and the writer's window that the user has read."""
        self._told = ""  # the message about them
        self._lacks_picture = False  # nobody could draw it when it was needed
        self._is_asked = False  # the server, for a screen that has not come yet
        self._refreshed_at = float("-inf")

    def resized(self) -> None:
        """Tell the machine the size, and draw an observer's picture again."""
        size = self._terminal.size()
        if self._session.is_attached and size is not None:
            self._session.facts.resize(size)
        if self._session.is_observer and self._display.covers:
            # The machine's program does not draw for an observer's window.
            self._timers.after("resized", _RESIZED_SECONDS, self._draw_resized, steady=True)

    def _draw_resized(self) -> None:
        if self._display.covers and not self._session.is_talking:
            self._display.uncover()
            self._ask(is_picture=False)
            self._unequal = None
            self.compare()
            self._timers.cancel("refresh")

    def redraw(self, *, is_picture: bool = False) -> None:
        """
        Have the screen drawn again by the server, and by the machine's program, which does so when
        the size changes; once more when the server answers again, if it does not do so now.

        :param is_picture: see :attr:`.UserTerminal.redraw`.
        """
        is_silent = (self._session.facts.overdue_seconds or 0) >= 1
        self._lacks_picture = is_silent or not self._session.is_carried
        self._ask(is_picture=is_picture)
        size = self._terminal.size()
        if self._session.is_attached and size is not None:
            self._session.facts.resize(replace(size, rows=max(1, size.rows - 1)))
            self._session.facts.resize(size)

    def _ask(self, *, is_picture: bool) -> None:
        self._is_asked = self._terminal.redraw(is_picture)

    def shown(self) -> None:
        """Take note that the server has drawn the screen."""
        self._is_asked = False
        self.compare()

    def answered(self) -> None:
        """Have the screen drawn again that the server could not draw earlier."""
        if self._lacks_picture and not self._session.is_talking:
            self._lacks_picture = False
            if self._display.is_drawn:
                self.redraw(is_picture=True)

    @property
    def _is_full_screen(self) -> bool:
        return self._terminal.shows_more and self._terminal.full_screen()

    def compare(self, *, has_drawn: bool = False, is_drawn: bool = False) -> None:
        """
        Tell an observer, once for each pair of sizes, if a program draws for another window.

        :param has_drawn: a full-screen program has drawn, so that the server draws its picture again.
        :param is_drawn: a program draws on the usual screen.
        """
        attendance = self._session.facts.attendance
        drawn = attendance.size if attendance is not None else None
        if drawn is None or not (self._session.is_observer and self._terminal.shows_more):
            return
        own = self._terminal.size() or drawn
        if self._unequal not in (None, (own, drawn)):
            self._unequal = None
            if self._display.retract(self._told) and self._is_full_screen:
                self._ask(is_picture=True)
        if own == drawn:
            return
        is_new = self._unequal != (own, drawn)
        is_smaller = own.columns < drawn.columns or own.rows < drawn.rows
        if not self._is_full_screen and not (is_drawn and is_smaller):
            if is_new and is_smaller and "compare" not in self._timers:
                # Not for each output: the question looks at much of it.
                self._timers.after("compare", _REFRESH_SECONDS, self._compare_drawn)
            return
        if self._is_full_screen and (is_new or has_drawn) and "refresh" not in self._timers:
            pause = self._refreshed_at + _REFRESHED_SECONDS - self._clock.seconds()
            self._timers.after("refresh", max(_REFRESH_SECONDS, pause), self._refresh)
        if is_new:
            self._unequal = own, drawn
            self._told = f"[twisted-exec: {self._difference(own, drawn)}]"
            self._display.inform(self._told)

    def _difference(self, own: TerminalSize, drawn: TerminalSize) -> str:
        writer = self._display.notices.writer
        whose = "the writer's" if writer in ("", NOBODY) else f"{writer}'s"
        size = f"{drawn.columns}x{drawn.rows}"
        what = f"this picture may be wrong at times; make your window {size}"
        if own.columns < drawn.columns or own.rows < drawn.rows:
            what = "this picture is incomplete; enlarge your window"
        return f"{whose} window is {size} and yours {own.columns}x{own.rows}: {what}"

    def _compare_drawn(self) -> None:
        if self._display.is_drawn:
            self.compare(is_drawn=True)

    def _refresh(self) -> None:
        """
        Draw the picture of a program for another window, where its own output may go wrong, unless
        the server did not draw the last one: the output waits for each.
        """
        self._refreshed_at = self._clock.seconds()
        session = self._session
        if self._is_asked or session.is_talking:
            return
        if self._is_full_screen and session.is_observer:
            self._ask(is_picture=True)

    def status(self) -> str:
        """Return how the window differs from the writer's while a program draws in it, or an empty string."""
        if self._unequal is None or not (self._session.is_observer and self._display.is_drawn):
            return ""
        return self._difference(*self._unequal)

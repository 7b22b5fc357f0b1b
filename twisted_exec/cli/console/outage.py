"""
The lines of a terminal about its connection: it is lost, or the server does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.cli.messages import age, duration
from twisted_exec.streaming.remotecommand.client import LOST
from twisted_exec.wire.typed_keys import keys_counted

SILENT_SECONDS = 0.5
"""A loss that ends sooner is not worth a line."""
NO_ANSWER_SECONDS = 4.0
"""A ping that waits longer is worth a line."""


class Lines(Protocol):
    """The display, as these lines need it."""

    def begin_count(self, lines: str) -> None: ...
    def count(self, lines: str) -> None: ...
    def end_count(self, line: str) -> None: ...


class Outage:
    """
    One loss of the connection, which begins now: it tells the user, unless the loss ends soon.

    :param how_to_leave: such as ``~. leaves``; may be empty.
    :param waiting_keys: returns the number of keys that wait for the connection.
    :param drops_keys: returns whether they are dropped when it is back, because it is too late.
    """

    def __init__(
        self,
        clock: IReactorTime,
        reason: str,
        lines: Lines,
        how_to_leave: str,
        waiting_keys: Callable[[], int],
        drops_keys: Callable[[], bool],
    ) -> None:
        self._clock, self._reason, self._lines = clock, reason, lines
        self._waiting_keys, self._drops_keys = waiting_keys, drops_keys
        self._how_to_leave = how_to_leave
        self._is_told = False
        self._begun = clock.seconds()
        self._timer = clock.callLater(SILENT_SECONDS, self._begin_line)

    def status(self, hindrance: str) -> str:
        """
        Return the line for the status.

        :param hindrance: why the connection could not be made again so far; may be empty.
        """
        seconds = self._clock.seconds() - self._begun
        why = f" ({self._reason})" if self._reason != LOST else ""
        return (
            f"connection lost {age(seconds)} ago{why}; reconnecting{hindrance and f': {hindrance}'}"
        )

    def resumed(self, seconds: float, missed_bytes: int) -> None:
        """
        Tell the user about the end, if the user knows of the loss.

        :param missed_bytes: output of the machine meanwhile, which follows.
        """
        if not self._is_told:
            return
        line = f"reconnected after {duration(seconds)}"
        if missed_bytes == 1:
            line += "; 1 byte of output follows"
        elif missed_bytes:
            line += f"; {missed_bytes} bytes of output follow"
        self._lines.end_count(line)

    def stop(self) -> None:
        """Print nothing more of its own accord."""
        if self._timer.active():
            self._timer.cancel()

    def _begin_line(self) -> None:
        self._is_told = True
        leaves = f"; {self._how_to_leave}" if self._how_to_leave else ""
        lost = "connection lost" if self._reason == LOST else self._reason
        self._heading = f"{lost}{leaves}"
        self._lines.begin_count(f"{self._heading}\nreconnecting")
        self._timer = self._clock.callLater(1, self._go_on)

    def _go_on(self) -> None:
        line = f"reconnecting, {self._clock.seconds() - self._begun:.0f} s"
        if count := self._waiting_keys():
            fate = "will not be sent" if self._drops_keys() else "to send"
            line += f"; {keys_counted(count)} {fate}"
        self._lines.count(f"{self._heading}\n{line}")
        self._timer = self._clock.callLater(1, self._go_on)


class Silence:
    """
    Tells the user about a server that does not answer while the connection seems to be up.

    :param how_to_leave: such as ``~. leaves``; may be empty.
    :ivar is_told: the user knows that the server does not answer.
    """

    def __init__(self, lines: Lines, how_to_leave: str) -> None:
        self._lines, self._how_to_leave = lines, how_to_leave
        self._was_paused = False  # at the last look
        self.is_told = False

    def look(self, overdue_seconds: float | None) -> None:
        """
        Tell the user what has changed.

        :param overdue_seconds: see :attr:`.Pings.overdue_seconds`.
        """
        was_paused, self._was_paused = self._was_paused, overdue_seconds is None
        if overdue_seconds is None or was_paused:
            return  # answers that came meanwhile are read until the next look
        if overdue_seconds >= NO_ANSWER_SECONDS:
            self._tell(f"no answer for {overdue_seconds:.0f} s")
        elif self.is_told and not overdue_seconds:
            self.is_told = False
            self._lines.end_count("the server answers again")

    def _tell(self, line: str) -> None:
        leaves = f"; {self._how_to_leave}" if self._how_to_leave else ""
        lines = f"the server does not answer{leaves}\n{line}"
        if self.is_told:
            self._lines.count(lines)
        else:
            self._lines.begin_count(lines)
            self.is_told = True

    def paused(self) -> None:
        """Take note that the output was paused since the last look."""
        self._was_paused = True

    def lost(self) -> None:
        """Take note that the connection is lost."""
        self.is_told = False

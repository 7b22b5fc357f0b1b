"""
The sessions at a console, the writer and the recordings, for users whose clients show them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.names import display_name
from twisted_exec.wire.marks import Attendance, OpenRecording

from .floor import Floor

_DELAY_SECONDS = 0.5
"""Many sessions may open or end at once."""


class Present(Protocol):
    """One session at a console."""

    @property
    def is_ending(self) -> bool:
        """True if the session has ended or is about to."""

    @property
    def reads_marks(self) -> bool:
        """True if the session's stream has marks."""

    def tell_attendance(self, attendance: Attendance) -> None:
        """Send the mark."""


class Presence:
    """
    Tells the sessions of one console about changes of their number, of the writer, and of the recordings.

    :param sessions: the open sessions, which change.
    :param recordings: returns those that go on.
    """

    def __init__(
        self,
        clock: IReactorTime,
        floor: Floor,
        sessions: Sequence[Present],
        recordings: Callable[[], tuple[OpenRecording, ...]],
    ) -> None:
        self._clock, self._floor, self._sessions = clock, floor, sessions
        self._recordings = recordings
        self._told_recordings: tuple[OpenRecording, ...] = ()
        self._writer, self._since = "", 0.0
        self._call: IDelayedCall | None = None

    @property
    def attendance(self) -> Attendance:
        """The present state."""
        viewers = sum(not each.is_ending for each in self._sessions)
        seconds = int(self._clock.seconds() - self._since) if self._writer else 0
        return Attendance(viewers, self._writer, seconds, self._recordings())

    def changed(self) -> None:
        """A session has come, left or changed its role."""
        writers = self._floor.writers
        writer = display_name(writers[0].user) if writers else ""
        if writer != self._writer:
            self._writer, self._since = writer, self._clock.seconds()
        if not self._sessions:
            self.stop()
        elif self._call is None and any(each.reads_marks for each in self._sessions):
            self._call = self._clock.callLater(_DELAY_SECONDS, self._tell)

    def recordings_changed(self) -> None:
        """A recording has begun or ended, at this console or another one."""
        if self._recordings() != self._told_recordings:
            self.changed()

    def stop(self) -> None:
        """Keep the last changes from the sessions.  Repeated calls do nothing."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _tell(self) -> None:
        self._call = None
        attendance = self.attendance
        self._told_recordings = attendance.recordings or ()
        for each in list(self._sessions):
            each.tell_attendance(attendance)

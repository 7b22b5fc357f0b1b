"""
News for the sessions of one console: their number, the writer, recordings, and the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.display import display_name
from twisted_exec.console.floor import Floor
from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import Role, TerminalSize
from twisted_exec.wire.marks import Attendance, OpenRecording
from twisted_exec.wire.resize import MESSAGE_CHARACTERS

_DELAY_SECONDS = 0.5


class Presence:
    """
    Tells the sessions of one console about changes of their number, of the writer, of the
    recordings, and of the size.

    :param missing_people: returns the text of :func:`.required_people.missing_people`.
    """

    def __init__(
        self,
        clock: IReactorTime,
        floor: Floor,
        viewers: Sequence[Viewer],
        recordings: Callable[[], tuple[OpenRecording, ...]],
        has_break: Callable[[], bool],
        missing_people: Callable[[], str],
        size: Callable[[], TerminalSize | None],
    ) -> None:
        self._clock, self._floor, self._viewers = clock, floor, viewers
        self._recordings, self._has_break = recordings, has_break
        self._missing_people, self._size = missing_people, size
        self._told_recordings: tuple[OpenRecording, ...] = ()
        self._writer, self._since = "", 0.0
        self._call: IDelayedCall | None = None
        self._sized_at = -_DELAY_SECONDS
        self._told_size: TerminalSize | None = None

    @property
    def attendance(self) -> Attendance:
        present = [each for each in self._viewers if not each.is_ending]
        seconds = int(self._clock.seconds() - self._since) if self._writer else 0
        return Attendance(
            len(present),
            self._writer,
            seconds,
            self._recordings(),
            self._has_break(),
            self._missing_people(),
            sum(each.is_away for each in present),
            MESSAGE_CHARACTERS,
            self._size(),
        )

    def changed(self) -> None:
        writers = self._floor.writers
        writer = display_name(writers[0].user) if writers else ""
        if writer != self._writer:
            self._writer, self._since = writer, self._clock.seconds()
        if not self._viewers:
            self.stop()
        elif self._call is None and any(each.reads_marks for each in self._viewers):
            self._call = self._clock.callLater(_DELAY_SECONDS, self._tell)

    def joined(self, viewer: Viewer) -> None:
        """Tell an observer at once for which size a program draws."""
        if viewer.role is Role.OBSERVER and (size := self._size()) is not None:
            self._told_size = size
            viewer.tell_attendance(self.attendance)

    def size_changed(self) -> None:
        """
        Tell a new size behind the notices of the present turn, such as who has taken over, and before what a program
        draws for it. The sizes of a window that is being dragged are told together, and so are those of :meth:`_may_redraw`.
        """
        self.changed()
        now = self._clock.seconds()
        if self._call is None or self._may_redraw():
            return
        if now - self._sized_at >= _DELAY_SECONDS:
            self._sized_at = now
            self._call.reset(0)

    def _may_redraw(self) -> bool:
        """
        Return whether the size may be one of the two by which a client only makes a program draw its screen again:
        ``kubectl console`` sends one row less and then its size, ``kubectl attach`` one row and column more.
        """
        size, told = self._size(), self._told_size
        if size is None or told is None:
            return False
        return abs(size.columns - told.columns) <= 1 and abs(size.rows - told.rows) <= 1

    def recordings_changed(self) -> None:
        """Tell the viewers if the recordings of this console have changed."""
        if self._recordings() != self._told_recordings:
            self.changed()

    def stop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _tell(self) -> None:
        self._call = None
        attendance = self.attendance
        self._told_recordings = attendance.recordings or ()
        self._told_size = attendance.size
        for each in list(self._viewers):
            each.tell_attendance(attendance)

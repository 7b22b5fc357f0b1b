"""
The recorder of one machine's console: what sessions require, and the input that recordings need.
"""

from __future__ import annotations

from collections.abc import Callable

from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.interfaces import IConsoleRecorder
from twisted_exec.journal.journal import Journal
from twisted_exec.recording.echo import EchoedInput
from twisted_exec.runtimes.recordings.service import ConsoleRecordings
from twisted_exec.wire.marks import OpenRecording
from twisted_exec.wire.session_terms import parse_recording

_PIECE_BYTES = 3072
NOT_RECORDED = "this runtime cannot record consoles"


@implementer(IConsoleRecorder)
class MachineRecorder:
    """
    Records one machine for sessions and for API objects.

    :param recordings: returns the recordings of the runtime; ``None`` before its start.
    """

    def __init__(
        self,
        key: str,
        journal: Journal,
        recordings: Callable[[], ConsoleRecordings | None],
        seconds: Callable[[], float],
    ) -> None:
        self.key, self._journal = key, journal
        self._recordings, self._seconds = recordings, seconds
        self._echo: EchoedInput | None = None
        self._offset = 0
        self._has_all = False
        self.recordings: tuple[OpenRecording, ...] = ()

    def require(self, recording: str) -> None:
        recordings = self._recordings()
        if recordings is None:
            raise ServiceUnavailable(NOT_RECORDED)
        recordings.require(*parse_recording(recording), self.key)

    def problem(self, recording: str) -> str:
        recordings = self._recordings()
        if recordings is None:
            return NOT_RECORDED
        return recordings.problem(*parse_recording(recording), self.key)

    def typed(self, session: str, data: bytes) -> bool:
        is_written = True
        if self._has_all:
            for at in range(0, len(data), _PIECE_BYTES):
                piece = data[at : at + _PIECE_BYTES]
                is_written &= self._journal.typed(session, piece, echoed=False)
        if self._echo is not None and is_written:
            if not self._echo.is_expected:
                self._offset = self._journal.end
            self._echo.typed(session, data, self._seconds())
        return is_written

    def follow(self) -> None:
        """Follow a change of the recordings, which may need other input."""
        recordings = self._recordings()
        present = [] if recordings is None else recordings.open_of(self.key)
        # Recordings of the same kind for the same user are one for the viewers.
        self.recordings = tuple(dict.fromkeys(each.for_viewers for each in present))
        needed = {each.facts.input for each in present}
        self._has_all = "all" in needed
        if ("masked" in needed) is (self._echo is not None):
            return
        if self._echo is None:
            self._echo = EchoedInput()
            self._journal.watch(self._printed)
        else:
            self._echo = None
            self._journal.unwatch(self._printed)

    def _printed(self) -> None:
        echo, journal = self._echo, self._journal
        if echo is None or not echo.is_expected:
            return
        size = journal.end - self._offset
        data = journal.read(self._offset, size) if self._offset >= journal.start else b""
        self._offset = journal.end
        if len(data) != size:
            echo.forget()
            return
        for session, typed in echo.printed(data, self._seconds()):
            journal.typed(session, typed, echoed=True)

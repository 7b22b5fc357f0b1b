"""
Closed recordings in a store instead of the journals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.consolerecordings import CLOSED
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.tasks import as_deferred
from twisted_exec.program.turns import ShortTurns
from twisted_exec.recording.stores.interfaces import ReadText, Stored, reader
from twisted_exec.recording.stores.uploads import Uploads
from twisted_exec.runtimes.recordings.recording import Recording, RecordingFacts, changed

AGAIN_SECONDS = 60.0
"""Time until another attempt if the location could not be noted."""
_MESSAGE_CHARACTERS = 1000

MakeUploads = Callable[[], Uploads | None]


class Storing:
    """
    Moves the closed recordings of a runtime to a store, reads them there and deletes them.

    :param content: returns the text of a recording from the journal.
    """

    _log = Logger()

    def __init__(
        self,
        uploads: Uploads | None,
        recordings: Mapping[str, Recording],
        content: Callable[[str], Iterator[bytes]],
        save: Callable[[Recording, RecordingFacts], None],
        report: Callable[[Recording], None],
        reactor: Any,
    ) -> None:
        self._uploads, self._recordings = uploads, recordings
        self._content, self._save, self._report = content, save, report
        self._reactor = reactor
        if uploads is not None:
            uploads.failing = self._failing

    def stop(self) -> None:
        """Stop; uploads go on after the next start."""
        if self._uploads is not None:
            self._uploads.stop()

    def closed(self, uid: str) -> None:
        recording = self._recordings.get(uid)
        if self._uploads is None or recording is None or not _is_to_store(recording):
            return
        read = TextReader(partial(self._content, uid), self._reactor)
        self._uploads.store(uid, read).addCallback(self._stored, self._uploads, recording)

    def _stored(self, stored: Stored, uploads: Uploads, recording: Recording) -> None:
        uid = recording.uid
        if not _is_to_store(recording) or uploads.is_stopped:
            return
        location = uploads.backend.location(uid)
        recording.waiting = ""
        try:
            self._save(recording, changed(recording.facts, location=location))
        except OSError as error:
            self._log.warn("recording {uid}: {why}", uid=uid, why=error.strerror)
            self._reactor.callLater(AGAIN_SECONDS, self.closed, uid)
        else:
            self._log.info("recording {uid} is at {location}", uid=uid, location=location)

    def _failing(self, uid: str, why: str) -> None:
        recording = self._recordings.get(uid)
        waiting = f"it is not stored yet: {why}"[:_MESSAGE_CHARACTERS]
        if recording is not None and recording.waiting != waiting:
            recording.waiting = waiting
            self._report(recording)

    def delete(self, recording: Recording) -> Deferred[Any]:
        """
        Delete a recording in the store, if the store may have it.

        :raises OSError: the deletion cannot be noted.
        """
        if self._uploads is None or recording.state != CLOSED:
            return succeed(None)
        if not recording.facts.is_released:
            self._save(recording, changed(recording.facts, is_released=True))
        return self._uploads.delete(recording.uid)

    def text(self, facts: RecordingFacts) -> ReadText | None:
        """
        Return a function that reads a recording in the store; ``None`` if the store does not have
        it.

        :raises ServiceUnavailable: the runtime has no store any more.
        """
        if not facts.location:
            return None
        if self._uploads is None:
            raise ServiceUnavailable(
                f"the recording is at {facts.location}: start the runtime with --recording-store"
            )
        return reader(self._uploads.backend, facts.uid)


def _is_to_store(recording: Recording) -> bool:
    facts = recording.facts
    return recording.state == CLOSED and not facts.location and not facts.is_released


class TextReader:
    """Reads a text that is rendered on demand; a read of an earlier offset renders it anew."""

    def __init__(self, render: Callable[[], Iterator[bytes]], clock: IReactorTime) -> None:
        self._render, self._clock = render, clock
        self._pieces: Iterator[bytes] | None = None
        self._offset = 0  # of the beginning of the buffer
        self._buffer = bytearray()

    @as_deferred
    async def __call__(self, offset: int, limit: int) -> bytes:
        if self._pieces is None or offset < self._offset:
            self._pieces, self._offset = self._render(), 0
            self._buffer.clear()
        turns = ShortTurns(self._clock)
        while self._offset + len(self._buffer) < offset + limit:
            try:
                piece = next(self._pieces, None)
            except BaseException:
                self._pieces = None  # it has ended, and would seem to be complete
                raise
            if piece is None:
                break
            self._buffer += piece
            self._drop(offset)
            await turns.breathe()
        self._drop(offset)
        return bytes(self._buffer[:limit])

    def _drop(self, offset: int) -> None:
        count = min(max(0, offset - self._offset), len(self._buffer))
        del self._buffer[:count]
        self._offset += count

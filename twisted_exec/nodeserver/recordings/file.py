"""The file of a recording, whose disk may not answer."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import cast

from twisted.python.failure import Failure

from twisted_exec.program.disk_thread import Files, Unanswered

WAITING_BYTES = 1 << 20
"""Most bytes of a recording that wait in memory for a disk that does not answer."""


class RecordingFile:
    """
    A new file to which text is appended.

    :param must_answer: fail when the disk does not answer; otherwise up to :data:`WAITING_BYTES`
        wait for it.
    :param failed: called with the error of text that waited.
    :raises OSError: it cannot be created.
    """

    def __init__(
        self, path: str, disk: Files, *, must_answer: bool, failed: Callable[[OSError], None]
    ) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.path = path
        self._disk, self._must_answer, self._failed = disk, must_answer, failed
        self._waiting = 0
        self._problem: OSError | None = None
        try:
            self._descriptor = disk.call(partial(os.open, path, flags, 0o600), is_long=True)
        except Unanswered as late:
            if late.answer is not None:
                late.answer.addCallbacks(self._abandon, lambda _: None)
            raise

    def _abandon(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._disk.run(self.delete)

    def write(self, text: bytes) -> None:
        """
        :raises OSError: the disk is full or does not answer, or the file cannot be written.
        """
        append = partial(self._append, text)
        if self._waiting:
            if self._waiting + len(text) > WAITING_BYTES:
                raise Unanswered
            answer = self._disk.run(append)
        else:
            try:
                return self._disk.call(append, is_long=self._must_answer)
            except Unanswered as late:
                if self._must_answer:
                    raise
                answer = late.answer or self._disk.run(append)
        self._waiting += len(text)
        answer.addCallbacks(lambda _: self._written(len(text)), self._not_written)

    def _written(self, size: int) -> None:
        self._waiting -= size

    def _not_written(self, failure: Failure) -> None:
        failure.trap(OSError)
        failed, self._failed = self._failed, lambda _: None  # the text behind it fails, too
        failed(cast(OSError, failure.value))

    def _append(self, text: bytes) -> None:
        if self._problem is not None:
            raise self._problem  # no text follows a gap
        view = memoryview(text)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
            # A write to a deleted file succeeds.
            if not os.path.samestat(os.stat(self.path), os.fstat(self._descriptor)):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        except OSError as error:
            self._problem = error
            raise

    def sync(self) -> None:
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def delete(self) -> None:
        self.close()
        os.unlink(self.path)

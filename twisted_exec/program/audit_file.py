"""The file of audit records, as lines of JSON."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.display import reason_of
from twisted_exec.program.disk_thread import AtOnce, Files, Unanswered
from twisted_exec.program.interfaces import IAuditSink

_OTHER = "not a regular file"
_LONGEST_VALUE = 2048
MOST_WAITING = 10_000
"""Records that wait for a disk that does not answer; further ones go to the log."""
_JSON = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))


class AuditUnavailable(Exception):
    """The audit file cannot be written."""


@dataclass(frozen=True)
class Rotation:
    """
    Limit of an audit file, and number of old files.

    :param max_bytes: the file is rotated, if possible, before it gets larger; 0 for no limit.
    :param old_files: at least 1.  ``FILE.1`` is the newest.
    """

    max_bytes: int = 0
    old_files: int = 10


@implementer(IAuditSink)
class JSONLinesAudit:
    """
    Audit records as lines of JSON.

    :param target: a path, ``-`` for standard output, or a text stream. A file is made with mode
        0600, appended to, and must not be a symbolic link. ``/dev/null`` keeps no records; no other
        file that is not a regular file is accepted.
    :param rotation: rotation of a file; several processes may write and rotate the same file, if
        all have a limit.
    :param thread: where the file is written.
    """

    _log = Logger()

    def __init__(
        self,
        target: str | TextIO,
        rotation: Rotation = Rotation(),
        thread: Files | None = None,
    ) -> None:
        self._rotation, self._thread, self._waiting = rotation, thread or AtOnce(), 0
        self._path = target if isinstance(target, str) else ""
        if self._path not in ("", "-"):
            # Absolute, because twistd changes the working directory when it becomes a daemon.
            self._path = os.path.abspath(self._path)
        self._stream = None if isinstance(target, str) else target
        self._torn = False
        self._broken = False
        self._is_stuck = False

    def check(self) -> None:
        """
        Check that records can be written, when the service starts.

        :raises AuditUnavailable: they cannot.
        """
        if self._path and self._path != "-":
            try:
                os.close(self._open())
            except OSError as problem:
                remedy = "check the path, or choose another"
                if problem.errno == errno.EINVAL:
                    remedy = "give a file, - for standard output, or /dev/null to keep no records"
                raise AuditUnavailable(
                    f"cannot write audit file {self._path!r}: {problem.strerror} ({remedy})"
                ) from None

    def record(self, event: Mapping[str, Any]) -> None:
        """
        Write one line.

        On failure the log gets the record: a full disk must not end a console session. While the
        disk does not answer, records wait in memory, up to a limit.
        """
        line = to_line(event)
        write = partial(self._write, line)
        try:
            self._thread.call(write)
        except Unanswered as late:
            if late.answer is None and self._waiting >= MOST_WAITING:
                self._unwritten(line, late)
                return
            self._waiting += 1
            answer = late.answer or self._thread.run(write)
            answer.addCallbacks(self._written, partial(self._failed_late, line))
            answer.addBoth(self._no_longer_waits)
        except OSError as problem:
            self._unwritten(line, problem)
        else:
            self._broken = False

    def _written(self, _: object) -> None:
        self._broken = False

    def _failed_late(self, line: bytes, failure: Failure) -> None:
        failure.trap(OSError)
        self._unwritten(line, failure.value or OSError())

    def _no_longer_waits(self, _: object) -> None:
        self._waiting -= 1

    def _unwritten(self, line: bytes, problem: BaseException) -> None:
        if not self._broken:
            self._broken = True
            self._log.critical("audit records cannot be written: {problem}", problem=problem)
        self._log.error("unwritten audit record: {line}", line=line.decode("ascii").rstrip())

    def _write(self, line: bytes) -> None:
        if self._stream is not None:
            self._stream.write(line.decode("ascii"))
            self._stream.flush()
        elif self._path == "-":
            _write_all(1, line)
        else:
            self._append(line)

    def _append(self, line: bytes) -> None:
        # Opened for each record, so that no record goes to a rotated file; sessions have only two.
        rotates = self._rotation.max_bytes and self._path != os.devnull
        descriptor = self._open_with_room(len(line)) if rotates else self._open()
        try:
            if self._torn:
                line = b"\n" + line
            self._torn = True
            _write_all(descriptor, line)
            self._torn = False
        finally:
            os.close(descriptor)

    def _open_with_room(self, size: int) -> int:
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._is_current(descriptor) and not self._rotate(descriptor, size):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # another process has renamed it, or this one has

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def _rotate(self, descriptor: int, size: int) -> bool:
        """Rename the files if necessary; return whether this file was renamed."""
        present = os.fstat(descriptor).st_size
        if not present or present + size + 1 <= self._rotation.max_bytes:
            return False
        try:
            shift_files(self._path, self._rotation.old_files)
        except OSError as problem:
            if not self._is_stuck:
                self._is_stuck = True
                self._log.error("audit file cannot be rotated: {why}", why=reason_of(problem))
            return False  # a file that is too large is better than a lost record
        self._is_stuck = self._torn = False
        return True

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                raise OSError(errno.EINVAL, "a symbolic link") from None
            if problem.errno == errno.ENXIO:  # a socket, or a FIFO without a reader
                raise OSError(errno.EINVAL, _OTHER) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) and self._path != os.devnull:
            os.close(descriptor)
            raise OSError(errno.EINVAL, _OTHER)
        return descriptor


def shift_files(path: str, old_files: int) -> None:
    """Rename ``FILE`` to ``FILE.1``, ``FILE.1`` to ``FILE.2`` and so on."""
    for number in range(old_files - 1, 0, -1):
        with suppress(FileNotFoundError):
            os.replace(f"{path}.{number}", f"{path}.{number + 1}")
    os.replace(path, f"{path}.1")


def _write_all(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    if written < len(line):
        raise OSError(28, "short write")


def to_line(event: Mapping[str, Any]) -> bytes:
    """
    Encode a record as one line of ASCII.

    Names may come from users, so the line has no control characters except its final newline, and
    long texts are cut.
    """
    bounded = {
        key: value[:_LONGEST_VALUE] if isinstance(value, str) else value
        for key, value in event.items()
    }
    text = _JSON.encode(bounded)
    # JSON does not escape DEL, a control character for terminals.
    return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"

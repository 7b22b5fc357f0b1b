"""
Who reached which machine, when, and why it ended: JSON lines.

Each hop writes one ``start`` and one ``end`` for every session, refusals
included, so that a reader can pair them without guessing.  A line is written by
one system call to a file opened for appending: lines of several processes do
not mix, a rotated file is noticed by itself, and a full disk tears one line at most.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.observe.interfaces import IAuditSink

SUBJECT_KEYS = (
    "session",
    "user",
    "namespace",
    "machine",
    "resource",
    "uid",
    "subresource",
    "pool",
    "caller",
    "agent",
)
_LONGEST_VALUE = 2048
_JSON = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))


class AuditUnavailable(Exception):
    """The audit file cannot be written.  ``str()`` is one line that says why."""


@implementer(IAuditSink)
class JSONLinesAudit:
    """
    Audit records as lines of JSON.

    :param target: a path, ``-`` for standard output, or an open text stream.  A
        file is made with mode 0600, appended to, and never opened through a
        symbolic link.
    """

    _log = Logger()

    def __init__(self, target: str | TextIO) -> None:
        self._path = target if isinstance(target, str) else ""
        if self._path not in ("", "-"):
            # Now: a daemon's working directory is another one.
            self._path = os.path.abspath(self._path)
        self._stream = None if isinstance(target, str) else target
        self._torn = False
        self._broken = False

    def check(self) -> None:
        """
        Find out, when the service starts, whether records can be written.

        :raises AuditUnavailable: why not.
        """
        if self._path and self._path != "-":
            try:
                os.close(self._open())
            except OSError as problem:
                raise AuditUnavailable(
                    f"cannot write audit file {self._path!r}: {problem.strerror} "
                    "(check the path, or choose another)"
                ) from None

    def record(self, event: Mapping[str, Any]) -> None:
        """
        Write one line.

        A record that cannot be written is told to the log, with the record: a console
        session is not the place to find out that a disk is full.
        """
        line = to_line(event)
        try:
            self._write(line)
        except OSError as problem:
            if not self._broken:
                self._broken = True
                self._log.critical("audit records cannot be written: {problem}", problem=problem)
            self._log.error("unwritten audit record: {line}", line=line.decode("ascii").rstrip())
        else:
            self._broken = False

    def _write(self, line: bytes) -> None:
        if self._stream is not None:
            self._stream.write(line.decode("ascii"))
            self._stream.flush()
        elif self._path == "-":
            _write_all(1, line)
        else:
            self._append(line)

    def _append(self, line: bytes) -> None:
        # Opened for each record: there are two a session, and a file that was
        # rotated away is never written to again.
        descriptor = self._open()
        try:
            if self._torn:
                line = b"\n" + line
            self._torn = True
            _write_all(descriptor, line)
            self._torn = False
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(22, "not a regular file")
        return descriptor


def _write_all(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    if written < len(line):
        raise OSError(28, "short write")


def to_line(event: Mapping[str, Any]) -> bytes:
    """
    One record as one line of ASCII.

    Whatever a user may have put into a name, the line holds no control
    character but its final newline, and no value longer than 2048 characters.
    """
    bounded = {
        key: value[:_LONGEST_VALUE] if isinstance(value, str) else value
        for key, value in event.items()
    }
    text = _JSON.encode(bounded)
    # JSON leaves DEL as it is; terminals do not.
    return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"


class Trail:
    """
    Writes the records of one hop.

    :param hop: ``apiserver``, ``poollet`` or ``runtime``.
    :param clock: measures how long sessions last.
    :param now: the time of day, aware; for the records only.
    """

    def __init__(
        self,
        sink: IAuditSink,
        hop: str,
        clock: IReactorTime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._sink, self._hop, self._clock, self._now = sink, hop, clock, now

    def start(self, subject: Mapping[str, Any]) -> AuditSession:
        """
        A session began.

        :param subject: the facts under :data:`SUBJECT_KEYS`; missing ones are
            empty, others are left out.
        """
        facts = {key: str(subject.get(key) or "") for key in SUBJECT_KEYS}
        self._record("start", facts)
        return AuditSession(self, facts)

    def refused(self, subject: Mapping[str, Any], code: int, reason: str) -> None:
        """
        A session was asked for and refused: a start and an end.

        :param code: the HTTP status that was answered.
        """
        self.start(subject).end(reason, code=code)

    def _record(self, event: str, facts: Mapping[str, Any]) -> None:
        moment = self._now().astimezone(UTC)
        stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._sink.record({"time": stamp, "hop": self._hop, "event": event, **facts})


class AuditSession:
    """A session that was started in the trail.  Made by :meth:`Trail.start`."""

    def __init__(self, trail: Trail, facts: Mapping[str, Any]) -> None:
        self._trail, self._facts = trail, facts
        self._began = trail._clock.seconds()
        self._ended = False

    def end(
        self,
        reason: str,
        *,
        code: int | None = None,
        bytes_to_machine: int = 0,
        bytes_to_user: int = 0,
    ) -> None:
        """
        The session is over.  Only the first call writes.

        :param reason: a word of :mod:`twisted_exec.streaming.interfaces`, or what
            was answered.
        :param code: the HTTP status of a refusal.
        """
        if self._ended:
            return
        self._ended = True
        seconds = max(0.0, self._trail._clock.seconds() - self._began)
        fields: dict[str, Any] = {
            "bytes_to_machine": bytes_to_machine,
            "bytes_to_user": bytes_to_user,
            "seconds": round(seconds, 3),
            "reason": reason,
        }
        if code is not None:
            fields["code"] = code
        self._trail._record("end", {**self._facts, **fields})

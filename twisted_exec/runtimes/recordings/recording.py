"""
The recordings of a runtime, and their state on disk.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.display import reason_of
from twisted_exec.api.kinds.consolerecordings import (
    CLOSED,
    FAILED,
    INCOMPLETE,
    INTERRUPTED,
    NOT_STORED,
    RECORDING,
)
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.file_access import opened, sync_directory
from twisted_exec.program.state_files import from_document
from twisted_exec.recording.growing import (
    WITHOUT_CERTIFICATE,
    GrowingRecording,
    SignedHead,
    decode_signed_head,
)
from twisted_exec.recording.proof_lines import MILLISECOND, Info, InvalidRecording, decode_head
from twisted_exec.runtimes.recordings.retained import Needed
from twisted_exec.tls.private_directories import private_directory
from twisted_exec.wire.marks import OpenRecording

_NAME = re.compile(r"([-0-9A-Za-z]{1,64})\.(facts|heads)")
_MAX_FACTS_BYTES = 64 << 10
_READ_BYTES = 64 << 10


class Recording:
    """
    A recording that exists.

    :ivar trouble: why it cannot be written at present; else empty.
    :ivar waiting: why the store did not take it; else empty.
    :ivar policies: that demand it, as its poollet has set them since the start: release 0.2.0 would refuse the file of
        the facts with them.
    """

    def __init__(self, stored: StoredRecording) -> None:
        self.facts: RecordingFacts = stored.facts
        self.last, self.certificate = stored.last, stored.certificate
        self._is_closed = stored.last.is_closed
        self.trouble = self.waiting = ""
        self.policies: tuple[str, ...] = ()
        self.number = 0
        self.covered = -1, 0
        self.is_due = False

    def head_signed(self, head: SignedHead) -> None:
        self.last, self.certificate = head, head.certificate or self.certificate
        self._is_closed = head.is_closed
        self.trouble = ""

    @property
    def uid(self) -> str:
        return self.facts.uid

    @property
    def state(self) -> str:
        if self.facts.failure:
            return FAILED
        return CLOSED if self._is_closed else RECORDING

    @property
    def is_open(self) -> bool:
        """True until the recording is closed or has failed."""
        return self.state == RECORDING

    @property
    def needed(self) -> Needed | None:
        """The range of the journal; ``None`` if the recording does not need it any more."""
        if self.facts.location or self.facts.is_released:
            return None
        end = None if self.is_open else self.last.position.offset
        return Needed(self.facts.first, end)

    @property
    def _problem(self) -> tuple[str, str]:
        """The reason and the message of the worst problem; both are empty without one."""
        problems = (
            (FAILED, self.facts.failure),
            (INTERRUPTED, self.trouble),
            (INCOMPLETE, self.facts.message),
            (NOT_STORED, self.waiting),
        )
        return next((each for each in problems if each[1]), ("", ""))

    @property
    def for_viewers(self) -> OpenRecording:
        """The recording as the users at the console learn of it."""
        return OpenRecording(self.facts.input, self.facts.user, self.policies)

    def status(self) -> pb.RecordingStatus:
        reason, message = self._problem
        return pb.RecordingStatus(
            number=self.number,
            uid=self.uid,
            machine_uid=self.facts.key,
            state=self.state,
            reason=reason,
            message=message,
            epoch=self.facts.epoch,
            first=self.facts.first,
            end=self.last.position.offset,
            head=self.last.progress.head,
            start_time=self.facts.start_ns,
            end_time=self.last.time * MILLISECOND,
            owner=self.facts.owner,
            location=self.facts.location,
        )


@dataclass(frozen=True)
class RecordingFacts:
    """
    The facts about one recording.

    :param owner: identifies the poollet; empty until that has set the recording.
    :param failure: the reason why it cannot go on; else empty.
    :param location: where the store has it; else empty.
    :param is_released: its object is deleted, and the store is to delete it.
    """

    uid: str
    key: str
    machine: dict[str, str]
    input: str
    epoch: str
    first: int
    start_ns: int
    columns: int
    rows: int
    secret: str
    is_ended: bool = False
    owner: str = ""
    failure: str = ""
    message: str = ""
    location: str = ""
    is_released: bool = False
    user: str = ""

    @property
    def growing(self) -> GrowingRecording:
        info = Info(self.uid, self.machine, self.epoch, self.first, self.start_ns // 1_000_000)
        return GrowingRecording(
            info, self.columns, self.rows, bytes.fromhex(self.secret), self.input
        )


@dataclass(frozen=True)
class StoredRecording:
    facts: RecordingFacts
    last: SignedHead
    certificate: bytes


class RecordingFiles:
    """The directory of all recordings of a runtime."""

    _log = Logger()

    def __init__(self, path: str, layer: Any = os) -> None:
        self._path, self._layer = path, layer
        self._sizes: dict[str, int] = {}
        self._newest: dict[str, bytes] = {}
        """The line of the newest head of each recording."""
        self.unreadable: dict[str, str] = {}
        self._is_closed = False

    def close(self) -> None:
        """
        Change no file any more, not even in a call that waits for the disk: the next process may own
        them.
        """
        self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.ESTALE, "the recordings have stopped")

    def open(self) -> list[StoredRecording]:
        """
        Create the directory if it is missing, and read it.

        :raises DirectoryError: the directory is not private, or cannot be created.
        """
        private_directory(self._path)
        self.unreadable.clear()
        names = [match for name in os.listdir(self._path) if (match := _NAME.fullmatch(name))]
        with_facts = {match[1] for match in names if match[2] == "facts"}
        for uid in {match[1] for match in names} - with_facts:
            self._unlink(uid, "heads")  # the process was killed before the recording began
        stored = []
        for uid in sorted(with_facts):
            try:
                stored.append(self._read(uid))
            except (OSError, ValueError, TypeError, StopIteration) as error:
                why = reason_of(error) or "it has no facts"
                self.unreadable[uid] = why
                self._log.error("recording {uid} cannot be read: {why}", uid=uid, why=why)
        return stored

    def _read(self, uid: str) -> StoredRecording:
        with opened(self._layer, self._file(uid, "facts")) as descriptor:
            document = json.loads(self._layer.pread(descriptor, _MAX_FACTS_BYTES, 0))
        facts = from_document(RecordingFacts, document)
        size, lines, with_certificate = 0, deque[bytes](maxlen=2), deque[bytes](maxlen=2)
        for line in self._lines(uid):
            size += len(line)
            lines.append(line)
            if not line.endswith(WITHOUT_CERTIFICATE):
                with_certificate.append(line)
        last, damaged_bytes = _newest(lines)
        if decode_head(f"{last.progress.head}\n".encode())[0].recording != uid:
            raise ValueError("its heads are those of another recording")
        self._sizes[uid], self._newest[uid] = size - damaged_bytes, last.encode()
        return StoredRecording(facts, last, _newest(with_certificate)[0].certificate)

    def create(self, facts: RecordingFacts, first: SignedHead) -> None:
        """Store a new recording; it exists from when the file with the facts does."""
        self._sizes[facts.uid], self._newest[facts.uid] = 0, b""
        self.append(facts.uid, first)
        self.save(facts)

    def save(self, facts: RecordingFacts) -> None:
        """Replace the facts about a recording."""
        self._require_open()
        path = self._file(facts.uid, "facts")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with opened(self._layer, f"{path}.new", flags) as descriptor:
            _write(self._layer, descriptor, json.dumps(asdict(facts)).encode(), 0)
            self._layer.fsync(descriptor)
        self._require_open()
        self._layer.rename(f"{path}.new", path)
        sync_directory(self._layer, self._path)

    def restore(self, recording: Recording) -> None:
        """Save the facts about a recording if their file is missing; in a thread."""
        try:
            self._layer.stat(self._file(recording.uid, "facts"))
        except FileNotFoundError:
            self.save(recording.facts)

    def append(self, uid: str, head: SignedHead) -> None:
        """
        Store a signed head; maybe in a thread.

        :raises InvalidRecording: the file was changed.
        :raises OSError: the disk is full or not writable.
        """
        self._require_open()
        size, line, newest = self._sizes[uid], head.encode(), self._newest.get(uid, b"")
        with opened(self._layer, self._file(uid, "heads"), os.O_RDWR | os.O_CREAT) as descriptor:
            if self._layer.pread(descriptor, len(newest), size - len(newest)) != newest:
                raise InvalidRecording("its signed heads were changed on the disk")
            self._require_open()
            self._layer.ftruncate(descriptor, size)
            _write(self._layer, descriptor, line, size)
            self._layer.fsync(descriptor)
        self._sizes[uid], self._newest[uid] = size + len(line), line

    def require(self, uid: str) -> None:
        """
        Check that the files of a recording are in their place.

        :raises OSError: they are not.
        """
        self._layer.stat(self._file(uid, "facts"))
        if self._layer.stat(self._file(uid, "heads")).st_size < self._sizes[uid]:
            raise OSError(errno.EIO, "its signed heads were changed on the disk")

    def heads(self, uid: str) -> Iterator[SignedHead]:
        """Iterate over the signed heads that there are now."""
        left = self._sizes[uid]
        for line in self._lines(uid):
            left -= len(line)
            if left < 0:
                return
            yield decode_signed_head(line)

    def remove(self, uid: str) -> None:
        """Remove a recording, which is gone once its facts are."""
        self._require_open()
        self._unlink(uid, "facts")
        self._unlink(uid, "heads")
        self._sizes.pop(uid, None)
        self._newest.pop(uid, None)
        self.unreadable.pop(uid, None)

    def _lines(self, uid: str) -> Iterator[bytes]:
        rest, position = b"", 0
        path = self._file(uid, "heads")
        while True:
            # The file is not kept open: a reader may be slow.
            with opened(self._layer, path) as descriptor:
                data = self._layer.pread(descriptor, _READ_BYTES, position)
            if not data:
                break
            position += len(data)
            *lines, rest = (rest + data).splitlines(keepends=True)
            yield from lines
            if rest.endswith(b"\n"):
                yield rest
                rest = b""
        if rest:
            yield rest

    def _file(self, uid: str, kind: str) -> str:
        return os.path.join(self._path, f"{uid}.{kind}")

    def _unlink(self, uid: str, kind: str) -> None:
        try:
            self._layer.unlink(self._file(uid, kind))
        except FileNotFoundError:
            pass


def changed(facts: RecordingFacts, **fields: Any) -> RecordingFacts:
    return replace(facts, **fields)


def _newest(lines: deque[bytes]) -> tuple[SignedHead, int]:
    damaged_bytes = 0
    for line in reversed(lines):
        try:
            return decode_signed_head(line), damaged_bytes
        except ValueError:
            damaged_bytes += len(line)
    raise ValueError("it has no signed head")


def _write(layer: Any, descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = layer.pwrite(descriptor, data, position)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, position = data[written:], position + written

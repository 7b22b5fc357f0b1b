"""
The state of recordings on disk: the facts about each in one small file, and its signed heads in another.

The file with the facts is replaced as a whole.  Heads are appended, and one counts from when its line is
complete: a process that is killed meanwhile signs another one later.
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

from twisted_exec.journal.layer import opened, sync_directory
from twisted_exec.recording.chain import Info, InvalidRecording, decode_head
from twisted_exec.recording.ranges import WITHOUT_CERTIFICATE, Range, SignedHead, decode_signed_head
from twisted_exec.tls.unix import private_directory

_NAME = re.compile(r"([-0-9A-Za-z]{1,64})\.(facts|heads)")
_MAX_FACTS_BYTES = 64 << 10
_READ_BYTES = 64 << 10


@dataclass(frozen=True)
class Facts:
    """
    The facts about one recording.

    :param uid: of the ConsoleRecording.
    :param key: of the journal: the UID of the machine.
    :param machine: its names, for the content.
    :param input: see :class:`.Range`.
    :param start_ns: the time of the beginning.
    :param secret: in hexadecimal digits, see :class:`.Range`.
    :param until_ns: when it ends, if not 0.
    :param is_ended: it is to end.
    :param owner: identifies the poollet; empty until that has set the recording.
    :param failure: the reason why it cannot go on; else empty.
    :param message: describes missing output; else empty.
    :param location: where the store has it; else empty.
    :param is_released: its object is deleted, and the store is to delete it.
    :param user: the user who created the ConsoleRecording; empty if unknown.
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
    until_ns: int = 0
    is_ended: bool = False
    owner: str = ""
    failure: str = ""
    message: str = ""
    location: str = ""
    is_released: bool = False
    user: str = ""

    @property
    def range(self) -> Range:
        """The range of the journal."""
        info = Info(self.uid, self.machine, self.epoch, self.first, self.start_ns // 1_000_000)
        return Range(info, self.columns, self.rows, bytes.fromhex(self.secret), self.input)


@dataclass(frozen=True)
class Stored:
    """
    A recording on disk.

    :param last: its newest head.
    :param certificate: of that head, in DER.
    """

    facts: Facts
    last: SignedHead
    certificate: bytes


class RecordingFiles:
    """
    The directory of all recordings of a runtime.

    :param layer: the module ``os``, or a stand-in.
    :ivar unreadable: the recordings whose files were damaged, removed or exchanged, by UID; with the reason.
    """

    _log = Logger()

    def __init__(self, path: str, layer: Any = os) -> None:
        self._path, self._layer = path, layer
        self._sizes: dict[str, int] = {}
        self._newest: dict[str, bytes] = {}
        """The line of the newest head of each recording."""
        self.unreadable: dict[str, str] = {}

    def open(self) -> list[Stored]:
        """
        Create the directory if it is missing, and read it.

        :raises TLSConfigError: it is not private, or cannot be created.
        :raises OSError: it cannot be read.
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
                why = getattr(error, "strerror", None) or str(error) or "it has no facts"
                self.unreadable[uid] = why
                self._log.error("recording {uid} cannot be read: {why}", uid=uid, why=why)
        return stored

    def _read(self, uid: str) -> Stored:
        with opened(self._layer, self._file(uid, "facts")) as descriptor:
            facts = Facts(**json.loads(self._layer.pread(descriptor, _MAX_FACTS_BYTES, 0)))
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
        return Stored(facts, last, _newest(with_certificate)[0].certificate)

    def create(self, facts: Facts, first: SignedHead) -> None:
        """
        Store a new recording; it exists from when the file with the facts does.

        :raises OSError: the disk is full or not writable.
        """
        self._sizes[facts.uid], self._newest[facts.uid] = 0, b""
        self.append(facts.uid, first)
        self.save(facts)

    def save(self, facts: Facts) -> None:
        """
        Replace the facts about a recording.

        :raises OSError: the disk is full or not writable; the earlier facts remain.
        """
        path = self._file(facts.uid, "facts")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with opened(self._layer, f"{path}.new", flags) as descriptor:
            _write(self._layer, descriptor, json.dumps(asdict(facts)).encode(), 0)
            self._layer.fsync(descriptor)
        self._layer.rename(f"{path}.new", path)
        sync_directory(self._layer, self._path)

    def append(self, uid: str, head: SignedHead) -> None:
        """
        Store a signed head; maybe in a thread.

        :raises InvalidRecording: the file is not as this process has left it.
        :raises OSError: the disk is full or not writable; then there is no head.
        """
        size, line, newest = self._sizes[uid], head.encode(), self._newest.get(uid, b"")
        with opened(self._layer, self._file(uid, "heads"), os.O_RDWR | os.O_CREAT) as descriptor:
            if self._layer.pread(descriptor, len(newest), size - len(newest)) != newest:
                raise InvalidRecording("its signed heads were changed on the disk")
            self._layer.ftruncate(descriptor, size)
            _write(self._layer, descriptor, line, size)
            self._layer.fsync(descriptor)
        self._sizes[uid], self._newest[uid] = size + len(line), line

    def heads(self, uid: str) -> Iterator[SignedHead]:
        """
        Iterate over the signed heads that there are now.

        :raises OSError: they cannot be read.
        """
        left = self._sizes[uid]
        for line in self._lines(uid):
            left -= len(line)
            if left < 0:
                return
            yield decode_signed_head(line)

    def remove(self, uid: str) -> None:
        """Remove a recording.  It is gone once its facts are."""
        self._unlink(uid, "facts")
        self._unlink(uid, "heads")
        self._sizes.pop(uid, None)
        self._newest.pop(uid, None)
        self.unreadable.pop(uid, None)

    def _lines(self, uid: str) -> Iterator[bytes]:
        """Iterate over the lines of the heads; the last one may not be complete."""
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


def changed(facts: Facts, **fields: Any) -> Facts:
    """Return facts with some of them changed."""
    return replace(facts, **fields)


def _newest(lines: deque[bytes]) -> tuple[SignedHead, int]:
    """
    Decode the newest head; return also the number of bytes after it.

    Only the last line can be damaged: the process was killed, or the disk was full, while it wrote the line.

    :raises ValueError: there is none.
    """
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

"""
Plain files, one for each machine: ``NAMESPACE_NAME_UID.log``.

Each batch opens its files anew, so programs such as logrotate may rename them at any time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.times import stamp
from twisted_exec.program.audit_file import shift_files
from twisted_exec.shipping.interfaces import (
    ILineBatch,
    ILineSink,
    Labels,
    Receipt,
    ShippedLine,
    SinkError,
)

LINE_BYTES = 16 << 10
_BATCH_BYTES = 256 << 10
_MAX_NAME_BYTES = 255 - len(".9999")
_MAX_UID = 40
_NEWLINE = b"\n"


@implementer(ILineBatch)
class FilesBatch:
    """Text for any number of files."""

    def __init__(self, timestamps: bool) -> None:
        self._timestamps = timestamps
        self.texts: dict[str, bytearray] = {}
        self._labels: Labels | None = None
        self._text = bytearray()
        self.size = self.lines = 0

    def add(self, labels: Labels, line: ShippedLine) -> None:
        if labels is not self._labels:
            self._labels = labels
            self._text = self.texts.setdefault(file_name(labels), bytearray())
        before = len(self._text)
        if self._timestamps:
            self._text += stamp(line.time).encode("ascii") + b" "
        self._text += line.gap_text() if line.is_gap else line.text
        self._text += _NEWLINE
        self.size += len(self._text) - before
        self.lines += 1


def file_name(labels: Labels) -> str:
    """Return the name of a machine's file; names from elsewhere cannot leave the directory."""
    names = [quote(each, safe="") for each in (labels.namespace, labels.machine) if each]
    uid = quote(labels.uid[:_MAX_UID], safe="")
    end = f"_{uid}.log" if uid else ".log"
    return "_".join(names)[: _MAX_NAME_BYTES - len(end)].lstrip(".") + end


@implementer(ILineSink)
class FilesSink:
    """
    Appends to files in one directory.

    :param directory: created if missing, for its owner only.
    :param max_bytes: rotate files at about this size; 0 never does.
    :param old_files: number of rotated files to keep of each.
    """

    line_bytes, batch_bytes = LINE_BYTES, _BATCH_BYTES

    def __init__(
        self,
        name: str,
        directory: str,
        reactor: Any,
        *,
        max_bytes: int = 0,
        old_files: int = 5,
        timestamps: bool = True,
    ) -> None:
        self.name = name
        self._directory, self._reactor = directory, reactor
        self._max_bytes, self._old_files = max_bytes, old_files
        self._timestamps = timestamps
        self._lock = DeferredLock()  # one thread at a time
        self._unsynced: set[str] = set()

    def new_batch(self) -> FilesBatch:
        return FilesBatch(self._timestamps)

    def send(self, batch: Any) -> Deferred[Receipt]:
        return self._in_thread(partial(self._write_all, batch.texts), Receipt())

    def settle(self) -> Deferred[None]:
        return self._in_thread(self._sync_all, None)

    def close(self) -> Deferred[None]:
        return self._lock.run(lambda: None)

    def _in_thread(self, work: Any, result: Any) -> Deferred[Any]:
        def begin() -> Deferred[None]:
            pool = self._reactor.getThreadPool()
            done: Deferred[None] = deferToThreadPool(self._reactor, pool, work)
            return done

        outcome: Deferred[Any] = Deferred()  # cancelled without the thread, which cannot be
        working = self._lock.run(begin)
        working.addCallbacks(lambda _: result, self._failed)
        working.addBoth(lambda each: None if outcome.called else outcome.callback(each))
        return outcome

    def _failed(self, failure: Failure) -> Failure:
        error = failure.value
        if not isinstance(error, OSError):
            return failure
        name = error.filename or self._directory
        return Failure(SinkError("disk", f"{name} cannot be written: {error.strerror}"))

    # In the thread.

    def _write_all(self, texts: Mapping[str, bytearray]) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        for name, text in texts.items():
            self._append(os.path.join(self._directory, name), text)

    def _append(self, path: str, text: bytearray) -> None:
        descriptor = _open(path)
        try:
            size = os.fstat(descriptor).st_size
            if self._max_bytes and size and size + len(text) > self._max_bytes:
                shift_files(path, self._old_files)
                os.fsync(descriptor)  # settle() will not find it under its name
                os.close(descriptor)
                descriptor = -1
                descriptor = _open(path)
                size = 0
            self._unsynced.add(path)
            if os.write(descriptor, text) < len(text):
                os.ftruncate(descriptor, size)  # the lines will come again
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _sync_all(self) -> None:
        while self._unsynced:
            path = next(iter(self._unsynced))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                pass  # renamed by another program, or deleted
            else:
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            self._unsynced.discard(path)


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor

"""
A directory as a store of recordings.

A recording gets its name when it is complete and on the disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import quote

from twisted.internet.defer import Deferred, DeferredSemaphore, succeed
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from twisted_exec.recording.stores.interfaces import (
    MAX_READ_BYTES,
    SUFFIX,
    IRecordingStore,
    NotStored,
    ReadText,
    Stored,
    StoreEntry,
    StoreError,
    is_name,
    require_name,
)

_TEMPORARY = ".part"
_MOST_THREADS = 2
"""Most threads of the reactor's pool that a store takes: a network file system may hang."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

T = TypeVar("T")


@implementer(IRecordingStore)
class DirectoryStore:
    """
    Recordings as files ``NAME.cast`` of mode 0600.

    :param directory: an absolute path; created if it is missing, for its owner only.
    """

    def __init__(self, directory: str, reactor: Any) -> None:
        self.url = f"file://{quote(directory)}"
        self._directory, self._reactor = directory, reactor
        self._threads = DeferredSemaphore(_MOST_THREADS)

    def location(self, name: str) -> str:
        return f"{self.url}/{require_name(name)}{SUFFIX}"

    def put(self, name: str, read: ReadText) -> Deferred[Stored]:
        return Deferred.fromCoroutine(self._put(require_name(name), read))

    async def _put(self, name: str, read: ReadText) -> Stored:
        file = await self._in_thread(partial(self._open_new, name))
        try:
            size, digest = 0, sha256()
            while data := await read(size, MAX_READ_BYTES):
                await self._in_thread(partial(_write, file, data))
                digest.update(data)
                size += len(data)
            await self._in_thread(partial(self._finish, name, file))
        finally:
            os.close(file)
        return Stored(size, digest.hexdigest())

    def read(self, name: str, offset: int, limit: int) -> Deferred[bytes]:
        return Deferred.fromCoroutine(
            self._in_thread(partial(self._read, require_name(name), offset, limit))
        )

    def list(self, after: str = "", limit: int = 1000) -> Deferred[Sequence[StoreEntry]]:
        return Deferred.fromCoroutine(self._in_thread(partial(self._list, after, limit)))

    def delete(self, name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._in_thread(partial(self._delete, require_name(name))))

    def close(self) -> Deferred[None]:
        return succeed(None)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        pool = self._reactor.getThreadPool()
        await self._threads.acquire()

        def tracked() -> T:
            # The caller may have given up, but the thread is still taken.
            try:
                return work()
            finally:
                self._reactor.callFromThread(self._threads.release)

        try:
            done: T = await deferToThreadPool(self._reactor, pool, tracked)
        except OSError as error:
            kind = "full" if error.errno in _FULL else "disk"
            why = os.strerror(error.errno) if error.errno else str(error)
            remedy = ": free space, or use another directory" if kind == "full" else ""
            raise StoreError(
                kind, f"the directory of recordings {self._directory}: {why}{remedy}"
            ) from None
        return done

    # In the thread.

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name + SUFFIX)

    def _temporary(self, name: str) -> str:
        return os.path.join(self._directory, f".{name}{_TEMPORARY}")

    def _open_new(self, name: str) -> int:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        return _open(self._temporary(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def _finish(self, name: str, file: int) -> None:
        os.fsync(file)
        os.rename(self._temporary(name), self._path(name))
        self._sync()

    def _read(self, name: str, offset: int, limit: int) -> bytes:
        try:
            file = _open(self._path(name), os.O_RDONLY)
        except FileNotFoundError:
            raise NotStored(self.location(name)) from None
        try:
            return os.pread(file, limit, offset)
        finally:
            os.close(file)

    def _list(self, after: str, limit: int) -> Sequence[StoreEntry]:
        names = []
        with suppress(FileNotFoundError):
            for each in os.listdir(self._directory):
                name = each.removesuffix(SUFFIX)
                if name != each and is_name(name) and name > after:
                    names.append(name)
        entries = []
        for name in sorted(names)[:limit]:
            with suppress(FileNotFoundError):
                entries.append(StoreEntry(name, os.stat(self._path(name)).st_size))
        return entries

    def _delete(self, name: str) -> None:
        for path in (self._path(name), self._temporary(name)):
            with suppress(FileNotFoundError):
                os.unlink(path)
        with suppress(FileNotFoundError):
            self._sync()

    def _sync(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _open(path: str, flags: int) -> int:
    # No link leads elsewhere, and open() of a FIFO does not block.
    file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return file


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]

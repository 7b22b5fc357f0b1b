"""
The store of one API server: SQLite, one writer thread, group commit.

Objects are also in memory (:mod:`twisted_exec.storage.history`), so reads do not wait for the disk.
A thread checks queued writes against the database, and commits many together with
``synchronous=FULL``.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.storage import history
from twisted_exec.storage.history import History
from twisted_exec.storage.history_storage import HistoryStorage
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    Object,
    StorageError,
)
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits
from twisted_exec.storage.sqlite.database import check_complete, check_file, explain, open_database
from twisted_exec.storage.sqlite.reading import load
from twisted_exec.storage.sqlite.record import VersionRecord, read_record, state_path
from twisted_exec.storage.sqlite.reserve import RESERVED_BYTES, Reserve
from twisted_exec.storage.sqlite.writer import PROBE, OpenStore, Write, WriterThread

_WAITING_WRITES = 10_000
_TURN_TELLS = 1000
"""Number of watch callbacks per turn of the reactor; one change is never split."""
_NOTHING = Resource("", "", "", "")


@implementer(IStorage)
class SQLiteStorage(HistoryStorage):
    """
    Objects in one SQLite file.

    :param path: created with mode 0600 if missing.
    :param reserved_bytes: size of a file beside it, whose space makes deletions possible on a full
        disk.
    :param remembered: number of changes kept for watches and older lists.
    :param remembered_bytes: limit of the size of these changes together.
    """

    def __init__(
        self,
        path: str,
        reactor: Any,
        *,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
        reserved_bytes: int = RESERVED_BYTES,
        limits: QuotaLimits = NO_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._path, self.location = path, f"sqlite:{path}"
        self._reserve = Reserve(f"{path}-reserve", reserved_bytes)
        self._reactor = reactor
        self._remembered = remembered, remembered_bytes
        self.history = History(*self._remembered)
        self._waiting: queue.Queue[Write | None] = queue.Queue()
        self._writer: WriterThread | None = None
        self._sink: Callable[[Write], None] = _refuse
        self._closed: Deferred[None] = defer.succeed(None)
        self._settled: deque[Write] = deque()
        self._turn: IDelayedCall | None = None

    def startService(self) -> None:
        """
        Open the file, read all objects, start the writer thread.

        :raises StorageError: the file cannot be used.
        """
        check_file(self._path)
        record = VersionRecord(self._path)
        record.lock()
        try:
            files = self._open_in_reserve(record)
        except BaseException:
            record.close()
            raise
        self._closed, self._waiting = Deferred(), queue.Queue()
        self._writer = WriterThread(files, self._waiting, self._forgotten, self._report)
        args = (self._writer, self._closed)
        threading.Thread(target=self._write, args=args, name="storage writer", daemon=True).start()
        self._sink = self._enqueue
        super().startService()

    def _open_in_reserve(self, record: VersionRecord) -> OpenStore:
        """Open the file, on a full disk in the place of the reserve."""
        try:
            return self._open(record)
        except StorageError as error:
            if not self._is_full(error):
                raise
        self._reserve.release()
        try:
            return self._open(record)
        except StorageError as error:
            self._reserve.fill()
            if not self._is_full(error):
                raise
            raise StorageError(
                f"the disk of the store {self._path} is full: free space on it, and start the server again"
            ) from error

    def _is_full(self, error: StorageError) -> bool:
        cause = error.__cause__
        return isinstance(cause, sqlite3.Error) and not self._reserve.problem(cause)

    def _open(self, record: VersionRecord) -> OpenStore:
        acknowledged = read_record(self._path)
        has_file, has_log = (os.path.exists(self._path + end) for end in ("", "-wal"))
        if acknowledged is not None and not has_file:
            raise StorageError(
                f"the store {self._path} is missing: put it back, restore a backup (twisted-exec "
                f"restore BACKUP {self._path}), or remove {state_path(self._path)} to begin with "
                "an empty store"
            )
        database = open_database(self._path)
        try:
            check_complete(database, self._path, acknowledged, has_log)
            self.history = load(database, History(*self._remembered))
            return OpenStore(self._path, database, record, self._reserve)
        except sqlite3.Error as error:
            database.close()
            raise StorageError(explain(self._path, error)) from error
        except (ValueError, KeyError) as error:
            database.close()
            raise StorageError(f"{self._path} is damaged: {error}") from None
        except BaseException:
            database.close()
            raise

    def stopService(self) -> Deferred[None]:
        """Fires when accepted writes are on the disk and the file is closed."""
        super().stopService()
        self._sink = _refuse
        if self._writer is not None:
            self._writer = None
            self._waiting.put(None)
        waiting: Deferred[None] = Deferred()
        self._closed.addCallback(waiting.callback)
        return waiting

    # Reads and writes

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        write = partial(self._begin_write, Write(ADDED, resource, obj))
        return self.within_quota(resource, obj, ADDED, write)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        write = partial(self._begin_write, Write(MODIFIED, resource, obj))
        return self.within_quota(resource, obj, MODIFIED, write)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._begin_write(Write(DELETED, resource, obj))

    def probe(self) -> Deferred[object]:
        """See :meth:`IStorage.probe`: commits an unchanged value."""
        write = Write(PROBE, _NOTHING, {})
        return self._begin_write(write).addCallback(lambda _: write.limit or None)

    def _begin_write(self, write: Write) -> Deferred[Object]:
        self._sink(write)
        return write.done

    def _forgotten(self) -> int:
        return self.history.forgotten

    def _enqueue(self, write: Write) -> None:
        if self._waiting.qsize() >= _WAITING_WRITES:
            _fail(write, "too many writes are waiting")
        else:
            self._waiting.put(write)

    def _write(self, writer: WriterThread, closed: Deferred[None]) -> None:
        try:
            writer.run()
        finally:
            self._reactor.callFromThread(self._writer_ended, closed)

    def _report(self, writes: Sequence[Write]) -> None:
        """Report committed or failed writes to the reactor, from the writer thread."""
        self._reactor.callFromThread(self._queue_settled, writes)

    def _queue_settled(self, writes: Sequence[Write]) -> None:
        self._settled.extend(writes)
        if self._turn is None:
            self._settle_some()

    def _settle_some(self) -> None:
        self._turn, count = None, 0
        while self._settled:
            count += self._settle(self._settled.popleft())
            if count >= _TURN_TELLS:
                self._turn = self._reactor.callLater(0, self._settle_some)
                return

    def _writer_ended(self, closed: Deferred[None]) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        while self._settled:
            self._settle(self._settled.popleft())
        closed.callback(None)  # another writer may have begun, once the file was closed

    def _settle(self, write: Write) -> int:
        if write.error is not None:
            write.done.errback(write.error)
        elif write.change == PROBE:
            write.done.callback({})
        else:
            event = self._event(write)
            changes = self.history.apply(history.table_of(write.resource), event)
            write.done.callback(event.obj)
            return changes
        return 0

    def _event(self, write: Write) -> Event:
        assert write.stored is not None, "a write without an error was made"
        previous = self.history.find(write.resource, write.obj)
        return Event(write.change, write.stored, previous, write.version)


def _refuse(write: Write) -> None:
    _fail(write, "the store is closed")


def _fail(write: Write, why: str) -> None:
    write.done.errback(ServiceUnavailable(why, retry_after_seconds=1))

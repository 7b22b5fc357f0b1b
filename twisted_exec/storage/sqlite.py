"""
The store of one API server: SQLite, one writer thread, group commit.

All objects are also in memory (:mod:`twisted_exec.storage.history`), so reads
never wait for the disk.  Writes go through a queue to one thread.  It takes all
queued writes, checks each against the database, and commits them together with
``synchronous=FULL``: many writes share one ``fsync``, and the reactor never
blocks.  The writers' Deferreds fire and watchers get their events after the commit.
Events of one change go to all watches at once; between changes other events of the
reactor get their turn.  The JSON written to the disk stays with the object, and
lists and watches send it as it is.

:mod:`twisted_exec.storage.writer` is that thread, :mod:`twisted_exec.storage.database` handles the
file itself.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.storage import history
from twisted_exec.storage.database import check_complete, load, open_database
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    Object,
    StorageError,
)
from twisted_exec.storage.memory import HistoryStorage
from twisted_exec.storage.quota import NO_LIMITS, Limits
from twisted_exec.storage.record import Record, read_record, state_path
from twisted_exec.storage.reserve import RESERVED_BYTES, Reserve
from twisted_exec.storage.writer import PROBE, OpenStore, Write, Writer

_WAITING_WRITES = 10_000
_TURN_TELLS = 1000
"""Number of watch callbacks per turn of the reactor; one change is never split."""
_NOTHING = Resource("", "", "", "")


@implementer(IStorage)
class SQLiteStorage(HistoryStorage):
    """
    Objects in one SQLite file.

    :param path: path of the file, which is created (mode 0600) if missing.  SQLite adds a
        ``-wal`` file beside it.
    :param remembered: number of changes kept for watches and older lists.
    :param remembered_bytes: limit of the size of these changes together.
    :param reserved_bytes: size of a file beside it, whose space makes deletions possible on a full
        disk.
    :param limits: limits of what objects use.
    """

    exclusive = True  # its record is locked

    def __init__(
        self,
        path: str,
        reactor: Any,
        *,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
        reserved_bytes: int = RESERVED_BYTES,
        limits: Limits = NO_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._path, self.location = path, f"sqlite:{path}"
        self._reserve = Reserve(f"{path}-reserve", reserved_bytes)
        self._reactor = reactor
        self._remembered = remembered, remembered_bytes
        self._history = History(*self._remembered)
        self._waiting: queue.Queue[Write | None] = queue.Queue()
        self._writer: Writer | None = None
        self._stopped: Deferred[None] = Deferred()
        self._settled: deque[Write] = deque()
        self._turn: IDelayedCall | None = None

    def startService(self) -> None:
        """
        Open the file, read all objects, start the writer thread.

        :raises StorageError: the file cannot be used.
        """
        record = Record(self._path)
        record.lock()
        try:
            files = self._open(record)
        except BaseException:
            record.close()
            raise
        self._stopped = Deferred()
        self._waiting = queue.Queue()
        self._writer = Writer(files, self._waiting, self._forgotten, self._tell)
        threading.Thread(target=self._write, name="storage writer", daemon=True).start()
        super().startService()

    def _open(self, record: Record) -> OpenStore:
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
            self._history = load(database, History(*self._remembered))
            return OpenStore(self._path, database, record, self._reserve)
        except (sqlite3.Error, ValueError, KeyError) as error:
            database.close()
            raise StorageError(f"{self._path} is damaged: {error}") from None
        except BaseException:
            database.close()
            raise

    def stopService(self) -> Deferred[None]:
        """Fires when all accepted writes are on the disk and the file is closed."""
        super().stopService()
        if self._writer is None:
            return defer.succeed(None)
        self._writer = None
        self._waiting.put(None)
        return self._stopped

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.create`."""
        write = partial(self._enqueue, Write(ADDED, resource, obj))
        return self._within_quota(resource, obj, ADDED, write)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.update`."""
        write = partial(self._enqueue, Write(MODIFIED, resource, obj))
        return self._within_quota(resource, obj, MODIFIED, write)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.delete`."""
        return self._enqueue(Write(DELETED, resource, obj))

    def probe(self) -> Deferred[object]:
        """See :meth:`IStorage.probe`: commits an unchanged value."""
        write = Write(PROBE, _NOTHING, {})
        return self._enqueue(write).addCallback(_nothing)

    def _forgotten(self) -> int:
        """Return the version up to which changes are forgotten; runs in the writer thread."""
        return self._history.forgotten

    def _enqueue(self, write: Write) -> Deferred[Object]:
        if self._writer is None:
            return defer.fail(ServiceUnavailable("the store is closed", retry_after_seconds=1))
        if self._waiting.qsize() >= _WAITING_WRITES:
            return defer.fail(
                ServiceUnavailable("too many writes are waiting", retry_after_seconds=1)
            )
        self._waiting.put(write)
        return write.done

    def _write(self) -> None:
        """The writer thread."""
        writer = self._writer
        try:
            if writer is not None:
                writer.run()
        finally:
            self._reactor.callFromThread(self._over)

    def _tell(self, writes: Sequence[Write]) -> None:
        """Report committed or failed writes to the reactor; runs in the writer thread."""
        self._reactor.callFromThread(self._show, writes)

    def _show(self, writes: Sequence[Write]) -> None:
        self._settled.extend(writes)
        if self._turn is None:
            self._show_some()

    def _show_some(self) -> None:
        self._turn, count = None, 0
        while self._settled:
            count += self._show_one(self._settled.popleft())
            if count >= _TURN_TELLS:
                self._turn = self._reactor.callLater(0, self._show_some)
                return

    def _over(self) -> None:
        """Apply all remaining writes at once, after the end of the writer thread."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        while self._settled:
            self._show_one(self._settled.popleft())
        self._stopped.callback(None)

    def _show_one(self, write: Write) -> int:
        """
        Make one write visible to readers, watchers and its writer.

        :return: the number of watches that got it.
        """
        if write.error is not None:
            write.done.errback(write.error)
        elif write.change == PROBE:
            write.done.callback({})
        else:
            event = self._event(write)
            changes = self._history.apply(history.table_of(write.resource), event)
            write.done.callback(event.obj)
            return changes
        return 0

    def _event(self, write: Write) -> Event:
        assert write.stored is not None, "a write without an error was made"
        previous = self._history.find(write.resource, write.obj)
        return Event(write.change, write.stored, previous, write.version)


def _nothing(_: Object) -> object:
    return None

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

:mod:`twisted_exec.storage.database` handles the file itself.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.encoded import Encoded
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, InternalError, ServiceUnavailable
from twisted_exec.storage import history
from twisted_exec.storage.database import (
    last_version,
    load,
    open_database,
    touch,
)
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

_BATCH_WRITES = 512
_WAITING_WRITES = 10_000
_TURN_TELLS = 1000
"""Number of watch callbacks per turn of the reactor; one change is never split."""
_PROBE = "PROBE"
_NOTHING = Resource("", "", "", "")

_log = Logger()


@dataclass
class _Write:
    """One write on its way through the writer thread."""

    change: str
    resource: Resource
    obj: Object
    done: Deferred[Object] = field(default_factory=Deferred)
    version: int = 0
    stored: Encoded | None = None
    """The object as the writer thread wrote it, with its JSON."""
    error: APIError | None = None


@implementer(IStorage)
class SQLiteStorage(HistoryStorage):
    """
    Objects in one SQLite file.

    :param path: path of the file, which is created (mode 0600) if missing.  SQLite adds a
        ``-wal`` file beside it.
    :param remembered: number of changes kept for watches and older lists.
    :param remembered_bytes: limit of the size of these changes together.
    """

    exclusive = True  # the file is locked

    def __init__(
        self,
        path: str,
        reactor: Any,
        *,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
    ) -> None:
        self._path = path
        self._reactor = reactor
        self._remembered = remembered, remembered_bytes
        self._history = History(*self._remembered)
        self._waiting: queue.Queue[_Write | None] = queue.Queue()
        self._writer: _Writer | None = None
        self._stopped: Deferred[None] = Deferred()
        self._settled: deque[_Write] = deque()
        self._turn: IDelayedCall | None = None

    def startService(self) -> None:
        """
        Open the file, read all objects, start the writer thread.

        :raises StorageError: the file cannot be used.
        """
        database = open_database(self._path)
        try:
            self._history = load(database, History(*self._remembered))
        except (sqlite3.Error, ValueError, KeyError) as error:
            database.close()
            raise StorageError(f"{self._path} is damaged: {error}") from None
        self._stopped = Deferred()
        self._waiting = queue.Queue()
        self._writer = _Writer(database, self._waiting, self._forgotten, self._tell)
        threading.Thread(target=self._write, name="storage writer", daemon=True).start()
        super().startService()

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
        return self._enqueue(_Write(ADDED, resource, obj))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.update`."""
        return self._enqueue(_Write(MODIFIED, resource, obj))

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.delete`."""
        return self._enqueue(_Write(DELETED, resource, obj))

    def probe(self) -> Deferred[object]:
        """See :meth:`IStorage.probe`: commits an unchanged value."""
        write = _Write(_PROBE, _NOTHING, {})
        return self._enqueue(write).addCallback(_nothing)

    def _forgotten(self) -> int:
        """Return the version up to which changes are forgotten; runs in the writer thread."""
        return self._history.forgotten

    def _enqueue(self, write: _Write) -> Deferred[Object]:
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

    def _tell(self, writes: Sequence[_Write]) -> None:
        """Report committed or failed writes to the reactor; runs in the writer thread."""
        self._reactor.callFromThread(self._show, writes)

    def _show(self, writes: Sequence[_Write]) -> None:
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

    def _show_one(self, write: _Write) -> int:
        """
        Make one write visible to readers, watchers and its writer.

        :return: the number of watches that got it.
        """
        if write.error is not None:
            write.done.errback(write.error)
        elif write.change == _PROBE:
            write.done.callback({})
        else:
            event = self._event(write)
            changes = self._history.apply(history.table_of(write.resource), event)
            write.done.callback(event.obj)
            return changes
        return 0

    def _event(self, write: _Write) -> Event:
        assert write.stored is not None, "a write without an error was made"
        previous = self._history.find(write.resource, write.obj)
        return Event(write.change, write.stored, previous, write.version)


def _nothing(_: Object) -> object:
    return None


class _Writer:
    """The writer thread; everything except ``tell`` runs in that thread only."""

    def __init__(
        self,
        database: sqlite3.Connection,
        waiting: queue.Queue[_Write | None],
        forgotten: Callable[[], int],
        tell: Callable[[Sequence[_Write]], None],
    ) -> None:
        self._database = database
        self._waiting = waiting
        self._forgotten = forgotten
        self._tell = tell
        self._compacted = forgotten()
        self._problem = ""

    def run(self) -> None:
        """Commit until a ``None`` comes; then close the database."""
        open_still = True
        while open_still:
            writes, open_still = self._gather()
            if writes:
                self._commit(writes)
                self._tell(writes)
        self._database.close()

    def _gather(self) -> tuple[list[_Write], bool]:
        """Return all queued writes, at least one, and whether to continue after them."""
        writes: list[_Write] = []
        item = self._waiting.get()
        while item is not None:
            writes.append(item)
            if len(writes) >= _BATCH_WRITES:
                return writes, True
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return writes, True
        return writes, False

    def _commit(self, writes: list[_Write]) -> None:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            version = last_version(self._database)
            for write in writes:
                version = self._attempt(write, version)
            self._compact()
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            self._tell_log(str(error))
            self._give_up(writes, ServiceUnavailable(f"the store cannot write: {error}"))
        except Exception:  # without this thread all later writes would wait forever
            _log.failure("writing failed")
            self._give_up(writes, InternalError("the store failed, see the log"))
        else:
            self._tell_log("")

    def _give_up(self, writes: list[_Write], refusal: APIError) -> None:
        if self._database.in_transaction:
            try:
                self._database.execute("ROLLBACK")
            except sqlite3.Error as worse:
                _log.error("the store cannot roll back: {error}", error=worse)
        for write in writes:
            write.error = refusal

    def _tell_log(self, problem: str) -> None:
        """Log a problem once when it starts and once when it ends."""
        previous, self._problem = self._problem, problem
        if problem and problem != previous:
            _log.error("the store cannot write: {problem}", problem=problem)
        elif previous and not problem:
            _log.info("the store can write again")

    def _attempt(self, write: _Write, version: int) -> int:
        """Execute one write, or record its error; return the latest version."""
        if write.change == _PROBE:
            touch(self._database)
            return version
        try:
            self._check(write)
        except APIError as refusal:
            write.error = refusal
            return version
        write.version = version + 1
        table, (namespace, name) = history.table_of(write.resource), history.key_of(write.obj)
        where = (table, namespace, name)
        after = write.obj if write.change != DELETED else self._last_state(where)
        write.stored = history.versioned(after, write.version)
        body = write.stored.json.decode("ascii")
        self._database.execute(
            "INSERT INTO log (version, resource, type, body, previous) VALUES (?, ?, ?, ?, "
            "(SELECT body FROM objects WHERE resource = ? AND namespace = ? AND name = ?))",
            (write.version, table, write.change, body, *where),
        )
        if write.change == DELETED:
            self._database.execute(
                "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", where
            )
        else:
            self._database.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
                (*where, write.obj["metadata"]["uid"], write.version, body),
            )
        return write.version

    def _check(self, write: _Write) -> None:
        row = self._database.execute(
            "SELECT uid, version FROM objects WHERE resource = ? AND namespace = ? AND name = ?",
            (history.table_of(write.resource), *history.key_of(write.obj)),
        ).fetchone()
        if write.change == ADDED:
            history.check_absent(write.resource, write.obj, row)
        else:
            uid, version = row or (None, 0)
            history.check_current(write.resource, write.obj, uid, str(version))

    def _last_state(self, where: tuple[str, str, str]) -> Object:
        (body,) = self._database.execute(
            "SELECT body FROM objects WHERE resource = ? AND namespace = ? AND name = ?", where
        ).fetchone()
        last: Object = json.loads(body)
        return last

    def _compact(self) -> None:
        """Delete log rows of changes that memory has forgotten."""
        forgotten = self._forgotten()
        if forgotten > self._compacted:
            self._database.execute("DELETE FROM log WHERE version <= ?", (forgotten,))
            self._compacted = forgotten

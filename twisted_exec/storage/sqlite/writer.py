"""
The thread that writes to the SQLite file.

On a full disk it commits one write at a time, in the place of the reserve
(:class:`~twisted_exec.storage.sqlite.reserve.Reserve`), if it is a deletion or an update that does not
grow.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.display import reason_of
from twisted_exec.api.encoded import Encoded
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    InsufficientStorage,
    InternalError,
    ServiceUnavailable,
)
from twisted_exec.program.service import SUMMARY
from twisted_exec.storage import history, write_checks
from twisted_exec.storage.interfaces import ADDED, DELETED, Object
from twisted_exec.storage.sqlite.database import (
    checkpoint,
    forget_log,
    last_version,
    read_state,
    shrink,
    touch,
    write_state,
)
from twisted_exec.storage.sqlite.files import DatabaseFiles
from twisted_exec.storage.sqlite.record import Acknowledged, VersionRecord
from twisted_exec.storage.sqlite.reserve import Reserve

PROBE = "PROBE"
"""The change of a write that changes nothing, see :meth:`IStorage.probe`."""

_BATCH_WRITES = 512
_BATCH_BYTES = 1 << 20
_CHECKPOINT_BYTES = 2 << 20
"""JSON after which the changes go from the write-ahead log to the file."""

_TRANSACTION_BYTES = 16 << 10
"""Bytes that a transaction writes beside the objects."""
_WRITE_BYTES = 4 << 10
"""Bytes that a write adds beside its object."""
_PARTS, _LARGEST_PARTS = 8, 5
"""
Parts of the reserve, and how many of them one object may need.

Before a transaction the log has one part, the transaction has one and its last object up to five;
deletions on the full disk have the rest.
"""

_FULL = (
    "the disk of the store is full: delete objects, or free space on the disk of the server; "
    "until then only deletions and updates that do not grow are possible"
)

_FULL_AT_END = "the disk of the store is full: free space on it before the next start"

_TOO_LARGE = "the object is too large for the disk of the store: make it smaller, or use a larger disk for the server"

_LOST = "its files were removed or replaced while the server runs; tell the operator of the server"
_LOST_REMEDY = (
    "the store writes nothing until the files are back.  Objects can still be read, from memory: "
    "save what no backup has (kubectl get -o yaml), stop the server, and restore a backup with "
    "twisted-exec restore"
)

_log = Logger()


@dataclass
class Write:
    """One write on its way through the writer thread."""

    change: str
    resource: Resource
    obj: Object
    done: Deferred[Object] = field(default_factory=Deferred)
    version: int = 0
    stored: Encoded | None = None
    """The object as the writer thread wrote it, with its JSON."""
    error: APIError | None = None
    cost: int = 0
    """Bytes that it adds to the write-ahead log, about."""
    limit: str = ""
    """Result of :meth:`IStorage.probe`: which writes are refused now, if any."""


class OpenStore:
    """
    A database in use, with the files beside it.

    :raises sqlite3.Error: it cannot be written.
    """

    def __init__(
        self, path: str, database: sqlite3.Connection, record: VersionRecord, reserve: Reserve
    ) -> None:
        self.database, self.reserve, self._record = database, reserve, record
        self._path, self._identity = path, read_state(database)["identity"]
        # In the file itself, so that a copy of it without its -wal is recognized.
        write_state(database, "open", "yes")
        self.files = DatabaseFiles(path)
        self.checkpoint()
        self.acknowledge(last_version(database))

    def checkpoint(self) -> None:
        """
        Bring changes from the write-ahead log into the file.

        :raises sqlite3.Error: such as if the disk is full.
        """
        try:
            checkpoint(self.database)
        finally:
            self.files.note()

    def log_bytes(self) -> int:
        try:
            return os.stat(f"{self._path}-wal").st_size
        except OSError:
            return 0  # the next write finds out that it was removed

    def shrink(self) -> bool:
        """Give some unused pages back to the disk; return whether there were any."""
        try:
            return shrink(self.database)
        finally:
            self.files.note()

    def acknowledge(self, version: int, *, durable: bool = False) -> None:
        """Record that the versions up to this version are in the database."""
        self.files.note()
        try:
            self._record.write(Acknowledged(self._identity, version), durable=durable)
        except OSError as error:
            _log.warn(
                "cannot record version {version}: {why}", version=version, why=reason_of(error)
            )

    def _note_closed(self) -> None:
        try:
            write_state(self.database, "open", "no")
        except sqlite3.Error as error:
            if self.reserve.problem(error):
                raise
            self.reserve.release()
            write_state(self.database, "open", "no")
        self.acknowledge(last_version(self.database), durable=True)

    def close(self) -> None:
        """Close the files."""
        try:
            if not self.files.problem():
                self._note_closed()
        except sqlite3.Error as error:
            why = self.reserve.problem(error) or _FULL_AT_END
            _log.error("cannot close the store properly: {why}", why=why)
        self.database.close()
        self.files.close()
        self.reserve.fill()  # for the next start
        self._record.close()


class WriterThread:
    """The writer thread, in which also ``forgotten`` and ``tell`` are called."""

    def __init__(
        self,
        store: OpenStore,
        waiting: queue.Queue[Write | None],
        forgotten: Callable[[], int],
        tell: Callable[[Sequence[Write]], None],
    ) -> None:
        self._store = store
        self._database = store.database
        self._reserve = store.reserve
        self._waiting = waiting
        self._forgotten = forgotten
        self._tell = tell
        self._compacted = forgotten()
        self._problem = ""
        self._full = False
        self._unsaved = 0

    def run(self) -> None:
        """Commit until a ``None`` comes, then close the database."""
        self._full = not self._reserve.fill()
        open_still = True
        while open_still:
            writes, open_still = self._gather()
            if writes:
                self._commit(writes)
                self._tell(writes)
        self._store.close()

    def _gather(self) -> tuple[list[Write], bool]:
        writes: list[Write] = []
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

    def _commit(self, writes: list[Write]) -> None:
        problem = self._store.files.problem()
        if problem:
            self._tell_log(f"{problem}: {_LOST_REMEDY}")
            _refuse(writes, ServiceUnavailable(f"the store cannot write: {_LOST}"))
            return
        waiting = deque(writes)
        self._leave_full()
        if self._full:
            self._reserve.release()
        while waiting:
            batch: list[Write] = []
            try:
                self._transact(waiting, batch)
            except sqlite3.Error as error:
                self._roll_back()
                problem = self._reserve.problem(error)
                if not problem and not self._full:
                    self._enter_full(error)
                    waiting.extendleft(reversed(batch))
                else:
                    problem = f"the store cannot write: {problem or error}"
                    self._tell_log(problem)
                    _refuse(batch, ServiceUnavailable(problem))
            except Exception:  # without this thread all later writes would wait forever
                _log.failure("writing failed")
                self._roll_back()
                _refuse(batch, InternalError("the store failed, see the log"))
        self._leave_full()

    def _transact(self, waiting: deque[Write], batch: list[Write]) -> None:
        batch.append(waiting.popleft())
        part = self._reserve.size // _PARTS
        if self._store.log_bytes() > part:
            self._store.checkpoint()
            self._unsaved = 0
        self._database.execute("BEGIN IMMEDIATE")
        version = self._attempt(batch[0], last_version(self._database))
        size, cost = _size(batch[0]), batch[0].cost
        while waiting and size < _BATCH_BYTES and cost < part and not self._full:
            batch.append(waiting.popleft())
            version = self._attempt(batch[-1], version)
            size, cost = size + _size(batch[-1]), cost + batch[-1].cost
        self._compact()
        self._database.execute("COMMIT")
        # After the commit and without a sync of its own: the record may lag behind the database
        # after a power failure, but is never ahead.
        self._store.acknowledge(version)
        if not self._full:
            self._tell_log("")
        self._save(size)

    def _save(self, size: int) -> None:
        """
        Bring changes into the file when there are enough.

        SQLite would do so, too, but hide a failure.
        """
        self._unsaved += size + _TRANSACTION_BYTES
        if self._unsaved < _CHECKPOINT_BYTES and not self._full:
            return
        try:
            self._store.checkpoint()
            self._unsaved = 0
        except sqlite3.Error as error:
            if problem := self._reserve.problem(error):
                self._tell_log(f"the store cannot write: {problem}")
            elif not self._full:
                self._enter_full(error)

    def _enter_full(self, error: sqlite3.Error) -> None:
        self._full = True
        self._reserve.release()
        self._tell_log(f"{_FULL} ({error})")

    def _leave_full(self) -> None:
        if not self._full:
            return
        try:
            self._store.checkpoint()
            self._full = not (self._reserve.fill() or self._shrink())
        except sqlite3.Error:
            self._reserve.fill()

    def _shrink(self) -> bool:
        """Give unused parts of the file back to the disk; return whether that is enough."""
        while True:
            self._reserve.release()  # moving pages needs space, too
            shrunk = self._store.shrink()
            if self._reserve.fill():
                return True
            if not shrunk:
                return False

    def _roll_back(self) -> None:
        if self._database.in_transaction:
            try:
                self._database.execute("ROLLBACK")
            except sqlite3.Error as worse:
                _log.error("the store cannot roll back: {error}", error=worse)

    def _tell_log(self, problem: str) -> None:
        previous, self._problem = self._problem, problem
        if problem and problem != previous:
            _log.error("{problem}", problem=problem)
        elif previous and not problem:
            _log.info("the store can write again", **{SUMMARY: True})

    def _attempt(self, write: Write, version: int) -> int:
        write.error, write.cost = None, 0
        if write.change == PROBE:
            touch(self._database)
            write.limit = _FULL if self._full else ""
            return version
        try:
            previous = self._check(write)
        except APIError as refusal:
            # Its traceback would keep the objects of the whole transaction as long as the error.
            write.error = refusal.with_traceback(None)
            return version
        write.version = version + 1
        table, (namespace, name) = history.table_of(write.resource), history.key_of(write.obj)
        where = (table, namespace, name)
        after = write.obj if write.change != DELETED else self._last_state(where)
        write.stored = write_checks.versioned(after, write.version)
        body = write.stored.json.decode("ascii")
        cost = 2 * len(body) + previous + _WRITE_BYTES  # in both tables
        is_too_large = cost > self._reserve.size // _PARTS * _LARGEST_PARTS
        if self._full or is_too_large:
            if write.change != DELETED and len(body) > previous:
                message = _FULL if self._full else _TOO_LARGE
                write.error = InsufficientStorage(message)
                return version
            # Without a row of the log, and without the previous rows, it needs no space in the
            # database.
            forget_log(self._database, write.version)
        else:
            self._log_change(write, where, body)
            write.cost = cost
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

    def _log_change(self, write: Write, where: tuple[str, str, str], body: str) -> None:
        self._database.execute(
            "INSERT INTO log (version, resource, type, body, previous) VALUES (?, ?, ?, ?, "
            "(SELECT body FROM objects WHERE resource = ? AND namespace = ? AND name = ?))",
            (write.version, where[0], write.change, body, *where),
        )

    def _check(self, write: Write) -> int:
        row = self._database.execute(
            "SELECT uid, version, length(body) FROM objects "
            "WHERE resource = ? AND namespace = ? AND name = ?",
            (history.table_of(write.resource), *history.key_of(write.obj)),
        ).fetchone()
        uid, version, size = row or (None, 0, 0)
        if write.change == ADDED:
            write_checks.check_absent(write.resource, write.obj, row and row[:2])
        else:
            write_checks.check_current(write.resource, write.obj, uid, str(version))
        return int(size)

    def _last_state(self, where: tuple[str, str, str]) -> Object:
        (body,) = self._database.execute(
            "SELECT body FROM objects WHERE resource = ? AND namespace = ? AND name = ?", where
        ).fetchone()
        last: Object = json.loads(body)
        return last

    def _compact(self) -> None:
        forgotten = self._forgotten()
        if forgotten > self._compacted:
            self._database.execute("DELETE FROM log WHERE version <= ?", (forgotten,))
            self._compacted = forgotten


def _size(write: Write) -> int:
    return 0 if write.stored is None else len(write.stored.json)


def _refuse(writes: list[Write], refusal: APIError) -> None:
    for write in writes:
        write.error = refusal

"""
Backup and restore of the SQLite store.

A backup is one database file.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from urllib.parse import quote

from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.database import (
    check_complete,
    check_program,
    explain,
    forget_log,
    last_version,
    read_state,
    write_state,
)
from twisted_exec.storage.sqlite.record import Acknowledged, VersionRecord, read_record, state_path

SKIPPED_VERSIONS = 1_000_000_000
"""
Distance of the versions after a restore from those before.

Clients may have seen versions that the backup lacks.  The distance is that of etcd's documentation.
"""

_STEP_PAGES = 1024
_BUSY_SECONDS = 10.0


@dataclass(frozen=True)
class Summary:
    """The content of a backup or of a restored store."""

    objects: int
    version: int


def back_up(path: str, target: str, *, force: bool = False) -> Summary:
    """
    Copy a store's database, which a server may use meanwhile.

    :param target: path of the backup, which appears when it is complete and verified, with mode 0600.
    :param force: replace a file that exists.
    :raises StorageError: ``path`` is no usable store, or ``target`` exists without ``force`` or cannot be
        written.
    """
    if os.path.exists(target) and os.path.exists(path) and os.path.samefile(path, target):
        raise StorageError(f"{target} is the store itself: choose another file for the backup")
    return _create(target, force, lambda copy: _copy(path, copy))


def restore(backup: str, path: str, *, force: bool = False, accept_loss: bool = False) -> Summary:
    """
    Replace a store's database by a backup, while no server uses it.

    The store gets a new identity, and its versions continue far above the earlier ones.

    :param backup: a backup, or another store's database, or the store's own to continue after a
        loss.
    :param accept_loss: accept a backup from which acknowledged changes are missing.
    :raises StorageError: a server uses the store, or for a reason of :func:`back_up`.
    """
    record = VersionRecord(path)
    record.lock()
    try:
        known = read_record(path)
        floor = max(known.version if known else 0, _last_version_at(path))
        identity = secrets.token_hex(16)

        def copy(target: str) -> None:
            _copy(backup, target, accept_loss=accept_loss)
            _start_new_history(target, identity, floor)

        # The log belongs to the former database: beside the new one it would damage it.
        leftovers = [f"{path}-wal", f"{path}-shm"]
        summary = _create(path, force, copy, leftovers)
        try:
            record.clear()
            record.write(Acknowledged(identity, summary.version), durable=True)
        except OSError as error:
            raise StorageError(f"cannot write {state_path(path)}: {error.strerror}") from None
        return summary
    finally:
        record.close()


def _create(
    target: str, force: bool, fill: Callable[[str], None], leftovers: Sequence[str] = ()
) -> Summary:
    _check_absent(target, force)
    partial = f"{target}.{secrets.token_hex(4)}.partial"
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        fill(partial)
        summary = _verify(partial)
        # Another program may have created it meanwhile.
        _check_absent(target, force)
        for path in leftovers:
            with suppress(FileNotFoundError):
                os.remove(path)
        os.rename(partial, target)
        # The new name is durable only after a sync of its directory (fsync(2)).
        _sync(os.path.dirname(target) or ".")
    except OSError as error:
        directory = os.path.dirname(os.path.abspath(target))
        why = error.strerror
        if isinstance(error, FileNotFoundError) and not os.path.isdir(directory):
            # Not created here: a backup below a wrong path is a lost backup.
            why = f"its directory does not exist; create it: install -d -m 700 {shlex.quote(directory)}"
        raise StorageError(f"cannot write {target}: {why}") from None
    except sqlite3.Error as error:
        raise StorageError(f"cannot write {target}: {error}") from None
    finally:
        for path in (partial, f"{partial}-journal"):
            # A target that cannot be written is already reported.
            with suppress(OSError):
                os.remove(path)
    return summary


def _check_absent(target: str, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise StorageError(f"{target} exists already: give --force to replace it")


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy(path: str, target: str, *, accept_loss: bool = False) -> None:
    with (
        closing(_open_at_one_moment(path, accept_loss)) as source,
        closing(_open_to_write(target)) as copy,
    ):
        try:
            source.backup(copy, pages=_STEP_PAGES)
        except sqlite3.Error as error:
            raise StorageError(explain(path, error)) from None
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        write_state(copy, "open", "no")


def open_backup(path: str, *, accept_loss: bool = False) -> sqlite3.Connection:
    """
    Open a backup, or the database of a stopped server, to read it as of one moment.

    :param accept_loss: accept that acknowledged changes are missing, and that a server uses the file.
    :raises StorageError: ``path`` is no usable store, or a server uses it.
    """
    database = _open_at_one_moment(path, accept_loss)
    try:
        if read_state(database).get("open") == "yes" and not accept_loss:
            raise StorageError(
                f"a server uses {path}, or was killed: stop it, and make a backup (twisted-exec backup {path} FILE)"
            )
        _check_integrity(database)
    except (StorageError, sqlite3.Error) as error:
        database.close()
        raise (
            error if isinstance(error, StorageError) else StorageError(explain(path, error))
        ) from None
    return database


def _open_at_one_moment(path: str, accept_loss: bool) -> sqlite3.Connection:
    # Before the database is opened, so that a running server is never behind its record.
    record, has_log = read_record(path), os.path.exists(f"{path}-wal")
    source = _open_to_read(path)
    try:
        # The transaction is the moment; without it a copy would start over after each write.
        source.execute("BEGIN")
        if not check_program(source, path):
            raise StorageError(f"{path} is empty, and not a store")
        if not accept_loss:
            check_complete(source, path, record, has_log)
    except sqlite3.Error as error:
        source.close()
        raise StorageError(explain(path, error)) from None
    except StorageError:
        source.close()
        raise
    return source


def _open_to_read(path: str) -> sqlite3.Connection:
    if not os.path.isfile(path):
        raise StorageError(f"{path} does not exist, or is not a file")
    try:
        # Read-only, so that closing it does not end the log of a store that crashed.
        address = f"file:{quote(os.path.abspath(path))}?mode=ro"
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        raise StorageError(explain(path, error)) from None


def _open_to_write(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _last_version_at(path: str) -> int:
    """Return the last version of the database at a path; 0 if there is no usable one."""
    try:
        with closing(_open_to_read(path)) as database:
            return last_version(database)
    except (sqlite3.Error, StorageError):
        return 0


def _start_new_history(path: str, identity: str, floor: int) -> None:
    with closing(_open_to_write(path)) as database:
        database.execute("BEGIN")
        version = max(floor, last_version(database)) + SKIPPED_VERSIONS
        forget_log(database, version)
        write_state(database, "identity", identity)
        database.execute("COMMIT")


def _check_integrity(database: sqlite3.Connection) -> None:
    result = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if result != "ok":
        raise StorageError(f"the database is damaged: {result}")


def _verify(path: str) -> Summary:
    """Check a complete copy, make it durable, and return its content."""
    with closing(_open_to_write(path)) as database:
        _check_integrity(database)
        (objects,) = database.execute("SELECT count(*) FROM objects").fetchone()
        summary = Summary(objects, last_version(database))
    _sync(path)
    return summary

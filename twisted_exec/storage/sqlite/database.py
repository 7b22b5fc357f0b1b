"""
The SQLite store's file: its tables, and how it is opened, checked and compacted.

``objects`` holds the current objects, and ``log`` changes; the resourceVersion of a change is its
number there.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from urllib.parse import quote

from twisted_exec.api.display import reason_of
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.record import Acknowledged, in_use, state_path
from twisted_exec.tls.files import warn_if_public

SCHEMA_VERSION = 1
"""Version of the tables, in the file as ``user_version``."""

_APPLICATION_ID = 0x74784578  # "txEx"
_STATE_TABLE = "CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_SHRINK_PAGES = 256
_SCHEMA = f"""
BEGIN EXCLUSIVE;
CREATE TABLE objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE log (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    resource TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, previous TEXT
);
{_STATE_TABLE};
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


def open_database(path: str) -> sqlite3.Connection:
    """
    Open a store's file; create it if it is missing.

    :raises StorageError: it cannot be used.
    """
    try:
        # Objects may hold secrets.  SQLite copies the mode to its -wal and -shm files.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        mode = os.fstat(handle).st_mode
        os.close(handle)
        # The writer thread uses it, too.  Transactions are explicit: Python's module would begin
        # some by itself.
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        reason = reason_of(error)
        raise StorageError(f"cannot open the store {path}: {reason}") from None
    try:
        _prepare(database, path)
    except sqlite3.Error as error:
        database.close()
        raise StorageError(explain(path, error)) from error
    except StorageError:
        database.close()
        raise
    warn_if_public(path, mode)
    return database


def explain(path: str, error: sqlite3.Error) -> str:
    """Return the message for a file that SQLite cannot open."""
    if "locked" in str(error):
        return in_use(path)
    if _code(error) == sqlite3.SQLITE_CORRUPT:
        return f"{path} is damaged: {error}"
    return f"{path} cannot be used as a store: {error}"


def _code(error: sqlite3.Error) -> int | None:
    extended = getattr(error, "sqlite_errorcode", None)
    # The lowest byte is the primary result code (sqlite.org/rescode.html).
    return None if extended is None else extended & 0xFF


def _prepare(database: sqlite3.Connection, path: str) -> None:
    if not os.path.getsize(path):  # later this needs the whole file to be rewritten
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    tables = check_program(database, path)
    database.execute("PRAGMA journal_mode = WAL")
    # With a write-ahead log NORMAL would not sync each commit.
    database.execute("PRAGMA synchronous = FULL")
    # The writer does this, to learn of failures.
    database.execute("PRAGMA wal_autocheckpoint = 0")
    # Overwrite freed pages only where that writes nothing more.
    database.execute("PRAGMA secure_delete = FAST")
    if not tables:
        database.executescript(_SCHEMA)
    database.execute("INSERT OR IGNORE INTO state VALUES ('identity', ?)", (secrets.token_hex(16),))


def check_file(path: str) -> None:
    """
    Check whose file it is before anything of it is changed; a file without tables is nobody's.

    :raises StorageError: see :func:`check_program`.
    """
    # Without a log, an ordinary reader would leave an empty one behind; with it, an index at most.
    immutable = int(not os.path.exists(f"{path}-wal"))
    address = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable={immutable}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            check_program(database, path)
    except sqlite3.Error:
        pass  # missing or damaged: opening it says so


def check_program(database: sqlite3.Connection, path: str) -> set[str]:
    """
    Return the names of the tables and indexes, none for a new file.

    :raises StorageError: the file is another program's, a newer version's, or only release 0.1.0 has
        used it.
    """
    version = _pragma(database, "user_version")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"the store {path} was written by a newer version (schema {version}, this program "
            f"knows {SCHEMA_VERSION}): upgrade twisted-exec, or choose another file"
        )
    if tables and _pragma(database, "application_id") != _APPLICATION_ID:
        raise StorageError(f"{path} is a database of another program: choose another file")
    if tables and "state" not in tables:
        raise StorageError(
            f"only release 0.1.0 has used the store {path}: start release 0.2.0 with it once, "
            "then this release"
        )
    return tables


def check_complete(
    database: sqlite3.Connection, path: str, record: Acknowledged | None, log: bool
) -> None:
    """
    Compare a database with its record.

    :param log: whether there was a write-ahead log before the database was opened.
    :raises StorageError: acknowledged changes are missing, or it is another database.
    """
    remedy = (
        f"put the files back, restore a backup (twisted-exec restore BACKUP {path} --force), or "
        f"continue with what is left (twisted-exec restore {path} {path} --force --accept-loss)"
    )
    state = read_state(database)
    if record is None:
        if state.get("open") == "yes" and not log:
            raise StorageError(f"{path} was in use, and its {path}-wal is missing: {remedy}")
        return
    if record.identity != state.get("identity"):
        raise StorageError(f"{path} is not the database of {state_path(path)}: {remedy}")
    version = last_version(database)
    # SQLite cannot tell that its write-ahead log was removed or cut: it shows an earlier state.
    if version < record.version:
        raise StorageError(
            f"{path} ends at version {version}, but version {record.version} was acknowledged: its "
            f"{path}-wal is {'incomplete' if log else 'missing'}: {remedy}"
        )


def read_state(database: sqlite3.Connection) -> dict[str, str]:
    """Return the properties of a database."""
    return dict(database.execute("SELECT name, value FROM state").fetchall())


def write_state(database: sqlite3.Connection, name: str, value: str) -> None:
    """Set a property of a database."""
    database.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def _pragma(database: sqlite3.Connection, name: str) -> int:
    (value,) = database.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def checkpoint(database: sqlite3.Connection) -> None:
    """
    Bring changes from the write-ahead log into the file, as far as readers of it allow.

    :raises sqlite3.Error: such as if the disk is full.
    """
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def shrink(database: sqlite3.Connection) -> bool:
    """Give some unused pages back to the disk; return whether there were any."""
    before = _pragma(database, "page_count")
    # execute() would free one page: the statement has to be stepped, and has no rows.
    database.executescript(f"PRAGMA incremental_vacuum({_SHRINK_PAGES})")
    checkpoint(database)
    return _pragma(database, "page_count") < before


def forget_log(database: sqlite3.Connection, version: int) -> None:
    """Delete the log, and set the latest version: earlier versions then have expired."""
    database.execute("DELETE FROM log")
    database.execute("DELETE FROM sqlite_sequence WHERE name = 'log'")
    # AUTOINCREMENT continues behind this number.
    database.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('log', ?)", (version,))


def touch(database: sqlite3.Connection) -> None:
    """Write an unchanged value, to learn whether writes fail."""
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def last_version(database: sqlite3.Connection) -> int:
    """Return the resourceVersion of the latest change, 0 for none."""
    row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'log'").fetchone()
    return 0 if row is None else int(row[0])

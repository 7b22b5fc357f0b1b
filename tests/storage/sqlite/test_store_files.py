"""
Tests for the files of :mod:`twisted_exec.storage.sqlite.store`: who may open them, and what is lost with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import sys
from pathlib import Path

from twisted.internet import error, protocol, reactor
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, machine
from tests.storage.sqlites import SQLiteStores
from tests.tiers import PROGRAMS
from twisted_exec.api.status import (
    ServiceUnavailable,
)
from twisted_exec.storage.interfaces import StorageError

_SCHEMA_OF_0_1 = """
CREATE TABLE objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE log (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    resource TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, previous TEXT
);
PRAGMA application_id = 1954039160;
PRAGMA user_version = 1;
"""


def make_store_of_0_1(path: str, *, is_killed: bool = False, is_new: bool = False) -> None:
    """
    Make a file with one machine, as release 0.1.0 made it.

    :param is_killed: the server did not close it, so a write-ahead log is beside it.
    :param is_new: that log was never moved into the file.
    """
    made = f"{path}.0.1" if is_killed else path
    with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA_OF_0_1} COMMIT;")
        obj = machine("a")
        obj["metadata"] |= {"resourceVersion": "1", "uid": "u"}
        row, body = (MACHINES.qualified, "default", "a"), json.dumps(obj)
        database.execute("INSERT INTO log VALUES (1, ?, 'ADDED', ?, NULL)", (row[0], body))
        database.execute("INSERT INTO objects VALUES (?, ?, ?, 'u', 1, ?)", (*row, body))
        if is_killed:
            if not is_new:
                database.execute("PRAGMA wal_checkpoint(PASSIVE)")
            database.execute("UPDATE objects SET uid = 'u'")
            for end in ("", "-wal"):
                shutil.copy(made + end, path + end)
    if is_killed:
        os.remove(made)


class FileTests(SQLiteStores, TestCase):
    """Files that are not a store are refused in one line."""

    def setUp(self) -> None:
        self.path = self.mktemp()

    def refusal(self) -> str:
        with self.assertRaises(StorageError) as caught:
            self.open()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    async def test_private(self) -> None:
        """Only the owner can read the file and what SQLite puts beside it."""
        storage = self.open()
        await storage.create(MACHINES, machine("a"))
        for path in (self.path, f"{self.path}-wal"):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    async def test_public(self) -> None:
        """A file that every user can read is used, and a warning names the remedy."""
        await self.open().stopService()
        os.chmod(self.path, 0o644)
        with capturedLogs() as events:
            self.open()
        (line,) = [formatEvent(event) for event in events if "chmod" in formatEvent(event)]
        self.assertIn(f"{self.path!r} can be read by every user of this host (mode 644)", line)

    async def test_second_server(self) -> None:
        """Two servers never share a file."""
        self.open()
        self.assertIn("is in use by another server", self.refusal())

    async def test_newer_version(self) -> None:
        """A file of a newer version is left alone."""
        await self.open().stopService()
        database = sqlite3.connect(self.path)
        database.execute("PRAGMA user_version = 99")
        database.close()
        before = Path(self.path).read_bytes()
        self.assertIn("was written by a newer version (schema 99", self.refusal())
        self.assertEqual(Path(self.path).read_bytes(), before)

    def test_release_0_1(self) -> None:
        """A file that only release 0.1.0 has opened is left alone, and release 0.2.0 is the way."""
        for is_killed, is_new in ((False, False), (True, False), (True, True)):
            directory = Path(self.mktemp())
            directory.mkdir()
            self.path = str(directory / "objects.db")
            make_store_of_0_1(self.path, is_killed=is_killed, is_new=is_new)
            before = {each.name: each.read_bytes() for each in directory.iterdir()}
            self.assertEqual(
                self.refusal(),
                f"only release 0.1.0 has used the store {self.path}: start release 0.2.0 with it once, "
                "then this release",
            )
            after = {each.name: each.read_bytes() for each in directory.iterdir()}
            after.pop("objects.db-shm", None)  # an index of the log, which SQLite makes again
            self.assertEqual(after, before)
            self.assertEqual("objects.db-wal" in before, is_killed)

    async def test_taken_over(self) -> None:
        """A file of release 0.1.0 that release 0.2.0 has opened is read, with its objects."""
        make_store_of_0_1(self.path)
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            # What release 0.2.0 adds when it opens the file.
            database.execute("CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            database.execute(
                "INSERT INTO state VALUES ('identity', ?), ('open', 'no')", ("0" * 32,)
            )
        (obj,) = (await self.open().list(MACHINES)).items
        self.assertEqual(obj["metadata"]["name"], "a")

    def test_another_program(self) -> None:
        """A database of another program is left alone."""
        database = sqlite3.connect(self.path)
        database.execute("CREATE TABLE notes (text)")
        database.close()
        self.assertIn("database of another program", self.refusal())

    def test_not_a_database(self) -> None:
        """A file that is no database is left alone."""
        Path(self.path).write_bytes(b"not a database, " * 100)
        self.assertIn("file is not a database", self.refusal())

    def test_no_directory(self) -> None:
        """A path that cannot be opened is named."""
        self.path = "/nonexistent/state.db"
        self.assertIn("cannot open the store /nonexistent/state.db: No such file", self.refusal())

    async def test_damaged_object(self) -> None:
        """A file with an unreadable object says so."""
        storage = self.open()
        for name in "abc":
            await storage.create(MACHINES, machine(name))
        await storage.stopService()
        database = sqlite3.connect(self.path)
        # Python refuses to read a number of more than 4300 digits, and says how to let it.
        # Some would be read, as other objects, if they were not compared with the number of rows.
        for body in ("{", '{"metadata": ' + "9" * 5000 + "}", "", "{},{}", "5", "[]", "[" * 5000):
            database.execute("UPDATE objects SET body = ? WHERE name = 'b'", (body,))
            database.commit()
            told = self.refusal()
            self.assertIn(f"is damaged: an object of {MACHINES.qualified} is no valid JSON", told)
            self.assertNotIn("sys.", told)
        database.close()


class LostFilesTests(SQLiteStores, TestCase):
    """A store whose files disappear while it runs writes nothing, and says so."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())
        self.storage = self.open()

    async def check(self, problem: str) -> None:
        """Writes and probes are refused, reads are not; the log has the problem once."""
        with capturedLogs() as events:
            for attempt in (
                lambda: self.storage.create(MACHINES, machine("b")),
                self.storage.probe,
            ):
                with self.assertRaises(ServiceUnavailable) as caught:
                    await attempt()
                self.assertIn("its files were removed or replaced", caught.exception.message)
        (line,) = [formatEvent(event) for event in events]
        self.assertIn(problem, line)
        self.assertIn("twisted-exec restore", line)
        self.assertEqual(len((await self.storage.list(MACHINES)).items), 1)

    async def test_removed(self) -> None:
        """The file is removed; when it is put back, writes continue."""
        await self.storage.create(MACHINES, machine("a"))
        os.rename(self.path, f"{self.path}.away")
        await self.check("was removed")
        os.rename(f"{self.path}.away", self.path)
        await self.storage.create(MACHINES, machine("b"))

    async def test_replaced(self) -> None:
        """Another file takes the name."""
        await self.storage.create(MACHINES, machine("a"))
        shutil.copy(self.path, f"{self.path}.copy")
        os.rename(f"{self.path}.copy", self.path)
        await self.check("was replaced by another file")

    async def test_overwritten(self) -> None:
        """Another database is written into the file."""
        await self.storage.create(MACHINES, machine("a"))
        Path(self.path).write_bytes(b"another program's".ljust(20_000))
        await self.check("was overwritten")

    async def test_log_removed(self) -> None:
        """The write-ahead log is removed."""
        await self.storage.create(MACHINES, machine("a"))
        os.remove(f"{self.path}-wal")
        await self.check("-wal was removed")

    async def test_log_cut(self) -> None:
        """The write-ahead log is cut."""
        await self.storage.create(MACHINES, machine("a"))
        os.truncate(f"{self.path}-wal", 100)
        await self.check("-wal was cut")


class LossTests(SQLiteStores, TestCase):
    """A store that lost acknowledged changes while no server ran does not start."""

    starts = PROGRAMS

    async def crash(self) -> None:
        """Leave the files as a killed server does."""
        running = os.path.abspath(self.mktemp())
        storage = self.open(running)
        for name in "abc":
            await storage.create(MACHINES, machine(name, text="x" * 10_000))
        self.path = os.path.abspath(self.mktemp())
        for end in ("", "-wal", "-state"):
            shutil.copy(running + end, self.path + end)

    def refusal(self) -> str:
        with self.assertRaises(StorageError) as caught:
            self.open()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    async def test_complete(self) -> None:
        """After a crash the store starts with all objects."""
        await self.crash()
        self.assertEqual(len((await self.open().list(MACHINES)).items), 3)

    async def test_log_removed(self) -> None:
        """Without its write-ahead log the store has lost changes, and says how to go on."""
        await self.crash()
        os.remove(f"{self.path}-wal")
        refusal = self.refusal()
        # What the log had may be in the store's file already.
        self.assertRegex(refusal, "ends at version [012], but version 3 was acknowledged")
        self.assertIn("-wal is missing", refusal)
        self.assertIn(f"twisted-exec restore BACKUP {self.path} --force", refusal)
        self.assertIn("--accept-loss", refusal)
        self.assertEqual(self.refusal(), refusal)

    async def test_log_cut(self) -> None:
        """A write-ahead log that ends early has lost changes."""
        await self.crash()
        log = f"{self.path}-wal"
        os.truncate(log, os.path.getsize(log) - 1)
        self.assertIn("ends at version 2, but version 3 was acknowledged", self.refusal())

    async def test_torn(self) -> None:
        """A torn log record of an unacknowledged write is ignored."""
        await self.crash()
        with open(f"{self.path}-wal", "ab") as log:
            log.write(b"x" * 5000)
        self.assertEqual(len((await self.open().list(MACHINES)).items), 3)

    async def test_copy_alone(self) -> None:
        """A copy of the database file of a running server is no backup."""
        await self.crash()
        os.remove(f"{self.path}-wal")
        os.remove(f"{self.path}-state")
        self.assertIn("was in use, and its", self.refusal())

    async def test_database_removed(self) -> None:
        """A missing database is not replaced by an empty one."""
        await self.crash()
        os.remove(self.path)
        os.remove(f"{self.path}-wal")
        self.assertIn("is missing: put it back", self.refusal())
        os.remove(f"{self.path}-state")
        self.assertEqual((await self.open().list(MACHINES)).items, [])

    async def test_another_database(self) -> None:
        """A database that was put in the place of the store is noticed."""
        await self.crash()
        path = self.mktemp()
        await self.open(path).stopService()
        shutil.copy(path, self.path)
        os.remove(f"{self.path}-wal")
        self.assertIn("is not the database of", self.refusal())

    async def test_no_record(self) -> None:
        """A copy of the database alone has no record, and is accepted."""
        self.path = os.path.abspath(self.mktemp())
        storage = self.open()
        await storage.create(MACHINES, machine("a"))
        await storage.stopService()
        os.remove(f"{self.path}-state")
        self.assertEqual(len((await self.open().list(MACHINES)).items), 1)


_KILLED = """
import os, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from tests.contracts.storage import MACHINES, machine
from twisted_exec.storage.sqlite.store import SQLiteStorage

async def write(storage, lane):
    turn = 0
    while True:
        await storage.create(MACHINES, machine(f"m-{lane}-{turn}"))
        # Not print(): a dying process must hold nothing back.
        os.write(1, b"m-%d-%d\\n" % (lane, turn))
        turn += 1

storage = SQLiteStorage(sys.argv[1], reactor)
storage.startService()
for lane in range(8):
    Deferred.fromCoroutine(write(storage, lane)).addErrback(
        lambda failure: (failure.printTraceback(), reactor.stop())
    )
reactor.run()
"""


class _Victim(protocol.ProcessProtocol):
    """Kills the process in the middle of its writing; fires with what it acknowledged."""

    def __init__(self) -> None:
        self.acknowledged = b""
        self.complaints = b""
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.acknowledged += data
        if self.acknowledged.count(b"\n") > 500:
            self.kill()

    def kill(self) -> None:
        try:
            self.transport.signalProcess("KILL")  # type: ignore[union-attr]
        except error.ProcessExitedAlready:
            pass

    def errReceived(self, data: bytes) -> None:
        self.complaints += data

    def processEnded(self, reason: object) -> None:
        self.ended.callback(None)


class KillTests(SQLiteStores, TestCase):
    """Losing the process loses nothing that was acknowledged."""

    starts = PROGRAMS
    exact = True

    async def test_kill(self) -> None:
        """A process killed while writing leaves every acknowledged object."""
        self.path = os.path.abspath(self.mktemp())
        victim = _Victim()
        root = str(Path(__file__).parents[3])
        reactor.spawnProcess(  # type: ignore[attr-defined]
            victim,
            sys.executable,
            [sys.executable, "-c", _KILLED, self.path],
            env={**os.environ, "PYTHONPATH": root},
            path=root,
        )
        self.addCleanup(victim.kill)
        await victim.ended
        acknowledged = victim.acknowledged.decode().splitlines(keepends=True)
        names = {line.strip() for line in acknowledged if line.endswith("\n")}
        self.assertGreater(len(names), 500, victim.complaints)
        found = {obj["metadata"]["name"] for obj in (await self.open().list(MACHINES)).items}
        self.assertLessEqual(names, found)

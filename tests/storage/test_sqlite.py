"""
Tests for :mod:`twisted_exec.storage.sqlite` and its file.
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

from twisted.internet import defer, error, protocol, reactor
from twisted.internet.defer import Deferred
from twisted.internet.utils import getProcessOutputAndValue, getProcessValue
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SkipTest, TestCase

from tests.contracts.storage import MACHINES, StorageContract, changed, machine
from twisted_exec.api.formats.encoded import json_of
from twisted_exec.api.status import (
    APIError,
    Expired,
    InsufficientStorage,
    InternalError,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.storage.interfaces import Event, StorageError
from twisted_exec.storage.quota import NO_LIMITS
from twisted_exec.storage.reserve import Reserve
from twisted_exec.storage.sqlite import SQLiteStorage


class _Opens:
    """Opens stores that end with the test."""

    remembered = 20
    remembered_bytes = 20_000
    limits = NO_LIMITS
    path: str

    def open(self, path: str | None = None) -> SQLiteStorage:
        storage = SQLiteStorage(
            path or self.path,
            reactor,  # type: ignore[arg-type]
            remembered=self.remembered,
            remembered_bytes=self.remembered_bytes,
            limits=self.limits,
        )
        storage.startService()
        self.addCleanup(storage.stopService)  # type: ignore[attr-defined]
        return storage


class SQLiteStorageTests(_Opens, StorageContract, TestCase):
    """The contract, on a disk."""

    async def make_storage(self) -> SQLiteStorage:
        return self.open(self.mktemp())


class CompanyTests(_Opens, TestCase):
    """Many watches of one store."""

    async def test_turns(self) -> None:
        """
        Each change reaches all watches in one step; many changes are spread over several turns.
        """
        storage = self.open(self.mktemp())
        order: list[str] = []

        def heard(event: Event) -> None:
            order.append(event.obj["metadata"]["name"])
            if len(order) == 1:
                reactor.callLater(0, order.append, "another")  # type: ignore[attr-defined]

        for _ in range(1000):
            storage.watch(MACHINES, 0, heard)
        await defer.gatherResults([storage.create(MACHINES, machine(name)) for name in "abc"])
        self.assertEqual(order[:1000], ["a"] * 1000)
        self.assertEqual(order[1000], "another")
        self.assertEqual(order[1001:], ["b"] * 1000 + ["c"] * 1000)

    async def test_stops_between(self) -> None:
        """A store that stops shows at once what it has written."""
        storage = self.open(self.mktemp())
        order: list[str] = []
        for _ in range(1000):
            storage.watch(MACHINES, 0, lambda event: order.append(event.obj["metadata"]["name"]))
        writes = [storage.create(MACHINES, machine(name)) for name in "abc"]
        await storage.stopService()
        self.assertEqual(order, ["a"] * 1000 + ["b"] * 1000 + ["c"] * 1000)
        await defer.gatherResults(writes)


class RestartTests(_Opens, TestCase):
    """A file reopened by the next process."""

    def setUp(self) -> None:
        self.path = self.mktemp()

    async def test_objects_and_versions(self) -> None:
        """Objects are found again, and versions go on counting, also after deletions."""
        before = self.open()
        kept = await before.create(MACHINES, machine("a", power="On"))
        gone = await before.delete(MACHINES, await before.create(MACHINES, machine("b")))
        await before.stopService()
        after = self.open()
        self.assertEqual(await after.get(MACHINES, "default", "a"), kept)
        self.assertEqual(after.version(), int(gone["metadata"]["resourceVersion"]))
        updated = await after.update(MACHINES, changed(kept, power="Off"))
        self.assertEqual(int(updated["metadata"]["resourceVersion"]), before.version() + 1)

    async def test_watch_goes_on(self) -> None:
        """A watch from before the restart hears the rest, each change with its predecessor."""
        before = self.open()
        first = await before.create(MACHINES, machine("a"))
        second = await before.update(MACHINES, changed(first, power="Off"))
        third = await before.delete(MACHINES, second)
        await before.stopService()
        events: list[Event] = []
        self.open().watch(MACHINES, int(first["metadata"]["resourceVersion"]), events.append)
        self.assertEqual(
            [(event.type, event.obj, event.previous) for event in events],
            [("MODIFIED", second, first), ("DELETED", third, second)],
        )

    async def test_each_state_once(self) -> None:
        """Events and lists share one object for each state."""
        before = self.open()
        stored = await before.create(MACHINES, machine("a"))
        stored = await before.update(MACHINES, changed(stored, power="On"))
        other = await before.create(MACHINES, machine("b"))
        await before.delete(MACHINES, other)
        await before.stopService()
        after, events = self.open(), list[Event]()
        after.watch(MACHINES, 0, events.append)
        made, switched, added, gone = events
        self.assertIs(switched.obj, (await after.list(MACHINES)).items[0])
        self.assertIs(switched.previous, made.obj)
        self.assertIs(gone.previous, added.obj)
        self.assertEqual(switched.obj, stored)
        for event in events:
            self.assertEqual(json.loads(json_of(event.obj)), event.obj)
            self.assertEqual(event.obj["metadata"]["resourceVersion"], str(event.version))

    async def test_forgotten_stays_forgotten(self) -> None:
        """Compacted versions have expired after a restart too, and the file stays small."""
        before = self.open()
        stored = await before.create(MACHINES, machine("a"))
        for turn in range(1000):
            stored = await before.update(MACHINES, changed(stored, turn=turn))
        await before.stopService()
        after = self.open()
        with self.assertRaises(Expired):
            after.watch(MACHINES, 1, lambda event: None)
        await after.stopService()
        rows = sqlite3.connect(self.path).execute("SELECT count(*) FROM log").fetchone()
        self.assertLess(rows[0], self.remembered + 600)

    async def test_large_changes_leave_the_file(self) -> None:
        """Changes that are forgotten because they are large are deleted from the file too."""
        before = self.open()
        stored = await before.create(MACHINES, machine("a"))
        for turn in range(50):
            stored = await before.update(MACHINES, changed(stored, turn=turn, text="x" * 9000))
        await before.stopService()
        with contextlib.closing(sqlite3.connect(self.path)) as database:
            (kept,) = database.execute("SELECT count(*) FROM log").fetchone()
        self.assertLess(kept, 10)
        self.assertEqual(await self.open().get(MACHINES, "default", "a"), stored)

    async def test_stopping_keeps_what_waits(self) -> None:
        """Writes accepted before the stop are on the disk; later ones are refused."""
        before = self.open()
        writes = [before.create(MACHINES, machine(f"m{turn}")) for turn in range(100)]
        stopping = before.stopService()
        with self.assertRaises(ServiceUnavailable):
            await before.create(MACHINES, machine("late"))
        await defer.gatherResults(writes)
        await stopping
        self.assertEqual(len((await self.open().list(MACHINES)).items), 100)


class SyncTests(_Opens, TestCase):
    """Acknowledged writes are on the disk, not only in a cache of the system."""

    def test_full(self) -> None:
        """Every commit is synchronized."""
        self.path = self.mktemp()
        writer = self.open()._writer
        assert writer is not None
        (level,) = writer._database.execute("PRAGMA synchronous").fetchone()
        self.assertEqual(level, 2)


class TroubleTests(_Opens, TestCase):
    """A store that cannot write says so, and goes on as soon as it can."""

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.storage = self.open()

    def allow_writes(self, allowed: bool) -> None:
        """Simulate a full disk, or one with free space again."""
        assert self.storage._writer is not None
        self.storage._writer._database.execute(f"PRAGMA query_only = {int(not allowed)}")

    async def refusal(self, name: str) -> str:
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.storage.create(MACHINES, machine(name))
        return caught.exception.message

    async def test_cannot_write(self) -> None:
        """
        While writes fail, each is refused; the log has one line at the begin and one at the end.
        """
        with capturedLogs() as events:
            self.allow_writes(False)
            for name in ("a", "b", "c"):
                self.assertIn("cannot write: attempt to write a readonly", await self.refusal(name))
            self.allow_writes(True)
            for name in ("a", "b"):
                await self.storage.create(MACHINES, machine(name))
        self.assertEqual(
            [formatEvent(event) for event in events],
            [
                "the store cannot write: attempt to write a readonly database",
                "the store can write again",
            ],
        )

    async def test_what_no_file_can_hold(self) -> None:
        """An object that cannot be stored, which is our bug, does not end the store."""
        with self.assertRaises(InternalError):
            await self.storage.create(MACHINES, machine("a", power=object()))
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
        await self.storage.create(MACHINES, machine("a"))


class FullTests(_Opens, TestCase):
    """A full disk refuses what grows, and nothing else."""

    remembered_bytes = 400_000

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.storage = self.open()

    def limit(self, pages: int) -> None:
        """Let the file grow by so many pages."""
        assert self.storage._writer is not None
        database = self.storage._writer._database
        (count,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {count + pages}")

    async def test_deletes(self) -> None:
        """In a full store, deletions and smaller updates still work and free space."""
        stored = [
            await self.storage.create(MACHINES, machine(name, text="x" * 100_000)) for name in "abc"
        ]
        self.limit(2)
        with self.assertRaises(APIError) as caught:
            await self.storage.create(MACHINES, machine("d", text="x" * 100_000))
        self.assertEqual(
            (caught.exception.code, caught.exception.reason), (507, "InsufficientStorage")
        )
        self.assertIn("delete objects, or free space on the disk", caught.exception.message)
        with self.assertRaises(InsufficientStorage):
            await self.storage.update(MACHINES, changed(stored[0], text="y" * 400_000))
        await self.storage.update(MACHINES, changed(stored[0], text="y" * 50_000))
        await self.storage.delete(MACHINES, stored[1])
        await self.storage.delete(MACHINES, stored[2])
        await self.storage.create(MACHINES, machine("d", text="x" * 10_000))

    async def test_together(self) -> None:
        """Of writes that are committed together only those that grow are refused."""
        stored = [
            await self.storage.create(MACHINES, machine(name, text="x" * 100_000)) for name in "ab"
        ]
        self.limit(2)
        outcomes = await defer.DeferredList(
            [
                self.storage.create(MACHINES, machine("c", text="x" * 100_000)),
                self.storage.delete(MACHINES, stored[0]),
                self.storage.delete(MACHINES, {**stored[1], "metadata": stored[0]["metadata"]}),
                self.storage.probe(),
            ],
            consumeErrors=True,
        )
        self.assertEqual([made for made, _ in outcomes], [False, True, False, True])
        outcomes[0][1].trap(InsufficientStorage)
        outcomes[2][1].trap(NotFound)

    async def test_after_a_restart(self) -> None:
        """Versions go on, and watches from before the full disk have expired."""
        stored = await self.storage.create(MACHINES, machine("a", text="x" * 100_000))
        await self.storage.create(MACHINES, machine("b"))
        self.limit(0)
        gone = await self.storage.delete(MACHINES, stored)
        await self.storage.stopService()
        again = self.open()
        self.assertEqual(again.version(), int(gone["metadata"]["resourceVersion"]))
        with self.assertRaises(Expired):
            again.watch(MACHINES, again.version() - 1, lambda event: None)
        self.assertEqual(len((await again.list(MACHINES)).items), 1)

    async def test_space_returns(self) -> None:
        """The file of an emptied store gets smaller when the disk was full."""
        stored = [
            await self.storage.create(MACHINES, machine(name, text="x" * 100_000))
            for name in "abcdef"
        ]
        assert self.storage._writer is not None
        self.storage._writer._reserve = Reserve(os.path.join(self.mktemp(), "none"))
        self.limit(0)
        for obj in stored:
            await self.storage.delete(MACHINES, obj)
        await self.storage.stopService()
        self.assertLess(os.stat(self.path).st_size, 100_000)

    async def test_earlier_file(self) -> None:
        """A file that was written before files could shrink is converted."""
        kept = await self.storage.create(MACHINES, machine("a"))
        await self.storage.stopService()
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            for statement in ("journal_mode = DELETE", "auto_vacuum = NONE"):
                database.execute(f"PRAGMA {statement}")
            database.execute("VACUUM")
        again = self.open()
        assert again._writer is not None
        (mode,) = again._writer._database.execute("PRAGMA auto_vacuum").fetchone()
        self.assertEqual(mode, 2)
        self.assertEqual(await again.get(MACHINES, "default", "a"), kept)


_FILL = """
import os, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from tests.contracts.storage import MACHINES, machine
from twisted_exec.api.status import InsufficientStorage
from twisted_exec.storage.sqlite import SQLiteStorage

async def fill(storage):
    stored = []
    try:
        while True:
            stored.append(await storage.create(MACHINES, machine(f"m-{len(stored)}", text="x" * 500_000)))
    except InsufficientStorage:
        print("full", flush=True)
    with open(sys.argv[1] + "/filler", "wb", buffering=0) as filler:
        try:
            while True:  # others take all the space that is left
                filler.write(b"x" * 4096)
        except OSError:
            pass
    for obj in stored:
        await storage.delete(MACHINES, obj)
    print("deleted", flush=True)
    await storage.create(MACHINES, machine("another", text="x" * 500_000))
    print("created", flush=True)
    await storage.stopService()

open(sys.argv[1] + "/filler", "wb").close()
storage = SQLiteStorage(sys.argv[1] + "/objects.db", reactor)
storage.startService()
Deferred.fromCoroutine(fill(storage)).addErrback(
    lambda failure: failure.printTraceback()
).addBoth(lambda _: reactor.stop())
reactor.run()
"""


class SmallDiskTests(TestCase):
    """A disk that is really full."""

    timeout = 120

    async def test_small_disk(self) -> None:
        """All objects can be deleted, although others take every byte that is left."""
        directory = os.path.abspath(self.mktemp())
        os.mkdir(directory)
        root = str(Path(__file__).parents[2])
        mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        mount = 'mount -t tmpfs -o size=32m none "$0"'
        works = await getProcessValue(
            shutil.which("unshare") or "false", [*mounted[1:], mount, directory]
        )
        if works:
            raise SkipTest("this machine lets no user mount a file system")
        out, err, _ = await getProcessOutputAndValue(
            shutil.which("unshare"),
            [*mounted[1:], f'{mount} && exec "$1" -c "$2" "$0"', directory, sys.executable, _FILL],
            env={**os.environ, "PYTHONPATH": root},
            path=root,
        )
        self.assertEqual(out.decode().split(), ["full", "deleted", "created"], err.decode())


class FileTests(_Opens, TestCase):
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
        await storage.create(MACHINES, machine("a"))
        await storage.stopService()
        database = sqlite3.connect(self.path)
        database.execute("UPDATE objects SET body = '{'")
        database.commit()
        database.close()
        self.assertIn("is damaged", self.refusal())


class LostFilesTests(_Opens, TestCase):
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


class LossTests(_Opens, TestCase):
    """A store that lost acknowledged changes while no server ran does not start."""

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
        self.assertIn("ends at version 0, but version 3 was acknowledged", refusal)
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
        other = self.open(self.mktemp())
        await other.stopService()
        shutil.copy(other._path, self.path)
        os.remove(f"{self.path}-wal")
        self.assertIn("is not the database of", self.refusal())

    async def test_earlier_release(self) -> None:
        """A file of an earlier release has no record, and is accepted."""
        self.path = os.path.abspath(self.mktemp())
        storage = self.open()
        await storage.create(MACHINES, machine("a"))
        await storage.stopService()
        os.remove(f"{self.path}-state")
        with contextlib.closing(sqlite3.connect(self.path)) as database:
            database.execute("DROP TABLE state")
            database.commit()
        self.assertEqual(len((await self.open().list(MACHINES)).items), 1)


_KILLED = """
import os, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from tests.contracts.storage import MACHINES, machine
from twisted_exec.storage.sqlite import SQLiteStorage

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


class KillTests(_Opens, TestCase):
    """Losing the process loses nothing that was acknowledged."""

    timeout = 120

    async def test_kill(self) -> None:
        """A process killed while writing leaves every acknowledged object."""
        self.path = os.path.abspath(self.mktemp())
        victim = _Victim()
        root = str(Path(__file__).parents[2])
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

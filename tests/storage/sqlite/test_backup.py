"""
Tests for :mod:`twisted_exec.storage.sqlite.backup`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from pathlib import Path

from twisted.internet import defer, reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, changed, machine
from twisted_exec.api.status import Conflict, Expired
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.backup import Summary, back_up, restore
from twisted_exec.storage.sqlite.record import VersionRecord
from twisted_exec.storage.sqlite.store import SQLiteStorage


class _Stores(TestCase):
    """A running store with one object, and a path for a backup."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.path, self.file = os.path.abspath(self.mktemp()), os.path.abspath(self.mktemp())
        self.storage = self.open(self.path)
        self.kept = await self.storage.create(MACHINES, machine("a", text="x" * 10_000))

    def open(self, path: str) -> SQLiteStorage:
        storage = SQLiteStorage(path, reactor)
        storage.startService()
        self.addCleanup(storage.stopService)
        return storage

    def crash(self) -> str:
        """Return the path of a copy of the files, as a killed server leaves them."""
        path = os.path.abspath(self.mktemp())
        for end in ("", "-wal", "-state"):
            shutil.copy(self.path + end, path + end)
        return path


class BackUpTests(_Stores):
    """Tests for :func:`back_up`."""

    async def test_running(self) -> None:
        """The backup of a running store is one private file, complete in itself."""
        self.assertEqual(back_up(self.path, self.file), Summary(1, 1))
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o600)
        beside = [name for name in os.listdir(os.path.dirname(self.file)) if "partial" in name]
        self.assertEqual(beside, [])
        again = self.open(self.file)
        self.assertEqual(await again.get(MACHINES, "default", "a"), self.kept)

    async def test_writes_meanwhile(self) -> None:
        """A backup during writes has every object that was acknowledged before it began."""
        stop = threading.Event()

        async def write(lane: int) -> None:
            turn = 0
            while not stop.is_set():
                await self.storage.create(MACHINES, machine(f"m-{lane}-{turn}", text="x" * 5000))
                turn += 1

        writes = [defer.ensureDeferred(write(lane)) for lane in range(4)]
        for _ in range(5):
            before = self.storage.version()
            summary = await deferToThread(back_up, self.path, self.file, force=True)
            self.assertGreaterEqual(summary.version, before)
            self.assertEqual(summary.objects, summary.version)
        stop.set()
        await defer.gatherResults(writes)

    async def test_stopped(self) -> None:
        """A stopped store is copied too, and starts afterwards."""
        await self.storage.stopService()
        back_up(self.path, self.file)
        self.assertEqual(len((await self.open(self.path).list(MACHINES)).items), 1)

    async def test_crashed(self) -> None:
        """The backup of a crashed store has what is in its log, and leaves it to the store."""
        path = self.crash()
        self.assertEqual(back_up(path, self.file), Summary(1, 1))
        self.assertEqual(len((await self.open(path).list(MACHINES)).items), 1)

    async def test_incomplete(self) -> None:
        """A store that has lost changes gets no backup."""
        path = self.crash()
        os.remove(f"{path}-wal")
        with self.assertRaises(StorageError) as caught:
            back_up(path, self.file)
        self.assertIn("version 1 was acknowledged", str(caught.exception))
        self.assertFalse(os.path.exists(self.file))

    async def test_refused(self) -> None:
        """Bad arguments change nothing, and are answered in one line."""
        Path(self.file).write_text("precious")
        nothing, other = os.path.abspath(self.mktemp()), os.path.abspath(self.mktemp())
        Path(other).write_bytes(b"no database, " * 1000)
        for path, target, problem in [
            (self.path, self.file, "exists already: give --force"),
            (self.path, self.path, "is the store itself"),
            (nothing, self.file + "2", "does not exist"),
            (other, self.file + "2", "file is not a database"),
            (
                self.path,
                "/nonexistent/a b/backup",
                "cannot write /nonexistent/a b/backup: its directory does not exist; "
                "create it: install -d -m 700 '/nonexistent/a b'",
            ),
            (self.path, f"{other}/backup", f"cannot write {other}/backup: Not a directory"),
            (self.path, self.file + "x" * 300, "File name too long"),
        ]:
            with self.assertRaises(StorageError) as caught:
                back_up(path, target)
            self.assertIn(problem, str(caught.exception))
        self.assertEqual(Path(self.file).read_text(), "precious")
        self.assertFalse(os.path.exists(self.file + "2"))
        back_up(self.path, self.file, force=True)


class RestoreTests(_Stores):
    """Tests for :func:`restore`."""

    async def test_versions(self) -> None:
        """Objects are those of the backup; no version after it runs backwards or means two states."""
        back_up(self.path, self.file)
        later = await self.storage.update(MACHINES, changed(self.kept, power="On"))
        await self.storage.stopService()
        restore(self.file, self.path, force=True)
        again = self.open(self.path)
        self.assertEqual(await again.get(MACHINES, "default", "a"), self.kept)
        self.assertGreater(again.version(), 1_000_000_000)
        for version in (1, int(later["metadata"]["resourceVersion"])):
            with self.assertRaises(Expired):
                again.watch(MACHINES, version, lambda event: None)
        with self.assertRaises(Conflict):
            await again.update(MACHINES, later)
        updated = await again.update(MACHINES, changed(self.kept, power="Off"))
        self.assertGreater(int(updated["metadata"]["resourceVersion"]), 1_000_000_000)

    async def test_elsewhere(self) -> None:
        """A backup becomes a store where there is none, with an identity of its own."""
        back_up(self.path, self.file)
        path = os.path.abspath(self.mktemp())
        restore(self.file, path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(len((await self.open(path).list(MACHINES)).items), 1)
        self.assertNotEqual(
            Path(f"{path}-state").read_text()[:32], Path(f"{self.path}-state").read_text()[:32]
        )

    async def test_in_use(self) -> None:
        """The store of a running server is not replaced."""
        back_up(self.path, self.file)
        with self.assertRaises(StorageError) as caught:
            restore(self.file, self.path, force=True)
        self.assertIn("is in use by another server", str(caught.exception))
        self.assertEqual(await self.storage.probe(), None)

    async def test_full(self) -> None:
        """An error of the disk after the copy is reported in one line."""
        back_up(self.path, self.file)

        def clear(record: VersionRecord) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(VersionRecord, "clear", clear)
        path = os.path.abspath(self.mktemp())
        with self.assertRaises(StorageError) as caught:
            restore(self.file, path)
        self.assertEqual(
            str(caught.exception), f"cannot write {path}-state: No space left on device"
        )

    async def test_existing(self) -> None:
        """An existing store is replaced only on request."""
        back_up(self.path, self.file)
        await self.storage.stopService()
        with self.assertRaises(StorageError) as caught:
            restore(self.file, self.path)
        self.assertIn("exists already: give --force", str(caught.exception))

    async def test_crashed(self) -> None:
        """The log of the former database does not get into the restored one."""
        back_up(self.path, self.file)
        await self.storage.create(MACHINES, machine("b"))
        path = self.crash()
        restore(self.file, path, force=True)
        self.assertFalse(os.path.exists(f"{path}-wal"))
        self.assertEqual(len((await self.open(path).list(MACHINES)).items), 1)

    async def test_accept_loss(self) -> None:
        """A store that has lost changes continues with the rest if the operator accepts that."""
        await self.storage.stopService()
        self.storage = self.open(self.path)
        await self.storage.create(MACHINES, machine("b"))
        path = self.crash()
        os.remove(f"{path}-wal")
        with self.assertRaises(StorageError):
            self.open(path)
        with self.assertRaises(StorageError) as caught:
            restore(path, path, force=True)
        self.assertIn("--accept-loss", str(caught.exception))
        self.assertEqual(restore(path, path, force=True, accept_loss=True).objects, 1)
        self.assertEqual(len((await self.open(path).list(MACHINES)).items), 1)

    async def test_damaged(self) -> None:
        """A damaged backup leaves the store as it is."""
        back_up(self.path, self.file)
        await self.storage.stopService()
        data = bytearray(Path(self.file).read_bytes())
        data[4096 * 2 : 4096 * 5] = b"\xff" * 4096 * 3
        Path(self.file).write_bytes(data)
        with self.assertRaises(StorageError):
            restore(self.file, self.path, force=True)
        self.assertEqual(len((await self.open(self.path).list(MACHINES)).items), 1)

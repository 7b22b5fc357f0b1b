"""
Tests for :mod:`twisted_exec.storage.sqlite.store` on disks that are full.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

from twisted.internet import defer
from twisted.internet.utils import getProcessOutputAndValue, getProcessValue
from twisted.trial.unittest import SkipTest, TestCase

from tests.contracts.storage import MACHINES, changed, machine
from tests.storage.sqlites import SQLiteStores
from tests.tiers import PROGRAMS
from twisted_exec.api.status import (
    APIError,
    Expired,
    InsufficientStorage,
    NotFound,
)


class FullTests(SQLiteStores, TestCase):
    """A full disk refuses what grows, and nothing else."""

    remembered_bytes = 400_000
    reserved_bytes = 4 << 20

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.storage = self.open()

    def limit(self, pages: int) -> None:
        """Let the file grow by so many pages."""
        (count,) = self.database.execute("PRAGMA page_count").fetchone()
        self.database.execute(f"PRAGMA max_page_count = {count + pages}")

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
        # With it kubectl tries ten times before it prints the message, and this does not mend itself.
        self.assertIsNone(caught.exception.retry_after_seconds)
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

    async def test_large(self) -> None:
        """
        An object that the reserve could not bring into the file is refused; one from a larger disk can shrink
        and be deleted.
        """
        large = await self.storage.create(MACHINES, machine("a", text="x" * 500_000))
        await self.storage.stopService()
        self.reserved_bytes = 1 << 20
        self.storage = self.open()
        with self.assertRaises(InsufficientStorage) as caught:
            await self.storage.create(MACHINES, machine("b", text="x" * 500_000))
        self.assertIn("too large for the disk of the store", caught.exception.message)
        smaller = await self.storage.update(MACHINES, changed(large, text="x" * 400_000))
        await self.storage.create(MACHINES, machine("b", text="x" * 100_000))
        await self.storage.delete(MACHINES, smaller)

    async def test_space_returns(self) -> None:
        """The file of an emptied store gets smaller when the disk was full."""
        stored = [
            await self.storage.create(MACHINES, machine(name, text="x" * 100_000))
            for name in "abcdef"
        ]
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{self.path}-reserve")
        os.mkdir(f"{self.path}-reserve")  # nothing is in reserve
        self.limit(0)
        for obj in stored:
            await self.storage.delete(MACHINES, obj)
        await self.storage.stopService()
        self.assertLess(os.stat(self.path).st_size, 100_000)


_FILL = """
import os, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from tests.contracts.storage import MACHINES, machine
from twisted_exec.api.status import InsufficientStorage
from twisted_exec.storage.sqlite.store import SQLiteStorage

async def fill(storage):
    stored = []
    try:
        while True:
            stored.append(await storage.create(MACHINES, machine(f"m-{len(stored)}", text="x" * size)))
    except InsufficientStorage:
        print("full", flush=True)
    print("limited" if "free space on the disk" in await storage.probe() else "not limited", flush=True)
    with open(sys.argv[1] + "/filler", "wb", buffering=0) as filler:
        try:
            while True:  # others take all the space that is left
                filler.write(b"x" * 4096)
        except OSError:
            pass
    await storage.stopService()
    storage = new()
    print("started", flush=True)
    for obj in stored:
        await storage.delete(MACHINES, obj)
    print("deleted", flush=True)
    await storage.create(MACHINES, machine("another", text="x" * size))
    print("created", flush=True)
    assert await storage.probe() == ""
    await storage.stopService()

def new():
    storage = SQLiteStorage(sys.argv[1] + "/objects.db", reactor)
    storage.startService()
    return storage

size = int(sys.argv[2])
open(sys.argv[1] + "/filler", "wb").close()
storage = new()
Deferred.fromCoroutine(fill(storage)).addErrback(
    lambda failure: failure.printTraceback()
).addBoth(lambda _: reactor.stop())
reactor.run()
"""


_START = """
import os, sys
from twisted.internet import reactor
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.sqlite.store import SQLiteStorage

with open(sys.argv[1] + "/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(b"x" * 4096)
    except OSError:
        pass
try:
    SQLiteStorage(sys.argv[1] + "/objects.db", reactor).startService()
except StorageError as error:
    print(error)
"""

_READ_ONLY = """
import os, sqlite3, sys
from twisted_exec.storage.sqlite.reserve import Reserve

error = sqlite3.OperationalError("disk I/O error")
error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
reserve = Reserve(sys.argv[1] + "/reserve")
reserve.fill()
print(reserve.problem(error) or "full")
os.system(f"mount -o remount,ro {sys.argv[1]}")
print(reserve.problem(error) or "full")
"""


_OWN_MOUNTS = ["--user", "--map-root-user", "--mount", "sh", "-c"]
"""Arguments of unshare(1) before a shell's command, which may mount file systems."""


def _mount(size: str) -> str:
    """Return the shell command that mounts a file system of a size at ``$0``."""
    return f'mount -t tmpfs -o size={size} none "$0"'


class SmallDiskTests(TestCase):
    """A disk that is really full."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        directory = os.path.abspath(self.mktemp())
        os.mkdir(directory)
        unshare = shutil.which("unshare") or "false"
        if await getProcessValue(unshare, [*_OWN_MOUNTS, _mount("32k"), directory]):
            raise SkipTest("this machine lets no user mount a file system")

    async def on_disk(self, size: str, program: str, *arguments: str) -> str:
        """Return the output of a program, whose first argument is a directory on a disk of some size."""
        directory = os.path.abspath(self.mktemp())
        os.mkdir(directory)
        root = str(Path(__file__).parents[3])
        mount = _mount(size)
        run = f'{mount} && exec "$1" -c "$2" "$0" "$3"'
        out, err, _ = await getProcessOutputAndValue(
            "unshare",
            [*_OWN_MOUNTS, run, directory, sys.executable, program, *arguments],
            env={**os.environ, "PYTHONPATH": root},
            path=root,
        )
        self.assertEqual(err.decode(), "")
        return str(out.decode())

    async def test_small_disk(self) -> None:
        """
        A store on a disk of any size can be closed and opened while it is full, and all objects can be deleted,
        although others take every byte that is left. Its probe says what is refused as long as it is full.
        """
        for size, text in (("32m", 500_000), ("2m", 50_000), ("2m", 2_000), ("512k", 2_000)):
            out = await self.on_disk(size, _FILL, str(text))
            expected = ["full", "limited", "started", "deleted", "created"]
            self.assertEqual(out.split(), expected, f"{size} {text}")

    async def test_no_space_at_the_start(self) -> None:
        """A server that cannot start for want of space calls the disk full, and not the store damaged."""
        out = await self.on_disk("2m", _START)
        self.assertRegex(
            out,
            "^the disk of the store .*/objects.db is full: free space on it, and start the server again$",
        )

    async def test_read_only(self) -> None:
        """A disk that became read-only is not called full: nothing there can be deleted."""
        out = await self.on_disk("2m", _READ_ONLY)
        self.assertEqual(out.splitlines(), ["full", "Read-only file system (disk I/O error)"])

"""
Tests for stores of :mod:`twisted_exec.storage.sqlite` that take each other's place.
"""

from __future__ import annotations

import os
import stat
from itertools import pairwise

from twisted.internet.defer import gatherResults
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, StorageContract, changed, machine
from tests.storage.handover.stores import OpensStores
from tests.storage.sqlites import RESERVED_BYTES
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.storage.interfaces import Event, StorageError
from twisted_exec.storage.sqlite import SQLiteStorage


class RetiredStorageTests(OpensStores, StorageContract, TestCase):
    """The contract, of a store whose file a successor has."""

    async def make_storage(self) -> SQLiteStorage:
        old, _ = await self.handed_over(self.mktemp())
        return old


class SuccessorTests(OpensStores, StorageContract, TestCase):
    """The contract, of a store that serves a predecessor."""

    async def make_storage(self) -> SQLiteStorage:
        _, new = await self.handed_over(self.mktemp())
        return new


class ThawedStorageTests(OpensStores, StorageContract, TestCase):
    """The contract, of a store whose successor failed."""

    async def make_storage(self) -> SQLiteStorage:
        storage = self.open(self.mktemp())
        await storage.freeze()
        await storage.thaw()
        return storage


class SwitchTests(OpensStores, TestCase):
    """What users of a store notice of a hand-over: nothing."""

    remembered = 1000
    remembered_bytes = 1 << 20

    async def test_writes_on_the_way(self) -> None:
        """Accepted writes are durable at the freeze; later ones are made by the successor, in order."""
        path = self.mktemp()
        old = self.open(path)
        before = [old.create(MACHINES, machine(f"before-{n}")) for n in range(20)]
        freezing = old.freeze()
        after = [old.create(MACHINES, machine(f"after-{n}")) for n in range(20)]
        await freezing
        self.assertEqual([each.called for each in before + after], [True] * 20 + [False] * 20)
        new = self.open(path, inherits=True)
        self.assertEqual(new.version(), 20)
        old.retire()
        made = await gatherResults(after)
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in made]
        self.assertEqual(versions, list(range(21, 41)))
        self.assertEqual(
            list((await new.list(MACHINES)).items), list((await old.list(MACHINES)).items)
        )

    async def test_watch_goes_on(self) -> None:
        """A watch gets each change once, by whomever, whenever it was made."""
        path = self.mktemp()
        old, events = self.open(path), list[Event]()
        stored = await old.create(MACHINES, machine("a", turn=0))
        old.watch(MACHINES, 0, events.append)
        await old.freeze()
        new = self.open(path, inherits=True)
        stored = await new.update(MACHINES, changed(stored, turn=1))
        old.retire()
        stored = await old.update(MACHINES, changed(stored, turn=2))
        stored = await new.update(MACHINES, changed(stored, turn=3))
        await new.delete(MACHINES, stored)
        await old.current()
        self.assertEqual([event.version for event in events], [1, 2, 3, 4, 5])
        self.assertEqual([event.obj["spec"]["turn"] for event in events], [0, 1, 2, 3, 3])
        for before, after in pairwise(events):
            self.assertIs(after.previous, before.obj)

    async def test_failed_successor(self) -> None:
        """A thawed store goes on with what a failed successor wrote, and makes the held writes."""
        path = self.mktemp()
        old, events = self.open(path), list[Event]()
        old.watch(MACHINES, 0, events.append)
        await old.create(MACHINES, machine("a"))
        await old.freeze()
        held = old.create(MACHINES, machine("c"))
        new = self.open(path, inherits=True)
        await new.create(MACHINES, machine("b"))
        await new.stopService()
        self.assertFalse(held.called)
        await old.thaw()
        await held
        names = [(event.version, event.obj["metadata"]["name"]) for event in events]
        self.assertEqual(names, [(1, "a"), (2, "b"), (3, "c")])
        self.assertEqual(await old.current(), 3)

    async def test_successor_that_ends_slowly(self) -> None:
        """A thaw waits for the lock of a successor that is being killed."""
        path = self.mktemp()
        old = self.open(path)
        await old.freeze()
        new = self.open(path, inherits=True)
        thawing = old.thaw()
        self.assertFalse(thawing.called)
        await new.stopService()
        await thawing
        await old.create(MACHINES, machine("a"))

    async def test_file_is_lost(self) -> None:
        """If the file cannot be opened again, the thaw says why, and writes fail."""
        path = self.mktemp()
        old = self.open(path)
        await old.freeze()
        held = old.create(MACHINES, machine("a"))
        os.rename(path, f"{path}-away")
        with self.assertRaises(StorageError) as caught:
            await old.thaw()
        self.assertIn("is missing", str(caught.exception))
        with self.assertRaises(ServiceUnavailable):
            await held
        with self.assertRaises(ServiceUnavailable):
            await old.create(MACHINES, machine("a"))

    async def test_forgotten_changes(self) -> None:
        """A predecessor that missed too many changes gets the differences, as one change per object."""
        self.remembered = 10
        path = self.mktemp()
        old, events = self.open(path), list[Event]()
        stored = await old.create(MACHINES, machine("a", turn=0))
        gone = await old.create(MACHINES, machine("b"))
        old.watch(MACHINES, None, events.append)
        await old.freeze()
        new = self.open(path, inherits=True)
        await new.delete(MACHINES, gone)
        for turn in range(1, 30):
            stored = await new.update(MACHINES, changed(stored, turn=turn))
        old.retire()
        self.assertEqual(await old.current(), new.version())
        self.assertEqual(
            [(event.type, event.obj["metadata"]["name"]) for event in events],
            [("MODIFIED", "a"), ("DELETED", "b")],
        )
        self.assertEqual(await old.get(MACHINES, "default", "a"), stored)

    async def test_row_of_successors(self) -> None:
        """A predecessor goes on through the successor of its successor, without a missed change."""
        path = self.mktemp()
        old, events = self.open(path), list[Event]()
        old.watch(MACHINES, 0, events.append)
        stores = [old]
        for turn in range(5):
            await stores[-1].freeze()
            stores.append(self.open(path, inherits=True))
            stores[-2].retire()
            for number, each in enumerate(stores):
                await each.create(MACHINES, machine(f"m-{turn}-{number}"))
        await gatherResults([each.current() for each in stores])
        self.assertEqual([event.version for event in events], list(range(1, 21)))
        self.assertEqual({each.version() for each in stores}, {20})

    async def test_socket(self) -> None:
        """The socket is for its owner only, and exists only while a successor serves."""
        path = self.mktemp()
        old = self.open(path)
        socket = f"{path}-successor"
        self.assertFalse(os.path.exists(socket))
        await old.freeze()
        new = self.open(path, inherits=True)
        self.assertEqual(stat.S_IMODE(os.stat(socket).st_mode), 0o600)
        await new.stopService()
        self.assertFalse(os.path.exists(socket))

    async def test_left_socket(self) -> None:
        """The socket of a killed server is replaced; another file at its path is not."""
        path = self.mktemp()
        first, second = (
            SQLiteStorage(path, self.reactor(), reserved_bytes=RESERVED_BYTES) for _ in range(2)
        )
        socket = f"{path}-successor"
        os.mknod(socket, 0o600 | stat.S_IFSOCK)
        first.inherit()
        first.startService()
        await first.stopService()
        with open(socket, "w"):
            pass
        second.inherit()
        with self.assertRaises(StorageError) as caught:
            second.startService()
        self.assertIn("is not a socket", str(caught.exception))
        self.assertTrue(os.path.exists(socket))

"""
Tests for stores of :mod:`twisted_exec.storage.sqlite.store` whose file another process uses for a while.
"""

from __future__ import annotations

import os
import threading

from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, StorageContract, machine
from tests.storage.sqlites import SQLiteStores
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.storage.interfaces import Event, StorageError
from twisted_exec.storage.sqlite.store import SQLiteStorage


class ThawedStorageTests(SQLiteStores, StorageContract, TestCase):
    """The contract, of a store whose successor failed."""

    async def make_storage(self) -> SQLiteStorage:
        storage = self.open(self.mktemp())
        await storage.freeze()
        await storage.thaw()
        return storage


class FrozenTests(SQLiteStores, TestCase):
    """A store that is frozen."""

    async def test_thawed_at_once(self) -> None:
        """A store that goes on between the end of its thread and the notice of that closes once, later."""
        others = set(threading.enumerate())
        storage = self.open(self.mktemp())
        freezing = storage.freeze()
        for thread in set(threading.enumerate()) - others:
            thread.join()
        await storage.thaw()
        await freezing
        await storage.create(MACHINES, machine("a"))
        await storage.stopService()

    async def test_failed_successor(self) -> None:
        """A thawed store goes on with what a failed successor wrote; reads never stop."""
        path = self.mktemp()
        old, events = self.open(path), list[Event]()
        old.watch(MACHINES, 0, events.append)
        stored = await old.create(MACHINES, machine("a"))
        await old.freeze()
        self.assertEqual(await old.get(MACHINES, "default", "a"), stored)
        with self.assertRaises(ServiceUnavailable):
            await old.create(MACHINES, machine("c"))
        new = self.open(path)
        await new.create(MACHINES, machine("b"))
        await new.stopService()
        await old.thaw()
        await old.create(MACHINES, machine("c"))
        names = [(event.version, event.obj["metadata"]["name"]) for event in events]
        self.assertEqual(names, [(1, "a"), (2, "b"), (3, "c")])
        self.assertEqual(await old.current(), 3)

    async def test_successor_that_ends_slowly(self) -> None:
        """A thaw waits for the lock of a successor that is being killed."""
        path = self.mktemp()
        old = self.open(path)
        await old.freeze()
        new = self.open(path)
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
        os.rename(path, f"{path}-away")
        with self.assertRaises(StorageError) as caught:
            await old.thaw()
        self.assertIn("is missing", str(caught.exception))
        with self.assertRaises(ServiceUnavailable):
            await old.create(MACHINES, machine("a"))

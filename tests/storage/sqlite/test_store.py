"""
Tests for :mod:`twisted_exec.storage.sqlite.store`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3

from twisted.internet import defer, reactor
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, POOLS, StorageContract, changed, machine
from tests.storage.sqlites import SQLiteStores
from twisted_exec.api.encoded import json_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    Expired,
    InternalError,
    ServiceUnavailable,
)
from twisted_exec.storage.interfaces import Event
from twisted_exec.storage.sqlite.store import SQLiteStorage


class SQLiteStorageTests(SQLiteStores, StorageContract, TestCase):
    """The contract, on a disk."""

    async def make_storage(self) -> SQLiteStorage:
        return self.open(self.mktemp())


class CompanyTests(SQLiteStores, TestCase):
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


class RestartTests(SQLiteStores, TestCase):
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

    async def test_many(self) -> None:
        """Hundreds of objects and changes of several kinds are as before, in order."""
        self.remembered, self.remembered_bytes = 1000, 1 << 20
        before, told = self.open(), dict[Resource, list[Event]]()
        for resource, place in ((MACHINES, "default"), (POOLS, "")):
            before.watch(resource, 0, told.setdefault(resource, []).append)
            made = await defer.gatherResults(
                [before.create(resource, machine(f"m{n}", place)) for n in range(150)]
            )
            for n, obj in enumerate(made[:70]):
                await before.update(resource, changed(obj, turn=n, text="\u00e4,{}[]"))
            await before.delete(resource, made[100])
        listed = {resource: await before.list(resource) for resource in told}
        await before.stopService()
        after = self.open()
        for resource, events in told.items():
            again: list[Event] = []
            after.watch(resource, 0, again.append)
            self.assertEqual(again, events)
            self.assertEqual(await after.list(resource), listed[resource])
            for obj in (await after.list(resource)).items:
                self.assertEqual(json.loads(json_of(obj)), obj)

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


class SyncTests(SQLiteStores, TestCase):
    """Acknowledged writes are on the disk, not only in a cache of the system."""

    def test_full(self) -> None:
        """Every commit is synchronized."""
        self.path = self.mktemp()
        self.open()
        (level,) = self.database.execute("PRAGMA synchronous").fetchone()
        self.assertEqual(level, 2)


class TroubleTests(SQLiteStores, TestCase):
    """A store that cannot write says so, and goes on as soon as it can."""

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.storage = self.open()

    def allow_writes(self, allowed: bool) -> None:
        """Simulate a full disk, or one with free space again."""
        self.database.execute(f"PRAGMA query_only = {int(not allowed)}")

    async def refusal(self, name: str) -> str:
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.storage.create(MACHINES, machine(name))
        return caught.exception.message

    async def test_cannot_write(self) -> None:
        """
        While writes fail, each is refused; the log has one line at the beginning and one at the end.
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

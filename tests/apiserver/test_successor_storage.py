"""Tests for :mod:`twisted_exec.apiserver.successor_storage`: stores that take each other's place."""

from __future__ import annotations

import contextlib
import copy
import os
import socket
import time
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from tests.audits import AuditList
from tests.chain import reactor, until
from tests.contracts.storage import MACHINES, changed, machine
from tests.storage.sqlites import RESERVED_BYTES
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.apiserver.successor_storage import HandedOverStorage, StoreSite, kept_kinds
from twisted_exec.program.audit import Trail
from twisted_exec.storage.interfaces import Event, IStorage
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits
from twisted_exec.storage.sqlite.store import SQLiteStorage
from twisted_exec.streaming.sessions.registry import Sessions

KINDS = kept_kinds(kinds.served([DEFAULT]))


class Process:
    """The part of a process that has to do with its store."""

    def __init__(
        self,
        path: str,
        predecessor: Process | None = None,
        *,
        remembered: int = 1000,
        limits: QuotaLimits = NO_LIMITS,
    ) -> None:
        own = SQLiteStorage(
            path, reactor, remembered=remembered, reserved_bytes=RESERVED_BYTES, limits=limits
        )
        self.storage = HandedOverStorage(own, reactor)
        sessions = Sessions(Trail(AuditList(), "apiserver", reactor))
        self.site = StoreSite(self.storage, KINDS, sessions, reactor, time.time)
        if predecessor is not None:
            # As the channel between two processes does.
            self.site.inherit(map(os.dup, predecessor.handed))
        self.storage.startService()
        self.site.start()
        self.handed: list[int] = []
        self.lost: Deferred[str] = Deferred()

    async def freeze(self) -> None:
        self.site.pause()
        self.handed = [await self.storage.freeze(), *self.site.descriptors()]

    async def thaw(self) -> None:
        await self.storage.thaw()
        self.site.start()

    def retire(self) -> None:
        self.lost = self.storage.retire(KINDS)
        self.site.close()

    async def stop(self) -> None:
        self.site.close()
        await self.storage.stopService()


class StoresCase(TestCase):
    """Processes, one after the other, on one file."""

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.processes: list[Process] = []
        self.addCleanup(self.all_closed)  # the last cleanup

    async def all_closed(self) -> None:
        """Wait until the processes have closed the connections between them."""
        await until(lambda: not any(each.site._site.connections for each in self.processes))

    def process(self, predecessor: Process | None = None, **options: Any) -> Process:
        made = Process(self.path, predecessor, **options)
        self.processes.append(made)
        self.addCleanup(made.stop)
        return made

    async def replaced(self, old: Process, **options: Any) -> Process:
        """The successor of a process."""
        await old.freeze()
        new = self.process(old, **options)
        old.retire()
        return new


class WriteTests(StoresCase):
    """Writes of a process that was replaced."""

    async def test_as_made(self) -> None:
        """
        An object is stored as its server made it, also of a kind that clients cannot make, and in each
        part; its deletion is not that of a user.
        """
        old = self.process()
        new = await self.replaced(old)
        verifyObject(IStorage, old.storage, tentative=True)
        for kind in KINDS:
            namespace = "default" if kind.resource.namespaced else ""
            body = {
                "apiVersion": kind.resource.api_version,
                "kind": kind.resource.kind,
                "metadata": {
                    "name": "a",
                    **({"namespace": namespace} if namespace else {}),
                    "uid": "its-own",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "generation": 7,
                    "finalizers": ["example.com/kept"],
                },
                "spec": {"unknown": True},
                "status": {"phase": "Odd"},
            }
            stored = await old.storage.create(kind.resource, body)
            found = await new.storage.get(kind.resource, namespace, "a")
            self.assertEqual(stored, found)
            without = copy.deepcopy(dict(found))
            del without["metadata"]["resourceVersion"]
            self.assertEqual(without, body)
            both = {**found, "spec": {"new": 1}, "status": {"endedBy": "x"}}
            updated = await old.storage.update(kind.resource, both)
            self.assertEqual((updated["spec"], updated["status"]), ({"new": 1}, {"endedBy": "x"}))
            self.assertEqual(await new.storage.get(kind.resource, namespace, "a"), updated)
            gone = await old.storage.delete(kind.resource, updated)
            self.assertEqual(gone["status"], {"endedBy": "x"})
            with self.assertRaises(NotFound):
                await new.storage.get(kind.resource, namespace, "a")

    async def test_refused(self) -> None:
        """Refusals are those of the successor's store, as errors that callers catch."""
        old = self.process()
        await self.replaced(old, limits=QuotaLimits(namespace_bytes=2000))
        storage = old.storage
        stored = await storage.create(MACHINES, machine("a"))
        with self.assertRaises(AlreadyExists):
            await storage.create(MACHINES, machine("a"))
        await storage.update(MACHINES, changed(stored, turn=1))
        with self.assertRaises(Conflict):
            await storage.update(MACHINES, changed(stored, turn=2))
        with self.assertRaises(Conflict):
            await storage.delete(MACHINES, stored)
        present = await storage.get(MACHINES, "default", "a")
        self.assertEqual(present["spec"], {"turn": 1})
        another = {**present, "metadata": {**present["metadata"], "uid": "another"}}
        with self.assertRaises(Conflict):
            await storage.delete(MACHINES, another)
        with self.assertRaises(NotFound):
            await storage.get(MACHINES, "default", "b")
        with self.assertRaises(Forbidden):
            await storage.create(MACHINES, machine("b", text="x" * 3000))
        await storage.delete(MACHINES, present)

    async def test_frozen(self) -> None:
        """Accepted writes are durable at the freeze; later ones fail, and say when to repeat them."""
        old = self.process()
        before = [old.storage.create(MACHINES, machine(f"m-{n}")) for n in range(20)]
        freezing = Deferred.fromCoroutine(old.freeze())
        with self.assertRaises(ServiceUnavailable) as caught:
            await old.storage.create(MACHINES, machine("late"))
        self.assertEqual(caught.exception.retry_after_seconds, 1)
        await freezing
        self.assertTrue(all(each.called for each in before))
        self.assertEqual(self.process(old).storage.version(), 20)


class ReadTests(StoresCase):
    """Reads of a process that was replaced."""

    async def test_watch_goes_on(self) -> None:
        """A watch gets each change once, by whomever, whenever it was made."""
        old, events = self.process(), list[Event]()
        stored = await old.storage.create(MACHINES, machine("a", turn=0))
        old.storage.watch(MACHINES, 0, events.append)
        await old.freeze()
        new = self.process(old)
        stored = await new.storage.update(MACHINES, changed(stored, turn=1))
        old.retire()
        stored = await old.storage.update(MACHINES, changed(stored, turn=2))
        stored = await new.storage.update(MACHINES, changed(stored, turn=3))
        await new.storage.delete(MACHINES, stored)
        await until(lambda: len(events) == 5)
        self.assertEqual([event.obj["spec"]["turn"] for event in events], [0, 1, 2, 3, 3])
        kinds_of_events = [event.type for event in events]
        self.assertEqual(kinds_of_events, ["ADDED", *["MODIFIED"] * 3, "DELETED"])
        for before, after in pairwise(events):
            self.assertEqual(after.previous, before.obj)

    async def test_forgotten_changes(self) -> None:
        """A process that missed too many changes gets the differences, as one change per object."""
        old, events = self.process(remembered=10), list[Event]()
        stored = await old.storage.create(MACHINES, machine("a", turn=0))
        gone = await old.storage.create(MACHINES, machine("b"))
        old.storage.watch(MACHINES, None, events.append)
        await old.freeze()
        new = self.process(old, remembered=10)
        await new.storage.delete(MACHINES, gone)
        for turn in range(1, 30):
            stored = await new.storage.update(MACHINES, changed(stored, turn=turn))
        old.retire()
        await until(lambda: len(events) == 2)
        shown = {(event.type, event.obj["metadata"]["name"]) for event in events}
        self.assertEqual(shown, {("MODIFIED", "a"), ("DELETED", "b")})
        self.assertEqual(await old.storage.get(MACHINES, "default", "a", stale=True), stored)

    async def test_reads(self) -> None:
        """A read has all writes before it; a stale read has what watches have told."""
        old = self.process()
        first = await old.storage.create(MACHINES, machine("a"))
        new = await self.replaced(old)
        second = await new.storage.create(MACHINES, machine("b", "another"))
        self.assertEqual(await old.storage.get(MACHINES, "another", "b"), second)
        listing = await old.storage.list(MACHINES)
        self.assertEqual((list(listing.items), listing.version), ([second, first], 2))
        self.assertEqual(list((await old.storage.list(MACHINES, "another")).items), [second])
        with self.assertRaises(NotFound):
            await old.storage.get(MACHINES, "default", "c")

        async def told() -> list[Object]:
            return list((await old.storage.list(MACHINES, "another", stale=True)).items)

        while await told() != [second]:
            await old.storage.probe()

    async def test_past(self) -> None:
        """What needs the order of all changes is the successor's: clients read again there."""
        old = self.process()
        await old.storage.create(MACHINES, machine("a"))
        await self.replaced(old)
        with self.assertRaises(Expired):
            await old.storage.list(MACHINES, version=1)
        with self.assertRaises(Expired):
            old.storage.watch(MACHINES, 1, lambda event: None)
        with self.assertRaises(ServiceUnavailable):
            await old.storage.current()


class ChainTests(StoresCase):
    """Successors of successors."""

    async def test_row(self) -> None:
        """Each process reads and writes through the newest, without a missed change."""
        names, processes = set(), [self.process()]
        seen = list[str]()
        processes[0].storage.watch(MACHINES, None, lambda e: seen.append(e.obj["metadata"]["name"]))
        for turn in range(4):
            processes.append(await self.replaced(processes[-1]))
            for number, each in enumerate(processes):
                await each.storage.create(MACHINES, machine(f"m-{turn}-{number}"))
                names.add(f"m-{turn}-{number}")
        await until(lambda: len(seen) >= len(names))
        self.assertEqual(sorted(seen), sorted(names))
        for each in processes:
            listing = await each.storage.list(MACHINES)
            self.assertEqual({obj["metadata"]["name"] for obj in listing.items}, names)

    async def test_nothing_listens(self) -> None:
        """No other process can connect to a successor: it listens at no socket, named or not."""
        first = self.process()
        second = await self.replaced(first)
        await first.storage.create(MACHINES, machine("a"))
        self.assertEqual(len(second.site.descriptors()), 1)
        listening = []
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as each:
                if each.family == socket.AF_UNIX and each.getsockopt(
                    socket.SOL_SOCKET, socket.SO_ACCEPTCONN
                ):
                    listening.append(each.getsockname())
        self.assertEqual(listening, [])

    async def test_while_the_successor_is_replaced(self) -> None:
        """A write waits while the successor hands over, and its successor makes it."""
        first = self.process()
        second = await self.replaced(first)
        await second.freeze()
        writing = first.storage.create(MACHINES, machine("a"))
        third = self.process(second)
        second.retire()
        stored = await writing
        self.assertEqual(await third.storage.get(MACHINES, "default", "a"), stored)

    async def test_failed_successor_of_the_successor(self) -> None:
        """A write waits while a successor's successor fails, and the successor makes it."""
        first = self.process()
        second = await self.replaced(first)
        await second.freeze()
        writing = first.storage.create(MACHINES, machine("a"))
        third = Process(self.path, second)
        third.site.pause()  # it was killed before it was ready
        await third.stop()
        await second.thaw()
        stored = await writing
        self.assertEqual(await second.storage.get(MACHINES, "default", "a"), stored)
        self.assertFalse(first.lost.called)

    async def test_failed_successor_without_a_predecessor(self) -> None:
        """A process whose predecessor has ended goes on when its own successor fails."""
        first = self.process()
        second = await self.replaced(first)
        await first.stop()
        await until(lambda: not second.site.descriptors())
        await second.freeze()
        await second.thaw()
        await second.storage.create(MACHINES, machine("a"))

    async def test_lost(self) -> None:
        """A process learns that its successor has ended without a successor; its writes fail."""
        first = self.process()
        second = await self.replaced(first)
        await second.stop()
        self.assertIn("has ended", await first.lost)
        with self.assertRaises(APIError):
            await first.storage.create(MACHINES, machine("a"))

"""
Tests for :mod:`twisted_exec.storage.etcd.restore`.
"""

from __future__ import annotations

import os
from dataclasses import replace

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests import needs
from tests.contracts.storage import MACHINES, POOLS, changed, machine
from tests.runtimes.support import pause
from tests.storage.etcd import test_client
from tests.storage.etcds import EtcdCase, Etcds, Gate, any_prefix, shared
from tests.tiers import PROGRAMS
from tests.tls.support import authority
from twisted_exec.api.status import Conflict, Expired, ServiceUnavailable
from twisted_exec.storage.etcd.client import EtcdClient
from twisted_exec.storage.etcd.restore import restore_into, restore_to_etcd
from twisted_exec.storage.etcd.target import EtcdTarget
from twisted_exec.storage.interfaces import Event, Object, StorageError
from twisted_exec.storage.sqlite.backup import SKIPPED_VERSIONS, Summary, back_up
from twisted_exec.storage.sqlite.store import SQLiteStorage

COUNT = 250


class RestoreCase(EtcdCase):
    """A backup with objects of two kinds."""

    skip = needs.etcd()

    async def setUp(self) -> None:  # type: ignore[override]
        self.path, self.file = os.path.abspath(self.mktemp()), os.path.abspath(self.mktemp())
        self.storage = SQLiteStorage(self.path, reactor)
        self.storage.startService()
        self.addCleanup(self.storage.stopService)
        self.objects = [
            await self.storage.create(MACHINES, machine(f"m-{number:03}", text="x" * 5000))
            for number in range(COUNT)
        ]
        self.objects[0] = await self.storage.update(MACHINES, changed(self.objects[0], text="é"))
        pool = {**machine("pool", namespace=""), "kind": POOLS.kind}
        del pool["metadata"]["namespace"]
        self.pool = await self.storage.create(POOLS, pool)
        self.version = self.storage.version()
        back_up(self.path, self.file)
        await self.put(shared(self.program).target(), "/elsewhere", "it listens")

    def target(self) -> EtcdTarget:
        return shared(self.program).target(any_prefix())

    def restore(
        self, target: EtcdTarget, *, force: bool = False, file: str = ""
    ) -> Deferred[Summary]:
        return self.deferred(restore_to_etcd(file or self.file, target, reactor, force=force))

    async def refused(self, target: EtcdTarget, **more: bool) -> str:
        return str(await self.assertFailure(self.restore(target, **more), StorageError))

    async def not_startable(self, target: EtcdTarget) -> None:
        storage = self.begin(target)
        problem = await self.assertFailure(storage.when_ready(), StorageError)
        self.assertIn("a restore goes on, or was interrupted", str(problem))
        await storage.stopService()

    def without_versions(self, objects: list[Object]) -> list[Object]:
        for each in objects:
            self.assertGreater(int(each["metadata"]["resourceVersion"]), self.version)
        return [
            {**each, "metadata": {**each["metadata"], "resourceVersion": ""}} for each in objects
        ]


class RestoreTests(RestoreCase):
    """A restore that succeeds."""

    starts = PROGRAMS

    async def test_objects(self) -> None:
        """All objects are there with their UIDs, and their versions are above all earlier ones."""
        target = self.target()
        summary = await self.restore(target)
        self.assertEqual(summary.objects, COUNT + 1)
        self.assertGreater(summary.version, self.version + SKIPPED_VERSIONS)
        storage = await self.open(target)
        self.assertEqual(storage.version(), summary.version)
        listing = await storage.list(MACHINES)
        before = [
            {**each, "metadata": {**each["metadata"], "resourceVersion": ""}}
            for each in self.objects
        ]
        self.assertEqual(self.without_versions(list(listing.items)), before)
        pool = await storage.get(POOLS, "", "pool")
        assert pool is not None
        self.assertEqual(pool["metadata"]["uid"], "uid-of-pool")

    async def test_versions(self) -> None:
        """Versions of before the restore mean nothing, and those after it grow, on all servers."""
        target = self.target()
        await self.restore(target)
        storage, other = await self.open(target), await self.open(target)
        with self.assertRaises(Expired):
            storage.watch(MACHINES, self.version, lambda event: None)
        await self.assertFailure(storage.update(MACHINES, self.objects[1]), Conflict)
        events: list[Event] = []
        other.watch(MACHINES, other.version(), events.append)
        stored = await storage.get(MACHINES, "default", "m-001")
        assert stored is not None
        updated = await storage.update(MACHINES, changed(stored, text="new"))
        created = await storage.create(MACHINES, machine("new"))
        deleted = await other.delete(MACHINES, await self.got(other, "m-002"))
        versions = [int(each["metadata"]["resourceVersion"]) for each in (stored, updated, created)]
        self.assertEqual(versions, sorted(set(versions)))
        self.assertEqual(await other.current(), int(deleted["metadata"]["resourceVersion"]))
        self.assertEqual(
            [(event.type, event.obj["metadata"]["name"]) for event in events],
            [("MODIFIED", "m-001"), ("ADDED", "new"), ("DELETED", "m-002")],
        )
        self.assertEqual([event.obj for event in events], [updated, created, deleted])
        # A server that starts later sees the same versions.
        later = await self.open(target)
        self.assertEqual(await self.got(later, "m-001"), updated)
        self.assertEqual(later.version(), int(deleted["metadata"]["resourceVersion"]))

    async def got(self, storage: object, name: str) -> Object:
        await storage.current()  # type: ignore[attr-defined]
        obj: Object = await storage.get(MACHINES, "default", name)  # type: ignore[attr-defined]
        return obj

    async def test_stopped_store(self) -> None:
        """The database of a stopped server is as good as a backup; that of a running one is refused."""
        target = self.target()
        problem = await self.assertFailure(self.restore(target, file=self.path), StorageError)
        self.assertIn("a server uses", str(problem))
        await self.storage.stopService()
        self.assertEqual((await self.restore(target, file=self.path)).objects, COUNT + 1)

    async def test_option(self) -> None:
        """The store is named as in --storage."""
        target = self.target()
        storage = f"etcd:http://{target}?prefix={target.prefix}"
        location, summary = await restore_into(storage, self.file, reactor)
        self.assertEqual((location, summary.objects), (target.location, COUNT + 1))
        for wrong, why in (
            ("sqlite:objects.db", "give the file of SQLite as DATABASE"),
            ("etcd:https://a:2379", "--storage: ca= is missing"),
        ):
            refused = self.deferred(restore_into(wrong, self.file, reactor))
            problem = await self.assertFailure(refused, StorageError)
            self.assertIn(why, str(problem))


class UsedTests(RestoreCase):
    """An etcd that is not empty."""

    async def test_store(self) -> None:
        """A store is replaced only by force; servers that run notice, and go on with the backup."""
        target = self.target()
        storage = await self.open(target)
        old = await storage.create(MACHINES, machine("old"))
        self.assertIn("etcd has a store below", await self.refused(target))
        self.assertEqual([each async for each in self.names(storage)], ["old"])
        summary = await self.restore(target, force=True)
        while storage.version() < summary.version:
            await self.deferred(self.ask(storage))
        self.assertEqual(len((await storage.list(MACHINES)).items), COUNT)
        while not await self.is_created(storage, machine("later")):
            await pause()
        self.assertGreater(summary.version, int(old["metadata"]["resourceVersion"]))

    async def is_created(self, storage: object, obj: Object) -> bool:
        """Create an object, if the server has looked at etcd again since the restore."""
        try:
            await storage.create(MACHINES, obj)  # type: ignore[attr-defined]
        except ServiceUnavailable:
            return False
        return True

    async def names(self, storage: object):  # type: ignore[no-untyped-def]
        for each in (await storage.list(MACHINES)).items:  # type: ignore[attr-defined]
            yield each["metadata"]["name"]

    async def ask(self, storage: object) -> None:
        await pause()  # wait: callers look again after it
        await storage.current().addErrback(lambda _: None)  # type: ignore[attr-defined]

    async def test_again(self) -> None:
        """Versions continue above those of a restored store that is replaced."""
        target = self.target()
        first = await self.restore(target)
        second = await self.restore(target, force=True)
        self.assertGreater(second.version, first.version + SKIPPED_VERSIONS)

    async def test_foreign(self) -> None:
        """Keys of another program are refused, also by force, and stay."""
        target = self.target()
        await self.put(target, f"{target.prefix}/registry/x", "theirs")
        for force in (False, True):
            self.assertIn("another program's", await self.refused(target, force=force))
        inner = replace(target, prefix=f"{target.prefix}/registry/y")
        await self.restore(inner)
        self.assertIn("is within", await self.refused(replace(inner, prefix=f"{inner.prefix}/z")))


class InterruptedTests(RestoreCase):
    """A restore that ends in the middle."""

    starts = PROGRAMS

    async def interrupted(self) -> EtcdTarget:
        """Return a target whose restore ended after the first objects."""
        etcds: Etcds = self.cluster()
        gate: Gate = self.gate(etcds.members[0])
        through = replace(etcds.target(), endpoints=(gate.endpoint,))
        await self.put(etcds.target("/elsewhere"), "/elsewhere", "up")
        write, count = EtcdClient.write, []

        async def and_close(client: EtcdClient, *arguments: object) -> object:
            count.append(1)
            if len(count) == 3:
                await gate.close()
            return await write(client, *arguments)  # type: ignore[arg-type]

        self.patch(EtcdClient, "write", and_close)
        problem = await self.refused(through)
        self.patch(EtcdClient, "write", write)
        self.assertIn("the store is not complete, and no server starts on it", problem)
        return etcds.target()

    async def test_etcd_goes_away(self) -> None:
        """No server starts on a part; the restore is repeated by force."""
        target = await self.interrupted()
        await self.not_startable(target)
        self.assertIn("not restored completely", await self.refused(target))
        summary = await self.restore(target, force=True)
        self.assertEqual(summary.objects, COUNT + 1)
        storage = await self.open(target)
        self.assertEqual(len((await storage.list(MACHINES)).items), COUNT)

    async def test_cancelled(self) -> None:
        """A restore that the user interrupts says that no server starts on what is there."""
        target, write, count = self.target(), EtcdClient.write, []

        async def and_cancel(client: EtcdClient, *arguments: object) -> object:
            count.append(1)
            if len(count) == 3:
                reactor.callLater(0, restoring.cancel)  # type: ignore[attr-defined]
                await Deferred()
            return await write(client, *arguments)  # type: ignore[arg-type]

        self.patch(EtcdClient, "write", and_cancel)
        restoring = self.restore(target)
        problem = str(await self.assertFailure(restoring, StorageError))
        self.patch(EtcdClient, "write", write)
        self.assertEqual(
            problem,
            "interrupted; the store is not complete, and no server starts on it: repeat this with --force",
        )
        await self.not_startable(target)

    async def test_two(self) -> None:
        """Of two restores at once one fails, and does not harm the other."""
        target = self.target()
        first, second = self.restore(target), self.restore(target)
        outcomes = [await each.addErrback(lambda why: why.value) for each in (first, second)]
        failed = [each for each in outcomes if isinstance(each, StorageError)]
        self.assertEqual(len(failed), 1, outcomes)
        storage = await self.open(target)
        self.assertEqual(len((await storage.list(MACHINES)).items), COUNT)

    async def test_large(self) -> None:
        """An object that is too large for etcd is named."""
        await self.storage.create(MACHINES, machine("large", text="x" * (2 << 20)))
        back_up(self.path, self.file, force=True)
        target = self.target()
        self.assertRegex(
            await self.refused(target), r"the key '.*/large': raise etcd's --max-request"
        )
        await self.not_startable(target)


class UnreachableTests(RestoreCase):
    """An etcd that cannot be used at all."""

    starts = PROGRAMS

    async def test_down(self) -> None:
        """Nobody listens: one line, and nothing has begun."""
        target = Etcds().target()
        problem = await self.refused(target)
        self.assertIn(f"etcd at {target}: ", problem)
        self.assertNotIn("not complete", problem)

    async def test_wrong_ca(self) -> None:
        """An etcd whose certificate another CA signed gets nothing; the message names ca=."""
        case = test_client.TLSTests()
        case.directory = self.mktemp()
        os.makedirs(case.directory)
        self.addCleanup(case.doCleanups)
        _, target = case.secured()
        target = replace(target, **case.shown("ada"))
        await self.put(target, "/elsewhere", "it listens")
        wrong = case.file("other.crt", authority("other").certificate_pem)
        problem = await self.refused(replace(target, ca=wrong))
        self.assertIn("look at ca=", problem)

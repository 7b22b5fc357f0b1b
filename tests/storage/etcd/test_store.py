"""
Tests for :mod:`twisted_exec.storage.etcd.store`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, gatherResults

from tests import needs
from tests.contracts.storage import MACHINES, StorageContract, changed, machine
from tests.storage.etcds import EtcdCase, any_prefix, shared
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.storage.etcd.client import RANGE
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.etcd.target import EtcdTarget
from twisted_exec.storage.interfaces import Event, IStorage, Object


class EtcdStorageTests(StorageContract, EtcdCase):
    """The contract, in etcd."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def make_storage(self) -> IStorage:
        return await self.open(shared().target(any_prefix()))


class TwoServersTests(StorageContract, EtcdCase):
    """The contract, while another server has the same store open."""

    skip = needs.etcd()

    async def make_storage(self) -> IStorage:
        target = shared().target(any_prefix())
        await self.open(target)
        return await self.open(target)


class CompanyTests(EtcdCase):
    """Two servers on one store."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def both(self) -> tuple[EtcdStorage, EtcdStorage]:
        target = shared().target(any_prefix())
        return await self.open(target), await self.open(target)

    async def test_read_what_others_wrote(self) -> None:
        """An object that one server has acknowledged is readable at the other at once."""
        first, second = await self.both()
        for turn in range(50):
            name = f"m{turn}"
            stored = await first.create(MACHINES, machine(name))
            version = int(stored["metadata"]["resourceVersion"])
            if turn % 3 == 0:
                self.assertEqual(await second.get(MACHINES, "default", name), stored)
            elif turn % 3 == 1:
                self.assertIn(stored, (await second.list(MACHINES)).items)
            else:
                self.assertGreaterEqual(await second.current(), version)
            first, second = second, first

    async def test_begin_together(self) -> None:
        """Any number of servers may start on an empty prefix at once; one writes the marker."""
        for _ in range(10):
            target = shared().target(any_prefix())
            stores = [self.begin(target) for _ in range(4)]
            first = stores[0].when_ready()
            first.addCallback(lambda _, store=stores[0]: store.create(MACHINES, machine("a")))
            await gatherResults([first, *(store.when_ready() for store in stores[1:])])
            found = [await store.get(MACHINES, "default", "a") for store in stores]
            self.assertEqual(found, [found[0]] * 4)
            await gatherResults([store.stopService() for store in stores])

    async def test_same_order(self) -> None:
        """Watches of both servers see the same events in the same order with the same versions."""
        stores = await self.both()
        told: list[list[tuple[str, str, int]]] = [[], []]
        for store, each in zip(stores, told, strict=True):
            store.watch(
                MACHINES,
                None,
                lambda event, each=each: each.append(
                    (event.type, event.obj["metadata"]["name"], event.version)
                ),
            )
        made = await gatherResults(
            [stores[n % 2].create(MACHINES, machine(f"m{n}")) for n in range(200)]
        )
        await gatherResults([stores[n % 2].delete(MACHINES, obj) for n, obj in enumerate(made)])
        await gatherResults([store.current() for store in stores])
        self.assertEqual(len(told[0]), 400)
        self.assertEqual(told[0], told[1])
        self.assertEqual(stores[0].version(), stores[1].version())
        versions = [version for _, _, version in told[0]]
        self.assertEqual(versions, sorted(set(versions)))

    async def test_no_lost_update(self) -> None:
        """Concurrent updates at two servers conflict rather than overwrite each other."""
        stores = await self.both()
        await stores[0].create(MACHINES, machine("counter", n=0))

        async def add(store: EtcdStorage) -> None:
            for _ in range(20):
                while True:
                    found = await store.get(MACHINES, "default", "counter")
                    try:
                        await store.update(MACHINES, changed(found, n=found["spec"]["n"] + 1))
                    except Conflict:
                        continue
                    break

        await gatherResults([Deferred.fromCoroutine(add(store)) for store in stores * 2])
        self.assertEqual((await stores[1].get(MACHINES, "default", "counter"))["spec"], {"n": 80})

    async def test_list_of_a_later_version(self) -> None:
        """A list at a version that another server gave waits for that version."""
        first, second = await self.both()
        stored = await first.create(MACHINES, machine("a"))
        version = int(stored["metadata"]["resourceVersion"])
        listing = await second.list(MACHINES, version=version)
        self.assertEqual((list(listing.items), listing.version), ([stored], version))
        with self.assertRaises(APIError) as caught:
            await second.list(MACHINES, version=version + 1000)
        self.assertEqual(caught.exception.code, 504)

    async def test_started_again(self) -> None:
        """Objects are still stored after both servers stop and one restarts."""
        first, second = await self.both()
        made = [await first.create(MACHINES, machine(f"m{n}")) for n in range(5)]
        await first.stopService()
        await second.stopService()
        first.startService()
        await first.when_ready()
        self.assertEqual(list((await first.list(MACHINES)).items), made)
        again = await first.update(MACHINES, changed(made[0], power="Off"))
        self.assertEqual(await first.get(MACHINES, "default", "m0"), again)

    async def test_pages(self) -> None:
        """More objects than one page of etcd's."""
        first, _ = await self.both()
        for start in range(0, 1200, 400):
            names = [f"m{n:04}" for n in range(start, start + 400)]
            await gatherResults([first.create(MACHINES, machine(name)) for name in names])
        await first.stopService()
        first.startService()
        await first.when_ready()
        found = (await first.list(MACHINES, stale=True)).items
        self.assertEqual(
            [one["metadata"]["name"] for one in found], [f"m{n:04}" for n in range(1200)]
        )


class CopiedPrefixTests(EtcdCase):
    """Objects whose keys were copied to another prefix, as ``etcdctl make-mirror`` does."""

    skip = needs.etcd()

    async def copied(self) -> tuple[list[Object], EtcdTarget]:
        """Return the objects of a store, and the prefix of their copies."""
        source = shared().target(any_prefix())
        copies = shared().target(any_prefix())
        storage = await self.open(source)
        for name in ("a", "b", "c"):
            await storage.create(MACHINES, machine(name))
        first = await storage.get(MACHINES, "default", "a")
        await storage.update(MACHINES, changed(first, power="Off"))
        objects = list((await storage.list(MACHINES)).items)
        await storage.stopService()
        keys = Keys(source.prefix)
        request = pb.RangeRequest(key=keys.first, range_end=keys.end)
        for pair in (await self.client(source).read(RANGE, request)).kvs:
            key = copies.prefix + pair.key.decode().removeprefix(source.prefix)
            await self.put(copies, key, pair.value.decode())
        return objects, copies

    async def test_served(self) -> None:
        """A store at the new prefix has the same objects, and two servers can write to it."""
        objects, copies = await self.copied()
        first, second = await self.open(copies), await self.open(copies)
        found = list((await first.list(MACHINES)).items)
        self.assertEqual([_content(obj) for obj in found], [_content(obj) for obj in objects])
        events: list[Event] = []
        second.watch(MACHINES, None, events.append)
        for obj in found:
            await first.update(MACHINES, changed(obj, power="On"))
        await second.delete(MACHINES, await second.get(MACHINES, "default", "b"))
        self.assertEqual(
            [(event.type, event.obj["metadata"]["name"]) for event in events],
            [("MODIFIED", "a"), ("MODIFIED", "b"), ("MODIFIED", "c"), ("DELETED", "b")],
        )


def _content(obj: Object) -> Object:
    """Return an object without its resourceVersion, which the copy counts anew."""
    metadata = {key: text for key, text in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}

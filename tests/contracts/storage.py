"""
Contract of every :class:`~twisted_exec.storage.interfaces.IStorage`.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from zope.interface.verify import verifyObject

from twisted_exec.api import kinds
from twisted_exec.api.encoded import json_of
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
)
from twisted_exec.storage.interfaces import ADDED, MODIFIED, Event, IStorage, Object
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits

MACHINES = kinds.MACHINES.resource
POOLS = kinds.MACHINEPOOLS.resource


def machine(name: str, namespace: str = "default", **spec: Any) -> Object:
    """A machine as the verbs would hand it to a store."""
    return {
        "apiVersion": MACHINES.api_version,
        "kind": MACHINES.kind,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": spec,
    }


def changed(obj: Object, **spec: Any) -> Object:
    """The same object with another spec."""
    return {**obj, "spec": spec}


class StorageContract:
    """Mix into a ``TestCase`` that makes an empty, started store."""

    remembered = 20
    remembered_bytes = 20_000
    limits = NO_LIMITS

    async def make_storage(self: Any) -> IStorage:
        """
        An empty store that is ready and stopped after the test; it remembers :attr:`remembered`
        changes of :attr:`remembered_bytes` in total, and enforces :attr:`limits`.
        """
        raise NotImplementedError

    async def test_interface(self: Any) -> None:
        """The store has all that the interface names, and says where its objects are."""
        storage = await self.make_storage()
        verifyObject(IStorage, storage, tentative=True)
        self.assertIsInstance(storage.location, str)

    async def test_create_then_get(self: Any) -> None:
        """A created object can be read, with a resourceVersion."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a", power="On"))
        self.assertEqual(int(stored["metadata"]["resourceVersion"]), storage.version())
        self.assertEqual(await storage.get(MACHINES, "default", "a"), stored)

    async def test_get_nothing(self: Any) -> None:
        """Reading a missing object fails with an error that names it."""
        with self.assertRaises(NotFound) as caught:
            await (await self.make_storage()).get(MACHINES, "default", "a")
        self.assertIn('machines.compute.ironcore.dev "a" not found', caught.exception.message)

    async def test_create_twice(self: Any) -> None:
        """A name is unique within its namespace and resource."""
        storage = await self.make_storage()
        await storage.create(MACHINES, machine("a"))
        with self.assertRaises(AlreadyExists):
            await storage.create(MACHINES, machine("a"))
        await storage.create(MACHINES, machine("a", "other"))
        await storage.create(POOLS, machine("a", ""))

    async def test_racing_creates(self: Any) -> None:
        """Of concurrent creates of the same name, exactly one succeeds."""
        storage = await self.make_storage()
        outcomes: list[str] = []
        attempts = [
            storage.create(MACHINES, machine("a")).addCallbacks(
                lambda obj: outcomes.append("made"),
                lambda f: outcomes.append(f.trap(AlreadyExists).__name__),
            )
            for _ in range(10)
        ]
        await gatherResults(attempts)
        self.assertEqual(sorted(outcomes), ["AlreadyExists"] * 9 + ["made"])

    async def test_update(self: Any) -> None:
        """An update replaces the object and raises its version."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a", power="On"))
        updated = await storage.update(MACHINES, changed(stored, power="Off"))
        self.assertGreater(
            int(updated["metadata"]["resourceVersion"]), int(stored["metadata"]["resourceVersion"])
        )
        self.assertEqual((await storage.get(MACHINES, "default", "a"))["spec"], {"power": "Off"})

    async def test_stale_update(self: Any) -> None:
        """Of two updates of the same version, one succeeds and the other fails with Conflict."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        wanted = [changed(stored, power=power) for power in ("Off", "On")]
        outcomes = await DeferredList(
            [storage.update(MACHINES, obj) for obj in wanted], consumeErrors=True
        )
        ((_, made),) = (one for one in outcomes if one[0])
        ((_, refused),) = (one for one in outcomes if not one[0])
        self.assertIsInstance(refused.value, Conflict)
        self.assertIn("the object has been modified", refused.value.message)
        self.assertEqual(await storage.get(MACHINES, "default", "a"), made)

    async def test_update_of_another(self: Any) -> None:
        """An update of a deleted object fails, also when the name has been created again."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        await storage.delete(MACHINES, stored)
        with self.assertRaises(NotFound):
            await storage.update(MACHINES, stored)
        again = await storage.create(MACHINES, machine("a"))
        with self.assertRaises(Conflict):
            await storage.update(
                MACHINES, {**again, "metadata": {**again["metadata"], "uid": "another"}}
            )

    async def test_delete(self: Any) -> None:
        """A deleted object cannot be read; its last state carries the deletion's version."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a", power="On"))
        gone = await storage.delete(MACHINES, stored)
        self.assertEqual(gone["spec"], {"power": "On"})
        self.assertEqual(int(gone["metadata"]["resourceVersion"]), storage.version())
        with self.assertRaises(NotFound):
            await storage.get(MACHINES, "default", "a")
        with self.assertRaises(NotFound):
            await storage.delete(MACHINES, stored)

    async def test_stale_delete(self: Any) -> None:
        """A delete with an outdated version fails with Conflict."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        await storage.update(MACHINES, changed(stored, power="Off"))
        with self.assertRaises(Conflict):
            await storage.delete(MACHINES, stored)

    async def test_list(self: Any) -> None:
        """A list holds one resource, in one namespace or all, sorted by namespace and name."""
        storage = await self.make_storage()
        for name, namespace in [("b", "default"), ("a", "default"), ("c", "another")]:
            await storage.create(MACHINES, machine(name, namespace))
        await storage.create(POOLS, machine("p", ""))
        everything = await storage.list(MACHINES)
        self.assertEqual([obj["metadata"]["name"] for obj in everything.items], ["c", "a", "b"])
        self.assertEqual(everything.version, storage.version())
        one = await storage.list(MACHINES, "default")
        self.assertEqual([obj["metadata"]["name"] for obj in one.items], ["a", "b"])

    async def test_order(self: Any) -> None:
        """Lists stay sorted through creates and deletes, and hold only their own namespace."""
        storage = await self.make_storage()
        then = storage.version()
        for namespace in ("b", "a-b", "a", "a.c"):
            for name in ("y", "x", "z"):
                await storage.create(MACHINES, machine(name, namespace))
        gone = await storage.get(MACHINES, "a", "y")
        await storage.delete(MACHINES, gone)
        await storage.create(MACHINES, machine("w", "a"))
        keys = [
            (obj["metadata"]["namespace"], obj["metadata"]["name"])
            for obj in (await storage.list(MACHINES)).items
        ]
        self.assertEqual(keys, sorted(keys))
        self.assertEqual(len(keys), 12)
        own = [obj["metadata"]["name"] for obj in (await storage.list(MACHINES, "a")).items]
        self.assertEqual(own, ["w", "x", "z"])
        self.assertEqual((await storage.list(MACHINES, "a", version=then)).items, [])

    async def test_encoded(self: Any) -> None:
        """Every object from a store carries its JSON; readers and watchers share the same bytes."""
        storage = await self.make_storage()
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append)
        stored = await storage.create(MACHINES, machine("ä", power="On"))
        updated = await storage.update(MACHINES, changed(stored, power="Off"))
        gone = await storage.delete(MACHINES, updated)
        for obj in (stored, updated, gone):
            self.assertEqual(json.loads(json_of(obj)), obj)
        self.assertEqual(
            [id(json_of(event.obj)) for event in events],
            [id(json_of(obj)) for obj in (stored, updated, gone)],
        )

    async def test_list_as_it_was(self: Any) -> None:
        """An earlier version of a list can be read while its changes are remembered."""
        storage = await self.make_storage()
        first = await storage.create(MACHINES, machine("a", power="On"))
        second = await storage.create(MACHINES, machine("b"))
        then = storage.version()
        await storage.update(MACHINES, changed(first, power="Off"))
        await storage.delete(MACHINES, second)
        await storage.create(MACHINES, machine("c"))
        listing = await storage.list(MACHINES, version=then)
        self.assertEqual(list(listing.items), [first, second])
        self.assertEqual(listing.version, then)

    async def test_list_too_old(self: Any) -> None:
        """A list at a forgotten version fails with Expired."""
        storage = await self.make_storage()
        await self.forget_everything(storage)
        with self.assertRaises(Expired):
            await storage.list(MACHINES, version=1)

    async def test_large_changes(self: Any) -> None:
        """
        Large changes are forgotten sooner, so that updates of one object cannot exhaust memory.
        """
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        for turn in range(10):
            stored = await storage.update(MACHINES, changed(stored, turn=turn, text="x" * 5000))
        then = storage.version()
        with self.assertRaises(Expired):
            storage.watch(MACHINES, then - 5, lambda event: None)
        events: list[Event] = []
        storage.watch(MACHINES, then - 2, events.append)
        self.assertEqual([event.obj["spec"]["turn"] for event in events], [8, 9])

    async def forget_everything(self: Any, storage: IStorage) -> None:
        """Make more changes than the store remembers."""
        stored = await storage.create(MACHINES, machine("busy"))
        for turn in range(self.remembered * 2 + 600):
            stored = await storage.update(MACHINES, changed(stored, turn=turn))

    async def test_watch_live(self: Any) -> None:
        """A watch receives every change of its resource in order, with the previous state."""
        storage = await self.make_storage()
        events: list[Event] = []
        storage.watch(MACHINES, storage.version(), events.append)
        stored = await storage.create(MACHINES, machine("a", power="On"))
        updated = await storage.update(MACHINES, changed(stored, power="Off"))
        gone = await storage.delete(MACHINES, updated)
        await storage.create(POOLS, machine("p", ""))
        self.assertEqual(
            [(event.type, event.obj, event.previous) for event in events],
            [("ADDED", stored, None), ("MODIFIED", updated, stored), ("DELETED", gone, updated)],
        )
        self.assertEqual(
            [event.version for event in events],
            [int(event.obj["metadata"]["resourceVersion"]) for event in events],
        )

    async def test_watch_from_now(self: Any) -> None:
        """A watch without a version receives only later changes, and no notice of a loss."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        events: list[Event] = []
        lost: list[str] = []
        storage.watch(MACHINES, None, events.append, "", lambda: lost.append("lost"))
        updated = await storage.update(MACHINES, changed(stored, power="Off"))
        self.assertEqual(([event.obj for event in events], lost), ([updated], []))

    async def test_current(self: Any) -> None:
        """``current`` returns the version of the latest write."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        self.assertEqual(await storage.current(), int(stored["metadata"]["resourceVersion"]))
        self.assertEqual(await storage.current(), storage.version())

    async def test_stale(self: Any) -> None:
        """A stale read returns objects written through this store."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        self.assertEqual(await storage.get(MACHINES, "default", "a", stale=True), stored)
        self.assertEqual(list((await storage.list(MACHINES, stale=True)).items), [stored])
        with self.assertRaises(NotFound):
            await storage.get(MACHINES, "default", "b", stale=True)

    async def test_ready(self: Any) -> None:
        """``when_ready`` fires on every call, not only the first."""
        storage = await self.make_storage()
        self.assertIsNone(await storage.when_ready())
        self.assertIsNone(await storage.when_ready())

    async def test_watch_replay(self: Any) -> None:
        """A watch from a version replays the changes after it."""
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a"))
        since = storage.version()
        updated = await storage.update(MACHINES, changed(stored, power="Off"))
        events: list[Event] = []
        storage.watch(MACHINES, since, events.append)
        self.assertEqual([event.obj for event in events], [updated])
        await storage.delete(MACHINES, updated)
        self.assertEqual([event.type for event in events], ["MODIFIED", "DELETED"])

    async def test_watch_one_namespace(self: Any) -> None:
        """A watch of one namespace receives no changes from other namespaces."""
        storage = await self.make_storage()
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append, "default")
        await storage.create(MACHINES, machine("a", "another"))
        await storage.create(MACHINES, machine("b"))
        self.assertEqual([event.obj["metadata"]["name"] for event in events], ["b"])

    async def test_watch_stopped(self: Any) -> None:
        """A stopped watch receives no events; stopping twice does nothing."""
        storage = await self.make_storage()
        events: list[Event] = []
        watch = storage.watch(MACHINES, None, events.append)
        watch.stop()
        watch.stop()
        await storage.create(MACHINES, machine("a"))
        self.assertEqual(events, [])

    async def test_watch_stopped_by_another(self: Any) -> None:
        """A watch stopped by another watcher during delivery does not receive that event."""
        storage = await self.make_storage()
        events: list[Event] = []
        storage.watch(MACHINES, None, lambda event: second.stop())
        second = storage.watch(MACHINES, None, events.append)
        await storage.create(MACHINES, machine("a"))
        self.assertEqual(events, [])

    async def test_watch_too_old(self: Any) -> None:
        """A watch from a forgotten version fails with Expired."""
        storage = await self.make_storage()
        await self.forget_everything(storage)
        with self.assertRaises(Expired):
            storage.watch(MACHINES, 1, lambda event: None)

    async def test_watch_from_the_future(self: Any) -> None:
        """A watch from a future version fails with Timeout and says when to retry."""
        storage = await self.make_storage()
        with self.assertRaises(APIError) as caught:
            storage.watch(MACHINES, storage.version() + 1000, lambda event: None)
        self.assertEqual((caught.exception.code, caught.exception.reason), (504, "Timeout"))
        self.assertEqual(
            caught.exception.details,
            {
                "causes": [
                    {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                ],
                "retryAfterSeconds": 1,
            },
        )

    async def test_failing_watcher(self: Any) -> None:
        """A watcher that raises loses its watch; the other watchers still receive every event."""
        storage = await self.make_storage()
        events: list[Event] = []

        def fail(event: Event) -> None:
            raise ZeroDivisionError

        storage.watch(MACHINES, None, fail)
        storage.watch(MACHINES, None, events.append)
        await storage.create(MACHINES, machine("a"))
        await storage.create(MACHINES, machine("b"))
        self.assertEqual(len(events), 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_watcher_that_writes(self: Any) -> None:
        """Each watch receives changes in order, also if a watcher before it writes."""
        storage = await self.make_storage()
        writes: list[Deferred[Object]] = []
        events: list[Event] = []

        def write(event: Event) -> None:
            if event.type == ADDED:
                writes.append(storage.update(MACHINES, changed(event.obj, power="Off")))

        storage.watch(MACHINES, None, write)
        storage.watch(MACHINES, None, events.append)
        await storage.create(MACHINES, machine("a"))
        await writes[0]
        self.assertEqual([event.type for event in events], [ADDED, MODIFIED])

    async def test_watcher_sees_what_readers_see(self: Any) -> None:
        """A change is readable by the time watchers and its writer learn of it."""
        storage = await self.make_storage()
        seen: list[Deferred[Object]] = []
        storage.watch(
            MACHINES, None, lambda event: seen.append(storage.get(MACHINES, "default", "a"))
        )
        stored = await storage.create(MACHINES, machine("a"))
        self.assertEqual(await seen[0], stored)

    async def test_probe(self: Any) -> None:
        """A probe of a working store succeeds and changes nothing."""
        storage = await self.make_storage()
        await storage.create(MACHINES, machine("a"))
        before = storage.version()
        self.assertIsNone(await storage.probe())
        self.assertEqual(storage.version(), before)

    async def test_no_limits(self: Any) -> None:
        """Without limits everything is stored."""
        storage = await self.make_storage()
        for name in "abc":
            await storage.create(MACHINES, machine(name, text="x" * 5000))

    async def test_namespace_quota(self: Any) -> None:
        """
        A full namespace refuses writes that need more space; other namespaces still accept them.
        """
        self.limits = QuotaLimits(namespace_bytes=10_000)
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a", text="x" * 5000))
        with self.assertRaises(Forbidden) as caught:
            await storage.create(MACHINES, machine("b", text="x" * 5000))
        self.assertIn(
            ' "b" is forbidden: exceeded quota: namespace default, requested: bytes=',
            caught.exception.message,
        )
        self.assertIn("limited: bytes=10000; delete objects", caught.exception.message)
        self.assertEqual(caught.exception.details["name"], "b")
        await storage.create(MACHINES, machine("b", "another", text="x" * 5000))
        with self.assertRaises(AlreadyExists):
            await storage.create(MACHINES, machine("a", text="x" * 50_000))
        with self.assertRaises(Forbidden):
            await storage.update(MACHINES, changed(stored, text="x" * 50_000))
        smaller = await storage.update(MACHINES, changed(stored, text="x" * 4000))
        await storage.delete(MACHINES, smaller)
        await storage.create(MACHINES, machine("b", text="x" * 5000))

    async def test_racing_quota(self: Any) -> None:
        """Concurrent creates count together against the quota."""
        self.limits = QuotaLimits(namespace_bytes=10_000)
        storage = await self.make_storage()
        outcomes = await DeferredList(
            [storage.create(MACHINES, machine(name, text="x" * 3000)) for name in "abcdef"],
            consumeErrors=True,
        )
        self.assertEqual([made for made, _ in outcomes].count(True), 3)
        for made, failure in outcomes:
            if not made:
                failure.trap(Forbidden)
        stored = await storage.get(MACHINES, "default", "a")
        await storage.delete(MACHINES, stored)
        await storage.create(MACHINES, machine("g", text="x" * 3000))

    async def test_total_quota(self: Any) -> None:
        """A full total refuses users' creates, but allows system objects and small updates."""
        self.limits = QuotaLimits(total_bytes=10_000)
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a", text="x" * 9000))
        with self.assertRaises(Forbidden) as caught:
            await storage.create(MACHINES, machine("b", "another", text="x" * 5000))
        self.assertIn("exceeded quota: all namespaces", caught.exception.message)
        await storage.update(MACHINES, changed(stored, text="x" * 12_000))
        for resource, namespace in [
            (MACHINES, "kube-system"),
            (POOLS, ""),
            (kinds.LEASES.resource, "another"),
            (kinds.EVENTS.resource, "another"),
        ]:
            await storage.create(resource, machine("b", namespace, text="x" * 5000))

    async def test_small_updates(self: Any) -> None:
        """In a full namespace, updates may exceed the quota a little, but not further."""
        self.limits = QuotaLimits(namespace_bytes=10_000)
        storage = await self.make_storage()
        stored = await storage.create(MACHINES, machine("a", text="x" * 9700))
        stored = await storage.update(MACHINES, changed(stored, text="x" * 10_500))
        with self.assertRaises(Forbidden):
            await storage.update(MACHINES, changed(stored, text="x" * 11_500))

    async def test_shared_strings(self: Any) -> None:
        """Versions of an object, including the deleted one, share unchanged strings in memory."""
        self.remembered_bytes = 1_000_000
        storage = await self.make_storage()
        events: list[Event] = []
        storage.watch(MACHINES, None, events.append)
        stored = await storage.create(MACHINES, machine("a", text="x" * 50_000))
        copied = json.loads(json_of(stored))
        updated = await storage.update(MACHINES, changed(copied, text="x" * 50_000, power="On"))
        gone = await storage.delete(MACHINES, json.loads(json_of(updated)))
        self.assertIs(updated["spec"]["text"], stored["spec"]["text"])
        self.assertIs(gone["spec"]["text"], stored["spec"]["text"])
        self.assertEqual(events[1].obj["spec"], {"text": "x" * 50_000, "power": "On"})

    async def test_deleted_large_objects(self: Any) -> None:
        """Last states of deleted objects count too, so large deletions are forgotten sooner."""
        storage = await self.make_storage()
        stored = [
            await storage.create(MACHINES, machine(f"m{turn}", text="x" * 5000))
            for turn in range(6)
        ]
        then = storage.version()
        for obj in stored:
            await storage.delete(MACHINES, obj)
        with self.assertRaises(Expired):
            storage.watch(MACHINES, then + 2, lambda event: None)
        storage.watch(MACHINES, then + 5, lambda event: None)

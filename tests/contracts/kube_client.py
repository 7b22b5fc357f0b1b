"""
Contracts of every :class:`~twisted_exec.kube.interfaces.IKubeClient`, and of every
:class:`~twisted_exec.kube.interfaces.IObjectClient`.

Inherit :class:`KubeClientContract` or :class:`ObjectClientContract` beside a trial ``TestCase`` and
say how to make a client of an empty cluster.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred

from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.kube.interfaces import IKubeClient, IObjectClient, Object

MACHINES = kinds.MACHINES.resource
POOLS = kinds.MACHINEPOOLS.resource
NAMESPACES = kinds.NAMESPACES.resource
NOT_SERVED = Resource("example.org", "v1", "widgets", "Widget")
FINALIZER = "machinepoollet.ironcore.dev/machine"


def machine(name: str, pool: str = "pool-a", **metadata: Any) -> Object:
    """A Machine bound to a pool."""
    return {
        "apiVersion": MACHINES.api_version,
        "kind": "Machine",
        "metadata": {"name": name, **metadata},
        "spec": {"machineClassRef": {"name": "pty"}, "machinePoolRef": {"name": pool}},
    }


class ObjectClientContract:
    """Tests; ``self`` is a :class:`twisted.trial.unittest.TestCase`."""

    client: IObjectClient

    async def make_client(self) -> IObjectClient:
        """A client of an empty cluster that may do everything; cleans up after itself."""
        raise NotImplementedError

    async def setUp(self) -> None:
        self.client = await self.make_client()
        await self.client.create(NAMESPACES, {"metadata": {"name": "lab"}})

    async def refused(self: Any, asking: Deferred[Any]) -> APIError:
        """The API error that ``asking`` fails with."""
        with self.assertRaises(APIError) as caught:
            await asking
        error: APIError = caught.exception
        return error

    async def test_create_and_get(self: Any) -> None:
        """A created object has a UID, a version and its type, and can be fetched."""
        made = await self.client.create(MACHINES, machine("vm"), "lab")
        self.assertTrue(made["metadata"]["uid"])
        self.assertTrue(made["metadata"]["resourceVersion"])
        self.assertEqual((made["kind"], made["apiVersion"]), ("Machine", MACHINES.api_version))
        self.assertEqual(made["metadata"]["namespace"], "lab")
        self.assertEqual(await self.client.get(MACHINES, "vm", "lab"), made)

    async def test_own_objects(self: Any) -> None:
        """Callers may change the objects that they sent or got."""
        sent = machine("vm", labels={"a": "1"})
        made = await self.client.create(MACHINES, sent, "lab")
        for obj in (sent, made, await self.client.get(MACHINES, "vm", "lab")):
            obj["metadata"]["labels"]["a"] = "2"
        read = await self.client.get(MACHINES, "vm", "lab")
        self.assertEqual(read["metadata"]["labels"], {"a": "1"})

    async def test_not_served(self: Any) -> None:
        """A resource that the server does not serve is not found."""
        refused = await self.refused(self.client.get(NOT_SERVED, "x", "lab"))
        self.assertEqual(refused.code, 404)

    async def test_already_exists(self: Any) -> None:
        """A name is unique within its namespace."""
        await self.client.create(MACHINES, machine("vm"), "lab")
        refused = await self.refused(self.client.create(MACHINES, machine("vm"), "lab"))
        self.assertEqual((refused.code, refused.reason), (409, "AlreadyExists"))
        self.assertIsInstance(refused, AlreadyExists)

    async def test_not_found(self: Any) -> None:
        """get, delete and patch of a missing object fail with a 404 that names it."""
        for asking in (
            self.client.get(MACHINES, "no", "lab"),
            self.client.delete(MACHINES, "no", "lab"),
            self.client.patch(MACHINES, "no", {}, "lab"),
        ):
            refused = await self.refused(asking)
            self.assertIsInstance(refused, NotFound)
            self.assertEqual(
                (refused.code, refused.message),
                (404, 'machines.compute.ironcore.dev "no" not found'),
            )

    async def test_update_conflict(self: Any) -> None:
        """An update of an outdated version fails with Conflict."""
        old = await self.client.create(MACHINES, machine("vm"), "lab")
        new = await self.client.patch(MACHINES, "vm", {"metadata": {"labels": {"a": "b"}}}, "lab")
        self.assertNotEqual(new["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"])
        refused = await self.refused(self.client.update(MACHINES, old, "lab"))
        self.assertEqual((refused.code, refused.reason), (409, "Conflict"))
        self.assertIsInstance(refused, Conflict)
        new["metadata"]["labels"] = {"c": "d"}
        stored = await self.client.update(MACHINES, new, "lab")
        self.assertEqual(stored["metadata"]["labels"], {"c": "d"})

    async def test_patch(self: Any) -> None:
        """A merge patch adds, replaces and removes."""
        await self.client.create(MACHINES, machine("vm", labels={"a": "1", "b": "2"}), "lab")
        patch = {"metadata": {"labels": {"a": None, "b": "3", "c": "4"}}}
        stored = await self.client.patch(MACHINES, "vm", patch, "lab")
        self.assertEqual(stored["metadata"]["labels"], {"b": "3", "c": "4"})

    async def test_patch_conflict(self: Any) -> None:
        """
        A patch with an outdated resourceVersion fails with Conflict, because it replaces lists.
        """
        old = await self.client.create(MACHINES, machine("vm"), "lab")
        await self.client.patch(MACHINES, "vm", {"metadata": {"finalizers": [FINALIZER]}}, "lab")
        version = old["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": [], "resourceVersion": version}}
        self.assertEqual(
            (await self.refused(self.client.patch(MACHINES, "vm", patch, "lab"))).code, 409
        )

    async def test_unchanged(self: Any) -> None:
        """A patch that changes nothing creates no new version."""
        made = await self.client.create(MACHINES, machine("vm", labels={"a": "1"}), "lab")
        patch = {"metadata": {"labels": {"a": "1"}}}
        self.assertEqual(await self.client.patch(MACHINES, "vm", patch, "lab"), made)

    async def test_status_is_separate(self: Any) -> None:
        """The status subresource changes nothing but the status, and only it changes the status."""
        await self.client.create(MACHINES, machine("vm"), "lab")
        patch = {"status": {"state": "Running"}, "metadata": {"labels": {"a": "b"}}}
        main = await self.client.patch(MACHINES, "vm", patch, "lab")
        self.assertNotEqual((main.get("status") or {}).get("state"), "Running")
        self.assertEqual(main["metadata"]["labels"], {"a": "b"})
        patch = {"status": {"state": "Running"}, "spec": {"power": "Off"}}
        through = await self.client.patch(MACHINES, "vm", patch, "lab", subresource="status")
        self.assertEqual(through["status"]["state"], "Running")
        self.assertNotEqual(through["spec"].get("power"), "Off")

    async def test_cluster_scoped(self: Any) -> None:
        """Objects without a namespace can be created and read."""
        await self.client.create(
            POOLS, {"metadata": {"name": "p"}, "spec": {"providerID": "x://p"}}
        )
        pool = await self.client.get(POOLS, "p")
        self.assertEqual(pool["spec"]["providerID"], "x://p")

    async def test_delete(self: Any) -> None:
        """A deleted object is gone."""
        await self.client.create(MACHINES, machine("vm"), "lab")
        await self.client.delete(MACHINES, "vm", "lab")
        self.assertEqual((await self.refused(self.client.get(MACHINES, "vm", "lab"))).code, 404)

    async def test_delete_another(self: Any) -> None:
        """A delete with another object's UID fails with Conflict."""
        made = await self.client.create(MACHINES, machine("vm"), "lab")
        refused = await self.refused(self.client.delete(MACHINES, "vm", "lab", uid="another"))
        self.assertEqual(refused.code, 409)
        await self.client.delete(MACHINES, "vm", "lab", uid=made["metadata"]["uid"])

    async def test_finalizer(self: Any) -> None:
        """A deleted object remains until its finalizer is removed."""
        await self.client.create(MACHINES, machine("vm", finalizers=[FINALIZER]), "lab")
        await self.client.delete(MACHINES, "vm", "lab")
        held = await self.client.get(MACHINES, "vm", "lab")
        self.assertTrue(held["metadata"]["deletionTimestamp"])
        await self.client.patch(MACHINES, "vm", {"metadata": {"finalizers": []}}, "lab")
        self.assertEqual((await self.refused(self.client.get(MACHINES, "vm", "lab"))).code, 404)


class KubeClientContract(ObjectClientContract):
    """Tests of lists and watches, beside those of :class:`ObjectClientContract`."""

    client: IKubeClient

    async def make_client(self) -> IKubeClient:
        """See :meth:`ObjectClientContract.make_client`."""
        raise NotImplementedError

    async def test_list(self: Any) -> None:
        """A list covers all namespaces or one, in order, and carries a version to watch from."""
        await self.client.create(NAMESPACES, {"metadata": {"name": "other"}})
        for namespace, name in (("lab", "b"), ("lab", "a"), ("other", "c")):
            await self.client.create(MACHINES, machine(name), namespace)
        whole = await self.client.list(MACHINES)
        self.assertEqual([item["metadata"]["name"] for item in whole["items"]], ["a", "b", "c"])
        self.assertTrue(whole["metadata"]["resourceVersion"])
        trimmed = await self.client.list(MACHINES, trim=lambda obj: {"of": obj["metadata"]["name"]})
        self.assertEqual(trimmed["items"], [{"of": name} for name in "abc"])
        one = await self.client.list(MACHINES, "other")
        self.assertEqual([item["metadata"]["name"] for item in one["items"]], ["c"])

    async def test_selectors(self: Any) -> None:
        """Field and label selectors filter a list; an unknown field is refused."""
        await self.client.create(MACHINES, machine("a", "pool-a", labels={"x": "1"}), "lab")
        await self.client.create(MACHINES, machine("b", "pool-b", labels={"x": "2"}), "lab")
        by_field = await self.client.list(
            MACHINES, field_selector="spec.machinePoolRef.name=pool-b"
        )
        by_label = await self.client.list(MACHINES, label_selector="x in (1)")
        self.assertEqual([item["metadata"]["name"] for item in by_field["items"]], ["b"])
        self.assertEqual([item["metadata"]["name"] for item in by_label["items"]], ["a"])
        refused = await self.refused(self.client.list(MACHINES, field_selector="spec.power=On"))
        self.assertEqual(refused.code, 400)

    async def test_watch(self: Any) -> None:
        """A watch reports the selected changes after its version, in order."""
        await self.client.create(MACHINES, machine("before"), "lab")
        version = (await self.client.list(MACHINES))["metadata"]["resourceVersion"]
        await self.client.create(MACHINES, machine("missed"), "lab")
        events: list[tuple[str, str]] = []
        opened: list[None] = []
        watching = self.client.watch(
            MACHINES,
            lambda kind, obj: kind != "BOOKMARK" and events.append((kind, obj["metadata"]["name"])),
            resource_version=version,
            field_selector="spec.machinePoolRef.name=pool-a",
            on_open=lambda: opened.append(None),
        )
        await self.client.create(MACHINES, machine("vm"), "lab")
        await self.client.create(MACHINES, machine("elsewhere", "pool-b"), "lab")
        await self.client.patch(MACHINES, "vm", {"metadata": {"labels": {"a": "b"}}}, "lab")
        await self.client.delete(MACHINES, "vm", "lab")
        await until(lambda: len(events) >= 4)
        self.assertEqual(
            events, [("ADDED", "missed"), ("ADDED", "vm"), ("MODIFIED", "vm"), ("DELETED", "vm")]
        )
        watching.cancel()
        with self.assertRaises(CancelledError):
            await watching
        self.assertEqual(len(opened), 1)

    async def test_watch_is_open(self: Any) -> None:
        """
        ``on_open`` is called when a watch opens, also without events, but not when it is refused.
        """
        opened: list[str] = []
        version = (await self.client.list(MACHINES))["metadata"]["resourceVersion"]
        watching = self.client.watch(
            MACHINES, self.fail, resource_version=version, on_open=lambda: opened.append("quiet")
        )
        await until(lambda: opened)
        watching.cancel()
        with self.assertRaises(CancelledError):
            await watching
        watching = self.client.watch(
            NOT_SERVED, self.fail, resource_version="1", on_open=lambda: opened.append("refused")
        )
        self.assertEqual((await self.refused(watching)).code, 404)
        self.assertEqual(opened, ["quiet"])


async def until(condition: Any) -> None:
    """Let the reactor turn until ``condition()``; the test's time-out bounds it."""
    while not condition():
        turn: Deferred[None] = Deferred()
        reactor.callLater(0, turn.callback, None)  # type: ignore[attr-defined]
        await turn

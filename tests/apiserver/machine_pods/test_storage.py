"""
Tests for :mod:`twisted_exec.apiserver.machine_pods.storage`: Pods as an API server's client reads
them.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import MACHINES, MERGE, PODS, POOLS, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Expired, MethodNotAllowed
from twisted_exec.apiserver.machine_pods import storage as storage_module
from twisted_exec.apiserver.machine_pods.conversion import pod_of
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.apiserver.machine_pods.storage import PodStorage
from twisted_exec.program.turns import REST_SECONDS, TURN_SECONDS
from twisted_exec.storage.interfaces import IStorage, Listing
from twisted_exec.storage.memory import MemoryStorage

ALL_PODS = "/api/v1/pods"
TABLE = (("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),)


class PodsTestCase(APITestCase):
    """An API server with the view."""

    pods_view = True

    def set_state(self, name: str, state: str) -> None:
        """As a poollet does."""
        self.answer(
            "PATCH", f"{MACHINES}/{name}/status", {"status": {"state": state}}, content_type=MERGE
        )

    def set_ready(self, pool: str, status: str, message: str = "") -> None:
        """As a poollet does, or the watch over it."""
        condition = {"type": "Ready", "status": status, "message": message}
        self.answer(
            "PATCH",
            f"{POOLS}/{pool}/status",
            {"status": {"conditions": [condition]}},
            content_type=MERGE,
        )

    def label(self, name: str, value: str) -> Object:
        """Change a machine."""
        patch = {"metadata": {"labels": {"n": value}}}
        obj: Object = self.answer("PATCH", f"{MACHINES}/{name}", patch, content_type=MERGE)
        return obj

    def names(self, path: str, **more: Any) -> list[str]:
        """The names of a list's items."""
        return [item["metadata"]["name"] for item in self.answer("GET", path, **more)["items"]]


class ReadTests(PodsTestCase):
    """get and list."""

    def test_get(self) -> None:
        """A machine is a Pod of the same version; without it there is none."""
        made = self.make_machine("a")
        pod = self.answer("GET", f"{PODS}/a")
        self.assertEqual((pod["kind"], pod["apiVersion"]), ("Pod", "v1"))
        for key in ("name", "namespace", "uid", "resourceVersion"):
            self.assertEqual(pod["metadata"][key], made["metadata"][key])
        self.assertEqual(self.answer("GET", f"{PODS}/a/status"), pod)
        told = self.refused(404, "GET", f"{PODS}/b")
        self.assertEqual(told, 'pods "b" not found')

    def test_follows(self) -> None:
        """It is the machine as it is now."""
        self.make_pool("pool-a")
        self.make_machine("a")
        self.assertEqual(self.answer("GET", f"{PODS}/a")["status"]["phase"], "Pending")
        self.set_state("a", "Running")
        pod = self.answer("GET", f"{PODS}/a")
        machine = self.answer("GET", f"{MACHINES}/a")
        self.assertEqual(pod["status"]["phase"], "Running")
        self.assertEqual(pod["metadata"]["resourceVersion"], machine["metadata"]["resourceVersion"])
        self.answer("DELETE", f"{MACHINES}/a")
        self.refused(404, "GET", f"{PODS}/a")

    def test_list(self) -> None:
        """All, or those of a namespace; the list is of the store's version."""
        self.answer("POST", "/api/v1/namespaces", {"metadata": {"name": "lab"}}, code=201)
        self.make_machine("a")
        lab = "/namespaces/lab/".join(MACHINES.split("/namespaces/default/"))
        body = {"metadata": {"name": "b"}, "spec": {"machineClassRef": {"name": "small"}}}
        self.answer("POST", lab, body, code=201)
        listed = self.answer("GET", ALL_PODS)
        self.assertEqual((listed["kind"], listed["apiVersion"]), ("PodList", "v1"))
        self.assertEqual([pod["metadata"]["name"] for pod in listed["items"]], ["a", "b"])
        self.assertEqual(self.names(PODS), ["a"])
        self.answer("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}, code=201)
        version = self.answer("GET", MACHINES)["metadata"]["resourceVersion"]
        self.assertEqual(self.answer("GET", PODS)["metadata"]["resourceVersion"], version)

    def test_selectors(self) -> None:
        """By what clients select Pods by."""
        for name, pool in (("a", "pool-a"), ("b", "pool-b"), ("c", "")):
            self.make_machine(name, pool)
            self.make_pool(pool) if pool else None
        self.label("b", "1")
        self.set_state("b", "Running")
        for selector, names in (
            ("fieldSelector=metadata.name=a", ["a"]),
            ("fieldSelector=metadata.namespace!=default", []),
            ("fieldSelector=spec.nodeName=pool-b", ["b"]),
            ("fieldSelector=spec.nodeName=", ["c"]),
            ("fieldSelector=status.phase=Running", ["b"]),
            ("fieldSelector=status.phase!=Running", ["a", "c"]),
            ("fieldSelector=spec.restartPolicy=Never,status.podIP=", ["a", "b", "c"]),
            ("labelSelector=n=1", ["b"]),
            ("labelSelector=!n", ["a", "c"]),
        ):
            self.assertEqual(self.names(f"{PODS}?{selector}"), names, selector)
        told = self.refused(400, "GET", f"{PODS}?fieldSelector=spec.machinePoolRef.name=a")
        self.assertIn("field label not supported", told)

    def test_pages(self) -> None:
        """A paged list is of one moment."""
        for name in ("a", "b", "c"):
            self.make_machine(name)
        page = self.answer("GET", f"{PODS}?limit=2")
        self.assertEqual(len(page["items"]), 2)
        self.assertEqual(page["metadata"]["remainingItemCount"], 1)
        self.answer("DELETE", f"{MACHINES}/c")
        self.assertEqual(
            self.names(f"{PODS}?limit=2&continue={page['metadata']['continue']}"), ["c"]
        )
        self.assertEqual(self.names(PODS), ["a", "b"])

    def test_table(self) -> None:
        """As kubectl prints Pods, the wide columns behind the age."""
        self.make_pool("pool-a")
        self.make_machine("a")
        self.set_state("a", "Running")
        self.make_machine("b")
        self.make_machine("c", power="Off")
        self.set_state("c", "Shutdown")
        table = self.answer("GET", PODS, headers=TABLE)
        columns = [(each["name"], each["priority"]) for each in table["columnDefinitions"]]
        self.assertEqual(
            columns,
            [
                *((name, 0) for name in ("Name", "Ready", "Status", "Restarts", "Age")),
                *((name, 1) for name in ("IP", "Node", "Nominated Node", "Readiness Gates")),
            ],
        )
        none = "<none>"
        self.assertEqual(
            [row["cells"] for row in table["rows"]],
            [
                ["a", "1/1", "Running", "0", "0s", none, "pool-a", none, none],
                ["b", "0/1", "Pending", "0", "0s", none, "pool-a", none, none],
                ["c", "0/1", "Completed", "0", "0s", none, "pool-a", none, none],
            ],
        )

    def test_deleted_in_table(self) -> None:
        """A machine that its poollet still has to remove is Terminating."""
        self.make_machine("a")
        patch = {"metadata": {"finalizers": ["x/y"]}}
        self.answer("PATCH", f"{MACHINES}/a", patch, content_type=MERGE)
        self.answer("DELETE", f"{MACHINES}/a")
        (row,) = self.answer("GET", PODS, headers=TABLE)["rows"]
        self.assertEqual(row["cells"][2], "Terminating")

    def test_pool(self) -> None:
        """A pool that is not heard of makes its machines unknown, until it is."""
        self.make_pool("pool-a")
        self.make_machine("a")
        self.set_state("a", "Running")
        self.assertEqual(self.answer("GET", f"{PODS}/a")["status"]["phase"], "Running")
        before = self.answer("GET", f"{PODS}/a")["metadata"]["resourceVersion"]
        self.set_ready("pool-a", "Unknown", "not heard of")
        pod = self.answer("GET", f"{PODS}/a")
        self.assertEqual(pod["status"]["phase"], "Unknown")
        self.assertNotEqual(pod["metadata"]["resourceVersion"], before)
        self.set_ready("pool-a", "True")
        self.assertEqual(self.answer("GET", f"{PODS}/a")["status"]["phase"], "Running")
        self.answer("DELETE", f"{POOLS}/pool-a")
        self.assertEqual(self.answer("GET", f"{PODS}/a")["status"]["phase"], "Unknown")

    def test_first_look(self) -> None:
        """The first reader sees the versions that earlier readers would have seen."""
        self.make_pool("pool-a")
        self.make_machine("a")
        self.set_state("a", "Running")
        self.set_ready("pool-a", "Unknown")
        version = self.answer("GET", f"{POOLS}/pool-a")["metadata"]["resourceVersion"]
        pod = self.answer("GET", f"{PODS}/a")
        self.assertEqual(pod["status"]["phase"], "Unknown")
        self.assertEqual(pod["metadata"]["resourceVersion"], version)

    def test_documents(self) -> None:
        """Discovery and OpenAPI know what there is, and that it is read-only."""
        listed = {item["name"]: item for item in self.answer("GET", "/api/v1")["resources"]}
        self.assertEqual(listed["pods"]["verbs"], ["get", "list", "watch"])
        self.assertEqual(listed["pods"]["shortNames"], ["po"])
        self.assertEqual(listed["pods/exec"]["kind"], "PodExecOptions")
        self.assertEqual(listed["pods/attach"]["verbs"], ["create", "get"])
        self.assertEqual(listed["pods/portforward"]["kind"], "PodPortForwardOptions")
        self.assertEqual(listed["pods/status"]["verbs"], ["get"])
        document = self.answer("GET", "/openapi/v3/api/v1")
        path = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
        self.assertEqual(sorted(path), ["get", "parameters"])
        self.assertIn("v1.PodExecOptions", document["components"]["schemas"])


class WithoutTests(APITestCase):
    """A server without the view."""

    def test_unknown(self) -> None:
        """Without the view there is no such resource, and no document mentions it."""
        self.make_machine("a")
        for method, path in (
            ("GET", PODS),
            ("GET", f"{PODS}/a"),
            ("POST", PODS),
            ("DELETE", f"{PODS}/a"),
            ("POST", f"{PODS}/a/exec"),
            ("POST", f"{PODS}/a/portforward"),
        ):
            self.refused(404, method, path)
        self.assertNotIn("pods", json.dumps(self.answer("GET", "/api/v1")))
        self.assertNotIn('"Pod"', json.dumps(self.answer("GET", "/openapi/v3/api/v1")))


class WatchTests(PodsTestCase):
    """watch."""

    def test_changes(self) -> None:
        """Changes of a machine change its Pod."""
        self.make_pool("pool-a")
        self.make_machine("a")
        watching = self.watch(f"{PODS}?watch=1")
        self.assertEqual(watching.names(), [("ADDED", "a")])
        changed = self.label("a", "1")
        (event,) = watching.events()
        self.assertEqual(event["type"], "MODIFIED")
        self.assertEqual(event["object"]["kind"], "Pod")
        self.assertEqual(
            event["object"]["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]
        )
        self.make_machine("b")
        self.answer("DELETE", f"{MACHINES}/a")
        self.assertEqual(watching.names(), [("ADDED", "b"), ("DELETED", "a")])

    def test_missed(self) -> None:
        """After missed changes watchers list again, and see the current state."""
        self.make_pool("pool-a")
        self.make_machine("a")
        self.make_machine("b")
        watching = self.watch(f"{PODS}?watch=1")
        self.assertEqual(watching.names(), [("ADDED", "a"), ("ADDED", "b")])
        self.storage.lose((kinds.MACHINES.resource, "default", "a"))
        (over,) = watching.events()
        self.assertEqual((over["type"], over["object"]["code"]), ("ERROR", 410))
        self.assertEqual(self.watch(f"{PODS}?watch=1").names(), [("ADDED", "b")])

    def test_selector(self) -> None:
        """A Pod that begins or ceases to fit comes and goes."""
        self.make_pool("pool-a")
        self.make_machine("a")
        watching = self.watch(f"{PODS}?watch=1&fieldSelector=status.phase=Running")
        self.assertEqual(watching.names(), [])
        self.set_state("a", "Running")
        self.assertEqual(watching.names(), [("ADDED", "a")])
        self.set_ready("pool-a", "Unknown")
        self.assertEqual(watching.names(), [("DELETED", "a")])

    def test_heartbeats(self) -> None:
        """Changes without effect on Pods are not sent; those of a pool are sent for each Pod."""
        self.make_pool("pool-a")
        for name in ("a", "b"):
            self.make_machine(name)
            self.set_state(name, "Running")
        self.make_machine("c", "pool-b")
        watching = self.watch(f"{PODS}?watch=1")
        self.assertEqual(len(watching.names()), 3)
        self.set_ready("pool-a", "True", "one")
        self.set_ready("pool-a", "True", "two")
        self.assertEqual(watching.names(), [])
        self.set_ready("pool-a", "False", "going")
        self.assertEqual(watching.names(), [("MODIFIED", "a"), ("MODIFIED", "b")])

    def test_resumed(self) -> None:
        """A watch goes on from any version that a list or an event told."""
        self.make_pool("pool-a")
        self.make_machine("a")
        self.set_state("a", "Running")
        listed = self.answer("GET", PODS)["metadata"]["resourceVersion"]
        self.set_ready("pool-a", "Unknown")
        self.label("a", "1")
        watching = self.watch(f"{PODS}?watch=1&resourceVersion={listed}")
        events = watching.events()
        self.assertEqual([each["type"] for each in events], ["MODIFIED"] * 2)
        told = events[0]["object"]["metadata"]["resourceVersion"]
        again = self.watch(f"{PODS}?watch=1&resourceVersion={told}")
        self.assertEqual(again.names(), [("MODIFIED", "a")])

    def test_before_anyone_looked(self) -> None:
        """There is no history before the first list: clients list again."""
        made = self.make_machine("a")["metadata"]["resourceVersion"]
        now = self.make_machine("b")["metadata"]["resourceVersion"]
        watching = self.watch(f"{PODS}?watch=1&resourceVersion={made}")
        (event,) = watching.events()
        self.assertEqual((event["type"], event["object"]["code"]), ("ERROR", 410))
        watching = self.watch(f"{PODS}?watch=1&resourceVersion={now}")
        self.make_machine("c")
        self.assertEqual(watching.names(), [("ADDED", "c")])

    def test_first(self) -> None:
        """The first request may be a watch."""
        self.make_machine("a")
        watching = self.watch(f"{PODS}?watch=1&resourceVersion=0")
        self.assertEqual(watching.names(), [("ADDED", "a")])

    def test_server_stops(self) -> None:
        """Watches of Pods end with all others."""
        watching = self.watch(f"{PODS}?watch=1")
        watching.events()
        for watches in self.parts.watches:
            watches.end_all()
        self.assertTrue(watching.client.received().endswith(b"0\r\n\r\n"))


class StorageTests(PodsTestCase):
    """Tests for :class:`PodStorage` by itself."""

    def test_read_only(self) -> None:
        """Nothing is written through it."""
        pods: IStorage = PodStorage(self.storage, PodNames([IRONCORE]), self.clock)
        for write in (pods.create, pods.update, pods.delete):
            self.failureResultOf(write(kinds.PODS.resource, {}), MethodNotAllowed)

    def test_shared(self) -> None:
        """However many look, the view is made once, and each Pod is one object for all."""
        self.make_machine("a")
        pods = PodStorage(self.storage, PodNames([IRONCORE]), self.clock)
        pods.startService()
        self.addCleanup(pods.stopService)
        seen: list[Object] = []
        first = self.successResultOf(pods.get(kinds.PODS.resource, "default", "a"))
        for _ in range(2):
            pods.watch(kinds.PODS.resource, pods.version(), lambda event: seen.append(event.obj))
        self.assertIs(self.successResultOf(pods.list(kinds.PODS.resource)).items[0], first)
        self.label("a", "1")
        self.assertIs(seen[0], seen[1])

    def test_short_turns(self) -> None:
        """The first Pods of many machines are made in short turns; changes meanwhile are not lost."""
        made: list[str] = []

        def slow(machine: Object, *rest: Any) -> Object:
            self.clock.rightNow += 0.75 * TURN_SECONDS
            made.append(machine["metadata"]["name"])
            return pod_of(machine, *rest)

        self.patch(storage_module, "pod_of", slow)
        for number in range(6):
            self.make_machine(f"vm-{number}")
        pods = PodStorage(self.storage, PodNames([IRONCORE]), self.clock)
        pods.startService()
        self.addCleanup(pods.stopService)
        listed = pods.list(kinds.PODS.resource)
        self.assertEqual(len(made), 2)
        self.clock.advance(REST_SECONDS)
        self.assertEqual(len(made), 4)
        self.make_machine("vm-6")
        self.label("vm-0", "1")
        self.assertNoResult(listed)
        self.clock.advance(REST_SECONDS)
        found = {pod["metadata"]["name"]: pod for pod in self.successResultOf(listed).items}
        self.assertEqual(sorted(found), [f"vm-{number}" for number in range(7)])
        self.assertEqual(found["vm-0"]["metadata"]["labels"]["n"], "1")

    def test_stopped(self) -> None:
        """A stopped store follows no more; started again it begins anew."""
        self.make_machine("a")
        pods = PodStorage(self.storage, PodNames([IRONCORE]), self.clock)
        pods.startService()
        self.successResultOf(pods.list(kinds.PODS.resource))
        pods.stopService()
        self.make_machine("b")
        pods.startService()
        self.addCleanup(pods.stopService)
        self.assertEqual(len(self.successResultOf(pods.list(kinds.PODS.resource)).items), 2)


class SlowStorage(MemoryStorage):
    """A store that lists on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Deferred[None]] = []

    def list(
        self, resource: Resource, namespace: str = "", *, version: int | None = None
    ) -> Deferred[Listing]:
        held: Deferred[None] = Deferred()
        self.held.append(held)
        listing = super().list(resource, namespace, version=version)
        return held.addCallback(lambda _: listing)

    def release(self) -> None:
        """Let the lists complete."""
        self.held.pop(0).callback(None)


class SlowStorageTests(SynchronousTestCase):
    """A store that takes time to answer."""

    def setUp(self) -> None:
        self.storage, self.clock = SlowStorage(), Clock()
        self.pods = PodStorage(self.storage, PodNames([IRONCORE]), self.clock)
        self.pods.startService()
        self.addCleanup(self.pods.stopService)

    def make(self, kind: kinds.Kind, name: str, body: Object) -> Object:
        """Store an object."""
        metadata = {"name": name, "namespace": "default" if kind is kinds.MACHINES else ""}
        head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        obj = {**head, "metadata": {**metadata, "uid": name}, **body}
        made: Object = self.successResultOf(self.storage.create(kind.resource, obj))
        return made

    def change(self, kind: kinds.Kind, obj: Object, status: Object) -> Object:
        """Store another status of it."""
        made: Object = self.successResultOf(
            self.storage.update(kind.resource, {**obj, "status": status})
        )
        return made

    def test_meanwhile(self) -> None:
        """Changes during the first lists are applied in order."""
        spec = {"spec": {"machinePoolRef": {"name": "pool-a"}}}
        silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        pool = self.make(kinds.MACHINEPOOLS, "pool-a", {})
        machine = self.make(kinds.MACHINES, "a", spec)
        listed = self.pods.list(kinds.PODS.resource)
        self.storage.release()
        since = self.storage.version()
        pool = self.change(kinds.MACHINEPOOLS, pool, silent)
        machine = self.change(kinds.MACHINES, machine, {"state": "Running"})
        self.change(kinds.MACHINEPOOLS, pool, {})
        self.assertNoResult(listed)
        self.storage.release()
        (pod,) = self.successResultOf(listed).items
        self.assertEqual(pod["status"]["phase"], "Running")
        seen: list[tuple[int, str]] = []
        self.pods.watch(
            kinds.PODS.resource,
            since,
            lambda event: seen.append((event.version, event.obj["status"]["phase"])),
        )
        self.assertEqual(
            seen, [(since + 1, "Pending"), (since + 2, "Unknown"), (since + 3, "Running")]
        )

    def test_one_look(self) -> None:
        """Two that ask at once wait for the same look."""
        first, second = (self.pods.list(kinds.PODS.resource) for _ in range(2))
        while self.storage.held:
            self.storage.release()
        self.assertEqual(self.successResultOf(first).items, [])
        self.assertEqual(self.successResultOf(second).items, [])

    def test_watch(self) -> None:
        """A watch does not wait for the first lists: its client has to list."""
        with self.assertRaises(Expired):
            self.pods.watch(kinds.PODS.resource, 0, lambda event: None)
        while self.storage.held:
            self.storage.release()
        self.pods.watch(kinds.PODS.resource, 0, lambda event: None)

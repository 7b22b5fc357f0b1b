"""Tests for :mod:`twisted_exec.nodeserver.nodes.controller` and its workers: clusters in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import SimpleLeaf, SimpleRootPods, simple
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds import EVENTS, LEASES
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.status import Conflict, ServiceUnavailable
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.interfaces import ILeaf, LeafNode
from twisted_exec.nodeserver.leaves.kosmos import KOSMOS_LEAF
from twisted_exec.nodeserver.nodes.address_conflict import LONGEST_SECONDS
from twisted_exec.nodeserver.nodes.addresses import Address
from twisted_exec.nodeserver.nodes.controller import GRACE_SECONDS, NodeController
from twisted_exec.nodeserver.nodes.plan import (
    ENDPOINTS,
    KEPT_BY,
    LEAF,
    Patch,
    PatchNodeStatus,
    plan,
)
from twisted_exec.nodeserver.nodes.probe import PROBE_SECONDS, LeafProbe, RootProbe
from twisted_exec.nodeserver.nodes.worker import BEAT_SECONDS, TELL_SECONDS, PublishedEndpoint

OURS = [("InternalDNS", "10.9.9.9")]
PUBLISHED = PublishedEndpoint(OURS, 10250, preferred=("InternalDNS", "InternalIP"))
NAME = "leaf-one"
YES: ConditionValue = ("True", "Fine", "")


class Ways:
    """Results of probes, without network."""

    def __init__(self) -> None:
        self.root, self.ready, self.allowed = YES, YES, YES
        self.looks: list[str] = []

    def root_probe(self) -> RootProbe:
        ways = self

        class Root(RootProbe):
            async def look(self, node: str, own: Address | None, port: int) -> ConditionValue:
                ways.looks.append(node)
                return ways.root

        return Root(lambda: ClientConfig("https://root.example"), None, PUBLISHED.keeper)

    def leaf_probe(self, leaf: ILeaf, clock: Any) -> LeafProbe:
        ways = self

        class Probe(LeafProbe):
            async def look(self) -> tuple[ConditionValue, ConditionValue]:
                ways.looks.append(leaf.name)
                self.version = "v1.33.1"
                return ways.ready, ways.allowed

        return Probe(leaf, clock)


class UpkeepTestCase(SynchronousTestCase):
    """A root, a leaf with one node, and upkeep of one Node."""

    published = PUBLISHED

    def setUp(self) -> None:
        self.clock, self.ways = Clock(), Ways()
        self.clock.advance(1_700_000_000)
        self.roots, self.leaves = simple(node=NAME)
        self.root, self.leaf = self.roots.cluster, self.leaves.leaves[0]
        self.put_leaf_node("w1", ("InternalIP", "192.168.7.1"), ("Hostname", "w1"))

    def put_leaf_node(self, name: str, *addresses: Address, **status: Any) -> None:
        told = [{"type": kind, "address": address} for kind, address in addresses]
        self.leaf.cluster.put(
            (NODES.resource, "", name),
            {
                "metadata": {"name": name, "uid": f"uid-{name}"},
                "status": {
                    "addresses": told,
                    "capacity": {"cpu": "4"},
                    "allocatable": {"cpu": "3"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10255}},
                    "declaredFeatures": ["ExtendWebSocketsToKubelet"],
                    **status,
                },
            },
        )

    def start(self, published: PublishedEndpoint | None = None) -> NodeController:
        upkeep = NodeController(
            self.root.client(),
            self.leaves,
            published or self.published,
            self.clock,
            self.clock.seconds,
            root=self.ways.root_probe(),
            probe_of=self.ways.leaf_probe,
        )
        upkeep.startService()
        self.addCleanup(self.stop, upkeep)
        self.pass_time(3)
        return upkeep

    def stop(self, upkeep: NodeController) -> None:
        if upkeep.running:
            self.successResultOf(upkeep.stopService())
        self.assertEqual(self.root.watches + self.leaf.cluster.watches, 0)

    def pass_time(self, seconds: float) -> None:
        """In small steps, as time passes."""
        for _ in range(int(seconds * 2)):
            self.clock.advance(0.5)

    def node(self, name: str = NAME) -> Object:
        return copy.deepcopy(self.root.objects[NODES.resource, "", name])

    def nodes(self) -> list[str]:
        return sorted(key[2] for key in self.root.objects if key[0] == NODES.resource)

    def put_node(self, name: str = NAME, **more: Any) -> Object:
        """Put a foreign Node into the root."""
        metadata = {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
        return self.root.put((NODES.resource, "", name), {"metadata": metadata, **more})

    def change(self, **status: Any) -> None:
        """Change a Node's status as another writer."""
        client = self.root.client()
        self.successResultOf(
            client.patch(NODES.resource, NAME, {"status": status}, subresource="status")
        )

    def condition(self, type: str) -> tuple[str, str]:
        for condition in self.node()["status"]["conditions"]:
            if condition["type"] == type:
                return condition["status"], condition["reason"]
        return "", ""

    def events(self) -> list[tuple[str, str, str]]:
        """Return type, reason and Node of the Events."""
        events = [each for key, each in self.root.objects.items() if key[0] == EVENTS.resource]
        return [
            (event["type"], event["reason"], event["involvedObject"]["name"]) for event in events
        ]

    def told(self, reason: str) -> list[str]:
        """The messages of Events with this reason."""
        events = [each for key, each in self.root.objects.items() if key[0] == EVENTS.resource]
        return [event["message"] for event in events if event["reason"] == reason]

    def writes(self) -> int:
        return len([each for each in self.root.requests if each[0] in ("patch", "create")])


class NodeTests(UpkeepTestCase):
    """One Node, as long as its leaf exists."""

    def test_made(self) -> None:
        """A leaf gets a Node that says where we are, and looks like the leaf to people."""
        self.start()
        status = self.node()["status"]
        self.assertEqual(
            [(each["type"], each["address"]) for each in status["addresses"]],
            [("InternalDNS", "10.9.9.9"), ("InternalIP", "192.168.7.1"), ("Hostname", "w1")],
        )
        self.assertEqual(status["daemonEndpoints"], {"kubeletEndpoint": {"Port": 10250}})
        self.assertEqual(status["nodeInfo"]["kubeletVersion"], "v1.33.1")
        self.assertEqual((status["capacity"], status["allocatable"]), ({"cpu": "4"}, {"cpu": "3"}))
        self.assertNotIn("declaredFeatures", status)
        for type in (
            "Ready",
            "ExecReady",
            "RootReachesNodeServer",
            "LeafReady",
            "AddressPreferred",
        ):
            self.assertEqual(self.condition(type)[0], "True", type)
        self.assertEqual(self.events(), [])

    def test_let_go_of(self) -> None:
        """At the end it is waited for what was under way for leaves that went before."""
        upkeep = self.start()
        slow: Deferred[None] = Deferred(lambda _: None)  # cancellation may take a while
        (watch,) = upkeep._watches.values()
        watch.stop = lambda: slow  # type: ignore[method-assign]
        self.successResultOf(watch.nodes.stop())
        self.successResultOf(watch._looking.stop())
        self.leaves.leaves.clear()
        self.leaves.tell()
        stopped = upkeep.stopService()
        self.assertNoResult(stopped)
        slow.callback(None)
        self.successResultOf(stopped)

    def test_way_is_logged(self) -> None:
        """The log says once why no stream can be opened, and once when it can be again."""
        self.ways.root = ("False", "RootCannotReachUs", "certificate refused: it has expired")
        with capturedLogs() as logs:
            self.start()
            self.pass_time(3 * PROBE_SECONDS)
            self.ways.root = YES
            self.pass_time(3 * PROBE_SECONDS)
        messages = [formatEvent(each) for each in logs]
        self.assertEqual(
            [each for each in messages if "stream" in each],
            [
                f"node {NAME}: no stream can be opened: certificate refused: it has expired",
                f"node {NAME}: streams can be opened again",
            ],
        )

    def test_machines(self) -> None:
        """A leaf of machines is not asked for nodes, which those whom it lets in cannot see."""
        self.leaf.machines = True
        self.start()
        self.assertNotIn("capacity", self.node()["status"])
        self.assertEqual([each for each in self.leaf.cluster.requests if each[1] == "nodes"], [])
        self.leaf.machines = False
        self.leaves.tell()
        self.pass_time(BEAT_SECONDS)
        self.assertEqual(self.node()["status"]["capacity"], {"cpu": "4"})

    def test_quiet(self) -> None:
        """A Node in its desired state costs its Lease, and a status update every five minutes."""
        self.start()
        self.pass_time(BEAT_SECONDS)
        before = self.writes()
        self.pass_time(TELL_SECONDS)
        self.assertLessEqual(self.writes() - before, TELL_SECONDS / BEAT_SECONDS + 2)
        beats = {
            condition["lastHeartbeatTime"] for condition in self.node()["status"]["conditions"]
        }
        self.assertEqual(len(beats), 1)

    def test_lease(self) -> None:
        """The Lease is renewed every ten seconds and goes with the Node."""
        self.start()
        key = (LEASES.resource, "kube-node-lease", NAME)
        first = copy.deepcopy(self.root.objects[key])
        self.assertEqual(
            first["metadata"]["ownerReferences"][0]["uid"], self.node()["metadata"]["uid"]
        )
        self.assertEqual(first["spec"]["leaseDurationSeconds"], 40)
        self.assertEqual(first["spec"]["holderIdentity"], NAME)
        self.pass_time(2 * BEAT_SECONDS)
        self.assertNotEqual(self.root.objects[key]["spec"]["renewTime"], first["spec"]["renewTime"])

    def test_overwritten(self) -> None:
        """Foreign changes of port and addresses are reverted within a heartbeat."""
        self.start()
        self.change(addresses=[], daemonEndpoints={"kubeletEndpoint": {"Port": 1}})
        self.pass_time(BEAT_SECONDS)
        status = self.node()["status"]
        self.assertEqual(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250)
        self.assertEqual(status["addresses"][0]["address"], "10.9.9.9")

    def test_deleted(self) -> None:
        """A deleted Node is created again, and its Lease refers to the new one."""
        self.start()
        before = self.node()["metadata"]["uid"]
        self.root.remove((NODES.resource, "", NAME))
        self.pass_time(2 * BEAT_SECONDS)
        after = self.node()["metadata"]["uid"]
        self.assertNotEqual(after, before)
        lease = self.root.objects[LEASES.resource, "kube-node-lease", NAME]
        self.assertEqual(lease["metadata"]["ownerReferences"][0]["uid"], after)

    def test_leaf_changes(self) -> None:
        """A change in the leaf is written soon, not with the next heartbeat."""
        self.start()
        self.put_leaf_node("w2", ("InternalIP", "192.168.7.2"))
        self.pass_time(1)
        self.assertEqual(self.node()["status"]["capacity"], {"cpu": "8"})
        self.assertEqual(self.node()["status"]["addresses"][1]["address"], "192.168.7.1")

    def test_leaf_lives(self) -> None:
        """A leaf's nodes that only tell that they live cost nothing in the root."""
        upkeep = self.start()
        looks: list[float] = []
        worker = upkeep.workers[NAME]
        desired = worker.desired

        def counted() -> Any:
            looks.append(self.clock.seconds())
            return desired()

        with patched(worker, "desired", counted):
            for beat in range(20):
                alive = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"t{beat}"}
                self.put_leaf_node(
                    "w1", ("InternalIP", "192.168.7.1"), ("Hostname", "w1"), conditions=[alive]
                )
                self.pass_time(1)
        self.assertLessEqual(len(looks), 4)

    def test_family(self) -> None:
        """Of the leaf's addresses those of the family come first that real Nodes of the root have."""
        both = [("InternalIP", "192.168.7.1"), ("InternalIP", "fd00::1")]
        self.put_leaf_node("w1", *both)
        self.start()
        self.assertEqual(self.shown(), ["10.9.9.9", "192.168.7.1", "fd00::1"])
        address = {"type": "InternalIP", "address": "fd00::a"}
        self.put_node("a-real-one", status={"addresses": [address]})
        self.pass_time(2 * BEAT_SECONDS)
        self.assertEqual(self.shown(), ["10.9.9.9", "fd00::1", "192.168.7.1"])
        self.root.remove((NODES.resource, "", "a-real-one"))
        self.pass_time(2 * BEAT_SECONDS)
        self.assertEqual(self.shown(), ["10.9.9.9", "192.168.7.1", "fd00::1"])

    def shown(self) -> list[str]:
        return [each["address"] for each in self.node()["status"]["addresses"]]

    def test_conflict(self) -> None:
        """A concurrent change is not overwritten: the Node is planned again."""
        upkeep = self.start()
        worker, stale = upkeep.workers[NAME], self.node()
        theirs: Object = {"type": "Theirs", "status": "True", "reason": "Mine"}
        self.change(conditions=[*stale["status"]["conditions"], theirs])
        late = plan(worker.desired(), stale, "2026-01-01T00:00:00Z", beat=True)
        self.failureResultOf(Deferred.fromCoroutine(worker._do(late, stale)), Conflict)
        self.pass_time(TELL_SECONDS)
        self.assertEqual(self.condition("Theirs"), ("True", "Mine"))

    def test_conflict_of_metadata(self) -> None:
        """The patch of labels that precedes that of the status does not hide a concurrent change."""
        upkeep = self.start()
        worker, stale = upkeep.workers[NAME], self.node()
        theirs: Object = {"type": "Theirs", "status": "True", "reason": "Mine"}
        self.change(conditions=[*stale["status"]["conditions"], theirs])
        stale["metadata"]["labels"] = {}
        late = plan(worker.desired(), stale, "2026-01-01T00:00:00Z", beat=True)
        self.assertEqual([type(each) for each in late.actions], [Patch, PatchNodeStatus])
        self.failureResultOf(Deferred.fromCoroutine(worker._do(late, stale)), Conflict)
        self.assertEqual(self.condition("Theirs"), ("True", "Mine"))

    def test_root_away(self) -> None:
        """While the root is away nothing ends; when it is back, all is as it is to be."""
        upkeep = self.start()
        self.root.problem = ServiceUnavailable("no store")
        self.root.end_watches()
        self.put_leaf_node("w2")
        self.pass_time(60)
        self.assertEqual(upkeep.problems, {NAME: "no store"})
        self.root.problem = None
        self.pass_time(60)
        self.assertEqual(upkeep.problems, {})
        self.assertEqual(self.node()["status"]["capacity"], {"cpu": "8"})

    def test_node_mode(self) -> None:
        """A Node that is a leaf's node has its name, but our port and our address first."""
        self.leaf.nodes = [LeafNode("w1", "one", "node", ("w1",))]
        self.put_leaf_node("w0", ("InternalIP", "192.168.7.9"))
        self.start()
        status = self.node("w1")["status"]
        self.assertEqual(status["addresses"][0], {"type": "InternalDNS", "address": "10.9.9.9"})
        self.assertEqual(status["addresses"][1]["address"], "192.168.7.1")
        self.assertEqual(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250)
        self.assertEqual(status["capacity"], {"cpu": "4"})
        self.assertNotIn("declaredFeatures", status)

    def test_more_models_than_nodes(self) -> None:
        """Nodes of a leaf are found by what they stand for, not by their place in a list (B9)."""
        self.leaf.nodes = [
            LeafNode("p0", "one", "party", ("gone",)),
            LeafNode("p1", "one", "party", ("w1",)),
        ]
        self.start()
        self.assertEqual(self.node("p1")["status"]["capacity"], {"cpu": "4"})
        self.assertEqual(self.node("p0")["status"].get("capacity", {}), {})

    def test_declared(self) -> None:
        """Features of our routes are declared if the option is set."""
        self.start(replace(PUBLISHED, features=["ExtendWebSocketsToKubelet"]))
        declared = self.node()["status"]["declaredFeatures"]
        self.assertEqual(declared, ["ExtendWebSocketsToKubelet"])

    def test_bug(self) -> None:
        """A bug is logged, and the next look works."""
        upkeep = self.start()
        worker = upkeep.workers[NAME]
        with patched(worker, "_addresses", lambda nodes: 1 / 0):
            self.pass_time(BEAT_SECONDS)
            self.put_leaf_node("w2")
            self.pass_time(BEAT_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(list(upkeep.problems), [NAME])
        self.pass_time(BEAT_SECONDS)
        self.assertEqual(upkeep.problems, {})
        self.assertEqual(self.node()["status"]["capacity"], {"cpu": "8"})

    def test_stopped(self) -> None:
        """Stopping leaves the Node as it is; its Lease is renewed by the next leader."""
        upkeep = self.start()
        before = self.node()
        self.stop(upkeep)
        self.pass_time(TELL_SECONDS)
        self.assertEqual(self.node(), before)


class WhoseTests(UpkeepTestCase):
    """Existing Nodes, and Nodes without a leaf."""

    def test_foreign(self) -> None:
        """A foreign Node is never touched; an Event on it says so once."""
        before = copy.deepcopy(self.put_node(status={"addresses": []}))
        upkeep = self.start()
        self.pass_time(5 * BEAT_SECONDS)
        self.assertEqual(self.node(), before)
        self.assertEqual(self.events(), [("Warning", "NodeNotOurs", NAME)])
        self.assertIn("is left alone", upkeep.problems[NAME])
        self.assertNotIn((LEASES.resource, "kube-node-lease", NAME), self.root.objects)
        self.assertNotIn(NAME, self.ways.looks)

    def test_made_ours(self) -> None:
        """A Node that an administrator annotates for us becomes ours."""
        self.put_node()
        self.start()
        client = self.root.client()
        marked = {"metadata": {"annotations": {LEAF: "one"}}}
        self.successResultOf(client.patch(NODES.resource, NAME, marked))
        self.pass_time(2 * BEAT_SECONDS)
        self.assertEqual(self.node()["metadata"]["annotations"][KEPT_BY], PUBLISHED.keeper)
        self.assertEqual(self.condition("Ready")[0], "True")
        self.assertIn(("Normal", "NodeTakenOver", NAME), self.events())

    def test_orphan(self) -> None:
        """A Node whose leaf is gone goes as well, after a while, whatever its name (B10)."""
        self.start()
        self.put_node("theirs")
        self.leaves.leaves = []
        self.leaves.tell()
        self.pass_time(GRACE_SECONDS - BEAT_SECONDS)
        self.assertEqual(self.nodes(), [NAME, "theirs"])
        self.pass_time(3 * BEAT_SECONDS)
        self.assertEqual(self.nodes(), ["theirs"])
        self.assertEqual(self.events(), [("Normal", "NodeRemoved", NAME)])

    def test_orphan_before_start(self) -> None:
        """A Node that lost its leaf before the start is deleted, but only after the registry was read."""
        self.put_node("old", metadata={"annotations": {KEPT_BY: PUBLISHED.keeper}})
        self.put_node("other", metadata={"annotations": {KEPT_BY: "other/exec-nodeserver"}})
        self.leaves.synced = False
        self.start()
        self.pass_time(3 * GRACE_SECONDS)
        self.assertIn("old", self.nodes())
        self.leaves.synced = True
        self.pass_time(GRACE_SECONDS + 2 * BEAT_SECONDS)
        self.assertEqual(self.nodes(), [NAME, "other"])

    def test_back(self) -> None:
        """A leaf that was gone for a moment keeps its Node."""
        self.start()
        uid = self.node()["metadata"]["uid"]
        leaves, self.leaves.leaves = self.leaves.leaves, []
        self.leaves.tell()
        self.pass_time(GRACE_SECONDS / 2)
        self.leaves.leaves = leaves
        self.leaves.tell()
        self.pass_time(2 * GRACE_SECONDS)
        self.assertEqual(self.node()["metadata"]["uid"], uid)

    def test_another_leaf(self) -> None:
        """Another leaf of the same name is probed anew."""
        self.start()
        roots = SimpleRootPods(self.root, [NAME])
        _, others = simple(node=NAME)
        other: SimpleLeaf = others.leaves[0]
        other.roots = roots
        self.leaves.leaves = [other]
        self.leaves.tell()
        self.pass_time(2 * BEAT_SECONDS)
        self.assertEqual(self.node()["status"].get("capacity"), {})


class EndpointsTests(UpkeepTestCase):
    """Beside Kosmos."""

    published = replace(PUBLISHED, upkeep=ENDPOINTS)

    def setUp(self) -> None:
        super().setUp()
        self.put_node(
            metadata={"annotations": {KOSMOS_LEAF: "one"}, "labels": {"kosmos.io/node": "true"}},
            status={
                "addresses": [{"type": "InternalIP", "address": "192.168.7.1"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "capacity": {"cpu": "1"},
            },
        )

    def test_only_endpoints(self) -> None:
        """Only addresses and the port are kept; the rest, and the Lease, are the other's."""
        before = self.node()
        self.start()
        self.pass_time(TELL_SECONDS + BEAT_SECONDS)
        after = self.node()
        self.assertEqual(after["metadata"]["annotations"], before["metadata"]["annotations"])
        status = after["status"]
        self.assertEqual(status["addresses"][0]["address"], "10.9.9.9")
        self.assertEqual(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250)
        for key in ("conditions", "capacity"):
            self.assertEqual(status[key], before["status"][key])
        self.assertNotIn((LEASES.resource, "kube-node-lease", NAME), self.root.objects)

    def test_gone(self) -> None:
        """Nodes of others are neither made nor deleted."""
        self.root.remove((NODES.resource, "", NAME))
        self.put_node("old", metadata={"annotations": {KEPT_BY: PUBLISHED.keeper}})
        self.start()
        self.pass_time(2 * GRACE_SECONDS)
        self.assertEqual(self.nodes(), ["old"])

    def test_order_of_others(self) -> None:
        """If the other writer lists our address first, its further addresses are its own business."""
        self.start()
        theirs = [
            {"type": "InternalDNS", "address": "10.9.9.9"},
            {"type": "Hostname", "address": "elsewhere"},
        ]
        for _ in range(10):
            self.change(addresses=theirs)
            before = self.writes()
            self.pass_time(BEAT_SECONDS)
            self.assertEqual(self.writes(), before)
        self.assertEqual(self.events(), [])

    def test_contested(self) -> None:
        """Two writers in turns: the other is reported, and we write less and less often."""
        self.start()
        theirs = [{"type": "InternalDNS", "address": "10.1.1.1"}]
        before, times = self.writes(), 200
        for _ in range(times):
            self.change(addresses=theirs)
            self.pass_time(BEAT_SECONDS)
        self.assertLess(self.writes() - before - times, times // 4)
        self.assertIn(("Warning", "AddressesContested", NAME), self.events())
        (message, *_) = self.told("AddressesContested")
        self.assertIn("LEAF_NODE_IP=10.9.9.9 and PREFERRED-ADDRESS-TYPE=InternalDNS", message)
        self.assertNotIn("--listen", message)
        self.pass_time(LONGEST_SECONDS + BEAT_SECONDS)
        self.assertEqual(self.node()["status"]["addresses"][0]["address"], "10.9.9.9")

    def test_contested_port(self) -> None:
        """
        Kosmos keeps writing a node's port where a Node stands for that node: another address would
        not help, only listening on that port, and the message says so.
        """
        self.start()
        for _ in range(10):
            self.change(
                addresses=[{"type": "InternalDNS", "address": "10.9.9.9"}],
                daemonEndpoints={"kubeletEndpoint": {"Port": 10255}},
            )
            self.pass_time(BEAT_SECONDS)
        (message, *_) = self.told("AddressesContested")
        self.assertIn("write port 10255 and 10250 in turns", message)
        self.assertIn("--listen and --node-port", message)
        self.assertNotIn("LEAF_NODE_IP", message)


class ConditionTests(UpkeepTestCase):
    """Conditions of a Node."""

    def test_leaf_down(self) -> None:
        """An unreachable leaf shows at once, and makes the Node unready after a while."""
        self.start()
        self.ways.ready = ("False", "LeafUnreachable", "cannot reach it")
        self.pass_time(PROBE_SECONDS)
        self.assertEqual(self.condition("ExecReady"), ("False", "LeafUnreachable"))
        self.assertEqual(self.condition("Ready")[0], "True")
        self.pass_time(PROBE_SECONDS + BEAT_SECONDS)
        self.assertEqual(self.condition("Ready"), ("False", "LeafUnreachable"))
        self.ways.ready = YES
        self.pass_time(PROBE_SECONDS + 1)
        self.assertEqual(self.condition("Ready")[0], "True")

    def test_after_silence(self) -> None:
        """Conditions that a root's controllers set on a neglected Node are reset."""
        self.stop(self.start())
        never = {"status": "Unknown", "reason": "NodeStatusNeverUpdated"}
        types = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        self.change(conditions=[{"type": type, **never} for type in types])
        self.start()
        self.pass_time(BEAT_SECONDS)
        self.assertEqual([self.condition(type)[0] for type in types], ["True"] + ["False"] * 3)

    def test_rate(self) -> None:
        """A leaf is probed every thirty seconds at most, once for all of its Nodes."""
        self.leaf.nodes = [LeafNode(f"n{number}", "one") for number in range(3)]
        self.start()
        self.pass_time(10 * PROBE_SECONDS)
        self.assertLessEqual(self.ways.looks.count("one"), 11)
        self.assertGreaterEqual(self.ways.looks.count("one"), 9)
        self.assertEqual(self.nodes(), ["n0", "n1", "n2"])

    def test_restart(self) -> None:
        """A replica that takes over does not say Unknown of what the one before it knew."""
        self.stop(self.start())
        statuses = set()

        def note(kind: str, node: Object) -> None:
            statuses.add(one_of(node, "Ready"))

        watching = self.root.client().watch(
            NODES.resource, note, resource_version=str(self.root.version)
        )
        upkeep = self.start()
        self.pass_time(2 * BEAT_SECONDS)
        watching.addErrback(lambda _: None).cancel()
        self.stop(upkeep)
        self.assertLessEqual(statuses, {"True"})

    def test_not_preferred(self) -> None:
        """With a kube-apiserver's own order a leaf's Hostname wins: an Event says so, once."""
        self.ways.root = ("Unknown", "NotPermitted", "no")
        with capturedLogs() as logs:
            self.start(PublishedEndpoint(OURS, 10250))
            self.pass_time(5 * BEAT_SECONDS)
        self.assertEqual(self.events(), [("Warning", "AddressNotPreferred", NAME)])
        self.assertEqual(self.condition("AddressPreferred"), ("False", "AnotherAddressFirst"))
        self.assertEqual(self.condition("ExecReady"), ("False", "AnotherAddressFirst"))
        reasons = [each["why"] for each in logs if "why" in each]
        self.assertEqual(len([why for why in reasons if "dials the leaf's Hostname w1" in why]), 1)
        (event,) = [each for key, each in self.root.objects.items() if key[0] == EVENTS.resource]
        self.assertEqual(event["metadata"]["namespace"], "default")
        self.assertEqual(event["involvedObject"]["uid"], NAME)

    def test_left_out(self) -> None:
        """Leaving the leaf's Hostname out helps, and its InternalIP is still shown."""
        self.start(replace(PublishedEndpoint(OURS, 10250), address_types=("InternalIP",)))
        self.assertEqual(self.condition("AddressPreferred")[0], "True")
        addresses = [each["address"] for each in self.node()["status"]["addresses"]]
        self.assertEqual(addresses, ["10.9.9.9", "192.168.7.1"])


@contextmanager
def patched(of: Any, name: str, other: Any) -> Iterator[None]:
    """An object with another method meanwhile."""
    setattr(of, name, other)
    try:
        yield
    finally:
        delattr(of, name)


def one_of(node: Object, type: str) -> str:
    """A condition's status."""
    conditions = node["status"]["conditions"]
    return next((condition["status"] for condition in conditions if condition["type"] == type), "")

"""
Tests for :mod:`twisted_exec.nodeserver.nodes.plan`: the next actions for a Node.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.leaves.kosmos import KOSMOS_LEAF
from twisted_exec.nodeserver.nodes.conditions import UNPROBED
from twisted_exec.nodeserver.nodes.plan import (
    ENDPOINTS,
    KEPT_BY,
    LEAF,
    METRICS_PATH,
    Create,
    DesiredNode,
    NodePlan,
    Patch,
    PatchNodeStatus,
    contested,
    orphans,
    plan,
    writers,
)

KEEPER = "kube-system/exec-nodeserver"
NODE = LeafNode(
    "kosmos-one",
    "one",
    labels={"kosmos.io/node": "true"},
    annotations={KOSMOS_LEAF: "one"},
    taints=({"key": "kosmos.io/node", "value": "true", "effect": "NoSchedule"},),
)
FIELDS: Object = {
    "addresses": [{"type": "InternalDNS", "address": "10.9.9.9"}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    "nodeInfo": {"kubeletVersion": "v1.33.1"},
    "capacity": {"cpu": "4", "memory": "8Gi"},
    "allocatable": {"cpu": "3500m"},
    "declaredFeatures": [],
}
WANTED = DesiredNode(NODE, KEEPER, FIELDS, {"Ready": ("True", "LeafReady", "fine")})


def made(desired: DesiredNode = WANTED) -> Object:
    """The Node as it is after it was made."""
    (create,) = plan(desired, None, "t0").actions
    assert isinstance(create, Create)
    node = copy.deepcopy(create.node)
    node["metadata"] |= {"uid": "u-1", "resourceVersion": "7"}
    return node


def status(planned: NodePlan) -> Any:
    """Return the status patch; ``None`` if there is none."""
    patches = [each for each in planned.actions if isinstance(each, PatchNodeStatus)]
    return patches[0].status if patches else None


class CreateTests(SynchronousTestCase):
    """A Node that is missing."""

    def test_made(self) -> None:
        """It is made with marks, taints and a status that says where we are."""
        node = made()
        self.assertEqual(node["spec"]["taints"], [dict(NODE.taints[0])])
        self.assertEqual(
            node["metadata"]["annotations"],
            {
                KOSMOS_LEAF: "one",
                LEAF: "one",
                KEPT_BY: KEEPER,
                METRICS_PATH: "/metrics/resource/kosmos-one",
            },
        )
        self.assertEqual(
            node["metadata"]["labels"],
            {"kosmos.io/node": "true", "leaf.twisted-exec.dev/node": "true"},
        )
        self.assertEqual(node["status"]["addresses"], FIELDS["addresses"])
        self.assertEqual(node["status"]["conditions"][0]["lastHeartbeatTime"], "t0")

    def test_settled(self) -> None:
        """As it was made it is as wanted: nothing is left to do, now and later."""
        self.assertEqual(plan(WANTED, made(), "t9"), NodePlan([]))

    def test_endpoints_only(self) -> None:
        """Where another program keeps Nodes, none is created."""
        planned = plan(replace(WANTED, upkeep=ENDPOINTS), None, "t0")
        self.assertEqual(planned.actions, ())
        self.assertIn("--upkeep=endpoints creates none", planned.problem)


class StatusTests(SynchronousTestCase):
    """An existing Node."""

    def test_port_of_existing(self) -> None:
        """A changed port is written to an existing Node, which Kosmos never did."""
        node = made()
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 33250}}
        patch = status(plan(WANTED, node, "t1"))
        self.assertEqual(patch["daemonEndpoints"], {"kubeletEndpoint": {"Port": 10250}})

    def test_always_port_and_addresses(self) -> None:
        """Whatever is written, port and addresses are."""
        patch = status(plan(WANTED, made(), "t1", beat=True))
        self.assertEqual(patch["daemonEndpoints"], FIELDS["daemonEndpoints"])
        self.assertEqual(patch["addresses"], FIELDS["addresses"])
        self.assertEqual(patch["conditions"][0]["lastHeartbeatTime"], "t1")

    def test_amounts(self) -> None:
        """Amounts are compared by value; what the leaf has no more goes."""
        node = made()
        node["status"]["allocatable"] = {"cpu": "3.5", "example.com/gpu": "1"}
        node["status"]["capacity"] = {"cpu": "4000m", "memory": "8388608Ki"}
        patch = status(plan(WANTED, node, "t1"))
        self.assertEqual(patch["allocatable"], {"example.com/gpu": None})
        self.assertNotIn("capacity", patch)

    def test_features(self) -> None:
        """Features of a leaf's node are removed; ours are set."""
        node = made()
        node["status"]["declaredFeatures"] = ["ExtendWebSocketsToKubelet"]
        self.assertEqual(status(plan(WANTED, node, "t1"))["declaredFeatures"], None)
        declared = replace(WANTED, fields={**FIELDS, "declaredFeatures": ["X"]})
        self.assertEqual(status(plan(declared, node, "t1"))["declaredFeatures"], ["X"])

    def test_conditions_of_others(self) -> None:
        """Conditions of others stay."""
        node = made()
        node["status"]["conditions"].append({"type": "Theirs", "status": "True"})
        self.assertEqual(plan(WANTED, node, "t1").actions, [])
        changed = replace(WANTED, conditions={"Ready": ("False", "LeafUnreachable", "")})
        types = [condition["type"] for condition in status(plan(changed, node, "t1"))["conditions"]]
        self.assertEqual(types, ["Ready", "Theirs"])

    def test_restart(self) -> None:
        """A restart without probes does not turn a ready Node Unknown."""
        fresh = replace(WANTED, conditions={"Ready": UNPROBED})
        self.assertEqual(plan(fresh, made(), "t1").actions, [])
        self.assertEqual(made(fresh)["status"]["conditions"][0]["status"], "Unknown")

    def test_taints(self) -> None:
        """Taints of an existing Node are the administrator's; our labels come back."""
        node = made()
        node["spec"]["taints"] = []
        del node["metadata"]["labels"]["leaf.twisted-exec.dev/node"]
        self.assertEqual(
            plan(WANTED, node, "t1").actions,
            [Patch({"metadata": {"labels": {"leaf.twisted-exec.dev/node": "true"}}})],
        )

    def test_deleting(self) -> None:
        """A Node that is being deleted is let go."""
        node = made()
        node["metadata"]["deletionTimestamp"] = "t"
        self.assertEqual(plan(WANTED, node, "t1").actions, ())


class WhoseTests(SynchronousTestCase):
    """Nodes that others have made."""

    def test_foreign(self) -> None:
        """A Node of the same name that stands for nothing of ours is never touched."""
        for marks in ({}, {KOSMOS_LEAF: "other"}, {LEAF: "other"}):
            node = made()
            node["metadata"]["annotations"] = marks
            node["status"] = {}
            for upkeep in ("full", ENDPOINTS):
                planned = plan(replace(WANTED, upkeep=upkeep), node, "t1", beat=True)
                self.assertEqual(planned.actions, ())
                self.assertIn(f"annotate it with {LEAF}=one", planned.problem)

    def test_another_server(self) -> None:
        """Nor is one that another set of replicas keeps, though it is for the same leaf."""
        node = made()
        node["metadata"]["annotations"][KEPT_BY] = "other/exec-nodeserver"
        planned = plan(WANTED, node, "t1")
        self.assertEqual(planned.actions, ())
        self.assertIn("is kept by the node server other/exec-nodeserver", planned.problem)

    def test_adopted(self) -> None:
        """
        A Node that Kosmos created for the same cluster, or that an administrator annotated, is
        adopted.
        """
        for marks in ({KOSMOS_LEAF: "one"}, {LEAF: "one"}):
            node = made()
            node["metadata"]["annotations"] = marks
            planned = plan(WANTED, node, "t1")
            self.assertTrue(planned.adopts)
            (patch,) = planned.actions
            assert isinstance(patch, Patch)
            self.assertEqual(patch.patch["metadata"]["annotations"][KEPT_BY], KEEPER)

    def test_endpoints(self) -> None:
        """Beside Kosmos only addresses and the port are written, and no mark of ours is set."""
        node = made()
        node["metadata"]["annotations"] = {KOSMOS_LEAF: "one"}
        node["status"] = {"addresses": [{"type": "Hostname", "address": "w"}], "capacity": {}}
        (patch,) = plan(replace(WANTED, upkeep=ENDPOINTS), node, "t1", beat=True).actions
        assert isinstance(patch, PatchNodeStatus)
        self.assertEqual(set(patch.status), {"addresses", "daemonEndpoints"})

    def test_contested(self) -> None:
        """The remedy against another writer depends on its values."""
        own = [("InternalDNS", "10.9.9.9"), ("InternalDNS", "fd00::9")]
        first = {"type": "InternalDNS", "address": "10.9.9.9"}
        port = {"kubeletEndpoint": {"Port": 10250}}
        for theirs, expected in (
            ({}, "LEAF_NODE_IP=10.9.9.9 and PREFERRED-ADDRESS-TYPE=InternalDNS"),
            ({"addresses": [{"type": "InternalDNS", "address": ""}]}, "LEAF_NODE_IP=10.9.9.9"),
            ({"addresses": [{**first, "type": "Hostname"}]}, "TYPE=InternalDNS"),
            ({"addresses": [first]}, "port 0 and 10250 in turns"),
            ({"addresses": [first], "daemonEndpoints": port}, "name that one alone"),
        ):
            self.assertIn(expected, contested(theirs, own, 10250))

    def test_writers(self) -> None:
        """The Node itself shows who wrote the addresses."""
        entry = {"manager": "kosmos", "fieldsV1": {"f:status": {"f:addresses": {}}}}
        other = {"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}
        ours = {**entry, "manager": "exec-nodeserver"}
        node: Object = {"metadata": {"managedFields": [entry, other, ours, entry]}}
        self.assertEqual(writers(node, "exec-nodeserver"), ["kosmos"])
        self.assertEqual(writers({"metadata": {}}, "exec-nodeserver"), [])


class OrphanTests(SynchronousTestCase):
    """Tests for :func:`orphans`."""

    def test_no_orphans_remain(self) -> None:
        """A Node of ours without a leaf is found by its mark, whatever it is called (B10)."""
        ours, theirs, going = made(), made(), made()
        theirs["metadata"]["annotations"] = {KOSMOS_LEAF: "one"}
        going["metadata"]["deletionTimestamp"] = "t"
        self.assertEqual(orphans([ours, theirs, going], [], KEEPER), [ours])
        self.assertEqual(orphans([ours], ["kosmos-one"], KEEPER), [])
        self.assertEqual(orphans([ours], [], "other/exec-nodeserver"), [])

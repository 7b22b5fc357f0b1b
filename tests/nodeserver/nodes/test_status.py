"""Tests for :mod:`twisted_exec.nodeserver.nodes.status`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.nodes import status as leaf_nodes
from twisted_exec.nodeserver.nodes.addresses import addresses_of


def node(name: str, *, ready: str = "True", unschedulable: bool = False, **status: Any) -> Object:
    """A node of a leaf."""
    status.setdefault("conditions", []).append({"type": "Ready", "status": ready})
    told: Object = {
        "metadata": {"name": name, "uid": name, "labels": {"zone": name[0]}, "managedFields": [1]},
        "spec": {"unschedulable": unschedulable, "podCIDR": "10.0.0.0/24"},
        "status": status,
    }
    return leaf_nodes.trim_node(told)


class StandForTests(SynchronousTestCase):
    """Tests for :func:`stood_for`."""

    def test_modes(self) -> None:
        """All, one or some by name, or some by label; in the order of their names."""
        nodes = [node("b1"), node("a2"), node("a1")]
        for leaf_node, names in (
            (LeafNode("n", "one"), ["a1", "a2", "b1"]),
            (LeafNode("a2", "one", "node", ("a2",)), ["a2"]),
            (LeafNode("n", "one", "party", ("b1", "a1")), ["a1", "b1"]),
            (LeafNode("n", "one", "party", selector={"zone": "a"}), ["a1", "a2"]),
            (LeafNode("n", "one", "node", ("gone",)), []),
        ):
            matched = [each["metadata"]["name"] for each in leaf_nodes.stood_for(leaf_node, nodes)]
            self.assertEqual(matched, names)


class AmountTests(SynchronousTestCase):
    """Tests for :func:`capacity` and :func:`allocatable`."""

    def test_sums(self) -> None:
        """Capacity sums over all nodes, allocatable only over schedulable ones."""
        amounts = {"cpu": "1500m", "memory": "1Gi", "pods": "110"}
        nodes = [
            node("a", capacity=amounts, allocatable=amounts),
            node("b", capacity=amounts, allocatable=amounts, ready="False"),
            node("c", capacity=amounts, allocatable=amounts, unschedulable=True),
            node("d", capacity=amounts, allocatable={"cpu": "250m", "memory": "512Mi"}),
        ]
        self.assertEqual(leaf_nodes.capacity(nodes), {"cpu": "6", "memory": "4Gi", "pods": "440"})
        self.assertEqual(
            leaf_nodes.allocatable(nodes), {"cpu": "1750m", "memory": "1536Mi", "pods": "110"}
        )

    def test_senseless(self) -> None:
        """An amount that is none is left out, and the others are not."""
        nodes = [node("a", capacity={"cpu": "many", "pods": "3"}), node("b", capacity={"cpu": "1"})]
        self.assertEqual(leaf_nodes.capacity(nodes), {"cpu": "1", "pods": "3"})


class InfoTests(SynchronousTestCase):
    """Tests for :func:`node_info` and :func:`pressures`."""

    def test_whole_leaf(self) -> None:
        """The version is the leaf's; the rest is what all nodes agree on."""
        nodes = [
            node("a", nodeInfo={"architecture": "amd64", "osImage": "A", "kubeletVersion": "v1.2"}),
            node("b", nodeInfo={"architecture": "amd64", "osImage": "B"}),
        ]
        info = leaf_nodes.node_info(LeafNode("n", "one"), nodes, "v1.33.1")
        self.assertEqual(info["kubeletVersion"], "v1.33.1")
        self.assertEqual((info["architecture"], info["osImage"]), ("amd64", ""))
        self.assertNotIn("kubeletVersion", leaf_nodes.node_info(LeafNode("n", "one"), nodes, ""))

    def test_one_node(self) -> None:
        """A Node that is a leaf's node has its own."""
        nodes = [node("a", nodeInfo={"kubeletVersion": "v1.32.0", "bootID": "x"})]
        info = leaf_nodes.node_info(LeafNode("a", "one", "node", ("a",)), nodes, "v1.33.1")
        self.assertEqual((info["kubeletVersion"], info["bootID"]), ("v1.32.0", "x"))

    def test_labels(self) -> None:
        """Nodes carry the labels of every kubelet; invalid label values are left out."""
        info = {"operatingSystem": "linux", "architecture": "not a label"}
        self.assertEqual(
            leaf_nodes.labels(LeafNode("n", "one"), info),
            {"kubernetes.io/hostname": "n", "kubernetes.io/os": "linux"},
        )
        self.assertEqual(leaf_nodes.labels(LeafNode("n" * 100, "one"), {}), {})

    def test_pressure(self) -> None:
        """There is pressure when no node is free of it."""
        full: Object = {"type": "DiskPressure", "status": "True"}
        free: Object = {"type": "DiskPressure", "status": "False"}
        both = [node("a", conditions=[full]), node("b", conditions=[free])]
        self.assertEqual(leaf_nodes.pressures(both)["DiskPressure"][0], "False")
        self.assertEqual(leaf_nodes.pressures(both[:1])["DiskPressure"][0], "True")
        self.assertEqual(leaf_nodes.pressures(both)["PIDPressure"][:2], ("False", "NotReported"))
        self.assertNotIn("NetworkUnavailable", leaf_nodes.pressures(both))


class TrimmedTests(SynchronousTestCase):
    """Tests for :func:`trimmed`: a leaf may be anyone's."""

    def test_kept(self) -> None:
        """Unused fields are dropped, used ones stay."""
        base = node("a", images=[{"names": ["x"]}], capacity={"cpu": 1}, declaredFeatures=["X"])
        self.assertEqual(leaf_nodes.capacity([base]), {"cpu": "1"})
        self.assertTrue(leaf_nodes.is_ready(base))
        self.assertEqual(set(base["metadata"]), {"name", "uid", "labels"})
        self.assertNotIn("declaredFeatures", base["status"])

    def test_nonsense(self) -> None:
        """Whatever a leaf sends, nothing fails, and nonsense is dropped."""
        wrong: list[Any] = [None, 7, "x", [], [None], [7], {}, {"x": 7}, {"x": None}, [{"type": 1}]]
        for value in wrong:
            told: Object = {
                "metadata": {"name": "n", "labels": value},
                "spec": value,
                "status": dict.fromkeys(
                    ("addresses", "capacity", "allocatable", "conditions", "nodeInfo"), value
                ),
            }
            trimmed_node = leaf_nodes.trim_node(told)
            self.assertEqual(
                leaf_nodes.stood_for(LeafNode("n", "one", selector={"a": "b"}), [trimmed_node]), []
            )
            self.assertIn(leaf_nodes.capacity([trimmed_node]), ({}, {"x": "7"}))
            self.assertEqual(leaf_nodes.allocatable([trimmed_node]), {})
            self.assertEqual(leaf_nodes.pressures([trimmed_node]), leaf_nodes.pressures([]))
            leaf_nodes.node_info(LeafNode("n", "one", "node", ("n",)), [trimmed_node], "")
            self.assertEqual(addresses_of(trimmed_node), [])
            for status in (
                {"metadata": {"name": "n"}, "status": value},
                {"metadata": {"name": "n"}},
            ):
                self.assertFalse(leaf_nodes.is_ready(leaf_nodes.trim_node(status)))

    def test_hostile(self) -> None:
        """Values that a root would refuse, or that could deceive readers, are dropped or made harmless."""
        trimmed_node = node(
            "a",
            capacity={"cpu": "-1", "bad key!": "1", "pods": "9"},
            addresses=[
                {"type": "Evil", "address": "x"},
                {"type": "Hostname", "address": "a\x1b[2J"},
                {"type": "Hostname", "address": "x" * 300},
                {"type": "Hostname", "address": "ok"},
            ],
            nodeInfo={"osImage": "a\nb" + "x" * 9999, "other": "x"},
        )
        self.assertEqual(leaf_nodes.capacity([trimmed_node]), {"pods": "9"})
        self.assertEqual(addresses_of(trimmed_node), [("Hostname", "ok")])
        info = trimmed_node["status"]["nodeInfo"]
        self.assertEqual(set(info), {"osImage"})
        self.assertTrue(info["osImage"].isprintable() and len(info["osImage"]) < 300)

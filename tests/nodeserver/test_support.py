"""
Tests for the doubles of the node server's interfaces.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.nodeserver.support import put_leaf_pod, put_pod, simple
from twisted_exec.api.status import NotFound
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods


class SimpleTests(SynchronousTestCase):
    """Tests for :func:`simple`."""

    def setUp(self) -> None:
        self.roots, self.leaves = simple()
        (self.leaf,) = self.leaves.leaves

    def test_doors(self) -> None:
        """All three are what they say."""
        verifyObject(IRootPods, self.roots)
        verifyObject(ILeaves, self.leaves)
        verifyObject(ILeaf, self.leaf)

    def test_way(self) -> None:
        """From a Pod of the root to the leaf's."""
        put_pod(self.roots.cluster, "web", "leaf-one")
        root = self.successResultOf(self.roots.get("default", "web"))
        put_leaf_pod(self.leaf.cluster, root)
        leaf = self.leaves.of_node(root["spec"]["nodeName"])
        leaf_pod = self.successResultOf(leaf.pod(root))
        self.assertEqual((leaf_pod.namespace, leaf_pod.name), ("default", "web"))
        self.assertEqual([each.name for each in leaf.pods()], ["web"])

    def test_not_ours(self) -> None:
        """A foreign Pod of that name is not found, nor one on another Node."""
        root = put_pod(self.roots.cluster, "web", "leaf-one")
        put_pod(self.leaf.cluster, "web")
        self.failureResultOf(self.leaf.pod(root), NotFound)
        put_pod(self.roots.cluster, "other", "node-1")
        self.assertIsNone(self.roots.seen("default", "other"))
        self.assertRaises(NotFound, self.leaves.of_node, "node-1")

    def test_stray(self) -> None:
        """A Pod of ours whose Pod in the root is gone is an orphan."""
        root = put_pod(self.roots.cluster, "web", "leaf-one")
        put_leaf_pod(self.leaf.cluster, root)
        self.assertEqual(list(self.leaf.strays()), [])
        self.roots.cluster.remove(next(iter(self.roots.cluster.objects)))
        self.assertEqual([p["metadata"]["name"] for p in self.leaf.strays()], ["web"])

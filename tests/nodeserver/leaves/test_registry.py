"""Tests for :mod:`twisted_exec.nodeserver.leaves.registry`."""

from __future__ import annotations

from pathlib import Path

import yaml
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import (
    CLUSTERS,
    Network,
    kubeconfig,
    memory_cluster,
    put_cluster,
    put_leaf_pod,
    put_pod,
    put_secret,
)
from twisted_exec.api.status import NotFound
from twisted_exec.nodeserver.leaves.registry import LeafRegistry
from twisted_exec.nodeserver.leaves.settings import RegistrySettings
from twisted_exec.nodeserver.root_pods import SETTLE_SECONDS

OTHER = "https://other.example:6443"


class RegistryTests(SynchronousTestCase):
    """Tests for :class:`LeafRegistry`: both kinds of sources, a root and two leaves."""

    def setUp(self) -> None:
        self.clock, self.network, self.root = Clock(), Network(), memory_cluster()
        self.one, self.two = self.network.add(), self.network.add(OTHER)
        path = Path(self.mktemp()).absolute()
        secret = {"namespace": "leaves", "name": "one"}
        path.write_text(
            yaml.safe_dump({"leaves": [{"name": "one", "kubeconfig": {"secret": secret}}]})
        )
        put_secret(self.root, kubeconfig())
        put_cluster(self.root, "two", kubeconfig(OTHER))
        settings = RegistrySettings(str(path), kosmos=True)
        self.registry = LeafRegistry(settings, self.root.client(), self.clock, self.network.make)
        self.registry.start()
        self.addCleanup(lambda: self.successResultOf(self.registry.stop()))
        self.settle()

    def settle(self) -> None:
        self.clock.advance(0)
        self.clock.advance(SETTLE_SECONDS)

    def test_both(self) -> None:
        """A Pod of the root leads to its leaf, whoever told of that."""
        put_pod(self.root, "web", "one")
        put_pod(self.root, "db", "kosmos-two")
        self.assertTrue(self.registry.synced)
        web = self.successResultOf(self.registry.roots.get("default", "web"))
        put_leaf_pod(self.one, web)
        put_pod(self.two, "db", labels={"kosmos-io/pod": "true"})
        for name, leaf in (("web", "one"), ("db", "two")):
            root = self.successResultOf(self.registry.roots.get("default", name))
            leaf_pod = self.successResultOf(
                self.registry.leaves.of_node(root["spec"]["nodeName"]).pod(root)
            )
            self.assertEqual((leaf_pod.leaf.name, leaf_pod.name), (leaf, name))
        self.assertEqual(self.registry.problems, [])

    def test_cluster_deleted(self) -> None:
        """A Cluster that is deleted midway takes its leaf, its Node and its Pods along."""
        put_pod(self.root, "db", "kosmos-two")
        leaf = self.registry.leaves.get("two")
        root = self.successResultOf(self.registry.roots.get("default", "db"))
        asking = leaf.pod(root)
        self.root.remove((CLUSTERS.resource, "", "two"))
        self.failureResultOf(asking, NotFound)
        self.settle()
        self.assertRaises(NotFound, self.registry.leaves.of_node, "kosmos-two")
        self.assertIsNone(self.registry.roots.seen("default", "db"))
        self.assertEqual(self.two.watches, 0)

    def test_clash(self) -> None:
        """A Cluster that claims what the file has is not taken, and that is a problem."""
        put_cluster(self.root, "one", kubeconfig(OTHER))
        self.settle()
        self.assertEqual(
            self.registry.leaves.get("one").config().server, "https://leaf.example:6443"
        )
        (problem,) = self.registry.problems
        self.assertIn("cluster one: there is a leaf cluster 'one' already", problem)

    def test_stopped(self) -> None:
        """After the stop no watch and no timer is left."""
        self.successResultOf(self.registry.stop())
        self.assertEqual([each.watches for each in (self.root, self.one, self.two)], [0, 0, 0])
        self.assertEqual(self.clock.getDelayedCalls(), [])

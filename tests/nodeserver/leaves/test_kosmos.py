"""Tests for :mod:`twisted_exec.nodeserver.leaves.kosmos`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.nodeserver.support import CLUSTERS, kubeconfig, memory_cluster, put_cluster
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.leaves.kosmos import Clusters, is_leaf, spec_of
from twisted_exec.nodeserver.leaves.spec import ISource, KubeconfigData, LeafSpec

TAINT = {"key": "kosmos.io/node", "value": "true", "effect": "NoSchedule"}


class SpecTests(SynchronousTestCase):
    """Tests for :func:`spec_of`: a Cluster as Kosmos reads it."""

    def spec(self, **more: Any) -> LeafSpec:
        spec, self.complaint = spec_of(put_cluster(memory_cluster(), "east", kubeconfig(), **more))
        return spec

    def test_all(self) -> None:
        """Without models, a Cluster is one Node with Kosmos's prefix, labels and taint."""
        (node,) = self.spec().nodes
        self.assertEqual((node.name, node.leaf, node.mode), ("kosmos-east", "east", "cluster"))
        self.assertEqual(node.labels, {"kosmos.io/node": "true"})
        self.assertEqual(
            node.annotations, {"kosmos-io/owned-by-cluster": "east", "leafNodeMode": "one2cluster"}
        )
        self.assertEqual(node.taints, (TAINT,))
        self.assertEqual(self.complaint, "")

    def test_node(self) -> None:
        """Nodes of the leaf that are named are Nodes of the root under their own names."""
        first, second = self.spec(
            models=[
                {"nodeSelector": {"nodeName": "worker-1"}, "labels": {"zone": "a"}},
                {"nodeSelector": {"nodeName": "worker-2"}, "leafNodeName": "ignored"},
            ]
        ).nodes
        self.assertEqual((first.name, first.mode), ("worker-1", "node"))
        self.assertEqual(first.leaf_nodes, ("worker-1",))
        self.assertEqual(first.labels, {"kosmos.io/node": "true", "zone": "a"})
        self.assertEqual(second.name, "worker-2")

    def test_party(self) -> None:
        """Nodes that labels choose are one Node, with the model's name and number."""
        gpu = {"key": "gpu", "effect": "NoExecute"}
        first, second = self.spec(
            models=[
                {
                    "leafNodeName": "gpu",
                    "nodeSelector": {"labelSelector": {"matchLabels": {"gpu": "yes"}}},
                    "taints": [gpu],
                },
                {
                    "leafNodeName": "cpu",
                    "nodeSelector": {"labelSelector": {"matchLabels": {"gpu": "no"}}},
                },
            ]
        ).nodes
        self.assertEqual((first.name, second.name), ("kosmos-gpu-0", "kosmos-cpu-1"))
        self.assertEqual((first.mode, dict(first.selector)), ("party", {"gpu": "yes"}))
        self.assertEqual((first.taints, second.taints), ((gpu,), (TAINT,)))
        self.assertEqual(first.annotations["leafNodeMode"], "one2party")

    def test_lengths_differ(self) -> None:
        """B9: each Node has its own model, also when one before it has no usable name."""
        models = [
            {"nodeSelector": {"nodeName": "a"}, "labels": {"n": "0"}},
            {"nodeSelector": {}, "labels": {"n": "1"}},
            {"nodeSelector": {"nodeName": "c"}, "labels": {"n": "2"}},
        ]
        nodes = self.spec(models=models).nodes
        self.assertEqual(
            [(node.name, node.labels["n"]) for node in nodes], [("a", "0"), ("c", "2")]
        )
        self.assertEqual(self.complaint, "cluster east: '' cannot be the name of one more node")

    def test_expressions(self) -> None:
        """An unsupported selector is reported."""
        selector = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
        (node,) = self.spec(
            models=[{"leafNodeName": "gpu", "nodeSelector": {"labelSelector": selector}}]
        ).nodes
        self.assertEqual(node.name, "kosmos-gpu-0")
        self.assertIn("select nodes by matchLabels", self.complaint)

    def test_long_name(self) -> None:
        """Names of parties are cut as Kosmos cuts them."""
        models = [
            {"leafNodeName": "x" * 80, "nodeSelector": {"labelSelector": {"matchLabels": {}}}}
        ]
        models[0]["nodeSelector"]["labelSelector"]["matchLabels"] = {"a": "b"}  # type: ignore[index]
        (node,) = self.spec(models=models).nodes
        self.assertEqual(node.name, "kosmos-" + "x" * 56)

    def test_kubeconfig(self) -> None:
        """The kubeconfig is in the object; an unreadable one is reported with its reason."""
        spec = self.spec()
        assert isinstance(spec.kubeconfig, KubeconfigData)
        self.assertEqual(spec.kubeconfig.content.decode(), kubeconfig())
        self.assertNotIn("secret", repr(spec))
        for value, why in (
            (None, "cluster east has no kubeconfig; put one into spec.kubeconfig (base64)"),
            ("%%%", "cluster east: spec.kubeconfig is not base64"),
            (7, "cluster east: spec.kubeconfig is larger than 256 KiB, or no text"),
            ("A" * (5 << 20), "cluster east: spec.kubeconfig is larger than 256 KiB, or no text"),
        ):
            cluster: Object = {"metadata": {"name": "east"}, "spec": {"kubeconfig": value}}
            found, _ = spec_of(cluster)
            assert isinstance(found.kubeconfig, KubeconfigData)
            self.assertEqual(found.kubeconfig.problem, why)

    def test_anything(self) -> None:
        """Whatever a field contains, there is a leaf."""
        for spec in (None, [], "x", {"clusterTreeOptions": []}, {"clusterTreeOptions": {}}):
            found, _ = spec_of({"metadata": {"name": "east"}, "spec": spec})
            self.assertEqual(found.nodes[0].name, "kosmos-east")
        for models in ([], [None], "x", [{"nodeSelector": 7, "labels": [], "taints": {}}]):
            tree = {"clusterTreeOptions": {"leafModels": models}}
            found, _ = spec_of({"metadata": {"name": "east"}, "spec": tree})
            self.assertEqual([node.name for node in found.nodes], ["kosmos-east"])


class ClustersTests(SynchronousTestCase):
    """Tests for :class:`Clusters`."""

    def setUp(self) -> None:
        self.clock, self.root = Clock(), memory_cluster()
        self.clusters = Clusters(self.root.client(), self.clock)
        self.told = 0
        self.addCleanup(lambda: self.successResultOf(self.clusters.stop()))

    def begin(self) -> None:
        self.clusters.start(self.note)

    def note(self) -> None:
        self.told += 1

    def names(self) -> list[str]:
        return sorted(spec.name for spec in self.clusters.specs())

    def test_doors(self) -> None:
        """It is a source of leaves."""
        verifyObject(ISource, self.clusters)

    def test_followed(self) -> None:
        """Clusters come, change and go."""
        put_cluster(self.root, "east", kubeconfig())
        self.begin()
        self.assertTrue(self.clusters.synced)
        put_cluster(self.root, "west", kubeconfig())
        self.assertEqual(self.names(), ["east", "west"])
        before = self.told
        put_cluster(self.root, "east", kubeconfig(), labels={"a": "b"})
        self.assertEqual(self.told, before)
        put_cluster(self.root, "east", kubeconfig(token="new"))
        self.assertEqual(self.told, before + 1)
        self.root.remove((CLUSTERS.resource, "", "east"))
        self.assertEqual(self.names(), ["west"])
        self.assertEqual(self.told, before + 2)

    def test_none(self) -> None:
        """A root without Clusters was read as well, and reported once."""
        self.begin()
        self.assertTrue(self.clusters.synced)
        self.assertEqual(self.told, 1)

    def test_no_leaf(self) -> None:
        """The root itself is no leaf, nor one that is switched off, or on its way out."""
        self.begin()
        put_cluster(self.root, "root", annotations={"kosmos.io/cluster-role": "root"})
        put_cluster(self.root, "off", enable=False)
        self.assertEqual(self.names(), [])
        put_cluster(self.root, "east", kubeconfig())
        going = self.root.objects[(CLUSTERS.resource, "", "east")]
        metadata = {**going["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.root.put((CLUSTERS.resource, "", "east"), {**going, "metadata": metadata})
        self.assertEqual(self.names(), [])

    def test_network_alone(self) -> None:
        """A Cluster used only for its network is no leaf; one without either option is."""
        metadata = {"name": "east"}
        for spec, leaf in (
            ({"clusterLinkOptions": {"enable": True}}, False),
            (
                {"clusterLinkOptions": {"enable": True}, "clusterTreeOptions": {"enable": True}},
                True,
            ),
            ({"networkType": "p2p"}, True),
        ):
            self.assertIs(is_leaf({"metadata": metadata, "spec": spec}), leaf)

    def test_actual_name(self) -> None:
        """One without a kubeconfig uses that of another of the same actual name, while there is."""
        self.begin()
        put_cluster(self.root, "east", kubeconfig(token="e"))
        put_cluster(self.root, "part", labels={"kosmos.io/actual-cluster-name": "east"})
        kubeconfigs = {spec.name: spec.kubeconfig for spec in self.clusters.specs()}
        self.assertEqual(kubeconfigs["part"], kubeconfigs["east"])
        self.root.remove((CLUSTERS.resource, "", "east"))
        (spec,) = self.clusters.specs()
        assert isinstance(spec.kubeconfig, KubeconfigData)
        self.assertIn("cluster part has no kubeconfig", spec.kubeconfig.problem)

    def test_told_once(self) -> None:
        """An invalid part of a Cluster is logged once."""
        logged: list[str] = []

        def observe(event: object) -> None:
            logged.append(formatEvent(event))  # type: ignore[arg-type]

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        models: list[Object] = [{"nodeSelector": {"nodeName": "A B"}}]
        self.begin()
        for token in ("a", "b", "c"):
            put_cluster(self.root, "east", kubeconfig(token=token), models=models)
        warnings = [each for each in logged if "'A B' cannot be the name" in each]
        self.assertEqual(len(warnings), 1)

    def test_not_served(self) -> None:
        """A root that knows no Clusters is a problem that says so; nothing is cleaned up for it."""
        del self.root.kinds[CLUSTERS.resource]
        self.begin()
        self.assertFalse(self.clusters.synced)
        self.assertIn("could not find the requested resource", self.clusters.problem)

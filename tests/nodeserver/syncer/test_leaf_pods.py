"""Tests for :mod:`twisted_exec.nodeserver.syncer.leaf_pods`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.syncer.leaf_pods import (
    CONFIG_MAPS,
    OWN_LABELS,
    Reference,
    is_excluded,
    leaf_ephemeral_container,
    leaf_pod,
    references,
    renamed_in_leaf,
)

MARKS = {"labels": {"mine": "yes"}, "annotations": {"uid": "u-1"}}
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def a_root(metadata: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {
            "namespace": "default",
            "name": "web",
            "uid": "0123456789",
            "labels": {"app": "web"},
            **(metadata or {}),
        },
        "spec": {"nodeName": "leaf-one", "containers": [{"name": "main", "image": "i"}], **spec},
    }


def pod_of(root: Object, node: LeafNode | None = None, name: str = "web") -> Object:
    return leaf_pod(root, node or LeafNode("leaf-one", "one"), MARKS, "default", name)


class LeafPodTests(SynchronousTestCase):
    """Tests for :func:`leaf_pod`."""

    def test_what_the_root_decided(self) -> None:
        """The leaf decides about node, priority and ServiceAccount; the rest stays."""
        root = a_root(
            nodeSelector={"a": "b"},
            affinity={"nodeAffinity": {}},
            priority=5,
            priorityClassName="high",
            schedulerName="mine",
            serviceAccountName="builder",
            readinessGates=[{"conditionType": "x"}],
            ephemeralContainers=[{"name": "debug"}],
            terminationGracePeriodSeconds=7,
            restartPolicy="Never",
        )
        self.assertEqual(
            pod_of(root)["spec"],
            {
                "containers": [{"name": "main", "image": "i"}],
                "terminationGracePeriodSeconds": 7,
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
            },
        )

    def test_metadata(self) -> None:
        """Labels and annotations go along, with our marks; what the root's server keeps does not."""
        root = a_root(
            {
                "annotations": {
                    "note": "1",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
                "finalizers": ["x"],
                "ownerReferences": [{"kind": "ReplicaSet"}],
                "resourceVersion": "9",
            }
        )
        metadata = pod_of(root)["metadata"]
        self.assertEqual(set(metadata), {"namespace", "name", "labels", "annotations"})
        self.assertEqual(metadata["labels"], {"app": "web", "mine": "yes"})
        self.assertEqual(metadata["annotations"]["note"], "1")
        self.assertEqual(metadata["annotations"]["uid"], "u-1")
        self.assertEqual(metadata["annotations"][OWN_LABELS], "app")
        self.assertNotIn(
            "kubectl.kubernetes.io/last-applied-configuration", metadata["annotations"]
        )

    def test_the_root_is_not_changed(self) -> None:
        """The shared copy of the root's Pod stays unchanged."""
        volumes = [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {}}]}}]
        mounts = [{"name": "t", "mountPath": TOKEN}]
        root = a_root(volumes=volumes, containers=[{"name": "main", "volumeMounts": mounts}])
        before = repr(root)
        pod_of(root)
        references(root)
        self.assertEqual(repr(root), before)

    def test_tokens(self) -> None:
        """No token of the root reaches a leaf: neither its volume nor its mount."""
        root = a_root(
            volumes=[
                {
                    "name": "kube-api-access-x",
                    "projected": {"sources": [{"configMap": {"name": "r"}}]},
                },
                {"name": "old-token", "secret": {"secretName": "default-token-x"}},
                {"name": "data", "emptyDir": {}},
                {
                    "name": "mixed",
                    "projected": {
                        "sources": [{"serviceAccountToken": {}}, {"secret": {"name": "s"}}]
                    },
                },
                {"name": "vault", "projected": {"sources": [{"serviceAccountToken": {}}]}},
            ],
            containers=[
                {
                    "name": "main",
                    "volumeMounts": [
                        {"name": "kube-api-access-x", "mountPath": TOKEN},
                        {"name": "data", "mountPath": "/data"},
                    ],
                },
                {"name": "old", "volumeMounts": [{"name": "old-token", "mountPath": TOKEN}]},
            ],
        )
        spec = pod_of(root)["spec"]
        self.assertEqual(
            spec["volumes"],
            [
                {"name": "data", "emptyDir": {}},
                {"name": "mixed", "projected": {"sources": [{"secret": {"name": "s"}}]}},
                {"name": "vault", "emptyDir": {}},
            ],
        )
        mounts = [container["volumeMounts"] for container in spec["containers"]]
        self.assertEqual(mounts, [[{"name": "data", "mountPath": "/data"}], []])

    def test_where(self) -> None:
        """A Node of the root that is one of the leaf's, or some, says so."""
        root = a_root()
        node = LeafNode("worker-1", "one", mode="node")
        self.assertEqual(pod_of(root, node)["spec"]["nodeName"], "worker-1")
        node = LeafNode("v", "one", mode="node", leaf_nodes=("worker-2",))
        self.assertEqual(pod_of(root, node)["spec"]["nodeName"], "worker-2")
        node = LeafNode("v", "one", mode="party", selector={"pool": "a"})
        self.assertEqual(pod_of(root, node)["spec"]["nodeSelector"], {"pool": "a"})
        node = LeafNode("v", "one", mode="party", leaf_nodes=("n1", "n2"))
        required = pod_of(root, node)["spec"]["affinity"]["nodeAffinity"]
        terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        self.assertEqual([term["matchFields"][0]["values"] for term in terms], [["n1"], ["n2"]])

    def test_tolerations(self) -> None:
        """Tolerations of the root's Node are dropped in the leaf; others stay."""
        taints: Any = ({"key": "leaf", "effect": "NoSchedule"},)
        node = LeafNode("v", "one", taints=taints)
        root = a_root(tolerations=[{"key": "leaf"}, {"key": "gpu"}, {"operator": "Exists"}])
        self.assertEqual(
            pod_of(root, node)["spec"]["tolerations"], [{"key": "gpu"}, {"operator": "Exists"}]
        )
        self.assertNotIn("tolerations", pod_of(a_root(tolerations=[{"key": "leaf"}]), node)["spec"])

    def test_another_name(self) -> None:
        """By another name a Pod still finds itself called by its own."""
        root = a_root()
        name = renamed_in_leaf(root)
        self.assertEqual(name, "web-01234567")
        self.assertEqual(pod_of(root, name=name)["spec"]["hostname"], "web")
        self.assertEqual(len(renamed_in_leaf(a_root({"name": "x" * 253}))), 253)

    def test_left_alone(self) -> None:
        """Agents of Nodes are none of a leaf's business."""
        daemon = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
        self.assertTrue(is_excluded(a_root(daemon)))
        self.assertTrue(is_excluded(a_root({"namespace": "kube-system"})))
        self.assertTrue(is_excluded(a_root({"annotations": {"kubernetes.io/config.mirror": "x"}})))
        owned = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
        self.assertFalse(is_excluded(a_root(owned)))

    def test_ephemeral(self) -> None:
        """A container for debugging has no token either."""
        copied = leaf_ephemeral_container(
            {"name": "d", "volumeMounts": [{"name": "t", "mountPath": TOKEN}]}
        )
        self.assertEqual(copied, {"name": "d", "volumeMounts": []})


class ReferencesTests(SynchronousTestCase):
    """Tests for :func:`references`."""

    def test_all_places(self) -> None:
        """Whatever names a ConfigMap or a Secret is found; what every namespace has is not."""
        root = a_root(
            imagePullSecrets=[{"name": "pull"}],
            volumes=[
                {"name": "a", "configMap": {"name": "cm-volume"}},
                {"name": "b", "secret": {"secretName": "s-volume"}},
                {
                    "name": "c",
                    "projected": {
                        "sources": [
                            {"configMap": {"name": "cm-projected"}},
                            {"secret": {"name": "s-projected"}},
                            {"configMap": {"name": "kube-root-ca.crt"}},
                        ]
                    },
                },
            ],
            initContainers=[{"name": "i", "envFrom": [{"configMapRef": {"name": "cm-from"}}]}],
            containers=[
                {
                    "name": "main",
                    "envFrom": [{"secretRef": {"name": "s-from"}}],
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cm-key"}}},
                        {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s-key"}}},
                    ],
                }
            ],
        )
        names = ("cm-volume", "cm-projected", "cm-from", "cm-key")
        secrets = ("pull", "s-volume", "s-projected", "s-from", "s-key")
        self.assertEqual(
            references(root),
            {Reference(CONFIG_MAPS, each) for each in names}
            | {Reference(SECRETS.resource, each) for each in secrets},
        )

    def test_none(self) -> None:
        """Most Pods name none, but the token that they do not get."""
        mounts = [{"name": "t", "mountPath": TOKEN}]
        root = a_root(
            volumes=[{"name": "t", "secret": {"secretName": "token"}}],
            containers=[{"name": "main", "volumeMounts": mounts}],
        )
        self.assertEqual(references(root), frozenset())

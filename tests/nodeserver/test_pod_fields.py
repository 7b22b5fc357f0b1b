"""Tests for :mod:`twisted_exec.nodeserver.pod_fields`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import memory_cluster, put_leaf_pod, put_pod
from twisted_exec.nodeserver.interfaces import LeafPod
from twisted_exec.nodeserver.kubelet_api.pods import running
from twisted_exec.nodeserver.ownership import OwnershipRule
from twisted_exec.nodeserver.pod_fields import STATUSES, trim_leaf_pod, trim_root_pod
from twisted_exec.nodeserver.syncer.status import desired_status


class TrimmedTests(SynchronousTestCase):
    """Tests for :func:`trim_leaf_pod` and :func:`trim_root_pod`."""

    def test_leaf(self) -> None:
        """Of a leaf's Pod remain metadata, status, the node and what its containers are."""
        pod = put_pod(
            memory_cluster(),
            "web",
            "worker",
            volumes=[{"name": "v"}],
            initContainers=[{"name": "init", "tty": True, "env": [{"name": "A", "value": "b"}]}],
        )
        pod["metadata"]["managedFields"] = [{"manager": "x"}]
        trimmed_pod = trim_leaf_pod(pod)
        self.assertEqual(
            trimmed_pod["spec"],
            {
                "containers": [{"name": "main", "image": "image"}],
                "initContainers": [{"name": "init", "tty": True}],
                "nodeName": "worker",
            },
        )
        self.assertNotIn("managedFields", trimmed_pod["metadata"])
        self.assertEqual(trimmed_pod["status"]["phase"], "Running")

    def test_nonsense(self) -> None:
        """Whatever a leaf says of a Pod arrives in the form that it should have, or not at all."""
        wrong: list[Any] = [1, "x", True, None, [1], [None], [[]], {"a": 1}, {"a": None}]
        wrong += [{each: value} for each in STATUSES for value in wrong]
        wrong += [{each: [{"name": 1}, {"name": "a", "state": 1}]} for each in STATUSES]
        wrong += [{"conditions": value} for value in (*wrong[:9], [{"a": "b"}], [{"type": 1}])]
        root = put_pod(memory_cluster(), "web")
        for part in ("labels", "annotations", "spec", "containers", "status"):
            for value in wrong:
                with self.subTest(part=part, value=value):
                    pod = put_leaf_pod(memory_cluster(), root)
                    within = {"labels": "metadata", "annotations": "metadata", "containers": "spec"}
                    (pod[within[part]] if part in within else pod)[part] = value
                    trimmed_pod = trim_leaf_pod(pod)
                    self.assertIn(OwnershipRule().owner(trimmed_pod), ("", root["metadata"]["uid"]))
                    OwnershipRule().is_for(trimmed_pod, root)
                    desired_status(root, trimmed_pod)
                    leaf_pod = LeafPod(None, "default", "web", root, trimmed_pod)  # type: ignore[arg-type]
                    running(leaf_pod)

    def test_root(self) -> None:
        """Of the root's Pod everything but who wrote it, and what they wrote before."""
        applied = "kubectl.kubernetes.io/last-applied-configuration"
        pod = put_pod(memory_cluster(), "web", annotations={applied: "{}", "a": "b"}, volumes=[])
        trimmed_pod = trim_root_pod(pod)
        self.assertEqual(trimmed_pod["metadata"]["annotations"], {"a": "b"})
        self.assertEqual(trimmed_pod["spec"]["volumes"], [])

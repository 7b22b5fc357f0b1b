"""Tests for :mod:`twisted_exec.nodeserver.ownership`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import memory_cluster, put_leaf_pod, put_pod
from twisted_exec.api.selectors import parse_labels
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafPod
from twisted_exec.nodeserver.kubelet_api.pods import running
from twisted_exec.nodeserver.ownership import (
    SAME_NAME,
    STATUSES,
    Names,
    OwnershipRule,
    trim_root_pod,
    trimmed,
)
from twisted_exec.nodeserver.syncer.plan import desired_status

KOSMOS = {"kosmos-io/pod": "true"}


class OursTests(SynchronousTestCase):
    """Tests for :class:`OwnershipRule`: a leaf's Pod is served only if it is ours."""

    def setUp(self) -> None:
        self.leaf = memory_cluster()
        self.root = put_pod(memory_cluster(), "web", "leaf-one")

    def made(self, name: str = "web", namespace: str = "default", **more: Any) -> Object:
        return put_leaf_pod(self.leaf, self.root, name=name, namespace=namespace, **more)

    def test_owned(self) -> None:
        """A Pod with our label that names the root's Pod by its UID is that one's."""
        self.assertTrue(OwnershipRule().is_for(self.made(), self.root))

    def test_same_name_alone(self) -> None:
        """A Pod that merely has the same namespace and name is not, unless that is the rule."""
        other = put_pod(self.leaf, "web")
        self.assertFalse(OwnershipRule().is_for(other, self.root))
        self.assertTrue(OwnershipRule(policy=SAME_NAME).is_for(other, self.root))
        self.assertFalse(
            OwnershipRule(policy=SAME_NAME).is_for(put_pod(self.leaf, "db"), self.root)
        )

    def test_another_life(self) -> None:
        """A Pod that was made for one of that name before is not this one's."""
        again = {**self.root, "metadata": {**self.root["metadata"], "uid": "another"}}
        self.assertFalse(OwnershipRule().is_for(self.made(), again))

    def test_another_root(self) -> None:
        """Nor is one that another root made here."""
        self.assertFalse(OwnershipRule(root="east").is_for(self.made(), self.root))

    def test_marked_elsewhere(self) -> None:
        """A user with write access to another namespace of the leaf cannot make a Pod ours."""
        self.assertFalse(OwnershipRule().is_for(self.made(namespace="theirs"), self.root))

    def test_translated(self) -> None:
        """Names may be others in the leaf; which name ours has does not matter."""
        ours = OwnershipRule(names=Names({"default": "eu"}))
        self.assertTrue(ours.is_for(self.made("web-x7", "eu"), self.root))
        self.assertFalse(ours.is_for(self.made(), self.root))

    def test_kosmos(self) -> None:
        """A Pod created by Kosmos is ours by label and name, where Kosmos is enabled."""
        pod = put_pod(self.leaf, "web", labels=KOSMOS)
        self.assertTrue(OwnershipRule(kosmos=True).is_for(pod, self.root))
        self.assertFalse(OwnershipRule().is_for(pod, self.root))
        self.assertFalse(OwnershipRule(kosmos=True).is_for(put_pod(self.leaf, "web"), self.root))
        self.assertFalse(
            OwnershipRule(kosmos=True).is_for(put_pod(self.leaf, "db", labels=KOSMOS), self.root)
        )

    def test_marks(self) -> None:
        """Any Pod with our marks is ours, and watched."""
        ours = OwnershipRule(root="east", kosmos=True)
        marks = ours.marks(self.root)
        pod = put_pod(self.leaf, "web", **marks)
        self.assertTrue(ours.is_for(pod, self.root))
        self.assertEqual(ours.owner(pod), self.root["metadata"]["uid"])
        self.assertTrue(parse_labels(ours.selectors[0]).matches(pod["metadata"]["labels"]))
        self.assertTrue(parse_labels(ours.selectors[1]).matches(KOSMOS))


class TrimmedTests(SynchronousTestCase):
    """Tests for :func:`trimmed` and :func:`trim_root_pod`."""

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
        trimmed_pod = trimmed(pod)
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
                    trimmed_pod = trimmed(pod)
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

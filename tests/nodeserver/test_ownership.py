"""Tests for :mod:`twisted_exec.nodeserver.ownership`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import memory_cluster, put_leaf_pod, put_pod
from twisted_exec.api.selectors import parse_labels
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.ownership import SAME_NAME, Names, OwnershipRule

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

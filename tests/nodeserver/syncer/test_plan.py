"""Tests for :mod:`twisted_exec.nodeserver.syncer.plan`."""

from __future__ import annotations

import copy
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.live import running
from tests.nodeserver.syncer.test_leaf_pods import MARKS, a_root
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.syncer.leaf_pods import leaf_pod
from twisted_exec.nodeserver.syncer.plan import (
    AddEphemeral,
    CreateInLeaf,
    DeleteInLeaf,
    DeleteInRoot,
    Step,
    UpdateInLeaf,
    WriteStatus,
    plan,
)
from twisted_exec.nodeserver.syncer.status import LOST, desired_status

NOW = "2026-01-02T00:00:00Z"


def planned(root: Object, pod: Object | None) -> list[Step]:
    return plan(root, pod, MARKS, "one", NOW)


def synced(**more: Any) -> tuple[Object, Object]:
    """Both sides as they should be."""
    root = a_root(**more)
    pod = leaf_pod(root, LeafNode("leaf-one", "one"), MARKS, "default", "web")
    pod["status"] = running(root)
    root["status"] = desired_status(root, pod)
    return root, pod


class PlanTests(SynchronousTestCase):
    """Tests for :func:`plan`."""

    def test_nothing(self) -> None:
        """If both sides agree there is no step."""
        self.assertEqual(planned(*synced()), [])

    def test_new(self) -> None:
        """A new Pod is made in the leaf, but not one that is its Node's own business."""
        self.assertEqual(planned(a_root(), None), [CreateInLeaf()])
        self.assertEqual(planned(a_root({"namespace": "kube-system"}), None), [])

    def test_status(self) -> None:
        """The leaf's status is copied to the root."""
        root, pod = synced()
        pod["status"]["phase"] = "Succeeded"
        (step,) = planned(root, pod)
        assert isinstance(step, WriteStatus)
        self.assertEqual(step.status["phase"], "Succeeded")

    def test_gone_by_itself(self) -> None:
        """A Pod that ran and is gone from its leaf has failed; when it never ran it is made again."""
        root, _ = synced()
        (step,) = planned(root, None)
        assert isinstance(step, WriteStatus)
        self.assertEqual(step.status["reason"], LOST)
        root["status"] = {"phase": "Pending", "conditions": []}
        self.assertEqual(planned(root, None), [CreateInLeaf()])

    def test_over(self) -> None:
        """A Pod that is over is not made again."""
        for phase in ("Succeeded", "Failed"):
            root, _ = synced()
            root["status"]["phase"] = phase
            self.assertEqual(planned(root, None), [])

    def test_deletion(self) -> None:
        """A deletion in the root reaches the leaf with its grace, once; then the root's Pod goes."""
        root, pod = synced()
        root["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 7}
        self.assertEqual(planned(root, pod), [DeleteInLeaf(7)])
        pod["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 7}
        self.assertEqual(planned(root, pod), [])
        self.assertEqual(planned(root, None), [DeleteInRoot()])

    def test_a_shorter_grace(self) -> None:
        """A second deletion with a shorter grace period shortens it in the leaf."""
        root, pod = synced()
        root["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 1}
        pod["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30}
        self.assertEqual(planned(root, pod), [DeleteInLeaf(1)])

    def test_force(self) -> None:
        """A forced deletion in the root still lets the leaf's kubelet end the containers."""
        root, pod = synced()
        root["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}
        self.assertEqual(planned(root, pod), [DeleteInLeaf(1)])

    def test_left_alone_and_deleted(self) -> None:
        """A Pod without a counterpart is deleted at once: no kubelet would do it."""
        root = a_root({"namespace": "kube-system", "deletionTimestamp": NOW})
        self.assertEqual(planned(root, None), [DeleteInRoot()])

    def test_deleted_in_the_leaf(self) -> None:
        """While a leaf's Pod ends by itself its status is copied, and the Pod is not changed."""
        root, pod = synced()
        pod["metadata"]["deletionTimestamp"] = NOW
        root["metadata"]["labels"]["app"] = "other"
        self.assertEqual(planned(root, pod), [])

    def test_changes(self) -> None:
        """Labels, annotations and images follow the root's."""
        root, pod = synced()
        root["metadata"]["labels"] = {"tier": "1"}
        root["metadata"]["annotations"] = {"note": "2"}
        root["spec"]["containers"][0]["image"] = "j"
        (step,) = planned(root, pod)
        assert isinstance(step, UpdateInLeaf)
        self.assertEqual(dict(step.labels), {"tier": "1", "app": None})
        self.assertEqual(dict(step.annotations)["note"], "2")
        self.assertEqual(step.images, (("main", "j"),))
        again = copy.deepcopy(pod)
        again["metadata"]["annotations"] |= dict(step.annotations)
        self.assertEqual(planned(root, again), [])

    def test_a_leaf_that_changes_what_it_gets(self) -> None:
        """Changes of labels and images by the leaf are not reverted for ever."""
        root, pod = synced()
        pod["metadata"]["labels"]["app"] = "theirs"
        pod["spec"]["containers"][0]["image"] = "mirror/i"
        self.assertEqual(planned(root, pod), [])

    def test_made_by_others(self) -> None:
        """A Pod of another creator is neither changed nor deleted."""
        root, pod = synced()
        pod["metadata"]["annotations"] = {}
        root["metadata"]["labels"] = {"tier": "1"}
        root["spec"]["ephemeralContainers"] = [{"name": "d"}]
        self.assertEqual(planned(root, pod), [])
        root["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 1}
        self.assertEqual(planned(root, pod), [DeleteInRoot()])

    def test_debug(self) -> None:
        """Containers for debugging are added, each once, to what still runs."""
        root, pod = synced()
        root["spec"]["ephemeralContainers"] = [{"name": "d1"}, {"name": "d2"}]
        pod["spec"]["ephemeralContainers"] = [{"name": "d1"}]
        self.assertEqual(planned(root, pod), [AddEphemeral(("d2",))])
        pod["status"]["phase"] = root["status"]["phase"] = "Succeeded"
        self.assertEqual(planned(root, pod), [])

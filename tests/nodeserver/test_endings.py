"""
Tests for :mod:`twisted_exec.nodeserver.endings`; ``test_service`` has the users' view.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.nodeserver.support import SimpleLeaf, memory_cluster, simple
from tests.streaming.session_streams import StreamDouble
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.endings import Endings
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.interfaces import POOL_DELETED, Ending
from twisted_exec.streaming.sessions.guard import SessionGuard
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.subject import Subject


def pod(uid: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "uid": uid, **metadata}}


class EndingsTests(SynchronousTestCase):
    """Leaves come, go and change while there are sessions."""

    def setUp(self) -> None:
        self.root_pods, self.leaves = simple()
        self.sessions = Sessions(Trail(AuditList(), "nodeserver", Clock()))
        self.ended: dict[str, Ending] = {}
        reviewer: Any = None
        guard = SessionGuard(self.sessions, reviewer, Clock())
        self.endings = Endings(guard, self.root_pods, self.leaves)
        self.endings.start()
        for node in ("leaf-one", "leaf-two"):
            self.open(node)

    def open(self, node: str) -> None:
        def end(ending: Ending) -> None:
            self.ended[node] = ending

        self.sessions.open(Subject(node, pool=node)).carry(StreamDouble(end))

    def stand(self, leaf: str, *nodes: str) -> SimpleLeaf:
        leaf_nodes = [LeafNode(node, leaf) for node in nodes]
        return SimpleLeaf(leaf, memory_cluster(), ClientConfig("https://x.example"), leaf_nodes)

    def test_other_leaf(self) -> None:
        """A Node that stands for another leaf now ends its sessions, and no other Node's."""
        two = self.stand("two", "leaf-two")
        self.leaves.leaves.append(two)
        self.leaves.tell()
        self.assertEqual(self.ended, {})
        two.nodes = self.stand("two", "leaf-one", "leaf-two").nodes
        self.leaves.leaves = [two]
        self.leaves.tell()
        (ending,) = self.ended.values()
        self.assertEqual((list(self.ended), ending.reason), (["leaf-one"], POOL_DELETED))
        self.assertEqual(ending.message, 'node "leaf-one" does not stand for leaf "one" now')

    def test_same_leaf(self) -> None:
        """A leaf whose credentials or labels are others is the same leaf."""
        (leaf,) = self.leaves.leaves
        leaf.nodes = [LeafNode("leaf-one", "one", labels={"zone": "a"})]
        self.leaves.tell()
        self.assertEqual(self.ended, {})

    def test_other_leaf_of_the_name(self) -> None:
        """A new leaf under an old name is another leaf; the reason of the removal is in the message."""
        (leaf,) = self.leaves.leaves
        leaf.gone = 'space "default/one" is gone: it was deleted'
        self.leaves.leaves = [self.stand("one", "leaf-one")]
        self.leaves.tell()
        cases = (
            'node "leaf-one" does not stand for leaf "one" now: space "default/one" is gone: it was '
            "deleted"
        )
        self.assertEqual(self.ended["leaf-one"], Ending(POOL_DELETED, cases))

    def test_stopped(self) -> None:
        """Nothing is followed any more."""
        self.endings.stop()
        self.leaves.leaves.clear()
        self.leaves.tell()
        self.root_pods.tell(pod(), None)
        self.assertEqual((self.ended, self.leaves.followers), ({}, []))

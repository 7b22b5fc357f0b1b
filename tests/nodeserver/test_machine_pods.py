"""Tests for :mod:`twisted_exec.nodeserver.machine_pods`, on two clusters in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.live import graceful_cluster, running
from tests.nodeserver.support import PODS, SimpleLeaf, SimpleLeaves, put_pod
from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.machine_pods import MachinePods, node_for
from twisted_exec.nodeserver.nodes.plan import KEPT_BY
from twisted_exec.nodeserver.ownership import MACHINE, MACHINE_UID, MACHINES, OwnershipRule
from twisted_exec.testing.cluster import unreachable

POD = PODS.resource
KEEPER = "kube-system/exec-nodeserver"


class MirrorCase(SynchronousTestCase):
    """A root, and an API server of machines behind it."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.root, self.machines = graceful_cluster(), graceful_cluster()
        config = ClientConfig("https://machines.example:6443", token="secret")
        nodes = (LeafNode("consoles", "lab"),)
        self.leaf = SimpleLeaf("lab", self.machines, config, nodes, machines=True)
        self.leaves = SimpleLeaves(self.leaf)

    def start(self, keeper: str = KEEPER) -> MachinePods:
        mirror = MachinePods(self.root.client(), self.leaves, self.clock, keeper)
        mirror.startService()
        self.settle()
        return mirror

    def run_mirror(self) -> None:
        self.addCleanup(self.start().stopService)

    def settle(self, seconds: float = 2) -> None:
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def machine(self, name: str = "vm", exposed: str = "true", uid: str = "") -> Object:
        labels = {EXPOSED_LABEL: exposed, "app": "web"}
        pod = put_pod(self.machines, name, "pool-1", labels=labels, containers=["console"], uid=uid)
        pod["spec"]["containers"] = [{"name": "console", "image": "", "stdin": True, "tty": True}]
        pod["status"] = running(pod)
        return self.machines.put((POD, "default", name), pod)

    def shown(self, name: str = "vm") -> Any:
        return self.root.objects.get((POD, "default", name))


class MirrorTests(MirrorCase):
    """Tests for :class:`MachinePods`."""

    def test_shown(self) -> None:
        """An exposed machine is a Pod of the root, on the Node that stands for its cluster."""
        machine = self.machine()
        self.run_mirror()
        pod = self.shown()
        self.assertEqual(pod["spec"]["nodeName"], "consoles")
        self.assertEqual(pod["metadata"]["labels"], {MACHINE: "true"})
        annotations = pod["metadata"]["annotations"]
        self.assertEqual(annotations[MACHINE_UID], machine["metadata"]["uid"])
        self.assertEqual(pod["status"]["phase"], "Running")
        (container,) = pod["spec"]["containers"]
        self.assertEqual(
            container, {"name": "console", "image": "none", "stdin": True, "tty": True}
        )

    def test_not_exposed(self) -> None:
        """A machine that is not exposed has no Pod, and loses it when it is no longer exposed."""
        self.machine("hidden", exposed="false")
        self.machine()
        self.run_mirror()
        self.assertIsNone(self.shown("hidden"))
        self.assertIsNotNone(self.shown())
        self.machine(exposed="no")
        self.settle()
        self.assertIsNone(self.shown())

    def test_in_step(self) -> None:
        """Its state follows, and it goes with the machine."""
        self.machine()
        self.run_mirror()
        pod = self.machine(uid=self.shown()["metadata"]["annotations"][MACHINE_UID])
        pod["status"]["phase"] = "Failed"
        self.machines.put((POD, "default", "vm"), pod)
        self.settle()
        self.assertEqual(self.shown()["status"]["phase"], "Failed")
        self.machines.remove((POD, "default", "vm"))
        self.settle()
        self.assertIsNone(self.shown())

    def test_another_machine(self) -> None:
        """A machine of the same name is another one, and so is its Pod."""
        self.machine()
        self.run_mirror()
        before = self.shown()["metadata"]["uid"]
        self.machines.remove((POD, "default", "vm"))
        again = self.machine()
        self.settle()
        self.assertNotEqual(self.shown()["metadata"]["uid"], before)
        annotations = self.shown()["metadata"]["annotations"]
        self.assertEqual(annotations[MACHINE_UID], again["metadata"]["uid"])

    def test_deleted_in_the_root(self) -> None:
        """Deleting the Pod deletes no machine: the Pod is created again."""
        self.machine()
        self.run_mirror()
        before = self.shown()["metadata"]["uid"]
        self.machines.requests.clear()
        self.root.client().delete(POD, "vm", "default")
        self.settle()
        self.assertNotEqual(self.shown()["metadata"]["uid"], before)
        self.assertEqual(self.machines.requests, [])

    def test_a_foreign_pod(self) -> None:
        """A foreign Pod of that name is never touched."""
        theirs = put_pod(self.root, "vm", "worker")
        self.machine()
        self.run_mirror()
        self.assertEqual(self.shown(), theirs)
        self.machines.remove((POD, "default", "vm"))
        self.settle(60)
        self.assertEqual(self.shown(), theirs)

    def test_of_other_keepers(self) -> None:
        """Pods of other node servers stay, though their machines are unknown here."""
        self.machine()
        self.start("kube-system/other").stopService()
        self.machines.remove((POD, "default", "vm"))
        self.run_mirror()
        self.assertEqual(self.shown()["metadata"]["annotations"][KEPT_BY], "kube-system/other")

    def test_gone_while_nobody_looked(self) -> None:
        """A Pod whose machine disappeared during a downtime is deleted at the next start."""
        self.machine()
        self.start().stopService()
        self.machines.remove((POD, "default", "vm"))
        self.run_mirror()
        self.assertIsNone(self.shown())

    def test_unknown(self) -> None:
        """While the machines cannot be read their Pods stay."""
        self.machine()
        self.start().stopService()
        self.machines.problem = unreachable()
        self.run_mirror()
        self.settle(60)
        self.assertIsNotNone(self.shown())

    def test_one_that_is_unknown(self) -> None:
        """One API server that cannot be read keeps no Pods of another one."""
        self.machine()
        self.start().stopService()
        dead = SimpleLeaf("dead", graceful_cluster(), self.leaf.told, machines=True)
        dead.cluster.problem = unreachable()
        self.leaves.leaves.append(dead)
        self.machines.remove((POD, "default", "vm"))
        self.run_mirror()
        self.assertIsNone(self.shown())

    def test_a_leaf_that_is_no_more(self) -> None:
        """The Pods of an API server that is taken from the configuration go."""
        self.machine()
        self.run_mirror()
        self.leaves.leaves.clear()
        self.leaves.tell()
        self.settle()
        self.assertIsNone(self.shown())

    def test_steady_state(self) -> None:
        """Pods in their desired state cost no request."""
        for number in range(50):
            self.machine(f"vm-{number}")
        self.run_mirror()
        for cluster in (self.root, self.machines):
            cluster.requests.clear()
        self.settle(600)
        self.assertEqual(self.root.requests + self.machines.requests, [])

    def test_the_end(self) -> None:
        """A mirror that is stopped leaves no timer behind."""
        self.machine()
        self.machines.problem = unreachable()
        mirror = self.start()
        mirror.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class NodeTests(SynchronousTestCase):
    """Tests for :func:`node_for`."""

    def test_pools(self) -> None:
        """A Node may stand for some pools, and one for all others."""
        nodes = (LeafNode("a", "lab", leaf_nodes=("pool-1",)), LeafNode("b", "lab"))
        for pool, node in (("pool-1", "a"), ("pool-2", "b")):
            self.assertEqual(node_for({"spec": {"nodeName": pool}}, nodes), node)
        self.assertEqual(node_for({"spec": {"nodeName": "pool-2"}}, nodes[:1]), "")


class RuleTests(MirrorCase):
    """The machine behind a Pod of the root."""

    def test_only_its_own(self) -> None:
        """A Pod leads to the machine that it was made for while that is exposed, and no other does."""
        rule, machine = OwnershipRule(policy=MACHINES), self.machine()
        self.run_mirror()
        pod = self.shown()
        self.assertTrue(rule.is_for(machine, pod))
        self.assertFalse(rule.is_for(self.machine(exposed="no"), pod))
        self.assertFalse(rule.is_for(self.machine(), pod))
        self.assertFalse(rule.is_for(machine, put_pod(self.root, "vm", "consoles")))

"""Tests for :mod:`twisted_exec.nodeserver.syncer.service`, on two clusters in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.live import LeafKubelet, LiveLeaf, LiveRoots, graceful_cluster, pair
from tests.nodeserver.support import OWNER, PODS, SimpleLeaves, put_pod
from twisted_exec.api.kinds.namespaces import NAMESPACES
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import APIError, Forbidden, Invalid
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.syncer.leaf_pods import CONFIG_MAPS
from twisted_exec.nodeserver.syncer.objects import VERSION
from twisted_exec.nodeserver.syncer.service import SWEEP_TICKS, Syncer
from twisted_exec.nodeserver.syncer.status import LOST
from twisted_exec.testing.cluster import MemoryCluster, unreachable

POD = PODS.resource
MANY = 200
WRITES = ("create", "update", "patch", "delete")


class Fragile:
    """A client whose program dies: after a number of writes it sends and answers no request."""

    def __init__(self, client: Any, lives: list[int]) -> None:
        self._client, self._lives = client, lives

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb not in WRITES:
            return lambda *args, **more: (
                getattr(self._client, verb)(*args, **more) if self._lives[0] > 0 else Deferred()
            )

        def write(*args: Any, **more: Any) -> Any:
            if self._lives[0] <= 0:
                return Deferred()
            self._lives[0] -= 1
            done = getattr(self._client, verb)(*args, **more)
            if self._lives[0]:
                return done
            done.addErrback(lambda _: None)  # done or not: the program is dead
            return Deferred()

        return write


class Unchanging:
    """A client of a cluster that refuses to change a Secret, as if its type differed."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._client, verb)

    def update(self, resource: Any, obj: Object, *args: Any, **more: Any) -> Any:
        if resource != SECRETS.resource:
            return self._client.update(resource, obj, *args, **more)
        return fail(Invalid("Secret", obj["metadata"]["name"], [{"message": "immutable"}]))


class SyncerCase(SynchronousTestCase):
    """A root, a leaf, the leaf's kubelet, and a syncer between them."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.told: list[tuple[str, str]] = []
        self.use(*pair())

    def use(self, roots: LiveRoots, leaves: SimpleLeaves, leaf: LiveLeaf) -> None:
        self.roots, self.leaves, self.leaf = roots, leaves, leaf
        self.root, self.there = roots.cluster, leaf.cluster
        self.kubelet = LeafKubelet(self.there)
        self.add_namespace(self.there, "default")

    def add_namespace(self, cluster: MemoryCluster, name: str) -> None:
        cluster.put((NAMESPACES.resource, "", name), {"metadata": {"name": name, "uid": name}})

    def start(self, client: Any = None) -> Syncer:
        syncer = Syncer(
            client or self.root.client(),
            self.leaves,
            self.roots,
            self.clock,
            tell=lambda pod, reason, why: self.told.append((reason, why)),
            now=self.clock.seconds,
        )
        syncer.startService()
        return syncer

    def run_syncer(self) -> Syncer:
        syncer = self.start()
        self.addCleanup(syncer.stopService)
        self.settle()
        return syncer

    def settle(self, seconds: float = 3.0) -> None:
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
            self.kubelet.work()

    def new_pod(self, name: str = "web", namespace: str = "default", **more: Any) -> Object:
        """As a scheduler leaves it."""
        pod = put_pod(self.root, name, "leaf-one", namespace, **more)
        pod["status"] = {"phase": "Pending"}
        return self.root.put((POD, namespace, name), pod)

    def in_root(self, name: str = "web", namespace: str = "default") -> Any:
        return self.root.objects.get((POD, namespace, name))

    def in_leaf(self, name: str = "web", namespace: str = "default") -> Any:
        return self.there.objects.get((POD, namespace, name))

    def change(self, **metadata: Any) -> None:
        pod = self.in_root()
        self.root.put((POD, "default", "web"), {**pod, "metadata": {**pod["metadata"], **metadata}})

    def writes(self, cluster: MemoryCluster) -> list[tuple[str, str, str, str]]:
        return [each for each in cluster.requests if each[0] in WRITES]


class PodTests(SyncerCase):
    """One Pod's life."""

    def test_runs(self) -> None:
        """A Pod on our Node runs in the leaf, and the root says so."""
        pod = self.new_pod()
        self.run_syncer()
        leaf = self.in_leaf()
        self.assertEqual(leaf["metadata"]["annotations"][OWNER], pod["metadata"]["uid"])
        self.assertEqual(leaf["spec"]["nodeName"], "worker-1")
        self.assertEqual(self.in_root()["status"]["phase"], "Running")
        self.assertEqual(self.in_root()["status"]["podIP"], "10.1.0.7")

    def test_later(self) -> None:
        """So does a later Pod, without a sweep."""
        self.run_syncer()
        self.new_pod()
        self.settle()
        self.assertEqual(self.in_root()["status"]["phase"], "Running")

    def test_while_not_all_is_known(self) -> None:
        """Changes that arrive while one side is incomplete are handled once both are complete."""
        self.run_syncer()
        for side in (self.roots, self.leaf):
            with self.subTest(side=side):
                side.synced = False
                name = f"web-{type(side).__name__.lower()}"
                self.new_pod(name)
                self.settle()
                self.assertIsNone(self.in_leaf(name))
                side.synced = True
                self.settle()
                self.assertEqual(self.in_root(name)["status"]["phase"], "Running")

    def test_others(self) -> None:
        """Pods on other Nodes, and DaemonSet Pods, are ignored."""
        put_pod(self.root, "else", "worker-9")
        self.new_pod("agent", "kube-system")
        self.run_syncer()
        self.assertEqual([key for key in self.there.objects if key[0] == POD], [])

    def test_deleted_in_the_root(self) -> None:
        """A deletion goes to the leaf with its grace; the root's Pod goes behind the leaf's."""
        self.new_pod(terminationGracePeriodSeconds=7)
        self.run_syncer()
        self.root.client().delete(POD, "web", "default")
        self.clock.advance(0.1)
        self.assertEqual(self.in_leaf()["metadata"]["deletionGracePeriodSeconds"], 7)
        self.assertIsNotNone(self.in_root())
        self.settle()
        self.assertIsNone(self.in_leaf())
        self.assertIsNone(self.in_root())

    def test_deleted_by_force(self) -> None:
        """A Pod that is taken from the root at once ends in the leaf as well."""
        self.new_pod()
        self.run_syncer()
        self.root.client().delete(POD, "web", "default", grace_seconds=0)
        self.settle()
        self.assertIsNone(self.in_leaf())

    def test_deleted_while_nobody_looked(self) -> None:
        """A Pod deleted in the root while the syncer was down is deleted in the leaf at the next sweep."""
        self.new_pod()
        syncer = self.start()
        self.settle()
        syncer.stopService()
        self.root.client().delete(POD, "web", "default", grace_seconds=0)
        self.run_syncer()
        self.assertIsNone(self.in_leaf())

    def test_deleted_in_the_leaf(self) -> None:
        """A Pod that ran and went from its leaf by itself has failed; it is not made again."""
        self.new_pod()
        self.run_syncer()
        self.there.client().delete(POD, "web", "default", grace_seconds=0)
        self.settle()
        self.assertEqual(self.in_root()["status"]["phase"], "Failed")
        self.assertEqual(self.in_root()["status"]["reason"], LOST)
        self.assertIsNone(self.in_leaf())

    def test_recreated_in_the_root(self) -> None:
        """A Pod of the same name is another one: the old one ends, the new one runs."""
        self.new_pod()
        self.run_syncer()
        old = self.in_leaf()["metadata"]["uid"]
        self.root.client().delete(POD, "web", "default", grace_seconds=0)
        new = self.new_pod()
        self.settle(10)
        leaves = [each for key, each in self.there.objects.items() if key[0] == POD]
        (leaf,) = leaves
        self.assertNotEqual(leaf["metadata"]["uid"], old)
        self.assertEqual(leaf["metadata"]["annotations"][OWNER], new["metadata"]["uid"])
        self.assertEqual(self.in_root()["status"]["phase"], "Running")

    def test_a_name_that_is_taken(self) -> None:
        """A Pod of the leaf's own keeps its name and is not touched; ours gets another."""
        theirs = put_pod(self.there, "web", "worker-1")
        pod = self.new_pod(uid="0123456789")
        self.run_syncer()
        self.assertEqual(self.in_leaf()["metadata"], theirs["metadata"])
        self.assertIsNotNone(self.in_leaf("web-01234567"))
        self.assertEqual(self.in_root()["status"]["phase"], "Running")
        self.root.client().delete(POD, "web", "default", uid=pod["metadata"]["uid"])
        self.settle()
        self.assertIsNone(self.in_leaf("web-01234567"))
        self.assertEqual(self.in_leaf()["metadata"], theirs["metadata"])

    def test_both_names_are_taken(self) -> None:
        """A Pod that takes the second name as well, which contains a UID, does not go unnoticed."""
        put_pod(self.there, "web", "worker-1")
        put_pod(self.there, "web-01234567", "worker-1")
        self.new_pod(uid="0123456789")
        self.run_syncer()
        self.settle(10)
        ((reason, why),) = self.told
        self.assertEqual(reason, "LeafRefused")
        self.assertIn('"web-01234567" already exists', why)
        self.there.remove((POD, "default", "web-01234567"))
        self.settle(100)
        self.assertEqual(self.in_root()["status"]["phase"], "Running")

    def test_namespaces(self) -> None:
        """A namespace that the leaf has not got is made, and left when all Pods are gone."""

        class Strict(LiveLeaf):
            def namespace(self, root: str) -> str:
                return f"from-{root}"

            def names(self, root: Object) -> tuple[str, str]:
                return f"from-{root['metadata']['namespace']}", root["metadata"]["name"]

        self.use(*pair(make=Strict))
        _needs_namespaces(self.leaf)
        self.new_pod(namespace="team")
        self.run_syncer()
        self.assertIsNotNone(self.in_leaf(namespace="from-team"))
        self.assertIn((NAMESPACES.resource, "", "from-team"), self.there.objects)
        self.root.client().delete(POD, "web", "team")
        self.settle()
        self.assertIsNone(self.in_root(namespace="team"))
        self.assertIn((NAMESPACES.resource, "", "from-team"), self.there.objects)

    def test_changes(self) -> None:
        """Labels and images follow, and taken labels are taken away."""
        self.new_pod(labels={"app": "web"})
        self.run_syncer()
        pod = self.in_root()
        pod["metadata"]["labels"] = {"tier": "1"}
        pod["spec"]["containers"][0]["image"] = "image:2"
        self.root.put((POD, "default", "web"), pod)
        self.settle()
        leaf = self.in_leaf()
        self.assertEqual(leaf["spec"]["containers"][0]["image"], "image:2")
        self.assertEqual(leaf["metadata"]["labels"].get("tier"), "1")
        self.assertNotIn("app", leaf["metadata"]["labels"])

    def test_debug(self) -> None:
        """``kubectl debug`` works: its container comes to the leaf, and its status back."""
        self.new_pod()
        self.run_syncer()
        pod = self.in_root()
        pod["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "tools"}]
        self.root.put((POD, "default", "web"), pod)
        self.settle()
        leaf = self.in_leaf()
        self.assertEqual(leaf["spec"]["ephemeralContainers"][0]["name"], "debugger")
        statuses = [{"name": "debugger", "state": {"running": {}}}]
        leaf["status"]["ephemeralContainerStatuses"] = statuses
        self.there.put((POD, "default", "web"), leaf)
        self.settle()
        self.assertEqual(self.in_root()["status"]["ephemeralContainerStatuses"], statuses)

    def test_a_node_that_is_ours_no_more(self) -> None:
        """A Node that is taken from the registry takes no Pod from the leaf."""
        self.new_pod()
        self.run_syncer()
        self.roots.nodes = set()
        self.leaf.nodes = ()
        self.leaves.tell()
        self.settle()
        self.assertIsNotNone(self.in_leaf())

    def test_a_refusal(self) -> None:
        """Without permission to create Pods in the leaf users get an Event, and the syncer retries."""
        self.there.problem = Forbidden("pods is forbidden: quota exceeded")
        self.new_pod()
        self.run_syncer()
        self.settle(10)
        self.assertEqual(len(self.told), 1)
        self.assertIn("quota exceeded", self.told[0][1])
        self.there.problem = None
        self.settle(100)
        self.assertEqual(self.in_root()["status"]["phase"], "Running")


def _needs_namespaces(leaf: Any) -> None:
    """As a real API server: nothing is made in a namespace that is not there."""
    create = leaf.client._create

    def checked(resource: Any, obj: Object, namespace: str) -> Object:
        if namespace:
            leaf.cluster.find(NAMESPACES.resource, "", namespace)
        created: Object = create(resource, obj, namespace)
        return created

    leaf.client._create = checked


class ObjectTests(SyncerCase):
    """ConfigMaps and Secrets."""

    def put(self, kind: Any, name: str, uid: str = "", **content: Any) -> None:
        metadata = {"namespace": "default", "name": name, "uid": uid or f"uid-{name}"}
        self.root.put((kind, "default", name), {"metadata": metadata, **content})

    def of_leaf(self, kind: Any, name: str) -> Any:
        return self.there.objects.get((kind, "default", name))

    def a_user(self, name: str = "web") -> Object:
        return self.new_pod(
            name,
            volumes=[{"name": "c", "configMap": {"name": "settings"}}],
            imagePullSecrets=[{"name": "registry"}],
        )

    def test_brought(self) -> None:
        """The objects that a Pod names are copied before the Pod is created, and no others."""
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.put(SECRETS.resource, "registry", data={".x": "eA=="}, type="example.com/login")
        self.put(SECRETS.resource, "other", data={"b": "eQ=="})
        self.a_user()
        self.run_syncer()
        self.assertEqual(self.of_leaf(CONFIG_MAPS, "settings")["data"], {"a": "1"})
        self.assertEqual(self.of_leaf(SECRETS.resource, "registry")["type"], "example.com/login")
        self.assertIsNone(self.of_leaf(SECRETS.resource, "other"))
        created = [each[1] for each in self.writes(self.there) if each[0] == "create"]
        self.assertEqual(created, ["configmaps", "secrets", "pods"])

    def test_updated(self) -> None:
        """A change of the original reaches the copy, also of one that came late."""
        self.a_user()
        self.run_syncer()
        self.assertIsNone(self.of_leaf(CONFIG_MAPS, "settings"))
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.settle()
        self.assertEqual(self.of_leaf(CONFIG_MAPS, "settings")["data"], {"a": "1"})
        self.put(CONFIG_MAPS, "settings", data={"a": "2"})
        self.settle()
        self.assertEqual(self.of_leaf(CONFIG_MAPS, "settings")["data"], {"a": "2"})

    def test_removed(self) -> None:
        """A copy goes with the last Pod that names it, not before."""
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.a_user()
        self.a_user("second")
        self.run_syncer()
        self.root.client().delete(POD, "web", "default")
        self.settle()
        self.assertIsNone(self.in_root())
        self.assertIsNotNone(self.of_leaf(CONFIG_MAPS, "settings"))
        self.root.client().delete(POD, "second", "default")
        self.settle()
        self.assertIsNone(self.of_leaf(CONFIG_MAPS, "settings"))

    def test_removed_while_nobody_looked(self) -> None:
        """Copies that no Pod names at the start are deleted."""
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.a_user()
        syncer = self.start()
        self.settle()
        syncer.stopService()
        self.root.client().delete(POD, "web", "default", grace_seconds=0)
        self.run_syncer()
        self.settle()
        self.assertIsNone(self.of_leaf(CONFIG_MAPS, "settings"))

    def test_foreign(self) -> None:
        """A foreign object of that name stays, and serves the Pod."""
        theirs = {"metadata": {"namespace": "default", "name": "settings", "uid": "x"}, "data": {}}
        self.there.put((CONFIG_MAPS, "default", "settings"), theirs)
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.a_user()
        self.run_syncer()
        self.put(CONFIG_MAPS, "settings", data={"a": "2"})
        self.settle()
        self.assertEqual(self.of_leaf(CONFIG_MAPS, "settings")["data"], {})
        self.assertEqual(self.in_root()["status"]["phase"], "Running")
        self.root.client().delete(POD, "web", "default")
        self.settle()
        self.assertIsNotNone(self.of_leaf(CONFIG_MAPS, "settings"))

    def test_another_namespace(self) -> None:
        """Copies in a namespace of the leaf are deleted when another namespace becomes the counterpart."""
        self.put(SECRETS.resource, "registry", data={"x": "eA=="})
        self.a_user()
        self.run_syncer()
        self.assertIsNotNone(self.of_leaf(SECRETS.resource, "registry"))
        self.leaf.namespace = lambda root: f"our-{root}"  # type: ignore[method-assign]
        self.leaves.tell()
        self.settle()
        self.assertIsNone(self.of_leaf(SECRETS.resource, "registry"))

    def test_two_of_one_cluster(self) -> None:
        """Leaves that are one cluster take nothing away from each other."""
        nodes = [LeafNode(f"leaf-{name}", name) for name in ("one", "two")]
        cluster, roots = graceful_cluster(), LiveRoots(graceful_cluster(), ["leaf-one", "leaf-two"])
        first, two = (
            LiveLeaf(node.leaf, cluster, self.leaf.told, [node], roots=roots) for node in nodes
        )
        self.use(roots, SimpleLeaves(first, two), first)
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.put(CONFIG_MAPS, "others", data={"b": "1"})
        self.a_user()
        named = [{"name": "c", "configMap": {"name": "others"}}]
        put_pod(self.root, "another", "leaf-two", volumes=named)
        self.run_syncer()
        cluster.requests.clear()
        self.settle(SWEEP_TICKS)
        self.assertEqual(self.writes(cluster), [])
        self.root.client().delete(POD, "web", "default")
        self.settle()
        self.assertIsNone(self.of_leaf(CONFIG_MAPS, "settings"))
        self.assertIsNotNone(self.of_leaf(CONFIG_MAPS, "others"))
        self.leaves.leaves.remove(two)
        self.leaves.tell()
        roots.nodes.remove("leaf-two")
        self.put(CONFIG_MAPS, "others", data={"b": "2"})
        self.a_user("third")
        self.settle(SWEEP_TICKS)
        self.assertIsNone(self.of_leaf(CONFIG_MAPS, "others"))

    def test_a_token(self) -> None:
        """A token Secret is copied as an opaque one, which the leaf does not fill."""
        kind = "kubernetes.io/service-account-token"
        self.put(SECRETS.resource, "registry", data={"token": "eA=="}, type=kind)
        self.a_user()
        self.run_syncer()
        self.assertEqual(self.of_leaf(SECRETS.resource, "registry")["type"], "Opaque")

    def test_another_type(self) -> None:
        """A copy that cannot be changed to match its original is replaced."""
        self.leaf.client = Unchanging(self.leaf.client)  # type: ignore[assignment]
        self.put(SECRETS.resource, "registry", data={"a": "eA=="}, type="example.com/login")
        self.a_user()
        self.run_syncer()
        before = self.of_leaf(SECRETS.resource, "registry")["metadata"]["uid"]
        self.put(SECRETS.resource, "registry", data={"a": "eQ=="}, type="Opaque")
        self.settle()
        copy = self.of_leaf(SECRETS.resource, "registry")
        self.assertEqual((copy["type"], copy["data"]), ("Opaque", {"a": "eQ=="}))
        self.assertNotEqual(copy["metadata"]["uid"], before)
        self.assertEqual(self.told, [])

    def test_another_of_the_name(self) -> None:
        """An original that was made anew is another one, whatever its version."""
        self.put(CONFIG_MAPS, "settings", data={"a": "1"})
        self.a_user()
        self.run_syncer()
        before = self.of_leaf(CONFIG_MAPS, "settings")["metadata"]["annotations"][VERSION]
        self.root.remove((CONFIG_MAPS, "default", "settings"))
        self.put(CONFIG_MAPS, "settings", "again", data={"a": "3"})
        self.settle()
        copy = self.of_leaf(CONFIG_MAPS, "settings")
        self.assertEqual(copy["data"], {"a": "3"})
        self.assertNotEqual(copy["metadata"]["annotations"][VERSION], before)


class KilledTests(SyncerCase):
    """A syncer that ends between any two steps."""

    def story(self, client: Callable[[], Any], act: Callable[[int], None]) -> int:
        """Run with a syncer that dies after each number of writes in turn; how many there were."""
        for lives in range(1, 100):
            self.use(*pair())
            self.prepare()
            left = [lives]
            self.leaf.client = Fragile(self.there.client(), left)  # type: ignore[assignment]
            syncer = self.start(Fragile(self.root.client(), left))
            self.settle(4)
            act(0)
            self.settle(4)
            died = left[0] <= 0
            syncer.stopService()
            self.leaf.client = self.there.client()
            successor = self.start()
            self.settle(8)
            act(1)
            self.settle(8)
            self.check(lives)
            successor.stopService()
            if not died:
                return lives
        raise AssertionError("it writes without end")

    def prepare(self) -> None:
        metadata = {"namespace": "default", "name": "settings", "uid": "s"}
        self.root.put((CONFIG_MAPS, "default", "settings"), {"metadata": metadata, "data": {}})
        put_pod(self.there, "web", "worker-1")  # the name is taken
        self.new_pod(uid="0123456789", volumes=[{"name": "c", "configMap": {"name": "settings"}}])
        self.new_pod("plain")

    def check(self, lives: int) -> None:
        raise NotImplementedError


class KilledWhileMakingTests(KilledTests):
    """... while Pods are made and told."""

    def test_every_step(self) -> None:
        """Its successor leaves all as it should be: nothing twice, nothing missing."""
        self.assertGreater(self.story(self.root.client, lambda _: None), 4)

    def check(self, lives: int) -> None:
        names = sorted(key[2] for key in self.there.objects if key[0] == POD)
        self.assertEqual(names, ["plain", "web", "web-01234567"], lives)
        self.assertIn((CONFIG_MAPS, "default", "settings"), self.there.objects)
        for name in ("web", "plain"):
            self.assertEqual(self.in_root(name)["status"]["phase"], "Running", lives)


class KilledWhileEndingTests(KilledTests):
    """... while Pods end."""

    def test_every_step(self) -> None:
        """Its successor ends what is to end, and nothing else."""

        def act(_: int) -> None:
            for name in ("web", "plain"):
                # The Pod was deleted meanwhile.
                self.root.client().delete(POD, name, "default").addErrback(lambda _: None)

        self.assertGreater(self.story(self.root.client, act), 8)

    def check(self, lives: int) -> None:
        left = [key[2] for key in self.there.objects if key[0] in (POD, CONFIG_MAPS)]
        self.assertEqual(left, ["web"], lives)
        self.assertEqual([key for key in self.root.objects if key[0] == POD], [], lives)


class ManyTests(SyncerCase):
    """Costs, and fairness between Pods."""

    def test_steady_state(self) -> None:
        """Any number of Pods that are as they should be cost no request, in either cluster."""
        for number in range(MANY):
            self.new_pod(f"web-{number}")
        syncer = self.run_syncer()
        self.assertEqual(
            {pod["status"]["phase"] for key, pod in self.root.objects.items() if key[0] == POD},
            {"Running"},
        )
        for cluster in (self.root, self.there):
            cluster.requests.clear()
        for _ in range(SWEEP_TICKS + 2):
            self.clock.advance(1)
        self.assertEqual(self.root.requests + self.there.requests, [])
        self.assertEqual([len(sync.queue) for sync in syncer.syncs], [0])

    def test_a_successor(self) -> None:
        """A successor that finds all Pods in their desired state writes nothing."""
        for number in range(MANY):
            self.new_pod(f"web-{number}")
        syncer = self.start()
        self.settle()
        syncer.stopService()
        for cluster in (self.root, self.there):
            cluster.requests.clear()
        self.run_syncer()
        self.assertEqual(self.writes(self.root) + self.writes(self.there), [])

    def test_a_dead_leaf(self) -> None:
        """One leaf that does not answer keeps no other waiting."""
        roots = LiveRoots(graceful_cluster(), ["leaf-one", "leaf-two"])
        dead = LiveLeaf(
            "two", graceful_cluster(), self.leaf.told, [LeafNode("leaf-two", "two")], roots=roots
        )
        good = LiveLeaf("one", graceful_cluster(), self.leaf.told, self.leaf.nodes, roots=roots)
        self.use(roots, SimpleLeaves(dead, good), good)
        dead.client = Fragile(dead.cluster.client(), [0])  # type: ignore[assignment]
        for number in range(50):
            put_pod(self.root, f"dead-{number}", "leaf-two")
        self.run_syncer()
        self.new_pod()
        self.settle()
        self.assertEqual(self.in_root()["status"]["phase"], "Running")

    def test_a_leaf_that_is_down(self) -> None:
        """An unreachable leaf gets fewer and fewer requests, and then work goes on."""
        self.new_pod()
        syncer = self.start()
        self.addCleanup(syncer.stopService)
        self.there.problem = unreachable()
        self.settle(600)
        request_count = len([each for each in self.there.requests if each[1] == "pods"])
        self.assertLess(request_count, 40)
        self.there.problem = None
        self.settle(100)
        self.assertEqual(self.in_root()["status"]["phase"], "Running")

    def test_the_end_of_a_sweep(self) -> None:
        """A syncer that is stopped in the midst of looking around leaves nothing behind either."""
        for number in range(MANY):
            self.new_pod(f"web-{number}")
        syncer = self.start()
        syncer.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_the_end(self) -> None:
        """A syncer that is stopped leaves no timer and no request behind."""
        self.new_pod()
        self.there.problem = unreachable()
        syncer = self.start()
        self.settle()
        with contextlib.suppress(APIError):
            self.successResultOf(syncer.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

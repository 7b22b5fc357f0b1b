"""Tests for :mod:`twisted_exec.nodeserver.root_pods`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.nodeserver.support import PODS, SimpleLeaf, SimpleLeaves, memory_cluster, put_pod
from twisted_exec.api.status import BadGateway, Expired, GatewayTimeout, NotFound, from_code
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.interfaces import IRootPods, LeafNode
from twisted_exec.nodeserver.root_pods import (
    ASK_SECONDS,
    MAX_NODE_WATCHES,
    SETTLE_SECONDS,
    RootPods,
)
from twisted_exec.testing.cluster import unreachable

MANY = [f"leaf-{number}" for number in range(MAX_NODE_WATCHES + 1)]


class RootPodsTests(SynchronousTestCase):
    """Tests for :class:`RootPods`."""

    def setUp(self) -> None:
        self.clock, self.cluster = Clock(), memory_cluster()
        config = ClientConfig("https://leaf.example")
        self.leaf = SimpleLeaf("one", memory_cluster(), config)
        self.leaves = SimpleLeaves(self.leaf)
        self.pods = RootPods(self.cluster.client(), self.clock)
        self.changes: list[tuple[str, str]] = []
        self.pods.follow(self.changed)
        self.addCleanup(lambda: self.successResultOf(self.pods.stop()))

    def changed(self, before: Object | None, after: Object | None) -> None:
        def told(pod: Object | None) -> str:
            return "" if pod is None else str(pod["metadata"]["name"])

        self.changes.append((told(before), told(after)))

    def nodes(self, *names: str) -> None:
        """These Nodes are ours from now on."""
        self.leaf.nodes = [LeafNode(name, "one") for name in names]
        self.leaves.tell()
        self.clock.advance(SETTLE_SECONDS)

    def begin(self, *names: str) -> None:
        self.nodes(*names)
        self.pods.start(self.leaves)

    def names(self, *nodes: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods.on(nodes))

    def test_doors(self) -> None:
        """They are the root's Pods."""
        verifyObject(IRootPods, self.pods)

    def test_ours(self) -> None:
        """Those on our Nodes are known, by name, by UID and by Node; no others."""
        web = put_pod(self.cluster, "web", "leaf-one")
        put_pod(self.cluster, "db", "leaf-two")
        put_pod(self.cluster, "other", "worker")
        self.begin("leaf-one", "leaf-two")
        self.assertTrue(self.pods.synced)
        self.assertEqual(self.names(), ["db", "web"])
        self.assertEqual(self.names("leaf-one"), ["web"])
        self.assertEqual(self.pods.by_uid(web["metadata"]["uid"]), self.pods.seen("default", "web"))
        self.assertIsNone(self.pods.seen("default", "other"))
        self.assertIsNone(self.pods.by_uid("nobody"))

    def test_a_new_node(self) -> None:
        """Until the Pods on a Node that has become ours were read, not all are known."""
        self.begin("leaf-one")
        self.leaf.nodes = [LeafNode(name, "one") for name in ("leaf-one", "leaf-two")]
        self.leaves.tell()
        self.assertFalse(self.pods.synced)
        self.clock.advance(SETTLE_SECONDS)
        self.assertTrue(self.pods.synced)
        self.leaves.tell()  # of something else
        self.assertTrue(self.pods.synced)

    def test_without_a_request(self) -> None:
        """A known Pod is returned without a request; a Pod of another Node is requested."""
        put_pod(self.cluster, "web", "leaf-one")
        put_pod(self.cluster, "other", "worker")
        self.begin("leaf-one")
        before = len(self.cluster.requests)
        pod = self.successResultOf(self.pods.get("default", "web"))
        self.assertEqual(pod["spec"]["nodeName"], "leaf-one")
        self.assertEqual(len(self.cluster.requests), before)
        self.failureResultOf(self.pods.get("default", "missing"), NotFound)
        other = self.successResultOf(self.pods.get("default", "other"))
        self.assertEqual(other["spec"]["nodeName"], "worker")
        self.assertEqual(len(self.cluster.requests), before + 2)
        self.assertIsNone(self.pods.seen("default", "other"))

    def test_too_new(self) -> None:
        """A Pod, or its successor of the same name, that the watch has not delivered yet is requested."""
        self.begin("leaf-one")
        self.cluster.end_watches(unreachable())
        web = put_pod(self.cluster, "web", "leaf-one")
        pod = self.successResultOf(self.pods.get("default", "web"))
        self.assertEqual(pod["metadata"]["uid"], web["metadata"]["uid"])
        self.clock.advance(1)
        again = put_pod(self.cluster, "web", "leaf-one")
        self.cluster.end_watches(unreachable())
        newest = put_pod(self.cluster, "web", "leaf-one")
        uid = newest["metadata"]["uid"]
        self.assertEqual(
            self.successResultOf(self.pods.get("default", "web", uid))["metadata"]["uid"], uid
        )
        self.failureResultOf(
            self.pods.get("default", "web", again["metadata"]["uid"] + "x"), NotFound
        )

    def test_changes(self) -> None:
        """Followers get each change; a successor of the same name is two changes."""
        self.begin("leaf-one")
        put_pod(self.cluster, "web", "leaf-one", uid="1")
        put_pod(self.cluster, "web", "leaf-one", uid="1", labels={"a": "b"})
        put_pod(self.cluster, "web", "leaf-one", uid="2")
        self.cluster.remove((PODS.resource, "default", "web"))
        self.assertEqual(
            self.changes, [("", "web"), ("web", "web"), ("web", ""), ("", "web"), ("web", "")]
        )
        self.assertIsNone(self.pods.by_uid("2"))
        self.assertEqual(self.names("leaf-one"), [])

    def test_scheduled_later(self) -> None:
        """A Pod that comes to one of our Nodes is ours from then on, however Nodes are followed."""
        for nodes in (["leaf-0"], MANY):
            with self.subTest(nodes=len(nodes)):
                self.begin(*nodes)
                put_pod(self.cluster, "web", uid="1")
                self.assertEqual(self.names(), [])
                put_pod(self.cluster, "web", "leaf-0", uid="1")
                self.assertEqual(self.names("leaf-0"), ["web"])
                self.successResultOf(self.pods.stop())
                self.cluster.remove((PODS.resource, "default", "web"))
                self.pods = RootPods(self.cluster.client(), self.clock)

    def test_few(self) -> None:
        """With few Nodes each has a watch: Pods of other Nodes are not transferred."""
        self.begin("leaf-one", "leaf-two")
        self.assertEqual(self.cluster.watches, 2)
        self.nodes("leaf-two", "leaf-three")
        self.assertEqual(self.cluster.watches, 2)

    def test_many(self) -> None:
        """Many are followed by one watch; of others' Pods nearly nothing is kept."""
        put_pod(self.cluster, "web", MANY[0])
        put_pod(self.cluster, "other", "worker", volumes=["large"])
        self.begin(*MANY)
        self.assertEqual(self.cluster.watches, 1)
        self.assertEqual(self.names(), ["web"])
        (source,) = self.pods._sources.values()  # It shows others' Pods to nobody.
        trimmed_pod = source.get("other", "default")
        assert trimmed_pod is not None
        self.assertEqual(set(trimmed_pod["metadata"]), {"namespace", "name", "uid"})
        self.assertEqual(trimmed_pod["spec"], {"nodeName": "worker"})

    def test_another_node(self) -> None:
        """The Pods of a Node that becomes ours are read; those of one that goes are gone."""
        for name in ("one", "two"):
            put_pod(self.cluster, name, name)
        self.begin("one")
        self.nodes("one", "two")
        self.assertEqual(self.names(), ["one", "two"])
        self.nodes("two")
        self.assertEqual(self.names(), ["two"])
        self.assertEqual(self.changes[-1], ("one", ""))

    def test_another_node_of_many(self) -> None:
        """So it is with many, and nothing flickers meanwhile."""
        put_pod(self.cluster, "web", MANY[0])
        put_pod(self.cluster, "new", "new")
        self.begin(*MANY)
        self.nodes(*MANY, "new")
        self.assertEqual(self.names(), ["new", "web"])
        self.assertEqual(self.changes, [("", "web"), ("", "new")])
        self.assertEqual(self.cluster.watches, 1)

    def test_read_anew_kept(self) -> None:
        """A Pod that did not change is the same object as before, however often it is read."""
        put_pod(self.cluster, "web", MANY[0])
        self.begin(*MANY)
        before = self.pods.seen("default", "web")
        self.nodes(*MANY, "new")
        self.assertIs(self.pods.seen("default", "web"), before)
        (source,) = self.pods._sources.values()  # It shows others' Pods to nobody.
        self.assertIs(source.get("web", "default"), before)

    def test_from_few_to_many_and_back(self) -> None:
        """Going from one way to the other, nothing is lost and nothing told twice."""
        put_pod(self.cluster, "web", MANY[0])
        self.begin(MANY[0])
        self.nodes(*MANY)
        self.assertEqual(self.cluster.watches, 1)
        put_pod(self.cluster, "db", MANY[1])
        self.nodes(*MANY[:2])
        self.assertEqual(self.cluster.watches, 2)
        self.assertEqual(self.names(), ["db", "web"])
        self.assertEqual(self.changes, [("", "web"), ("", "db")])

    def test_gone_meanwhile(self) -> None:
        """A Pod deleted without a watch is gone after the next complete list."""
        for name in ("web", "db"):
            put_pod(self.cluster, name, MANY[0])
        self.begin(MANY[0])
        self.cluster.problem = unreachable()
        self.cluster.end_watches(unreachable())
        self.nodes(*MANY)
        self.cluster.remove((PODS.resource, "default", "db"))
        self.assertEqual(self.names(), ["db", "web"])
        self.assertFalse(self.pods.synced)
        self.assertIn("connection refused", self.pods.problem)
        self.cluster.problem = None
        self.clock.advance(1)
        self.assertEqual(self.names(), ["web"])
        self.assertTrue(self.pods.synced)

    def test_read_again(self) -> None:
        """An expired watch starts over, and changes are reported."""
        self.begin("leaf-one")
        put_pod(self.cluster, "web", "leaf-one")
        self.cluster.compact()
        self.clock.advance(60)
        self.cluster.end_watches(Expired("too old resource version"))
        self.cluster.remove((PODS.resource, "default", "web"))
        self.clock.advance(1)
        self.assertEqual(self.names(), [])

    def test_not_synced_before_the_leaves(self) -> None:
        """While leaves are unknown the Pods do not count as complete."""
        self.leaves.synced = False
        self.begin("leaf-one")
        self.assertFalse(self.pods.synced)
        self.leaves.synced = True
        self.nodes("leaf-one")
        self.assertTrue(self.pods.synced)

    def test_root_refuses(self) -> None:
        """A root that does not let us, is down, or is silent, is not taken for a missing Pod."""
        self.begin("leaf-one")
        self.cluster.problem = from_code(404, "as a real API server tells it")
        self.failureResultOf(self.pods.get("default", "web"), NotFound)
        self.cluster.problem = from_code(403, "pods is forbidden")
        message = self.failureResultOf(self.pods.get("default", "web"), BadGateway).value.message
        self.assertIn("does not let this node server read pods", message)
        self.cluster.problem = unreachable()
        self.failureResultOf(self.pods.get("default", "web"), BadGateway)
        self.pods._client.get = lambda *_: Deferred()  # type: ignore[method-assign]
        asking = self.pods.get("default", "web")
        self.clock.advance(ASK_SECONDS)
        self.failureResultOf(asking, GatewayTimeout)

    def test_flapping_nodes(self) -> None:
        """However often Nodes come and go, the root's Pods are read once when that is over."""
        self.begin(*MANY)
        before = self.cluster.requests.count(("list", "pods", "", ""))
        for number in range(50):
            self.leaf.nodes = [LeafNode(f"n{number}-{each}", "one") for each in MANY]
            self.leaves.tell()
        self.clock.advance(SETTLE_SECONDS)
        self.assertEqual(self.cluster.requests.count(("list", "pods", "", "")), before + 1)
        self.assertEqual(self.cluster.watches, 1)

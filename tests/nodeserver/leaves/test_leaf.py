"""Tests for :mod:`twisted_exec.nodeserver.leaves.leaf`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.nodeserver.support import (
    PODS,
    Network,
    SimpleRootPods,
    kubeconfig,
    memory_cluster,
    put_leaf_pod,
    put_pod,
    put_secret,
)
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
    from_code,
)
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver.interfaces import ILeaf, LeafNode, LeafPod
from twisted_exec.nodeserver.leaves.credentials import credentials
from twisted_exec.nodeserver.leaves.leaf import ASK_SECONDS, PATIENCE_SECONDS, Leaf, LeafContext
from twisted_exec.nodeserver.leaves.spec import KubeconfigData, KubeconfigSecret, LeafSpec
from twisted_exec.nodeserver.ownership import SAME_NAME, Names
from twisted_exec.testing.cluster import unreachable

OTHER = "https://other.example:6443"
KOSMOS = {"kosmos-io/pod": "true"}


def data(**more: Any) -> KubeconfigData:
    return KubeconfigData(kubeconfig(**more).encode(), "cluster one")


class LeafTestCase(SynchronousTestCase):
    """A root with a Node, and its leaf."""

    def setUp(self) -> None:
        self.clock, self.network = Clock(), Network()
        self.cluster = self.network.add()
        self.root = memory_cluster()
        self.roots = SimpleRootPods(self.root, ["leaf-one"])
        self.spec = LeafSpec("one", "cluster one", data(), (LeafNode("leaf-one", "one"),))

    def make(self, *, started: bool = True, **more: Any) -> Leaf:
        around = LeafContext(self.root.client(), self.roots, self.clock, self.network.make, "root")
        leaf = Leaf(replace(self.spec, **more), around)
        if started:
            leaf.start()
            self.addCleanup(lambda: self.successResultOf(leaf.stop()))
        return leaf

    def pod(self, name: str = "web", **more: Any) -> Object:
        return put_pod(self.root, name, "leaf-one", **more)

    def found(self, leaf: Leaf, root: Object) -> LeafPod:
        return self.successResultOf(leaf.pod(root))

    def refused(self, leaf: Leaf, root: Object, kind: type[APIError]) -> str:
        message: str = self.failureResultOf(leaf.pod(root), kind).value.message
        return message


class LeafTests(LeafTestCase):
    """Tests for :class:`Leaf`."""

    def test_doors(self) -> None:
        """It is a leaf, and its client is a client."""
        leaf = self.make()
        verifyObject(ILeaf, leaf)
        verifyObject(IKubeClient, leaf.client)

    def test_followed(self) -> None:
        """A Pod of ours is found without a request, in whatever state it is by now."""
        root = self.pod()
        leaf = self.make()
        self.assertTrue(leaf.synced)
        put_leaf_pod(self.cluster, root)
        before = len(self.cluster.requests)
        leaf_pod = self.found(leaf, root)
        self.assertEqual((leaf_pod.namespace, leaf_pod.name), ("default", "web"))
        assert leaf_pod.pod is not None
        self.assertEqual(leaf_pod.pod["status"]["phase"], "Running")
        self.assertEqual(len(self.cluster.requests), before)

    def test_too_new(self) -> None:
        """A Pod that the copy does not have yet is requested."""
        root = self.pod()
        put_leaf_pod(self.cluster, root)
        leaf_pod = self.found(self.make(started=False), root)
        assert leaf_pod.pod is not None
        self.assertNotIn("volumes", leaf_pod.pod["spec"])

    def test_other_name(self) -> None:
        """Whatever ours is called in the leaf, it is found; of two, the one with the root's name."""
        root = self.pod()
        put_leaf_pod(self.cluster, root, name="web-7")
        leaf = self.make()
        self.assertEqual(self.found(leaf, root).name, "web-7")
        put_leaf_pod(self.cluster, root)
        self.assertEqual(self.found(leaf, root).name, "web")
        self.cluster.remove((PODS.resource, "default", "web"))
        self.assertEqual(self.found(leaf, root).name, "web-7")

    def test_namespaces(self) -> None:
        """Namespaces are translated."""
        root = self.pod()
        put_leaf_pod(self.cluster, root, namespace="eu")
        leaf = self.make(names=Names({"default": "eu"}))
        self.assertEqual(self.found(leaf, root).namespace, "eu")
        self.assertEqual(leaf.names(root), ("eu", "web"))

    def test_not_ours(self) -> None:
        """A Pod of that name that is not ours is none, unless the policy is Kosmos's."""
        root = self.pod()
        put_pod(self.cluster, "web")
        self.assertEqual(
            self.refused(self.make(), root, NotFound),
            'pod "default/web" does not exist: leaf cluster "one" has a pod of that name, but it was '
            "not made for this one",
        )
        self.assertEqual(self.found(self.make(policy=SAME_NAME), root).name, "web")

    def test_kosmos(self) -> None:
        """A Pod created by Kosmos is watched and found by its name."""
        root = self.pod()
        put_pod(self.cluster, "web", labels=KOSMOS)
        leaf = self.make(kosmos=True)
        before = len(self.cluster.requests)
        self.assertEqual(self.found(leaf, root).name, "web")
        self.assertEqual(len(self.cluster.requests), before)
        self.assertEqual([each.name for each in leaf.pods()], ["web"])

    def test_no_such_pod(self) -> None:
        """A Pod that was not made in the leaf yet is not found there."""
        leaf = self.make()
        message = self.refused(leaf, self.pod(), NotFound)
        self.assertIn('leaf cluster "one" has no such pod', message)
        self.cluster.problem = from_code(404, "as a real API server tells it")
        self.assertEqual(self.refused(leaf, self.pod(), NotFound), message)

    def test_all(self) -> None:
        """Our Pods are listed with the root's; orphans separately."""
        roots = [self.pod(name) for name in ("a", "b", "c")]
        leaf = self.make()
        for root in roots:
            put_leaf_pod(self.cluster, root)
        put_pod(self.cluster, "theirs")
        self.root.remove((PODS.resource, "default", "b"))
        self.assertEqual(sorted(each.name for each in leaf.pods()), ["a", "c"])
        self.assertEqual([each["metadata"]["name"] for each in leaf.strays()], ["b"])

    def test_no_node(self) -> None:
        """A leaf that no Node stands for has no Pods, whatever their names are."""
        self.pod()
        put_pod(self.cluster, "web", labels=KOSMOS)
        self.assertEqual(list(self.make(nodes=(), kosmos=True).pods()), [])

    def test_no_strays_while_unread(self) -> None:
        """While the root's Pods or the leaf's are not completely known, no orphan is reported."""
        put_leaf_pod(self.cluster, self.pod())
        self.root.remove((PODS.resource, "default", "web"))
        self.assertEqual(list(self.make(started=False).strays()), [])
        leaf = self.make()
        self.assertEqual(len(list(leaf.strays())), 1)
        self.roots.synced = False
        self.assertEqual(list(leaf.strays()), [])

    def test_followers(self) -> None:
        """Followers get each change by the UID of the root's Pod, also of Kosmos's Pods."""
        leaf = self.make(kosmos=True)
        told: list[str] = []
        end = leaf.follow(told.append)
        first, two = self.pod("one"), self.pod("two")
        put_leaf_pod(self.cluster, first)
        put_pod(self.cluster, "two", labels=KOSMOS)
        put_pod(self.cluster, "theirs", labels=KOSMOS)
        uids = [each["metadata"]["uid"] for each in (first, two)]
        self.assertEqual(told, uids)
        self.cluster.remove((PODS.resource, "default", "one"))
        self.assertEqual(told, [*uids, uids[0]])
        end()
        self.cluster.remove((PODS.resource, "default", "two"))
        self.assertEqual(len(told), 3)

    def test_both_marks(self) -> None:
        """A Pod with our mark and Kosmos's is known once, until it has neither."""
        root = self.pod()
        leaf_pod = put_leaf_pod(self.cluster, root)
        leaf = self.make(kosmos=True)
        key = (PODS.resource, "default", "web")
        labels = dict(leaf_pod["metadata"]["labels"])
        for now in (labels | KOSMOS, labels, KOSMOS, {}):
            stored = self.cluster.objects[key]
            metadata = {**stored["metadata"], "labels": now}
            self.cluster.put(key, {**stored, "metadata": metadata})
            self.assertEqual(len(list(leaf.pods())), 1 if now else 0, now)


class ReachedTests(LeafTestCase):
    """Reachability of a leaf, and the errors without it."""

    def test_reached(self) -> None:
        """A leaf that is followed has no problem."""
        leaf = self.make(started=False)
        self.assertEqual(leaf.problem, "its Pods were not read yet")
        self.assertEqual(self.make().problem, "")

    def test_down(self) -> None:
        """An unreachable leaf has a problem, its Pods are still requested, and it recovers."""
        root = self.pod()
        put_leaf_pod(self.cluster, root)
        leaf = self.make()
        self.cluster.problem = unreachable()
        self.cluster.end_watches(unreachable())
        self.assertIn("connection refused", leaf.problem)
        message = self.refused(leaf, root, BadGateway)
        self.assertTrue(message.startswith('leaf cluster "one": cannot reach'), message)
        self.cluster.problem = None
        self.assertEqual(self.found(leaf, root).name, "web")
        self.clock.advance(1)
        self.clock.advance(2)
        self.assertEqual(leaf.problem, "")

    def test_silent(self) -> None:
        """A leaf that does not answer is waited for as long as a user waits."""
        leaf = self.make(started=False)
        leaf.client.get = lambda *_, **__: Deferred()  # type: ignore[method-assign]
        asking = leaf.pod(self.pod())
        self.assertNoResult(asking)
        self.clock.advance(ASK_SECONDS)
        message = self.failureResultOf(asking, GatewayTimeout).value.message
        self.assertIn('leaf cluster "one" did not answer for pod "default/web"', message)

    def test_credentials_expired(self) -> None:
        """A leaf that does not know us is our problem: whose credentials, and what to do."""
        self.cluster.problem = from_code(401, "Unauthorized")
        leaf = self.make()
        cases = (
            'leaf cluster "one" rejects the credentials (cluster one (context "it")): '
            "Unauthorized; replace the credentials there"
        )
        self.assertEqual(leaf.problem, cases)
        self.assertEqual(
            self.refused(leaf, self.pod(), BadGateway),
            'leaf cluster "one" refuses this node server; the node server\'s log says why',
        )

    def test_not_let(self) -> None:
        """Nor is it the user's fault what we may not do there."""
        self.cluster.problem = from_code(403, "pods is forbidden")
        leaf = self.make()
        message = '"one" denies the request (cluster one (context "it")): pods is'
        self.assertIn(message, leaf.problem)
        self.assertNotIn("cluster one (", self.refused(leaf, self.pod(), BadGateway))

    def test_no_credentials(self) -> None:
        """Without credentials everything is refused at once, and nothing is sent."""
        missing = KubeconfigData(b"", "cluster one", "cluster one has no kubeconfig")
        leaf = self.make(kubeconfig=missing)
        self.assertEqual(leaf.problem, "cluster one has no kubeconfig")
        self.assertEqual(
            self.refused(leaf, self.pod(), ServiceUnavailable),
            'there are no credentials for leaf cluster "one"; the node server\'s log says why',
        )
        with self.assertRaises(ServiceUnavailable):
            leaf.config()
        self.assertEqual(self.network.seen, [])

    def test_every_verb(self) -> None:
        """Its client does all that a client does."""
        client = self.make(started=False).client
        pod = {"metadata": {"name": "a"}, "spec": {}}
        created = self.successResultOf(client.create(PODS.resource, pod, "default"))
        created["spec"] = {"nodeName": "n"}
        self.successResultOf(client.update(PODS.resource, created, "default"))
        self.successResultOf(
            client.patch(PODS.resource, "a", {"metadata": {"labels": {"l": "m"}}}, "default")
        )
        listed = self.successResultOf(
            client.list(PODS.resource, field_selector="spec.nodeName=n", label_selector="l=m")
        )
        self.assertEqual(len(listed["items"]), 1)
        self.successResultOf(client.delete(PODS.resource, "a", "default"))
        self.failureResultOf(client.get(PODS.resource, "a", "default"), NotFound)


class RotatedTests(LeafTestCase):
    """Credentials that change while the leaf is in use."""

    def test_in_place(self) -> None:
        """New credentials apply to the next request; watches go on."""
        root = self.pod()
        put_leaf_pod(self.cluster, root)
        leaf = self.make()
        leaf.become(replace(self.spec, kubeconfig=data(token="new")))
        self.assertEqual(leaf.config().token, "new")
        self.assertEqual(self.found(leaf, root).name, "web")
        self.assertEqual(self.cluster.watches, 1)
        self.successResultOf(leaf.client.get(PODS.resource, "web", "default"))
        self.assertEqual([each.token for each in self.network.seen], ["secret", "new"])

    def test_unusable(self) -> None:
        """Invalid credentials leave the last valid ones in force; missing ones withdraw them."""
        leaf = self.make()
        for content in (b"nonsense", b"", b"still"):
            leaf.become(replace(self.spec, kubeconfig=KubeconfigData(content, "cluster one", "")))
            self.assertEqual((leaf.config().token, leaf.problem), ("secret", ""))
        undecoded = KubeconfigData(b"", "cluster one", "cluster one: no base64")
        leaf.become(replace(self.spec, kubeconfig=undecoded))
        self.assertEqual(leaf.config().token, "secret")
        missing = KubeconfigData(
            b"", "cluster one", "cluster one has no kubeconfig", is_given=False
        )
        leaf.become(replace(self.spec, kubeconfig=missing))
        self.assertEqual(leaf.problem, "cluster one has no kubeconfig")
        leaf.become(replace(self.spec, kubeconfig=undecoded))
        self.assertEqual(leaf.problem, "cluster one: no base64")

    def test_at_once(self) -> None:
        """With new credentials a failed watch is retried at once."""
        self.cluster.problem = Unauthorized()
        leaf = self.make()
        self.clock.pump([10] * 6)
        self.assertIn("rejects the credentials", leaf.problem)
        self.cluster.problem = None
        leaf.become(replace(self.spec, kubeconfig=data(token="new")))
        self.assertEqual(leaf.problem, "")
        self.assertEqual(self.cluster.watches, 1)

    def test_secret(self) -> None:
        """A Secret that is replaced is used without anything being made anew."""
        put_secret(self.root, kubeconfig(token="old"))
        leaf = self.make(kubeconfig=KubeconfigSecret("leaves", "one"))
        put_secret(self.root, kubeconfig(token="new"))
        self.assertEqual(leaf.config().token, "new")
        self.assertEqual(leaf.problem, "")

    def test_secret_comes_late(self) -> None:
        """A leaf whose Secret is made later is followed as soon as it is."""
        leaf = self.make(kubeconfig=KubeconfigSecret("leaves", "one"))
        self.assertIn("secret leaves/one does not exist", leaf.problem)
        put_secret(self.root, kubeconfig())
        self.assertEqual(leaf.problem, "")

    def test_secret_takes_a_moment(self) -> None:
        """A Secret that is being read is no problem; a missing one is, a moment later."""
        listing: Deferred[Object] = Deferred()
        client = self.root.client()
        client.list = lambda *_, **__: listing  # type: ignore[method-assign]
        with capturedLogs() as logs:
            leaf = self.make(started=False, kubeconfig=KubeconfigSecret("leaves", "one"))
            leaf._credentials = credentials(leaf.spec.kubeconfig, client, self.clock)
            leaf.start()
            self.addCleanup(lambda: self.successResultOf(leaf.stop()))
            self.clock.advance(0.5)
            self.assertEqual([formatEvent(each) for each in logs], [])
            listing.callback({"metadata": {"resourceVersion": "1"}, "items": []})
            self.clock.advance(PATIENCE_SECONDS)
        (message,) = [formatEvent(each) for each in logs]
        self.assertIn('of leaf cluster "one": secret leaves/one does not exist', message)

    def test_moved(self) -> None:
        """Credentials for another server: the old server's Pods are forgotten."""
        root = self.pod()
        put_leaf_pod(self.cluster, root)
        other = self.network.add(OTHER)
        leaf = self.make()
        leaf.become(replace(self.spec, kubeconfig=data(server=OTHER)))
        self.cluster.end_watches()
        self.clock.advance(1)
        self.refused(leaf, root, NotFound)
        put_leaf_pod(other, root)
        self.assertEqual(self.found(leaf, root).name, "web")
        self.assertEqual((self.cluster.watches, other.watches), (0, 1))

    def test_another_rule(self) -> None:
        """Another policy or other names count from the next request."""
        root = self.pod()
        put_pod(self.cluster, "web", namespace="eu")
        leaf = self.make()
        self.refused(leaf, root, NotFound)
        leaf.become(replace(self.spec, names=Names({"default": "eu"}), policy=SAME_NAME))
        self.assertEqual(self.found(leaf, root).namespace, "eu")
        self.assertEqual(self.cluster.watches, 1)

    def test_flapping(self) -> None:
        """However often that changes, there is one watch, and none when it ends."""
        leaf = self.make(started=False)
        leaf.start()
        for number in range(20):
            self.cluster.problem = Unauthorized() if number % 2 else None
            self.cluster.end_watches(unreachable() if number % 3 else None)
            leaf.become(replace(self.spec, kubeconfig=data(token=f"t{number}")))
            self.clock.advance(0.3)
        self.cluster.problem = None
        self.clock.pump([5] * 10)
        self.assertEqual(self.cluster.watches, 1)
        self.successResultOf(leaf.stop())
        self.assertEqual(self.cluster.watches, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

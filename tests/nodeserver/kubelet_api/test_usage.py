"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.usage`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.figures import LATER, NOON, put_node_usage, put_usage, serve_figures
from tests.nodeserver.support import PODS, put_leaf_pod, put_pod, simple
from tests.retained import entries
from twisted_exec.api.status import BadGateway, Forbidden, NotFound
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.kubelet_api.counters import LEAST
from twisted_exec.nodeserver.kubelet_api.usage import (
    NODE_METRICS,
    POD_METRICS,
    LeafUsage,
    LeavesUsage,
    PodUsage,
    duration,
)

SECOND = 10**9
KEEP = 5


class UsageCase(SynchronousTestCase):
    """One leaf with the Pod ``web``, and figures of it."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.root_pods, self.leaves = simple()
        self.leaf, self.one = self.leaves.leaves[0].cluster, self.leaves.leaves[0]
        self.root = put_pod(self.root_pods.cluster, "web", "leaf-one", containers=["main", "two"])
        self.pod = put_leaf_pod(self.leaf, self.root)
        serve_figures(self.leaf)
        self.usage = LeavesUsage(self.leaves, self.clock)
        self.logged: list[dict[str, Any]] = []
        globalLogPublisher.addObserver(self.logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.logged.append)

    def told(self, node: str = "") -> LeafUsage:
        return self.successResultOf(Deferred.fromCoroutine(self.usage.of(node)))

    def again(self, node: str = "") -> LeafUsage:
        """Read again after the cache has expired."""
        self.clock.advance(KEEP)
        return self.told(node)

    def only(self) -> PodUsage:
        (pod,) = self.told().pods
        return pod

    def listed(self) -> int:
        """Return how often Pod metrics were requested."""
        return sum(verb == "list" and plural == "pods" for verb, plural, *_ in self.leaf.requests)

    def lines(self) -> list[str]:
        return [
            str(event["why"]) for event in self.logged if "no usage" in str(event["log_format"])
        ]


class TellTests(UsageCase):
    """Reported usage."""

    def test_containers(self) -> None:
        """Each container, and the Pod as all of them, in the units of a kubelet."""
        put_usage(self.leaf, "web", {"main": ("250m", "64Mi"), "two": ("1500000n", "1Ki")})
        pod = self.only()
        self.assertEqual(pod.root["metadata"]["uid"], self.root["metadata"]["uid"])
        main = pod.containers["main"]
        self.assertEqual(main.sample.at, NOON * SECOND)
        self.assertEqual(main.sample.nanocores, 250_000_000)
        self.assertEqual(main.sample.memory_bytes, 64 << 20)
        self.assertEqual(main.core_nanoseconds, LEAST + int(0.25 * 15.5 * SECOND))
        self.assertEqual(pod.whole.sample.nanocores, 251_500_000)
        self.assertEqual(pod.whole.sample.memory_bytes, (64 << 20) + 1024)

    def test_grows(self) -> None:
        """With each of the leaf's moments the count goes on."""
        put_usage(self.leaf, "web", {"main": ("250m", "1Mi")})
        before = self.only().containers["main"]
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")}, at=LATER)
        (pod,) = self.again().pods
        after = pod.containers["main"]
        self.assertEqual(after.core_nanoseconds - before.core_nanoseconds, 15 * SECOND)

    def test_restarted_container(self) -> None:
        """The leaf's Pod says when its containers were started."""
        status = self.leaf.find(PODS.resource, "default", "web")[1]["status"]
        status["containerStatuses"][0]["state"] = {"running": {"startedAt": "2026-11-20T11:59:55Z"}}
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        main = self.only().containers["main"]
        self.assertEqual(main.started, (NOON - 5) * SECOND)
        self.assertEqual(main.core_nanoseconds, LEAST + 5 * SECOND)

    def test_ours_alone(self) -> None:
        """Pods that are not ours are not told of, whatever their names."""
        put_pod(self.leaf, "stranger")
        put_usage(self.leaf, "stranger", {"main": ("1", "1Mi")})
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")}, namespace="elsewhere")
        self.assertEqual(self.told().pods, ())

    def test_translated(self) -> None:
        """A Pod has the namespace and name that it has in the root."""
        put_leaf_pod(self.leaf, self.root, namespace="blue", name="web-7")
        put_usage(self.leaf, "web-7", {"main": ("1", "1Mi")}, namespace="blue")
        metadata = self.only().root["metadata"]
        self.assertEqual((metadata["namespace"], metadata["name"]), ("default", "web"))

    def test_nodes(self) -> None:
        """A Node is all the leaf's nodes that it stands for: all, those of a name, or of labels."""
        put_node_usage(self.leaf, "a", "1", "1Gi", labels={"zone": "x"})
        put_node_usage(self.leaf, "b", "500m", "2Gi", at=LATER)
        put_node_usage(self.leaf, "c", "250m", "4Gi", labels={"zone": "x"})
        self.one.nodes = [
            LeafNode("leaf-one", "one"),
            LeafNode("named", "one", leaf_nodes=("b",)),
            LeafNode("chosen", "one", selector={"zone": "x"}),
            LeafNode("none", "one", leaf_nodes=("gone",)),
        ]
        nodes = self.told().nodes
        self.assertEqual(
            {name: used.sample.nanocores for name, used in nodes.items()},
            {"leaf-one": 1_750_000_000, "named": 500_000_000, "chosen": 1_250_000_000},
        )
        self.assertEqual(nodes["leaf-one"].sample.memory_bytes, 7 << 30)
        self.assertEqual(nodes["leaf-one"].sample.at, (NOON + 15) * SECOND)
        self.assertEqual(list(self.told("named").nodes), ["named"])

    def test_one_node(self) -> None:
        """Asked about one Node, only what is on it."""
        self.one.nodes = [LeafNode("leaf-one", "one"), LeafNode("other", "one")]
        self.root_pods.nodes.add("other")
        second = put_pod(self.root_pods.cluster, "db", "other")
        put_leaf_pod(self.leaf, second)
        for name in ("web", "db"):
            put_usage(self.leaf, name, {"main": ("1", "1Mi")})
        self.assertEqual([p.node for p in self.told("other").pods], ["other"])
        self.assertEqual(len(self.told().pods), 2)
        self.failureResultOf(Deferred.fromCoroutine(self.usage.of("another")), NotFound)

    def test_nonsense(self) -> None:
        """Invalid values are left out; the rest is reported."""
        put_usage(self.leaf, "web", {"main": ("1", "1Mi"), "two": ("many", "1Mi")})
        self.assertEqual(list(self.only().containers), ["main"])
        for broken in (
            {"at": "yesterday"},
            {"at": 5},
            {"at": "1926-11-20T12:00:00Z"},
            {"window": "soon"},
            {"window": None},
            {"containers": {"main": (None, "1Mi")}},
            {"containers": {"main": ("-1", "1Mi")}},
            {"containers": {"main": ("1e99", "1Mi")}},
            {"containers": {"main": ("1", ["1Mi"])}},
        ):
            containers = broken.pop("containers", {"main": ("1", "1Mi")})
            put_usage(self.leaf, "web", containers, **broken)
            self.assertEqual(self.again().pods, (), broken)
            self.assertEqual(self.told().problem, "")

    def test_another_form(self) -> None:
        """A report in another form is left out as well."""
        for broken in (5, "main", {"name": "main"}, [5], [None], [{"usage": 5}], [{"name": 5}]):
            put_usage(self.leaf, "web", {})
            self.leaf.objects[POD_METRICS, "default", "web"]["containers"] = broken
            self.leaf.put((NODE_METRICS, "", "w1"), {"metadata": {"name": "w1", "labels": broken}})
            usage = self.again()
            self.assertEqual((usage.pods, usage.nodes, usage.problem), ((), {}, ""), broken)

    def test_durations(self) -> None:
        """As Go writes them."""
        for text, nanoseconds in (
            ("15s", 15 * SECOND),
            ("15.012345678s", 15_012_345_678),
            ("1m0s", 60 * SECOND),
            ("1h2m3s", 3723 * SECOND),
            ("1m", 60 * SECOND),
        ):
            self.assertEqual(duration(text), nanoseconds)
        for text in ("", "s", "15", "-15s", "1ms", "15s "):
            with self.assertRaises(ValueError):
                duration(text)


class AskTests(UsageCase):
    """Requests to a leaf, and failures."""

    def test_once_for_all(self) -> None:
        """Requests within a moment share one answer."""
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        for _ in range(5):
            self.told()
            self.told("leaf-one")
        self.assertEqual(self.listed(), 1)
        self.again()
        self.assertEqual(self.listed(), 2)

    def test_no_such_api(self) -> None:
        """Usage is missing with a reason, with one line in the log, and another when it is back."""
        self.leaf.kinds = {
            resource: kind
            for resource, kind in self.leaf.kinds.items()
            if resource.group != "metrics.k8s.io"
        }
        for _ in range(3):
            usage = self.again()
            self.assertEqual((usage.pods, usage.nodes), ((), {}))
            self.assertIn('leaf "one": ', usage.problem)
        self.assertEqual(len(self.lines()), 1)
        serve_figures(self.leaf)
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        usage = self.again()
        self.assertEqual((len(usage.pods), usage.problem), (1, ""))
        formats = [
            str(event["log_format"])
            for event in self.logged
            if "usage of leaf" in event["log_format"]
        ]
        self.assertEqual(len(formats), 2)

    def test_down(self) -> None:
        """A leaf that is down takes no other leaf's figures away."""
        self.leaf.problem = BadGateway("connection refused")
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        self.assertIn("connection refused", self.told().problem)
        self.leaf.problem = None
        self.assertEqual(len(self.again().pods), 1)

    def test_pods_not_known(self) -> None:
        """As long as it is not known which Pods are ours, there are not none."""
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        self.one.synced = False
        self.assertIn("its Pods are not known yet", self.told().problem)
        self.one.problem = "connection refused"
        self.assertIn("connection refused", self.again().problem)
        self.one.synced = True
        self.assertEqual(len(self.again().pods), 1)

    def test_nodes_forbidden(self) -> None:
        """Without permission for node metrics, Pods are still reported and no scrape fails."""
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        ask = self.one.client.list

        def refusing(resource: Any, *rest: Any, **more: Any) -> Any:
            if resource == NODE_METRICS:
                raise Forbidden("nodes.metrics.k8s.io is forbidden")
            return ask(resource, *rest, **more)

        self.one.client.list = refusing  # type: ignore[method-assign]
        usage = self.told()
        self.assertEqual((len(usage.pods), usage.nodes, usage.problem), (1, {}, ""))
        self.assertEqual(self.lines(), ["nodes.metrics.k8s.io is forbidden"])

    def test_slow(self) -> None:
        """A leaf that does not answer is not waited for longer than a scraper waits."""
        self.one.client.list = lambda *_, **__: Deferred()  # type: ignore[method-assign]
        asking = Deferred.fromCoroutine(self.usage.of())
        self.assertNoResult(asking)
        self.clock.advance(8)
        usage = self.successResultOf(asking)
        self.assertIn("in time", usage.problem)

    def test_leaf_gone(self) -> None:
        """Of a leaf that is removed nothing is kept."""
        put_usage(self.leaf, "web", {"main": ("1", "1Mi")})
        self.told()
        before = entries(self.usage, beside=[self.leaves])
        self.leaves.leaves.clear()
        self.assertEqual(self.told(), LeafUsage())
        self.assertLess(entries(self.usage, beside=[self.leaves]), before)

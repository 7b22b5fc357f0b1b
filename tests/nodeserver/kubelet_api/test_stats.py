"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.stats`: through a whole node server."""

from __future__ import annotations

import json
from typing import Any

from tests.nodeserver.chain import JANE, ServerCase
from tests.nodeserver.figures import put_node_usage, put_usage, serve_figures
from tests.nodeserver.support import put_leaf_pod, put_pod
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.kubelet_api.stats import stats_routes

SUMMARY, METRICS = "/stats/summary", "/metrics/resource"


class StatsCase(ServerCase):
    """One Pod with figures."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.root_pod = put_pod(self.root, "web", "leaf-one", uid="uid-of-web")
        put_leaf_pod(self.leaf, self.root_pod)
        serve_figures(self.leaf)
        put_usage(self.leaf, "web", {"main": ("250m", "64Mi")}, window="10s")
        put_node_usage(self.leaf, "worker", "2", "4Gi")
        await self.start(stats_routes)

    async def summary(self, query: str = "", **more: Any) -> Any:
        answer = await self.ask(SUMMARY + query, **more)
        self.assertEqual(answer.code, 200)
        self.assertIn((b"Content-Type", b"application/json"), answer.headers)
        return json.loads(answer.body)

    async def metrics(self, path: str = METRICS, **more: Any) -> dict[str, str]:
        """Each line's value, and its time, by its name and labels."""
        answer = await self.ask(path, **more)
        self.assertEqual(answer.code, 200, answer.body)
        lines = answer.body.decode().splitlines()
        return dict(line.split(" ", 1) for line in lines if not line.startswith("#"))


class SummaryTests(StatsCase):
    """``/stats/summary``"""

    async def test_whole(self) -> None:
        """Usage appears under a kubelet's names; missing values are not invented."""
        figures = {
            "cpu": {
                "time": "2026-11-20T12:00:00Z",
                "usageNanoCores": 250_000_000,
                "usageCoreNanoSeconds": 2_500_001_000,
            },
            "memory": {"time": "2026-11-20T12:00:00Z", "workingSetBytes": 64 << 20},
        }
        started = "2026-11-20T11:59:50Z"
        body = await self.summary()
        self.assertEqual(
            body["pods"],
            [
                {
                    "podRef": {"name": "web", "namespace": "default", "uid": "uid-of-web"},
                    "startTime": started,
                    "containers": [{"name": "main", "startTime": started, **figures}],
                    **figures,
                }
            ],
        )
        self.assertEqual(body["node"]["nodeName"], "leaf-one")
        self.assertEqual(body["node"]["startTime"], started)
        self.assertEqual(body["node"]["cpu"]["usageNanoCores"], 2_000_000_000)
        self.assertEqual(body["node"]["memory"]["workingSetBytes"], 4 << 30)

    async def test_only(self) -> None:
        """Only processors and memory is all there is; POST is as good as GET."""
        whole = await self.summary()
        self.assertEqual(await self.summary("?only_cpu_and_memory=true"), whole)
        self.assertEqual(await self.summary(method=b"POST"), whole)

    async def test_no_such_api(self) -> None:
        """Without figures there is an answer still."""
        self.leaf.kinds = {}
        self.assertEqual(
            await self.summary(), {"node": {"nodeName": "leaf-one", "startTime": None}, "pods": []}
        )


class MetricsTests(StatsCase):
    """``/metrics/resource``"""

    async def test_whole(self) -> None:
        """The figures, with the leaf's times."""
        text = await self.metrics()
        labels = '{container="main",namespace="default",pod="web"}'
        self.assertEqual(
            text[f"container_cpu_usage_seconds_total{labels}"], "2.500001 1795176000000"
        )
        self.assertEqual(text["node_cpu_usage_seconds_total"], "20.000001 1795176000000")
        self.assertEqual(text["resource_scrape_error"], "0.0")

    async def test_no_such_api(self) -> None:
        """Without figures there is one that says so."""
        self.leaf.kinds = {}
        self.assertEqual(await self.metrics(), {"resource_scrape_error": "1.0"})

    async def test_several_nodes(self) -> None:
        """
        Of several Nodes with one address, the path or ``Host`` selects one; otherwise the answer
        has all Pods and no Node.
        """
        self.leaves.leaves[0].nodes = [LeafNode("leaf-one", "one"), LeafNode("leaf-two", "one")]
        text = await self.metrics()
        self.assertNotIn("node_cpu_usage_seconds_total", text)
        self.assertEqual(len(text), 6)
        for more in (
            {"path": f"{METRICS}/leaf-one"},
            {"host": b"leaf-one.nodes.example.com:10250"},
        ):
            self.assertIn("node_cpu_usage_seconds_total", await self.metrics(**more))
        other = await self.metrics(f"{METRICS}/leaf-two")
        self.assertFalse([name for name in other if name.startswith("container")])
        self.assertEqual((await self.ask(f"{METRICS}/another")).code, 404)

    async def test_who(self) -> None:
        """Each path needs its own permission for the Node."""
        paths = (SUMMARY, METRICS, f"{METRICS}/leaf-one", f"{METRICS}/another")
        for path in paths:
            self.assertEqual((await self.ask(path, identity=None)).code, 401)
            self.assertEqual((await self.ask(path, identity=JANE)).code, 403)
        self.asked.clear()
        self.allowed["jane"] = {("get", "metrics"), ("get", "stats")}
        for path, code in zip(paths, (200, 200, 200, 404), strict=True):
            self.assertEqual((await self.ask(path, identity=JANE)).code, code)
        self.assertEqual(
            [(resource, node) for _, _, resource, node in self.asked],
            [
                ("nodes/stats", "leaf-one"),
                ("nodes/metrics", "leaf-one"),
                ("nodes/metrics", "leaf-one"),
                ("nodes/metrics", "another"),
            ],
        )

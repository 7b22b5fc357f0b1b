"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.pods`: through a whole node server."""

from __future__ import annotations

import json
from typing import Any

from tests.nodeserver.chain import JANE, ServerCase
from tests.nodeserver.support import PODS, put_leaf_pod, put_pod
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.kubelet_api.pods import pod_routes


class PodsCase(ServerCase):
    """Two Pods, one of them in the leaf."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.web = put_pod(self.root, "web", "leaf-one", uid="uid-of-web", containers=["a", "b"])
        put_pod(self.root, "db", "leaf-one", "another")
        put_pod(self.root, "elsewhere", "other-node")
        put_leaf_pod(self.leaf, self.web, namespace="blue", name="web-7")
        await self.start(pod_routes)

    async def listed(self, path: str, **more: Any) -> list[Any]:
        answer = await self.ask(path, **more)
        self.assertEqual(answer.code, 200)
        self.assertIn((b"Content-Type", b"application/json"), answer.headers)
        body = json.loads(answer.body)
        items = body.pop("items")
        self.assertEqual(body, {"kind": "PodList", "apiVersion": "v1", "metadata": {}})
        assert isinstance(items, list)
        return items


class PodsTests(PodsCase):
    """``/pods``"""

    async def test_whole(self) -> None:
        """The root's Pods on our Nodes, and on no other, as the root has them."""
        db, web = await self.listed("/pods")
        self.assertEqual(db["metadata"]["namespace"], "another")
        for key in ("metadata", "spec", "status"):
            self.assertEqual(web[key], self.web[key])
        self.assertNotIn("kind", web)

    async def test_one_node(self) -> None:
        """Of several Nodes with one address, ``Host`` selects one."""
        self.leaves.leaves[0].nodes = [LeafNode("leaf-one", "one"), LeafNode("leaf-two", "one")]
        self.root_pods.nodes.add("leaf-two")
        put_pod(self.root, "two", "leaf-two")
        (only,) = await self.listed("/pods", host=b"leaf-two")
        self.assertEqual(only["metadata"]["name"], "two")
        self.assertEqual(len(await self.listed("/pods")), 3)

    async def test_not_read_yet(self) -> None:
        """Before the root's Pods were read, there are not none."""
        self.root_pods.synced = False
        answer = await self.ask("/pods")
        self.assertEqual(answer.code, 503)

    async def test_who(self) -> None:
        """Only users with ``pods`` or ``proxy`` of the Node see values of environment variables."""
        for path in ("/pods", "/runningpods/"):
            self.assertEqual((await self.ask(path, identity=None)).code, 401)
            self.allowed["jane"] = {("get", "stats"), ("get", "metrics"), ("create", "pods")}
            self.assertEqual((await self.ask(path, identity=JANE)).code, 403)
            for subresource in ("pods", "proxy"):
                self.allowed["jane"] = {("get", subresource)}
                self.assertEqual((await self.ask(path, identity=JANE)).code, 200)


class RunningTests(PodsCase):
    """``/runningpods/``"""

    async def test_whole(self) -> None:
        """Running Pods of the leaf have the root's names, and only what a runtime knows."""
        self.assertEqual(
            await self.listed("/runningpods/"),
            [
                {
                    "metadata": {"name": "web", "namespace": "default", "uid": "uid-of-web"},
                    "spec": {
                        "containers": [
                            {"name": name, "image": "image", "resources": {}} for name in "ab"
                        ]
                    },
                    "status": {},
                }
            ],
        )
        self.assertEqual(await self.listed("/runningpods"), await self.listed("/runningpods/"))

    async def test_ended_containers(self) -> None:
        """A container that has ended does not run, and neither does a Pod of only such."""
        statuses = self.leaf.find(PODS.resource, "blue", "web-7")[1]["status"]["containerStatuses"]
        statuses[0]["state"] = {"terminated": {"exitCode": 0}}
        (pod,) = await self.listed("/runningpods/")
        self.assertEqual([each["name"] for each in pod["spec"]["containers"]], ["b"])
        statuses[1]["state"] = {"waiting": {}}
        self.assertEqual(await self.listed("/runningpods/"), [])

    async def test_not_known(self) -> None:
        """Before a leaf was read its running Pods are unknown."""
        self.leaves.leaves[0].synced = False
        self.leaves.leaves[0].problem = "connection refused"
        answer = await self.ask("/runningpods/")
        self.assertEqual(answer.code, 503)
        self.assertIn(b'leaf "one" are not known: connection refused', answer.body)

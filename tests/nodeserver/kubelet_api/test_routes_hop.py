"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.routes`."""

from __future__ import annotations

from typing import Any

from tests.nodeserver.chain import JANE, ServerCase
from tests.nodeserver.support import SimpleLeaf, memory_cluster
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.interfaces import LeafNode


class AskedNodeTests(ServerCase):
    """The Node of a path without a Pod."""

    def add(self, *nodes: str) -> None:
        config = ClientConfig("https://leaf.example:6443")
        leaf_nodes = [LeafNode(name, "two") for name in nodes]
        self.leaves.leaves.append(SimpleLeaf("two", memory_cluster(), config, leaf_nodes))

    async def about(self, host: bytes) -> Any:
        """Return the Node of a request."""
        self.asked.clear()
        answer = await self.ask("/metrics", identity=JANE, host=host)
        self.assertEqual(answer.code, 403)
        return self.asked[0][3]

    async def test_only(self) -> None:
        """The only one, whatever ``Host`` says."""
        await self.start()
        self.assertEqual(await self.about(b"anything:10250"), "leaf-one")

    async def test_several(self) -> None:
        """Of several the one whose name ``Host`` begins with, the longest that fits; else all of them."""
        await self.start()
        self.add("leaf-two", "leaf-two.eu")
        for host, expected in (
            (b"leaf-two", "leaf-two"),
            (b"LEAF-TWO.nodes.example.com:10250", "leaf-two"),
            (b"leaf-two.eu.nodes.example.com", "leaf-two.eu"),
            (b"leaf-twofold", ""),
            (b"127.0.0.1:10250", ""),
            (b"[::1]:10250", ""),
            (b"nodes.example.com", ""),
        ):
            self.assertEqual(await self.about(host), expected, host)

    async def test_none(self) -> None:
        """Without leaves a request needs permission for all Nodes."""
        self.leaves.leaves.clear()
        await self.start()
        self.assertEqual(await self.about(b"node"), "")

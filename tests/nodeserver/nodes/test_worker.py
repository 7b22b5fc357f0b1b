"""Nodes kept in an API server of ours: real sockets, certificates and probes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.audits import AuditList
from tests.chain import NODE_SERVER
from tests.nodeserver.clusters import LEAF, LEAF_NODE, Clusters
from tests.nodeserver.support import SimpleLeaf, SimpleLeaves, SimpleRootPods, memory_cluster
from twisted_exec.api.kinds import ADDRESS_TYPES, EVENTS, LEASES
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.kube.leases import LeaderElected
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.nodes.controller import NodeController
from twisted_exec.nodeserver.nodes.probe import RootProbe, probe_routes
from twisted_exec.nodeserver.nodes.worker import PublishedEndpoint
from twisted_exec.nodeserver.options import LEASE, NAMESPACE, keeper_of
from twisted_exec.nodeserver.service import NodeServer
from twisted_exec.nodeserver.settings import Settings

reactor: Any = _reactor
KEPT = "kept-1"

NOBODY = "127.0.0.9"
"""Refuses at once; a name would be looked up first, by whatever the host asks for names."""


class KeptTests(TestCase):
    """One replica that leads, and one Node."""

    async def setUp(self) -> None:
        self.clusters = await Clusters.start()
        self.addCleanup(self.clusters.stop)
        self.leaves = self.make_leaves()
        self.server = await self.serve()

    def make_leaves(self) -> SimpleLeaves:
        """The one leaf, asked as it is."""
        cluster = self.clusters.leaf
        leaf = SimpleLeaf(
            LEAF, memory_cluster(), cluster.config(NODE_SERVER), [LeafNode(KEPT, LEAF)]
        )
        leaf.client = cluster.client(NODE_SERVER)  # type: ignore[assignment]
        return SimpleLeaves(leaf)

    async def serve(self) -> NodeServer:
        """A server that has the page which the root is to find."""
        root = self.clusters.root
        pair, client = root.pki.pair("runtime-kubelet"), root.client(NODE_SERVER)
        settings = Settings(
            listen="tcp:0:interface=127.0.0.1",
            certificate=pair.certificate,
            key=pair.key,
            client_ca=root.client_ca,
        )
        server = NodeServer(
            settings,
            client,
            self.leaves,
            SimpleRootPods(memory_cluster(), [KEPT]),
            AuditList(),
            reactor,
            make=[probe_routes(keeper_of())],
        )
        ready = server.when_ready()
        server.startService()
        self.addCleanup(server.stopService)
        await ready
        return server

    async def act(self, *, preferred: tuple[str, ...] = ADDRESS_TYPES) -> None:
        """Stand for election, and keep the Node."""
        root, address = self.clusters.root, self.server.address
        assert address is not None
        published = PublishedEndpoint(
            [("InternalDNS", "127.0.0.1")],
            address.port,
            preferred=preferred,  # type: ignore[attr-defined]
        )
        client = root.client(NODE_SERVER)
        probe = RootProbe(lambda: root.config(NODE_SERVER), reactor, published.keeper)

        def make() -> list[NodeController]:
            return [NodeController(client, self.leaves, published, reactor, time.time, root=probe)]

        acting = LeaderElected(client, make, reactor, time.time, namespace=NAMESPACE, lease=LEASE)
        acting.start()
        self.addCleanup(acting.stop)

    async def until(self, condition: Callable[[Any], Any]) -> Any:
        """The Node, when the condition holds of it."""
        while True:
            listed = (await self.clusters.root.admin.list(NODES.resource))["items"]
            for node in listed:
                if node["metadata"]["name"] == KEPT and condition(node):
                    return node
            await deferLater(reactor, 0.05)

    def reason(self, node: Any, type: str) -> str:
        conditions = node.get("status", {}).get("conditions", [])
        return " ".join(
            f"{condition['status']} {condition['reason']}"
            for condition in conditions
            if condition["type"] == type
        )

    async def test_kept(self) -> None:
        """The Node stands there as the leaf's does, with our address first and a way that is probed."""
        await self.clusters.leaf.admin.patch(
            NODES.resource,
            LEAF_NODE,
            {
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.7"}],
                    "capacity": {"cpu": "8", "memory": "16Gi"},
                }
            },
            subresource="status",
        )
        await self.act(preferred=("InternalDNS", "InternalIP"))
        node = await self.until(
            # A probe that was too slow runs once more.
            lambda node: (
                node.get("status", {}).get("capacity")
                and self.reason(node, "ExecReady").startswith("True")
            )
        )
        self.assertEqual(self.reason(node, "LeafExecAllowed"), "True ExecAllowed")
        self.assertEqual(self.reason(node, "LeafReady"), "True LeafAnswers")
        self.assertEqual(self.reason(node, "Ready"), "True LeafReady")
        self.assertEqual(self.reason(node, "RootReachesNodeServer"), "True RootReachesUs")
        self.assertEqual(self.reason(node, "ExecReady"), "True ProbeSucceeded")
        self.assertEqual(
            node["status"]["addresses"],
            [
                {"type": "InternalDNS", "address": "127.0.0.1"},
                {"type": "InternalIP", "address": "127.0.0.7"},
            ],
        )
        self.assertEqual(node["status"]["capacity"], {"cpu": "8", "memory": "16Gi"})
        self.assertTrue(node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1."))
        leases: list[Any] = []
        while not leases:
            listed = await self.clusters.root.admin.list(LEASES.resource, "kube-node-lease")
            leases = listed["items"]
            await deferLater(reactor, 0.05)
        (owner,) = leases[0]["metadata"]["ownerReferences"]
        self.assertEqual(owner["uid"], node["metadata"]["uid"])

    async def test_hostname(self) -> None:
        """A leaf's Hostname wins with a kube-apiserver's own order: an Event on the Node says so."""
        await self.clusters.leaf.admin.patch(
            NODES.resource,
            LEAF_NODE,
            {"status": {"addresses": [{"type": "Hostname", "address": NOBODY}]}},
            subresource="status",
        )
        await self.act()
        await self.until(lambda node: self.reason(node, "AddressPreferred").startswith("False"))
        reported: list[Any] = []
        while not reported:
            listed = (await self.clusters.root.admin.list(EVENTS.resource, "default"))["items"]
            reported = [event for event in listed if event["reason"] == "AddressNotPreferred"]
            await deferLater(reactor, 0.05)
        (event,) = reported
        self.assertEqual((event["type"], event["involvedObject"]["name"]), ("Warning", KEPT))
        self.assertIn(f"dials the leaf's Hostname {NOBODY}", event["message"])

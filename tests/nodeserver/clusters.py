"""
Two clusters in one process: a root and a leaf, both our own API server, a kubelet in the leaf, and
room for a node server between them.

All sockets and certificates are real, stores are in memory.  Root and leaf trust nothing of each
other's, as clusters of different owners.  In each the user ``admin`` may do anything, and ``jane``
nothing::

    clusters = await Clusters.start()          # root, leaf, a kubelet that runs POD in the leaf
    await clusters.serve()                     # a node server, of the root's ROOT_NODE
    await clusters.add_pods()                  # in the root, and in the leaf behind it
    kubectl --kubeconfig (clusters.root.kubeconfig("admin")) exec web -- true
    await clusters.stop()
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.audits import AuditList
from tests.chain import (
    HOST,
    KUBELET_CLIENT,
    LISTEN,
    NODE_SERVER,
    apiserver_settings,
    client_config,
    kubeconfig,
    patient,
    pki,
    reactor,
    until,
)
from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.apiserver.node_pods.options import KubeletAccess
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.kubelet_api.logs import log_routes
from twisted_exec.nodeserver.kubelet_api.pods import pod_routes
from twisted_exec.nodeserver.kubelet_api.run import run_routes
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.nodeserver.leaves.registry import LeafRegistry
from twisted_exec.nodeserver.leaves.settings import RegistrySettings, SpaceChoice
from twisted_exec.nodeserver.service import NodeServer
from twisted_exec.nodeserver.settings import Settings as NodeSettings
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.testing.kubelet import Container, Kubelet
from twisted_exec.tls.files import read_file
from twisted_exec.tls.server import ServerTLS

ROOT, LEAF = "root", "leaf"
ROOT_NODE, LEAF_NODE = "leaf-1", "worker"
"""The Node of the root that stands for the leaf, and the leaf's own."""
POD = "web"
"""A Pod of the namespace ``default``: in the root on one, in the leaf on the other."""
OWNER, OURS = "leaf.twisted-exec.dev/pod-uid", "leaf.twisted-exec.dev/root"


class Cluster:
    """
    An API server with Pods of Nodes.

    :param name: also that of its PKI.
    :param more: other :class:`Settings`.
    """

    def __init__(self, name: str, **more: Any) -> None:
        self.name, self.pki = name, pki(name)
        self.directory = tempfile.mkdtemp(prefix=f"exec-tests-{name}-")
        self.audit, self.storage = AuditList(), MemoryStorage()
        kubelet_client = self.pki.pair(f"user-{KUBELET_CLIENT}")
        kubelets = KubeletAccess(
            kubelet_client.certificate, kubelet_client.key, self.pki.serving_ca
        )
        settings = Settings(**apiserver_settings(self.pki, **{"kubelets": kubelets, **more}))
        self.server = APIServer(settings, self.storage, self.audit, reactor)
        self._clients: list[KubeClient] = []
        self._node_servers: list[NodeServer] = []

    async def start(self) -> None:
        """Serve."""
        self.server.startService()
        await self.server.when_ready()
        self.admin = self.client("admin")

    async def stop(self) -> None:
        """Serve no longer; everything of it is gone."""
        for node_server in self._node_servers:
            await node_server.stopService()
        for client in self._clients:
            await client.close()
        if self.server.running:
            await self.server.stopService()
        shutil.rmtree(self.directory, ignore_errors=True)

    def kubeconfig(self, user: str) -> str:
        """The path of a kubeconfig of ``admin``, ``jane`` or :data:`NODE_SERVER`."""
        path = os.path.join(self.directory, user)
        return kubeconfig(path, self.server.url, f"user-{user}", self.pki)

    def config(self, user: str) -> ClientConfig:
        """Return the configuration of a client that authenticates as a user."""
        return client_config(self.server.url, f"user-{user}", self.pki)

    def client(self, user: str) -> KubeClient:
        """A client in the name of a user; closed with the cluster."""
        client = patient(self.config(user))
        self._clients.append(client)
        return client

    def server_tls(self, name: str = "kubelet") -> ServerTLS:
        """TLS of a kubelet of this cluster, or of a program that poses as one, at 127.0.0.1."""
        pair = self.pki.pair(f"runtime-{name}")
        return ServerTLS(pair.certificate, pair.key, client_cas=[self.client_ca], clock=reactor)

    @property
    def client_ca(self) -> str:
        """Path of the CA of those who come to kubelets: of the API server as a client."""
        return self.pki.client_ca

    async def add_node(
        self, name: str, port: int, addresses: Sequence[tuple[str, str]] = (("InternalIP", HOST),)
    ) -> Object:
        """A Node, whose kubelet is reached at the first of these addresses."""
        resource = NODES.resource
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await self.admin.create(resource, node)
        status = {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return await self._with_status(resource, name, "", status)

    async def add_pod(
        self,
        name: str = POD,
        node: str = "",
        containers: Sequence[str] = ("main",),
        *,
        namespace: str = "default",
        metadata: Mapping[str, Any] | None = None,
        ttys: Sequence[str] = (),
        **spec: Any,
    ) -> Object:
        """A Pod that runs; ``ttys`` are those of its containers that have a terminal."""
        conditions = [
            {"name": each, "image": "busybox:1", "stdin": True, "tty": each in ttys}
            for each in containers
        ]
        bound = {"nodeName": node} if node else {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
            "spec": {"containers": conditions, **bound, **spec},
        }
        await self.admin.create(NODE_PODS.resource, pod, namespace)
        running = [
            {"name": each, "ready": True, "restartCount": 0, "state": {"running": {}}}
            for each in containers
        ]
        status = {"phase": "Running", "containerStatuses": running}
        return await self._with_status(NODE_PODS.resource, name, namespace, status)

    async def _with_status(
        self, resource: Any, name: str, namespace: str, status: Object
    ) -> Object:
        patch = {"status": status}
        patched: Object = await self.admin.patch(
            resource, name, patch, namespace, subresource="status"
        )
        return patched

    async def serve(
        self,
        leaves: Sequence[Object],
        audit: AuditList,
        *,
        spaces: SpaceChoice | None = None,
        **settings: Any,
    ) -> NodeServer:
        """
        Have a node server for leaves of this root; stopped with the cluster.

        :param leaves: entries of a file of leaves; of the Nodes that they name there is one each.
        :param spaces: which Spaces of this root are leaves, too.
        :param settings: other :class:`~twisted_exec.nodeserver.settings.Settings`.
        """
        path = os.path.join(self.directory, "leaves.json")
        with open(path, "w") as stream:
            json.dump({"leaves": list(leaves)}, stream)
        pair, client = self.pki.pair("runtime-kubelet"), self.client(NODE_SERVER)
        manifest: dict[str, Any] = {
            "listen": LISTEN,
            "certificate": pair.certificate,
            "key": pair.key,
            "client_ca": self.client_ca,
            "drain_seconds": 0.0,
        }
        registry = LeafRegistry(RegistrySettings(path, spaces=spaces), client, reactor)
        server = NodeServer(
            NodeSettings(**{**manifest, **settings}),
            client,
            registry.leaves,
            registry.roots,
            audit,
            reactor,
            make=(stream_routes, run_routes, log_routes, pod_routes),
            parts=[registry],
        )
        self._node_servers.append(server)
        ready = server.when_ready()
        server.startService()
        await ready
        await until(lambda: registry.synced)
        address: Any = server.address
        for name in registry.leaves.nodes():
            await self.add_node(name, address.port)
        return server


class Clusters:
    """
    A root and a leaf, and a kubelet in the leaf.

    :ivar containers: of :data:`POD`, which the kubelet runs.
    :ivar audit: of the node server.
    """

    def __init__(self, root: Mapping[str, Any], leaf: Mapping[str, Any]) -> None:
        self.root, self.leaf = Cluster(ROOT, **root), Cluster(LEAF, **leaf)
        self.containers = {"main": Container()}
        self.audit = AuditList()
        self.kubelet = Kubelet(
            reactor,
            {("default", POD): self.containers},
            tls=self.leaf.server_tls(),
            client_ca=read_file(self.leaf.client_ca),
        )

    @classmethod
    async def start(
        cls, *, root: Mapping[str, Any] | None = None, leaf: Mapping[str, Any] | None = None
    ) -> Clusters:
        """
        Both, and the kubelet.

        :param root: other :class:`Settings` of it.
        :param leaf: likewise.
        """
        clusters = cls(root or {}, leaf or {})
        await clusters.root.start()
        await clusters.leaf.start()
        port = await clusters.kubelet.listen(LISTEN)
        await clusters.leaf.add_node(LEAF_NODE, port.getHost().port)
        return clusters

    async def stop(self) -> None:
        """Nothing of them is left."""
        await self.root.stop()
        await self.leaf.stop()
        await self.kubelet.stop()

    async def serve(self, **settings: Any) -> NodeServer:
        """
        Have a node server for :data:`ROOT_NODE`, where the root finds it.

        :param settings: other :class:`~twisted_exec.nodeserver.settings.Settings`.
        """
        kubeconfig = {"file": self.leaf.kubeconfig(NODE_SERVER)}
        leaf = {"name": LEAF, "kubeconfig": kubeconfig, "nodes": [{"name": ROOT_NODE}]}
        return await self.root.serve([leaf], self.audit, **settings)

    async def add_pods(
        self,
        name: str = POD,
        containers: Mapping[str, Container] | None = None,
        *,
        node: str = ROOT_NODE,
    ) -> tuple[Object, Object]:
        """
        Create a Pod of the root on ``node``, and its counterpart in the leaf, as a syncer does.

        :param containers: that the kubelet runs; for :data:`POD` those that exist already.
        :return: the root's Pod and the leaf's.
        """
        if containers is not None:
            self.kubelet.add("default", name, dict(containers))
        running = self.kubelet.pods["default", name]
        ttys = [each for each, container in running.items() if container.tty]
        root = await self.root.add_pod(name, node, list(running), ttys=ttys)
        leaf = await self.add_leaf_pod(root)
        return root, leaf

    async def add_leaf_pod(self, root: Object) -> Object:
        """The Pod of the leaf for one of the root."""
        containers = root["spec"]["containers"]
        metadata = {
            "labels": {OURS: "root"},
            "annotations": {OWNER: root["metadata"]["uid"]},
        }
        return await self.leaf.add_pod(
            root["metadata"]["name"],
            LEAF_NODE,
            [each["name"] for each in containers],
            metadata=metadata,
            ttys=[each["name"] for each in containers if each.get("tty")],
        )

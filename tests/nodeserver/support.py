"""
Doubles for tests of the node server: clusters in memory, their Pods, and leaves and root Pods that
query them.

The simple doubles implement the interfaces without copies or watches, so that tests of a route or a
stream need not wait for either.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from tests.kube.credentialed import CredentialedClient
from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.kinds.leases import LEASES
from twisted_exec.api.kinds.namespaces import NAMESPACES
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.kinds.pods.machine_pods import PODS as MACHINE_PODS
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods, LeafNode, LeafPod
from twisted_exec.testing.cluster import MemoryCluster

PODS = Kind(
    resource=MACHINE_PODS.resource,
    singular="pod",
    has_status=True,
    fields={
        "spec.nodeName": lambda pod: str(pod.get("spec", {}).get("nodeName", "")),
        "status.phase": lambda pod: str(pod.get("status", {}).get("phase", "")),
    },
)
CLUSTERS = Kind(
    resource=Resource("kosmos.io", "v1alpha1", "clusters", "Cluster", namespaced=False),
    singular="cluster",
    has_status=True,
)
OWNER = "leaf.twisted-exec.dev/pod-uid"


def memory_cluster() -> MemoryCluster:
    """A root or a leaf, with everything that the node server asks of one."""
    return MemoryCluster((PODS, NODES, SECRETS, NAMESPACES, EVENTS, LEASES, CLUSTERS))


def put_pod(
    cluster: MemoryCluster,
    name: str,
    node: str = "",
    namespace: str = "default",
    *,
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    containers: Sequence[str] = ("main",),
    **spec: Any,
) -> Object:
    """Store a running Pod, or another in place of one; answers it as stored."""
    return cluster.put(
        (PODS.resource, namespace, name),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": uid or str(uuid.uuid4()),
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": each, "image": "image"} for each in containers],
                **spec,
            },
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": each, "ready": True, "state": {"running": {}}} for each in containers
                ],
            },
        },
    )


def put_leaf_pod(
    cluster: MemoryCluster, root: Object, *, namespace: str = "", name: str = "", **more: Any
) -> Object:
    """Store the Pod in a leaf that is ours, for one of the root."""
    metadata = root["metadata"]
    return put_pod(
        cluster,
        name or metadata["name"],
        namespace=namespace or metadata["namespace"],
        labels={"leaf.twisted-exec.dev/root": "root"},
        annotations={OWNER: metadata["uid"]},
        containers=[each["name"] for each in root["spec"]["containers"]],
        **more,
    )


@implementer(IRootPods)
class SimpleRootPods:
    """
    The Pods in a root, asked each time.

    :param nodes: ours.
    """

    synced = True

    def __init__(self, cluster: MemoryCluster, nodes: Iterable[str]) -> None:
        self.cluster, self.nodes = cluster, set(nodes)
        self._followers: list[Callable[[Object | None, Object | None], None]] = []

    def get(self, namespace: str, name: str, uid: str = "") -> Deferred[Object]:
        def checked(pod: Object) -> Object:
            if uid and pod["metadata"]["uid"] != uid:
                raise NotFound("pods", name)
            return pod

        return self.cluster.client().get(PODS.resource, name, namespace).addCallback(checked)

    def seen(self, namespace: str, name: str) -> Object | None:
        stored = self.cluster.objects.get((PODS.resource, namespace, name))
        return stored if stored and stored["spec"].get("nodeName") in self.nodes else None

    def by_uid(self, uid: str) -> Object | None:
        return next((pod for pod in self.on() if pod["metadata"]["uid"] == uid), None)

    def on(self, nodes: Iterable[str] = ()) -> Sequence[Object]:
        names = set(nodes) or self.nodes
        return [
            pod
            for key, pod in self.cluster.objects.items()
            if key[0] == PODS.resource and pod["spec"].get("nodeName") in names
        ]

    def follow(self, changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        self._followers.append(changed)
        return lambda: self._followers.remove(changed)

    def tell(self, before: Object | None, after: Object | None) -> None:
        """Something happened to a Pod."""
        for each in list(self._followers):
            each(before, after)


@implementer(ILeaf)
@dataclass
class SimpleLeaf:
    """
    A leaf whose Pods have the namespaces and names that they have in the root.

    :param told: what :meth:`config` answers, or raises.
    """

    name: str
    cluster: MemoryCluster
    told: ClientConfig | APIError
    nodes: Sequence[LeafNode] = ()
    problem: str = ""
    gone: str = ""
    synced: bool = True
    roots: SimpleRootPods | None = None
    machines: bool = False
    followers: list[Callable[[str], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = self.cluster.client()

    def config(self) -> ClientConfig:
        if isinstance(self.told, APIError):
            raise self.told
        return self.told

    def namespace(self, root: str) -> str:
        return root

    def names(self, root: Object) -> tuple[str, str]:
        return root["metadata"]["namespace"], root["metadata"]["name"]

    def root_names(self, namespace: str, name: str) -> tuple[str, str] | None:
        return namespace, name

    def marks(self, root: Object) -> Object:
        return {
            "labels": {"leaf.twisted-exec.dev/root": "root"},
            "annotations": {OWNER: root["metadata"]["uid"]},
        }

    def pod(self, root: Object) -> Deferred[LeafPod]:
        return Deferred.fromCoroutine(self._pod(root))

    async def _pod(self, root: Object) -> LeafPod:
        namespace, name = self.names(root)
        pod = await self.client.get(PODS.resource, name, namespace)
        if pod["metadata"].get("annotations", {}).get(OWNER) != root["metadata"]["uid"]:
            raise NotFound("pods", name)
        return LeafPod(self, namespace, name, root, pod)

    def pods(self) -> Iterable[LeafPod]:
        for pod in self._own():
            root = self.roots and self.roots.by_uid(pod["metadata"]["annotations"][OWNER])
            if root:
                metadata = pod["metadata"]
                yield LeafPod(self, metadata["namespace"], metadata["name"], root, pod)

    def strays(self) -> Iterable[Object]:
        if self.roots is None:
            return []
        gone = self.roots.by_uid
        return [p for p in self._own() if gone(p["metadata"]["annotations"][OWNER]) is None]

    def _own(self) -> list[Object]:
        return [
            pod
            for key, pod in self.cluster.objects.items()
            if key[0] == PODS.resource and OWNER in pod["metadata"].get("annotations", {})
        ]

    def follow(self, changed: Callable[[str], None]) -> Callable[[], None]:
        self.followers.append(changed)
        return lambda: self.followers.remove(changed)


@implementer(ILeaves)
class SimpleLeaves:
    """Leaves that a test gives."""

    synced = True

    def __init__(self, *leaves: SimpleLeaf) -> None:
        self.leaves = list(leaves)
        self.followers: list[Callable[[], None]] = []

    def all(self) -> Sequence[ILeaf]:
        return list(self.leaves)

    def get(self, name: str) -> ILeaf:
        for leaf in self.leaves:
            if leaf.name == name:
                return leaf
        raise NotFound("leaves", name)

    def of_node(self, node: str) -> ILeaf:
        for leaf in self.leaves:
            if any(each.name == node for each in leaf.nodes):
                return leaf
        raise NotFound("nodes", node)

    def nodes(self) -> Mapping[str, LeafNode]:
        return {node.name: node for leaf in self.leaves for node in leaf.nodes}

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        self.followers.append(changed)
        return lambda: self.followers.remove(changed)

    def tell(self) -> None:
        """The leaves, or their nodes, have become others."""
        for each in list(self.followers):
            each()


def simple(
    *, config: ClientConfig | None = None, node: str = "leaf-one", leaf: str = "one"
) -> tuple[SimpleRootPods, SimpleLeaves]:
    """A root with one Node, which stands for one leaf; both without Pods so far."""
    roots = SimpleRootPods(memory_cluster(), [node])
    told = config or ClientConfig("https://leaf.example:6443", token="secret")
    only = SimpleLeaf(leaf, memory_cluster(), told, [LeafNode(node, leaf)], roots=roots)
    return roots, SimpleLeaves(only)


def kubeconfig(
    server: str = "https://leaf.example:6443", token: str = "secret", **user: Any
) -> str:
    """A kubeconfig as JSON, with nothing in it that leads outside."""
    return json.dumps(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {"token": token, **user}}],
        }
    )


def put_secret(
    cluster: MemoryCluster, content: str, name: str = "one", key: str = "kubeconfig"
) -> Object:
    """Store a Secret in the namespace ``leaves``, or another in place of one."""
    return cluster.put(
        (SECRETS.resource, "leaves", name),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": "leaves", "name": name, "uid": str(uuid.uuid4())},
            "data": {key: base64.b64encode(content.encode()).decode()},
        },
    )


def put_cluster(
    cluster: MemoryCluster,
    name: str,
    content: str | None = None,
    *,
    models: list[Object] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **tree: Any,
) -> Object:
    """Store a Cluster of Kosmos, or another in place of one."""
    spec: Object = {"clusterTreeOptions": {"enable": True, "leafModels": models, **tree}}
    if content is not None:
        spec["kubeconfig"] = base64.b64encode(content.encode()).decode()
    return cluster.put(
        (CLUSTERS.resource, "", name),
        {
            "apiVersion": "kosmos.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
            },
            "spec": spec,
        },
    )


class Network:
    """
    Clusters by the URLs of their servers, for who makes clients of them.

    :ivar seen: configurations that clients were made of, or have since come to.
    """

    def __init__(self) -> None:
        self.clusters: dict[str, MemoryCluster] = {}
        self.seen: list[ClientConfig] = []

    def add(self, server: str = "https://leaf.example:6443") -> MemoryCluster:
        """Another cluster."""
        self.clusters[server] = cluster = memory_cluster()
        return cluster

    def make(self, credentials: LateCredentials) -> KubeClient:
        """See :data:`~twisted_exec.kube.client.MakeKubeClient`."""
        return CredentialedClient(credentials, self._client)  # type: ignore[return-value]

    def _client(self, config: ClientConfig) -> IKubeClient:
        if not self.seen or config != self.seen[-1]:
            self.seen.append(config)
        return self.clusters[config.server].client()

"""
Two clusters in memory whose Pods are followed, and a leaf's kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.nodeserver.support import CLUSTERS, OWNER, PODS, SimpleLeaf, SimpleLeaves, SimpleRootPods
from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.kinds.leases import LEASES
from twisted_exec.api.kinds.namespaces import NAMESPACES
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.interfaces import LeafNode, LeafPod
from twisted_exec.nodeserver.syncer.leaf_pods import CONFIG_MAPS
from twisted_exec.testing.cluster import MemoryCluster

MAPS = Kind(resource=CONFIG_MAPS, singular="configmap")


def graceful_cluster() -> MemoryCluster:
    """A cluster whose Pods end only when their kubelet says so."""
    cluster = MemoryCluster((PODS, NODES, SECRETS, MAPS, NAMESPACES, EVENTS, LEASES, CLUSTERS))
    cluster.graceful.add(PODS.resource)
    return cluster


class LiveRoots(SimpleRootPods):
    """Tells what happens to them."""

    def __init__(self, cluster: MemoryCluster, nodes: Iterable[str]) -> None:
        super().__init__(cluster, nodes)
        self._seen: dict[str, Object] = {}
        self.on_their_way = cluster.client().watch(PODS.resource, self._event, resource_version="1")

    def by_uid(self, uid: str) -> Object | None:
        pod = self._seen.get(uid)
        return pod if pod and pod["spec"].get("nodeName") in self.nodes else None

    def on(self, nodes: Iterable[str] = ()) -> list[Object]:
        names = set(nodes) or self.nodes
        return [pod for pod in self._seen.values() if pod["spec"].get("nodeName") in names]

    def _event(self, kind: str, pod: Object) -> None:
        if pod["spec"].get("nodeName") not in self.nodes:
            return
        uid = pod["metadata"]["uid"]
        before = self._seen.pop(uid, None)
        if kind == "DELETED":
            self.tell(before or pod, None)
        else:
            self._seen[uid] = pod
            self.tell(before, pod)


class LiveLeaf(SimpleLeaf):
    """Tells what happens to its Pods; finds those by their owner whatever their name is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._held: dict[str, Object] = {}
        self.watching = self.cluster.client().watch(
            PODS.resource, self._event, resource_version="1"
        )

    def _event(self, kind: str, pod: Object) -> None:
        owner = (pod["metadata"].get("annotations") or {}).get(OWNER)
        if owner:
            uid = pod["metadata"]["uid"]
            self._held.pop(uid, None)
            if kind != "DELETED":
                self._held[uid] = pod
            for each in list(self.followers):
                each(owner)

    def _own(self) -> list[Object]:
        return list(self._held.values())

    async def _pod(self, root: Object) -> Any:
        uid = root["metadata"]["uid"]
        for pod in self._held.values():
            metadata = pod["metadata"]
            if metadata["annotations"][OWNER] == uid:
                return LeafPod(self, metadata["namespace"], metadata["name"], root, pod)
        return await super()._pod(root)


def pair(
    *nodes: LeafNode, make: Callable[..., LiveLeaf] = LiveLeaf
) -> tuple[LiveRoots, SimpleLeaves, LiveLeaf]:
    """A root, and one leaf behind its Nodes."""
    nodes = nodes or (LeafNode("leaf-one", "one"),)
    roots = LiveRoots(graceful_cluster(), [node.name for node in nodes])
    config = ClientConfig("https://leaf.example:6443", token="secret")
    leaf = make("one", graceful_cluster(), config, nodes, roots=roots)
    return roots, SimpleLeaves(leaf), leaf


class LeafKubelet:
    """Runs the Pods of a leaf at once, and ends those that are to end."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster, self._client = cluster, cluster.client()

    def work(self) -> int:
        """Do what is to be done now; how much that was."""
        done = 0
        for key, pod in list(self._cluster.objects.items()):
            if key[0] != PODS.resource:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self._client.delete(PODS.resource, key[2], key[1], grace_seconds=0)
                done += 1
            elif not pod["spec"].get("nodeName"):
                bound = {**pod, "spec": {**pod["spec"], "nodeName": "worker-1"}}
                self._cluster.put(key, bound)
                done += 1
            elif not pod.get("status"):
                self._cluster.put(key, {**pod, "status": running(pod)})
                done += 1
        return done


def running(pod: Object) -> Object:
    """The status of a Pod that runs."""
    return {
        "phase": "Running",
        "hostIP": "192.0.2.10",
        "podIP": "10.1.0.7",
        "podIPs": [{"ip": "10.1.0.7"}],
        "startTime": "2026-01-01T00:00:01Z",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}
        ],
        "containerStatuses": [
            {
                "name": each["name"],
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:02Z"}},
            }
            for each in pod["spec"]["containers"]
        ],
    }

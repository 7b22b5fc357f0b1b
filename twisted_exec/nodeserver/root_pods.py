"""
The Pods of the root that are bound to our Nodes.

Few Nodes have a watch each (``spec.nodeName``), so the root's API server sends nothing about other
Nodes; with many, one watch of all scheduled Pods is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from sys import intern
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout, NotFound
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.late_credentials import REFUSAL_CODES
from twisted_exec.nodeserver.interfaces import ILeaves, IRootPods, LeafNode
from twisted_exec.nodeserver.pod_fields import trim_root_pod
from twisted_exec.nodeserver.shared_parts import SharedParts

MAX_NODE_WATCHES = 16
ASK_SECONDS = 5.0
"""Timeout for requesting one Pod from the root."""
SETTLE_SECONDS = 0.5
"""Delay before the Pods of new leaves are read, because leaves appear in bulk."""
_ALL = ""


def node_of(pod: Object) -> str:
    """Return the Node of a Pod; empty for an unscheduled Pod."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


@implementer(IRootPods)
class RootPods:
    """
    The Pods on our Nodes, as last seen.

    :param client: of the root; it may ``get``, ``list`` and ``watch`` Pods of all namespaces.
    """

    def __init__(self, client: IKubeClient, clock: IReactorTime) -> None:
        self._client, self._clock = client, clock
        self._leaves: ILeaves | None = None
        self._unfollow: Callable[[], None] = lambda: None
        self._nodes: frozenset[str] = frozenset()
        self._leaf_nodes: Mapping[str, LeafNode] = {}  # by the same names as _nodes
        self._sources: dict[str, Reflector] = {}
        self._pods: dict[Key, Object] = {}
        self._by_uid: dict[str, Key] = {}
        self._by_node: dict[str, set[Key]] = {}
        self._followers = Listeners("the root's Pods")
        self._looking: IDelayedCall | None = None
        self._stopping = StoppingParts()
        self._shared = SharedParts()
        self._looked = False

    @property
    def synced(self) -> bool:
        if not self._looked or self._leaves is None or not self._leaves.synced:
            return False
        # The Pods on a new Node are not read yet. A copy that claimed to be complete would make
        # their Pods in the leaf look like orphans.
        if not self._are_known(self._leaves.nodes()):
            return False
        return all(source.synced for source in self._sources.values())

    def _are_known(self, nodes: Mapping[str, LeafNode]) -> bool:
        if nodes is not self._leaf_nodes and nodes.keys() == self._nodes:
            self._leaf_nodes = nodes
        return nodes is self._leaf_nodes

    @property
    def problem(self) -> str:
        return next((each.problem for each in self._sources.values() if each.problem), "")

    def start(self, leaves: ILeaves) -> None:
        self._leaves = leaves
        self._unfollow = leaves.follow(self._nodes_changed)
        self._look()

    def stop(self) -> Deferred[Any]:
        """Stop all watches; fires when none is left."""
        self._unfollow()
        self._leaves = None
        if self._looking is not None and self._looking.active():
            self._looking.cancel()
        for source in self._sources.values():
            self._stopping.add(source.stop())
        return self._stopping.over()

    def get(self, namespace: str, name: str, uid: str = "") -> Deferred[Object]:
        pod = self.seen(namespace, name)
        if pod is not None and uid in ("", pod["metadata"].get("uid")):
            return succeed(pod)
        return Deferred.fromCoroutine(self._request_pod(namespace, name, uid))

    def seen(self, namespace: str, name: str) -> Object | None:
        return self._pods.get((namespace, name))

    def by_uid(self, uid: str) -> Object | None:
        key = self._by_uid.get(uid)
        return None if key is None else self._pods.get(key)

    def on(self, nodes: Iterable[str] = ()) -> Sequence[Object]:
        names = list(dict.fromkeys(nodes))
        if not names:
            return list(self._pods.values())
        return [self._pods[key] for node in names for key in self._by_node.get(node, ())]

    def follow(self, changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        return self._followers.add(changed)

    async def _request_pod(self, namespace: str, name: str, uid: str) -> Object:
        asking = self._client.get(PODS.resource, name, namespace)
        try:
            pod = trim_root_pod(await asking.addTimeout(ASK_SECONDS, self._clock))
        except TimeoutError:
            raise GatewayTimeout(
                f'the root cluster did not answer for pod "{namespace}/{name}" within '
                f"{ASK_SECONDS:g} seconds"
            ) from None
        except APIError as refused:
            if refused.code == NotFound.code:
                raise NotFound("pods", name) from None
            if refused.code in REFUSAL_CODES:
                message = (
                    f"the root cluster does not let this node server read pods: {refused.message}"
                )
                raise BadGateway(message) from None
            raise
        if uid not in ("", pod["metadata"].get("uid")):
            raise NotFound("pods", name)
        return pod

    def _nodes_changed(self) -> None:
        if self._looking is None or not self._looking.active():
            self._looking = self._clock.callLater(SETTLE_SECONDS, self._look)

    def _look(self) -> None:
        if self._leaves is None:
            return
        self._leaf_nodes = self._leaves.nodes()
        nodes, previous = frozenset(self._leaf_nodes), self._nodes
        self._nodes, self._looked = nodes, self._leaves.synced
        watched: Collection[str] = nodes if len(nodes) <= MAX_NODE_WATCHES else (_ALL,)
        # The copy lacks the Pods of a new Node, so all must be listed again.
        anew = _ALL in watched and not nodes <= previous
        for node in [each for each in self._sources if anew or each not in watched]:
            self._stopping.add(self._sources.pop(node).stop())
        for key in [key for node in previous - nodes for key in self._by_node.get(node, ())]:
            self._drop(key)
        for node in watched:
            if node not in self._sources:
                self._sources[node] = self._follow_node(node)

    def _follow_node(self, node: str) -> Reflector:
        source = Reflector(
            self._client,
            PODS.resource,
            self._clock,
            field_selector=f"spec.nodeName={node}" if node else "spec.nodeName!=",
            on_change=self._changed,
            trim=self._trimmed,
        )
        source.when_synced().addCallback(lambda _: self._sweep(node, source))
        source.start()
        return source

    def _trimmed(self, pod: Object) -> Object:
        if node_of(pod) in self._nodes:
            existing = self._pods.get(key_of(pod))
            if existing is not None and _life(existing) == _life(pod):
                return existing  # a new Node of ours causes a complete list anyway
            return trim_root_pod(pod, self._shared)
        metadata = pod["metadata"]
        reduced = {key: metadata[key] for key in ("namespace", "name", "uid") if key in metadata}
        return {"metadata": reduced, "spec": {"nodeName": intern(node_of(pod))}}

    def _sweep(self, node: str, source: Reflector) -> None:
        """
        Remove Pods that a new list lacks, because no watch event reports deletions from before the
        list.
        """
        if self._sources.get(node) is not source:
            return
        keys = self._by_node.get(node, ()) if node else self._pods
        for key in [key for key in keys if source.get(key[1], key[0]) is None]:
            self._drop(key)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None and node_of(after) in self._nodes:
            self._put(after)
        elif before is not None:
            existing = self._pods.get(key_of(before))
            if existing is not None and _uid(existing) == _uid(before):
                self._drop(key_of(before))

    def _put(self, pod: Object) -> None:
        key = key_of(pod)
        before = self._pods.get(key)
        if before is not None and _uid(before) != _uid(pod):
            self._drop(key)
            before = None
        if before == pod:
            return
        self._pods[key] = pod
        self._by_uid[_uid(pod)] = key
        if before is not None and node_of(before) != node_of(pod):
            self._off_node(key, node_of(before))
        self._by_node.setdefault(node_of(pod), set()).add(key)
        self._followers.tell(before, pod)

    def _drop(self, key: Key) -> None:
        before = self._pods.pop(key, None)
        if before is None:
            return
        self._by_uid.pop(_uid(before), None)
        self._off_node(key, node_of(before))
        self._followers.tell(before, None)

    def _off_node(self, key: Key, node: str) -> None:
        keys = self._by_node[node]
        keys.discard(key)
        if not keys:
            del self._by_node[node]


def _life(pod: Object) -> tuple[str, str]:
    return _uid(pod), str(pod["metadata"].get("resourceVersion", ""))


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid", ""))

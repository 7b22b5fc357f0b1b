"""Keep one Node and its Lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE, NODES
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.api.times import timestamp
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import QueueMetrics
from twisted_exec.control.queue import Again
from twisted_exec.kube.heartbeat_lease import Lease
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.nodes import status as leaf_nodes
from twisted_exec.nodeserver.nodes.address_conflict import AddressConflict
from twisted_exec.nodeserver.nodes.addresses import (
    Address,
    addresses_of,
    not_chosen,
    publication_order,
)
from twisted_exec.nodeserver.nodes.conditions import (
    EXEC_READY,
    LEAF,
    NOT_PROBED,
    PREFERRED,
    UNPROBED,
    NodeObservation,
    conditions,
)
from twisted_exec.nodeserver.nodes.plan import (
    FULL,
    Action,
    Create,
    DesiredNode,
    NodePlan,
    Patch,
    PatchNodeStatus,
    contested,
    plan,
    writers,
)
from twisted_exec.nodeserver.nodes.probe import LeafWatch, RootProbe, probe_loop

BEAT_SECONDS = 10.0
TELL_SECONDS = 300.0
"""Interval of status updates without changes."""
"""Pause after a look failed with an unexpected exception."""
SOON_SECONDS = 0.1
SETTLE_SECONDS = 1.0
"""
Delay of the first probe of a Node: the copy of the root's API server, by which it dials, may be a
moment old.
"""


@dataclass(frozen=True)
class PublishedEndpoint:
    """
    Addresses and features that our Nodes publish.

    :param keeper: namespace/name of the Lease of the set of replicas.
    :param preferred: ``--kubelet-preferred-address-types`` of the root.
    """

    own: Sequence[Address]
    port: int
    keeper: str = "kube-system/exec-nodeserver"
    preferred: Sequence[str] = ADDRESS_TYPES
    address_types: Sequence[str] = ADDRESS_TYPES
    features: Sequence[str] = ()
    ready_when: str = LEAF
    upkeep: str = FULL


@dataclass(frozen=True)
class NodeContext:
    """
    Collaborators of every node worker.

    :param now: seconds since the epoch.
    """

    client: IKubeClient
    clock: IReactorTime
    now: Callable[[], float]
    published: PublishedEndpoint
    root: RootProbe
    writing: DeferredSemaphore
    probing: DeferredSemaphore
    observed: Callable[[str], Object | None]
    leaf: Callable[[str], LeafWatch]
    family: Callable[[], int]
    record: Callable[[Object, str, str, str], None]
    metrics: QueueMetrics | None = None


class NodeWorker:
    """Keeps one Node."""

    _log = Logger()

    def __init__(self, context: NodeContext, node: LeafNode) -> None:
        self.node, self.problem = node, "the node was not examined yet"
        self._context, self._clock, self._published = context, context.clock, context.published
        self.way: ConditionValue = UNPROBED
        self._contest = AddressConflict(len(self._published.own))
        self._reported_at = self._clock.seconds() - TELL_SECONDS
        self._uid = self._address_told = self._closed = ""
        self._is_ours = False
        self._features_known = True
        self._loop = PokedLoop(
            self._look,
            self._clock,
            BEAT_SECONDS,
            soon_seconds=SOON_SECONDS,
            refused=self._refused,
            backoff=lambda: Backoff(longest_seconds=BEAT_SECONDS),
            metrics=context.metrics,
        )
        namespace = LEASE_NAMESPACE if self._published.upkeep == FULL else ""
        self.lease = Lease(context.client, namespace, node.name, context.now, holder=node.name)
        self._renewing = probe_loop(self._renew, self._clock, context.writing, BEAT_SECONDS)
        self._looking = probe_loop(self._probe_from_root, self._clock, context.probing)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        parts = (self._loop, self._looking, self._renewing)
        return DeferredList([each.stop() for each in parts])

    def poke(self) -> None:
        """Look soon: something has changed."""
        self._loop.poke()

    async def _look(self) -> None:
        observed = self._context.observed(self.node.name)
        if observed is not None and self._contest.observe(observed, self._clock.seconds()):
            self._report_conflict(observed)
        desired = self.desired()
        beat = self._clock.seconds() - self._reported_at >= TELL_SECONDS
        planned = plan(desired, observed, timestamp(self._context.now()), beat=beat)
        if planned.problem:
            self._give_up(planned.problem, observed)
            return
        self._report_address(observed, desired)
        self._report_ready(desired)
        try:
            await self._context.writing.run(
                lambda: Deferred.fromCoroutine(self._do(planned, observed))
            )
        except Conflict:  # the watch will deliver the newer Node
            raise Again from None
        self._note_success(planned)

    async def _do(self, planned: NodePlan, observed: Object | None) -> None:
        node = observed
        for action in planned.actions:
            node = await self._act(action, node)
        if node is not None:
            self._uid = str(node["metadata"].get("uid", ""))
        if planned.adopts and node is not None:
            message = f"kept by the node server {self._published.keeper} from now on"
            self._context.record(node, "Normal", "NodeTakenOver", message)

    async def _act(self, action: Action, node: Object | None) -> Object:
        client, name = self._context.client, self.node.name
        if isinstance(action, Create):
            return await client.create(NODES.resource, action.node)
        assert node is not None
        version = node["metadata"]["resourceVersion"]
        if isinstance(action, Patch):
            # The version: the answer is the base of the patch of the status that follows.
            metadata = {**action.patch["metadata"], "resourceVersion": version}
            return await client.patch(NODES.resource, name, {"metadata": metadata})
        # A merge patch replaces lists: the version keeps it from dropping a condition that another writer
        # just added.
        patch = {"metadata": {"resourceVersion": version}, "status": action.status}
        stored = await client.patch(NODES.resource, name, patch, subresource="status")
        self._contest.wrote(stored, version)
        self._note_written(action, stored)
        return stored

    def _note_written(self, action: PatchNodeStatus, stored: Object) -> None:
        if "conditions" in action.status:
            self._reported_at = self._clock.seconds()
        fields_declared, there = action.status.get("declaredFeatures"), stored.get("status") or {}
        if fields_declared and not there.get("declaredFeatures"):
            self._features_known = False
            message = (
                "the root does not know declaredFeatures (Kubernetes 1.35 has them): not declared"
            )
            self._context.record(stored, "Warning", "FeaturesNotKnown", message)

    def desired(self) -> DesiredNode:
        published, watch = self._published, self._context.leaf(self.node.leaf)
        nodes = leaf_nodes.stood_for(self.node, watch.nodes)
        addresses = self._addresses(nodes)
        observation = NodeObservation(
            self.way,
            watch.result.ready,
            watch.result.allowed,
            not_chosen(addresses, published.own, published.preferred),
            watch.result.silent_seconds,
        )
        info = leaf_nodes.node_info(self.node, nodes, watch.result.version)
        fields: Object = {
            "nodeInfo": info,
            "declaredFeatures": list(published.features) if self._features_known else [],
        }
        if self._clock.seconds() >= self._contest.quiet_until:
            fields["addresses"] = [
                {"type": kind, "address": address} for kind, address in addresses
            ]
            fields["daemonEndpoints"] = {"kubeletEndpoint": {"Port": published.port}}
        are_known = watch.nodes.synced
        if are_known:
            fields["capacity"] = leaf_nodes.capacity(nodes)
            fields["allocatable"] = leaf_nodes.allocatable(nodes)
        reported = conditions(observation, nodes if are_known else None, published.ready_when)
        labels = leaf_nodes.labels(self.node, info)
        own = len(published.own)
        return DesiredNode(
            self.node, published.keeper, fields, reported, published.upkeep, labels, own
        )

    def _addresses(self, nodes: Sequence[Object]) -> list[Address]:
        """
        Return the addresses to publish; of several nodes of the leaf those of the first, as in
        Kosmos.
        """
        first = addresses_of(nodes[0]) if nodes else []
        shared = [each for each in first if each[0] in self._published.address_types]
        return publication_order(self._published.own, shared, self._context.family())

    def _note_success(self, planned: NodePlan) -> None:
        if self.problem:
            self._log.info("node {name} is registered", name=self.node.name)
            self.problem = ""
        # API servers drop the status of an object that is created; it is written next.
        if not self._is_ours and not any(isinstance(each, Create) for each in planned.actions):
            self._is_ours = True
            self._renewing.start()
            self._looking.start(SETTLE_SECONDS)

    def _refused(self, error: APIError, failures: int) -> None:
        if error.message != self.problem:
            self._log.warn("node {name}: {why}", name=self.node.name, why=error.message)
        self.problem = error.message

    def _give_up(self, problem: str, observed: Object | None) -> None:
        if self._is_ours:
            self._is_ours = False
            self._renewing.stop()
            self._looking.stop()
        if problem == self.problem:
            return
        self.problem = problem
        self._log.warn("{why}", why=problem)
        if observed is not None and not observed["metadata"].get("deletionTimestamp"):
            self._context.record(observed, "Warning", "NodeNotOurs", problem)

    def _report_address(self, observed: Object | None, desired: DesiredNode) -> None:
        status, _, message = desired.conditions[PREFERRED]
        warning = message if status == "False" else ""
        if observed is None or self.way[1] == NOT_PROBED:
            return
        if warning and warning != self._address_told:
            self._log.warn("node {name}: {why}", name=self.node.name, why=warning)
            self._context.record(observed, "Warning", "AddressNotPreferred", warning)
        self._address_told = warning

    def _report_ready(self, desired: DesiredNode) -> None:
        status, reason, message = desired.conditions[EXEC_READY]
        if status == "Unknown" or desired.conditions[PREFERRED][0] == "False":
            return
        if status == "False" and reason != self._closed:
            self._log.warn(
                "node {name}: no stream can be opened: {why}", name=self.node.name, why=message
            )
        elif status == "True" and self._closed:
            self._log.info("node {name}: streams can be opened again", name=self.node.name)
        self._closed = reason if status == "False" else ""

    def _report_conflict(self, observed: Object) -> None:
        others = ", ".join(writers(observed, PROGRAM)) or "somebody else"
        what = contested(observed.get("status") or {}, self._published.own, self._published.port)
        message = f"{others} and this node server write {what}; or set --upkeep=none here"
        self._log.warn("node {name}: {why}", name=self.node.name, why=message)
        self._context.record(observed, "Warning", "AddressesContested", message)

    async def _renew(self) -> None:
        resource = NODES.resource
        owner = {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.lease.renew({**owner, "name": self.node.name, "uid": self._uid})

    async def _probe_from_root(self) -> None:
        own = self._published.own[0] if self._published.own else None
        self.way = await self._context.root.look(self.node.name, own, self._published.port)
        self.poke()

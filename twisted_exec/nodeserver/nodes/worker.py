"""
One Node that we keep, and its Lease.

A worker looks every ten seconds, and whenever the Node, the leaf's nodes or something that was found
out has changed; it asks :mod:`.node_plan` what to do, and does it.  What is as it is to be costs no
request but the Lease's; the status is told anew every five minutes all the same, as kubelets do.
Writes name the version that they were decided on: whoever changed the Node meanwhile is not
overwritten, the Node is looked at again.

Who is wrong about addresses and port is corrected; for who corrects us in turn see :mod:`.contest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE, NODES
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.api.times import timestamp
from twisted_exec.kube.heartbeat import Lease
from twisted_exec.kube.informers.reflector import Backoff
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.nodes import leaf_nodes
from twisted_exec.nodeserver.nodes.address_conflict import AddressConflict
from twisted_exec.nodeserver.nodes.addresses import Address, addresses_of, not_chosen, published
from twisted_exec.nodeserver.nodes.conditions import (
    EXEC_READY,
    LEAF,
    NOT_PROBED,
    PREFERRED,
    UNPROBED,
    Observation,
    conditions,
)
from twisted_exec.nodeserver.nodes.plan import (
    FULL,
    Action,
    Create,
    Patch,
    PatchStatus,
    Plan,
    Wanted,
    contested,
    plan,
    writers,
)
from twisted_exec.nodeserver.nodes.probe import RootProbe
from twisted_exec.nodeserver.nodes.probe_loop import LeafWatch, Repeated
from twisted_exec.program.tasks import Running

BEAT_SECONDS = 10.0
TELL_SECONDS = 300.0
"""A status that has not changed is told again so often."""
FAILED_SECONDS = 300.0
"""Until a Node is looked at again of which a look failed in a way that nobody thought of."""
SOON_SECONDS = 0.1
SETTLE_SECONDS = 1.0
"""A root's API server dials what a copy of its own says, which may be a moment old."""


@dataclass(frozen=True)
class PublishedEndpoint:
    """
    What all our Nodes say of us.

    :param own: where the root is to reach us.
    :param port: published.
    :param keeper: namespace and name of the Lease by which one of the replicas is elected.
    :param preferred: ``--kubelet-preferred-address-types`` of the root.
    :param address_types: types of the leaf's addresses that its Node publishes.
    :param features: that are declared (``status.declaredFeatures``).
    :param ready_when: one of :data:`~twisted_exec.nodeserver.nodes.conditions.POLICIES`.
    :param upkeep: ``full`` or ``endpoints``.
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
class Around:
    """
    What the workers of all Nodes share.

    :param writing: slots of those who write, and ``probing`` of those who look.
    :param now: seconds since the epoch.
    :param observed: a Node of the root by its name, as last seen.
    :param leaf: what is known of a leaf by its name.
    :param family: the IP family that the root prefers.
    :param record: tells an Event about a Node: its type, reason and message.
    """

    client: IKubeClient
    clock: Any
    now: Callable[[], float]
    face: PublishedEndpoint
    root: RootProbe
    writing: DeferredSemaphore
    probing: DeferredSemaphore
    observed: Callable[[str], Object | None]
    leaf: Callable[[str], LeafWatch]
    family: Callable[[], int]
    record: Callable[[Object, str, str, str], None]


class NodeWorker(Running):
    """
    Keeps one Node.

    :ivar problem: why it is not as it is to be, or empty.
    """

    _log = Logger()

    def __init__(self, around: Around, node: LeafNode) -> None:
        self.node, self.problem = node, "nobody has looked yet"
        self._around, self._clock, self._face = around, around.clock, around.face
        self.way: ConditionValue = UNPROBED
        self._contest = AddressConflict(len(self._face.own))
        self._reported_at = self._clock.seconds() - TELL_SECONDS
        self._uid = self._address_told = self._closed = ""
        self._is_ours = False
        self._features_known = True
        self._backoff = Backoff(longest_seconds=BEAT_SECONDS)
        self._timer: IDelayedCall | None = None
        self._poked = False
        namespace = LEASE_NAMESPACE if self._face.upkeep == FULL else ""
        self.lease = Lease(around.client, namespace, node.name, around.now, holder=node.name)
        self._renewing = Repeated(self._renew, self._clock, around.writing, BEAT_SECONDS)
        self._looking = Repeated(self._look_from_root, self._clock, around.probing)

    def start(self) -> None:
        """Begin to keep it."""
        self._begin(self._run())

    def stop(self) -> Deferred[None]:
        """Fires when nothing is under way; the Node stays as it is."""
        return Deferred.fromCoroutine(self._stop(super().stop()))

    async def _stop(self, running: Deferred[None]) -> None:
        for ending in (running, self._looking.stop(), self._renewing.stop()):
            await ending

    def poke(self) -> None:
        """Something has changed: look soon."""
        self._poked = True
        timer = self._timer
        if timer is None or not timer.active() or self.problem:
            return  # it will look anyway, or has to wait
        if timer.getTime() - self._clock.seconds() > SOON_SECONDS:
            timer.reset(SOON_SECONDS)

    async def _run(self) -> None:
        while True:
            self._poked = False
            try:
                pause = await self._look()
            except CancelledError:
                raise
            except Exception:  # a bug; the next look may be about something else
                self.problem = "keeping the node failed; see the log"
                self._log.failure("keeping node {name} failed", name=self.node.name)
                pause = FAILED_SECONDS
            await self._sleep(pause if self.problem or not self._poked else SOON_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        sleeping: Deferred[None] = Deferred(lambda _: timer.cancel())
        timer = self._timer = self._clock.callLater(seconds, sleeping.callback, None)
        await sleeping

    async def _look(self) -> float:
        """Plan and act once; :return: when to look again, in seconds."""
        observed = self._around.observed(self.node.name)
        if observed is not None and self._contest.is_reported(observed, self._clock.seconds()):
            self._tell_contest(observed)
        desired = self.wanted()
        beat = self._clock.seconds() - self._reported_at >= TELL_SECONDS
        planned = plan(desired, observed, timestamp(self._around.now()), beat=beat)
        if planned.problem:
            self._give_up(planned.problem, observed)
            return BEAT_SECONDS
        self._tell_address(observed, desired)
        self._tell_ready(desired)
        try:
            await self._around.writing.run(
                lambda: Deferred.fromCoroutine(self._do(planned, observed))
            )
        except APIError as error:
            if error.code == Conflict.code:  # the copy will have it in a moment
                return SOON_SECONDS + self._backoff.pause()
            self._failed(error)
            return max(self._backoff.pause(), float(error.retry_after_seconds or 0))
        self._kept(planned)
        return BEAT_SECONDS

    async def _do(self, planned: Plan, observed: Object | None) -> None:
        node = observed
        for action in planned.actions:
            node = await self._act(action, node)
        if node is not None:
            self._uid = str(node["metadata"].get("uid", ""))
        if planned.adopts and node is not None:
            message = f"kept by the node server {self._face.keeper} from now on"
            self._around.record(node, "Normal", "NodeTakenOver", message)

    async def _act(self, action: Action, node: Object | None) -> Object:
        client, name = self._around.client, self.node.name
        if isinstance(action, Create):
            return await client.create(NODES.resource, action.node)
        if isinstance(action, Patch):
            return await client.patch(NODES.resource, name, action.patch)
        assert node is not None
        # Lists are replaced whole: whoever added a condition meanwhile is to keep it.
        version = node["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": action.status}
        stored = await client.patch(NODES.resource, name, patch, subresource="status")
        self._contest.wrote(stored, version)
        self._note_written(action, stored)
        return stored

    def _note_written(self, action: PatchStatus, stored: Object) -> None:
        if "conditions" in action.status:
            self._reported_at = self._clock.seconds()
        fields_declared, there = action.status.get("declaredFeatures"), stored.get("status") or {}
        if fields_declared and not there.get("declaredFeatures"):
            self._features_known = False
            message = (
                "the root does not know declaredFeatures (Kubernetes 1.35 has them): not declared"
            )
            self._around.record(stored, "Warning", "FeaturesNotKnown", message)

    def wanted(self) -> Wanted:
        """What the Node is to be, by what is known now."""
        face, watch = self._face, self._around.leaf(self.node.leaf)
        nodes = leaf_nodes.stood_for(self.node, watch.nodes)
        addresses = self._addresses(nodes)
        observation = Observation(
            self.way,
            watch.result.ready,
            watch.result.allowed,
            not_chosen(addresses, face.own, face.preferred),
            watch.result.silent_seconds,
        )
        info = leaf_nodes.node_info(self.node, nodes, watch.result.version)
        fields: Object = {
            "nodeInfo": info,
            "declaredFeatures": list(face.features) if self._features_known else [],
        }
        if self._clock.seconds() >= self._contest.quiet_until:
            fields["addresses"] = [
                {"type": kind, "address": address} for kind, address in addresses
            ]
            fields["daemonEndpoints"] = {"kubeletEndpoint": {"Port": face.port}}
        are_known = watch.nodes.synced
        if are_known:
            fields["capacity"] = leaf_nodes.capacity(nodes)
            fields["allocatable"] = leaf_nodes.allocatable(nodes)
        reported = conditions(observation, nodes if are_known else None, face.ready_when)
        labels = leaf_nodes.labels(self.node, info)
        own = len(face.own)
        return Wanted(self.node, face.keeper, fields, reported, face.upkeep, labels, own)

    def _addresses(self, nodes: Sequence[Object]) -> list[Address]:
        """Of several nodes of the leaf the first one's are shown, as Kosmos does."""
        first = addresses_of(nodes[0]) if nodes else []
        shared = [each for each in first if each[0] in self._face.address_types]
        return published(self._face.own, shared, self._around.family())

    def _kept(self, planned: Plan) -> None:
        self._backoff.reset()
        if self.problem:
            self._log.info("node {name} is kept", name=self.node.name)
            self.problem = ""
        # An API server may drop the status of what it makes; it is written next, then.
        if not self._is_ours and not any(isinstance(each, Create) for each in planned.actions):
            self._is_ours = True
            self._renewing.start()
            self._looking.start(SETTLE_SECONDS)

    def _failed(self, error: APIError) -> None:
        if error.message != self.problem:
            self._log.warn("node {name}: {why}", name=self.node.name, why=error.message)
        self.problem = error.message

    def _give_up(self, problem: str, observed: Object | None) -> None:
        """It is not ours to keep, or not now; told once."""
        if self._is_ours:
            self._is_ours = False
            self._renewing.stop()
            self._looking.stop()
        if problem == self.problem:
            return
        self.problem = problem
        self._log.warn("{why}", why=problem)
        if observed is not None and not observed["metadata"].get("deletionTimestamp"):
            self._around.record(observed, "Warning", "NodeNotOurs", problem)

    def _tell_address(self, observed: Object | None, desired: Wanted) -> None:
        """Whom the root would dial instead; the root itself is asked before."""
        status, _, message = desired.conditions[PREFERRED]
        told = message if status == "False" else ""
        if observed is None or self.way[1] == NOT_PROBED:
            return
        if told and told != self._address_told:
            self._log.warn("node {name}: {why}", name=self.node.name, why=told)
            self._around.record(observed, "Warning", "AddressNotPreferred", told)
        self._address_told = told

    def _tell_ready(self, desired: Wanted) -> None:
        """Why no stream can be opened; an address that is not preferred was told already."""
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

    def _tell_contest(self, observed: Object) -> None:
        others = ", ".join(writers(observed, PROGRAM)) or "somebody else"
        what = contested(observed.get("status") or {}, self._face.own, self._face.port)
        message = f"{others} and this node server write {what}; or run us with --upkeep=none"
        self._log.warn("node {name}: {why}", name=self.node.name, why=message)
        self._around.record(observed, "Warning", "AddressesContested", message)

    async def _renew(self) -> None:
        resource = NODES.resource
        owner = {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.lease.renew({**owner, "name": self.node.name, "uid": self._uid})

    async def _look_from_root(self) -> None:
        own = self._face.own[0] if self._face.own else None
        self.way = await self._around.root.look(self.node.name, own, self._face.port)
        self.poke()

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("keeping node {name} ended", failure, name=self.node.name)

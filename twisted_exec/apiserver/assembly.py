"""
The parts of an API server, joined; nothing here listens or opens a file.

What it stands on is given: rights, namespaces and the like are its own
(:mod:`twisted_exec.apiserver.standalone`) or those of the API server that it is behind
(:mod:`twisted_exec.apiserver.aggregated`).
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.kinds import Kind
from twisted_exec.apiserver.consoles.connect import (
    Backend,
    LogLocator,
    MachineLocator,
    add_consoles,
    add_logs,
)
from twisted_exec.apiserver.consoles.endings import PODS_OF_NODES, ObjectEndings, Workload
from twisted_exec.apiserver.consoles.sessions import SessionObjects, SessionVerbs
from twisted_exec.apiserver.controllers.heartbeats import PoolHeartbeats
from twisted_exec.apiserver.controllers.leader_election import LeaderElectedServices
from twisted_exec.apiserver.controllers.scheduler import Scheduler
from twisted_exec.apiserver.interfaces import IAdmission, IOpeningAdmission
from twisted_exec.apiserver.machine_pods.conversion import PodNames
from twisted_exec.apiserver.machine_pods.storage import PodStorage
from twisted_exec.apiserver.machine_pods.streams import (
    MachineOfPod,
    PodLocator,
    add_pod_consoles,
    add_refusals,
)
from twisted_exec.apiserver.node_pods.kubelets import Kubelets
from twisted_exec.apiserver.node_pods.streams import NodeProxyLocator, add_node_pods, add_node_proxy
from twisted_exec.apiserver.node_pods.verbs import Bindings, NodePodVerbs
from twisted_exec.apiserver.restriction.restrictions import RestrictedAuthorizer, Restrictions
from twisted_exec.apiserver.serving.filters import Limits
from twisted_exec.apiserver.serving.probes import Probes
from twisted_exec.apiserver.serving.registry import Registry
from twisted_exec.apiserver.serving.rest import REST
from twisted_exec.apiserver.serving.site import Documents
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.apiserver.serving.watch import Watches
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedRoutes
from twisted_exec.auth.gate import Gate, GatePolicy
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer
from twisted_exec.kube.leader_election.controllers import Leading
from twisted_exec.observe.audit import Trail
from twisted_exec.observe.health import Health
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.observe.metrics import SessionMetrics
from twisted_exec.storage.interfaces import IStorage, is_exclusive
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.guard import SessionGuard
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.text.download import ANY_DOWNLOADS
from twisted_exec.streaming.text.relay import Relay

REVIEW_SECONDS = 10.0
"""The host's answers, where there is one, are cached for 10 s more."""
REVIEWS_AT_ONCE = 64
"""Usually it is this server that answers; behind a host, many hops' sessions end here."""


class ControlPlane(Protocol):
    """
    What differs between a server that is alone and one that is behind another.

    :ivar storage: has what is served, and what of the surroundings is looked at.
    :ivar kinds: that are served.
    :ivar garbage_collection: a garbage collector handles the dependents of deleted objects.
    """

    storage: IStorage
    kinds: Sequence[Kind]
    garbage_collection: bool

    @property
    def authenticator(self) -> IAuthenticator:
        """Says who asks."""

    @property
    def authorizer(self) -> IAuthorizer:
        """Says what users may."""

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """Asked about each write, after the restrictions."""

    def on_permission_change(self, told: Callable[[], None]) -> None:
        """Call ``told`` whenever somebody may have lost a right."""

    def followers(
        self, registry: Registry, verbs: Verbs, reactor: Any, now: Callable[[], float]
    ) -> list[Service]:
        """
        What each server follows the store with, to be started after it.

        :param verbs: without admissions.
        """

    def acting(
        self, registry: Registry, verbs: Verbs, reactor: Any, now: Callable[[], float]
    ) -> list[Service]:
        """
        What one server keeps in order for all; anew each time that one begins to.

        :param verbs: without admissions.
        """

    def views(self) -> list[tuple[Kind, IStorage]]:
        """Kinds that show objects of another kind, each with a store that does."""

    def add_to(self, routes: GatedRoutes, gate: Gate) -> None:
        """Add what it answers besides objects."""

    def add_probes(self, health: Health) -> None:
        """Add what besides the store has to be well."""

    @property
    def client_cas(self) -> Sequence[str]:
        """Paths of the CAs whose certificates clients may show."""

    @property
    def published_cas(self) -> Callable[[], bytes] | None:
        """More of them, as PEM that may change, if there are any."""

    def load(self) -> None:
        """
        Read its files now.

        :raises TLSConfigError: one cannot be used.
        """

    async def prepare(self, verbs: Verbs) -> None:
        """
        What has to be before anything is served; the store is there.

        :param verbs: without admissions.
        """

    def close(self) -> Deferred[Any]:
        """Fires when nothing of it is open; what follows has been stopped before."""


@dataclass(frozen=True)
class Parts:
    """
    :param dispatcher: answers requests; they must be :class:`APIRequest`.
    :param followers: services that follow the store; to be started after it.
    :param leading: what one server does for all; to be started after these.
    :param verbs: without admissions, for what the server does itself.
    """

    dispatcher: GatedDispatcher
    followers: Sequence[Service]
    leading: Leading | LeaderElectedServices
    verbs: Verbs
    watches: Sequence[Watches]
    sessions: Sessions
    probes: Probes
    guard: SessionGuard


def assemble(
    control_plane: ControlPlane,
    backend: Backend,
    audit: IAuditSink,
    metrics: CollectorRegistry,
    reactor: Any,
    *,
    limits: Limits | None = None,
    now: Callable[[], float] = time.time,
    dialects: Sequence[Dialect] = (DEFAULT,),
    allowed_origins: Collection[bytes] = (),
    scheduling: bool = False,
    kubelets: Kubelets | None = None,
) -> Parts:
    """
    Join the parts.

    :param now: seconds since the epoch; a reactor's own clock may count from anywhere.
    :param dialects: whose machines there are, each once.
    :param allowed_origins: sites besides this server's own whose pages may ask.
    :param scheduling: give machines that have no pool one.
    :param kubelets: how they are reached, where Pods are those of Nodes.
    """
    storage, registry = control_plane.storage, Registry(control_plane.kinds)
    restrictions = Restrictions(registry.kinds, dialects, storage, reactor)
    authorizer = RestrictedAuthorizer(control_plane.authorizer, restrictions, storage)
    sessions = Sessions(Trail(audit, "apiserver", reactor), SessionMetrics(metrics))
    # Not a live id: our own machine may be behind the caller, and the hop before ours ends a
    # session by its id.
    policy = GatePolicy(
        allowed_origins=allowed_origins,
        accepts_session=lambda session: not sessions.has(session),
    )
    gate = Gate(control_plane.authenticator, authorizer, policy)
    guard = SessionGuard(sessions, gate, reactor, REVIEW_SECONDS, REVIEWS_AT_ONCE)
    control_plane.on_permission_change(guard.review_soon)
    workloads = [Workload.of_dialect(dialect) for dialect in dialects]
    if kubelets is not None:
        workloads.append(PODS_OF_NODES)
    admissions = [restrictions, *control_plane.admissions]
    watches, bare = [Watches(storage, reactor, now)], Verbs(storage, [], now)
    replica = f"{socket.gethostname()}/{secrets.token_hex(3)}"
    followers: list[Service] = [
        *control_plane.followers(registry, bare, reactor, now),
        *restrictions.graphs,
        ObjectEndings(storage, guard, workloads),
        SessionObjects(storage, sessions, reactor, now, replica),
        guard,
    ]

    def acting() -> list[Service]:
        found = control_plane.acting(registry, bare, reactor, now)
        found += [PoolHeartbeats(storage, dialect, reactor, now) for dialect in dialects]
        if scheduling:
            found += [Scheduler(dialect, storage, bare, reactor, now) for dialect in dialects]
        return found

    leading: Leading | LeaderElectedServices = Leading(acting)
    if not is_exclusive(storage):
        leading = LeaderElectedServices(acting, storage, bare, replica, reactor, now)
    routes, limits = GatedRoutes(), limits or Limits()
    verbs = Verbs(storage, admissions, now, garbage_collection=control_plane.garbage_collection)
    rest = REST(verbs, watches[0], gate, limits, now)
    apart = (kinds.CONSOLESESSIONS, kinds.NODE_PODS)
    for kind in registry.kinds:
        if kind.stored and not kind.kept_as and kind not in apart:
            rest.add_to(routes, kind)
    ending = SessionVerbs(storage, admissions, now)
    REST(ending, watches[0], gate, limits, now).add_to(routes, kinds.CONSOLESESSIONS)
    for kind, view in control_plane.views():
        watches.append(Watches(view, reactor, now))
        shown = REST(Verbs(view, admissions, now), watches[-1], gate, limits, now)
        shown.add_to(routes, kind)
    control_plane.add_to(routes, gate)
    health = Health(reactor)
    health.add("storage", storage.probe)
    control_plane.add_probes(health)
    probes = Probes(gate, health)
    probes.add_to(routes)
    Documents(registry, gate, metrics, probes).add_to(routes)
    proxy = partial(
        Proxy,
        hop="apiserver",
        sessions=sessions,
        clock=reactor,
        caller_of=gate.caller_of,
        credential_headers=gate.credential_headers,
        connect_seconds=backend.seconds,
        answer_seconds=backend.seconds,
    )
    relay = partial(
        Relay,
        sessions=sessions,
        clock=reactor,
        connect_seconds=backend.seconds,
        answer_seconds=backend.seconds,
    )
    openings = [each for each in admissions if IOpeningAdmission.providedBy(each)]
    places = (gate, storage, backend, reactor, openings, limits)
    locators = {dialect: MachineLocator(dialect, *places) for dialect in dialects}
    logs = {dialect: LogLocator(dialect, *places) for dialect in dialects}
    for dialect in dialects:
        add_consoles(routes, dialect, proxy(locators[dialect]))
        add_logs(routes, dialect, relay(logs[dialect]))
    if kinds.PODS in registry.kinds:
        names = PodNames(dialects)
        pods = PodStorage(storage, names)
        followers.append(pods)
        watches.append(Watches(pods, reactor, now))
        seen = REST(Verbs(pods, [], now), watches[-1], gate, limits, now)
        seen.add_to(routes, kinds.PODS)
        add_refusals(routes, names)
        streams = proxy(PodLocator(MachineOfPod(locators)))
        add_pod_consoles(routes, names, dialects, streams, relay(MachineOfPod(logs)))
    if kubelets is not None:
        running = NodePodVerbs(storage, admissions, now)
        REST(running, watches[0], gate, limits, now).add_to(routes, kinds.NODE_PODS)
        Bindings(gate, running, limits).add_to(routes)
        reached = partial(Relay, sessions=sessions, clock=reactor, connect_seconds=kubelets.seconds)
        add_node_pods(
            routes,
            partial(proxy, connect_seconds=kubelets.seconds, answer_seconds=kubelets.seconds),
            # A kubelet says nothing, not even that there is a log, before something is printed.
            partial(reached, answer_seconds=None, downloads=ANY_DOWNLOADS),
            (gate, storage, kubelets, reactor, limits),
        )
        nodes = NodeProxyLocator(gate, storage, kubelets, reactor, limits)
        figures = reached(nodes, answer_seconds=kubelets.seconds, downloads=ANY_DOWNLOADS)
        add_node_proxy(routes, figures)
    return Parts(
        dispatcher=GatedDispatcher(gate, routes, sessions),
        followers=followers,
        leading=leading,
        verbs=bare,
        watches=watches,
        sessions=sessions,
        probes=probes,
        guard=guard,
    )

"""
Assemble the parts of an API server; nothing here listens or opens a file.

The control plane is passed in: the server's own (:mod:`twisted_exec.apiserver.standalone`), or that
of its host (:mod:`twisted_exec.apiserver.aggregated`).
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT, NAMES, Dialect
from twisted_exec.api.kinds import Kind
from twisted_exec.apiserver.auditing import DEFAULT_POLICY, AuditedDispatcher, AuditPolicy, load
from twisted_exec.apiserver.consoles import texts
from twisted_exec.apiserver.consoles.admission import PolicyLabels, RecordingRules, RequestRights
from twisted_exec.apiserver.consoles.connect import (
    ConsoleRefusals,
    MachineLocator,
    add_consoles,
    add_machine_texts,
    add_retained_texts,
)
from twisted_exec.apiserver.consoles.endings import PODS_OF_NODES, ObjectEndings, Workload
from twisted_exec.apiserver.consoles.pods import (
    MachineOfPod,
    MachinePodLocator,
    add_pod_consoles,
    add_refusals,
)
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.poollets import Backend
from twisted_exec.apiserver.consoles.recordings import OpenRecordings
from twisted_exec.apiserver.consoles.sessions import SessionObjects, SessionVerbs
from twisted_exec.apiserver.controllers.console_objects import (
    DEFAULT_DAYS,
    ConsoleRecordingsController,
    ConsoleRequests,
    DeletedConsoles,
)
from twisted_exec.apiserver.controllers.event_recorder import Reports
from twisted_exec.apiserver.controllers.heartbeats import PoolHeartbeats
from twisted_exec.apiserver.controllers.leader_election import LeaderElectedServices
from twisted_exec.apiserver.controllers.scheduler import Scheduler
from twisted_exec.apiserver.interfaces import IAdmission, IOpeningAdmission, Strictness
from twisted_exec.apiserver.machine_pods import PodNames, PodStorage, is_pod, machine_attributes
from twisted_exec.apiserver.node_pods import (
    Bindings,
    Kubelets,
    NodePodLocator,
    NodePodVerbs,
    NodeProxyLocator,
    add_node_pods,
    add_node_proxy,
)
from twisted_exec.apiserver.restriction.restrictions import RestrictedAuthorizer, Restrictions
from twisted_exec.apiserver.serving.fairness import Execute, FairQueue
from twisted_exec.apiserver.serving.filters import RequestLimits
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.rest import REST
from twisted_exec.apiserver.serving.site import Documents, Probes
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.apiserver.serving.watch import Watches
from twisted_exec.auth.console_rights import (
    DELETED_LOG,
    LOG,
    RECORDING,
    SCREEN,
    ConsoleVerbs,
)
from twisted_exec.auth.gate import Gate, GatedDispatcher, GatedRoutes, GatePolicy, users_of
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.kube.leases import LeaderServices
from twisted_exec.program.audit import Trail
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.metrics import MetricsRegistry, QueueMetrics, SessionMetrics
from twisted_exec.program.options import ALLOWED_ORIGIN, CONSOLE_VERBS, OPTION, ProgramOption, days
from twisted_exec.program.tasks import SharedTurns
from twisted_exec.storage.interfaces import IStorage, is_exclusive
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.guard import SessionGuard
from twisted_exec.streaming.sessions.registry import RoundTripMetrics, Sessions
from twisted_exec.streaming.text.download import ANY_DOWNLOADS
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.web.oidc import HostedPage

REVIEW_SECONDS = 10.0
"""On an aggregated server, cached reviews of the host count for up to 10 s more."""
REVIEWS_AT_ONCE = 16
"""Standalone servers decide by themselves; behind a host, reviews of many hops' sessions meet."""

_WAIT_SECONDS = 20.0
"""Longest wait of a user for a console while many are being opened."""


def _policy(path: str) -> AuditPolicy:
    """:raises ValueError: the file is not an audit policy."""
    try:
        return load(path)
    except ConfigError as problem:
        raise ValueError(str(problem)) from None


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """
    Settings of each API server, whatever its control plane.

    :param dialects: dialects of machines, each once; Pods of the first keep the machines' names.
    :param allowed_origins: further origins of web pages that may send requests.
    :param scheduling: run the scheduler.
    :param deleted_console_days: lifetime of DeletedConsoles; 0 to create none.
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right at a console.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow.
    :param audit_policy: selects the requests that are recorded besides sessions; ``None`` for none.
    """

    dialects: Sequence[Dialect] = field(
        default=(DEFAULT,),
        metadata={
            OPTION: ProgramOption(
                "dialect",
                f"Dialect of the machines: {NAMES}; may be repeated, and then only Pods of the first "
                f"have the names of their machines.  [default: {DEFAULT}]",
                several=True,
            )
        },
    )
    allowed_origins: Collection[bytes] = field(default=(), metadata={OPTION: ALLOWED_ORIGIN})
    scheduling: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption(
                "scheduler",
                "Assign machines without a pool to one.  The default.",
                reverse="Leave scheduling to another program, such as ironcore's own.",
            )
        },
    )
    deleted_console_days: int = field(
        default=DEFAULT_DAYS,
        metadata={
            OPTION: ProgramOption(
                "deleted-console-days",
                "How long the console of a deleted machine is listed; 0 to list none.",
                days,
                group="Storage",
            )
        },
    )
    strict_verbs: bool = field(default=False, metadata={OPTION: CONSOLE_VERBS})
    sessions: SessionLimits | None = None
    audit_policy: AuditPolicy | None = field(
        default=None,
        metadata={
            OPTION: ProgramOption(
                "audit-policy-file",
                "Requests that are recorded: a Policy of audit.k8s.io/v1; by default all changes.",
                _policy,
                group="Audit log",
                convert=lambda policy: policy or DEFAULT_POLICY,
            )
        },
    )


class ControlPlane(Protocol):
    """
    The differences between a standalone and an aggregated server.

    :ivar storage: holds the served objects, and those of its surroundings that the server reads.
    :ivar kinds: the served kinds.
    :ivar garbage_collection: a garbage collector handles the dependents of deleted objects.
    """

    storage: IStorage
    kinds: Sequence[Kind]
    garbage_collection: bool

    @property
    def authenticator(self) -> IAuthenticator:
        """Authenticates requests."""

    @property
    def authorizer(self) -> IAuthorizer:
        """Authorizes users."""

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """Admission for each write, after the restrictions."""

    def on_permission_change(
        self, callback: Callable[[], None], users: Callable[[], Iterable[User]]
    ) -> None:
        """
        Call ``callback`` whenever a user may have lost a permission.

        :param users: returns the users of the open sessions.
        """

    def observe_permissions(self) -> None:
        """Begin to observe changes, if that takes an effort: there is a session."""

    def followers(
        self, registry: KindRegistry, verbs: Verbs, reactor: Any, now: Callable[[], float]
    ) -> list[Service]:
        """
        Return the services that follow the store on each server, to be started after it.

        :param verbs: without admission.
        """

    def leader_controllers(
        self, registry: KindRegistry, verbs: Verbs, reactor: Any, now: Callable[[], float]
    ) -> list[Service]:
        """
        Return the controllers that run on the leader only; called for each term.

        :param verbs: without admission.
        """

    def views(self) -> list[tuple[Kind, IStorage]]:
        """Kinds that show stored objects of another kind, each with a store that converts them."""

    def add_to(
        self, routes: GatedRoutes, gate: Gate, strictness: Callable[[str], Strictness]
    ) -> None:
        """
        Add further routes.

        :param strictness: returns that of the verbs of consoles in a namespace.
        """

    def add_probes(self, health: Health) -> None:
        """Add health checks besides the store's."""

    @property
    def client_cas(self) -> Sequence[str]:
        """Paths of the CAs of acceptable client certificates."""

    @property
    def published_cas(self) -> Callable[[], bytes] | None:
        """Further CAs as PEM that may change, if there are any."""

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: a file is unusable.
        """

    async def prepare(self, verbs: Verbs) -> None:
        """
        Create or read what serving depends on; the store is ready.

        :param verbs: without admission.
        """

    def when_prepared(self) -> Deferred[None]:
        """Fires when requests can be authenticated; the followers have started."""

    def close(self) -> Deferred[Any]:
        """Close connections; fires when all are closed.  The followers were stopped before."""


@dataclass(frozen=True)
class ServerParts:
    """
    :param dispatcher: serves requests, which must be :class:`APIRequest`.
    :param followers: services that follow the store; to be started after it.
    :param leading: runs the leader's controllers; to be started after these.
    :param verbs: without admission, for writes by the server itself.
    """

    dispatcher: GatedDispatcher
    followers: Sequence[Service]
    leading: LeaderServices | LeaderElectedServices
    verbs: Verbs
    watches: Sequence[Watches]
    sessions: Sessions
    probes: Probes
    guard: SessionGuard
    session_objects: SessionObjects


def assemble(
    settings: ServingSettings,
    control_plane: ControlPlane,
    backend: Backend,
    audit: IAuditSink,
    metrics: MetricsRegistry,
    reactor: Any,
    *,
    limits: RequestLimits | None = None,
    execute: Execute = defer.execute,
    now: Callable[[], float] = time.time,
    kubelets: Kubelets | None = None,
    page: HostedPage | None = None,
) -> ServerParts:
    """
    Assemble the parts.

    :param execute: runs the work on large objects; by default at once.
    :param now: seconds since the epoch; a reactor's own clock may start anywhere.
    :param kubelets: access to kubelets, for Pods on Nodes.
    :param page: the web console, if it is served.
    """
    dialects, strict_verbs = settings.dialects, settings.strict_verbs
    storage, registry = control_plane.storage, KindRegistry(control_plane.kinds)
    restrictions = Restrictions(registry.kinds, dialects, storage, reactor)
    restricted = RestrictedAuthorizer(control_plane.authorizer, restrictions, storage)
    with_consoles = [each.workload for each in dialects]
    policies = ConsolePolicies(storage, with_consoles, reactor, now)
    names = PodNames(dialects)
    has_pods = kinds.PODS in registry.kinds

    def is_strict(attributes: Attributes) -> bool:
        if not has_pods or not is_pod(attributes):
            return policies.is_strict_for(attributes)
        return any(map(policies.is_strict_for, machine_attributes(attributes, names)))

    def strictness(namespace: str) -> Strictness:
        return Strictness(True) if strict_verbs else policies.strictness(namespace)

    authorizer = ConsoleVerbs(
        restricted, with_consoles, strict=strict_verbs, is_strict=is_strict, pods=has_pods
    )
    trail = Trail(audit, "apiserver", reactor)
    sessions = Sessions(trail, SessionMetrics(metrics), settings.sessions)
    RoundTripMetrics(metrics, sessions)
    # Not a live id: our own machine may be behind the caller, and the hop before ours ends a
    # session by its id.
    policy = GatePolicy(
        allowed_origins=settings.allowed_origins,
        accepts_session=lambda session: not sessions.has(session),
    )
    gate = Gate(control_plane.authenticator, authorizer, policy)
    guard = SessionGuard(
        sessions,
        gate,
        reactor,
        REVIEW_SECONDS,
        REVIEWS_AT_ONCE,
        files=gate.files,
        on_review=control_plane.observe_permissions,
    )
    control_plane.on_permission_change(guard.review_soon, partial(users_of, sessions))
    policies.follow(guard.review_soon)
    requests = RequestRights(storage, dialects, authorizer, now)
    workloads = [Workload.of_dialect(dialect) for dialect in dialects]
    if kubelets is not None:
        workloads.append(PODS_OF_NODES)
    labels = PolicyLabels(policies, dialects, authorizer)
    rules = RecordingRules(storage, dialects, authorizer, now)
    admissions = [restrictions, *control_plane.admissions, requests, labels, rules]
    watches, bare = [Watches(storage, reactor, now)], Verbs(storage, [], now)
    recordings = OpenRecordings(storage, bare, now)
    replica = f"{socket.gethostname()}/{secrets.token_hex(3)}"
    session_objects = SessionObjects(
        storage,
        sessions,
        reactor,
        now,
        replica,
        exclusive=is_exclusive(storage),
        machines=[dialect.workload for dialect in dialects if dialect.conditions],
    )
    followers: list[Service] = [
        *control_plane.followers(registry, bare, reactor, now),
        *restrictions.graphs,
        policies,
        requests,
        recordings,
        ObjectEndings(storage, guard, workloads),
        session_objects,
        guard,
    ]

    def leader_controllers() -> list[Service]:
        services = control_plane.leader_controllers(registry, bare, reactor, now)
        services += [PoolHeartbeats(storage, dialect, reactor, now) for dialect in dialects]
        consoles = DeletedConsoles(
            dialects, storage, bare, reactor, now, days=settings.deleted_console_days
        )
        services += [
            consoles,
            ConsoleRequests(dialects, storage, bare, reactor, now),
            ConsoleRecordingsController(
                dialects, storage, reactor, now, Reports(bare, "console-recordings", now)
            ),
        ]
        if settings.scheduling:
            services += [Scheduler(dialect, storage, bare, reactor, now) for dialect in dialects]
        return services

    leading: LeaderServices | LeaderElectedServices = LeaderServices(leader_controllers)
    if not is_exclusive(storage):
        leading = LeaderElectedServices(leader_controllers, storage, bare, replica, reactor, now)
    routes, limits = GatedRoutes(), limits or RequestLimits()
    queue = FairQueue(execute, QueueMetrics(metrics))
    scans = SharedTurns(reactor)
    collects = control_plane.garbage_collection
    verbs = Verbs(storage, admissions, now, garbage_collection=collects, turns=scans)
    rest = REST(verbs, watches[0], gate, limits, now, queue)
    apart = (kinds.CONSOLESESSIONS, kinds.NODE_PODS)
    for kind in registry.kinds:
        if kind.stored and not kind.kept_as and kind not in apart:
            rest.add_to(routes, kind)
    ending = SessionVerbs(storage, admissions, now, turns=scans)
    REST(ending, watches[0], gate, limits, now, queue).add_to(routes, kinds.CONSOLESESSIONS)
    for kind, view in control_plane.views():
        watches.append(Watches(view, reactor, now))
        view_rest = REST(
            Verbs(view, admissions, now, turns=scans), watches[-1], gate, limits, now, queue
        )
        view_rest.add_to(routes, kind)
    control_plane.add_to(routes, gate, strictness)
    health = Health(reactor)
    health.add("storage", storage.probe)
    control_plane.add_probes(health)
    if isinstance(leading, LeaderElectedServices):
        health.add("leader-election", leading.probe)
    probes = Probes(gate, health)
    probes.add_to(routes)
    Documents(registry, gate, metrics, probes).add_to(routes)
    if page is not None:
        page.add_to(routes)
    proxy = partial(
        Proxy,
        hop="apiserver",
        sessions=sessions,
        clock=reactor,
        caller_of=gate.caller_of,
        credential_headers=gate.credential_headers.current,
        connect_seconds=backend.seconds,
        answer_seconds=backend.seconds,
        wait_seconds=_WAIT_SECONDS,
    )
    relay = partial(
        Relay,
        sessions=sessions,
        clock=reactor,
        connect_seconds=backend.seconds,
        answer_seconds=backend.seconds,
        resumes=True,
    )
    openings = [each for each in admissions if IOpeningAdmission.providedBy(each)]
    reports = Reports(bare, "console-policies", now)
    refusals = ConsoleRefusals(storage, reports, trail, reactor.seconds)
    places = (
        gate,
        storage,
        backend,
        reactor,
        policies,
        openings,
        limits,
        strict_verbs,
        now,
        refusals,
        recordings,
    )
    locators = {dialect: MachineLocator(dialect, *places) for dialect in dialects}
    logs = {dialect: MachineLocator(dialect, *places, what=LOG) for dialect in dialects}
    for dialect in dialects:
        add_consoles(routes, dialect, proxy(locators[dialect]))
        add_machine_texts(routes, dialect, LOG.name, relay(logs[dialect]))
        screens = MachineLocator(dialect, *places, what=SCREEN)
        screen = relay(screens, answer_seconds=texts.SCREEN_SECONDS)
        add_machine_texts(routes, dialect, SCREEN.name, screen)
    retained = partial(texts.RetainedTextLocator, gate, storage, locators.values(), limits)
    deleted_logs = relay(retained(DELETED_LOG))
    add_retained_texts(routes, kinds.DELETEDCONSOLES, DELETED_LOG.name, deleted_logs)
    recorded = relay(
        retained(RECORDING), answer_seconds=texts.CONTENT_SECONDS, downloads=ANY_DOWNLOADS
    )
    add_retained_texts(routes, kinds.CONSOLERECORDINGS, RECORDING.name, recorded)
    if has_pods:
        pods = PodStorage(storage, names, reactor)
        followers.append(pods)
        watches.append(Watches(pods, reactor, now))
        pods_rest = REST(Verbs(pods, [], now, turns=scans), watches[-1], gate, limits, now, queue)
        pods_rest.add_to(routes, kinds.PODS)
        add_refusals(routes, names)
        streams = proxy(MachinePodLocator(MachineOfPod(locators)))
        add_pod_consoles(routes, names, dialects, streams, relay(MachineOfPod(logs)))
    if kubelets is not None:
        running = NodePodVerbs(storage, admissions, now, turns=scans)
        REST(running, watches[0], gate, limits, now, queue).add_to(routes, kinds.NODE_PODS)
        Bindings(gate, running, limits).add_to(routes)
        reached = partial(Relay, sessions=sessions, clock=reactor, connect_seconds=kubelets.seconds)
        pods_of_nodes = NodePodLocator(gate, storage, kubelets, reactor, limits)
        add_node_pods(
            routes,
            proxy(pods_of_nodes, connect_seconds=kubelets.seconds, answer_seconds=kubelets.seconds),
            # A kubelet does not even send the head of the response before the first output.
            reached(pods_of_nodes, answer_seconds=None, downloads=ANY_DOWNLOADS),
        )
        nodes = NodeProxyLocator(gate, storage, kubelets, reactor, limits)
        figures = reached(nodes, answer_seconds=kubelets.seconds, downloads=ANY_DOWNLOADS)
        add_node_proxy(routes, figures)
    dispatcher = GatedDispatcher(gate, routes, sessions)
    if settings.audit_policy is not None:
        machines = frozenset(dialect.workload.qualified for dialect in dialects)
        dispatcher = AuditedDispatcher(
            gate, routes, sessions, trail, settings.audit_policy, reactor, machines
        )
    return ServerParts(
        dispatcher=dispatcher,
        followers=followers,
        leading=leading,
        verbs=bare,
        watches=watches,
        sessions=sessions,
        probes=probes,
        guard=guard,
        session_objects=session_objects,
    )

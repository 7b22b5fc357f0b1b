"""
Assemble the parts of an API server; nothing here listens.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer

from twisted_exec.api import kinds
from twisted_exec.apiserver.auditing.records import AuditedDispatcher
from twisted_exec.apiserver.consoles.admission import AdmissionParts, MachineAdmission
from twisted_exec.apiserver.consoles.endings import PODS_OF_NODES, ObjectEndings, Workload
from twisted_exec.apiserver.consoles.machine_writes import AgentChanges, PolicyLabels, PowerChanges
from twisted_exec.apiserver.consoles.pods import (
    MachineOfPod,
    MachinePodAdmission,
    add_pod_consoles,
    add_refusals,
)
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.policy_admission import PolicyAdmission
from twisted_exec.apiserver.consoles.poollets import Backend
from twisted_exec.apiserver.consoles.recording_rules import RecordingRules
from twisted_exec.apiserver.consoles.recordings import OpenRecordings
from twisted_exec.apiserver.consoles.refusals import ConsoleRefusals
from twisted_exec.apiserver.consoles.request_rights import RequestRights
from twisted_exec.apiserver.consoles.retained_texts import (
    CONTENT_SECONDS,
    SCREEN_SECONDS,
    RetainedTextAdmission,
)
from twisted_exec.apiserver.consoles.routes import (
    add_consoles,
    add_machine_texts,
    add_retained_texts,
)
from twisted_exec.apiserver.consoles.sessions.objects import SessionObjects
from twisted_exec.apiserver.consoles.sessions.verbs import SessionVerbs
from twisted_exec.apiserver.control_plane import ControlPlane
from twisted_exec.apiserver.controllers.console_recordings import ConsoleRecordingsController
from twisted_exec.apiserver.controllers.console_requests import ConsoleRequests
from twisted_exec.apiserver.controllers.deleted_consoles import DeletedConsoles
from twisted_exec.apiserver.controllers.heartbeats import PoolHeartbeats
from twisted_exec.apiserver.controllers.leader_election import LeaderElectedServices
from twisted_exec.apiserver.controllers.scheduler import Scheduler
from twisted_exec.apiserver.interfaces import IOpeningAdmission, Strictness
from twisted_exec.apiserver.machine_pods.authorization import is_pod, machine_attributes
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.apiserver.machine_pods.storage import PodStorage
from twisted_exec.apiserver.node_pods.kubelets import Kubelets
from twisted_exec.apiserver.node_pods.proxy import NodeProxyAdmission, add_node_proxy
from twisted_exec.apiserver.node_pods.streams import NodePodAdmission, add_node_pods
from twisted_exec.apiserver.node_pods.verbs import Bindings, NodePodVerbs
from twisted_exec.apiserver.restriction.restrictions import RestrictedAuthorizer, Restrictions
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.documents import Documents
from twisted_exec.apiserver.serving.fairness import Execute, ExpensiveRequestMetrics, FairQueue
from twisted_exec.apiserver.serving.probes import Probes
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.rest import REST
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.apiserver.serving.watches.watches import Watches
from twisted_exec.apiserver.serving_settings import ServingSettings
from twisted_exec.auth.agent_rights import AgentRights
from twisted_exec.auth.console_rights import ConsoleVerbs
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedRoutes
from twisted_exec.auth.gate import Gate, GatePolicy, users_of
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.subresources import DELETED_LOG, LOG, RECORDING, SCREEN
from twisted_exec.kube.leases import LeaderServices
from twisted_exec.program.audit import Trail
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.metrics import MetricsRegistry
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.program.turns import SharedTurns
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.location import IStreamAdmission
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.guard import SessionGuard
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.streaming.text.download import ANY_DOWNLOADS
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.web.oidc import HostedPage

REVIEW_SECONDS = 10.0
"""
Time from one round of reviews to the next; behind a host, its cached reviews count for up to 10 s
more.
"""
REVIEWS_AT_ONCE = 16
"""Sessions that are reviewed at the same time."""

_WAIT_SECONDS = 20.0
"""Longest wait of a user for a console while many are being opened."""


@dataclass(frozen=True)
class ServerParts:
    """
    The parts of a server that its process runs.

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


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """
    The parts of a process that its server uses.

    :param execute: runs the work on large objects; by default at once.
    :param now: seconds since the epoch; a reactor's own clock may start anywhere.
    """

    audit: IAuditSink
    metrics: MetricsRegistry
    reactor: Any
    execute: Execute = defer.execute
    now: Callable[[], float] = time.time


def assemble(
    settings: ServingSettings,
    control_plane: ControlPlane,
    backend: Backend,
    context: ServerContext,
    *,
    limits: RequestLimits | None = None,
    kubelets: Kubelets | None = None,
    page: HostedPage | None = None,
) -> ServerParts:
    """Assemble the parts of a server."""
    server = _Server(settings, control_plane, context, limits or RequestLimits(), kubelets)
    server.add_objects()
    probes = server.add_probes()
    if page is not None:
        page.add_to(server.routes)
    server.add_machines(backend)
    if kubelets is not None:
        server.add_pods_of_nodes(kubelets)
    return ServerParts(
        dispatcher=server.dispatcher(),
        followers=server.followers,
        leading=server.leading,
        verbs=server.verbs,
        watches=server.watches,
        sessions=server.sessions,
        probes=probes,
        guard=server.guard,
        session_objects=server.session_objects,
    )


class _Server:
    def __init__(
        self,
        settings: ServingSettings,
        control_plane: ControlPlane,
        context: ServerContext,
        limits: RequestLimits,
        kubelets: Kubelets | None,
    ) -> None:
        storage, reactor, now = control_plane.storage, context.reactor, context.now
        dialects = settings.dialects
        self._settings, self._control_plane, self._context = settings, control_plane, context
        self._limits, self._storage, self._dialects = limits, storage, dialects
        self._registry = KindRegistry(control_plane.kinds)
        self._names = PodNames(dialects)
        self._restrictions = Restrictions(self._registry.kinds, dialects, storage, reactor)
        self._policies = ConsolePolicies(
            storage, [dialect.workload for dialect in dialects], reactor, now
        )
        self._trail = Trail(context.audit, "apiserver", reactor)
        self.sessions = Sessions(self._trail, SessionMetrics(context.metrics), settings.sessions)
        RoundTripMetrics(context.metrics, self.sessions)
        authorizer = self._make_authorizer()
        self._gate = Gate(control_plane.authenticator, authorizer, self._make_gate_policy())
        self.guard = self._make_guard()
        requests = RequestRights(storage, dialects, authorizer, now, self._policies)
        self.verbs = Verbs(storage, [], now)
        machines = [dialect.workload for dialect in dialects]
        power = PowerChanges(
            machines,
            own_recorder(
                self.verbs, reactor, now, about=kinds.MACHINES.resource, component="apiserver"
            ),
        )
        self._admissions = [
            self._restrictions,
            *control_plane.admissions,
            requests,
            PolicyLabels(self._policies, dialects, authorizer),
            AgentChanges(self._policies, machines),
            RecordingRules(storage, dialects, authorizer, now),
            power,  # last, behind all that may refuse the write
        ]
        self.watches = [Watches(storage, reactor, now)]
        self._recordings = OpenRecordings(storage, self.verbs, now)
        replica = f"{socket.gethostname()}/{secrets.token_hex(3)}"
        self.session_objects = SessionObjects(
            storage,
            self.sessions,
            reactor,
            now,
            replica,
            own_recorder(
                self.verbs,
                reactor,
                now,
                about=kinds.CONSOLESESSIONS.resource,
                component="console-sessions",
            ),
            {dialect.workload.qualified: kinds.machine_kind(dialect) for dialect in dialects},
            exclusive=storage.exclusive,
            machines=[dialect.workload for dialect in dialects if dialect.conditions],
            metrics=context.metrics.queues,
        )
        workloads = [Workload.of_dialect(dialect) for dialect in dialects]
        if kubelets is not None:
            workloads.append(PODS_OF_NODES)
        self.followers: list[Service] = [
            *control_plane.followers(
                self._registry, self.verbs, reactor, now, context.metrics.queues
            ),
            *self._restrictions.graphs,
            self._policies,
            requests,
            self._recordings,
            ObjectEndings(storage, self.guard, workloads),
            power,
            self.session_objects,
            self.guard,
        ]
        self.leading = self._make_leader(replica)
        self.routes = GatedRoutes()
        self._queue = FairQueue(
            context.execute,
            ExpensiveRequestMetrics(context.metrics),
            seconds=context.reactor.seconds,
        )
        self._turns = SharedTurns(reactor)

    @property
    def _has_pods(self) -> bool:
        return kinds.PODS in self._registry.kinds

    def _make_authorizer(self) -> AgentRights:
        policies, names, has_pods = self._policies, self._names, self._has_pods

        def is_strict(attributes: Attributes) -> bool:
            if not has_pods or not is_pod(attributes):
                return policies.is_strict_for(attributes)
            return any(map(policies.is_strict_for, machine_attributes(attributes, names)))

        console_verbs = ConsoleVerbs(
            RestrictedAuthorizer(self._control_plane.authorizer, self._restrictions, self._storage),
            [dialect.workload for dialect in self._dialects],
            strict=self._settings.strict_verbs,
            is_strict=is_strict,
            pods=has_pods,
        )
        return AgentRights(console_verbs)

    def _make_gate_policy(self) -> GatePolicy:
        # Not a live id: our own machine may be behind the caller, and the hop before ours ends a
        # session by its id.
        return GatePolicy(
            allowed_origins=self._settings.allowed_origins,
            accepts_session=lambda session: not self.sessions.has(session),
        )

    def _make_guard(self) -> SessionGuard:
        guard = SessionGuard(
            self.sessions,
            self._gate,
            self._context.reactor,
            REVIEW_SECONDS,
            REVIEWS_AT_ONCE,
            files=self._gate.files,
            on_review=self._control_plane.observe_permissions,
        )
        self._control_plane.on_permission_change(
            guard.review_soon, partial(users_of, self.sessions)
        )
        self._policies.follow(guard.review_soon)
        return guard

    def _make_leader(self, replica: str) -> LeaderServices | LeaderElectedServices:
        reactor, now = self._context.reactor, self._context.now
        if self._storage.exclusive:
            return LeaderServices(self._leader_controllers)
        return LeaderElectedServices(
            self._leader_controllers, self._storage, self.verbs, replica, reactor, now
        )

    def _leader_controllers(self) -> list[Service]:
        dialects, storage, verbs = self._dialects, self._storage, self.verbs
        settings, reactor, now = self._settings, self._context.reactor, self._context.now
        metrics = self._context.metrics.queues
        services = self._control_plane.leader_controllers(
            self._registry, verbs, reactor, now, metrics
        )
        for dialect in dialects:
            beats = own_recorder(
                verbs, reactor, now, about=dialect.pool, component="pool-heartbeats"
            )
            services.append(PoolHeartbeats(storage, dialect, reactor, now, beats, metrics))
        consoles = DeletedConsoles(
            dialects,
            storage,
            verbs,
            reactor,
            now,
            days=settings.deleted_console_days,
            metrics=metrics,
        )
        recorder = own_recorder(
            verbs,
            reactor,
            now,
            about=kinds.CONSOLERECORDINGS.resource,
            component="console-recordings",
        )
        services += [
            consoles,
            ConsoleRequests(dialects, storage, verbs, reactor, now, metrics),
            ConsoleRecordingsController(dialects, storage, reactor, now, recorder, metrics),
        ]
        if settings.scheduling:
            services += [
                Scheduler(dialect, storage, verbs, reactor, now, metrics) for dialect in dialects
            ]
        return services

    def _make_rest(self, verbs: Verbs, watches: Watches) -> REST:
        limits, now = self._limits, self._context.now
        return REST(verbs, watches, self._gate, limits, now, self._queue)

    def _add_watches(self, view: IStorage) -> Watches:
        watches = Watches(view, self._context.reactor, self._context.now)
        self.watches.append(watches)
        return watches

    def add_objects(self) -> None:
        verbs = Verbs(
            self._storage,
            self._admissions,
            self._context.now,
            garbage_collection=self._control_plane.garbage_collection,
            turns=self._turns,
        )
        rest = self._make_rest(verbs, self.watches[0])
        with_own_verbs = (kinds.CONSOLESESSIONS, kinds.NODE_PODS)
        for kind in self._registry.kinds:
            if kind.stored and not kind.kept_as and kind not in with_own_verbs:
                rest.add_to(self.routes, kind)
        session_verbs = SessionVerbs(
            self._storage, self._admissions, self._context.now, turns=self._turns
        )
        self._make_rest(session_verbs, self.watches[0]).add_to(self.routes, kinds.CONSOLESESSIONS)
        for kind, view in self._control_plane.views():
            admitted = Verbs(view, self._admissions, self._context.now, turns=self._turns)
            self._make_rest(admitted, self._add_watches(view)).add_to(self.routes, kind)
        self._control_plane.add_to(self.routes, self._gate, self._strictness, self._queue)

    def _strictness(self, namespace: str, user: User) -> Strictness:
        if self._settings.strict_verbs:
            return Strictness(True)
        return self._policies.strictness(namespace, user)

    def add_probes(self) -> Probes:
        health = Health(self._context.reactor)
        health.add("storage", self._storage.probe)
        self._control_plane.add_probes(health)
        if isinstance(self.leading, LeaderElectedServices):
            health.add("leader-election", self.leading.probe)
        probes = Probes(self._gate, health)
        probes.add_to(self.routes)
        documents = Documents(self._registry, self._gate, self._context.metrics, probes)
        documents.add_to(self.routes)
        return probes

    def _make_proxy(self, admission: IStreamAdmission, seconds: float) -> Proxy:
        return Proxy(
            admission,
            ProxySettings(
                "apiserver",
                connect_seconds=seconds,
                answer_seconds=seconds,
                wait_seconds=_WAIT_SECONDS,
                credential_headers=self._gate.credential_headers.current,
            ),
            sessions=self.sessions,
            clock=self._context.reactor,
            caller_of=self._gate.caller_of,
        )

    def _make_relay(self, admission: IStreamAdmission, seconds: float, **more: Any) -> Relay:
        more.setdefault("answer_seconds", seconds)
        return Relay(
            admission,
            sessions=self.sessions,
            clock=self._context.reactor,
            connect_seconds=seconds,
            **more,
        )

    def add_machines(self, backend: Backend) -> None:
        gate, storage, routes = self._gate, self._storage, self.routes
        relay = partial(self._make_relay, seconds=backend.seconds, resumes=True)
        parts = self._make_admission_parts(backend)
        self.followers.append(parts.refusals)
        admission = partial(MachineAdmission, parts=parts)
        consoles = {dialect: admission(dialect) for dialect in self._dialects}
        logs = {dialect: admission(dialect, what=LOG) for dialect in self._dialects}
        for dialect in self._dialects:
            add_consoles(routes, dialect, self._make_proxy(consoles[dialect], backend.seconds))
            add_machine_texts(routes, dialect, LOG.name, relay(logs[dialect]))
            screens = admission(dialect, what=SCREEN)
            screen = relay(screens, answer_seconds=SCREEN_SECONDS)
            add_machine_texts(routes, dialect, SCREEN.name, screen)
        poollets = {
            dialect.workload.qualified: console.poollets for dialect, console in consoles.items()
        }
        retained = partial(RetainedTextAdmission, gate, storage, poollets, self._limits)
        deleted_logs = relay(retained(DELETED_LOG))
        add_retained_texts(routes, kinds.DELETEDCONSOLES, DELETED_LOG.name, deleted_logs)
        recorded = relay(
            retained(RECORDING), answer_seconds=CONTENT_SECONDS, downloads=ANY_DOWNLOADS
        )
        add_retained_texts(routes, kinds.CONSOLERECORDINGS, RECORDING.name, recorded)
        if self._has_pods:
            self._add_view_of_pods()
            streams = self._make_proxy(MachinePodAdmission(MachineOfPod(consoles)), backend.seconds)
            pod_logs = relay(MachineOfPod(logs))
            add_pod_consoles(routes, self._names, self._dialects, streams, pod_logs)

    def _make_admission_parts(self, backend: Backend) -> AdmissionParts:
        now, reactor = self._context.now, self._context.reactor
        recorder = own_recorder(
            self.verbs,
            reactor,
            now,
            about=self._dialects[0].workload,
            component="console-policies",
        )
        refusals = ConsoleRefusals(self._storage, recorder, self._trail, reactor.seconds)
        return AdmissionParts(
            gate=self._gate,
            storage=self._storage,
            backend=backend,
            reactor=reactor,
            policies=PolicyAdmission(
                gate=self._gate,
                policies=self._policies,
                recordings=self._recordings,
                refusals=refusals,
                resumable=self.session_objects.resumable,
                now=now,
            ),
            plugins=[plugin for plugin in self._admissions if IOpeningAdmission.providedBy(plugin)],
            limits=self._limits,
            strict_verbs=self._settings.strict_verbs,
            refusals=refusals,
        )

    def _add_view_of_pods(self) -> None:
        pods = PodStorage(self._storage, self._names, self._context.reactor)
        self.followers.append(pods)
        verbs = Verbs(pods, [], self._context.now, turns=self._turns)
        self._make_rest(verbs, self._add_watches(pods)).add_to(self.routes, kinds.PODS)
        add_refusals(self.routes, self._names)

    def add_pods_of_nodes(self, kubelets: Kubelets) -> None:
        gate, storage, limits, reactor = (
            self._gate,
            self._storage,
            self._limits,
            self._context.reactor,
        )
        seconds = kubelets.seconds
        running = NodePodVerbs(storage, self._admissions, self._context.now, turns=self._turns)
        self._make_rest(running, self.watches[0]).add_to(self.routes, kinds.NODE_PODS)
        Bindings(gate, running, limits, self._queue).add_to(self.routes)
        pods = NodePodAdmission(gate, storage, kubelets, reactor, limits)
        # A kubelet does not even send the head of the response before the first output.
        texts_of_pods = self._make_relay(
            pods, seconds, answer_seconds=None, downloads=ANY_DOWNLOADS
        )
        add_node_pods(self.routes, self._make_proxy(pods, seconds), texts_of_pods)
        nodes = NodeProxyAdmission(gate, storage, kubelets, reactor, limits)
        add_node_proxy(self.routes, self._make_relay(nodes, seconds, downloads=ANY_DOWNLOADS))

    def dispatcher(self) -> GatedDispatcher:
        policy, gate = self._settings.audit_policy, self._gate
        if policy is None:
            return GatedDispatcher(gate, self.routes, self.sessions)
        machines = frozenset(dialect.workload.qualified for dialect in self._dialects)
        return AuditedDispatcher(
            gate, self.routes, self.sessions, self._trail, policy, self._context.reactor, machines
        )

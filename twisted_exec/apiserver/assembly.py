"""
The parts of an API server, joined; nothing here listens or opens a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.application.service import Service

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.kinds.events import as_core, as_new
from twisted_exec.apiserver.connect import Backend, MachineLocator
from twisted_exec.apiserver.endings import ObjectEndings, Revocation
from twisted_exec.apiserver.expiry import EventExpiry
from twisted_exec.apiserver.fences import Fences
from twisted_exec.apiserver.filters import Gate, Limits
from twisted_exec.apiserver.gathered import GatheredRules
from twisted_exec.apiserver.heartbeats import PoolHeartbeats
from twisted_exec.apiserver.log import LogLocator, add_log
from twisted_exec.apiserver.namespaces import NamespaceGuard, NamespaceLifecycle
from twisted_exec.apiserver.pods_access import PodsAuthorizer
from twisted_exec.apiserver.pods_names import PodNames
from twisted_exec.apiserver.pods_storage import PodStorage
from twisted_exec.apiserver.pods_streams import (
    ByPodName,
    PodLocator,
    add_pod_consoles,
    add_refusals,
)
from twisted_exec.apiserver.probes import Probes
from twisted_exec.apiserver.registry import Registry
from twisted_exec.apiserver.renamed import RenamedStorage
from twisted_exec.apiserver.rest import REST
from twisted_exec.apiserver.reviews import Reviews
from twisted_exec.apiserver.rules import Escalation, StoredRules
from twisted_exec.apiserver.scheduler import Scheduler
from twisted_exec.apiserver.sessions import SessionObjects, SessionVerbs
from twisted_exec.apiserver.signer import DEFAULT_LIFE_SECONDS, Signer, SigningRights
from twisted_exec.apiserver.site import APIDispatcher, Documents, add_consoles
from twisted_exec.apiserver.verbs import Verbs
from twisted_exec.apiserver.watch import Watches
from twisted_exec.auth.interfaces import IAuthenticator, IRulesAuthorizer
from twisted_exec.auth.rbac import RBACAuthorizer
from twisted_exec.auth.tokens import ITokenAuthenticator
from twisted_exec.observe.audit import Trail
from twisted_exec.observe.health import Health
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.observe.metrics import SessionMetrics
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.relay import Relay
from twisted_exec.streaming.routes import Routes
from twisted_exec.streaming.sessions import Sessions
from twisted_exec.tls.authority import Authority
from twisted_exec.tls.files import Reloading


@dataclass(frozen=True)
class Parts:
    """
    :param dispatcher: answers requests; they must be :class:`APIRequest`.
    :param followers: services that follow the store; to be started after it.
    :param verbs: without admissions, for what the server does itself.
    """

    dispatcher: APIDispatcher
    followers: Sequence[Service]
    verbs: Verbs
    watches: Sequence[Watches]
    sessions: Sessions


def assemble(
    storage: IStorage,
    authenticator: IAuthenticator,
    tokens: ITokenAuthenticator,
    backend: Backend,
    audit: IAuditSink,
    metrics: CollectorRegistry,
    reactor: Any,
    *,
    limits: Limits | None = None,
    now: Callable[[], float] = time.time,
    dialects: Sequence[Dialect] = (DEFAULT,),
    pods_view: bool = False,
    allowed_origins: Collection[bytes] = (),
    authorities: Mapping[str, Reloading[Authority]] | None = None,
    signing_seconds: float = DEFAULT_LIFE_SECONDS,
    own_names: Callable[[], Collection[str]] = frozenset,
    scheduling: bool = False,
) -> Parts:
    """
    Join the parts.

    :param tokens: for TokenReview.
    :param now: seconds since the epoch; a reactor's own clock may count from anywhere.
    :param dialects: whose machines there are, each once.
    :param pods_view: show each machine as a Pod as well.
    :param allowed_origins: sites besides this server's own whose pages may ask.
    :param authorities: sign what is asked for by certificate signing requests, by the
        signer's name.
    :param signing_seconds: how long their certificates are good at most.
    :param own_names: of this server, which no poollet is given unasked.
    :param scheduling: give machines that have no pool one.
    """
    served, names = kinds.served(dialects), PodNames(dialects)
    registry = Registry((*served, kinds.PODS) if pods_view else served)
    fence = Fences(dialects, storage, reactor)
    rules = StoredRules(storage)
    rbac = RBACAuthorizer(rules)
    authorizer: IRulesAuthorizer = PodsAuthorizer(rbac, names) if pods_view else rbac
    gate = Gate(authenticator, authorizer, allowed_origins)
    sessions = Sessions(Trail(audit, "apiserver", reactor), SessionMetrics(metrics))
    revocation = Revocation(gate, sessions, reactor)
    rules.changed = revocation.soon
    admissions = [fence, NamespaceGuard(), Escalation(rbac, storage), SigningRights(authorizer)]
    watches, bare = [Watches(storage, reactor, now)], Verbs(storage, [], now)
    followers: list[Service] = [
        rules,
        *fence.followers,
        GatheredRules(storage),
        NamespaceLifecycle(storage, registry, bare, reactor),
        *(ObjectEndings(storage, dialect, sessions) for dialect in dialects),
        *(PoolHeartbeats(storage, dialect, reactor, now) for dialect in dialects),
        EventExpiry(storage, reactor, now),
        SessionObjects(storage, sessions, reactor, now),
        revocation,
    ]
    if authorities:
        told = (dialects, authorities, reactor, now, signing_seconds, own_names)
        followers.append(Signer(storage, bare, authorizer, *told))
    if scheduling:
        followers += [Scheduler(dialect, storage, bare, reactor, now) for dialect in dialects]
    routes, limits = Routes(), limits or Limits()
    rest = REST(Verbs(storage, admissions, now), watches[0], gate, fence, limits, now)
    for kind in registry.kinds:
        if kind.stored and not kind.kept_as and kind is not kinds.CONSOLESESSIONS:
            rest.add_to(routes, kind)
    ending = SessionVerbs(storage, admissions, now)
    REST(ending, watches[0], gate, fence, limits, now).add_to(routes, kinds.CONSOLESESSIONS)
    events = RenamedStorage(storage, kinds.EVENTS_V1, as_new, as_core)
    watches.append(Watches(events, reactor, now))
    newer = REST(Verbs(events, admissions, now), watches[-1], gate, fence, limits, now)
    newer.add_to(routes, kinds.EVENTS_V1)
    Reviews(gate, authorizer, tokens).add_to(routes)
    health = Health(reactor)
    health.add("storage", storage.probe)
    probes = Probes(gate, health)
    Documents(registry, gate, metrics, probes).add_to(routes)
    proxy = partial(
        Proxy,
        hop="apiserver",
        sessions=sessions,
        clock=reactor,
        caller_of=gate.caller_of,
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
    places = (gate, fence, storage, backend, reactor, revocation.opened, sessions.has)
    locators = {dialect: MachineLocator(dialect, *places) for dialect in dialects}
    logs = {dialect: LogLocator(dialect, *places) for dialect in dialects}
    consoles = Routes()
    for dialect in dialects:
        machines = kinds.machine_kind(dialect)
        add_consoles(consoles, machines, proxy(locators[dialect]))
        add_log(consoles, machines, relay(logs[dialect]))
    if pods_view:
        pods = PodStorage(storage, names)
        followers.append(pods)
        watches.append(Watches(pods, reactor, now))
        seen = REST(Verbs(pods, [], now), watches[-1], gate, fence, limits, now)
        seen.add_to(routes, kinds.PODS)
        add_refusals(routes, names)
        add_pod_consoles(consoles, proxy(PodLocator(ByPodName(names, locators))))
        add_log(consoles, kinds.PODS, relay(ByPodName(names, logs)))
    return Parts(
        dispatcher=APIDispatcher(routes, consoles, gate, probes),
        followers=followers,
        verbs=bare,
        watches=watches,
        sessions=sessions,
    )

"""
Control plane of an aggregated server: the host's users, authorization, namespaces, Events, leases.

:func:`cluster_rules` and :func:`namespaced_rules` are the RBAC rules that the server's user needs
in the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    EVENTS,
    LEASES,
    ROLEBINDINGS,
    ROLES,
    Kind,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.aggregated.admission.objects import FOLLOWED
from twisted_exec.apiserver.aggregated.admission.plugin import HostAdmission
from twisted_exec.apiserver.aggregated.authentication import HostAuthenticator
from twisted_exec.apiserver.aggregated.host_storage import HostedStorage, SplitStorage
from twisted_exec.apiserver.aggregated.trust import HostTrust, RequestHeaderOverrides
from twisted_exec.apiserver.controllers.leader_election import LEASE
from twisted_exec.apiserver.controllers.leader_election import NAMESPACE as ELECTION
from twisted_exec.apiserver.interfaces import IAdmission, Strictness
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.credentials import files_of
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import Decision, IAuthenticator, IAuthorizer, User
from twisted_exec.auth.permission_watch import PermissionWatch
from twisted_exec.auth.rules import Attributes, Rule
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.program.health import Health
from twisted_exec.program.metrics import state_gauge
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.tls.files import Replaceable

RBAC = (ROLES, ROLEBINDINGS, CLUSTERROLES, CLUSTERROLEBINDINGS)
"""Kinds whose changes are hints that a session may have lost its permission."""

_FOLLOW = ("get", "list", "watch")


@dataclass(frozen=True)
class Aggregated:
    """The host and how to reach it."""

    host: Callable[[Any], IKubeClient]
    overrides: RequestHeaderOverrides = field(default_factory=RequestHeaderOverrides)


@implementer(IAuthorizer)
class HostAuthorizer:
    """
    Authorizes by the host's SubjectAccessReviews.

    As in Kubernetes' own servers, ``system:masters`` is allowed without a review.
    """

    def __init__(self, reviews: IAuthorizer) -> None:
        self._reviews = reviews

    def files(self) -> list[Replaceable]:
        return files_of([self._reviews])

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        if MASTERS in attributes.user.groups:
            return succeed(Decision(True, f"{MASTERS} may everything"))
        return self._reviews.authorize(attributes)


class Behind:
    """The control plane of a server behind a host."""

    garbage_collection = True  # the host's

    def __init__(
        self,
        aggregated: Aggregated,
        own: IStorage,
        dialects: Sequence[Dialect],
        reactor: Any,
        metrics: CollectorRegistry,
    ) -> None:
        self.client = aggregated.host(reactor)
        self.trust = HostTrust(self.client, reactor, aggregated.overrides, metrics)
        self.kinds: Sequence[Kind] = kinds.aggregated(dialects)
        self._hosted = HostedStorage(self.client, reactor)
        self.storage: IStorage = SplitStorage(own, self._hosted)
        self._admission = HostAdmission(self.client, reactor)
        self._reactor, self._metrics = reactor, metrics
        self._changes: PermissionWatch | None = None
        self._delegated = DelegatedAuthorizer(self.client, reactor)
        self._rights = HostAuthorizer(self._delegated)
        self.authenticator: IAuthenticator = HostAuthenticator(
            self.trust, DelegatedAuthenticator(self.client, reactor), reactor
        )
        followed = (self._hosted, self._admission)
        state_gauge(
            metrics,
            "twisted_exec_host_objects_current",
            "1 while the copies of the host cluster's objects are current.",
            lambda: not any(any(each.problems) for each in followed),
        )

    @property
    def authorizer(self) -> IAuthorizer:
        return self._rights

    @property
    def admissions(self) -> Sequence[IAdmission]:
        return [self._admission]

    def on_permission_change(
        self, callback: Callable[[], None], users: Callable[[], Iterable[User]]
    ) -> None:
        self._changes = PermissionWatch(self.client, self._reactor, self._metrics, users)
        self._changes.changed = self.trust.changed = callback
        self._changes.forget = self._delegated.forget

    def observe_permissions(self) -> None:
        if self._changes is not None:
            self._changes.want()

    def followers(
        self,
        registry: KindRegistry,
        verbs: Verbs,
        reactor: Any,
        now: Callable[[], float],
        metrics: WorkQueueMetrics,
    ) -> list[Service]:
        return [self.trust, self._hosted, self._admission]

    def leader_controllers(
        self,
        registry: KindRegistry,
        verbs: Verbs,
        reactor: Any,
        now: Callable[[], float],
        metrics: WorkQueueMetrics,
    ) -> list[Service]:
        """Return none: the host empties namespaces and expires Events."""
        return []

    def views(self) -> list[tuple[Kind, IStorage]]:
        return []

    def add_to(
        self,
        routes: GatedRoutes,
        gate: Gate,
        strictness: Callable[[str, User], Strictness],
        queue: FairQueue,
    ) -> None:
        """The host serves reviews."""

    def add_probes(self, health: Health) -> None:
        """Add the check ``host``: the server has read whom the host trusts."""
        health.add("host", self._probe_host)

    def _probe_host(self) -> None:
        if not self.trust.is_known:
            raise ServiceUnavailable(self.trust.problem)

    @property
    def client_cas(self) -> Sequence[str]:
        return ()

    @property
    def published_cas(self) -> Callable[[], bytes] | None:
        return self.trust.authorities

    def load(self) -> None:
        """There are no files."""

    async def prepare(self, verbs: Verbs) -> None:
        """
        Read the host's ConfigMap, if the host answers now.

        :raises TrustError: the ConfigMap is unusable.
        """
        await self.trust.begin()

    def when_prepared(self) -> Deferred[None]:
        return self.trust.when_known()

    def close(self) -> Deferred[Any]:
        close: Callable[[], Any] = getattr(self.client, "close", lambda: None)
        stopping = self._changes.stop() if self._changes is not None else succeed(None)
        return stopping.addCallback(lambda _: maybeDeferred(close))


def _on(resource: Resource, *verbs: str) -> Rule:
    return Rule(verbs, (resource.group,), (resource.plural,))


def cluster_rules() -> tuple[Rule, ...]:
    """Rules of a ClusterRole for the server's user."""
    followed = dict.fromkeys(
        (resource.group, resource.plural) for versions in FOLLOWED for resource in versions
    )
    return (
        *(Rule(_FOLLOW, (group,), (plural,)) for group, plural in followed),
        # A server that may create access reviews can find out the same, one question after the other.
        *(_on(kind.resource, *_FOLLOW) for kind in RBAC),
        _on(EVENTS.resource, "get", "create", "update"),
    )


def namespaced_rules(dialects: Iterable[Dialect]) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """Rules of Roles for the server's user, by namespace."""
    own = replace(_on(LEASES.resource, *_FOLLOW, "update"), resource_names=(LEASE,))
    # Other programs elect their leaders in this namespace, so only our Lease is named; a create
    # cannot be limited by name.
    yield ELECTION, (own, _on(LEASES.resource, "create"))
    for namespace in sorted({each.lease_namespace for each in dialects} - {""}):
        yield namespace, (_on(LEASES.resource, *_FOLLOW),)

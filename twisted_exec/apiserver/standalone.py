"""
The control plane of a standalone server: its own RBAC, namespaces, Events and certificates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.events import event_from_core, event_to_core
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE
from twisted_exec.apiserver.controllers.expiry import EventExpiry, TokenExpiry
from twisted_exec.apiserver.controllers.namespaces import NamespaceGuard, NamespaceLifecycle
from twisted_exec.apiserver.controllers.role_aggregation import RoleAggregation
from twisted_exec.apiserver.controllers.signer import DEFAULT_LIFE_SECONDS, Signer
from twisted_exec.apiserver.controllers.system_objects import SystemObjects, create_system_objects
from twisted_exec.apiserver.identity.console_rules import ConsoleRules
from twisted_exec.apiserver.identity.credentials import ServerAuthenticators
from twisted_exec.apiserver.identity.rbac import Escalation, StoredRules
from twisted_exec.apiserver.identity.reviews import Reviews
from twisted_exec.apiserver.identity.service_accounts import (
    IssuerDocuments,
    TokenInvalidation,
    TokenRequests,
)
from twisted_exec.apiserver.interfaces import IAdmission, Strictness
from twisted_exec.apiserver.machine_pods.authorization import PodsAuthorizer
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.apiserver.restriction.exposed import ExposedAuthorizer
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.renamed_storage import RenamedStorage
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.apiserver.signing.interfaces import CLIENT
from twisted_exec.apiserver.signing.rights import SigningRights
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import IRulesAuthorizer, User
from twisted_exec.auth.rbac import RBACAuthorizer
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.program.health import Health
from twisted_exec.storage.interfaces import MEMORY, IStorage
from twisted_exec.tls import pem
from twisted_exec.tls.files import Reloading, read_file
from twisted_exec.tls.pki.authority import Authority


class StandaloneControlPlane:
    """
    The control plane of a standalone server.

    :param pods_view: serve machines as Pods too, authorized as their machines.
    :param node_pods: serve Pods of Nodes; excludes ``pods_view``.
    :param authorities: CAs for CertificateSigningRequests, by the signer's name.
    :param own_names: this server's names, which no certificate gets without a person's approval.
    """

    _log = Logger()
    garbage_collection = False

    def __init__(
        self,
        storage: IStorage,
        dialects: Sequence[Dialect],
        credentials: ServerAuthenticators,
        *,
        pods_view: bool = False,
        node_pods: bool = False,
        authorities: Mapping[str, Reloading[Authority]] | None = None,
        signing_seconds: float = DEFAULT_LIFE_SECONDS,
        own_names: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self.storage, self._dialects, self._credentials = storage, dialects, credentials
        self.authenticator = credentials.authenticator()
        self._authorities, self._own_names = authorities or {}, own_names
        self._signing_seconds = signing_seconds
        self._voided = TokenInvalidation(storage)
        self._rules = StoredRules(storage)
        self._rbac = RBACAuthorizer(self._rules)
        self._exposed = ExposedAuthorizer(self._rbac, storage, dialects)
        self._authorizer: IRulesAuthorizer = self._exposed
        self.kinds: Sequence[Kind] = kinds.served(dialects)
        if pods_view:
            self._authorizer = PodsAuthorizer(self._exposed, PodNames(dialects))
            self.kinds = (*self.kinds, kinds.PODS)
        self._node_pods = node_pods
        if node_pods:
            self.kinds = (*self.kinds, kinds.NODE_PODS)

    @property
    def authorizer(self) -> IRulesAuthorizer:
        return self._authorizer

    def on_permission_change(
        self, callback: Callable[[], None], users: Callable[[], Iterable[User]]
    ) -> None:
        self._rules.changed = self._voided.changed = self._exposed.changed = callback

    def observe_permissions(self) -> None:
        """The rules are in this server's store."""

    @property
    def admissions(self) -> Sequence[IAdmission]:
        rights = SigningRights(self.authorizer)
        return [NamespaceGuard(), Escalation(self._rbac, self.storage), rights]

    def followers(
        self,
        registry: KindRegistry,
        verbs: Verbs,
        reactor: Any,
        now: Callable[[], float],
        metrics: WorkQueueMetrics,
    ) -> list[Service]:
        objects, namespaces = self._system_objects()
        self._system = SystemObjects(self.storage, verbs, objects, namespaces, reactor, metrics)
        return [self._rules, self._voided, self._exposed, self._system]

    def leader_controllers(
        self,
        registry: KindRegistry,
        verbs: Verbs,
        reactor: Any,
        now: Callable[[], float],
        metrics: WorkQueueMetrics,
    ) -> list[Service]:
        services: list[Service] = [
            RoleAggregation(self.storage, verbs, reactor, now, metrics),
            NamespaceLifecycle(self.storage, registry, verbs, reactor, metrics, now),
            EventExpiry(self.storage, reactor, now, metrics=metrics),
            TokenExpiry(self.storage, reactor, now, metrics),
        ]
        if self._authorities:
            arguments = (self._dialects, self._authorities, reactor, now)
            more = (self._signing_seconds, self._own_names, metrics)
            services.append(Signer(self.storage, verbs, self.authorizer, *arguments, *more))
        return services

    def views(self) -> list[tuple[Kind, IStorage]]:
        return [
            (
                kinds.EVENTS_V1,
                RenamedStorage(self.storage, kinds.EVENTS_V1, event_from_core, event_to_core),
            )
        ]

    def add_to(
        self,
        routes: GatedRoutes,
        gate: Gate,
        strictness: Callable[[str, User], Strictness],
        queue: FairQueue,
    ) -> None:
        rules = ConsoleRules(self.authorizer, self._dialects, strictness)
        Reviews(gate, rules, self._credentials.tokens, queue).add_to(routes)
        issuer = self._credentials.issuer
        TokenRequests(gate, self.storage, issuer, queue).add_to(routes)
        if issuer is not None:
            IssuerDocuments(gate, issuer, self._credentials.jwks_uri).add_to(routes)

    def add_probes(self, health: Health) -> None:
        health.add("system-objects", self._system.probe)

    @property
    def client_cas(self) -> Sequence[str]:
        return [self._credentials.client_ca]

    @property
    def published_cas(self) -> Callable[[], bytes] | None:
        return None

    def load(self) -> None:
        self._credentials.load()
        for authority in self._authorities.values():
            authority.load()
        if CLIENT in self._authorities:
            self._look_whom_it_makes_known(self._authorities[CLIENT].get())

    def _look_whom_it_makes_known(self, authority: Authority) -> None:
        # A warning only: an operator who replaces the CA may start with this file.
        path = self._credentials.client_ca
        (signing,) = pem.certificates(authority.certificate_pem, "the CA that signs")
        believed = pem.certificates(read_file(path), "client CA")
        if not any(pem.has_issued(each, signing) for each in believed):
            self._log.warn(
                "certificates that {signer} signs authenticate no one: "
                "--cluster-signing-kube-apiserver-client-cert-file is none of --client-ca-file {path}",
                signer=CLIENT,
                path=repr(path),
            )

    async def prepare(self, verbs: Verbs) -> None:
        """Create the bootstrap roles, bindings and namespaces."""
        objects, namespaces = self._system_objects()
        is_empty = not (await self.storage.list(kinds.NAMESPACES.resource)).items
        if is_empty and self.storage.location not in ("", MEMORY):
            # A wrong --storage looks like a first start, and poollets delete what has no object.
            self._log.info(
                "the store is empty, a new cluster begins: {place}", place=self.storage.location
            )
        await create_system_objects(self.storage, verbs, objects, namespaces)

    def when_prepared(self) -> Deferred[None]:
        return succeed(None)

    def _system_objects(self) -> tuple[Sequence[Object], Sequence[str]]:
        leases = [dialect.lease_namespace for dialect in self._dialects]
        namespaces = [name for name in dict.fromkeys([*leases, LEASE_NAMESPACE]) if name]
        return bootstrap_objects(self._dialects, node_pods=self._node_pods), namespaces

    def close(self) -> Deferred[Any]:
        self._credentials.close()
        return succeed(None)

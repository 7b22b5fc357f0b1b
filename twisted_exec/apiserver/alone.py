"""
What a server stands on that has no other to ask: rights, namespaces, Events and certificates of
its own.

Behind another API server these are that one's, and it stands on what
:mod:`twisted_exec.apiserver.aggregated` makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind
from twisted_exec.api.kinds.events import as_core, as_new
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE
from twisted_exec.apiserver.accounts import IssuerDocuments, TokenRequests
from twisted_exec.apiserver.bootstrap import bootstrap
from twisted_exec.apiserver.expiry import EventExpiry
from twisted_exec.apiserver.exposed import ExposedAuthorizer
from twisted_exec.apiserver.filters import Gate
from twisted_exec.apiserver.gathered import GatheredRules
from twisted_exec.apiserver.identities import Credentials
from twisted_exec.apiserver.interfaces import IAdmission
from twisted_exec.apiserver.namespaces import NamespaceGuard, NamespaceLifecycle
from twisted_exec.apiserver.pods_access import PodsAuthorizer
from twisted_exec.apiserver.pods_names import PodNames
from twisted_exec.apiserver.registry import Registry
from twisted_exec.apiserver.renamed import RenamedStorage
from twisted_exec.apiserver.reviews import Reviews
from twisted_exec.apiserver.rules import Escalation, StoredRules
from twisted_exec.apiserver.signer import DEFAULT_LIFE_SECONDS, Signer
from twisted_exec.apiserver.signing import CLIENT
from twisted_exec.apiserver.signing_rights import SigningRights
from twisted_exec.apiserver.token_expiry import TokenExpiry
from twisted_exec.apiserver.verbs import Verbs
from twisted_exec.apiserver.voided import Voided
from twisted_exec.auth.interfaces import IRulesAuthorizer
from twisted_exec.auth.rbac import RBACAuthorizer, bootstrap_objects
from twisted_exec.observe.health import Health
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.routes import Routes
from twisted_exec.tls import pem
from twisted_exec.tls.authority import Authority
from twisted_exec.tls.files import Reloading, read_file


class Alone:
    """
    The ground of a server that is alone.

    :param credentials: by which users are known.
    :param pods_view: machines are shown as Pods as well, whose rights are their machines'.
    :param node_pods: Pods are those of Nodes; then there is no such view.
    :param authorities: sign what is asked for by certificate signing requests, by the
        signer's name.
    :param signing_seconds: how long their certificates are good at most.
    :param own_names: of this server, which no poollet is given unasked.
    """

    _log = Logger()
    collected = False

    def __init__(
        self,
        storage: IStorage,
        dialects: Sequence[Dialect],
        credentials: Credentials,
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
        self._voided = Voided(storage)
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
        """As :attr:`Ground.authorizer`: by roles and bindings."""
        return self._authorizer

    def when_rights_change(self, told: Callable[[], None]) -> None:
        """As :meth:`Ground.when_rights_change`."""
        self._rules.changed = self._voided.changed = self._exposed.changed = told

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """As :attr:`Ground.admissions`."""
        rights = SigningRights(self.authorizer)
        return [NamespaceGuard(), Escalation(self._rbac, self.storage), rights]

    def followers(
        self, registry: Registry, verbs: Verbs, reactor: Any, now: Callable[[], float]
    ) -> list[Service]:
        """As :meth:`Ground.followers`."""
        return [self._rules, self._voided, self._exposed]

    def acting(
        self, registry: Registry, verbs: Verbs, reactor: Any, now: Callable[[], float]
    ) -> list[Service]:
        """As :meth:`Ground.acting`."""
        found: list[Service] = [
            GatheredRules(self.storage),
            NamespaceLifecycle(self.storage, registry, verbs, reactor),
            EventExpiry(self.storage, reactor, now),
            TokenExpiry(self.storage, reactor, now),
        ]
        if self._authorities:
            told = (self._dialects, self._authorities, reactor, now)
            more = (self._signing_seconds, self._own_names)
            found.append(Signer(self.storage, verbs, self.authorizer, *told, *more))
        return found

    def views(self) -> list[tuple[Kind, IStorage]]:
        """As :meth:`Ground.views`: Events by their newer name."""
        return [(kinds.EVENTS_V1, RenamedStorage(self.storage, kinds.EVENTS_V1, as_new, as_core))]

    def add_to(self, routes: Routes, gate: Gate) -> None:
        """As :meth:`Ground.add_to`: reviews, and tokens."""
        Reviews(gate, self.authorizer, self._credentials.tokens).add_to(routes)
        issuer = self._credentials.issuer
        TokenRequests(gate, self.storage, issuer).add_to(routes)
        if issuer is not None:
            IssuerDocuments(gate, issuer, self._credentials.jwks_uri).add_to(routes)

    def add_probes(self, health: Health) -> None:
        """As :meth:`Ground.add_probes`: there is nothing but the store."""

    @property
    def client_cas(self) -> Sequence[str]:
        """As :attr:`Ground.client_cas`."""
        return [self._credentials.client_ca]

    @property
    def told_cas(self) -> Callable[[], bytes] | None:
        """As :attr:`Ground.told_cas`: all are in files."""
        return None

    def load(self) -> None:
        """As :meth:`Ground.load`."""
        self._credentials.load()
        for authority in self._authorities.values():
            authority.load()
        if CLIENT in self._authorities:
            self._look_whom_it_makes_known(self._authorities[CLIENT].get())

    def _look_whom_it_makes_known(self, authority: Authority) -> None:
        # No refusal: who exchanges the authority may well begin here.
        path = self._credentials.client_ca
        (signing,) = pem.certificates(authority.certificate_pem, "the CA that signs")
        believed = pem.certificates(read_file(path), "client CA")
        if not any(pem.has_issued(each, signing) for each in believed):
            self._log.warn(
                "nobody is known by certificates that {signer} signs: "
                "--cluster-signing-kube-apiserver-client-cert-file is none of --client-ca-file {path}",
                signer=CLIENT,
                path=repr(path),
            )

    async def prepare(self, verbs: Verbs) -> None:
        """As :meth:`Ground.prepare`: roles, bindings and namespaces that always are."""
        objects = bootstrap_objects(self._dialects, node_pods=self._node_pods)
        leases = [dialect.lease_namespace for dialect in self._dialects]
        expected = filter(None, dict.fromkeys([*leases, LEASE_NAMESPACE]))
        await bootstrap(self.storage, verbs, objects, expected)

    def close(self) -> Deferred[Any]:
        """As :meth:`Ground.close`: connections to those who issue tokens."""
        self._credentials.close()
        return succeed(None)

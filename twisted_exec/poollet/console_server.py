"""
The consoles of one pool: the rights of their users, their sessions, and the HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import DeferredList, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger

from twisted_exec.auth.console_rights import ConsoleVerbs
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.gate import Gate, users_of
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer
from twisted_exec.auth.rbac.changes import PermissionWatch
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.credentials.serving_certificate import ServingCertificate
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.observe.audit import Trail
from twisted_exec.observe.health import Health
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.observe.metrics import MetricsRegistry, SessionMetrics
from twisted_exec.poollet.consoles.content_route import ContentLocator
from twisted_exec.poollet.consoles.denials import Denials
from twisted_exec.poollet.consoles.dialling import Dialler
from twisted_exec.poollet.consoles.exec_route import (
    CONTINUE_SECONDS,
    ExecLocator,
    PoolAccess,
    gate_of,
    proxy_of,
)
from twisted_exec.poollet.consoles.log_route import DeletedLogLocator, LogLocator
from twisted_exec.poollet.consoles.policies import PoolPolicies
from twisted_exec.poollet.consoles.routes import PoolletRoutes
from twisted_exec.poollet.consoles.screen_route import ScreenLocator
from twisted_exec.poollet.settings import Settings
from twisted_exec.program.listening import LISTENING
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.endings import EndingRules, MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import LATER_HOP_SECONDS, SessionGuard
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS

MAX_BODY_BYTES = 64 << 10

_NO_PROXY = (
    "pool {pool}: no API server can forward consoles, because no CA for its client certificate is "
    "configured; see --requestheader-client-ca-file, or --client-ca-file for an API server that "
    "forwards no users"
)


class ConsoleServer:
    """
    Serves the consoles of a pool's machines, with their logs, screens and recordings.

    :param machines: the pool's Machines.
    :param machine_of: see :class:`.ExecLocator`.
    :param recorder: of Events of Machines.
    :param health: of the program.
    """

    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        client: IKubeClient,
        runtime: IMachineRuntime,
        audit: IAuditSink,
        reactor: Any,
        *,
        authorizer: IAuthorizer,
        machines: Reflector,
        machine_of: Callable[[str], list[pb.Machine]],
        recorder: Recorder,
        registry: MetricsRegistry,
        health: Health,
        now: Callable[[], float],
    ) -> None:
        self._settings, self._reactor = settings, reactor
        self._client, self._registry, self._authorizer = client, registry, authorizer
        self._port: IListeningPort | None = None
        self._ending_rules = EndingRules(settings.dialect.noun, settings.dialect.pool_noun)
        self._make_files(now)
        access = PoolAccess(
            settings.dialect, settings.pool, settings.pool_proxy_suffices, settings.strict_verbs
        )
        gate = self._gate(access)
        self.policies = PoolPolicies(client, reactor, settings.dialect, machines)
        self._make_sessions(gate, audit)
        parts = (
            gate,
            access,
            client,
            runtime,
            machines,
            machine_of,
            self._dialler,
            reactor,
            self.policies,
        )
        relay = partial(Relay, sessions=self.sessions, clock=reactor)
        self.proxy = Proxy(
            ExecLocator(*parts, denials=Denials(self.sessions, recorder, reactor.seconds)),
            hop="poollet",
            sessions=self.sessions,
            clock=reactor,
            continue_seconds=CONTINUE_SECONDS,
            caller_of=proxy_of(gate, self._proxies),
            credential_headers=gate.credential_headers.current,
        )
        routes = PoolletRoutes(
            gate,
            access,
            self.proxy,
            relay(LogLocator(*parts)),
            relay(ScreenLocator(*parts)),
            relay(DeletedLogLocator(*parts)),
            relay(ContentLocator(*parts)),
            health,
            registry,
        )
        self._site = Site(
            routes,
            reactor,
            max_body_bytes=MAX_BODY_BYTES,
            fitting=self.sessions.connections_beside,
        )

    def _make_files(self, now: Callable[[], float]) -> None:
        """Create everything that reads certificates."""
        settings, reactor = self._settings, self._reactor
        self._dialler = Dialler(
            reactor,
            runtime_ca=settings.runtime_ca,
            trusted_uids=settings.trusted_uids,
            runtime=settings.runtime,
            allowed=settings.exec_allowed,
        )
        self.serving = (
            ServingCertificate(
                self._client,
                reactor,
                directory=settings.certificate_directory,
                name=settings.dialect.pool_identity(settings.pool),
                group=settings.dialect.pool_identity_group,
                label=settings.pool,
                now=now,
                signer=settings.signer,
            )
            if settings.certificate_directory
            else None
        )
        self._certified = (
            X509Authenticator(settings.client_ca, reactor, apart_from=settings.requestheader_ca)
            if settings.client_ca
            else None
        )
        self._proxies = (
            RequestHeaderAuthenticator(
                settings.requestheader_ca,
                settings.requestheader_names,
                reactor,
                apart_from=settings.client_ca,
            )
            if settings.requestheader_ca
            else None
        )

    def _gate(self, access: PoolAccess) -> Gate:
        settings = self._settings
        verbs = ConsoleVerbs(
            self._authorizer, [settings.dialect.workload], strict=settings.strict_verbs
        )
        direct: list[IAuthenticator] = [self._certified] if self._certified is not None else []
        return gate_of(
            access,
            self._proxies,
            [*direct, DelegatedAuthenticator(self._client, self._reactor)],
            verbs,
            settings.allowed_origins,
        )

    def _make_sessions(self, gate: Gate, audit: IAuditSink) -> None:
        """Create the registry of sessions, and their reviews."""
        reactor, registry = self._reactor, self._registry
        self.sessions = Sessions(
            Trail(audit, "poollet", reactor), SessionMetrics(registry), self._settings.sessions
        )
        RoundTripMetrics(registry, self.sessions)
        self.permissions = PermissionWatch(
            self._client, reactor, registry, partial(users_of, self.sessions)
        )
        self.guard = SessionGuard(
            self.sessions,
            gate,
            reactor,
            files=gate.files,
            on_review=self.permissions.want,
            hint_seconds=LATER_HOP_SECONDS,
        )
        self.permissions.changed = self.guard.review_soon
        self.policies.changed = self.guard.review_soon
        if isinstance(self._authorizer, DelegatedAuthorizer):
            self.permissions.forget = self._authorizer.forget

    def load(self) -> None:
        """
        Read the certificates of clients and runtimes.

        :raises TLSConfigError: a file cannot be used.
        """
        for part in (self._certified, self._proxies, self._dialler):
            if part is not None:
                part.load()

    async def listen(self) -> IAddress:
        """
        Accept connections, after :meth:`load`.

        :raises TLSConfigError: there is no certificate that can be used.
        """
        settings = self._settings
        cas = [ca for ca in (settings.client_ca, settings.requestheader_ca) if ca]
        certificate, key = settings.certificate, settings.key
        if self.serving is not None:
            self.serving.prepare()
            certificate, key = self.serving.certificate, self.serving.key
        tls = ServerTLS(certificate, key, client_cas=cas, resumable=True, clock=self._reactor)
        endpoint = server_endpoint(self._reactor, settings.listen, tls, LISTENING)
        self._port = await endpoint.listen(self._site)
        if not cas:
            self._log.warn(_NO_PROXY, pool=settings.pool)
        return self._port.getHost()

    def start(self) -> None:
        """Review the sessions from now on."""
        self.guard.startService()

    def drain(self) -> None:
        """Close idle connections, and each other one after its request."""
        self._site.drain()

    async def end(self) -> None:
        """Accept no connections, and end all sessions with a message."""
        if self._port is not None:
            await maybeDeferred(self._port.stopListening)
            self._port = None
        self.drain()
        ending = Ending(SHUTTING_DOWN, "the poollet is shutting down")
        await self.sessions.drain(self._reactor, self._settings.drain_seconds, ending)

    async def stop(self) -> None:
        """Stop the reviews, after :meth:`end`."""
        await DeferredList(
            [self.guard.stopService(), self.permissions.stop(), self.policies.stop()]
        )

    def machine_changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a Machine that appeared, changed or was deleted."""
        ending = self._ending_rules.machine_ending(before, after)
        if ending is not None and before is not None:
            self.guard.end(MachineKey(before["metadata"]["uid"]), ending)
        self.policies.machine_changed(before, after)

    def pool_changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a change of the pool."""
        ending = self._ending_rules.pool_ending(before, after)
        if ending is not None:
            self.guard.end(PoolKey(self._settings.pool), ending)

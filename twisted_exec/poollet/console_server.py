"""The HTTPS server for the consoles, logs, screens and recordings of one pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger

from twisted_exec.api.kinds import CONSOLERECORDINGS, DELETEDCONSOLES
from twisted_exec.api.kinds.consolerecordings import CONTENT, content_path
from twisted_exec.api.kinds.deletedconsoles import log_path
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.console_rights import ConsoleVerbs
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedRoutes
from twisted_exec.auth.gate import Gate, users_of
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer
from twisted_exec.auth.permission_watch import PermissionWatch
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.subresources import LOG, SCREEN
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.kube.signed_certificates import ServingCertificate
from twisted_exec.poollet import PROGRAM
from twisted_exec.poollet.access import PoolAccess, gate_of
from twisted_exec.poollet.admission import (
    CONTINUE_SECONDS,
    PoolAdmissionParts,
    PoolMachineAdmission,
)
from twisted_exec.poollet.exec_urls import Dialler
from twisted_exec.poollet.policies import Denials, PoolPolicies
from twisted_exec.poollet.settings import Settings
from twisted_exec.poollet.text_urls import (
    PoolContentAdmission,
    PoolDeletedLogAdmission,
    log_url,
    no_screen,
    screen_url,
)
from twisted_exec.program.audit import Trail
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond, respond_text
from twisted_exec.streaming.http.routes import RouteMatch, respond_ready
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.endings import EndingRules, MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import LATER_HOP_SECONDS, SessionGuard
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS, peer_certificate
from twisted_exec.tls.spares import IDLE_SECONDS

MAX_BODY_BYTES = 64 << 10

_NO_PROXY = (
    "pool {pool}: no API server can forward consoles, because no CA for its client certificate is "
    "configured; see --requestheader-client-ca-file, or --client-ca-file for an API server that "
    "forwards no users"
)


class PoolConsoleServer:
    """Serves the consoles of a pool's machines, with their logs, screens and recordings."""

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
        self._tls: ServerTLS | None = None  # once it listens
        self._ending_rules = EndingRules(settings.dialect.noun, settings.dialect.pool_noun)
        self._make_files(now)
        access = PoolAccess(
            settings.dialect, settings.pool, settings.pool_proxy_suffices, settings.strict_verbs
        )
        gate = self._gate(access)
        self.policies = PoolPolicies(client, reactor, settings.dialect, machines)
        self._make_sessions(gate, audit)
        parts = PoolAdmissionParts(
            gate=gate,
            access=access,
            client=client,
            runtime=runtime,
            store=machines,
            observed=machine_of,
            dialler=self._dialler,
            clock=reactor,
            policies=self.policies,
        )
        relay = partial(Relay, sessions=self.sessions, clock=reactor)
        self.proxy = Proxy(
            PoolMachineAdmission(parts, denials=Denials(self.sessions, recorder, reactor.seconds)),
            ProxySettings(
                "poollet",
                continue_seconds=CONTINUE_SECONDS,
                credential_headers=gate.credential_headers.current,
            ),
            sessions=self.sessions,
            clock=reactor,
            caller_of=_proxy_of(gate, self._proxies),
        )
        routes = PoolletRoutes(
            gate,
            access,
            self.proxy,
            relay(PoolMachineAdmission(parts, what=LOG, url=log_url)),
            relay(PoolMachineAdmission(parts, what=SCREEN, url=screen_url, unknown_path=no_screen)),
            relay(PoolDeletedLogAdmission(parts)),
            relay(PoolContentAdmission(parts)),
            health,
            registry,
        )
        self._site = Site(
            routes,
            reactor,
            max_body_bytes=MAX_BODY_BYTES,
            fitting=self.sessions.connections_beside,
            spare_seconds=self._spare_seconds,
        )

    def _spare_seconds(self, transport: object) -> float:
        """Return how much longer a client with a certificate may wait with its first byte."""
        if self._tls is None or not self._tls.is_current(transport):
            return 0.0
        certificate = peer_certificate(transport)
        known = self._proxies is not None and self._proxies.caller(certificate)
        if not known and self._certified is not None:
            known = self._certified.user(certificate)
        return IDLE_SECONDS if known else 0.0

    def _make_files(self, now: Callable[[], float]) -> None:
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

        :raises TLSConfigError: there is no certificate that can be used, or the address is
            malformed.
        :raises CannotListenError: the address is not available.
        """
        settings = self._settings
        cas = [ca for ca in (settings.client_ca, settings.requestheader_ca) if ca]
        certificate, key = settings.certificate, settings.key
        if self.serving is not None:
            self.serving.prepare()
            certificate, key = self.serving.certificate, self.serving.key
        tls = ServerTLS(certificate, key, client_cas=cas, resumable=True, clock=self._reactor)
        self._tls = tls
        endpoint = server_endpoint(self._reactor, settings.listen, tls, LISTENING)
        self._port = await endpoint.listen(self._site)
        if not cas:
            self._log.warn(_NO_PROXY, pool=settings.pool)
        return self._port.getHost()

    def start(self) -> None:
        self.guard.startService()

    async def stop(self) -> None:
        """Accept no connections, end the sessions, and stop what reviews them."""
        self.sessions.close(f"{PROGRAM} is restarting")
        self._dialler.spares.close()
        if self._port is not None:
            await maybeDeferred(self._port.stopListening)
            self._port = None
        self._site.drain()
        await self.sessions.drain(self._reactor, self._settings.drain_seconds, PROGRAM)
        stopping = [self.guard.stopService(), self.permissions.stop(), self.policies.stop()]
        if self.serving is not None:
            stopping.append(self.serving.stop())
        await DeferredList(stopping)

    def machine_changed(self, before: Object | None, after: Object | None) -> None:
        ending = self._ending_rules.machine_ending(before, after)
        if ending is not None and before is not None:
            self.guard.end(MachineKey(before["metadata"]["uid"]), ending)
        self.policies.machine_changed(before, after)

    def pool_changed(self, before: Object | None, after: Object | None) -> None:
        ending = self._ending_rules.pool_ending(before, after)
        if ending is not None:
            self.guard.end(PoolKey(self._settings.pool), ending)


class PoolletRoutes(GatedDispatcher):
    """
    The HTTP resource of a poollet.

    Probes are open to all clients; metrics need permission to ``get`` the path ``/metrics``.
    """

    def __init__(
        self,
        gate: Gate,
        access: PoolAccess,
        proxy: Proxy,
        logs: Relay,
        screens: Relay,
        deleted_logs: Relay,
        recordings: Relay,
        health: Health,
        registry: MetricsRegistry,
    ) -> None:
        routes = GatedRoutes()
        super().__init__(gate, routes, proxy.sessions)
        self._access, self._health, self._registry = access, health, registry
        dialect = access.dialect
        machine = (
            f"/apis/{dialect.group}/namespaces/{{namespace}}/{dialect.workload.plural}/{{name}}"
        )
        for subresource, methods, handler in (
            ("exec", ("GET", "POST"), proxy.handle),
            ("log", ("GET",), logs.handle),
            ("screen", ("GET",), screens.handle),
        ):
            facts = partial(self._facts, subresource)
            path = f"{machine}/{subresource}"
            routes.add_session(methods, path, handler, target=_values, session=facts)
        routes.add_session(
            ["GET"],
            log_path("{namespace}", "{name}"),
            deleted_logs.handle,
            target=_values,
            session=self._deleted_facts,
        )
        routes.add_session(
            ["GET"],
            content_path("{namespace}", "{name}"),
            recordings.handle,
            target=_values,
            session=self._recording_facts,
        )
        routes.add(["DELETE"], f"{machine}/exec", proxy.end, is_open=True)
        routes.add(["PATCH"], f"{machine}/exec", proxy.limit, is_open=True)
        routes.add(["GET"], "/healthz", self._healthz, is_open=True)
        routes.add(["GET"], "/livez", self._healthz, is_open=True)
        routes.add(["GET"], "/readyz", self._readyz, is_open=True)
        routes.add(["GET"], "/metrics", self._metrics)

    def _facts(self, subresource: str, values: Mapping[str, str]) -> dict[str, str]:
        return {
            "namespace": values["namespace"],
            "machine": values["name"],
            "subresource": subresource,
            "resource": self._access.dialect.workload.qualified,
            "noun": self._access.dialect.noun,
            "pool": self._access.pool,
        }

    def _deleted_facts(self, values: Mapping[str, str]) -> dict[str, str]:
        return {
            **self._facts("log", values),
            "resource": DELETEDCONSOLES.resource.qualified,
            "noun": DELETEDCONSOLES.singular,
        }

    def _recording_facts(self, values: Mapping[str, str]) -> dict[str, str]:
        return {
            **self._facts(CONTENT, values),
            "resource": CONSOLERECORDINGS.resource.qualified,
            "noun": CONSOLERECORDINGS.singular,
        }

    async def _healthz(self, context: RequestContext) -> None:
        respond_text(context.request, 200, "ok")

    async def _readyz(self, context: RequestContext) -> None:
        await respond_ready(context.request, self._health)

    async def _metrics(self, context: RequestContext) -> None:
        await self._gate.authorize(Attributes(context.user, "get", path="/metrics"))
        respond(context.request, 200, await self._registry.scrape(), CONTENT_TYPE)


def _values(match: RouteMatch[Any]) -> Mapping[str, str]:
    return match.values


def _proxy_of(
    gate: Gate, proxies: RequestHeaderAuthenticator | None
) -> Callable[[Request], Deferred[str]]:
    """Return a function that authenticates a proxy, which may end its own sessions."""

    def name(request: Request) -> str:
        credentials = gate.credential_headers.take_from(request)
        proxy = proxies.caller(credentials.certificate) if proxies is not None else None
        if proxy is None:
            raise Unauthorized("only a proxy that forwards users ends sessions here")
        return proxy.name

    return lambda request: maybeDeferred(name, request)

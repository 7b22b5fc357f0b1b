"""
The poollet of one pool, as a Twisted service.

It listens, registers the pool, reconciles the runtime's machines with the API and serves consoles.
A Machine that is deleted, powered off or rebound ends its sessions at once, because the watch that
reports the change is open here anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList, maybeDeferred, succeed
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound, ServiceUnavailable
from twisted_exec.auth.console_rights import ConsoleVerbs
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.gate import users_of
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer
from twisted_exec.auth.rbac.changes import PermissionWatch
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.credentials.serving_certificate import ServingCertificate
from twisted_exec.kube.informers.reflector import Change, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.observe.audit import Trail
from twisted_exec.observe.health import Health
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.observe.metrics import SessionMetrics, new_registry
from twisted_exec.poollet.alerts.controller import AlertController
from twisted_exec.poollet.client_certificate import ClientCertificate
from twisted_exec.poollet.consoles.content_route import ContentLocator
from twisted_exec.poollet.consoles.denials import Denials
from twisted_exec.poollet.consoles.dialling import Dialler, Place
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
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.loop import Loop
from twisted_exec.poollet.machines.references import Domain, Unread
from twisted_exec.poollet.machines.runtime_events import RuntimeEvents
from twisted_exec.poollet.pool.class_matching import choice
from twisted_exec.poollet.pool.controller import Address, Pool, default_addresses
from twisted_exec.poollet.recordings.controller import RecordingController
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.program.handover.interfaces import Handed, IHandsOver
from twisted_exec.program.listening import LISTENING
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.endings import EndingRules, MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import LATER_HOP_SECONDS, SessionGuard
from twisted_exec.streaming.sessions.lingering import linger
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.tls.endpoints import address_text, server_endpoint
from twisted_exec.tls.server import ServerTLS

SIGNER = "twisted-exec.dev/poollet-serving"
"""Signer of the serving certificates that poollets request."""

MAX_BODY_BYTES = 64 << 10
RETIRE_SECONDS = 2.0
_REPLACED = "the poollet was replaced, and the time for sessions that it left behind is over"


@dataclass(frozen=True)
class Settings:
    """
    Configuration of a poollet.  Paths are PEM files, read again when they change.

    :param listen: a Twisted endpoint string without TLS; port 0 picks a free port.
    :param client_ca: CA of user certificates; empty accepts no user certificates.
    :param requestheader_ca: CA of proxies that forward users; empty trusts no proxy.
    :param requestheader_names: common names of the trusted proxies.
    :param addresses: where the API server reaches this poollet; empty means this host's own.
    :param pool_proxy_suffices: users that need no permission on the machine.
    :param runtime_ca: CA of runtimes whose exec URLs are ``https``.
    :param trusted_uids: owners of UNIX sockets that may be dialled, besides root and our own user.
    :param runtime: gRPC target of the runtime, which limits its exec URLs; empty for a runtime in
        this process.
    :param exec_allowed: hosts that exec URLs may point to, besides this host and the runtime's.
    :param certificate_directory: directory of a certificate that the API server signs, instead of
        ``certificate`` and ``key``.
    :param signer: signerName of that certificate.
    :param downward: fields of Machines that the runtime gets as labels and annotations.
    :param about: the same for objects that Machines refer to; by default their names only.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow.
    :param allowed_origins: other web sites whose pages may open consoles (CORS).
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right at a console.
    """

    pool: str
    provider_id: str
    certificate: str = ""
    key: str = ""
    listen: str = "tcp:20250"
    client_ca: str = ""
    requestheader_ca: str = ""
    requestheader_names: Sequence[str] = ()
    addresses: Sequence[Address] = ()
    pool_proxy_suffices: Sequence[str] = ()
    runtime_ca: str = ""
    trusted_uids: Sequence[int] = ()
    runtime: str = ""
    drain_seconds: float = 5.0
    sessions: SessionLimits | None = None
    allowed_origins: Collection[bytes] = ()
    strict_verbs: bool = False
    exec_allowed: Sequence[Place] = ()
    certificate_directory: str = ""
    signer: str = SIGNER
    downward: Downward = field(default_factory=Downward)
    about: Domain | None = None
    dialect: Dialect = field(default=DEFAULT)


_NO_PROXY = (
    "pool {pool}: no API server can forward consoles, because no CA for its client certificate is "
    "configured; see --requestheader-client-ca-file, or --client-ca-file for an API server that "
    "forwards no users"
)


@implementer(IPoollet, IHandsOver)
class Poollet(Service):
    """
    Runs the machines of one pool on a machine runtime.

    :param client: of the API server, with the poollet's credentials.
    :param runtime: provides :class:`~twisted_exec.iri.interfaces.IMachineRuntime`.
    :param audit: the sink for session records.
    :param authorizer: replaces SubjectAccessReviews to the API server.
    :param checks: called at the start; an exception prevents it.
    :param identity: the client certificate, if the API server signs it; the poollet starts once
        there is one.
    """

    state_version = 1
    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        client: IKubeClient,
        runtime: object,
        audit: IAuditSink,
        reactor: Any,
        *,
        authorizer: IAuthorizer | None = None,
        checks: Sequence[Callable[[], object]] = (),
        now: Callable[[], float] = time.time,
        identity: ClientCertificate | None = None,
    ) -> None:
        self._identity = identity
        self.settings, self.pool = settings, settings.pool
        self.address: IAddress | None = None
        self._client, self._reactor = client, reactor
        self._runtime = IMachineRuntime(runtime)
        self._runtime_with_alerts = runtime
        self._audit, self._checks = audit, checks
        self._port: IListeningPort | None = None
        self._starting: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._authorizer = authorizer or DelegatedAuthorizer(client, reactor)
        self._problem: Failure | None = None
        self._config: MachineConfig | None = None
        self._addresses: Sequence[Address] = ()
        self._has_successor = False
        self._now = now
        self.registry = new_registry(reactor)
        self._make_copies(settings.dialect)
        self._make_work(now)
        self._make_route()
        self._make_health()

    def _make_copies(self, dialect: Dialect) -> None:
        """Create the watches of the API."""

        def follow(resource: Resource, selector: str, on_change: Change) -> Reflector:
            return Reflector(
                self._client, resource, self._reactor, field_selector=selector, on_change=on_change
            )

        self.machines = follow(
            dialect.workload, f"{dialect.pool_field}={self.pool}", self._machine_changed
        )
        self.classes = follow(dialect.workload_class, "", self._class_changed)
        self.pools = follow(dialect.pool, f"metadata.name={self.pool}", self._pool_changed)
        self._copies = (self.machines, self.classes, self.pools)

    def _make_work(self, now: Callable[[], float]) -> None:
        """Create the loop, the pool controller and the event forwarder."""
        settings = self.settings

        def synced() -> bool:
            return self.machines.synced and not self.machines.problem

        def recorder(about: Resource) -> Recorder:
            return Recorder(
                self._client,
                self._reactor,
                about=about,
                component=settings.dialect.poollet,
                host=settings.pool,
                now=now,
                busy=lambda: self.loop.is_busy,
            )

        self.recorder = recorder(settings.dialect.workload)
        self.recording_events = recorder(CONSOLERECORDINGS.resource)
        self.loop = Loop(
            self._client,
            self._runtime,
            self._reactor,
            machines=lambda: self.machines,
            synced=synced,
            now=now,
            report=self.recorder.record,
            class_of=self._class_of,
        )
        self.alerts = AlertController(
            self._client,
            self._runtime_with_alerts,
            self._reactor,
            settings.dialect,
            settings.pool,
            machines=lambda: self.machines,
            synced=synced,
            look_again=self.loop.look_again,
            registry=self.registry,
        )
        self.recordings = RecordingController(
            self._client,
            self._runtime_with_alerts,
            self._reactor,
            settings.dialect,
            settings.pool,
            has_machine=self._has_machine,
            synced=synced,
            now=now,
            report=self.recording_events.record,
        )
        self.runtime_events = RuntimeEvents(
            self._runtime,
            self._reactor,
            settings.dialect,
            machines=lambda: self.machines,
            synced=synced,
            recorder=self.recorder,
        )
        self.registration = Pool(
            self._client,
            self._runtime,
            self._reactor,
            dialect=settings.dialect,
            name=settings.pool,
            provider_id=settings.provider_id,
            machines=lambda: self.machines,
            classes=lambda: self.classes,
            pool=lambda: self.pools.get(settings.pool),
            on_runtime=self._runtime_known,
            on_current=self._tell_ready,
            on_offer=self.loop.look_at_all,
            now=now,
        )

    def _make_route(self) -> None:
        """Create the HTTP routes."""
        settings, reactor = self.settings, self._reactor
        self.sessions = Sessions(
            Trail(self._audit, "poollet", reactor),
            SessionMetrics(self.registry),
            settings.sessions,
        )
        RoundTripMetrics(self.registry, self.sessions)
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
                now=self._now,
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
        direct: list[IAuthenticator] = [self._certified] if self._certified is not None else []
        strict = settings.strict_verbs
        access = PoolAccess(settings.dialect, settings.pool, settings.pool_proxy_suffices, strict)
        gate = gate_of(
            access,
            self._proxies,
            [*direct, DelegatedAuthenticator(self._client, reactor)],
            ConsoleVerbs(self._authorizer, [settings.dialect.workload], strict=strict),
            settings.allowed_origins,
        )
        self.policies = PoolPolicies(self._client, reactor, settings.dialect, self.machines)
        parts = (
            gate,
            access,
            self._client,
            self._runtime,
            self.machines,
            self.loop.machine_of,
            self._dialler,
            reactor,
            self.policies,
        )
        relay = partial(Relay, sessions=self.sessions, clock=reactor)
        self._proxy = Proxy(
            ExecLocator(*parts, denials=Denials(self.sessions, self.recorder, reactor.seconds)),
            hop="poollet",
            sessions=self.sessions,
            clock=reactor,
            continue_seconds=CONTINUE_SECONDS,
            caller_of=proxy_of(gate, self._proxies),
            credential_headers=gate.credential_headers.current,
        )
        self.permissions = PermissionWatch(
            self._client, reactor, self.registry, partial(users_of, self.sessions)
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
        dialect = settings.dialect
        self._ending_rules = EndingRules(dialect.noun, dialect.pool_noun)
        self.health = Health(reactor)
        routes = PoolletRoutes(
            gate,
            access,
            self._proxy,
            relay(LogLocator(*parts)),
            relay(ScreenLocator(*parts)),
            relay(DeletedLogLocator(*parts)),
            relay(ContentLocator(*parts)),
            self.health,
            self.registry,
        )
        self.site = Site(
            routes,
            reactor,
            max_body_bytes=MAX_BODY_BYTES,
            fitting=self.sessions.connections_beside,
        )

    def _make_health(self) -> None:
        self.health.add("runtime", lambda: Deferred.fromCoroutine(self._probe_runtime()))
        self.health.add("apiserver", lambda: Deferred.fromCoroutine(self._probe_api_server()))
        self.health.add("caches", self._probe_copies)
        self.health.add("pool", self._probe_pool)
        if self.serving is not None:
            self.health.add("certificate", self._probe_certificate)
        if self._identity is not None:
            self.health.add("identity", self._probe_identity)

    async def _probe_runtime(self) -> None:
        await self._runtime.version(pb.VersionRequest())

    async def _probe_api_server(self) -> None:
        try:
            await self._client.get(self.settings.dialect.pool, self.pool)
        except APIError as error:
            if error.code != NotFound.code:  # any answer shows that the server works
                raise

    def _probe_copies(self) -> None:
        for copy in self._copies:
            if copy.problem or not copy.synced:
                raise ServiceUnavailable(copy.problem or f"{copy.resource.plural} are not known")

    def _probe_pool(self) -> None:
        if self.registration.problem:
            raise ServiceUnavailable(self.registration.problem)

    def _probe_certificate(self) -> None:
        if self.serving is not None and self.serving.problem:
            raise ServiceUnavailable(self.serving.problem)

    def _probe_identity(self) -> None:
        if self._identity is not None and self._identity.problem:
            raise ServiceUnavailable(self._identity.problem)

    def startService(self) -> None:
        """Start everything; errors fail the Deferreds of :meth:`when_ready`."""
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._failed)

    def when_ready(self) -> Deferred[None]:
        """See :meth:`IPoollet.when_ready`."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        self._tell_ready()
        return waiting

    def stopService(self) -> Deferred[None]:
        """End all sessions with a message, then stop; the Deferred fires when nothing is left."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        for check in self._checks:
            check()
        for part in (self._certified, self._proxies, self._dialler):
            if part is not None:
                part.load()
        if self._identity is not None:
            self._identity.start()
            await self._identity.when_known()
        settings = self.settings
        cas = [ca for ca in (settings.client_ca, settings.requestheader_ca) if ca]
        certificate, key = settings.certificate, settings.key
        if self.serving is not None:
            self.serving.prepare()
            certificate, key = self.serving.certificate, self.serving.key
        tls = ServerTLS(certificate, key, client_cas=cas, resumable=True, clock=self._reactor)
        endpoint = server_endpoint(self._reactor, settings.listen, tls, LISTENING)
        self._port = await endpoint.listen(self.site)
        self.address = host = self._port.getHost()
        self._addresses = settings.addresses or default_addresses(getattr(host, "host", ""))
        place = address_text(host)
        self._log.info("serving pool {pool} at {place}", pool=self.pool, place=place)
        if not cas:
            self._log.warn(_NO_PROXY, pool=self.pool)
        for copy in self._copies:
            copy.start()
        self.guard.startService()
        self._register()

    def _register(self) -> None:
        self.registration.start(self._addresses, getattr(self.address, "port", 0))
        if self.serving is not None:
            self.serving.start(sorted({address for _, address in self._addresses}))

    async def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        if self._port is not None:
            await maybeDeferred(self._port.stopListening)
            self._port = None
        self.site.drain()
        ending = Ending(SHUTTING_DOWN, "the poollet is shutting down")
        await self.sessions.drain(self._reactor, self.settings.drain_seconds, ending)
        await self._rest()
        await DeferredList(
            [self.guard.stopService(), self.permissions.stop(), self.policies.stop()]
        )
        await self.recorder.stop()
        await self.recording_events.stop()
        if not self._has_successor:
            retiring = Deferred.fromCoroutine(self.registration.retire())
            await retiring.addTimeout(RETIRE_SECONDS, self._reactor).addErrback(lambda _: None)
        await DeferredList([copy.stop() for copy in self._copies])
        if self._identity is not None:
            await self._identity.stop()

    async def _rest(self) -> None:
        """Stop everything that acts for the pool; sessions and their reviews go on."""
        self.runtime_events.stop()
        stopping = [
            self.alerts.stop(),
            self.recordings.stop(),
            self.registration.stop(),
            self.loop.stop(),
        ]
        if self.serving is not None:
            stopping.append(self.serving.stop())
        await DeferredList(stopping)

    # Hand-over

    def inherit(self, handed: Handed) -> None:
        """See :meth:`IHandsOver.inherit`; the API server and the runtime have the whole state."""

    def freeze(self) -> Deferred[Handed]:
        """See :meth:`IHandsOver.freeze`."""
        return Deferred.fromCoroutine(self._freeze())

    async def _freeze(self) -> Handed:
        await self._rest()
        if self._identity is not None:
            await self._identity.stop()
        return Handed()

    def thaw(self) -> Deferred[None]:
        """See :meth:`IHandsOver.thaw`."""
        if self._identity is not None:
            self._identity.start()
        self._register()
        if self._config is not None:
            self._act(self._config)
        return succeed(None)

    def retire(self, linger_seconds: float) -> Deferred[None]:
        """See :meth:`IHandsOver.retire`."""
        self._has_successor = True
        self.site.drain()
        return Deferred.fromCoroutine(
            linger(self.sessions, self._reactor, linger_seconds, _REPLACED)
        )

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        self._problem = failure
        if not self._waiting:
            self._log.critical("pool {pool}: {why}", pool=self.pool, why=failure.getErrorMessage())
        self._tell_ready()

    def _tell_ready(self) -> None:
        ready = self.address is not None and not self.registration.problem
        if self._problem is None and not ready:
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if self._problem is not None:
                waiter.errback(self._problem)
            else:
                waiter.callback(None)

    def _runtime_known(self, name: str) -> None:
        settings = self.settings
        self._config = MachineConfig(
            settings.dialect, self.pool, name, settings.downward, settings.about
        )
        self._act(self._config)

    def _act(self, config: MachineConfig) -> None:
        self.loop.start(config)
        self.runtime_events.start()
        self.alerts.start()
        self.recordings.start()

    def _has_machine(self, uid: str) -> bool:
        return any(each["metadata"]["uid"] == uid for each in self.machines)

    def _machine_changed(self, before: Object | None, after: Object | None) -> None:
        ending = self._ending_rules.machine_ending(before, after)
        if ending is not None and before is not None:
            self.guard.end(MachineKey(before["metadata"]["uid"]), ending)
        self.policies.machine_changed(before, after)
        self.loop.changed(before, after)
        self.alerts.machine_changed(before, after)
        if before is None or after is None:
            self.registration.poke()

    def _class_of(self, name: str) -> tuple[str, str]:
        """See :attr:`.References.class_of`."""
        offered = self.registration.offered
        if offered is None or not self.classes.synced:
            raise Unread("machine classes are being read", soon=True)
        return choice(name, self.classes, offered)

    def _class_changed(self, before: Object | None, after: Object | None) -> None:
        self.registration.poke()
        self.loop.look_at_all()

    def _pool_changed(self, before: Object | None, after: Object | None) -> None:
        ending = self._ending_rules.pool_ending(before, after)
        if ending is not None:
            self.guard.end(PoolKey(self.pool), ending)
        if after is None:
            self.registration.poke()

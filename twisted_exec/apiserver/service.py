"""
The API server as a service.

Nothing is opened before :meth:`APIServer.startService`.
"""

from __future__ import annotations

import time
from typing import Any

from cryptography import x509
from twisted.application.service import IService
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger
from zope.interface import alsoProvides, implementer

from twisted_exec import __version__
from twisted_exec.apiserver.aggregated.control_plane import Behind
from twisted_exec.apiserver.assembly import ServerContext, assemble
from twisted_exec.apiserver.consoles.poollets import Backend
from twisted_exec.apiserver.control_plane import ControlPlane
from twisted_exec.apiserver.identity.credentials import ServerAuthenticators
from twisted_exec.apiserver.interfaces import IAPIServer
from twisted_exec.apiserver.serving.requests import APIRequest
from twisted_exec.apiserver.serving.worker_thread import WorkerThread
from twisted_exec.apiserver.settings import Settings
from twisted_exec.apiserver.signing.interfaces import (
    AGENT,
    CLIENT,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING,
)
from twisted_exec.apiserver.signing.requests import server_names
from twisted_exec.apiserver.standalone import StandaloneControlPlane
from twisted_exec.apiserver.successor_storage import HandedOverStorage, StoreSite, kept_kinds
from twisted_exec.auth.oidc.keys import HTTPSFetcher
from twisted_exec.control.polling import until
from twisted_exec.program.draining import let_sessions_end, pause
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import MetricsRegistry, new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.replaceable import IReplaceableStorage, can_hand_over
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.lingering import LAST_WORD_SECONDS, linger
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.tls import pem
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import address_text, server_endpoint
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.server import ServerTLS
from twisted_exec.tls.spares import SpareConnections
from twisted_exec.web.oidc import HostedPage, IssuerLogin

_STOPPING = "the API server is shutting down"
_REPLACED = "the API server was replaced, and this session has taken all its time to end (--linger)"
_LOST = "the API server was replaced, and {}; open the console again"
_REQUEST_SECONDS, _LOOK_SECONDS = 2.0, 0.02
"""How long a freeze waits for requests, and the pause between two looks."""
_LAST_REQUEST_SECONDS = 1.0
"""How long clients of kept connections may take to send the request whose answer closes them."""
_IDLE_SECONDS = 90.0
_IDLE_BEHIND_SECONDS = 120.0
"""
How long idle connections are kept behind a host: longer than kube-apiserver keeps them (90 s).
"""


def state_version(storage: IStorage) -> int:
    """Return the version of the state: with an exclusive store it has a connection to that."""
    return 2 if storage.exclusive else 1


@implementer(IAPIServer)
class APIServer(AsyncService):
    """
    A Kubernetes-style API server for machines and their consoles.

    It provides :class:`IHandsOver`, unless its store is exclusive and cannot be handed over.

    :param storage: not started; this service starts and stops it.
    :param metrics: registry for metrics; ``None`` makes a new one.
    :raises ValueError: the settings exclude each other.
    """

    label = "API server"
    _log = Logger()
    address: IAddress | None = None
    url = ""
    _has_predecessor = False

    def __init__(
        self,
        settings: Settings,
        storage: IStorage,
        audit: IAuditSink,
        reactor: Any,
        *,
        metrics: MetricsRegistry | None = None,
    ) -> None:
        super().__init__()
        self._settings, self._audit = settings, audit
        self._replaceable: HandedOverStorage | None = None
        if can_hand_over(storage):
            alsoProvides(self, IHandsOver)
        replaceable = IReplaceableStorage(storage, None)
        if replaceable is not None:
            storage = self._replaceable = HandedOverStorage(replaceable, reactor)
        self._storage = storage
        self._reactor = reactor
        self._forwarding = ClientCredentials(
            ca=settings.poollet_ca,
            certificate=settings.poollet_certificate,
            key=settings.poollet_key,
            resumes=True,
            clock=reactor,
        )
        self._spares = SpareConnections(reactor)
        backend = Backend(
            self._forwarding,
            settings.address_types,
            settings.poollet_seconds,
            settings.pools_named,
            self._spares,
        )
        access = settings.kubelets
        self._kubelets = None if access is None else access.kubelets(reactor)
        metrics = metrics or new_registry(reactor)
        self._control_plane = (
            self._alone() if settings.aggregated is None else self._behind(metrics)
        )
        self._worker = WorkerThread(reactor)
        self._parts = assemble(
            settings,
            self._control_plane,
            backend,
            ServerContext(
                audit=audit, metrics=metrics, reactor=reactor, execute=self._worker.execute
            ),
            kubelets=self._kubelets,
            page=self._page(),
        )
        idle = _IDLE_SECONDS if settings.aggregated is None else _IDLE_BEHIND_SECONDS
        self._site = Site(
            self._parts.dispatcher,
            reactor,
            idle_seconds=idle,
            fitting=self._parts.sessions.connections_beside,
        )
        self._site.requestFactory = APIRequest
        self._kinds = kept_kinds(self._control_plane.kinds)
        # For the processes that this process has replaced.
        self._store_site = StoreSite(storage, self._kinds, self._parts.sessions, reactor, time.time)
        self._started: list[IService] = []
        self._port: IListeningPort | None = None

    @property
    def health(self) -> Health:
        """The checks of ``/readyz``; a program adds its own before the start."""
        return self._parts.probes.health

    @property
    def sessions(self) -> Sessions:
        """The sessions that this server carries."""
        return self._parts.sessions

    @property
    def is_leading(self) -> bool:
        """True while this server runs the controllers."""
        return bool(self._parts.leading.services)

    def _alone(self) -> ControlPlane:
        settings, reactor = self._settings, self._reactor
        pairs = {
            **dict.fromkeys((SERVING, NODE_SERVING), settings.signing),
            **dict.fromkeys((CLIENT, NODE_CLIENT, AGENT), settings.client_signing),
        }
        authorities = {
            name: pair.reloading(reactor) for name, pair in pairs.items() if pair is not None
        }
        chain = Reloading([settings.certificate], _chain, reactor)

        def own_names() -> frozenset[str]:
            certificates, authority = chain.get(), authorities[SERVING].get()
            return (
                server_names(certificates[0])
                if any(map(authority.has_issued, certificates))
                else frozenset()
            )

        return StandaloneControlPlane(
            self._storage,
            settings.dialects,
            ServerAuthenticators(settings.client_ca, settings.identities, self._storage, reactor),
            pods_view=settings.pods_view and settings.kubelets is None,
            node_pods=settings.kubelets is not None,
            authorities=authorities,
            signing_seconds=settings.signing_seconds,
            own_names=own_names,
        )

    def _page(self) -> HostedPage | None:
        settings = self._settings
        if not settings.web or settings.aggregated is not None:
            return None
        if settings.web_client is None:
            return HostedPage(__version__)
        issuers = settings.identities.issuers.reloading(self._reactor)
        fetcher = HTTPSFetcher(self._reactor)
        origins = settings.allowed_origins
        login = IssuerLogin(settings.web_client, issuers.get, fetcher, self._reactor, origins)
        return HostedPage(__version__, login)

    def _behind(self, metrics: MetricsRegistry) -> ControlPlane:
        assert self._settings.aggregated is not None
        if self._settings.identities.authenticators:
            raise ValueError(
                "Settings.identities.authenticators: a server behind a host has the host's users; "
                "add the authenticators to a standalone server (aggregated=None)"
            )
        arguments = (self._settings.aggregated, self._storage, self._settings.dialects)
        return Behind(*arguments, self._reactor, metrics)

    async def start(self) -> None:
        check = getattr(self._audit, "check", None)
        if check is not None:
            check()
        self._control_plane.load()
        self._forwarding.load()
        if self._kubelets is not None:
            self._kubelets.credentials.load()
        tls = ServerTLS(
            self._settings.certificate,
            self._settings.key,
            client_cas=self._control_plane.client_cas,
            published_cas=self._control_plane.published_cas,
            clock=self._reactor,
        )
        endpoint = server_endpoint(self._reactor, self._settings.listen, tls, LISTENING)
        self._begin(self._worker)
        self._begin(self._storage)
        await self._storage.when_ready()
        await self._control_plane.prepare(self._parts.verbs)
        for follower in self._parts.followers:
            self._begin(follower)
        self._begin(self._parts.leading)
        if self._has_predecessor:  # it serves until this server can
            await self._control_plane.when_prepared()
        self._port = await endpoint.listen(self._site)
        self.address = self._port.getHost()
        self.url = _url(self.address)
        scheme = "https://" if self.url else ""  # a UNIX socket has no URL
        place = f"{scheme}{address_text(self.address)}"
        self._log.info("API server listens at {place}", place=place)
        self._store_site.start()
        await self._control_plane.when_prepared()  # until then /readyz says what is missing

    def _begin(self, service: IService) -> None:
        service.startService()
        self._started.append(service)

    async def stop(self) -> None:
        self._spares.close()
        self._parts.probes.shutting_down()
        self._parts.sessions.close(_STOPPING)
        withdrawing = self._withdraw()
        if self._port is not None:
            await pause(self._reactor, self._settings.shutdown_delay_seconds)
            port, self._port = self._port, None
            await defer.maybeDeferred(port.stopListening)
        for watches in self._parts.watches:
            watches.end_all()
        self._site.drain()
        await let_sessions_end(
            self._reactor, self._settings.drain_seconds, self._parts.sessions.bound
        )
        ending = Ending(SHUTTING_DOWN, _STOPPING)
        await self._parts.sessions.drain(self._reactor, LAST_WORD_SECONDS, ending)
        await withdrawing
        self._store_site.close()
        while self._started:
            await defer.maybeDeferred(self._started.pop().stopService)
        await self._control_plane.close()
        self.address, self.url = None, ""

    # Hand-over

    @property
    def state_version(self) -> int:
        """See :attr:`.IHandsOver.state_version`."""
        return state_version(self._storage)

    def inherit(self, inherited: ServiceState) -> None:
        replicas = inherited.values.get("replicas")
        if not isinstance(replicas, list) or not all(isinstance(each, str) for each in replicas):
            raise ValueError("the state of an API server has no list of replicas")
        if self._replaceable is not None and not inherited.descriptors:
            raise ValueError(
                "the running release does not hand its store over to this release; restart instead"
            )
        self._has_predecessor = True
        self._parts.session_objects.inherit(replicas)
        self._store_site.inherit(inherited.descriptors)

    @as_deferred
    async def freeze(self) -> ServiceState:
        self._spares.close()
        for watches in self._parts.watches:
            watches.end_all()
        # The listening sockets are paused: requests over new connections wait for the successor.
        self._site.wind_down()
        self._store_site.pause()
        await self._withdraw()
        await until(lambda: not self._requests(), self._reactor, _LOOK_SECONDS, _REQUEST_SECONDS)
        descriptors: list[int] = []
        if self._replaceable is not None:
            descriptors = [await self._replaceable.freeze(), *self._store_site.descriptors()]
        values = {"replicas": list(self._parts.session_objects.replicas)}
        return ServiceState(values, descriptors)

    def _requests(self) -> int:
        subjects = self._parts.sessions.subjects()
        requests = self._site.requests() + self._store_site.requests()
        return requests - sum(1 for each in subjects if each.subresource == "log")

    @as_deferred
    async def thaw(self) -> None:
        try:
            if self._replaceable is not None:
                await self._replaceable.thaw()
            if self._parts.leading not in self._started:
                self._begin(self._parts.leading)
        finally:  # requests that only read need no writer
            self._site.resume()
            self._store_site.start()
            for watches in self._parts.watches:
                watches.resume()
            self._spares.resume()

    @as_deferred
    async def retire(self, linger_seconds: float) -> None:
        self._port = None  # the program has handed it over
        lost: Deferred[str] | None = None
        if self._replaceable is not None:
            lost = self._replaceable.retire(self._kinds).addCallback(_LOST.format)
            self._store_site.close()
        began = self._reactor.seconds()
        await linger(self._parts.sessions, self._reactor, linger_seconds, _REPLACED, lost)
        left = began + _LAST_REQUEST_SECONDS - self._reactor.seconds()
        await until(lambda: not self._site.connections, self._reactor, _LOOK_SECONDS, left)

    def _withdraw(self) -> Deferred[None]:
        leading = self._parts.leading
        if leading not in self._started:
            return defer.succeed(None)
        self._started.remove(leading)
        return leading.stopService()


def _chain(certificate: bytes) -> list[x509.Certificate]:
    return pem.certificates(certificate, "the API server's certificate")


def _url(address: Any) -> str:
    host = getattr(address, "host", "")
    if not host:
        return ""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"https://[{host}]:{address.port}" if ":" in host else f"https://{host}:{address.port}"

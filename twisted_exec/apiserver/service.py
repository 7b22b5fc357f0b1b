"""
The API server as a service.

Nothing is opened before :meth:`APIServer.startService`.
"""

from __future__ import annotations

from typing import Any

from cryptography import x509
from twisted.application.service import IService
from twisted.internet import defer
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

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
from twisted_exec.auth.oidc.keys import HTTPSFetcher
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import MetricsRegistry, new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls import pem
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import address_text, server_endpoint
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.server import ServerTLS
from twisted_exec.tls.spares import SpareConnections
from twisted_exec.web.oidc import HostedPage, IssuerLogin

_IDLE_SECONDS = 90.0
_IDLE_BEHIND_SECONDS = 120.0
"""
How long idle connections are kept behind a host: longer than kube-apiserver keeps them (90 s).
"""


@implementer(IAPIServer)
class APIServer(AsyncService):
    """
    A Kubernetes-style API server for machines and their consoles.

    :param storage: not started; this service starts and stops it.
    :param metrics: registry for metrics; ``None`` makes a new one.
    :raises ValueError: the settings exclude each other.
    """

    label = "API server"
    _log = Logger()
    address: IAddress | None = None
    url = ""

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
        self._started: list[IService] = []
        self._port: IListeningPort | None = None

    @property
    def health(self) -> Health:
        """The checks of ``/readyz``; a program adds its own before the start."""
        return self._parts.probes.health

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
        self._port = await endpoint.listen(self._site)
        self.address = self._port.getHost()
        self.url = _url(self.address)
        scheme = "https://" if self.url else ""  # a UNIX socket has no URL
        place = f"{scheme}{address_text(self.address)}"
        self._log.info("API server listens at {place}", place=place)
        await self._control_plane.when_prepared()  # until then /readyz says what is missing

    def _begin(self, service: IService) -> None:
        service.startService()
        self._started.append(service)

    def _refuse_sessions(self) -> None:
        self._parts.sessions.close(f"{self._settings.program} is restarting")

    async def end_sessions(self) -> None:
        """Accept no sessions any more, and end the open ones, because the program stops."""
        self._refuse_sessions()
        settings = self._settings
        await self._parts.sessions.drain(self._reactor, settings.drain_seconds, settings.program)

    async def stop(self) -> None:
        self._spares.close()
        self._parts.probes.shutting_down()
        self._refuse_sessions()
        if self._port is not None:
            if self._settings.shutdown_delay_seconds:
                await deferLater(self._reactor, self._settings.shutdown_delay_seconds)
            port, self._port = self._port, None
            await defer.maybeDeferred(port.stopListening)
        for watches in self._parts.watches:
            watches.end_all()
        self._site.drain()
        await self.end_sessions()
        while self._started:
            await defer.maybeDeferred(self._started.pop().stopService)
        await self._control_plane.close()
        self.address, self.url = None, ""


def _chain(certificate: bytes) -> list[x509.Certificate]:
    return pem.certificates(certificate, "the API server's certificate")


def _url(address: Any) -> str:
    host = getattr(address, "host", "")
    if not host:
        return ""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"https://[{host}]:{address.port}" if ":" in host else f"https://{host}:{address.port}"

"""The program as a service: the endpoint of the protocol, probes and metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.task import LoopingCall

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.auth.oidc.authenticator import OIDCAuthenticator
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.cli.mcp.messages import MESSAGE
from twisted_exec.cli.mcp.protocol import ServerSession
from twisted_exec.cli.mcp.tools import ConsoleTools
from twisted_exec.kube.transport import IdleConnections
from twisted_exec.mcp import PROGRAM
from twisted_exec.mcp.endpoint import Endpoint
from twisted_exec.mcp.sessions import Sessions
from twisted_exec.mcp.settings import Settings
from twisted_exec.mcp.users import Caller, OwnLogin, Users
from twisted_exec.program.health import Health
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.streaming.http.routes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import address_text, server_endpoint
from twisted_exec.tls.server import ServerTLS

SWEEP_SECONDS = 30.0
_PROBE_BYTES = 4 << 10


class AgentMetrics(Collector):
    """``twisted_exec_mcp_sessions`` and ``twisted_exec_mcp_calls``."""

    def __init__(self, registry: CollectorRegistry, sessions: Sessions) -> None:
        self._sessions = sessions
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        return [
            GaugeMetricFamily(
                "twisted_exec_mcp_sessions", "Sessions of agents.", value=len(self._sessions)
            ),
            GaugeMetricFamily(
                "twisted_exec_mcp_calls", "Calls of tools under way.", value=self._sessions.calls
            ),
        ]


class MCPDoor(AsyncService):
    """
    The door for agents.

    :param login: of this program at the API server.
    :param issuers: of the tokens of users; each has the URL of the door in its audiences.
    :ivar registry: the metrics.
    """

    label = PROGRAM

    def __init__(
        self,
        settings: Settings,
        login: OwnLogin,
        issuers: Issuers,
        reactor: Any,
        *,
        allowed: Collection[bytes] = (),
        authenticator: OIDCAuthenticator | None = None,
    ) -> None:
        super().__init__()
        self.settings, self._login, self._reactor = settings, login, reactor
        self._issuers = issuers.reloading(reactor, audience=settings.url)
        self._allowed = allowed
        self._authenticator = authenticator or OIDCAuthenticator(self._issuers, reactor)
        self.sessions = Sessions(settings.limits, self._session, reactor)
        self._connections = IdleConnections(reactor)
        self._ports: list[IListeningPort] = []
        self._site: Site | None = None
        self._sweeping = LoopingCall(self.sessions.sweep)
        self._sweeping.clock = reactor
        self.address: IAddress | None = None
        self.health_address: IAddress | None = None
        self.registry = new_registry(reactor)
        AgentMetrics(self.registry, self.sessions)
        self.health = Health(reactor)
        self.health.add("serving", self._probe)

    def _session(self, caller: Caller) -> ServerSession:
        current = partial(self._login.acting_as, caller)
        return ServerSession(ConsoleTools(current, self._reactor, self._connections))

    async def start(self) -> None:
        self._authenticator.load()
        settings, reactor = self.settings, self._reactor
        if settings.health_listen:
            probes = Site(
                ProbeRoutes(self.health, self.registry), reactor, max_body_bytes=_PROBE_BYTES
            )
            endpoint = server_endpoint(reactor, settings.health_listen, None, LISTENING)
            port = await endpoint.listen(probes)
            self._ports.append(port)
            self.health_address = port.getHost()
        resource = Endpoint(
            settings.url,
            [issuer.url for issuer in self._issuers.get()],
            Users(self._authenticator),
            self.sessions,
            reactor,
            self._allowed,
        )
        self._site = Site(resource, reactor, max_body_bytes=MESSAGE.size_bytes)
        tls = ServerTLS(settings.certificate, settings.key, clock=reactor)
        port = await server_endpoint(reactor, settings.listen, tls, LISTENING).listen(self._site)
        self._ports.append(port)
        self.address = port.getHost()
        self._log.info(
            "{program}: tools for agents at {place}, for clients {url}",
            program=PROGRAM,
            place=address_text(self.address),
            url=settings.url,
        )
        self._sweeping.start(SWEEP_SECONDS, now=False)

    def _probe(self) -> None:
        if self.address is None:
            raise ServiceUnavailable("not listening")

    async def stop(self) -> None:
        if self._sweeping.running:
            self._sweeping.stop()
        ports, self._ports = self._ports, []
        self.address = self.health_address = None
        for port in ports:
            await maybeDeferred(port.stopListening)
        self.sessions.close()
        if self._site is not None:
            self._site.drain()
        await self._connections.close()
        self._authenticator.close()

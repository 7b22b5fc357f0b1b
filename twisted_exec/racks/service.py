"""The program as a service: the controller, with probes and metrics."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.program.health import Health
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.racks.controller import RackController
from twisted_exec.racks.metrics import RackMetrics
from twisted_exec.racks.settings import Settings
from twisted_exec.streaming.http.routes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import server_endpoint

MAX_BODY_BYTES = 4 << 10
"""Requests to the health endpoint have no body."""


class Racks(AsyncService):
    """
    Machines and a list from the Servers and BMCs of metal-operator.

    :param metal: client of the cluster with the Servers.
    :param machines: client of the API server with the Machines.
    :ivar registry: the metrics.
    """

    label = "exec-racks"

    def __init__(
        self, settings: Settings, metal: IKubeClient, machines: IKubeClient, reactor: Any
    ) -> None:
        super().__init__()
        self.settings, self._reactor = settings, reactor
        self._port: IListeningPort | None = None
        self.health_address: IAddress | None = None
        self.registry = new_registry(reactor)
        self.controller = RackController(settings, metal, machines, reactor, self.registry.queues)
        RackMetrics(self.registry, lambda: self.controller.counts)
        self.health = Health(reactor)
        self.health.add("racks", self._probe)

    async def start(self) -> None:
        if self.settings.health_listen:
            site = Site(
                ProbeRoutes(self.health, self.registry),
                self._reactor,
                max_body_bytes=MAX_BODY_BYTES,
            )
            endpoint = server_endpoint(self._reactor, self.settings.health_listen, None, LISTENING)
            self._port = await endpoint.listen(site)
            self.health_address = self._port.getHost()
        self.controller.startService()

    async def stop(self) -> None:
        await self.controller.stopService()
        port, self._port, self.health_address = self._port, None, None
        if port is not None:
            await maybeDeferred(port.stopListening)

    def _probe(self) -> None:
        if self.controller.problem:
            raise ServiceUnavailable(self.controller.problem)

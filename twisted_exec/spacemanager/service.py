"""The Space Manager as a service: health and metrics on each replica, controllers on the leader."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger

from twisted_exec.api.kinds import LEASES
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.leases import LeaderElected
from twisted_exec.program.health import Health
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.spacemanager.interfaces import IProviders, ISpaces, MakeProvider, ProviderContext
from twisted_exec.spacemanager.metrics import ProviderCallMetrics, SpaceMetrics
from twisted_exec.spacemanager.place import place_of
from twisted_exec.spacemanager.registry import ProviderRegistry
from twisted_exec.spacemanager.settings import Settings
from twisted_exec.spacemanager.views import ProviderEnvironment
from twisted_exec.streaming.http.routes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.errors import DirectoryError, TLSConfigError
from twisted_exec.tls.private_directories import private_directory

MAX_BODY_BYTES = 4 << 10
"""Requests to the health endpoint have no body."""


class ISpaceController(Protocol):
    """The controller of Spaces: a Service and :class:`ISpaces`."""

    def startService(self) -> None: ...

    def stopService(self) -> object: ...


MakeLoop = Callable[[IProviders, ProviderContext, WorkQueueMetrics], ISpaceController]


class SpaceManager(AsyncService):
    """
    The Space Manager.

    :param make_loop: creates the controller of Spaces, for each term as leader.
    :param now: seconds since the epoch.
    :param client: client of the cluster with the Spaces.
    :param makers: makers of providers, by type.
    :ivar registry: the metrics.
    """

    label = "the space manager"
    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        client: IKubeClient,
        makers: Mapping[str, MakeProvider],
        make_loop: MakeLoop,
        reactor: Any,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.settings, self._client, self._reactor, self._now = settings, client, reactor, now
        self._makers, self._make_loop = makers, make_loop
        self._state: tuple[IProviders, ISpaces] | None = None
        self._directory = self._place = ""
        self._port: IListeningPort | None = None
        self._is_serving = False
        self.health_address: IAddress | None = None
        self.registry = new_registry(reactor)
        self._calls = ProviderCallMetrics(self.registry)
        SpaceMetrics(self.registry, lambda: self.state, now)
        self.health = Health(reactor)
        self.health.add("serving", self._probe_serving)
        self.health.add("hub", lambda: Deferred.fromCoroutine(self._probe_hub()))
        self.health.add("spaces", self._probe_spaces)
        self._acting = LeaderElected(
            client,
            self._make,
            reactor,
            now,
            namespace=settings.namespace,
            lease=settings.lease,
            name=settings.identity,
        )
        self.health.add("leader-election", self._acting.probe)

    @property
    def state(self) -> tuple[IProviders, ISpaces] | None:
        """Providers and Spaces while this replica leads, else ``None``."""
        return self._state if self._acting.services else None

    def _make(self) -> Sequence[Service]:
        context = ProviderContext(
            self._client, self._reactor, self._directory, self._now, self._place
        )
        environment = ProviderEnvironment(context, self._makers, self._calls)
        providers = ProviderRegistry(environment, socket.gethostname(), self.registry.queues)
        loop: Any = self._make_loop(providers, context, self.registry.queues)
        providers.spaces = loop
        self._state = providers, loop
        # Stopped in reverse order: the controller of Spaces uses the providers.
        return [providers, loop]

    async def start(self) -> None:
        try:
            self._directory = private_directory(self.settings.state_directory)
            self._place = place_of(self._directory)
        except (TLSConfigError, OSError) as problem:
            raise DirectoryError(f"--state-dir: {problem}") from None
        if self.settings.health_listen:
            routes = ProbeRoutes(self.health, self.registry)
            site = Site(routes, self._reactor, max_body_bytes=MAX_BODY_BYTES)
            endpoint = server_endpoint(self._reactor, self.settings.health_listen, None, LISTENING)
            self._port = await endpoint.listen(site)
            self.health_address = self._port.getHost()
        self._is_serving = True
        types = ", ".join(sorted(self._makers))
        self._log.info("managing Spaces; provider types: {types}", types=types)
        self._acting.start()

    async def stop(self) -> None:
        self._is_serving = False
        await self._acting.stop()
        port, self._port, self.health_address = self._port, None, None
        if port is not None:
            await maybeDeferred(port.stopListening)

    def _probe_serving(self) -> None:
        if not self._is_serving:
            raise ServiceUnavailable("the space manager is starting, or stops")

    async def _probe_hub(self) -> None:
        try:
            await self._client.get(LEASES.resource, self.settings.lease, self.settings.namespace)
        except APIError as error:
            if error.code not in (
                NotFound.code,
                Forbidden.code,
            ):  # any answer shows that the hub is reachable
                raise

    def _probe_spaces(self) -> None:
        if self.state is not None and not all(each.synced for each in self.state):
            raise ServiceUnavailable("providers and Spaces are not known yet")

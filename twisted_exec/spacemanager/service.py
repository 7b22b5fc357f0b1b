"""
The Space Manager as a service: what answers on each replica, and what the one that leads does.

Every replica answers probes and tells figures.  One of them keeps providers and Spaces; another one takes up what
there is when that one is gone, and remembers nothing of what it did.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger

from twisted_exec.api.kinds import LEASES
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.leader_election.controllers import Acting
from twisted_exec.observe.health import Health
from twisted_exec.observe.metrics import new_registry
from twisted_exec.program.service import Starting
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.host_place import place_of
from twisted_exec.spacemanager.interfaces import Around, IProviders, ISpaces, MakeProvider
from twisted_exec.spacemanager.metrics import CallFigures, SpaceFigures
from twisted_exec.spacemanager.provider_views.registry import Providers
from twisted_exec.spacemanager.provider_views.view import ProviderEnvironment
from twisted_exec.streaming.http.probes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.unix import private_directory

NAMESPACE, LEASE = "kube-system", PROGRAM
MAX_BODY_BYTES = 4 << 10
"""Nothing that is asked here has a body."""


@dataclass(frozen=True)
class Settings:
    """
    What a manager is told.

    :param state_directory: private to managers; made when it is missing.
    :param namespace: of the Lease by which one replica is elected.
    :param lease: its name.
    :param identity: what this replica is called there; empty for a name that is another at each start.  Who is always
        called the same does not wait for itself after it was killed; no two may be called the same.
    :param health_listen: a Twisted endpoint string for probes and figures; empty for nowhere.
    """

    state_directory: str
    namespace: str = NAMESPACE
    lease: str = LEASE
    identity: str = ""
    health_listen: str = ""


class ISpaceController(Protocol):
    """The loop that keeps Spaces: a Service, and :class:`ISpaces`."""

    def startService(self) -> None: ...

    def stopService(self) -> object: ...


MakeLoop = Callable[[IProviders, Around], ISpaceController]


class SpaceManager(Starting):
    """
    :param client: of the cluster that has the Spaces.
    :param makers: of adaptors, by type.
    :param make_loop: makes what keeps Spaces, anew for each term.
    :param now: seconds since the epoch.
    :ivar registry: the figures.
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
        self._known: tuple[IProviders, ISpaces] | None = None
        self._directory = self._place = ""
        self._port: IListeningPort | None = None
        self._is_serving = False
        self.health_address: IAddress | None = None
        self.registry = new_registry()
        self._calls = CallFigures(self.registry)
        SpaceFigures(self.registry, lambda: self.known, now)
        self.health = Health(reactor)
        self.health.add("serving", self._probe_serving)
        self.health.add("hub", lambda: Deferred.fromCoroutine(self._probe_hub()))
        self.health.add("spaces", self._probe_spaces)
        self._acting = Acting(
            client,
            self._make,
            reactor,
            now,
            namespace=settings.namespace,
            lease=settings.lease,
            name=settings.identity,
        )

    @property
    def known(self) -> tuple[IProviders, ISpaces] | None:
        """Providers and Spaces, while this one leads."""
        return self._known if self._acting.services else None

    def _make(self) -> Sequence[Service]:
        """What is done while this one leads."""
        around = Around(self._client, self._reactor, self._directory, self._now, self._place)
        workshop = ProviderEnvironment(around, self._makers, self._calls)
        providers = Providers(workshop, socket.gethostname())
        loop: Any = self._make_loop(providers, around)
        providers.spaces = loop
        self._known = providers, loop
        # Whoever keeps Spaces goes first when this ends: it uses the adaptors.
        return [providers, loop]

    async def start(self) -> None:
        """Answer probes; then stand for election."""
        try:
            self._directory = private_directory(self.settings.state_directory)
            self._place = place_of(self._directory)
        except (TLSConfigError, OSError) as problem:
            raise TLSConfigError(f"--state-dir: {problem}") from None
        if self.settings.health_listen:
            routes = ProbeRoutes(self.health, self.registry)
            site = Site(routes, self._reactor, max_body_bytes=MAX_BODY_BYTES)
            endpoint = server_endpoint(self._reactor, self.settings.health_listen, None)
            self._port = await endpoint.listen(site)
            self.health_address = self._port.getHost()
        self._is_serving = True
        types = ", ".join(sorted(self._makers))
        self._log.info("keeping Spaces; types of providers: {types}", types=types)
        self._acting.start()

    async def stop(self) -> None:
        """Lead no longer, and let others; physical spaces go on."""
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
            if error.code not in (NotFound.code, Forbidden.code):  # an answer is an answer
                raise

    def _probe_spaces(self) -> None:
        if self.known is not None and not all(each.synced for each in self.known):
            raise ServiceUnavailable("providers and Spaces are not known yet")

"""The door as a service: the connections, with probes and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger

from twisted_exec.api.kinds.reviews import SELFSUBJECTREVIEWS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.polling import until
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.program.health import Health
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.ssh.people import IPeople
from twisted_exec.ssh.transport import HostKey
from twisted_exec.sshd import PROGRAM
from twisted_exec.sshd.door import Door
from twisted_exec.sshd.door_login import DoorLogin
from twisted_exec.sshd.metrics import ConnectionMetrics, DoorMetrics
from twisted_exec.sshd.settings import Settings
from twisted_exec.streaming.http.routes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.tls.endpoints import address_text, server_endpoint

MAX_BODY_BYTES = 4 << 10
"""Requests to the health endpoint have no body."""
REVIEW_SECONDS = 0.2
"""Between two looks whether users may still be here."""
STOPPING = "exec-sshd is restarting: connect again in a moment"
USERS_UNUSABLE = (
    "nobody can log in: the files of users cannot be used, the log says why; open sessions stay"
)
"""A limit and no failure: a load balancer that takes the server out would end the open sessions, too."""
_LOOK_SECONDS = 0.05


class SSHDoor(AsyncService):
    """
    Consoles for stock ssh, on a network.

    :param login: of the door at the API server.
    :param people: knows the users.
    :param client: of the API server, as the door itself, for the probe.
    :param keys: returns the host keys for the next connection.
    :param parts: started before the door, and stopped behind it, such as what reads the users.
    :ivar address: the listening address, once known.
    :ivar registry: the metrics.
    """

    label = "the ssh door"
    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        login: DoorLogin,
        people: IPeople,
        client: IKubeClient,
        keys: Callable[[], Sequence[HostKey]],
        reactor: Any,
        *,
        parts: Sequence[IService] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.settings, self._client, self._reactor = settings, client, reactor
        self._parts = parts
        self._ports: list[IListeningPort] = []
        self.address: IAddress | None = None
        self.health_address: IAddress | None = None
        self.registry = new_registry(reactor)
        self.door = Door(
            login,
            people,
            settings.limits,
            DoorMetrics(self.registry),
            reactor,
            keys=keys,
            login_seconds=settings.login_seconds,
            exchanges=settings.exchanges,
            now=now,
        )
        ConnectionMetrics(self.registry, self.door.admission)
        self._reviews = PokedLoop(self._review, reactor, REVIEW_SECONDS)
        self.health = Health(reactor)
        self.health.add("ssh", self._probe)
        self.health.add("users", lambda: self._probe_users(people))
        self.health.add("apiserver", lambda: Deferred.fromCoroutine(self._probe_server()))

    async def start(self) -> None:
        settings = self.settings
        for part in self._parts:
            part.startService()
        if settings.health_listen:
            site = Site(
                ProbeRoutes(self.health, self.registry),
                self._reactor,
                max_body_bytes=MAX_BODY_BYTES,
            )
            self.health_address = await self._listen(settings.health_listen, site)
        self.address = await self._listen(settings.listen, self.door)
        self._reviews.start()
        self._log.info(
            "{program}: ssh at {place}", program=PROGRAM, place=address_text(self.address)
        )

    async def _listen(self, place: str, factory: Any) -> IAddress:
        endpoint = server_endpoint(self._reactor, place, None, LISTENING)
        port = await endpoint.listen(factory)
        self._ports.append(port)
        return port.getHost()

    async def stop(self) -> None:
        """Accept no connections, and end the present ones with the reason."""
        ports, self._ports = self._ports, []
        for port in reversed(ports):
            await maybeDeferred(port.stopListening)
        await self._end_all()
        await self._reviews.stop()
        for part in self._parts:
            await maybeDeferred(part.stopService)
        self.address = self.health_address = None

    async def _end_all(self) -> None:
        door, reactor = self.door, self._reactor
        door.end_all(STOPPING)
        deadline = reactor.seconds() + self.settings.drain_seconds

        def is_over() -> bool:
            return not door.connections or reactor.seconds() > deadline

        await until(is_over, reactor, _LOOK_SECONDS)
        door.abort_all()

    async def _review(self) -> None:
        await self.door.review()

    # Probes

    def _probe(self) -> None:
        if self.address is None:
            raise ServiceUnavailable("not listening")
        self.door.host_keys()

    async def _probe_users(self, people: IPeople) -> str:
        return USERS_UNUSABLE if people.problem() else ""

    async def _probe_server(self) -> None:
        await self._client.create(SELFSUBJECTREVIEWS.resource, {})

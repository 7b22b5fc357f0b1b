"""
A whole broker: machines in another cluster, their consoles, and the interface that asks for them.

It needs nothing of this host but sockets.  It is ready when it knows the target; while that cannot be
reached it serves on, and says so to whoever asks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.revisions.registry import IRONCORE
from twisted_exec.iri.server import IRIServer
from twisted_exec.iri.target import MutualTLS, parse_target
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.program.service import Starting
from twisted_exec.runtimes.machinebroker.streams import (
    HOP,
    BrokerLocator,
    BrokerLogLocator,
    BrokerRoutes,
    Way,
)
from twisted_exec.runtimes.machinebroker.target import Identity, Place
from twisted_exec.runtimes.serving.routes import ServerRoutes
from twisted_exec.runtimes.serving.server import Listening, TokenServer, probe_iri
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, Ending
from twisted_exec.streaming.sessions.endings import MachineKey
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.unix import private_directory, runtime_directory

from .leases import LeaseLedger
from .objects import Held
from .service import MachineBroker
from .space_target import SpaceTarget
from .tokens import MemoryLedger, Tokens, key_of, new_key

STREAM_SOCKET = "stream.sock"


@dataclass(frozen=True)
class Settings:
    """
    What a broker is told.

    :param place: where in the target machines are made.
    :param identity: as whom consoles are opened there.
    :param state_directory: for the socket of consoles when they have no other address.
    :param iri_target: where to serve the machine runtime interface.
    :param token_key: path of the key that all replicas share; empty for a broker alone.
    """

    place: Place
    identity: Identity
    state_directory: str
    iri_target: str
    streaming: Listening = Listening("")
    iri_tls: MutualTLS | None = None
    iri_revision: str = IRONCORE.name
    allowed_uids: Sequence[int] = field(default_factory=tuple)
    token_key: str = ""
    drain_seconds: float = 5.0


class BrokerHost(Starting):
    """
    Runs a broker.

    :param client: of the target.
    :param config: its kubeconfig as it is now, by which streams are opened.
    :param target: what says where that is, when it is a Space; these two are then its own.
    :param checks: called when starting; what one raises keeps the broker from it.
    :ivar broker: provides :class:`~twisted_exec.iri.interfaces.IMachineRuntime`.
    :ivar streams: serves the consoles.
    :ivar iri: serves the interface; its ``target`` is where, once it is ready.
    :raises TargetError: the IRI target cannot be used as given.
    """

    label = "machine broker"
    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        client: IKubeClient,
        config: Callable[[], ClientConfig],
        audit: IAuditSink,
        reactor: Any,
        *,
        target: SpaceTarget | None = None,
        checks: Sequence[Callable[[], object]] = (),
    ) -> None:
        super().__init__()
        self.settings, self._reactor, self._checks = settings, reactor, checks
        self._target = target
        self._directory = ""
        self._make_tokens(client)
        self.broker = MachineBroker(
            client,
            settings.place,
            settings.identity,
            self._tokens,
            reactor,
            exec_url=lambda token: self.streams.exec_url(token),
            log_url=lambda token: self.streams.log_url(token),
            gone=self._gone,
            trouble=lambda: target.problem if target is not None else "",
        )
        self._follow = Follow(self.broker)
        listening = replace(settings.streaming, allowed_uids=settings.allowed_uids)
        # Who follows a Space may be left with sessions whose other end is nobody's any more.
        ends_here = target is not None
        way = Way(config, settings.place, settings.identity, reactor, ends_here)
        self.streams = BrokerStreamServer(
            listening, audit, reactor, settings.drain_seconds, way, self.broker, self._tokens
        )
        self.iri = IRIServer(
            self.broker,
            parse_target(settings.iri_target),
            reactor,
            tls=settings.iri_tls,
            revision=settings.iri_revision,
            allowed_uids=settings.allowed_uids,
        )
        health = self.streams.health
        health.add("target", self.broker.check)
        health.add("classes", self._probe_classes)
        health.add("iri", self._probe_iri)
        if self._leases is not None:
            health.add("tokens", self._probe_tokens)

    def _make_tokens(self, client: IKubeClient) -> None:
        """One replica keeps to itself what it made and what was used; several share both."""
        settings, place = self.settings, self.settings.place
        self._key: Reloading[bytes] | None = None
        self._leases: LeaseLedger | None = None
        if not settings.token_key:
            own = new_key()
            self._tokens = Tokens(lambda: own, MemoryLedger())
            return
        self._key = Reloading([settings.token_key], key_of, self._reactor)
        holder = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._leases = LeaseLedger(
            client, place.namespace, f"{place.prefix}lease", holder, self._reactor
        )
        self._tokens = Tokens(self._key.get, self._leases)

    async def start(self) -> None:
        """See :meth:`Starting.start`."""
        for check in self._checks:
            check()
        if self._key is not None:
            self._key.load()
        if not self.streams.listening.address:
            private_directory(self.settings.state_directory)
            self._directory = runtime_directory(self.settings.state_directory)
            path = os.path.join(self._directory, STREAM_SOCKET).replace(":", "\\:")
            self.streams.listening = replace(self.streams.listening, address=f"unix:{path}")
        await self.streams.listen()
        self.streams.startService()
        if self._target is None:
            self._follow.begin()
        else:
            self._target.found, self._target.lost = self._found, self._lost
            self._target.start()
        if self._leases is not None:
            self._leases.start()
        self.iri.startService()
        self._log.info(
            "machine broker at {target}, consoles at {streams}",
            target=self.iri.target,
            streams=self.streams.exec_url(""),
        )

    async def stop(self) -> None:
        """See :meth:`Starting.stop`."""
        if self.iri.running:
            await self.iri.stopService()
        await self.streams.stopService()
        if self._leases is not None:
            self._leases.stop()
        if self._target is not None:
            await self._target.stop()
        await self._follow.end()
        if self._directory:
            with contextlib.suppress(OSError):
                os.rmdir(self._directory)  # another's socket may be in it by now
            self._directory = ""

    def _gone(self, held: Held) -> None:
        """The target ends the sessions of what it deletes, unless it is of another make."""
        uid = held.owner.uid
        ending = Ending(MACHINE_DELETED, f'machine "{held.id}" was deleted in the target cluster')
        self.streams.sessions.end_object(MachineKey(uid), ending)

    def _found(self, another: bool) -> None:
        """The target is there, or is worth trying again."""
        if another or self._is_in_trouble():
            self._follow.begin()

    def _is_in_trouble(self) -> bool:
        try:
            self.broker.check()
        except ServiceUnavailable:
            return True
        return False

    def _lost(self, reason: str) -> None:
        """The target is gone, with all its machines for all that can be told."""
        self._log.warn("the target is gone: {why}", why=reason)
        self._follow.end()
        self.streams.sessions.end(lambda subject: True, Ending(POOL_DELETED, reason))

    def _probe_classes(self) -> None:
        if not self.broker.offer.names():
            raise ServiceUnavailable("no pool of the target has machines of any class")

    def _probe_iri(self) -> Deferred[object]:
        return Deferred.fromCoroutine(probe_iri(self.iri.target, self._reactor))

    def _probe_tokens(self) -> Deferred[object]:
        assert self._leases is not None
        return Deferred.fromCoroutine(self._leases.probe())


class Follow:
    """
    Has a broker follow its target, or not: each beginning is anew, when the one before is over.
    """

    def __init__(self, broker: MachineBroker) -> None:
        self._broker = broker
        self._is_wanted = False
        self._turns = 0
        self._turning: Deferred[None] | None = None

    def begin(self) -> None:
        """Follow it from the beginning."""
        self._turn(True)

    def end(self) -> Deferred[None]:
        """Follow it no more; fires when nothing is under way."""
        return self._turn(False)

    def _turn(self, wanted: bool) -> Deferred[None]:
        self._is_wanted = wanted
        self._turns += 1
        self._broker.forget()
        if self._turning is None or self._turning.called:
            self._turning = Deferred.fromCoroutine(self._turned())
        waiting: Deferred[None] = Deferred()
        self._turning.chainDeferred(waiting)
        return waiting

    async def _turned(self) -> None:
        before = 0
        while before != self._turns:
            before = self._turns
            await self._broker.stop()
        self._broker.forget()
        if self._is_wanted:
            self._broker.start()


class BrokerStreamServer(TokenServer):
    """CoalescedRuns consoles of the target on, for tokens."""

    def __init__(
        self,
        listening: Listening,
        audit: IAuditSink,
        reactor: Any,
        drain_seconds: float,
        way: Way,
        broker: MachineBroker,
        tokens: Tokens,
    ) -> None:
        self._way, self._broker, self._tokens = way, broker, tokens
        super().__init__(
            listening,
            audit,
            reactor,
            hop=HOP,
            name="the machine broker",
            drain_seconds=drain_seconds,
        )

    def make_routes(self) -> ServerRoutes:
        """See :meth:`TokenServer.make_routes`."""
        origins = self.listening.allowed_origins
        found = self._way, self._broker.copy, self._tokens, origins
        return BrokerRoutes(
            self, self._way, self._tokens, BrokerLocator(*found), BrokerLogLocator(*found)
        )

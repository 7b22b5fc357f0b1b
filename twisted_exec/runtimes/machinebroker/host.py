"""
A complete broker: runtime, stream server, runtime interface, and target.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.auth.subresources import LOG, SCREEN
from twisted_exec.iri.request_cache import StreamLinks
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.runtimes.machinebroker import PROGRAM
from twisted_exec.runtimes.machinebroker.ledgers import LeaseLedger, MemoryLedger
from twisted_exec.runtimes.machinebroker.objects import CachedMachine
from twisted_exec.runtimes.machinebroker.service import MachineBroker
from twisted_exec.runtimes.machinebroker.settings import Settings
from twisted_exec.runtimes.machinebroker.space_target import SpaceTarget
from twisted_exec.runtimes.machinebroker.streams import (
    HOP,
    BrokerAdmission,
    BrokerRoutes,
    Target,
)
from twisted_exec.runtimes.machinebroker.tokens import Tokens, key_of, new_key
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.serving.server import ServerRoutes, StreamHost, TokenServer
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, Ending
from twisted_exec.streaming.sessions.endings import MachineKey
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.private_directories import private_directory, runtime_directory


class BrokerHost(StreamHost):
    """
    Runs a broker.

    :param target: the Space that is the target, if it is one; ``client`` and ``config`` are then
        its own.
    :param config: returns the current kubeconfig of the target, for streams.
    :ivar broker: provides :class:`~twisted_exec.iri.interfaces.IMachineRuntime`.
    :raises TargetError: the IRI target is not valid.
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
        super().__init__(settings, reactor, checks)
        self._target = target
        self._directory = ""
        self._make_tokens(client)
        self.broker = MachineBroker(
            client,
            settings.place,
            settings.identity,
            self._tokens,
            reactor,
            links=StreamLinks(
                exec_url=lambda token: self.streams.exec_url(token),
                log_url=lambda token: self.streams.log_url(token),
            ),
            deleted=self._deleted,
            trouble=lambda: target.problem if target is not None else "",
        )
        self._watching = TargetWatching(self.broker)
        # The control plane of a Space may disappear and leave sessions behind.
        ends_here = target is not None
        server = Target(config, settings.place, settings.identity, reactor, ends_here)
        self.streams = BrokerStreamServer(
            settings, self._listening, audit, reactor, server, self.broker, self._tokens
        )
        self._serve(self.broker, target=self.broker.check, classes=self._probe_classes)
        if self._leases is not None:
            self.streams.health.add("tokens", self._leases.probe)

    def _make_tokens(self, client: IKubeClient) -> None:
        settings, place = self.settings, self.settings.place
        self._key: Reloading[bytes] | None = None
        self._leases: LeaseLedger | None = None
        self._own_key, self._claims = new_key(), MemoryLedger()
        if not settings.token_key:
            self._tokens = Tokens(lambda: self._own_key, self._claims)
            return
        self._key = Reloading([settings.token_key], key_of, self._reactor)
        holder = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._leases = LeaseLedger(
            client, place.namespace, f"{place.prefix}lease", holder, self._reactor
        )
        self._tokens = Tokens(self._key.get, self._leases)

    async def start(self) -> None:
        self._check()
        if self._key is not None:
            self._key.load()
        await self._listen(self._make_directory)
        self.streams.startService()
        if self._target is None:
            self._watching.start()
        else:
            self._target.available, self._target.lost = self._available, self._lost
            self._target.start()
        if self._leases is not None:
            self._leases.start()
        self._serve_iri()

    def _make_directory(self) -> str:
        private_directory(self.settings.state_directory)
        self._directory = runtime_directory(self.settings.state_directory)
        return self._directory

    async def stop(self) -> None:
        await self._stop_iri()
        await self.streams.stopService()
        if self._leases is not None:
            self._leases.stop()
        if self._target is not None:
            await self._target.stop()
        await self._watching.stop()
        if self._directory:
            with contextlib.suppress(OSError):
                os.rmdir(self._directory)  # may contain a new socket of another broker
            self._directory = ""

    def _deleted(self, entry: CachedMachine) -> None:
        uid = entry.owner.uid
        ending = Ending(MACHINE_DELETED, f'machine "{entry.id}" was deleted in the target cluster')
        self.streams.sessions.end_object(MachineKey(uid), ending)

    def _available(self, another: bool) -> None:
        if another or self._is_in_trouble():
            self._watching.start()

    def _is_in_trouble(self) -> bool:
        try:
            self.broker.check()
        except ServiceUnavailable:
            return True
        return False

    def _lost(self, reason: str) -> None:
        self._log.warn("the target does not exist any more: {why}", why=reason)
        self._watching.stop()
        self.streams.sessions.end(lambda subject: True, Ending(POOL_DELETED, reason))

    def _probe_classes(self) -> None:
        if why := self.broker.capacity.shortage():
            self.broker.capacity.check()  # before the first list, that it is missing is the reason
            raise ServiceUnavailable(why)


class TargetWatching:
    """
    Starts and stops a broker's watches of its target; a restart waits for the end of the previous
    watches.
    """

    def __init__(self, broker: MachineBroker) -> None:
        self._broker = broker
        self._should_watch = False
        self._changes = 0
        self._changing: Deferred[None] | None = None

    def start(self) -> None:
        self._change(True)

    def stop(self) -> Deferred[None]:
        return self._change(False)

    def _change(self, should_watch: bool) -> Deferred[None]:
        self._should_watch = should_watch
        self._changes += 1
        self._broker.forget()
        if self._changing is None or self._changing.called:
            self._changing = Deferred.fromCoroutine(self._apply())
        waiting: Deferred[None] = Deferred()
        self._changing.chainDeferred(waiting)
        return waiting

    async def _apply(self) -> None:
        changes = 0
        while changes != self._changes:  # another change during stop
            changes = self._changes
            await self._broker.stop()
        self._broker.forget()
        if self._should_watch:
            self._broker.start()


class BrokerStreamServer(TokenServer):
    """Proxies consoles of the target for tokens."""

    def __init__(
        self,
        settings: Settings,
        listening: Listening,
        audit: IAuditSink,
        reactor: Any,
        target: Target,
        broker: MachineBroker,
        tokens: Tokens,
    ) -> None:
        self._target, self._broker, self._tokens = target, broker, tokens
        super().__init__(
            listening,
            audit,
            reactor,
            hop=HOP,
            program=PROGRAM,
            drain_seconds=settings.drain_seconds,
            limits=settings.sessions,
        )

    def make_routes(self) -> ServerRoutes:
        origins = self.listening.allowed_origins
        arguments = self._target, self._broker.cache, self._tokens, origins
        return BrokerRoutes(
            self,
            self._target,
            self._tokens,
            BrokerAdmission(*arguments),
            BrokerAdmission(*arguments, what=LOG),
            BrokerAdmission(*arguments, what=SCREEN),
        )

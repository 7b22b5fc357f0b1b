"""The poollet of one pool, as a Twisted service."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound, ServiceUnavailable
from twisted_exec.auth.delegated import DelegatedAuthorizer
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import Change, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.poollet.alerts.controller import AlertController
from twisted_exec.poollet.class_matching import choice
from twisted_exec.poollet.client_certificate import ClientCertificate
from twisted_exec.poollet.console_server import PoolConsoleServer
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.poollet.machines.loop import Loop
from twisted_exec.poollet.machines.references import Unread
from twisted_exec.poollet.machines.runtime_events import RuntimeEvents
from twisted_exec.poollet.pool import Pool, default_addresses
from twisted_exec.poollet.recordings.controller import RecordingController
from twisted_exec.poollet.settings import Settings
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.metrics import new_registry
from twisted_exec.tls.endpoints import address_text

__all__ = ["Poollet", "Settings"]


@implementer(IPoollet)
class Poollet(Service):
    """
    Runs the machines of one pool on a machine runtime.

    :param runtime: provides :class:`~twisted_exec.iri.interfaces.IMachineRuntime`.
    :param checks: called at the start; an exception prevents it.
    :param client: of the API server, with the poollet's credentials.
    :param audit: the sink for session records.
    :param authorizer: replaces SubjectAccessReviews to the API server.
    :param identity: the client certificate, if the API server signs it.
    """

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
        self._checks = checks
        self._starting: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._problem: Failure | None = None
        self.registry = new_registry(reactor)
        self._make_copies(settings.dialect)
        self._make_work(now)
        self.health = Health(reactor)
        self.consoles = PoolConsoleServer(
            settings,
            client,
            self._runtime,
            audit,
            reactor,
            authorizer=authorizer or DelegatedAuthorizer(client, reactor),
            machines=self.machines,
            machine_of=self.loop.machine_of,
            recorder=self.recorder,
            registry=self.registry,
            health=self.health,
            now=now,
        )
        self._add_probes()

    def _make_copies(self, dialect: Dialect) -> None:
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
            metrics=self.registry.queues,
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
            report=self.recorder.record,
            metrics=self.registry.queues,
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
            metrics=self.registry.queues,
        )
        self.runtime_events = RuntimeEvents(
            self._runtime,
            self._reactor,
            settings.dialect,
            machines=lambda: self.machines,
            synced=synced,
            recorder=self.recorder,
            metrics=self.registry.queues,
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
            metrics=self.registry.queues.of("pool"),
        )

    def _add_probes(self) -> None:
        self.health.add("runtime", lambda: Deferred.fromCoroutine(self._probe_runtime()))
        self.health.add("apiserver", lambda: Deferred.fromCoroutine(self._probe_api_server()))
        self.health.add("caches", self._probe_copies)
        self.health.add("pool", self._probe_pool)
        if self.consoles.serving is not None:
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
        if self.consoles.serving is not None and self.consoles.serving.problem:
            raise ServiceUnavailable(self.consoles.serving.problem)

    def _probe_identity(self) -> None:
        if self._identity is not None and self._identity.problem:
            raise ServiceUnavailable(self._identity.problem)

    def startService(self) -> None:
        """Start everything; errors fail the Deferreds of :meth:`when_ready`."""
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._failed)

    def when_ready(self) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        self._tell_ready()
        return waiting

    def stopService(self) -> Deferred[None]:
        """End the sessions, then stop."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        for check in self._checks:
            check()
        self.consoles.load()
        if self._identity is not None:
            self._identity.start()
            await self._identity.when_known()
        self.address = host = await self.consoles.listen()
        addresses = self.settings.addresses or default_addresses(getattr(host, "host", ""))
        place = address_text(host)
        self._log.info("serving pool {pool} at {place}", pool=self.pool, place=place)
        for copy in self._copies:
            copy.start()
        self.consoles.start()
        self.registration.start(addresses, getattr(self.address, "port", 0))
        if self.consoles.serving is not None:
            self.consoles.serving.start(sorted({address for _, address in addresses}))

    async def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        await self.consoles.stop()
        stopping = [
            self.registration.stop(),
            self.loop.stop(),
            self.runtime_events.stop(),
            self.alerts.stop(),
            self.recordings.stop(),
            self.recorder.stop(),
            self.recording_events.stop(),
        ]
        await DeferredList([*stopping, *(copy.stop() for copy in self._copies)])
        if self._identity is not None:
            await self._identity.stop()

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
        config = MachineConfig(settings.dialect, self.pool, name, settings.downward, settings.about)
        self.loop.start(config)
        self.runtime_events.start()
        self.alerts.start()
        self.recordings.start()

    def _has_machine(self, uid: str) -> bool:
        return any(each["metadata"]["uid"] == uid for each in self.machines)

    def _machine_changed(self, before: Object | None, after: Object | None) -> None:
        self.consoles.machine_changed(before, after)
        self.loop.changed(before, after)
        self.alerts.machine_changed(before, after)
        if before is None or after is None:
            self.registration.poke()

    def _class_of(self, name: str) -> tuple[str, str]:
        offered = self.registration.offered
        if offered is None or not self.classes.synced:
            raise Unread("machine classes are being read", soon=True)
        return choice(name, self.classes, offered)

    def _class_changed(self, before: Object | None, after: Object | None) -> None:
        self.registration.poke()
        self.loop.look_at_all()

    def _pool_changed(self, before: Object | None, after: Object | None) -> None:
        self.consoles.pool_changed(before, after)
        if after is None:
            self.registration.poke()

"""
API server, poollet and runtime on one host, in one process.

These are the same services as in separate programs, with the same sockets and certificates between
them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.application.service import IService
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.logger import ILogObserver, Logger
from zope.interface import alsoProvides

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.service import state_version as apiserver_state_version
from twisted_exec.control.loop import PokedLoop
from twisted_exec.iri.client import IRIClient
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.reloading import ReloadingFiles
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.poollet.service import Poollet
from twisted_exec.program.audit_file import JSONLinesAudit, Rotation
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.draining import let_sessions_end
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import ExpiryMetrics, new_registry
from twisted_exec.program.service import SUMMARY, AsyncService
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.standalone.certificates import ADMIN, POOL, Certificates, prepare
from twisted_exec.standalone.handover import APISERVER, POOLLET, RUNTIME, SPACES, PartsHandOver
from twisted_exec.standalone.machines import (
    NAMESPACE,
    PTY,
    SHELL,
    console_commands,
    create_missing,
    demo_objects,
    permission_binding,
    until_running,
)
from twisted_exec.standalone.part_settings import (
    apiserver_settings,
    poollet_settings,
    runtime_settings,
)
from twisted_exec.standalone.settings import Settings
from twisted_exec.standalone.standard_output import TerminalSummary
from twisted_exec.standalone.state import CERTIFICATES, CREATED, OBJECTS, StateDirectory
from twisted_exec.storage.replaceable import can_hand_over
from twisted_exec.storage.sqlite.store import SQLiteStorage
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.guard import CONSOLE_SERVER, STOPPING
from twisted_exec.tls import pem
from twisted_exec.tls.expiry import Expiry
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import PKI, Pair
from twisted_exec.tls.private_directories import runtime_directory
from twisted_exec.tls.private_files import write_private

__all__ = ["Settings", "Standalone"]

_SHOWN = 5
"""Machines in the last message."""
KUBECONFIG, CLIENT_CAS, LOG = "admin.kubeconfig", "client-cas.crt", "exec-standalone.log"
_AUDIT_ROTATION = Rotation(100 << 20)
_RENEW_EVERY_SECONDS = 12 * 3600
_ORDER = ["SpaceManager", "Poollet", "APIServer", "IRIClient", "RuntimeHost"]


class Standalone(AsyncService):
    """
    API server, poollet and runtime in one process, with a Space Manager if that is wanted.

    It provides :class:`IHandsOver`, unless its store cannot be handed over, or a parent process waits
    for its end.

    :param summary: becomes the log of the application; ``None`` for the log that twistd chooses.
    :ivar kubeconfig: path of the administrator's kubeconfig, written when everything is ready.
    :ivar first_commands: what a user can type then, one line each.
    """

    label = "exec-standalone"
    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        reactor: Any,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        summary: TerminalSummary | None = None,
    ) -> None:
        super().__init__()
        self.settings, self._summary = settings, summary
        self._reactor, self._now = reactor, now
        self._state = StateDirectory(settings.state_directory)
        self.kubeconfig = self._state.file(KUBECONFIG)
        self.first_commands: tuple[str, ...] = ()
        self._open = False
        self._sockets = ""
        self._running: list[IService] = []
        self._clients: list[KubeClient] = []
        self._renewing = PokedLoop(self._renew, reactor, _RENEW_EVERY_SECONDS)
        self._url = ""
        make = settings.storage or partial(
            SQLiteStorage, self._state.file(OBJECTS), limits=settings.limits
        )
        self._storage = make(reactor)
        self._hand_over = PartsHandOver(self._state)
        if can_hand_over(self._storage) and not settings.has_parent:
            alsoProvides(self, IHandsOver)

    @property
    def state_version(self) -> int:
        """See :attr:`.IHandsOver.state_version`: it grows with that of each part."""
        # The space manager has no state.
        own = Poollet.state_version + RuntimeHost.state_version
        return own + apiserver_state_version(self._storage)

    @property
    def is_successor(self) -> bool:
        """Return whether this process has taken the place of another process."""
        return self._hand_over.is_successor

    # Starting.

    def setServiceParent(self, parent: Any) -> None:
        super().setServiceParent(parent)
        if self._summary is not None:
            # twistd asks the application for its log once the application has its service.
            parent.setComponent(ILogObserver, self._summary)

    async def start(self) -> None:
        self._state.open()
        self._open = True
        if self._summary is not None:
            path = self._state.file(LOG)
            self._summary.open(path)
            self._tell("starting; the log is in {path}", path=_short_path(path))
        self._state.belong_to(self.settings.dialect.name)
        self._state.check_storage(self._storage.location)
        if not self.is_successor:
            self._state.remove(KUBECONFIG)
        certificates = self._prepared()
        self._sockets = runtime_directory(self._state.path)
        audit = JSONLinesAudit(
            self._state.file("audit.jsonl"), _AUDIT_ROTATION, DiskThread(self._reactor)
        )
        audit.check()

        runtime = self._runtime(certificates, audit)
        server = self._apiserver(certificates, audit)
        server.health.add("startup", self._probe)
        begun = [self._begin(server, APISERVER), self._begin(runtime, RUNTIME)]
        await gatherResults(begun, consumeErrors=True)
        LISTENING.accept()  # a successor's sockets are held, but the poollet needs the API server
        self._state.keep_storage(self._storage.location)
        await self._begin(self._poollet(certificates, server.url, runtime, audit), POOLLET)

        client = self._client(server.url, certificates, certificates.admin, "exec-standalone")
        await self._make_machines(client, runtime.runtime)
        if self.settings.spaces:
            await self._keep_spaces(client, certificates)
        commands = await console_commands(client, self.settings.dialect, POOL)
        self._publish(server.url, certificates, commands)
        self._url = server.url
        self._renewing.start(_RENEW_EVERY_SECONDS)

    def _tell(self, message: str, **facts: object) -> None:
        """Log a message for the user of a terminal."""
        self._log.info(message, **{SUMMARY: True}, **facts)

    def _probe(self) -> None:
        if not self.first_commands:
            raise ServiceUnavailable("exec-standalone is starting")

    def _prepared(self) -> Certificates:
        return prepare(self._state.file(CERTIFICATES), self._now(), self.settings.dialect)

    def _begin(self, service: Any, name: str) -> Deferred[None]:
        self._hand_over.add(name, service)
        ready: Deferred[None] = service.when_ready()
        service.startService()
        self._running.append(service)
        return ready

    def _runtime(self, certificates: Certificates, audit: JSONLinesAudit) -> RuntimeHost:
        directory = self._state.file("runtime")
        settings = runtime_settings(self.settings, directory, self._sockets, certificates)
        return RuntimeHost(settings, audit, self._reactor)

    def _apiserver(self, certificates: Certificates, audit: JSONLinesAudit) -> APIServer:
        client_cas = self._client_cas(certificates.pki)
        settings = apiserver_settings(self.settings, certificates, client_cas)
        metrics = new_registry(self._reactor)
        ExpiryMetrics(metrics, Expiry(certificates.files()).ends)
        return APIServer(settings, self._storage, audit, self._reactor, metrics=metrics)

    def _client_cas(self, pki: PKI) -> str:
        if not self.settings.client_ca:
            return pki.client_ca
        path = self._state.file(CLIENT_CAS)
        others = pem.certificates(read_file(self.settings.client_ca), self.settings.client_ca)
        text = b"".join(each.public_bytes(Encoding.PEM) for each in others)
        write_private(path, read_file(pki.client_ca) + text)
        return path

    def _poollet(
        self, certificates: Certificates, url: str, runtime: RuntimeHost, audit: JSONLinesAudit
    ) -> Poollet:
        settings = poollet_settings(self.settings, certificates)
        iri = IRIClient(str(runtime.iri.target), self._reactor)
        iri.startService()
        self._running.append(iri)
        client = self._client(url, certificates, certificates.poollet_client, "exec-poollet")
        return Poollet(settings, client, iri, audit, self._reactor)

    def _client(self, url: str, certificates: Certificates, pair: Pair, agent: str) -> KubeClient:
        config = ClientConfig(
            url,
            ca=Material(path=certificates.pki.serving_ca),
            certificate=Material(path=pair.certificate),
            key=Material(path=pair.key),
        )
        files = ReloadingFiles()
        client = KubeClient(config, self._reactor, renew=lambda: files.current(config), agent=agent)
        self._clients.append(client)
        return client

    async def _make_machines(self, client: KubeClient, runtime: MachineRuntime) -> None:
        self._log.info(
            "machines of class {name} are shells of {user}, the user of this program",
            name=PTY,
            user=_user(),
        )
        created = self._state.names(CREATED)
        dialect = self.settings.dialect
        objects = demo_objects(dialect, POOL, runtime.offered, self.settings.classes)
        if not self.settings.demo:
            objects = [each for each in objects if each.resource != dialect.workload]
        objects.append(permission_binding(dialect, POOL))
        created = await create_missing(client, objects, created)
        self._state.keep_names(CREATED, created)
        await until_running(client, runtime, dialect, SHELL, self._reactor)

    async def _keep_spaces(self, client: KubeClient, certificates: Certificates) -> None:
        # Imported late: a local space runs this program, too, and does not need it.
        from twisted_exec.standalone import space_manager as spaces

        self._state.keep_names(
            CREATED, await create_missing(client, [spaces.provider()], self._state.names(CREATED))
        )
        directory = self._state.file(spaces.DIRECTORY)
        await self._begin(
            spaces.manager(
                client,
                directory,
                self._client_cas(certificates.pki),
                self._reactor,
                lambda: self._now().timestamp(),
                exclusive=self._storage.exclusive,
                ports=self.settings.space_ports,
            ),
            SPACES,
        )

    def _publish(self, url: str, certificates: Certificates, commands: tuple[str, ...]) -> None:
        self._write_kubeconfig(url, certificates)
        programs = os.path.dirname(os.path.abspath(sys.argv[0] or sys.executable))
        path = _short_path(self.kubeconfig)
        if os.geteuid() == 0:
            self._log.warn(
                "started as root: whoever holds {path} is root on this host; start it as an ordinary user",
                path=path,
            )
        self._log.info("ready; the administrator's kubeconfig is {path}", path=path)
        if self._summary is not None:
            self._tell("API server at {url}, for this host only", url=url)
        self.first_commands = (
            # Two lines: one would be wrapped by a terminal, and break when it is copied from there.
            f"export KUBECONFIG={shlex.quote(os.path.abspath(self.kubeconfig))}",
            f"export PATH={shlex.quote(programs)}:$PATH",
            *commands,
        )

    def _write_kubeconfig(self, url: str, certificates: Certificates) -> None:
        write_kubeconfig(
            self.kubeconfig,
            server=url,
            ca_pem=read_file(certificates.pki.serving_ca),
            certificate_pem=read_file(certificates.admin.certificate),
            key_pem=read_file(certificates.admin.key),
            user=ADMIN,
            namespace=NAMESPACE,
            replace=True,
        )

    def renew(self) -> None:
        """Renew what nears its end while we run."""
        try:
            certificates = self._prepared()
            self._client_cas(certificates.pki)
            self._write_kubeconfig(self._url, certificates)
        except Exception as error:  # a full disk today must not end what runs until next year
            self._log.error("certificates cannot be renewed: {error}", error=error)

    async def _renew(self) -> None:
        self.renew()

    # Hand-over.

    def inherit(self, inherited: ServiceState) -> None:
        self._hand_over.inherit(inherited)

    def freeze(self) -> Deferred[ServiceState]:
        self._renewing.stop()
        return Deferred.fromCoroutine(self._hand_over.freeze())

    @as_deferred
    async def thaw(self) -> None:
        await self._hand_over.thaw()
        self._renewing.start(_RENEW_EVERY_SECONDS)

    def retire(self, linger_seconds: float) -> Deferred[None]:
        return Deferred.fromCoroutine(self._hand_over.retire(linger_seconds))

    # Ending.

    async def stop(self) -> None:
        self._renewing.stop()
        if not self._open or (self.is_successor and not self.first_commands):
            return  # a predecessor goes on, with what it has handed over
        if self._hand_over.is_frozen:
            await self._hand_over.thaw()  # the parts use each other while they stop
        is_retired = self._hand_over.is_retired
        if not is_retired:
            self._state.remove(KUBECONFIG)
            self._tell_users(self.settings.drain_seconds)
        continuing = [] if is_retired else self._continuing()
        await self._stop_services()
        if continuing:
            self._tell(
                "going on without this program: {machines}; its next start finds them. To end them, start "
                "it again and type: kubectl delete machines --all --all-namespaces",
                machines=", ".join(continuing),
            )
        for client in self._clients:
            await client.close()
        if self._sockets and not is_retired:
            with contextlib.suppress(OSError):
                os.rmdir(self._sockets)
        self._state.close()
        self._open = False

    def _continuing(self) -> list[str]:
        hosts = [each for each in self._running if isinstance(each, RuntimeHost)]
        labels = [label for host in hosts for label in host.runtime.machines.continuing]
        more = [f"{len(labels) - _SHOWN} more"] if len(labels) > _SHOWN else []
        return labels[:_SHOWN] + more

    async def _stop_services(self) -> None:
        # The poollet stops first, because it signs off at the API server.  So its drain time
        # has to pass here.
        for service in self._running:
            if isinstance(service, Poollet):
                sessions = service.consoles.sessions
                await let_sessions_end(self._reactor, self.settings.drain_seconds, sessions.__len__)
                # No session can be resumed elsewhere: the runtime stops, too.
                ending = Ending(SHUTTING_DOWN, STOPPING)
                sessions.end(lambda _: True, ending)
        self._running.sort(key=lambda service: _ORDER.index(type(service).__name__))
        while self._running:
            await maybeDeferred(self._running.pop(0).stopService)

    def _tell_users(self, seconds: float) -> None:
        """Tell the users of consoles how soon their sessions end."""
        if not seconds:
            return  # they read at once that their sessions have ended
        for service in self._running:
            if isinstance(service, RuntimeHost):
                service.runtime.machines.tell(f"{CONSOLE_SERVER} stops within {seconds:g} s")


def _user() -> str:
    try:
        return f"{getpass.getuser()} (uid {os.getuid()})"
    except (KeyError, OSError):  # a uid without a user name, as in some containers
        return f"uid {os.getuid()}"


def _short_path(path: str) -> str:
    relative = os.path.relpath(path)
    # The log of a service, which runs in /, is read elsewhere.
    return path if relative.startswith("..") or os.getcwd() == os.sep else relative

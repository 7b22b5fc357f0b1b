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

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.service import APIServer
from twisted_exec.control.loop import PokedLoop
from twisted_exec.iri.client import IRIClient
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.reloading import ReloadingFiles
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.poollet.service import Poollet
from twisted_exec.program.audit_file import JSONLinesAudit, Rotation
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics, new_registry
from twisted_exec.program.service import SUMMARY, AsyncService
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.standalone import PROGRAM
from twisted_exec.standalone.certificates import ADMIN, POOL, Certificates, prepare
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
from twisted_exec.storage.sqlite.store import SQLiteStorage
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

    :param summary: becomes the log of the application; ``None`` for the log that twistd chooses.
    :ivar kubeconfig: path of the administrator's kubeconfig, written when everything is ready.
    :ivar first_commands: what a user can type then, one line each.
    """

    label = PROGRAM
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
        certificates = self._prepared()
        self._sockets = runtime_directory(self._state.path)
        audit = JSONLinesAudit(
            self._state.file("audit.jsonl"), _AUDIT_ROTATION, DiskThread(self._reactor)
        )
        audit.check()

        runtime = self._runtime(certificates, audit)
        server = self._apiserver(certificates, audit)
        server.health.add("startup", self._probe)
        await gatherResults([self._begin(server), self._begin(runtime)], consumeErrors=True)
        self._state.keep_storage(self._storage.location)
        await self._begin(self._poollet(certificates, server.url, runtime, audit))

        client = self._client(server.url, certificates, certificates.admin, PROGRAM)
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

    def _begin(self, service: Any) -> Deferred[None]:
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
            )
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

    # Ending.

    async def stop(self) -> None:
        self._renewing.stop()
        if not self._open:
            return
        continuing = self._continuing()
        await self._stop_services()
        if continuing:
            self._tell(
                "going on without this program: {machines}; its next start finds them. To end them, start "
                "it again and type: kubectl delete machines --all --all-namespaces",
                machines=", ".join(continuing),
            )
        for client in self._clients:
            await client.close()
        if self._sockets:
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
        # The sessions end here, while all parts can still pass the reason on.
        for service in self._running:
            if isinstance(service, APIServer):
                await service.end_sessions()
        self._running.sort(key=lambda service: _ORDER.index(type(service).__name__))
        while self._running:
            await maybeDeferred(self._running.pop(0).stopService)


def _user() -> str:
    try:
        return f"{getpass.getuser()} (uid {os.getuid()})"
    except (KeyError, OSError):  # a uid without a user name, as in some containers
        return f"uid {os.getuid()}"


def _short_path(path: str) -> str:
    relative = os.path.relpath(path)
    # The log of a service, which runs in /, is read elsewhere.
    return path if relative.startswith("..") or os.getcwd() == os.sep else relative

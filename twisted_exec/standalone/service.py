"""
API server, poollet and runtime on one host, in one process.

These are the same services as in separate programs, with the same sockets and certificates between
them.

In a hand-over, the parts freeze one after the other, each before those that it uses. In the new
process the API server accepts connections before the poollet starts.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.application.service import IService
from twisted.internet.defer import (
    Deferred,
    DeferredList,
    gatherResults,
    maybeDeferred,
)
from twisted.logger import ILogObserver, Logger
from zope.interface import alsoProvides

from twisted_exec.api.dialects import DEFAULT, NAMES, Dialect, by_name
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY
from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.identity.service_accounts import KEYS
from twisted_exec.apiserver.service import PODS_VIEW, WEB, APIServer
from twisted_exec.apiserver.service import Settings as APIServerSettings
from twisted_exec.apiserver.service import state_version as apiserver_state_version
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.control.loop import PokedLoop
from twisted_exec.iri.client import IRIClient
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import ClientConfig, Material
from twisted_exec.kube.kubeconfig.reloading import ReloadingFiles
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.settings import Settings as PoolletSettings
from twisted_exec.program.audit import JSONLinesAudit, Rotation
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.handover.undo import UndoStack
from twisted_exec.program.listening import LISTENING, ListeningSockets
from twisted_exec.program.metrics import ExpiryMetrics, new_registry
from twisted_exec.program.options import (
    ALLOWED_ORIGIN,
    CONSOLE_VERBS,
    DRAIN_SECONDS,
    OPTION,
    SPACE_PORT_RANGE,
    ProgramOption,
)
from twisted_exec.program.service import SUMMARY, AsyncService, let_sessions_end
from twisted_exec.program.tasks import as_deferred
from twisted_exec.recording.stores.option import RECORDING_STORE, MakeStore
from twisted_exec.runtimes.config import ClassConfig, parse
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.host import Settings as RuntimeSettings
from twisted_exec.runtimes.recordings.service import RecordingSettings
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.runtimes.supervised import LAST_LINE_SECONDS
from twisted_exec.standalone.machines import (
    CLASSES,
    NAMESPACE,
    PTY,
    SHELL,
    SHELLS,
    console_commands,
    create_missing,
    demo_objects,
    load_classes,
    permission_binding,
    until_running,
)
from twisted_exec.standalone.standard_streams import TerminalSummary
from twisted_exec.standalone.state import (
    ADMIN,
    CERTIFICATES,
    CREATED,
    OBJECTS,
    POOL,
    Certificates,
    StateDirectory,
    prepare,
)
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.option import FORMS, storage_option
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits
from twisted_exec.storage.replaceable import can_hand_over
from twisted_exec.storage.sqlite.store import SQLiteStorage
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.guard import STOPPING
from twisted_exec.tls import pem
from twisted_exec.tls.files import Expiry, read_file
from twisted_exec.tls.pki import (
    CLIENT,
    FORWARDING_USER,
    PKI,
    SERVING,
    Pair,
    write_kubeconfig,
    write_private,
)
from twisted_exec.tls.unix import runtime_directory
from twisted_exec.web.oidc import WebClient

_SHOWN = 5
"""Machines in the last message."""
KUBECONFIG, CLIENT_CAS, LOG = "admin.kubeconfig", "client-cas.crt", "exec-standalone.log"
_AUDIT_ROTATION = Rotation(100 << 20)
_RENEW_EVERY_SECONDS = 12 * 3600


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError(f"{text!r} is no port from 0 to 65535")
    return int(text)


@dataclass(frozen=True)
class Settings:
    """
    Settings of the standalone program.

    :param state_directory: directory for all state; see :mod:`.state`.
    :param port: loopback port of the API server; 0 for any free port.
    :param drain_seconds: how long sessions may continue when the program stops.
    :param token_file: file with bearer tokens of further users; empty for none.
    :param pods_view: show each machine as a Pod as well.
    :param dialect: dialect of the API; a state directory cannot change it.
    :param allowed_origins: further sites whose pages may send requests to the API server.
    :param issuers: issuers of OIDC ID tokens for further users.
    :param storage: makes the API server's store, given the reactor; a file of the state
        directory when ``None``.
    :param demo: create demo machines; otherwise create none, and of the program's own classes only
        that for shells.
    :param classes: machine classes besides the program's own.
    :param client_ca: path of a further client CA; empty for none.
    :param sessions: limits of concurrent sessions of each part; ``None`` for as many as file
        descriptors allow.
    :param limits: limits of what objects use in the file of the state directory.
    :param spaces: run a Space Manager, and create a provider for local spaces.
    :param keep_machines: virtual machines and shells continue when the program stops.
    :param space_ports: ports for the API servers of local spaces; ``None`` for the default range.
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right at a console.
    :param last_line_seconds: see :class:`twisted_exec.runtimes.host.Settings`.
    :param recording_store: creates the store of closed recordings, if there is one.
    :param has_parent: a parent process waits for the end of this process, so that no successor can take
        its place.
    :param verbose: write the log on a terminal.
    :param web: serve the web console under ``/console/``.
    :param web_client: the web console as a client of the issuers.
    """

    state_directory: str = field(
        metadata={
            OPTION: ProgramOption(
                "state-dir",
                "Directory for all state; one program at a time.",
                default="exec-state",
                group="Storage",
                is_path=True,
            )
        }
    )
    port: int = field(
        default=6443,
        metadata={
            OPTION: ProgramOption(
                "port",
                "Port of the API server on 127.0.0.1; 0: any free port, another at each start.",
                _port,
                group="API server",
            )
        },
    )
    drain_seconds: float = field(default=5.0, metadata={OPTION: DRAIN_SECONDS})
    token_file: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "token-auth-file",
                "CSV file with further users: token,user,uid,groups.",
                group="Users",
                is_path=True,
            )
        },
    )
    pods_view: bool = field(default=True, metadata={OPTION: PODS_VIEW})
    dialect: Dialect = field(
        default=DEFAULT,
        metadata={
            OPTION: ProgramOption(
                "dialect",
                f"Dialect of the API: {NAMES}.  Each requires its own --state-dir.",
                by_name,
                group="API server",
            )
        },
    )
    allowed_origins: Collection[bytes] = field(default=(), metadata={OPTION: ALLOWED_ORIGIN})
    issuers: Issuers = Issuers()
    storage: Callable[[Any], IStorage] | None = field(
        default=None,
        metadata={
            OPTION: ProgramOption(
                "storage",
                f"Storage of objects: {FORMS}; default: a file in the state directory.",
                storage_option,
                group="Storage",
            )
        },
    )
    demo: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption("without-demo", "Create no demo machines, and offer shells only.")
        },
    )
    classes: Sequence[ClassConfig] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "classes",
                "YAML file with further machine classes, as of exec-runtime.  A class of the API is "
                "created for each.",
                default=None,
                is_path=True,
                convert=load_classes,
            )
        },
    )
    spaces: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption("without-spaces", "Do not run the Space Manager.", group="Spaces")
        },
    )
    client_ca: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "client-ca-file",
                "CA of client certificates of further users.",
                group="Users",
                is_path=True,
            )
        },
    )
    sessions: SessionLimits | None = None
    limits: QuotaLimits = field(default=NO_LIMITS, metadata={OPTION: QuotaLimits})
    space_ports: range | None = field(default=None, metadata={OPTION: SPACE_PORT_RANGE})
    keep_machines: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "no-keep-machines",
                "End virtual machines and shells when this program stops.",
                default=True,
            )
        },
    )
    strict_verbs: bool = field(
        default=False,
        metadata={OPTION: replace(CONSOLE_VERBS, group="API server")},
    )
    last_line_seconds: int = field(default=0, metadata={OPTION: LAST_LINE_SECONDS})
    recording_store: MakeStore | None = field(
        default=None, metadata={OPTION: replace(RECORDING_STORE, group="Storage")}
    )
    has_parent: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "with-parent", "Stop when standard input ends; for use by a parent process."
            )
        },
    )
    verbose: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "verbose",
                "Show the log on a terminal, instead of a summary with the log in a file.",
            )
        },
    )
    web: bool = field(default=True, metadata={OPTION: WEB})
    web_client: WebClient | None = None


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


_ORDER = ["SpaceManager", "Poollet", "APIServer", "IRIClient", "RuntimeHost"]


def _user() -> str:
    try:
        return f"{getpass.getuser()} (uid {os.getuid()})"
    except (KeyError, OSError):  # a uid without a user name, as in some containers
        return f"uid {os.getuid()}"


def _short_path(path: str) -> str:
    relative = os.path.relpath(path)
    # The log of a service, which runs in /, is read elsewhere.
    return path if relative.startswith("..") or os.getcwd() == os.sep else relative


ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Issuer of ServiceAccount tokens: independent of the port, as in most clusters."""
_LAST_WORD_SECONDS = 3.0
"""Drain time of the poollet and of the runtime, after that of the settings has passed."""


def runtime_settings(
    settings: Settings, directory: str, sockets: str, certificates: Certificates
) -> RuntimeSettings:
    """Return the settings of the runtime."""
    return RuntimeSettings(
        classes=[*parse(CLASSES if settings.demo else SHELLS), *settings.classes],
        state_directory=directory,
        iri_target=f"unix://{sockets}/iri.sock",
        drain_seconds=_LAST_WORD_SECONDS,
        sessions=settings.sessions,
        keep_machines=settings.keep_machines,
        last_line_seconds=settings.last_line_seconds,
        recording=RecordingSettings(
            certificates.recorder.certificate,
            certificates.recorder.key,
            make_store=settings.recording_store,
        ),
    )


def apiserver_settings(
    settings: Settings, certificates: Certificates, client_cas: str
) -> APIServerSettings:
    """Return the settings of the API server."""
    pki = certificates.pki
    return APIServerSettings(
        listen=f"tcp:{settings.port}:interface=127.0.0.1",
        certificate=certificates.apiserver.certificate,
        key=certificates.apiserver.key,
        client_ca=client_cas,
        poollet_certificate=certificates.forwarding.certificate,
        poollet_key=certificates.forwarding.key,
        poollet_ca=pki.serving_ca,
        drain_seconds=settings.drain_seconds,
        identities=_identities(settings, pki),
        signing=CAPair(pki.pair(SERVING).certificate, pki.pair(SERVING).key),
        client_signing=CAPair(pki.pair(CLIENT).certificate, pki.pair(CLIENT).key),
        pods_view=settings.pods_view,
        dialects=(settings.dialect,),
        allowed_origins=settings.allowed_origins,
        sessions=settings.sessions,
        audit_policy=DEFAULT_POLICY,
        strict_verbs=settings.strict_verbs,
        web=settings.web,
        web_client=settings.web_client,
    )


def _identities(settings: Settings, pki: PKI) -> Identities:
    uri = f"https://127.0.0.1:{settings.port}{KEYS}" if settings.port else ""
    accounts = Accounts([ISSUER], signing_key_file=pki.account_key, jwks_uri=uri)
    return Identities(settings.token_file, settings.issuers, accounts, bootstrap_tokens=True)


def poollet_settings(settings: Settings, certificates: Certificates) -> PoolletSettings:
    """Return the settings of the poollet."""
    pki = certificates.pki
    return PoolletSettings(
        pool=POOL,
        dialect=settings.dialect,
        provider_id=f"twisted-exec://{POOL}",
        certificate=certificates.poollet.certificate,
        key=certificates.poollet.key,
        listen="tcp:0:interface=127.0.0.1",
        client_ca=pki.client_ca,
        requestheader_ca=pki.forwarding_ca,
        requestheader_names=[FORWARDING_USER],
        addresses=[("InternalIP", "127.0.0.1")],
        drain_seconds=_LAST_WORD_SECONDS,
        sessions=settings.sessions,
        strict_verbs=settings.strict_verbs,
    )


SPACES, POOLLET, APISERVER, RUNTIME = "spaces", "poollet", "apiserver", "runtime"
"""Names of the parts in the state."""
_HANDOVER_ORDER = (SPACES, POOLLET, APISERVER, RUNTIME)
"""Each part uses some of those behind it."""


class PartsHandOver:
    """
    Hands all parts of one process over to another process, or continues those of another.

    :param state: its lock is handed over, too: no third process can take it meanwhile.
    """

    is_successor = is_retired = False
    _log = Logger()

    def __init__(self, state: StateDirectory, sockets: ListeningSockets = LISTENING) -> None:
        self._state, self._sockets = state, sockets
        self._parts: dict[str, IHandsOver] = {}
        self._inherited: dict[str, ServiceState] = {}
        self._undo = UndoStack()

    # The new process.

    def inherit(self, inherited: ServiceState) -> None:
        """See :meth:`.IHandsOver.inherit`; the parts inherit when they are added."""
        parts = inherited.values.get("parts")
        if not isinstance(parts, Mapping) or not inherited.descriptors:
            raise ValueError("the state of exec-standalone has parts and a lock")
        lock, *others = inherited.descriptors
        for name, (values, count) in parts.items():
            self._inherited[name] = ServiceState(values, others[:count])
            del others[:count]
        self.is_successor = True
        self._state.inherit(lock)

    def add(self, name: str, part: IHandsOver) -> None:
        """
        Take note of a part that is about to start.

        :raises ValueError: it cannot continue from the state of its predecessor.
        """
        self._parts[name] = part
        inherited = self._inherited.pop(name, None)
        if inherited is not None:
            part.inherit(inherited)

    # The old process.

    async def freeze(self) -> ServiceState:
        """
        See :meth:`.IHandsOver.freeze`.

        The program has paused the sockets, but the parts that freeze first need the API server.
        """
        self._sockets.accept()
        parts: dict[str, tuple[dict[str, Any], int]] = {}
        descriptors = [self._state.lock]
        self._undo.push(self._thaw_state)
        for name in _HANDOVER_ORDER:
            part = self._parts.get(name)
            if part is None:
                continue
            if name == APISERVER:
                self._sockets.pause()
                self._undo.push(self._accept)
            self._undo.push(partial(_thaw, part))
            frozen = await part.freeze()
            parts[name] = dict(frozen.values), len(frozen.descriptors)
            descriptors += frozen.descriptors
        return ServiceState({"parts": parts}, descriptors)

    async def _accept(self) -> None:
        self._sockets.accept()

    async def _thaw_state(self) -> None:
        self._state.name_holder()

    async def thaw(self) -> None:
        """See :meth:`.IHandsOver.thaw`: goes back from wherever :meth:`freeze` has come to."""
        await self._undo.undo()

    @property
    def is_frozen(self) -> bool:
        """True from :meth:`freeze` to :meth:`thaw` or :meth:`retire`."""
        return not self._undo.is_empty

    async def retire(self, linger_seconds: float) -> None:
        self.is_retired = True
        self._undo.clear()
        self._state.close()
        # In one turn of the reactor: each part cuts its sessions before it hears of another's cuts.
        names = [name for name in _HANDOVER_ORDER if name in self._parts]
        retiring = [maybeDeferred(self._parts[name].retire, linger_seconds) for name in names]
        results = await DeferredList(retiring, consumeErrors=True)
        for name, (succeeded, failure) in zip(names, results, strict=True):
            if not succeeded:
                self._log.failure("{name} was not left to the successor", failure, name=name)


async def _thaw(part: IHandsOver) -> None:
    await part.thaw()

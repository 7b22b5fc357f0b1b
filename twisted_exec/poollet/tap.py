"""
``twistd exec-poollet``: the poollet of one pool, as a program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.python.usage import UsageError
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.api.dialects import DEFAULT, NAMES, by_name
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.names import dns_subdomain
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.revisions import REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.poollet.client_certificate import ClientCertificate
from twisted_exec.poollet.dialling import place
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.machines import config as downward
from twisted_exec.poollet.machines.config import Downward, ReferencedKinds
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.settings import SIGNER, Settings
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.handover.interfaces import IHandsOver
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.options import (
    CONSOLE_VERBS,
    STRICT,
    AuditOptions,
    BrowserOptions,
    Required,
    seconds,
)
from twisted_exec.program.start import make_service
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry
from twisted_exec.tls.unix import uid_of

PROGRAM = "exec-poollet"
DOWNWARD = ("machine", "volume", "nic", "network")
"""Kinds of objects with downward API options."""


_FILES = (
    "machine-runtime-ca-file",
    "machine-runtime-cert-file",
    "machine-runtime-private-key-file",
    "tls-cert-file",
    "tls-private-key-file",
    "client-ca-file",
    "requestheader-client-ca-file",
    "runtime-ca-file",
    "cert-dir",
    "bootstrap-kubeconfig",
)


class Options(BrowserOptions, AuditOptions):
    """Command line of the poollet."""

    program = PROGRAM
    paths = _FILES
    required = {
        "machine-pool-name": Required(),
        "machine-runtime-endpoint": Required(),
        "tls-cert-file": Required(unless=["cert-dir"]),
        "tls-private-key-file": Required(unless=["cert-dir"]),
    }
    group = "Sessions"
    groups = {
        "API server": ["kubeconfig", "context", "bootstrap-kubeconfig", "dialect"],
        "Pool": ["machine-pool-name", "provider-id", "addresses"],
        "Machine runtime": [
            "machine-runtime-endpoint",
            "iri-revision",
            *_FILES[:3],
            "runtime-ca-file",
            "runtime-uid",
            "exec-url-allowed",
        ],
        "Serving": [
            "listen",
            "tls-cert-file",
            "tls-private-key-file",
            "cert-dir",
            "serving-cert-signer",
            "client-ca-file",
            "requestheader-client-ca-file",
            "requestheader-allowed-names",
            "pool-proxy-suffices",
            "console-verbs",
        ],
        "Downward API": [
            *(f"{kind}-downward-api-label" for kind in DOWNWARD),
            "machine-downward-api-annotation",
        ],
    }
    synopsis = "--machine-pool-name=NAME --machine-runtime-endpoint=TARGET [options]"
    longdesc = "Runs the machines of one pool on a machine runtime, and serves their consoles."

    optParameters = [
        CONSOLE_VERBS.parameter,
        ["kubeconfig", None, None, "Kubeconfig for the API server; default: $KUBECONFIG."],
        ["context", None, None, "Context of the kubeconfig; default: the current context."],
        [
            "bootstrap-kubeconfig",
            None,
            None,
            "Kubeconfig for requesting a client certificate, kept in --cert-dir.",
        ],
        ["dialect", None, DEFAULT, f"API group and kinds of machines: {NAMES}.", by_name],
        ["machine-pool-name", None, None, "Name of the MachinePool to serve."],
        ["provider-id", None, None, "providerID of the pool; default: twisted-exec://NAME."],
        ["machine-runtime-endpoint", None, None, "gRPC target of the machine runtime."],
        [
            "iri-revision",
            None,
            "",
            f"gRPC API of the runtime: {', '.join(REVISIONS)}; default: that of the dialect.",
        ],
        ["machine-runtime-ca-file", None, None, "CA of the runtime, for a TCP target."],
        ["machine-runtime-cert-file", None, None, "Client certificate for a TCP target."],
        ["machine-runtime-private-key-file", None, None, "Private key of that certificate."],
        [
            "listen",
            None,
            "tcp:20250",
            "Listening address: a Twisted endpoint string, to which TLS is added.",
        ],
        ["tls-cert-file", None, None, "Serving certificate."],
        ["tls-private-key-file", None, None, "Private key of that certificate."],
        ["cert-dir", None, "", "Directory for certificates that the API server signs."],
        ["serving-cert-signer", None, SIGNER, "signerName for the serving certificate."],
        ["client-ca-file", None, None, "CA of client certificates of users."],
        ["requestheader-client-ca-file", None, None, "CA of proxies that forward users."],
        [
            "requestheader-allowed-names",
            None,
            "",
            "Common names of these proxies, separated by commas.",
        ],
        ["runtime-ca-file", None, "", "CA of runtimes whose exec URLs are https."],
        ["drain-seconds", None, 5.0, "Seconds that sessions may take to end at shutdown.", seconds],
    ]

    def __init__(self) -> None:
        super().__init__()
        for name in ("addresses", "pool-proxy-suffices", "runtime-uid", "exec-url-allowed"):
            self[name] = []
        for kind in DOWNWARD:
            self[f"{kind}-downward-api-label"] = {}
        self["machine-downward-api-annotation"] = {}

    def opt_addresses(self, text: str) -> None:
        """
        TYPE=ADDRESS that the MachinePool publishes, separated by commas or repeated; default:
        this host's addresses.
        """
        for part in text.split(","):
            kind, equals, address = part.strip().partition("=")
            if kind not in ADDRESS_TYPES or not equals or not address:
                raise UsageError(
                    f"--addresses {part!r} is not TYPE=ADDRESS with a TYPE of "
                    f"{', '.join(ADDRESS_TYPES)}"
                )
            self["addresses"].append((kind, address))

    def opt_exec_url_allowed(self, text: str) -> None:
        """
        HOST[:PORT] that exec URLs may point to, besides this host and the runtime's;
        separated by commas or repeated.
        """
        for part in text.split(","):
            try:
                self["exec-url-allowed"].append(place(part.strip()))
            except ValueError as problem:
                raise UsageError(f"--exec-url-allowed: {problem}") from None

    def opt_machine_downward_api_label(self, text: str) -> None:
        """
        NAME=FIELDPATH, such as team=metadata.labels['team']: label of the runtime's machine; may be
        repeated.
        """
        self._downward("machine-downward-api-label", text)

    def opt_machine_downward_api_annotation(self, text: str) -> None:
        """NAME=FIELDPATH: annotation of the runtime's machine; may be repeated."""
        self._downward("machine-downward-api-annotation", text)

    def opt_volume_downward_api_label(self, text: str) -> None:
        """NAME=FIELDPATH of a Volume, passed to the runtime as a label; may be repeated."""
        self._downward("volume-downward-api-label", text)

    def opt_nic_downward_api_label(self, text: str) -> None:
        """NAME=FIELDPATH of a NetworkInterface, passed to the runtime as a label; may be repeated."""
        self._downward("nic-downward-api-label", text)

    def opt_network_downward_api_label(self, text: str) -> None:
        """NAME=FIELDPATH of a Network, passed to the runtime as a label; may be repeated."""
        self._downward("network-downward-api-label", text)

    def _downward(self, option: str, text: str) -> None:
        name, equals, path = text.partition("=")
        if not equals or names.qualified_name(f"x/{name}"):
            raise UsageError(f"--{option} {text!r} is not NAME=FIELDPATH")
        try:
            self[option][name] = downward.check(path)
        except ValueError as problem:
            raise UsageError(f"--{option}: {problem}") from None

    def opt_pool_proxy_suffices(self, name: str) -> None:
        """
        User that needs no permission on machines, such as an API server that forwards no users; may
        be repeated.
        """
        self["pool-proxy-suffices"].append(name)

    def opt_runtime_uid(self, text: str) -> None:
        """User, by number or name, that the runtime runs as, besides root and our own; may be repeated."""
        try:
            self["runtime-uid"].append(uid_of(text))
        except ValueError as problem:
            raise UsageError(f"--runtime-uid: {problem}") from None

    def postOptions(self) -> None:
        """:raises UsageError: a required option is missing, or options contradict each other."""
        files = ("tls-cert-file", "tls-private-key-file")
        if self["cert-dir"] and any(self[name] for name in files):
            raise UsageError("--cert-dir and --tls-cert-file exclude each other")
        if self["bootstrap-kubeconfig"] and self["kubeconfig"]:
            raise UsageError("--bootstrap-kubeconfig and --kubeconfig exclude each other")
        if self["bootstrap-kubeconfig"] and not self["cert-dir"]:
            raise UsageError(
                "--bootstrap-kubeconfig needs --cert-dir, the directory for the client certificate"
            )
        if self["serving-cert-signer"] != SIGNER and not self["cert-dir"]:
            raise UsageError("--serving-cert-signer needs --cert-dir: no certificate is requested")
        self.check_required()
        try:
            revision(self["iri-revision"] or self["dialect"].iri_revision)
        except ValueError as problem:
            raise UsageError(f"--iri-revision: {problem}") from None
        if dns_subdomain(self["machine-pool-name"]):
            rule = "lower case letters, digits, - and . only"
            raise UsageError(f"--machine-pool-name {self['machine-pool-name']!r}: {rule}")
        if bool(self["requestheader-client-ca-file"]) != bool(self["requestheader-allowed-names"]):
            raise UsageError(
                "--requestheader-client-ca-file and --requestheader-allowed-names go together"
            )


@implementer(IPoollet)
class PoolletProgram(Service):
    """The poollet and its two clients, which close after it."""

    def __init__(
        self, poollet: Poollet, runtime: IRIClient, client: KubeClient | ClientCertificate
    ) -> None:
        self.poollet, self._runtime, self._client = poollet, runtime, client
        self.pool = poollet.pool

    def __conform__(self, interface: Any) -> Any:
        """Hand over as the poollet does; called by zope.interface."""
        return self.poollet if interface is IHandsOver else None

    @property
    def address(self) -> IAddress | None:
        """See :class:`IPoollet`."""
        return self.poollet.address

    def when_ready(self) -> Deferred[None]:
        """See :meth:`IPoollet.when_ready`."""
        return self.poollet.when_ready()

    def startService(self) -> None:
        """See :class:`Poollet`."""
        super().startService()
        self._runtime.startService()
        self.poollet.startService()

    def stopService(self) -> Deferred[None]:
        """Stop the poollet, then close its connections."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.poollet.stopService()
        self._runtime.stopService()
        await self._client.close()


def makeService(options: Options) -> IService:
    """Return the poollet that the command line describes, without opening anything."""
    wrong = (KubeConfigError, TargetError, TLSConfigError)
    return make_service(
        PROGRAM,
        lambda reactor: _program(options, reactor),
        wrong,
        options=options,
        limits=options.session_limits,
    )


def _program(options: Options, reactor: Any) -> PoolletProgram:
    path = options["bootstrap-kubeconfig"] or options["kubeconfig"]
    config = ReloadingConfig(path, options["context"])
    runtime = IRIClient(
        options["machine-runtime-endpoint"],
        reactor,
        tls=_runtime_tls(options),
        trusted_uids=options["runtime-uid"],
        revision=options["iri-revision"] or options["dialect"].iri_revision,
    )
    audit = options.audit(DiskThread(reactor))
    shared = (runtime, audit, reactor)
    if not options["bootstrap-kubeconfig"]:
        client = _client(config.current, reactor)
        poollet = Poollet(settings(options), client, *shared, checks=[audit.check])
        _watch_expiry(poollet, options, config)
        return PoolletProgram(poollet, runtime, client)
    identity = ClientCertificate(
        config.current,
        lambda current: _client(current, reactor),
        reactor,
        directory=options["cert-dir"],
        dialect=options["dialect"],
        pool=options["machine-pool-name"],
        now=time.time,
    )
    poollet = Poollet(
        settings(options), identity.client, *shared, checks=[audit.check], identity=identity
    )
    _watch_expiry(poollet, options, config)
    return PoolletProgram(poollet, runtime, identity)


def _watch_expiry(poollet: Poollet, options: Options, config: ReloadingConfig) -> None:
    files = options.certificates()
    for name in ("tls", "client") if options["cert-dir"] else ():
        files[f"cert-dir/{name}.crt"] = os.path.join(options["cert-dir"], f"{name}.crt")
    sources = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(poollet.registry, Expiry(files, sources).ends)


def _client(current: Callable[[], ClientConfig], reactor: Any) -> KubeClient:
    return KubeClient(current(), reactor, renew=current, agent=PROGRAM)


def _runtime_tls(options: Options) -> MutualTLS | None:
    files = [options[name] for name in _FILES[:3]]
    if not any(files):
        return None
    if not all(files):
        raise TargetError(
            "--machine-runtime-ca-file, --machine-runtime-cert-file and "
            "--machine-runtime-private-key-file go together"
        )
    if options["machine-runtime-endpoint"].startswith("unix:"):
        raise TargetError("--machine-runtime-ca-file is for a TCP --machine-runtime-endpoint")
    return MutualTLS(*files)


def settings(options: Options) -> Settings:
    """Return the service's configuration from the command line."""
    names = options["requestheader-allowed-names"].split(",")
    return Settings(
        pool=options["machine-pool-name"],
        dialect=options["dialect"],
        provider_id=options["provider-id"] or f"twisted-exec://{options['machine-pool-name']}",
        certificate=options["tls-cert-file"] or "",
        key=options["tls-private-key-file"] or "",
        certificate_directory=options["cert-dir"],
        signer=options["serving-cert-signer"],
        listen=options["listen"],
        client_ca=options["client-ca-file"] or "",
        requestheader_ca=options["requestheader-client-ca-file"] or "",
        requestheader_names=[name.strip() for name in names if name.strip()],
        addresses=options["addresses"],
        pool_proxy_suffices=options["pool-proxy-suffices"],
        runtime_ca=options["runtime-ca-file"],
        trusted_uids=options["runtime-uid"],
        runtime=options["machine-runtime-endpoint"],
        drain_seconds=options["drain-seconds"],
        sessions=options.session_limits(),
        allowed_origins=options["allowed-origin"],
        strict_verbs=options["console-verbs"] == STRICT,
        exec_allowed=options["exec-url-allowed"],
        downward=Downward(
            options["machine-downward-api-label"], options["machine-downward-api-annotation"]
        ),
        about=ReferencedKinds(
            options["dialect"],
            *(Downward(options[f"{kind}-downward-api-label"]) for kind in DOWNWARD[1:]),
        ),
    )

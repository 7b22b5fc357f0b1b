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
from twisted_exec.api.names import dns_subdomain
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.revisions import REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.poollet.client_certificate import ClientCertificate
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.machines import downward
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.references import ReferencedKinds
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.settings import SIGNER, Settings
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.handover.interfaces import IHandsOver
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.options.audit import AuditOptions
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.sessions import BrowserOptions
from twisted_exec.program.start import make_service
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

PROGRAM = "exec-poollet"
_RUNTIME = "Machine runtime"
DOWNWARD = ("machine", "volume", "nic", "network")
"""Kinds of objects with downward API options."""


_RUNTIME_FILES = {
    "machine-runtime-ca-file": "CA of the runtime, for a TCP target.",
    "machine-runtime-cert-file": "Client certificate for a TCP target.",
    "machine-runtime-private-key-file": "Private key of that certificate.",
}


class Options(BrowserOptions, AuditOptions):
    """Command line of the poollet."""

    program = PROGRAM
    settings_class = Settings
    group = "Sessions"
    groups = {
        **dict.fromkeys(("API server", "Pool", _RUNTIME, "Serving"), ()),
        "Downward API": [
            *(f"{kind}-downward-api-label" for kind in DOWNWARD),
            "machine-downward-api-annotation",
        ],
    }
    synopsis = "--machine-pool-name=NAME --machine-runtime-endpoint=TARGET [options]"
    longdesc = "Runs the machines of one pool on a machine runtime, and serves their consoles."

    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig for the API server; default: $KUBECONFIG, ~/.kube/config or the Pod's service account.",
            group="API server",
        ),
        ProgramOption(
            "context",
            "Context of the kubeconfig; default: the current context.",
            group="API server",
        ),
        ProgramOption(
            "bootstrap-kubeconfig",
            "Kubeconfig for requesting a client certificate, which is stored in --cert-dir.",
            group="API server",
            is_path=True,
        ),
        ProgramOption(
            "iri-revision",
            f"gRPC API of the runtime: {', '.join(REVISIONS)}; default: that of the dialect.",
            default="",
            group=_RUNTIME,
        ),
        *(
            ProgramOption(name, description, group=_RUNTIME, is_path=True)
            for name, description in _RUNTIME_FILES.items()
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        for kind in DOWNWARD:
            self[f"{kind}-downward-api-label"] = {}
        self["machine-downward-api-annotation"] = {}

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

    def postOptions(self) -> None:
        """
        :raises UsageError: an option is missing or not valid, or options contradict each other.
        """
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
    """The poollet and its two clients."""

    def __init__(
        self, poollet: Poollet, runtime: IRIClient, client: KubeClient | ClientCertificate
    ) -> None:
        self.poollet, self._runtime, self._client = poollet, runtime, client
        self.pool = poollet.pool

    def __conform__(self, interface: Any) -> Any:
        """Hand over as the poollet does."""
        return self.poollet if interface is IHandsOver else None

    @property
    def address(self) -> IAddress | None:
        return self.poollet.address

    def when_ready(self) -> Deferred[None]:
        return self.poollet.when_ready()

    def startService(self) -> None:
        super().startService()
        self._runtime.startService()
        self.poollet.startService()

    def stopService(self) -> Deferred[None]:
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
    files = [options[name] for name in _RUNTIME_FILES]
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
    return settings_of(
        Settings,
        options,
        provider_id=options["provider-id"] or f"twisted-exec://{options['machine-pool-name']}",
        sessions=options.session_limits(),
        downward=Downward(
            options["machine-downward-api-label"], options["machine-downward-api-annotation"]
        ),
        about=ReferencedKinds(
            options["dialect"],
            *(Downward(options[f"{kind}-downward-api-label"]) for kind in DOWNWARD[1:]),
        ),
    )

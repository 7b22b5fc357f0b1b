"""
``twistd exec-apiserver``: options, and the service they make.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.application.service import IService
from twisted.python.usage import UsageError

from twisted_exec.api.dialects import DEFAULT, NAMES, one_per_group
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.kinds.certificates import SHORTEST_SECONDS
from twisted_exec.apiserver.auditing import DEFAULT_POLICY, AuditPolicy, load
from twisted_exec.apiserver.controllers.console_objects import DEFAULT_DAYS
from twisted_exec.apiserver.controllers.signer import CAPair
from twisted_exec.apiserver.options import IDENTITY_PATHS as IDENTITY_PATHS
from twisted_exec.apiserver.options import KUBELET_PATHS as KUBELET_PATHS
from twisted_exec.apiserver.options import (
    AggregatedOptions,
    KubeletOptions,
    aggregated,
    identities,
    kubelet_access,
    web_client,
)
from twisted_exec.apiserver.options import check_aggregated as check_aggregated
from twisted_exec.apiserver.options import check_kubelets as check_kubelets
from twisted_exec.apiserver.service import APIServer, Settings
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics, new_registry
from twisted_exec.program.options import (
    CONSOLE_VERBS,
    STRICT,
    AuditOptions,
    Required,
    days,
    duration,
    seconds,
)
from twisted_exec.program.start import make_service
from twisted_exec.storage.option import FORMS, QUOTA_OPTIONS, limits_of, storage_option
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

_NEEDED = {
    "tls-cert-file": Required("the serving certificate"),
    "tls-private-key-file": Required("the private key of the serving certificate"),
    "client-ca-file": Required("the CA of users and poollets", unless=["aggregated"]),
    "machinepoollet-client-certificate": Required("the client certificate for poollets"),
    "machinepoollet-client-key": Required("the private key of the client certificate"),
    "machinepoollet-certificate-authority": Required("the CA of poollets' serving certificates"),
}
_STORAGE = Required("the store of the objects, such as sqlite:PATH")


def _address_types(text: str) -> tuple[str, ...]:
    types = tuple(item.strip() for item in text.split(","))
    unknown = [item for item in types if item not in ADDRESS_TYPES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(ADDRESS_TYPES)}")
    return types


def _policy(path: str) -> AuditPolicy:
    """:raises ValueError: the file is not an audit policy."""
    try:
        return load(path)
    except ConfigError as problem:
        raise ValueError(str(problem)) from None


def _duration(text: str) -> float:
    """Parse a duration to seconds; 0 if it is none."""
    try:
        return duration(text)
    except ValueError:
        return 0.0


def _pair(options: Mapping[str, Any], prefix: str) -> CAPair | None:
    """
    Return the CA that two options name.

    :raises UsageError: only one of them is set.
    """
    certificate, key = f"{prefix}cert-file", f"{prefix}key-file"
    if bool(options[certificate]) != bool(options[key]):
        missing, present = (key, certificate) if options[certificate] else (certificate, key)
        raise UsageError(f"--{missing} is missing: it belongs to --{present}")
    return CAPair(options[certificate], options[key]) if options[key] else None


_SIGNED_FOR = "8760h"
_SIGNING = "cluster-signing-"
_CLIENT_SIGNING = "cluster-signing-kube-apiserver-client-"
_SIGNING_FILES = [
    f"{prefix}{file}"
    for prefix in (_SIGNING, _CLIENT_SIGNING)
    for file in ("cert-file", "key-file")
]


PODS_FLAGS = [
    [
        "pods-view",
        None,
        "Serve each machine as a Pod too, for clients that know only Pods.  The default.",
    ],
    ["no-pods-view", None, "Serve machines only."],
]


WEB_FLAGS = [
    ["web", None, "Serve the web console under /console/.  The default."],
    ["no-web", None, "Do not serve the web console."],
]


def wants_web(options: Mapping[str, Any]) -> bool:
    """
    Return whether :data:`WEB_FLAGS` ask for the web console.

    :raises UsageError: both flags are set.
    """
    if options["web"] and options["no-web"]:
        raise UsageError("--web and --no-web: give one of them")
    return not options["no-web"]


def wants_pods_view(options: Mapping[str, Any]) -> bool:
    """
    Return whether :data:`PODS_FLAGS` ask for the view.

    Never behind a host: the core group is the host's.

    :raises UsageError: both flags are set.
    """
    if options["pods-view"] and options["no-pods-view"]:
        raise UsageError("--pods-view and --no-pods-view: give one of them")
    return not (options["no-pods-view"] or options.get("aggregated"))


class Options(KubeletOptions, AggregatedOptions, AuditOptions):
    """Options of ``exec-apiserver``."""

    program = "exec-apiserver"
    paths = (*_NEEDED, *_SIGNING_FILES, *IDENTITY_PATHS, *KUBELET_PATHS, "kubeconfig")
    required = {**_NEEDED, "storage": _STORAGE}
    group = "API server"
    groups = {
        "API server": [],
        "Poollets": [
            *(name for name in _NEEDED if name.startswith("machinepoollet-")),
            "preferred-address-types",
            "machinepoollet-timeout",
            "any-pool-name",
        ],
        "Storage": ["storage", "deleted-console-days", *(each[0] for each in QUOTA_OPTIONS)],
        "Certificates that the server signs": [*_SIGNING_FILES, "cluster-signing-duration"],
        "Audit log": ["audit-policy-file"],
        "Start and stop": ["drain-seconds", "shutdown-delay-seconds"],
    }
    synopsis = "[options]"
    longdesc = "A Kubernetes-style API server for machines and their consoles."

    optParameters = [
        ["listen", "l", "tcp:6443", "Listening address: a Twisted endpoint string."],
        ["tls-cert-file", None, None, "Serving certificate (PEM)."],
        ["tls-private-key-file", None, None, "Private key of the serving certificate (PEM)."],
        ["client-ca-file", None, None, "CA of users and poollets (PEM)."],
        ["storage", None, None, f"Store of the objects: {FORMS}.", storage_option],
        *QUOTA_OPTIONS,
        ["machinepoollet-client-certificate", None, None, "Client certificate for poollets (PEM)."],
        ["machinepoollet-client-key", None, None, "Private key of that certificate (PEM)."],
        ["machinepoollet-certificate-authority", None, None, "CA of poollets (PEM)."],
        [
            "preferred-address-types",
            None,
            ",".join(ADDRESS_TYPES),
            "Types of pools' addresses, separated by commas, in order of preference.",
        ],
        [
            "machinepoollet-timeout",
            None,
            5.0,
            "Seconds to connect to each address of a poollet, and again for its response.",
            seconds,
        ],
        [
            "cluster-signing-cert-file",
            None,
            None,
            "CA that signs serving certificates of poollets (PEM).",
        ],
        ["cluster-signing-key-file", None, None, "Private key of that CA (PEM)."],
        [
            "cluster-signing-kube-apiserver-client-cert-file",
            None,
            None,
            "CA that signs client certificates (PEM); one of --client-ca-file.",
        ],
        [
            "cluster-signing-kube-apiserver-client-key-file",
            None,
            None,
            "Private key of that CA (PEM).",
        ],
        [
            "cluster-signing-duration",
            None,
            _SIGNED_FOR,
            "Longest lifetime of signed certificates, such as 720h or 30m.",
        ],
        [
            "deleted-console-days",
            None,
            DEFAULT_DAYS,
            "How long the console of a deleted machine is listed; 0 to list none.",
            days,
        ],
        [
            "audit-policy-file",
            None,
            None,
            "Requests that are recorded: a Policy of audit.k8s.io/v1; by default all changes.",
            _policy,
        ],
        CONSOLE_VERBS,
        ["drain-seconds", None, 5.0, "Seconds that sessions may take to end at shutdown.", seconds],
        [
            "shutdown-delay-seconds",
            None,
            0.0,
            "Seconds to serve as not ready when stopping, before sessions drain.",
            seconds,
        ],
    ]
    optFlags = [
        [
            "any-pool-name",
            None,
            "Accept poollet certificates that name only their address (third-party poollets).",
        ],
        *PODS_FLAGS,
        *WEB_FLAGS,
        ["scheduler", None, "Assign machines without a pool to one.  The default."],
        ["no-scheduler", None, "Leave scheduling to another program, such as ironcore's own."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["dialect"] = []

    def opt_dialect(self, name: str) -> None:
        self["dialect"].append(name)

    opt_dialect.__doc__ = (
        f"Dialect of the machines: {NAMES}; may be repeated, and then only Pods of the first have "
        f"the names of their machines.  [default: {DEFAULT}]"
    )

    def postOptions(self) -> None:
        """
        :raises UsageError: a required option is missing, or a value is invalid.
        """
        check_aggregated(self)
        super().postOptions()
        wants_pods_view(self)
        wants_web(self)
        check_kubelets(self)
        if self["scheduler"] and self["no-scheduler"]:
            raise UsageError("--scheduler and --no-scheduler: give one of them")
        try:
            self["dialect"] = one_per_group(self["dialect"])
        except ValueError as error:
            raise UsageError(f"--dialect: {error}") from None
        for prefix in (_SIGNING, _CLIENT_SIGNING):
            _pair(self, prefix)
        if _duration(self["cluster-signing-duration"]) < SHORTEST_SECONDS:
            raise UsageError(
                "--cluster-signing-duration: give a duration such as 8760h, of 10m or more"
            )
        signs = any(self[name] for name in _SIGNING_FILES)
        if self["cluster-signing-duration"] != _SIGNED_FOR and not signs:
            raise UsageError(
                "--cluster-signing-duration needs --cluster-signing-cert-file: nothing is signed"
            )
        self.check_required()
        try:
            # Here too, because usage.Options does not coerce defaults.
            self["preferred-address-types"] = _address_types(self["preferred-address-types"])
        except ValueError as error:
            raise UsageError(f"--preferred-address-types: {error}") from None


def makeService(options: Options) -> IService:
    """
    Make the service; nothing is opened yet.

    :raises SystemExit: with one line, if the options cannot work together.
    """
    wrong = (KubeConfigError, TLSConfigError)
    return make_service(
        options.program,
        lambda reactor: _server(options, reactor),
        wrong,
        options=options,
        limits=options.session_limits,
    )


def _server(options: Options, reactor: Any) -> APIServer:
    audit = options.audit(DiskThread(reactor))
    metrics = new_registry(reactor)
    ExpiryMetrics(metrics, Expiry(options.certificates()).ends)
    store = options["storage"](reactor, limits=limits_of(options))
    return APIServer(settings(options), store, audit, reactor, metrics=metrics)


def settings(options: Options) -> Settings:
    """Convert the command line to the service's settings."""
    return Settings(
        listen=options["listen"],
        certificate=options["tls-cert-file"],
        key=options["tls-private-key-file"],
        client_ca=options["client-ca-file"] or "",
        identities=identities(options),
        poollet_certificate=options["machinepoollet-client-certificate"],
        poollet_key=options["machinepoollet-client-key"],
        poollet_ca=options["machinepoollet-certificate-authority"],
        address_types=options["preferred-address-types"],
        poollet_seconds=options["machinepoollet-timeout"],
        pools_named=not options["any-pool-name"],
        drain_seconds=options["drain-seconds"],
        sessions=options.session_limits(),
        shutdown_delay_seconds=options["shutdown-delay-seconds"],
        pods_view=wants_pods_view(options),
        dialects=options["dialect"],
        allowed_origins=tuple(options["allowed-origin"]),
        scheduling=not options["no-scheduler"],
        deleted_console_days=options["deleted-console-days"],
        strict_verbs=options["console-verbs"] == STRICT,
        signing=_pair(options, _SIGNING),
        client_signing=_pair(options, _CLIENT_SIGNING),
        signing_seconds=_duration(options["cluster-signing-duration"]),
        kubelets=kubelet_access(options),
        audit_policy=options["audit-policy-file"] or DEFAULT_POLICY,
        web=wants_web(options),
        web_client=web_client(options),
        aggregated=aggregated(options),
    )

"""
``twistd exec-broker``: a machine runtime whose machines are in another cluster.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from twisted.application.service import IService
from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.dialects import DEFAULT, DIALECTS, by_name
from twisted_exec.api.spaces import EXTERNAL, VIEWPOINTS
from twisted_exec.iri.target import TargetError
from twisted_exec.kube.client import MAX_LIST_BYTES, KubeClient, kube_client_factory
from twisted_exec.kube.kubeconfig.loader import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.options import ProgramOption, Required, settings_of
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.runtimes.machinebroker.host import BrokerHost, Settings, SpaceTarget
from twisted_exec.runtimes.machinebroker.objects import BrokerIdentity, BrokerPlace, cluster_name
from twisted_exec.runtimes.serving.options import ServingOptions
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

PROGRAM = "exec-broker"
_SPACE = "Space"


class Options(ServingOptions):
    """Command line of the broker."""

    program = PROGRAM
    settings_class = Settings
    group = "Target cluster"
    groups = dict.fromkeys(("Program", _SPACE), ())
    synopsis = "--namespace=NAME --source-cluster-name=NAME --iri-listen=TARGET [options]"
    longdesc = "Creates machines in another cluster, and proxies their consoles."

    more = (
        ProgramOption("kubeconfig", "Kubeconfig of the target cluster; default: $KUBECONFIG."),
        ProgramOption("context", "Context; default: the kubeconfig's current context."),
        ProgramOption("namespace", "Namespace of the machines in the target.", required=Required()),
        ProgramOption(
            "machine-pool-name",
            "Pool for all machines; default: the target's scheduler decides.",
            default="",
        ),
        ProgramOption(
            "machine-pool-selector",
            "Labels of permitted pools: KEY=VALUE, separated by commas.",
            default="",
        ),
        ProgramOption(
            "dialect",
            f"API of the target: {', '.join(each.name for each in DIALECTS)}.",
            default=DEFAULT.name,
        ),
        ProgramOption(
            "source-cluster-name",
            "Prefix of users' names in the target.",
            default="",
            required=Required("the prefix of users' names in the target", unless=["own-identity"]),
        ),
        ProgramOption(
            "space",
            "Name of a Space that is the target; --kubeconfig is then that of the hub.",
            default="",
            group=_SPACE,
        ),
        ProgramOption(
            "provider",
            "The provider of the Space: a SpaceProviderDesc, or the namespace of an imported Space."
            " Without it, the provider default if it has the Space, else the only provider.",
            default="",
            group=_SPACE,
        ),
        ProgramOption(
            "space-viewpoint",
            f"Address of the Space to use: {' or '.join(VIEWPOINTS)}.",
            default=EXTERNAL,
            group=_SPACE,
        ),
        ProgramOption(
            "own-identity",
            "Open consoles with the broker's own identity, without impersonation.",
            default=False,
        ),
    )

    def postOptions(self) -> None:
        super().postOptions()
        for name, rule in (
            ("namespace", names.dns_label),
            ("machine-pool-name", _pool),
            ("space", _pool),
            ("provider", _pool),
        ):
            for problem in rule(self[name]):
                raise UsageError(f"--{name} {self[name]!r}: {problem}")
        if self["machine-pool-name"] and self["machine-pool-selector"]:
            raise UsageError("--machine-pool-name and --machine-pool-selector exclude each other")
        if self["provider"] and not self["space"]:
            raise UsageError("--provider needs --space")
        if self["space-viewpoint"] not in VIEWPOINTS:
            viewpoints = ", ".join(VIEWPOINTS)
            raise UsageError(
                f"--space-viewpoint must be one of {viewpoints}, not {self['space-viewpoint']!r}"
            )
        self["dialect"] = _checked("dialect", by_name, self["dialect"])
        self["machine-pool-selector"] = _checked(
            "machine-pool-selector", _selector, self["machine-pool-selector"]
        )
        if self["source-cluster-name"]:
            _checked("source-cluster-name", cluster_name, self["source-cluster-name"])
        _checked("base-url", _base_url, self["base-url"])


def _checked(name: str, read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError as problem:
        raise UsageError(f"--{name}: {problem}") from None


def _pool(name: str) -> list[str]:
    return names.dns_subdomain(name) if name else []


def _selector(text: str) -> dict[str, str]:
    labels = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = each.partition("=")
        for problem in [*names.qualified_name(key), *names.label_value(value)]:
            raise ValueError(f"{each!r}: {problem}")
        if not equals:
            raise ValueError(f"{each!r} is not KEY=VALUE")
        labels[key] = value
    return labels


def _base_url(text: str) -> str:
    """:raises ValueError: tokens would be sent to another host without TLS."""
    url = urlsplit(text)
    host = url.hostname or ""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if url.scheme == "http" and not is_local:
        raise ValueError(f"{text!r}: without TLS consoles are served on loopback only")
    return text


def makeService(options: Options) -> IService:
    """Create the service for a command line."""
    errors = (KubeConfigError, TargetError, TLSConfigError)
    return make_service(
        PROGRAM,
        lambda reactor: _program(options, reactor),
        errors,
        options=options,
        limits=options.session_limits,
    )


def _program(options: Options, reactor: Any) -> ServiceWithCleanup[BrokerHost]:
    config = ReloadingConfig(options["kubeconfig"], options["context"])
    client = KubeClient(
        config.current(), reactor, renew=config.current, agent=PROGRAM, list_bytes=MAX_LIST_BYTES
    )
    audit = options.audit(DiskThread(reactor))
    target = _target(options, client, reactor)
    host = BrokerHost(
        settings(options),
        client if target is None else target.client,
        config.current if target is None else target.config,
        audit,
        reactor,
        target=target,
        checks=[audit.check],
    )
    sources = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(host.streams.registry, Expiry(options.certificates(), sources).ends)
    return ServiceWithCleanup(host, client.close)


def _target(options: Options, hub: KubeClient, reactor: Any) -> SpaceTarget | None:
    name, provider = options["space"], options["provider"]
    if not name:
        return None
    make, viewpoint = kube_client_factory(reactor, PROGRAM), options["space-viewpoint"]

    def make_spaces(namespaces: Sequence[str]) -> SpaceClient:
        return SpaceClient(
            hub,
            reactor,
            viewpoint=viewpoint,
            namespaces=namespaces,
            agent=PROGRAM,
            make_client=make,
        )

    return SpaceTarget(hub, make_spaces, name, provider, make, reactor)


def settings(options: Options) -> Settings:
    """
    Translate the command line.

    :raises TargetError: an address is wrong.
    :raises TLSConfigError: the path of a socket is too long.
    """
    return settings_of(
        Settings,
        options,
        place=BrokerPlace(
            options["dialect"],
            options["namespace"],
            options["source-cluster-name"],
            options["machine-pool-name"],
            options["machine-pool-selector"],
        ),
        identity=BrokerIdentity(options["source-cluster-name"], bool(options["own-identity"])),
        streaming=options.listening(),
        iri_tls=options.iri_tls(),
        sessions=options.session_limits(),
    )

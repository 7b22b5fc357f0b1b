"""
``twistd exec-broker``: machines of another cluster as a program.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from twisted.application.service import IService
from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.dialects import DEFAULT, DIALECTS, by_name
from twisted_exec.api.spaces import EXTERNAL, VIEWPOINTS, namespace_of
from twisted_exec.iri.target import TargetError
from twisted_exec.kube.client import KubeClient, kube_client_factory
from twisted_exec.kube.kubeconfig.loader import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.observe.audit import JSONLinesAudit
from twisted_exec.observe.metrics import ExpiryMetrics
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.runtimes.machinebroker.target import Identity, Place, cluster_name
from twisted_exec.runtimes.serving.options import FILES, ServingOptions
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Expiry

from .host import BrokerHost, Settings
from .space_target import SpaceTarget

PROGRAM = "exec-broker"


class Options(ServingOptions):
    """Command line of the broker."""

    program = PROGRAM
    paths = (*FILES, "token-key-file")
    required = ("namespace", "iri-listen")
    synopsis = "--namespace=NAME --source-cluster-name=NAME --iri-listen=TARGET [options]"
    longdesc = "Has machines made in another cluster, and passes their consoles on."

    optParameters = [
        ["kubeconfig", None, None, "Of the target cluster's API server; else $KUBECONFIG."],
        ["context", None, None, "Instead of the kubeconfig's current context."],
        ["namespace", None, None, "Where machines are made there (required)."],
        ["machine-pool-name", None, "", "The target's pool for them; default: its scheduler's."],
        ["machine-pool-selector", None, "", "Instead: labels of pools, KEY=VALUE with commas."],
        [
            "dialect",
            None,
            DEFAULT.name,
            f"The target's names: {', '.join(each.name for each in DIALECTS)}.",
        ],
        ["source-cluster-name", None, "", "Precedes users' names in the target (required)."],
        ["token-key-file", None, "", "A secret that all brokers behind one address share."],
        ["state-dir", None, "exec-broker-state", "For the private socket of consoles."],
        [
            "space",
            None,
            "",
            "The target is this Space; --kubeconfig is of the cluster that has it.",
        ],
        ["provider", None, "", "The Space's provider; else default, or the only one."],
        ["space-viewpoint", None, EXTERNAL, f"How it is seen: {' or '.join(VIEWPOINTS)}."],
    ]
    optFlags = [
        ["own-identity", None, "Open consoles in the broker's own name, whoever asks."],
    ]

    def postOptions(self) -> None:
        """See :meth:`ServingOptions.postOptions`."""
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
            raise UsageError("--provider says whose --space it is, which is missing")
        if self["space-viewpoint"] not in VIEWPOINTS:
            known = ", ".join(VIEWPOINTS)
            raise UsageError(f"--space-viewpoint {self['space-viewpoint']!r} is none of {known}")
        self["dialect"] = _checked("dialect", by_name, self["dialect"])
        self["machine-pool-selector"] = _checked(
            "machine-pool-selector", _selector, self["machine-pool-selector"]
        )
        if self["source-cluster-name"]:
            _checked("source-cluster-name", cluster_name, self["source-cluster-name"])
        elif not self["own-identity"]:
            raise UsageError(
                "--source-cluster-name is missing: it precedes the names of users in the target"
            )
        _checked("base-url", _base_url, self["base-url"])


def _checked(name: str, read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError as problem:
        raise UsageError(f"--{name}: {problem}") from None


def _pool(name: str) -> list[str]:
    return names.dns_subdomain(name) if name else []


def _selector(text: str) -> dict[str, str]:
    """
    :raises ValueError: not labels.
    """
    found = {}
    for each in filter(None, (one.strip() for one in text.split(","))):
        key, equals, value = each.partition("=")
        for problem in [*names.qualified_name(key), *names.label_value(value)]:
            raise ValueError(f"{each!r}: {problem}")
        if not equals:
            raise ValueError(f"{each!r} is not KEY=VALUE")
        found[key] = value
    return found


def _base_url(text: str) -> str:
    """
    :raises ValueError: tokens would travel in the clear to another host.
    """
    url = urlsplit(text)
    host = url.hostname or ""
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if url.scheme == "http" and not here:
        raise ValueError(f"{text!r}: in the clear consoles are offered on loopback only")
    return text


def makeService(options: Options) -> IService:
    """The broker that the command line describes; nothing is opened yet."""
    wrong = (KubeConfigError, TargetError, TLSConfigError)
    return make_service(PROGRAM, lambda reactor: _program(options, reactor), wrong)


def _program(options: Options, reactor: Any) -> ServiceWithCleanup[BrokerHost]:
    config = ReloadingConfig(options["kubeconfig"], options["context"])
    client = KubeClient(config.current(), reactor, renew=config.current, agent=PROGRAM)
    audit = JSONLinesAudit(options["audit-log"])
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
    told = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(host.streams.registry, Expiry(options.certificates(), told).ends)
    return ServiceWithCleanup(host, client.close)


def _target(options: Options, hub: KubeClient, reactor: Any) -> SpaceTarget | None:
    """The Space that is the target, if it is one."""
    name, provider = options["space"], options["provider"]
    if not name:
        return None
    make = kube_client_factory(reactor, PROGRAM)
    spaces = SpaceClient(
        hub,
        reactor,
        viewpoint=options["space-viewpoint"],
        namespaces=[namespace_of(provider)] if provider else (),
        agent=PROGRAM,
        make_client=make,
    )
    return SpaceTarget(spaces, name, provider, make)


def settings(options: Options) -> Settings:
    """
    The command line as the service wants it.

    :raises TargetError: an address cannot be used.
    """
    return Settings(
        place=Place(
            options["dialect"],
            options["namespace"],
            options["source-cluster-name"],
            options["machine-pool-name"],
            options["machine-pool-selector"],
        ),
        identity=Identity(options["source-cluster-name"], bool(options["own-identity"])),
        state_directory=options["state-dir"],
        iri_target=options["iri-listen"],
        streaming=options.listening(),
        iri_tls=options.iri_tls(),
        iri_revision=options["iri-revision"],
        allowed_uids=options["allow-uid"],
        token_key=options["token-key-file"],
        drain_seconds=options["drain-seconds"],
    )

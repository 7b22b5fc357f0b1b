"""
The command line of ``exec-broker``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.dialects import DEFAULT, DIALECTS, by_name
from twisted_exec.api.spaces import EXTERNAL, VIEWPOINTS
from twisted_exec.program.options.declaration import ProgramOption, Required, settings_of
from twisted_exec.runtimes.machinebroker import PROGRAM
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace, cluster_name
from twisted_exec.runtimes.machinebroker.settings import Settings
from twisted_exec.runtimes.serving.options import ServingOptions

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

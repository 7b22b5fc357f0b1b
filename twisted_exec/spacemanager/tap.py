"""``twistd exec-spacemanager``: command line of the Space Manager."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from twisted.application.service import IService
from twisted.python.usage import UsageError

from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.spaces import CLUSTERPROFILE, KCP, KIND, KUBEFLEX, LOCAL, PROVIDER_TYPES
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.sessions import ReplaceableOptions
from twisted_exec.program.options.shared import SPACE_PORT_RANGE
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.interfaces import (
    IProviders,
    ISpaceProvider,
    MakeProvider,
    ProviderContext,
    ProviderSpec,
)
from twisted_exec.spacemanager.service import ISpaceController, SpaceManager
from twisted_exec.spacemanager.settings import Settings
from twisted_exec.spacemanager.spaces.loop import SpaceLoop
from twisted_exec.tls.files import Expiry

__all__ = ["PROVIDERS", "Options", "makeService", "provider_makers"]


PROVIDERS = {
    LOCAL: "twisted_exec.spacemanager.providers.local.provider",
    KIND: "twisted_exec.spacemanager.providers.kind.provider",
    KUBEFLEX: "twisted_exec.spacemanager.providers.kubeflex.provider",
    KCP: "twisted_exec.spacemanager.providers.kcp.provider",
    CLUSTERPROFILE: "twisted_exec.spacemanager.providers.clusterprofile.provider",
}
"""The module of each provider type; it has a function ``make``."""


def provider_makers(
    types: Iterable[str], *, client_ca: str = "", ports: range | None = None
) -> Mapping[str, MakeProvider]:
    """
    Return the makers of these provider types.

    :param client_ca: path of the client CAs that the API servers of local spaces trust; empty for their own only.
    :param ports: for the API servers of local spaces; ``None`` for any.
    """
    local = {"client_ca": client_ca, "ports": ports}
    return {each: _maker(PROVIDERS[each], local if each == LOCAL else {}) for each in types}


def _maker(module: str, options: Mapping[str, Any]) -> MakeProvider:
    def make(spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
        provider: ISpaceProvider = import_module(module).make(spec, around, **options)
        return provider

    return make


def space_loop(
    providers: IProviders, around: ProviderContext, metrics: WorkQueueMetrics
) -> ISpaceController:
    """Return the controller of Spaces."""
    return SpaceLoop(
        around.hub,
        providers,
        around.reactor,
        around.now,
        host=socket.gethostname(),
        metrics=metrics,
    )


def makeService(options: Options) -> IService:
    """Return the manager that the command line describes, without opening anything."""
    errors = (KubeConfigError,)
    return make_service(
        PROGRAM, lambda reactor: _program(options, reactor), errors, options=options
    )


def _program(options: Options, reactor: Any) -> ServiceWithCleanup[SpaceManager]:
    config = ReloadingConfig(options["kubeconfig"], options["context"])
    client = KubeClient(config.current(), reactor, renew=config.current, agent=PROGRAM)
    makers = provider_makers(options.types(), ports=options["space-port-range"])
    manager = SpaceManager(options.settings(), client, makers, space_loop, reactor)
    certificates = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(manager.registry, Expiry({}, certificates).ends)
    return ServiceWithCleanup(manager, client.close)


class Options(ReplaceableOptions):
    """Command line of the space manager."""

    program = PROGRAM
    settings_class = Settings
    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig for the cluster with the Spaces; default: $KUBECONFIG, or in-cluster.",
            group="Cluster with the Spaces",
        ),
        ProgramOption(
            "context",
            "Context of the kubeconfig; default: the current context.",
            group="Cluster with the Spaces",
        ),
        ProgramOption(
            "providers",
            "Comma-separated list of the enabled provider types.",
            default=",".join(PROVIDER_TYPES),
        ),
        replace(SPACE_PORT_RANGE, group=""),
    )
    group = "Space Manager"
    groups = dict.fromkeys(("Cluster with the Spaces", "Leader election"), ())
    synopsis = "[options]"
    longdesc = (
        "Manages Spaces: creates and discovers control planes, and manages their credentials."
    )

    def postOptions(self) -> None:
        if not self["state-dir"]:
            raise UsageError("--state-dir must not be empty")
        if dns_label(self["namespace"]):
            raise UsageError(f"--namespace: {self['namespace']!r} is not a name")
        if dns_subdomain(self["lease"]):
            raise UsageError(f"--lease: {self['lease']!r} is not a name")
        self.types()

    def types(self) -> Sequence[str]:
        """
        Return the enabled provider types, in order.

        :raises UsageError: the list is empty, or has an unknown type.
        """
        types = [each.strip() for each in self["providers"].split(",") if each.strip()]
        if not types:
            raise UsageError(f"--providers is empty; give some of {', '.join(PROVIDER_TYPES)}")
        for each in types:
            if each not in PROVIDER_TYPES:
                raise UsageError(
                    f"--providers: {each!r} is not a provider type; use some of "
                    f"{', '.join(PROVIDER_TYPES)}"
                )
        return tuple(dict.fromkeys(types))

    def settings(self) -> Settings:
        return settings_of(Settings, self)

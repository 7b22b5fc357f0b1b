"""
``twistd exec-spacemanager``: the Space Manager, as a program.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from twisted.application.service import IService

from twisted_exec.api.spaces import CLUSTERPROFILE, KCP, KIND, KUBEFLEX, LOCAL
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.metrics import ExpiryMetrics
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
from twisted_exec.spacemanager.options import Options
from twisted_exec.spacemanager.service import ISpaceController, SpaceManager
from twisted_exec.spacemanager.spaces.loop import SpaceLoop
from twisted_exec.tls.expiry import Expiry

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

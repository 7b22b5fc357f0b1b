"""
``twistd exec-spacemanager``: a registry of control planes as a program.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, cast

from twisted.application.service import IService

from twisted_exec.api.spaces import CLUSTERPROFILE, KCP, KIND, KUBEFLEX, LOCAL
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.following import FollowedConfig
from twisted_exec.kube.kubeconfig import KubeConfigError
from twisted_exec.observe.metrics import ExpiryMetrics
from twisted_exec.observe.program import make_service
from twisted_exec.observe.starting import Outlived
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.interfaces import (
    Around,
    IProviders,
    ISpaceProvider,
    MakeProvider,
    ProviderSpec,
)
from twisted_exec.spacemanager.options import Options
from twisted_exec.spacemanager.service import KeepsSpaces, SpaceManager
from twisted_exec.spacemanager.space_loop import SpaceLoop
from twisted_exec.tls.expiry import Expiry

__all__ = ["ADAPTORS", "Options", "adaptors", "makeService"]

ADAPTORS = {
    LOCAL: "local",
    KIND: "kind",
    KUBEFLEX: "kubeflex",
    KCP: "kcp",
    CLUSTERPROFILE: "clusterprofile",
}
"""Modules of :mod:`.providers`, each of which has a ``make``."""


def adaptors(types: Iterable[str]) -> Mapping[str, MakeProvider]:
    """What makes adaptors of these types; a module is imported when its first adaptor is made."""
    return {each: _maker(ADAPTORS[each]) for each in types}


def _maker(module: str) -> MakeProvider:
    def make(spec: ProviderSpec, around: Around) -> ISpaceProvider:
        found = import_module(f"twisted_exec.spacemanager.providers.{module}")
        return cast(MakeProvider, found.make)(spec, around)

    return make


def space_loop(providers: IProviders, around: Around) -> KeepsSpaces:
    """What keeps Spaces."""
    return SpaceLoop(around.hub, providers, around.reactor, around.now, host=socket.gethostname())


def makeService(options: Options) -> IService:
    """The manager that the command line describes; nothing is opened yet."""
    wrong = (KubeConfigError,)
    return make_service(PROGRAM, lambda reactor: _program(options, reactor), wrong)


def _program(options: Options, reactor: Any) -> Outlived[SpaceManager]:
    config = FollowedConfig(options["kubeconfig"], options["context"])
    client = KubeClient(config.current(), reactor, renew=config.current, agent=PROGRAM)
    manager = SpaceManager(
        options.settings(), client, adaptors(options.types()), space_loop, reactor
    )
    told = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(manager.registry, Expiry({}, told).ends)
    return Outlived(manager, client.close)

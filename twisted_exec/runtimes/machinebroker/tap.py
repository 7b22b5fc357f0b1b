"""
``twistd exec-broker``: a machine runtime whose machines are in another cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.application.service import IService

from twisted_exec.iri.target import TargetError
from twisted_exec.kube.client import MAX_LIST_BYTES, KubeClient, kube_client_factory
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.runtimes.machinebroker import PROGRAM
from twisted_exec.runtimes.machinebroker.host import BrokerHost
from twisted_exec.runtimes.machinebroker.options import Options, settings
from twisted_exec.runtimes.machinebroker.space_target import SpaceTarget
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry


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

"""
``twistd exec-nodeserver``: the node server, as a program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.application.service import IService, Service

from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.kube.leases import LeaderElected
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.kubelet_api.logs import log_routes
from twisted_exec.nodeserver.kubelet_api.pods import pod_routes
from twisted_exec.nodeserver.kubelet_api.run import run_routes
from twisted_exec.nodeserver.kubelet_api.stats import stats_routes
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.nodeserver.leaves.metrics import LeafMetrics, certificate_ends
from twisted_exec.nodeserver.leaves.registry import LeafRegistry
from twisted_exec.nodeserver.machine_pods import MachinePods
from twisted_exec.nodeserver.nodes.controller import NodeController
from twisted_exec.nodeserver.nodes.plan import NONE
from twisted_exec.nodeserver.nodes.probe import RootProbe, probe_routes
from twisted_exec.nodeserver.options import Options
from twisted_exec.nodeserver.service import NodeServer
from twisted_exec.nodeserver.syncer.service import Syncer
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry

ROUTES = (stream_routes, run_routes, log_routes, pod_routes, stats_routes)
"""The routes of the kubelet API."""


def makeService(options: Options) -> IService:
    """Return the node server that the command line describes, without opening anything."""
    wrong = (ConfigError, KubeConfigError, TLSConfigError)
    return make_service(
        PROGRAM,
        lambda reactor: _program(options, reactor),
        wrong,
        options=options,
        limits=options.session_limits,
    )


def _program(options: Options, reactor: Any) -> ServiceWithCleanup[NodeServer]:
    config = ReloadingConfig(options["kubeconfig"], options["context"])
    client = KubeClient(config.current(), reactor, renew=config.current, agent=PROGRAM)
    audit = options.audit(DiskThread(reactor))
    registry = LeafRegistry(options.registry(), client, reactor)
    leader = _leader(options, config, client, registry, reactor, lambda: server)
    server = NodeServer(
        options.server(names=[address for _, address in options.own_addresses()]),
        client,
        registry.leaves,
        registry.roots,
        audit,
        reactor,
        make=[*ROUTES, probe_routes(options.keeper())],
        parts=[registry, *leader],
        recordings=options.recordings(),
        checks=[audit.check],
    )
    for each in leader:
        server.health.add("leader-election", each.probe)
    _watch_expiry(server, options, config, registry)
    LeafMetrics(server.registry, registry.leaves)
    return ServiceWithCleanup(server, client.close)


def _leader(
    options: Options,
    config: ReloadingConfig,
    client: KubeClient,
    registry: LeafRegistry,
    reactor: Any,
    server: Callable[[], NodeServer],
) -> list[LeaderElected]:
    endpoint, mirrors = options.published(0), bool(options["sync-pods"])
    if endpoint.upkeep == NONE and not mirrors:
        return []

    def make() -> list[Service]:
        services: list[Service] = []
        metrics = server().registry.queues
        if endpoint.upkeep != NONE:
            published = replace(
                endpoint, port=endpoint.port or getattr(server().address, "port", 0)
            )
            root = RootProbe(config.current, reactor, endpoint.keeper)
            services.append(
                NodeController(
                    client,
                    registry.leaves,
                    published,
                    reactor,
                    time.time,
                    root=root,
                    metrics=metrics,
                )
            )
        services.append(MachinePods(client, registry.leaves, reactor, endpoint.keeper, metrics))
        if mirrors:
            services.append(
                Syncer(client, registry.leaves, registry.roots, reactor, metrics=metrics)
            )
        return services

    where = {"namespace": options["namespace"], "lease": options["lease"]}
    # The Nodes publish the port, so the server must listen first.
    return [
        LeaderElected(client, make, reactor, time.time, when=lambda: server().when_ready(), **where)
    ]


def _watch_expiry(
    server: NodeServer, options: Options, config: ReloadingConfig, registry: LeafRegistry
) -> None:
    files = options.certificates()
    if options["cert-dir"]:
        files["cert-dir/tls.crt"] = os.path.join(options["cert-dir"], "tls.crt")
    sources = {"kubeconfig": lambda: config.current().certificate.data}
    own = Expiry(files, sources)
    ExpiryMetrics(server.registry, lambda: {**own.ends(), **certificate_ends(registry.leaves)})

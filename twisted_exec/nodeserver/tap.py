"""
``twistd exec-nodeserver``: a kubelet's face for Pods of leaf clusters as a program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.application.service import IService, Service

from twisted_exec.kube.acting import Acting
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.following import FollowedConfig
from twisted_exec.kube.kubeconfig import KubeConfigError
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.leaf_metrics import LeafMetrics, ends
from twisted_exec.nodeserver.locator import stream_routes
from twisted_exec.nodeserver.logs import log_routes
from twisted_exec.nodeserver.mirror import Mirror
from twisted_exec.nodeserver.node_options import NodeOptions
from twisted_exec.nodeserver.node_plan import NONE
from twisted_exec.nodeserver.options import FILES, LeafOptions, ServerOptions
from twisted_exec.nodeserver.pods_shown import pod_routes
from twisted_exec.nodeserver.probe import RootProbe, page_routes
from twisted_exec.nodeserver.registry import Registry
from twisted_exec.nodeserver.run import run_routes
from twisted_exec.nodeserver.service import NodeServer, Part
from twisted_exec.nodeserver.stats import stats_routes
from twisted_exec.nodeserver.syncer import Syncer
from twisted_exec.nodeserver.syncer_options import SyncOptions
from twisted_exec.nodeserver.upkeep import Upkeep
from twisted_exec.observe.audit import JSONLinesAudit
from twisted_exec.observe.metrics import ExpiryMetrics
from twisted_exec.observe.program import make_service
from twisted_exec.observe.reader import ConfigError
from twisted_exec.observe.starting import Outlived
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry

ROUTES = (stream_routes, run_routes, log_routes, pod_routes, stats_routes)
"""What answers as a kubelet does, besides what is about the server itself."""


class Options(ServerOptions, LeafOptions, NodeOptions, SyncOptions):
    """Command line of the node server."""

    program = PROGRAM
    paths = (*FILES, "leaves")
    synopsis = "--client-ca-file=FILE --leaves=FILE [options]"
    longdesc = "Answers a cluster's API server as a kubelet does, for Pods of other clusters."


def makeService(options: Options) -> IService:
    """The node server that the command line describes; nothing is opened yet."""
    wrong = (ConfigError, KubeConfigError, TLSConfigError)
    return make_service(PROGRAM, lambda reactor: _program(options, reactor), wrong)


def _program(options: Options, reactor: Any) -> Outlived[NodeServer]:
    config = FollowedConfig(options["kubeconfig"], options["context"])
    client = KubeClient(config.current(), reactor, renew=config.current, agent=PROGRAM)
    audit = JSONLinesAudit(options["audit-log"])
    registry = Registry(options.registry(), client, reactor)
    leader = _leader(options, config, client, registry, reactor, lambda: server)
    server = NodeServer(
        options.server(names=[address for _, address in options.own_addresses()]),
        client,
        registry.leaves,
        registry.roots,
        audit,
        reactor,
        make=[*ROUTES, page_routes(options.keeper())],
        parts=[registry, *leader],
        checks=[audit.check],
    )
    _watch_expiry(server, options, config, registry)
    LeafMetrics(server.registry, registry.leaves)
    return Outlived(server, client.close)


def _leader(
    options: Options,
    config: FollowedConfig,
    client: KubeClient,
    registry: Registry,
    reactor: Any,
    server: Callable[[], NodeServer],
) -> list[Part]:
    """What one replica does for all, if anything."""
    told, mirrors = options.face(0), bool(options["sync-pods"])
    if told.upkeep == NONE and not mirrors:
        return []

    def make() -> list[Service]:
        made: list[Service] = []
        if told.upkeep != NONE:
            face = replace(told, port=told.port or getattr(server().address, "port", 0))
            root = RootProbe(config.current, reactor, told.keeper)
            made.append(Upkeep(client, registry.leaves, face, reactor, time.time, root=root))
        made.append(Mirror(client, registry.leaves, reactor, told.keeper))
        if mirrors:
            made.append(Syncer(client, registry.leaves, registry.roots, reactor))
        return made

    where = {"namespace": options["namespace"], "lease": options["lease"]}
    # Before it listens there is no port to publish.
    return [Acting(client, make, reactor, time.time, when=lambda: server().when_ready(), **where)]


def _watch_expiry(
    server: NodeServer, options: Options, config: FollowedConfig, registry: Registry
) -> None:
    files = options.certificates()
    if options["cert-dir"]:
        files["cert-dir/tls.crt"] = os.path.join(options["cert-dir"], "tls.crt")
    told = {"kubeconfig": lambda: config.current().certificate.data}
    own = Expiry(files, told)
    ExpiryMetrics(server.registry, lambda: {**own.ends(), **ends(registry.leaves)})

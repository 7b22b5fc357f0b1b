"""Metrics of leaf clusters and of the certificates for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves
from twisted_exec.tls.expiry import Expiry


class LeafMetrics(Collector):
    """``twisted_exec_leaf_reached{leaf}``: 1 while a leaf is watched, 0 while it has a problem."""

    def __init__(self, registry: CollectorRegistry, leaves: ILeaves) -> None:
        self._leaves = leaves
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for leaf in self._leaves.all():
            family.add_metric([leaf.name], 0 if leaf.problem else 1)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "twisted_exec_leaf_reached",
            "1 while a leaf cluster is watched, 0 while it has a problem.",
            labels=["leaf"],
        )


def certificate_ends(leaves: ILeaves) -> Mapping[str, float]:
    """
    Return when our client certificates for leaves expire, in seconds since the epoch, by
    ``leaf/NAME``.
    """
    sources = {f"leaf/{leaf.name}": partial(_certificate, leaf) for leaf in leaves.all()}
    return Expiry({}, sources).ends()


def _certificate(leaf: ILeaf) -> bytes:
    try:
        return leaf.config().certificate.read()
    except (APIError, KubeConfigError):
        return b""

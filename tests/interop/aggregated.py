"""
kubectl through a real kube-apiserver, behind which is our API server: what
``docs/reference/aggregated.rst`` tells, and whether those may look on only who may.

``python -m tests.interop.aggregated`` writes the page, and writes nothing when a cell did not work;
the test compares.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.task import react
from twisted.trial.unittest import TestCase

from tests import needs
from tests.clients import kubectl as clients
from tests.clients.place import Chain
from tests.clients.table import CANNOT, FAILED, WORKS, Row, read, render, render_versions
from tests.flows import kubectl_table
from tests.flows.test_kubectl_verbs import AT_ONCE, Kubectl
from tests.interop import chains
from tests.interop.aggregated_cluster import AggregatedCluster
from tests.interop.hosts import kubectl
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig import load

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "aggregated.rst"
COMMAND = "python -m tests.interop.aggregated"
"""Writes the page."""


class AggregatedChain(Chain):
    """All of it, with a poollet and a runtime for shells."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = AggregatedCluster(needs.kube_apiserver_program() or "kube-apiserver")

    async def start(self) -> None:
        """As :meth:`Chain.start`; blocks."""
        cluster = self.cluster
        cluster.start()
        cluster.apply(
            {
                "apiVersion": f"{cluster.make.group}/v1alpha1",
                "kind": "MachineClass",
                "metadata": {"name": "pty"},
                "capabilities": {"cpu": "1", "memory": "64Mi"},
            }
        )
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision, class_name="pty")
        chains.our_poollet(cluster, self.pool, runtime)
        self.admin, self.nobody = cluster.kubeconfig, cluster.user("nobody", [])
        self.client = KubeClient(load(self.admin), reactor)

    @property
    def server(self) -> str:
        return self.cluster.url

    @property
    def ca(self) -> str:
        return self.cluster.pki.serving_ca

    async def stop(self) -> None:
        await super().stop()
        self.cluster.stop()


if __name__ == "__main__":
    pass

"""The cluster in memory keeps what every client promises."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.contracts.kube_client import KubeClientContract
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.testing.cluster import MemoryCluster


class MemoryClusterTests(KubeClientContract, TestCase):
    """Tests for :class:`MemoryCluster`."""

    async def make_client(self) -> IKubeClient:
        return MemoryCluster().client()

"""The KubeClient contract, with the real client and API server over TLS."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.audits import AuditList
from tests.chain import apiserver_settings, begin, client, reactor
from tests.contracts.kube_client import KubeClientContract
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.storage.memory import MemoryStorage


class KubeClientTests(KubeClientContract, TestCase):
    """Run the contract with :class:`KubeClient` and :class:`APIServer`."""

    async def make_client(self) -> IKubeClient:
        settings = Settings(**apiserver_settings())
        server = APIServer(settings, MemoryStorage(), AuditList(), reactor)
        await begin(server, self.addCleanup)
        return client(server, "user-admin", self.addCleanup)

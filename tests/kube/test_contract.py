"""The KubeClient contract, with the real client and API server over TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests.contracts.kube_client import KubeClientContract
from twisted_exec.apiserver.service import APIServer, Settings
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.loader import ClientConfig, Material
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.tls.pki.authority import Authority

reactor: Any = _reactor

SERVING, USERS, FORWARDING = (Authority.create(name) for name in ("serving", "users", "forwarding"))
SERVER = SERVING.issue_server(["127.0.0.1"])
ADMIN = USERS.issue_client("admin", ["system:masters"])
PROXY = FORWARDING.issue_client("exec-apiserver")


class Nowhere:
    """Audit backend that discards its records."""

    def record(self, event: dict[str, Any]) -> None:
        """Discard the record."""


class KubeClientTests(KubeClientContract, TestCase):
    """Run the contract with :class:`KubeClient` and :class:`APIServer`."""

    async def make_client(self) -> IKubeClient:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()

        def write(name: str, content: bytes) -> str:
            (directory / name).write_bytes(content)
            return str(directory / name)

        server = APIServer(
            Settings(
                listen="tcp:0:interface=127.0.0.1",
                certificate=write("tls.crt", SERVER.certificate_pem),
                key=write("tls.key", SERVER.key_pem),
                client_ca=write("users.crt", USERS.certificate_pem),
                poollet_certificate=write("proxy.crt", PROXY.certificate_pem),
                poollet_key=write("proxy.key", PROXY.key_pem),
                poollet_ca=write("serving.crt", SERVING.certificate_pem),
                drain_seconds=0,
            ),
            MemoryStorage(),
            Nowhere(),
            reactor,
        )
        server.startService()
        self.addCleanup(server.stopService)
        await server.when_ready()
        client = KubeClient(
            ClientConfig(
                server.url,
                ca=Material(data=SERVING.certificate_pem),
                certificate=Material(data=ADMIN.certificate_pem),
                key=Material(data=ADMIN.key_pem),
            ),
            reactor,
        )
        self.addCleanup(client.close)
        return client

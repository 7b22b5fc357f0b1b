"""
Certificates, authorities, tokens and kubeconfigs that are exchanged under running programs: new
connections see the new ones, sessions that are open do not notice.

``docs/reference/rotation.rst`` tells what happens to each file; here it happens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol
from twisted.trial.unittest import TestCase

from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig import load
from twisted_exec.tls.authority import Authority
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.pki import write_kubeconfig

from .consoles import Screen, watch
from .deployment import POOL, Deployment, pause

reactor: Any = _reactor

LOOPBACK = ["localhost", "127.0.0.1"]


class ReloadTests(TestCase):
    """Three programs whose files change."""

    timeout = 170

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.screen = await watch(self.deployment.admin, "sh")
        await self.works(self.screen)

    async def works(self, screen: Screen) -> None:
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")

    async def shown(self, port: int) -> x509.Certificate:
        """The certificate that a server shows to a new connection."""
        seen: list[x509.Certificate] = []
        ca = Path(self.deployment.pki.serving_ca).read_bytes()
        tls = ClientTLS("127.0.0.1", ca_pem=ca, check=seen.append)
        protocol: Any = await connectProtocol(
            client_endpoint(reactor, "127.0.0.1", port, tls), Protocol()
        )
        protocol.transport.abortConnection()
        return seen[0]

    async def until_shown(self, port: int, path: str) -> None:
        """Fires when new connections see the certificate in a file."""
        wanted = x509.load_pem_x509_certificate(Path(path).read_bytes())
        while await self.shown(port) != wanted:
            await pause()

    async def test_11_certificates(self) -> None:
        """Each program's certificates; what is open goes on, and what is opened works."""
        pki = self.deployment.pki
        pool = await self.deployment.client.get(kinds.MACHINEPOOLS.resource, POOL)
        poollet_port = pool["status"]["daemonEndpoints"]["machinepoolletEndpoint"]["port"]
        told = await self.deployment.runtime.until(rb"consoles at https://127\.0\.0\.1:(\d+)/")
        serving, _ = pki.issue_apiserver(LOOPBACK, replace=True)
        poollet, _ = pki.issue_poollet(POOL, LOOPBACK, replace=True)
        runtime = pki.issue_runtime("host-a", LOOPBACK, replace=True)
        for port, pair in (
            (self.deployment.port, serving),
            (poollet_port, poollet),
            (int(told[1]), runtime),
        ):
            await self.until_shown(port, pair.certificate)
        await self.works(self.screen)
        another = await watch(self.deployment.admin, "sh")
        await self.works(another)
        await another.leave()

    async def test_11_authority_of_users(self) -> None:
        """Users of a second authority are known as soon as it is in the file, and no longer."""
        pki, path = self.deployment.pki, Path(self.deployment.pki.client_ca)
        new = Authority.create("users of tomorrow")
        issued = new.issue_client("ada", ["system:masters"])
        kubeconfig = self.deployment.path("ada.kubeconfig")
        write_kubeconfig(
            kubeconfig,
            server=self.deployment.url,
            ca_pem=Path(pki.serving_ca).read_bytes(),
            certificate_pem=issued.certificate_pem,
            key_pem=issued.key_pem,
            user="ada",
        )
        today = path.read_bytes()
        self.assertFalse(await self.is_known(kubeconfig))
        path.write_bytes(today + new.certificate_pem)
        while not await self.is_known(kubeconfig):
            await pause()
        adas = await watch(kubeconfig, "sh")
        await self.works(adas)
        await self.works(self.screen)
        path.write_bytes(today)
        while await self.is_known(kubeconfig):
            await pause()
        lost = await adas.ended
        self.assertEqual(lost.ending.reason, "AuthorizationWithdrawn")
        await self.works(self.screen)

    async def is_known(self, kubeconfig: str) -> bool:
        client = KubeClient(load(kubeconfig), reactor)
        try:
            await client.create(kinds.SELFSUBJECTREVIEWS.resource, {})
        except APIError as error:
            self.assertEqual(error.code, 401)
            return False
        finally:
            await client.close()
        return True

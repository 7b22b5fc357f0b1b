"""
Certificates, authorities, tokens and kubeconfigs that are exchanged under running programs: new
connections see the new ones, sessions that are open do not notice.

``docs/reference/rotation.rst`` tells what happens to each file; here it happens.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol
from twisted.protocols.portforward import ProxyFactory, ProxyServer
from twisted.trial.unittest import TestCase

from tests.flows.consoles import Screen, watch
from tests.flows.deployment import POOL, Deployment, pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds.certificates import certificate_of
from twisted_exec.api.status import APIError
from twisted_exec.cli.main import main
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import TLSError
from twisted_exec.tls.pki.authority import Authority, Issued
from twisted_exec.tls.pki.directory import AUTHORITIES
from twisted_exec.tls.pki.requests import request_server
from twisted_exec.tls.private_files import write_private

reactor: Any = _reactor

LOOPBACK = ["localhost", "127.0.0.1"]


class ReloadCase(TestCase):
    """Three programs whose files change."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.deployment = self.make_deployment()
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.screen = await watch(self.deployment.admin, "sh")
        await self.works(self.screen)

    def make_deployment(self) -> Deployment:
        return Deployment(self.mktemp())

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
        """Wait until new connections see the certificate in a file."""
        wanted = x509.load_pem_x509_certificate(Path(path).read_bytes())
        while await self.shown(port) != wanted:
            await pause()

    async def until_opens(self, kubeconfig: str) -> Screen:
        """Wait until a new session opens and works."""
        while True:
            try:
                screen = await watch(kubeconfig, "sh")
            except (APIError, TLSError):
                await pause()
            else:
                await self.works(screen)
                return screen

    async def still_works(self, kubeconfig: str = "") -> None:
        """Check that the open session works, and that new ones can be opened."""
        another = await self.until_opens(kubeconfig or self.deployment.admin)
        await self.works(self.screen)
        await another.leave()

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


class UsersTests(ReloadCase):
    """Changes of the client CA file."""

    async def test_11_authority_of_users(self) -> None:
        """Users of a second CA are accepted only while the CA is in the file."""
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
        await adas.until(rb"42\r\n")  # ada only observes earlier output: the first session drives
        await self.works(self.screen)
        path.write_bytes(today)
        while await self.is_known(kubeconfig):
            await pause()
        lost = await adas.ended
        self.assertEqual(lost.ending.reason, "AuthorizationWithdrawn")
        await self.works(self.screen)


class TCPDeployment(Deployment):
    """
    A deployment with every file that the programs read: runtime over TCP, tokens, a signing CA.
    """

    target = "dns:///127.0.0.1:0"

    @property
    def iri_target(self) -> str:
        return self.target

    async def start_api(self, *options: str) -> None:
        Path(self.path("tokens.csv")).write_text("first,admin,7,system:masters\n")
        signing = [
            f"--cluster-signing-{name}-file={path}"
            for name, path in zip(("cert", "key"), self.authority("signing"), strict=True)
        ]
        await super().start_api(f"--token-auth-file={self.path('tokens.csv')}", *signing, *options)

    def authority(self, name: str) -> tuple[str, str]:
        """Replace the CA of this name with a new one."""
        made, paths = Authority.create(name), (self.path(f"{name}.crt"), self.path(f"{name}.key"))
        Issued(made.certificate_pem, made.key_pem).write(*paths, replace=True)
        return paths

    async def start_runtime(self, *options: str) -> None:
        iri = self.pki.issue_runtime("iri", LOOPBACK)
        await super().start_runtime(
            f"--iri-ca-file={self.pki.client_ca}",
            f"--iri-cert-file={iri.certificate}",
            f"--iri-private-key-file={iri.key}",
            f"--iri-client-names={DEFAULT.pool_identity(POOL)}",
        )
        told = await self.runtime.until(rb"machine runtime at (dns:\S+),")
        self.target = told[1].decode()

    async def start_poollet(self, *options: str) -> None:
        """Start a poollet whose kubeconfig refers to files."""
        _serving, client = self.pki.issue_poollet(POOL, LOOPBACK)
        self.poollet_kubeconfig = self.path("named.kubeconfig")
        self.write_kubeconfig(self.url)
        await super().start_poollet(
            f"--kubeconfig={self.poollet_kubeconfig}",
            f"--machine-runtime-ca-file={self.pki.serving_ca}",
            f"--machine-runtime-cert-file={client.certificate}",
            f"--machine-runtime-private-key-file={client.key}",
        )

    def write_kubeconfig(self, server: str) -> None:
        client = self.pki.pair(f"poollet-{POOL}-client")
        told = {
            "clusters": [
                {
                    "name": "it",
                    "cluster": {"server": server, "certificate-authority": self.pki.serving_ca},
                }
            ],
            "users": [
                {
                    "name": "me",
                    "user": {"client-certificate": client.certificate, "client-key": client.key},
                }
            ],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "current-context": "it",
        }
        write_private(self.poollet_kubeconfig, json.dumps(told).encode())


class RotationTests(ReloadCase):
    """One console session continues while every file around it is replaced."""

    def make_deployment(self) -> Deployment:
        return TCPDeployment(self.mktemp())

    async def test_11_everything(self) -> None:
        """Replace every file of every program in turn."""
        await self.broken_files()
        await self.authorities()
        await self.another_address()
        await self.audit_files()
        await self.signing()
        await self.tokens()
        self.assertFalse(self.screen.ended.called)

    async def broken_files(self) -> None:
        """
        A truncated certificate or a mismatched key keeps the old pair, and is logged once each.
        """
        pair = self.deployment.pki.pair("apiserver")
        good = [Path(path).read_bytes() for path in (pair.certificate, pair.key)]
        start = len(self.deployment.api.output)
        other = self.deployment.pki.authority("ca").issue_server(LOOPBACK)
        for path, content, told in (
            (pair.key, other.key_pem, rb"does not belong to"),
            (pair.certificate, good[0][:300], rb"is it being written|holds no PEM"),
        ):
            write_private(path, content)
            await self.still_works()
            while not re.search(told, self.deployment.api.output[start:]):
                await self.shown(self.deployment.port)
                await pause()
        told = self.deployment.api.output[start:]
        self.assertEqual(told.count(b"keeping what was loaded before"), 2, told)
        write_private(pair.key, other.key_pem)
        write_private(pair.certificate, other.certificate_pem)
        await self.until_shown(self.deployment.port, pair.certificate)

    async def authorities(self) -> None:
        """
        All three CAs are replaced by way of files with the old and the new CA; then the old ones
        are removed, and an expired CA beside the new ones does no harm.
        """
        pki, now = self.deployment.pki, datetime.now(UTC)
        old_admin = json.loads(Path(self.deployment.admin).read_bytes())
        pool = await self.deployment.client.get(kinds.MACHINEPOOLS.resource, POOL)
        poollet_port = pool["status"]["daemonEndpoints"]["machinepoolletEndpoint"]["port"]
        told = await self.deployment.runtime.until(rb"consoles at https://127\.0\.0\.1:(\d+)/")
        # Renew every certificate at once: trusted CAs and served certificates are read at different
        # times.
        self.pki("renew", pki.directory, "--authorities")
        # Users still have their kubeconfigs of before, and must not be locked out.
        before = self.deployment.path("before.kubeconfig")
        Path(before).write_text(json.dumps(old_admin))
        await self.until_trusted()
        self.assertTrue(await self.is_known(before))
        await self.works(self.screen)
        self.deployment.kubeconfig("admin", ["system:masters"])
        self.pki("renew", pki.directory, "--apiserver")
        for port, name in (
            (self.deployment.port, "apiserver"),
            (poollet_port, f"poollet-{POOL}"),
            (int(told[1]), "runtime-host-a"),
        ):
            await self.until_shown(port, pki.pair(name).certificate)
        await self.works(self.screen)
        self.deployment.kubeconfig("admin", ["system:masters"])
        await self.until_read_again()
        old, self.screen = self.screen, await self.until_opens(self.deployment.admin)
        await self.still_works()
        await self.works(old)
        self.assertTrue(await self.is_known(self.with_all_authorities(old_admin)))
        self.pki("renew", pki.directory, "--retire")
        for name in AUTHORITIES:
            path = Path(pki.pair(name).certificate)
            expired = Authority.create(AUTHORITIES[name], now=now - timedelta(days=3651))
            write_private(str(path), path.read_bytes() + expired.certificate_pem)
        self.deployment.kubeconfig("admin", ["system:masters"])
        await self.still_works()
        # Users with only a certificate of the old CA are now unknown, and their sessions end.
        await self.rights_change("one")
        lost = await old.ended
        self.assertEqual(lost.ending.reason, "AuthorizationWithdrawn")
        self.assertRegex(
            lost.ending.message, r'the CA "twisted-exec user CA" .* is not trusted any more'
        )
        await self.deployment.client.close()
        self.deployment.client = KubeClient(load(self.deployment.admin), reactor)
        # The connections of the poollet to API server and runtime, in both directions.
        await self.deployment.create_machine("another", "shell")
        await self.still_works()

    async def until_read_again(self) -> None:
        """
        Open consoles until all hops use their new certificates, for which each looks once a second.

        A session whose hop had a certificate of an old CA ends with that CA.
        """
        until, is_last = reactor.seconds() + 1, False
        while not is_last:
            is_last = reactor.seconds() >= until
            another = await self.until_opens(self.deployment.admin)
            await another.leave()

    async def until_trusted(self) -> None:
        """Wait until users of the new authority are known."""
        self.deployment.kubeconfig("ada")
        while not await self.is_known(self.deployment.path("ada.kubeconfig")):
            await pause()

    def pki(self, *arguments: str) -> None:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            self.assertEqual(main(["pki", *arguments]), 0)

    def with_all_authorities(self, kubeconfig: dict[str, Any]) -> str:
        """Return credentials with all current serving CAs, to accept any server certificate."""
        ca = Path(self.deployment.pki.serving_ca).read_bytes()
        told = {"certificate-authority-data": base64.b64encode(ca).decode("ascii")}
        kubeconfig["clusters"][0]["cluster"] |= told
        path = self.deployment.path("old.kubeconfig")
        Path(path).write_text(json.dumps(kubeconfig))
        return path

    async def rights_change(self, name: str) -> None:
        """Change RBAC rules, which makes the API server review its sessions at once."""
        client = KubeClient(load(self.deployment.admin), reactor)
        await client.create(kinds.CLUSTERROLES.resource, {"metadata": {"name": name}, "rules": []})
        await client.close()

    async def another_address(self) -> None:
        """A kubeconfig with a new server address takes effect; an incomplete file is ignored."""
        deployment = cast(TCPDeployment, self.deployment)
        asked: Deferred[None] = Deferred()

        class Forwarded(ProxyServer):
            def connectionMade(self) -> None:
                super().connectionMade()
                if not asked.called:
                    asked.callback(None)

        factory = ProxyFactory("127.0.0.1", deployment.port)
        factory.protocol = Forwarded
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        start = len(deployment.poollet.output)
        write_private(deployment.poollet_kubeconfig, b'{"clusters": [')
        await deployment.poollet.until(rb"the old one stays", start=start)
        await self.still_works()
        deployment.write_kubeconfig(f"https://127.0.0.1:{port.getHost().port}")
        await asked
        await self.still_works()
        deployment.write_kubeconfig(deployment.url)

    async def audit_files(self) -> None:
        """Audit logs that were moved away are reopened as new files."""
        for name in ("api.audit", "poollet.audit", "runtime.audit"):
            os.rename(self.deployment.path(name), self.deployment.path(f"{name}.1"))
        await self.still_works()
        for name in ("api.audit", "poollet.audit", "runtime.audit"):
            while not os.path.exists(self.deployment.path(name)):
                await pause()

    async def signing(self) -> None:
        """Requests approved after the signing CA was replaced are signed by the new CA."""
        deployment = cast(TCPDeployment, self.deployment)
        certificate, _key = deployment.authority("signing")
        (ca,) = x509.load_pem_x509_certificates(Path(certificate).read_bytes())
        for number in itertools.count():
            if has_issued(ca, await self.signed(f"request-{number}")):
                break
            await pause()
        await self.still_works()

    async def signed(self, name: str) -> x509.Certificate:
        resource = kinds.CERTIFICATESIGNINGREQUESTS.resource
        client = self.deployment.client
        group = DEFAULT.pool_identity_group
        made = request_server(DEFAULT.pool_identity(POOL), [group], LOOPBACK)
        spec = {
            "request": base64.b64encode(made.request_pem).decode("ascii"),
            "signerName": "twisted-exec.dev/poollet-serving",
            "usages": ["digital signature", "server auth"],
        }
        csr = await client.create(resource, {"metadata": {"name": name}, "spec": spec})
        yes = {"type": "Approved", "status": "True", "reason": "Because"}
        csr["status"] = {"conditions": [yes]}
        await client.update(resource, csr, subresource="approval")
        while not (told := certificate_of(await client.get(resource, name))):
            await pause()
        return x509.load_pem_x509_certificate(base64.b64decode(told))

    async def tokens(self) -> None:
        """A new token of the same user works at once; removing the old token ends its session."""
        path = self.deployment.path("tokens.csv")
        first, second = (self.token_kubeconfig(token) for token in ("first", "second"))
        firsts = await self.until_opens(first)
        both = b"first,admin,7,system:masters\nsecond,admin,7,system:masters\n"
        write_private(path, both[:-20])  # an incomplete line is ignored
        await self.works(await self.until_opens(first))
        write_private(path, both)
        again = await self.until_opens(second)
        await self.works(firsts)
        write_private(path, both[both.index(b"second") :])
        await self.rights_change("two")
        lost = await firsts.ended
        self.assertEqual(lost.ending.reason, "AuthorizationWithdrawn")
        await self.works(again)

    def token_kubeconfig(self, token: str) -> str:
        told = json.loads(Path(self.deployment.admin).read_bytes())
        told["users"][0]["user"] = {"token": token}
        path = self.deployment.path(f"{token}.kubeconfig")
        Path(path).write_text(json.dumps(told))
        return path


def has_issued(ca: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except InvalidSignature:
        return False
    return True

"""Tests for :mod:`twisted_exec.poollet.client_certificate`: a cluster in memory, real files."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import authority
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.api.status import Unauthorized
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.poollet.client_certificate import ClientCertificate
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import Authority

CSRS = CERTIFICATESIGNINGREQUESTS.resource
CA = Authority.create("users")
POOL = IRONCORE.pool_identity("pool-a")
NOW = 1_800_000_000
CA_KEY = x509.load_pem_x509_certificate(CA.certificate_pem).public_key()


class ClientCertificateTests(SynchronousTestCase):
    """Tests for :class:`ClientCertificate`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(NOW)
        self.cluster = MemoryCluster()
        self.directory = os.path.join(self.mktemp(), "certificates")
        self.beginning = ClientConfig(
            "https://api.example",
            ca=Material(data=authority("serving").certificate_pem),
            token="abc123.0123456789abcdef",
        )
        self.asked_as: list[str] = []
        self.identity = self.make()

    def make(self, pool: str = "pool-a") -> ClientCertificate:
        return ClientCertificate(
            lambda: self.beginning,
            self.client,
            self.clock,
            directory=self.directory,
            dialect=IRONCORE,
            pool=pool,
            now=self.clock.seconds,
        )

    def client(self, current: Callable[[], ClientConfig]) -> Any:
        """A client of the cluster that records the identity of certificate requests."""
        client = self.cluster.client()
        create = client.create

        def noted(resource: Any, *rest: Any, **more: Any) -> Any:
            self.asked_as.append((current().token and "bootstrap") or "itself")
            return create(resource, *rest, **more)

        client.create = noted  # type: ignore[method-assign]
        return client

    def start(self) -> Deferred[None]:
        ready = self.identity.when_known()
        self.identity.start()
        self.addCleanup(self.identity.stop)
        return ready

    def open_request(self) -> Any:
        (csr,) = (
            csr
            for (resource, *_), csr in self.cluster.objects.items()
            if resource == CSRS and not csr.get("status")
        )
        return csr

    def sign(self, name: str = POOL, days: float = 100, key: Any = None) -> None:
        """Sign the request, as a signer does."""
        request = self.open_request()
        certificate = CA.certify(
            key or request_of(request).public_key(),
            name,
            [IRONCORE.pool_identity_group],
            (),
            now=datetime.fromtimestamp(self.clock.seconds(), UTC),
            life=timedelta(days=days),
        )
        status = {"status": {"certificate": base64.b64encode(certificate).decode()}}
        client = self.cluster.client()
        asked_name = request["metadata"]["name"]
        self.successResultOf(client.patch(CSRS, asked_name, status, subresource="status"))

    def turn(self, seconds: float, step: float = 5.0) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def until_told(self, problem: str) -> None:
        """Let the next request fail with another problem."""
        for _ in range(1000):
            self.clock.advance(0.05)
            if problem in self.identity.problem:
                return
        self.fail(self.identity.problem)

    def installed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(Path(self.identity.certificate).read_bytes())

    def test_first(self) -> None:
        """The first request uses the bootstrap credentials; after that the poollet has its own identity."""
        ready = self.start()
        request = self.open_request()
        self.assertEqual(request["spec"]["signerName"], "kubernetes.io/kube-apiserver-client")
        self.assertEqual(request["spec"]["usages"], ["digital signature", "client auth"])
        subject = request_of(request).subject.rfc4514_string()
        self.assertIn(f"CN={POOL}", subject)
        self.assertIn(f"O={IRONCORE.pool_identity_group}", subject)
        self.turn(60)
        self.assertNoResult(ready)
        self.assertIn("waits for approval", self.identity.problem)
        self.sign()
        self.turn(20)
        self.successResultOf(ready)
        self.assertEqual(self.asked_as, ["bootstrap"])
        for path in (self.identity.certificate, self.identity.key):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        config = self.identity.config()
        self.assertEqual((config.server, config.token), ("https://api.example", ""))
        self.assertEqual(config.certificate.data, Path(self.identity.certificate).read_bytes())

    def test_renewed(self) -> None:
        """
        The poollet renews its certificate with that certificate; the bootstrap credentials may have
        expired.
        """
        self.start()
        self.sign()
        self.turn(20)
        first = self.installed()
        self.turn(69 * 86400, step=3600)
        self.assertEqual(self.asked_as, ["bootstrap"])
        self.turn(22 * 86400, step=3600)
        self.assertEqual(self.asked_as, ["bootstrap", "itself"])
        self.sign()
        self.turn(20)
        self.assertNotEqual(self.installed(), first)
        self.assertEqual(
            self.identity.config().certificate.data, Path(self.identity.certificate).read_bytes()
        )

    def test_restart(self) -> None:
        """An existing certificate is used at once, without a request."""
        self.start()
        self.sign()
        self.turn(20)
        self.successResultOf(self.identity.stop())
        self.identity = self.make()
        self.successResultOf(self.start())
        self.assertEqual(self.asked_as, ["bootstrap"])

    def test_begins_anew(self) -> None:
        """An expired certificate, one of another pool, or one without its key is requested anew."""
        self.start()
        self.sign(days=1)
        self.turn(20)
        self.successResultOf(self.identity.stop())
        self.clock.advance(2 * 86400)
        self.identity = self.make()
        ready = self.start()
        self.assertNoResult(ready)
        self.sign()
        self.turn(20)
        self.successResultOf(ready)
        self.successResultOf(self.identity.stop())
        os.unlink(self.identity.key)
        self.identity = self.make()
        self.assertNoResult(self.start())
        self.sign()
        self.turn(20)
        self.successResultOf(self.identity.stop())
        self.identity = self.make("pool-b")
        self.assertNoResult(self.start())
        self.assertEqual(self.asked_as, ["bootstrap"] * 4)

    def test_not_fitting(self) -> None:
        """A certificate for another subject or key is not installed."""
        ready = self.start()
        self.sign(name=IRONCORE.pool_identity("pool-b"))
        self.until_told("does not name")
        self.turn(60)
        self.sign(key=CA_KEY)
        self.until_told("another key's")
        self.assertFalse(os.path.exists(self.identity.certificate))
        self.assertNoResult(ready)

    def test_refused(self) -> None:
        """An expired token is logged once, with a remedy; requests go on."""
        self.cluster.problem = Unauthorized()
        ready = self.start()
        self.turn(60)
        self.assertIn("twisted-exec token create", self.identity.problem)
        self.assertNotIn("abc123", self.identity.problem)
        self.cluster.problem = None
        self.turn(60)
        self.sign()
        self.turn(20)
        self.successResultOf(ready)

    def test_directory(self) -> None:
        """A directory that cannot be created, or an invalid pool name, prevents the start."""
        with open(self.directory.rpartition("/")[0], "w"):
            pass
        with self.assertRaises(TLSConfigError):
            self.identity.start()
        self.directory = self.mktemp()
        with self.assertRaises(TLSConfigError):
            self.make("p" * 60).start()

    def test_stopped_while_waiting(self) -> None:
        """Waiting for the certificate can be cancelled."""
        ready = self.start()
        ready.cancel()
        self.failureResultOf(ready, CancelledError)
        self.successResultOf(self.identity.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

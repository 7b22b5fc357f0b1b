"""
Tests for :mod:`twisted_exec.kube.signed_certificates`: a cluster in memory, files that
are real.
"""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import alternatives
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.kube.signed_certificates import DENIED_SECONDS, ServingCertificate
from twisted_exec.testing.cluster import MemoryCluster, unreachable
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pem import pem_of
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.requests import request_server
from twisted_exec.tls.server import ServerTLS

CSRS = CERTIFICATESIGNINGREQUESTS.resource
CA = Authority.create("serving")
NAMES = ["10.0.0.7", "host"]
POOL = IRONCORE.pool_identity("pool-a")


class ServingTests(SynchronousTestCase):
    """Tests for :class:`ServingCertificate`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_800_000_000)
        self.cluster = MemoryCluster()
        self.directory = os.path.join(self.mktemp(), "certificates")
        self.ahead = 0.0  # seconds by which this host's time of day is wrong
        self.serving = self.make()

    def make(self) -> ServingCertificate:
        return ServingCertificate(
            self.cluster.client(),
            self.clock,
            directory=self.directory,
            name=POOL,
            group=IRONCORE.pool_identity_group,
            label="pool-a",
            now=lambda: self.clock.seconds() + self.ahead,
            signer="twisted-exec.dev/poollet-serving",
        )

    def start(self, names: list[str] = NAMES) -> None:
        self.serving.prepare()
        self.serving.start(names)
        self.addCleanup(self.serving.stop)

    def logged(self) -> list[str]:
        """Return a list that gets the reasons that are logged from now on."""
        reasons: list[str] = []

        def observe(event: LogEvent) -> None:
            reasons.append(str(event.get("why", "")))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return reasons

    def requests(self) -> list[Any]:
        return [one for (resource, *_), one in self.cluster.objects.items() if resource == CSRS]

    def open_request(self) -> Any:
        (one,) = (one for one in self.requests() if not one.get("status"))
        return one

    def answer(self, **status: Any) -> None:
        name = self.open_request()["metadata"]["name"]
        client = self.cluster.client()
        self.successResultOf(client.patch(CSRS, name, {"status": status}, subresource="status"))

    def sign(
        self,
        names: list[str] = NAMES,
        key: Any = None,
        days: float = 100,
        ahead: timedelta = timedelta(0),
    ) -> None:
        """Sign the open request, as a signer does."""
        request = request_of(self.open_request())
        certificate = CA.certify(
            key or request.public_key(),
            POOL,
            [IRONCORE.pool_identity_group],
            names,
            now=datetime.fromtimestamp(self.clock.seconds(), UTC) + ahead,
            life=timedelta(days=days),
        )
        self.answer(certificate=base64.b64encode(certificate).decode())

    def turn(self, seconds: float, step: float = 5.0) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def installed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(Path(self.serving.certificate).read_bytes())

    def test_asked_for(self) -> None:
        """
        A new certificate starts self-signed; a CSR names host and addresses, and the signed
        certificate replaces it.
        """
        self.start()
        self.assertEqual(os.stat(self.serving.key).st_mode & 0o777, 0o600)
        own = self.installed()
        asked = self.open_request()
        self.assertEqual(asked["spec"]["signerName"], "twisted-exec.dev/poollet-serving")
        self.assertEqual(asked["spec"]["usages"], ["digital signature", "server auth"])
        request = request_of(asked)
        self.assertIn(f"CN={POOL}", request.subject.rfc4514_string())
        self.assertIn(f"O={IRONCORE.pool_identity_group}", request.subject.rfc4514_string())
        self.turn(60)
        self.assertIn("waits for approval (kubectl certificate approve)", self.serving.problem)
        self.assertEqual(self.installed(), own)
        self.sign()
        self.turn(20)
        self.assertEqual(self.installed().public_key(), request.public_key())
        self.assertEqual(self.serving.problem, "")

    def test_otherwise_spelt(self) -> None:
        """Names and addresses may be spelt differently in the signed certificate."""
        names = ["Host.example.", "2001:DB8:0::1"]
        self.start(names)
        self.sign(names)
        self.turn(20)
        self.assertEqual((self.serving.problem, len(self.requests())), ("", 1))

    def test_address_as_a_dns_name(self) -> None:
        """A certificate with our address as a DNS name is rejected and requested again."""
        self.start()
        own = self.installed()
        names = alternatives(*NAMES)
        certificate = CA._certified(
            request_of(self.open_request()).public_key(),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, POOL)]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            now=datetime.fromtimestamp(self.clock.seconds(), UTC),
            life=timedelta(days=100),
            names=names,
        )
        self.answer(certificate=base64.b64encode(pem_of([certificate])).decode())
        self.turn(40)
        self.assertEqual(self.installed(), own)
        self.assertEqual(len(self.requests()), 2)

    def test_kept(self) -> None:
        """A valid certificate survives a restart and is renewed before it expires."""
        self.start()
        self.sign()
        self.turn(20)
        first = self.installed()
        self.successResultOf(self.serving.stop())
        self.serving = self.make()
        self.start()
        self.turn(60 * 86400, step=3600)
        self.assertEqual(len(self.requests()), 1)
        self.turn(35 * 86400, step=3600)
        self.assertEqual(len(self.requests()), 2)
        self.assertEqual(self.installed(), first)
        with capturedLogs() as logs:
            self.answer(conditions=[{"type": "Denied", "status": "True", "message": "who"}])
            self.turn(DENIED_SECONDS + 30)
        message = formatEvent(logs[0])
        self.assertIn("no renewal of the serving certificate yet: certificate signing", message)
        self.sign()
        self.turn(20)
        self.assertNotEqual(self.installed(), first)

    def test_other_addresses(self) -> None:
        """A certificate without the current address is replaced at once."""
        self.start()
        self.sign()
        self.turn(20)
        self.successResultOf(self.serving.stop())
        self.serving = self.make()
        self.start(["10.0.0.8"])
        self.assertEqual(len(self.requests()), 2)

    def test_denied(self) -> None:
        """A denial shows as the problem; the next request waits for DENIED_SECONDS."""
        self.start()
        self.answer(conditions=[{"type": "Denied", "status": "True", "message": "who are you"}])
        self.turn(DENIED_SECONDS - 60)
        self.assertIn("Denied: who are you", self.serving.problem)
        self.assertEqual(len(self.requests()), 1)
        self.turn(120)
        self.assertEqual(len(self.requests()), 2)

    def test_unfit(self) -> None:
        """A certificate for another key, or without all the names, is not installed."""
        self.start()
        own = self.installed()
        told = self.logged()
        self.sign(key=x509.load_pem_x509_certificate(CA.certificate_pem).public_key())
        self.turn(90)
        self.assertIn("the signed certificate is another key's", told)
        self.sign(["host"])
        self.turn(90)
        self.assertIn("the signed certificate does not name 10.0.0.7", told)
        self.assertEqual(self.installed(), own)
        self.assertEqual(len(self.requests()), 3)

    def test_signed_while_the_clock_was_ahead(self) -> None:
        """
        A certificate that becomes valid in two years is not installed; an installed one is
        replaced.
        """
        self.start()
        told = self.logged()
        self.sign(ahead=timedelta(days=730))
        self.turn(40)
        self.assertTrue([text for text in told if "is not valid before" in text], told)
        self.ahead = 730 * 86400
        self.sign(ahead=timedelta(days=730))
        self.turn(40)
        ahead = self.installed()
        self.assertEqual(ahead.issuer.rfc4514_string(), "CN=serving")
        self.ahead = 0
        self.turn(3600, 60)
        self.sign()
        self.turn(40)
        self.assertNotEqual(self.installed(), ahead)

    def test_unanswered(self) -> None:
        """A deleted request is created again; while the server is down, retries are rare."""
        self.start()
        (asked,) = self.requests()
        self.cluster.problem = unreachable()
        self.turn(300)
        self.assertLess(len(self.cluster.requests), 40)
        self.cluster.problem = None
        client = self.cluster.client()
        self.successResultOf(client.delete(CSRS, asked["metadata"]["name"]))
        self.turn(300)
        (again,) = self.requests()
        self.assertNotEqual(again["metadata"]["name"], asked["metadata"]["name"])

    def test_died_in_between(self) -> None:
        """A key that does not match its certificate counts as missing: a new pair is requested."""
        self.start()
        self.sign()
        self.turn(20)
        self.serving.stop()
        signed = self.installed()
        Path(self.serving.key).write_bytes(request_server("x", ["y"], NAMES).key_pem)
        self.start()
        own = self.installed()
        self.assertNotEqual(own, signed)
        ServerTLS(self.serving.certificate, self.serving.key, clock=self.clock).load()
        self.assertEqual(
            self.open_request()["spec"]["usages"], ["digital signature", "server auth"]
        )

    def test_unwritable(self) -> None:
        """A directory that cannot be created raises TLSConfigError at startup."""
        Path(self.mktemp()).parent.mkdir(parents=True, exist_ok=True)
        blocked = self.mktemp()
        Path(blocked).write_text("")
        self.directory = os.path.join(blocked, "x")
        with self.assertRaises(TLSConfigError):
            self.make().prepare()

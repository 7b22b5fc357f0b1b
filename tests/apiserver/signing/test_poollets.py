"""
Tests for :mod:`twisted_exec.apiserver.signing.poollets`: rules for certificates of poollets.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtensionOID, NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.signer import SERVER, Denying, Signed, SignerContract
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.apiserver.signing.interfaces import CLIENT, SERVING, ISigner
from twisted_exec.apiserver.signing.poollets import (
    PoolletClient,
    PoolletServing,
    own_pool_problem,
    poollet_serving_refusal,
    poollet_shape_problem,
)
from twisted_exec.apiserver.signing.requests import RequestedSubject, server_names, subject_of
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.tls.pki.authority import Authority

SUBJECT_ALTERNATIVE_NAME = ExtensionOID.SUBJECT_ALTERNATIVE_NAME
POOL = IRONCORE.pool_identity("pool-a")
GROUP = IRONCORE.pool_identity_group
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def request(
    user: str = POOL,
    groups: Sequence[str] = (GROUP,),
    names: Sequence[x509.GeneralName] = (),
    key: Key | None = None,
) -> x509.CertificateSigningRequest:
    """A request as a poollet makes it."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    return builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())


ADDRESS = x509.IPAddress(ip_address("192.0.2.1"))


def spec(signer: str, *usages: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"signerName": signer, "usages": list(usages), **more}}


class PoolletClientTests(SignerContract, SynchronousTestCase):
    """The contract, for client certificates of poollets."""

    signed = Signed(CLIENT, POOL, [GROUP])

    def make_signer(self) -> ISigner:
        """As :meth:`SignerContract.make_signer`."""
        return PoolletClient([IRONCORE], Denying())


class PoolletServingTests(SignerContract, SynchronousTestCase):
    """The contract, for serving certificates of poollets."""

    signed = Signed(SERVING, POOL, [GROUP], [ADDRESS], SERVER)

    def make_signer(self) -> ISigner:
        """As :meth:`SignerContract.make_signer`."""
        return PoolletServing([IRONCORE], MemoryStorage(), frozenset)


class ShapeTests(SynchronousTestCase):
    """Shapes that are signed once approved."""

    def serving(self, asked: x509.CertificateSigningRequest, *usages: str) -> str:
        usages = usages or ("digital signature", "server auth")
        return poollet_shape_problem(spec(SERVING, *usages), asked, [IRONCORE])

    def client(self, asked: x509.CertificateSigningRequest, *usages: str) -> str:
        usages = usages or ("digital signature", "client auth")
        return poollet_shape_problem(spec(CLIENT, *usages), asked, [IRONCORE])

    def test_good(self) -> None:
        """With key encipherment or without, and for serving with the group or without."""
        for groups in ([GROUP], []):
            asked = request(groups=groups, names=[ADDRESS, x509.DNSName("Host.example")])
            self.assertEqual(self.serving(asked), "")
        many = ("key encipherment", "digital signature", "server auth")
        self.assertEqual(self.serving(request(names=[ADDRESS]), *many), "")
        self.assertEqual(self.client(request()), "")
        self.assertEqual(
            subject_of(request(names=[x509.DNSName("Host.example"), ADDRESS])),
            RequestedSubject(POOL, (GROUP,), ("host.example", "192.0.2.1")),
        )

    def test_whose(self) -> None:
        """They name a pool's poollet, and no other group."""
        for user in ("jane", "compute.ironcore.dev:system:machinepool:"):
            self.assertIn("common name must be", self.serving(request(user, names=[ADDRESS])))
            self.assertIn("common name must be", self.client(request(user)))
        for groups in (["system:masters"], [GROUP, "system:masters"], []):
            self.assertIn("organization must be", self.client(request(groups=groups)))
        self.assertIn("organization must be", self.serving(request(groups=["x"], names=[ADDRESS])))

    def test_usages(self) -> None:
        """Server usages are refused for clients, and the other way round."""
        for usages in (
            ("server auth",),
            ("digital signature", "client auth"),
            ("digital signature", "server auth", "client auth"),
            ("digital signature", "server auth", "cert sign"),
        ):
            self.assertIn("usages must be", self.serving(request(names=[ADDRESS]), *usages))
        self.assertIn("usages must be", self.client(request(), "digital signature", "server auth"))

    def test_names(self) -> None:
        """A server has names of hosts, a client none."""
        self.assertIn("must have a subject alternative name", self.serving(request()))
        for name in (x509.RFC822Name("a@b.example"), x509.UniformResourceIdentifier("spiffe://a")):
            self.assertIn("must be DNS names", self.serving(request(names=[ADDRESS, name])))
        self.assertIn("patterns", self.serving(request(names=[x509.DNSName("*.example")])))
        for text in ("a b", "a\nb", "*.192.0.2.1", "x" * 300, "::FFFF:192.0.2.1"):
            asked = request(names=[ADDRESS, x509.DNSName(text)])
            self.assertIn("must be DNS names", self.serving(asked), text)
        within = x509.IPAddress(ip_address("::ffff:192.0.2.1"))
        self.assertIn("must be DNS names", self.serving(request(names=[within])))
        self.assertIn("must have no", self.client(request(names=[ADDRESS])))

    def test_unreadable_names(self) -> None:
        """Unreadable alternative names, and those of unknown types, are refused."""
        for raw in (b"\x30\x02\xa3\x00", b"\x30\x03\x87\x01\x00", b"nothing", b""):
            key = ec.generate_private_key(ec.SECP256R1())
            builder = x509.CertificateSigningRequestBuilder()
            builder = builder.subject_name(request().subject)
            garbage = x509.UnrecognizedExtension(SUBJECT_ALTERNATIVE_NAME, raw)
            asked = builder.add_extension(garbage, False).sign(key, hashes.SHA256())
            self.assertEqual(self.serving(asked), "its extensions cannot be read", raw)

    def test_weak_key(self) -> None:
        """A key that can be broken is not signed."""
        weak = rsa.generate_private_key(65537, 1024)
        self.assertIn("2048 bits", self.serving(request(names=[ADDRESS], key=weak)))
        weaker = ec.generate_private_key(ec.SECP192R1())
        self.assertIn("256 bits", self.client(request(key=weaker)))


class ApprovalTests(SynchronousTestCase):
    """Automatic approval."""

    def refusal(self, *names: str, **pools: Sequence[str]) -> str:
        made = [
            {
                "metadata": {"name": name.replace("_", "-")},
                "status": {"addresses": [{"type": "InternalIP", "address": each} for each in told]},
            }
            for name, told in pools.items()
        ]
        return poollet_serving_refusal(RequestedSubject(POOL, (), names), "pool-a", made)

    def test_reported(self) -> None:
        """Names that the pool reports, in any spelling."""
        self.assertEqual(self.refusal("192.0.2.1", pool_a=["192.0.2.1", "Host"]), "")
        self.assertEqual(self.refusal("host", "2001:db8::1", pool_a=["Host", "2001:DB8:0::1"]), "")
        self.assertIn(
            "does not report the address 192.0.2.9: it reports 192.0.2.1",
            self.refusal("192.0.2.1", "192.0.2.9", pool_a=["192.0.2.1"]),
        )

    def test_first(self) -> None:
        """At first, names that no other pool reports."""
        self.assertEqual(self.refusal("192.0.2.1"), "")
        self.assertEqual(self.refusal("192.0.2.1", pool_a=[], pool_b=["192.0.2.2"]), "")
        self.assertIn(
            "192.0.2.2 is one of pool pool-b", self.refusal("192.0.2.2", pool_b=["192.0.2.2"])
        )

    def test_the_servers_own(self) -> None:
        """Not by what users call the API server, whatever the pool reports."""
        made = [{"metadata": {"name": "pool-a"}, "status": {"addresses": []}}]
        for reported in ([], ["api.example", "192.0.2.1"]):
            addresses = [{"type": "Hostname", "address": each} for each in reported]
            made[0]["status"] = {"addresses": addresses}
            subject = subject_of(request(names=[ADDRESS, x509.DNSName("API.example")]))
            told = poollet_serving_refusal(subject, "pool-a", made, {"api.example"})
            self.assertIn("api.example is the API server's own", told)

    def test_the_servers_own_otherwise_spelt(self) -> None:
        """Nor in a spelling that would be signed as that name, or that clients take for it."""
        ours = {"api.example", "192.0.2.1", "2001:db8::1"}
        for name in (
            x509.DNSName("api.example."),
            x509.DNSName("2001:DB8:0:0::1"),
            x509.DNSName("[2001:db8::1]"),
            x509.DNSName("2001:db8::1%eth0"),
        ):
            subject = subject_of(request(names=[name]))
            for reported in ([], [str(name.value)]):
                pool = {
                    "metadata": {"name": "pool-a"},
                    "status": {"addresses": [{"address": each} for each in reported]},
                }
                told = poollet_serving_refusal(subject, "pool-a", [pool], ours)
                self.assertIn("the API server's own", told, name)

    def test_others_otherwise_spelt(self) -> None:
        """Names that another pool reports are refused, in any spelling."""
        for name, other in (
            (x509.DNSName("host.example."), "Host.example"),
            (x509.DNSName("host.example"), "host.example."),
            (x509.IPAddress(ip_address("192.0.2.2")), "::ffff:192.0.2.2"),
        ):
            subject = subject_of(request(names=[name]))
            self.assertIn("is one of pool pool-b", self.refusal(*subject.names, pool_b=[other]))

    def test_the_servers_pattern(self) -> None:
        """A certificate of the API server for all names of a domain is for each of them."""
        for name, own in (("api.example", True), ("a.b.example", False), ("example", False)):
            subject = subject_of(request(names=[x509.DNSName(name)]))
            told = poollet_serving_refusal(subject, "pool-a", [], {"*.example"})
            self.assertEqual("the API server's own" in told, own, name)

    def test_server_names(self) -> None:
        """The names in its certificate, without loopback names."""
        names = ["API.example", "192.0.2.1", "2001:db8::1", "localhost", "127.0.0.1", "::1"]
        (certificate,) = x509.load_pem_x509_certificates(
            Authority.create("CA").issue_server(names).certificate_pem
        )
        self.assertEqual(server_names(certificate), {"api.example", "192.0.2.1", "2001:db8::1"})

    def test_shared(self) -> None:
        """Two pools of one host may both report it."""
        self.assertEqual(self.refusal("192.0.2.1", pool_a=["192.0.2.1"], pool_b=["192.0.2.1"]), "")

    def test_own(self) -> None:
        """Only by the poollet that it names."""
        subject = subject_of(request())
        for username, groups, good in (
            (POOL, [GROUP], True),
            (POOL, [], False),
            (IRONCORE.pool_identity("pool-b"), [GROUP], False),
        ):
            told = own_pool_problem(
                spec(SERVING, username=username, groups=groups), subject, IRONCORE
            )
            self.assertEqual(told == "", good, told)

"""
Tests for :mod:`twisted_exec.auth.x509`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from twisted.logger import formatEvent, globalLogPublisher
from zope.interface.verify import verifyObject

from tests.auth.support import CredentialsCase, credentials
from tests.retained import instances
from tests.tls.support import authority, client_identity, server_identity, with_unknown_curve
from twisted_exec.api.agents import PERSON_GROUPS
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth import client_certificates
from twisted_exec.auth.agent_certificates import person_uri
from twisted_exec.auth.interfaces import IAuthenticator, User
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import Authority, Issued
from twisted_exec.tls.server import PeerCertificate, verify


def subordinate(issuer: Authority, name: str) -> bytes:
    """A CA's certificate that another CA has signed (PEM)."""
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    above = pem.certificates(issuer.certificate_pem, "CA")[0]
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(above.subject, own).public_key(
        ec.generate_private_key(ec.SECP256R1()).public_key()
    )
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    key = pem.private_key(issuer.key_pem, "key")
    return pem.pem_of([builder.sign(key, hashes.SHA256())])  # type: ignore[arg-type]


def name_of(user: str, *groups: str) -> x509.Name:
    """A subject, unchecked."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def certified(subject: x509.Name, names: Sequence[x509.GeneralName]) -> Issued:
    """A client certificate of the users' CA with any subject and alternative names."""
    issuer, own = authority("users"), ec.generate_private_key(ec.SECP256R1())
    above = pem.certificates(issuer.certificate_pem, "CA")[0]
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(above.subject, subject).public_key(own.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(usage, False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    key = pem.private_key(issuer.key_pem, "key")
    certificate = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    own_pem = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Issued(pem.pem_of([certificate]), own_pem)


class X509AuthenticatorTests(CredentialsCase):
    """Tests for :class:`X509Authenticator`."""

    def setUp(self) -> None:
        super().setUp()
        self.now = datetime.now(UTC)
        self.authenticator = X509Authenticator(self.users_ca, self.clock, lambda: self.now)

    def user(self, shown: Issued | None) -> User | None:
        return self.successResultOf(self.authenticator.authenticate(self.credentials(shown=shown)))

    def test_door(self) -> None:
        """The class implements IAuthenticator."""
        verifyObject(IAuthenticator, self.authenticator)

    def test_user(self) -> None:
        """Common name, organizations, and which certificate it was."""
        jane = client_identity("jane", "dev", "ops")
        user = self.user(jane)
        assert user is not None
        self.assertEqual(user.name, "jane")
        self.assertEqual(user.groups, ("dev", "ops", "system:authenticated"))
        leaf = pem.certificates(jane.certificate_pem, "it")[0]
        self.assertEqual(
            user.extra,
            {
                "authentication.kubernetes.io/credential-id": (
                    f"X509SHA256={PeerCertificate(leaf).fingerprint}",
                )
            },
        )

    def test_agent(self) -> None:
        """An agent's certificate names the agent, with the group of agents alone."""
        uri = person_uri(User("ada", ("ops",)), "bot")
        agent = certified(name_of("agent:ada:bot"), [x509.UniformResourceIdentifier(uri)])
        user = self.user(agent)
        assert user is not None
        self.assertEqual(user.groups, ("agents", "system:authenticated"))
        self.assertEqual(user.extra[PERSON_GROUPS], ("ops",))
        self.assertIn("authentication.kubernetes.io/credential-id", user.extra)

    def test_claims_to_be_an_agent(self) -> None:
        """A certificate with the name or the group of an agent, from any CA that is believed, names nobody."""
        for issued in (
            client_identity("agent:ada:bot"),
            client_identity("agent:ada:bot", "agents"),
            client_identity("jane", "agents"),
            client_identity("agent:", "dev"),
        ):
            asked = self.authenticator.authenticate(self.credentials(shown=issued))
            refusal = self.failureResultOf(asked, Unauthorized).value
            self.assertIn("agents", str(refusal))
            leaf = pem.certificates(issued.certificate_pem, "it")[0]
            self.assertIsNone(self.authenticator.user(PeerCertificate(leaf)))

    def test_agent_of_another_ca(self) -> None:
        """An agent's certificate of a CA that is not believed names nobody."""
        self.assertIsNone(self.user(client_identity("agent:ada:bot", ca="others")))

    def test_expires(self) -> None:
        """The user's credential ends with the certificate, or with the CA that has signed it."""
        soon = authority("users").issue_client("jane", life=timedelta(seconds=30))
        user = self.user(soon)
        assert user is not None
        end = pem.certificates(soon.certificate_pem, "it")[0].not_valid_after_utc
        self.assertEqual(user.expires, end.timestamp())

    def test_none(self) -> None:
        """Without a certificate, or without TLS, there is no user."""
        self.assertIsNone(self.user(None))
        plain = self.authenticator.authenticate(credentials({}))
        self.assertIsNone(self.successResultOf(plain))

    def test_strangers(self) -> None:
        """Certificates of other CAs, and server certificates, identify no user."""
        for shown in (
            client_identity("admin", "system:masters", ca="evil"),
            client_identity("exec-apiserver", ca="forwarding"),
            server_identity("localhost"),
            authority("users").issue_server(["localhost"], common_name="admin"),
            Authority.create("users").issue_client("admin"),
        ):
            self.assertIsNone(self.user(shown))

    def test_expired(self) -> None:
        """A cached certificate that expires is refused from then on."""
        soon = authority("users").issue_client("jane", life=timedelta(seconds=30))
        presented = self.credentials(shown=soon)
        for passed, known in ((0, True), (29, True), (32, False)):
            self.now = datetime.now(UTC) + timedelta(seconds=passed)
            user = self.successResultOf(self.authenticator.authenticate(presented))
            self.assertEqual(user is not None, known, passed)

    def test_clock_jumps(self) -> None:
        """After a clock jump in either direction is corrected, a user is accepted again."""
        jane, true = self.credentials(shown=client_identity("jane")), self.now
        for jump in (timedelta(days=730), timedelta(days=-730)):
            for known in (False, True):
                self.now = true if known else true + jump
                self.clock.advance(1)
                user = self.successResultOf(self.authenticator.authenticate(jane))
                self.assertEqual(user is not None, known, jump)

    def test_jump_within_a_minute(self) -> None:
        """A cached certificate is refused as soon as the clock says it has expired."""
        jane = self.credentials(shown=client_identity("jane"))
        self.assertIsNotNone(self.successResultOf(self.authenticator.authenticate(jane)))
        self.now += timedelta(days=4000)
        self.assertIsNone(self.successResultOf(self.authenticator.authenticate(jane)))

    def test_verdicts_age(self) -> None:
        """A verdict is cached for one minute of the monotonic clock."""
        jane = self.credentials(shown=client_identity("jane"))
        checked: list[Any] = []
        self.patch(
            client_certificates, "verify", lambda *args: checked.append(args) or verify(*args)
        )
        for seconds, count in ((0, 1), (59, 1), (1, 2), (59, 2)):
            self.clock.advance(seconds)
            self.now -= timedelta(seconds=seconds / 2)
            self.assertIsNotNone(self.successResultOf(self.authenticator.authenticate(jane)))
            self.assertEqual(len(checked), count)

    def test_control_characters(self) -> None:
        """A certificate of our CA whose names contain control characters names no user."""
        for user, groups, names in (
            ("ja\0ne", (), ()),
            ("jane\n", (), ()),
            ("jane\x1b[2J", (), ()),
            ("jane\x9b", (), ()),
            ("jane\u2028", (), ()),
            ("jane\u200b", (), ()),
            ("\u202eenaj", (), ()),
            ("jane", ("admins\u2066",), ()),
            ("jane", ("system:masters\0x",), ()),
            ("jane", (), (x509.DNSName("a\0b"),)),
            ("jane", (), (x509.RFC822Name("a\rb"),)),
            ("jane", (), (x509.UniformResourceIdentifier("spiffe://a\x7f"),)),
            ("jane", (), (x509.DirectoryName(name_of("a\0b")),)),
        ):
            with self.subTest(user=user, groups=groups, names=names):
                self.assertIsNone(self.user(certified(name_of(user, *groups), names)))
        plain = certified(name_of("J\u00fcrgen Q. \u675c", "a b"), [x509.DNSName("a.example")])
        self.assertIsNotNone(self.user(plain))

    def test_ca_changes(self) -> None:
        """After the CA file is replaced, certificates of the old CA are refused, even if cached."""
        jane = client_identity("jane")
        self.assertIsNotNone(self.user(jane))
        self.write("users.crt", authority("evil").certificate_pem)
        self.clock.advance(1)
        self.assertIsNone(self.user(jane))
        self.assertIsNotNone(self.user(client_identity("jane", ca="evil")))

    def test_authorities_in_turn(self) -> None:
        """A CA is replaced by way of a file with both CAs; an expired CA in it is harmless."""
        jane, tomorrow = client_identity("jane"), client_identity("jane", ca="evil")
        late = Authority.create("users", now=self.now - timedelta(days=3651))
        both = authority("users").certificate_pem + authority("evil").certificate_pem
        for content, known in (
            (authority("users").certificate_pem, (True, False)),
            (both, (True, True)),
            (late.certificate_pem + both, (True, True)),
            (late.certificate_pem + authority("evil").certificate_pem, (False, True)),
        ):
            self.write("users.crt", content)
            self.clock.advance(1)
            self.assertEqual(tuple(self.user(each) is not None for each in (jane, tomorrow)), known)

    def test_told(self) -> None:
        """An expired certificate of our CA is logged once a minute; those of other CAs are not."""
        told: list[str] = []
        globalLogPublisher.addObserver(observer := lambda event: told.append(formatEvent(event)))
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        late = authority("users").issue_client("jane", now=self.now - timedelta(days=400))
        stranger = Authority.create("users").issue_client(
            "admin", now=self.now - timedelta(days=400)
        )
        for shown in (late, stranger, late):
            self.assertIsNone(self.user(shown))
        warned = [line for line in told if "that of" in line]
        self.assertEqual(len(warned), 1, told)
        self.assertRegex(warned[0], r"certificate has expired: that of jane is good from .* until")

    def test_not_valid_yet(self) -> None:
        """A certificate is refused before it becomes valid."""
        issued = authority("users").issue_client("jane", now=self.now + timedelta(minutes=20))
        self.assertIsNone(self.user(issued))
        self.now += timedelta(minutes=16)
        self.clock.advance(16 * 60)
        self.assertIsNotNone(self.user(issued))

    def test_kept_apart(self) -> None:
        """
        The CA of users never becomes that of proxies: neither when both are read first, nor later.
        """
        files = self.users_ca, self.forwarding_ca
        users = X509Authenticator(files[0], self.clock, apart_from=files[1])
        proxies = RequestHeaderAuthenticator(
            files[1], ["exec-apiserver"], self.clock, apart_from=files[0]
        )
        users.load()
        proxies.load()
        proxy, jane = client_identity("exec-apiserver", ca="forwarding"), client_identity("jane")
        forwarded = authority("forwarding").certificate_pem
        for name in ("users.crt", "forwarding.crt"):
            self.write(name, authority("users").certificate_pem + forwarded)
            self.clock.advance(1)
            for shown, known in ((jane, (True, False)), (proxy, (False, True))):
                presented = self.credentials(shown=shown)
                user = self.successResultOf(users.authenticate(presented))
                trusted = user is not None, proxies.caller(presented.certificate) is not None
                self.assertEqual(trusted, known, name)
            again = X509Authenticator(files[0], self.clock, apart_from=files[1])
            with self.assertRaises(TLSConfigError) as caught:
                again.load()
            self.assertIn("hold the same CA", str(caught.exception))

    def test_unknown_curve(self) -> None:
        """A CA with a key of an unknown curve is compared as well."""
        self.write("users.crt", authority("users").certificate_pem + with_unknown_curve())
        users = X509Authenticator(self.users_ca, self.clock, apart_from=self.forwarding_ca)
        users.load()
        self.write("forwarding.crt", with_unknown_curve())
        with self.assertRaises(TLSConfigError) as caught:
            users.load()
        self.assertIn("hold the same CA", str(caught.exception))

    def test_kept_apart_from_a_file(self) -> None:
        """The content of a CA file cannot be kept apart from another file: that is no silent no."""
        content = authority("users").certificate_pem
        with self.assertRaises(ValueError):
            X509Authenticator(content, self.clock, apart_from=self.forwarding_ca)

    def test_signed_by_the_other(self) -> None:
        """
        Neither CA may sign the other: a client could present the intermediate in a chain that
        ends at the other file's CA.
        """
        for above, below in (("users", "forwarding"), ("forwarding", "users")):
            beneath = subordinate(authority(above), below)
            files = {
                above: self.write("above.crt", authority(above).certificate_pem),
                below: self.write("below.crt", beneath),
            }
            proxies = RequestHeaderAuthenticator(
                files["forwarding"], ["exec-apiserver"], self.clock, apart_from=files["users"]
            )
            with self.assertRaises(TLSConfigError) as caught:
                proxies.load()
            self.assertIn("hold CAs of which one has signed the other", str(caught.exception))

    def test_remembered(self) -> None:
        """The number of cached verdicts is bounded."""
        self.patch(client_certificates, "_VERDICTS_KEPT", 3)
        for number in range(6):
            self.assertIsNotNone(self.user(client_identity(f"user-{number}")))
        self.assertEqual(len(instances(self.authenticator, client_certificates.Verdict)), 3)

    def test_missing_ca(self) -> None:
        """Loading a missing CA file is an error."""
        with self.assertRaises(TLSConfigError):
            X509Authenticator("/nowhere/ca.crt", self.clock).load()
        self.authenticator.load()

    def test_empty_ca(self) -> None:
        """A CA file without a certificate is reported by name."""
        path = self.write("empty.crt", b"")
        with self.assertRaises(TLSConfigError) as caught:
            X509Authenticator(path, self.clock).load()
        self.assertIn(repr(path), str(caught.exception))

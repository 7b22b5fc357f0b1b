"""
Tests for :mod:`twisted_exec.tls.client`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network

from cryptography import x509
from twisted.internet.task import Clock

from tests.tls.support import (
    CLIENT_GO,
    LoopbackCase,
    alternatives,
    authority,
    client_identity,
    named,
    server_identity,
)
from twisted_exec.tls.client import ClientCredentials, ClientTLS
from twisted_exec.tls.errors import (
    OtherName,
    OutsideValidity,
    TLSConfigError,
    Untrusted,
    VerificationError,
)
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import ServerTLS, peer_certificate


class VerificationTests(LoopbackCase):
    """Tests for whom :class:`ClientTLS` believes."""

    async def refusal(
        self,
        server: ServerTLS,
        client: ClientTLS,
        kind: type[VerificationError] = VerificationError,
    ) -> str:
        """Return the error for a refused server, which must receive no byte of ours."""
        with self.assertRaises(VerificationError) as caught:
            await self.pair(server, client)
        self.assertIs(type(caught.exception), kind)
        told = str(caught.exception)
        self.assertNotIn("\n", told)
        return told

    async def test_names(self) -> None:
        """DNS names, wildcards, IPv4 and IPv6 addresses are accepted."""
        tls = self.server_tls(server_identity("localhost", "127.0.0.1", "*.pools.example", "::1"))
        for name in (
            "localhost",
            "LOCALHOST",
            "localhost.",
            "127.0.0.1",
            "a.pools.example",
            "::1",
            "[::1]",
        ):
            await self.pair(tls, self.client_tls(name))

    async def test_other_names(self) -> None:
        """Every other name is refused, and the error lists the certificate's names."""
        tls = self.server_tls(server_identity("localhost", "*.pools.example"))
        for name in ("evil.example", "a.b.pools.example", "pools.example", "127.0.0.1"):
            told = await self.refusal(tls, self.client_tls(name), OtherName)
            self.assertIn(f'not valid for "{name}"', told)
            self.assertIn('"localhost", "*.pools.example"', told)

    async def test_common_name_does_not_count(self) -> None:
        """The common name is not used as a server name."""
        issued = authority("serving").issue_server(["other.example"], common_name="localhost")
        await self.refusal(self.server_tls(issued), self.client_tls("localhost"), OtherName)

    async def test_unknown_ca(self) -> None:
        """A server of another CA is refused."""
        issued = authority("evil").issue_server(["localhost"])
        told = await self.refusal(self.server_tls(issued), self.client_tls(), Untrusted)
        self.assertIn("is refused: it is not signed by a trusted CA", told)

    async def test_self_signed(self) -> None:
        """A self-signed server is refused."""
        made = Authority.create("localhost")
        issued = server_identity("localhost")
        own = type(issued)(made.certificate_pem, made.key_pem)
        told = await self.refusal(self.server_tls(own), self.client_tls(), Untrusted)
        self.assertIn("self-signed", told)

    async def test_client_certificate_as_server(self) -> None:
        """A user's certificate does not make a server, even from the serving CA."""
        issued = authority("serving").issue_client("localhost")
        told = await self.refusal(self.server_tls(issued), self.client_tls())
        self.assertIn("not meant for servers", told)

    async def test_expired(self) -> None:
        """An expired certificate is refused."""
        before = datetime.now(UTC) - timedelta(days=2)
        issued = authority("serving").issue_server(
            ["localhost"], now=before, life=timedelta(days=1)
        )
        told = await self.refusal(self.server_tls(issued), self.client_tls(), OutsideValidity)
        self.assertIn("it has expired", told)

    async def test_not_yet(self) -> None:
        """A certificate from the future is refused."""
        after = datetime.now(UTC) + timedelta(days=1)
        issued = authority("serving").issue_server(["localhost"], now=after)
        told = await self.refusal(self.server_tls(issued), self.client_tls(), OutsideValidity)
        self.assertIn("is not valid yet", told)

    async def test_system_roots(self) -> None:
        """Without a CA, the system's CAs are used, and ours is not among them."""
        await self.refusal(self.server_tls(), self.client_tls(ca_pem=None), Untrusted)

    async def test_insecure(self) -> None:
        """With verification skipped, any server is accepted."""
        issued = authority("evil").issue_server(["other.example"])
        await self.pair(self.server_tls(issued), self.client_tls(insecure_skip_verify=True))

    async def test_check(self) -> None:
        """The caller's check may refuse a certificate."""

        def names_pool(certificate: x509.Certificate) -> None:
            if "pool-a" not in certificate.subject.rfc4514_string():
                raise VerificationError("the certificate does not name pool 'pool-a'")

        for common_name, good in (("pool-a", True), ("pool-b", False)):
            issued = authority("serving").issue_server(["localhost"], common_name=common_name)
            client = self.client_tls(check=names_pool)
            if good:
                await self.pair(self.server_tls(issued), client)
            else:
                told = await self.refusal(self.server_tls(issued), client)
                self.assertIn("does not name pool 'pool-a'", told)

    async def test_check_without_verification(self) -> None:
        """The caller's check runs even if verification is skipped."""

        def never(certificate: x509.Certificate) -> None:
            raise VerificationError("no")

        client = self.client_tls(insecure_skip_verify=True, check=never)
        await self.refusal(self.server_tls(), client)

    async def test_check_is_not_asked_about_strangers(self) -> None:
        """The caller's check is not called for a certificate that OpenSSL refuses."""
        asked: list[x509.Certificate] = []
        issued = authority("evil").issue_server(["localhost"])
        await self.refusal(self.server_tls(issued), self.client_tls(check=asked.append), Untrusted)
        self.assertEqual(asked, [])

    async def test_check_with_a_bug(self) -> None:
        """If the caller's check raises an unexpected error, the certificate is refused."""

        def broken(certificate: x509.Certificate) -> None:
            raise ZeroDivisionError("oops")

        told = await self.refusal(self.server_tls(), self.client_tls(check=broken))
        self.assertIn("cannot be checked", told)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


def _address(text: str) -> x509.IPAddress:
    return x509.IPAddress(ip_address(text))


UNUSABLE = (
    ("127.0.0.1", "127.0.0.1"),
    ("::1", "::1"),
    ("*.0.0.1", "127.0.0.1"),
    ("1", "one.example"),
    ("", "one.example"),
    ("*", "localhost"),
    ("*.example", "one.example"),
    ("*.*.example", "one.two.example"),
    ("one.*.example", "one.two.example"),
    ("*.one.example.", "two.one.example"),
    ("o*.two.example", "one.two.example"),
    ("one.example.", "one.example"),
    (" one.example", "one.example"),
    ("one.example\n", "one.example"),
    ("one.example\0.evil.example", "one.example"),
    ("https://one.example", "one.example"),
    ("one.example:443", "one.example"),
)
"""
DNS names of a certificate that match no server, and a server that a careless reader would take for
it.
"""

OTHERS = (
    (x509.UniformResourceIdentifier("https://one.example"), "one.example"),
    (x509.UniformResourceIdentifier("https://[::1]:443/"), "::1"),
    (x509.RFC822Name("one.example"), "one.example"),
    (x509.IPAddress(ip_network("127.0.0.0/8")), "127.0.0.1"),
    (_address("::ffff:127.0.0.1"), "127.0.0.1"),
)
"""Names of other kinds, likewise."""


class UnusableNamesTests(LoopbackCase):
    """Names in a certificate that can match no server neither help nor harm it."""

    refusal = VerificationTests.refusal

    async def test_self_signed_by_kubernetes(self) -> None:
        """A certificate as client-go makes it is valid for its addresses, and for nothing else."""
        tls = self.server_tls(named(CLIENT_GO, common_name="127.0.0.1@1795000000"))
        for name in ("127.0.0.1", "192.0.2.2"):
            await self.pair(tls, self.client_tls(name))
        for name in ("localhost", "192.0.2.3", "one.example"):
            told = await self.refusal(tls, self.client_tls(name), OtherName)
            self.assertIn(f'not valid for "{name}": it names "127.0.0.1" ', told)

    async def test_beside_usable_ones(self) -> None:
        """A server is known by a usable name, whatever other names its certificate has."""
        names = [name for name, _server in (*UNUSABLE, *OTHERS)]
        tls = self.server_tls(named(alternatives(*names, "good.example", "*.good.example")))
        for name in ("good.example", "very.good.example"):
            await self.pair(tls, self.client_tls(name))
        for server in {server for _name, server in (*UNUSABLE, *OTHERS)}:
            await self.refusal(tls, self.client_tls(server), OtherName)

    async def test_alone(self) -> None:
        """A certificate with only such a name is refused with that name, whatever its common name."""
        for name, server in (*UNUSABLE, *OTHERS):
            tls = self.server_tls(named(alternatives(name), common_name=server))
            told = await self.refusal(tls, self.client_tls(server), OtherName)
            shown = name if isinstance(name, str) else str(name.value)
            names = f"{json.dumps(server)}: it names {json.dumps(shown)}"
            self.assertIn(f"is not valid for {names}", told)

    async def test_why(self) -> None:
        """The refusal distinguishes a DNS name that looks like an address from an address."""
        told = await self.refusal(
            self.server_tls(named(alternatives("127.0.0.1"))),
            self.client_tls("127.0.0.1"),
            OtherName,
        )
        self.assertTrue(told.endswith('it names "127.0.0.1" (no usable DNS name)'), told)

    async def test_many_long_names(self) -> None:
        """A refusal lists the first few names, each shortened."""
        names = [f"{number}.{'x' * 5000}.example" for number in range(20)]
        told = await self.refusal(
            self.server_tls(named(alternatives(*names))),
            self.client_tls("one.example"),
            OtherName,
        )
        self.assertLess(len(told), 2000)

    async def test_none(self) -> None:
        """A certificate without names is refused, although its common name is the server's."""
        tls = self.server_tls(named(alternatives()))
        told = await self.refusal(tls, self.client_tls("localhost"), OtherName)
        self.assertTrue(told.endswith("it names none (no subject alternative name)"), told)

    async def test_unreadable(self) -> None:
        """A certificate whose names cannot be parsed is refused with that reason, and nothing is logged."""
        usable = b"\x82\x09localhost"
        for broken in (
            b"\x87\x03\x01\x02\x03",  # an address of three bytes
            b"\x82\x01\xe9",  # a DNS name that is not ASCII
            b"\xa3\x00",  # an X.400 address
        ):
            content = usable + broken
            der = bytes([0x30, len(content)]) + content
            oid = x509.OID_SUBJECT_ALTERNATIVE_NAME
            tls = self.server_tls(named(x509.UnrecognizedExtension(oid, der)))
            told = await self.refusal(tls, self.client_tls("localhost"), OtherName)
            self.assertIn("it names none that can be read", told)


class ClientIdentityTests(LoopbackCase):
    """Tests for what :class:`ClientTLS` shows and shares."""

    async def test_certificate(self) -> None:
        """Our certificate is shown to a server that asks."""
        ca = self.write("users.crt", authority("users").certificate_pem)
        jane = client_identity("jane")
        tls = self.client_tls(certificate_pem=jane.certificate_pem, key_pem=jane.key_pem)
        server, client = await self.pair(self.server_tls(client_cas=[ca]), tls)
        client.transport.write(b"x")
        await server.has(1)
        peer = peer_certificate(server.transport)
        assert peer is not None
        self.assertEqual(peer.common_name, "jane")

    def test_one_context(self) -> None:
        """Connections of one identity share a context; other identities have another."""
        jane = client_identity("jane")
        pair = {"certificate_pem": jane.certificate_pem, "key_pem": jane.key_pem}
        self.assertIs(self.client_tls("a").context(), self.client_tls("b").context())
        self.assertIsNot(self.client_tls("a", **pair).context(), self.client_tls("a").context())
        self.assertIs(
            self.client_tls("a", **pair).context(), self.client_tls("b", **pair).context()
        )

    def test_contexts_are_bounded(self) -> None:
        """The number of cached contexts is bounded."""
        first, *_, last = [
            self.client_tls("a", alpn=(b"x%d" % number,)).context() for number in range(100)
        ]
        self.assertIs(self.client_tls("a", alpn=(b"x99",)).context(), last)
        self.assertIsNot(self.client_tls("a", alpn=(b"x0",)).context(), first)

    def test_half_a_pair(self) -> None:
        """A certificate without its key is refused."""
        with self.assertRaises(TLSConfigError):
            self.client_tls(certificate_pem=client_identity("jane").certificate_pem)

    def test_no_host(self) -> None:
        """An invalid server name is refused before connecting."""
        for name in ("", "a b", "-", "x" * 300, "a..b", "\0"):
            with self.assertRaises(TLSConfigError, msg=repr(name)):
                self.client_tls(name)

    async def test_international_name(self) -> None:
        """A name beyond ASCII is verified in its encoded form."""
        tls = self.server_tls(server_identity("bücher.example"))
        await self.pair(tls, self.client_tls("BÜCHER.example"))


class ClientCredentialsTests(LoopbackCase):
    """Tests for :class:`ClientCredentials`."""

    def credentials(self, clock: Clock) -> ClientCredentials:
        jane = client_identity("jane")
        return ClientCredentials(
            ca=self.write("ca.crt", authority("serving").certificate_pem),
            certificate=self.write("me.crt", jane.certificate_pem),
            key=self.write("me.key", jane.key_pem),
            clock=clock,
        )

    async def test_connect(self) -> None:
        """The files make an identity towards any server."""
        ca = self.write("users.crt", authority("users").certificate_pem)
        credentials = self.credentials(Clock())
        credentials.load()
        server, client = await self.pair(
            self.server_tls(client_cas=[ca]), credentials.to("localhost")
        )
        client.transport.write(b"x")
        await server.has(1)
        self.assertIsNotNone(peer_certificate(server.transport))

    def test_reload(self) -> None:
        """A renewed certificate is used as soon as its key is written too."""
        clock = Clock()
        credentials = self.credentials(clock)
        first = credentials.to("localhost").context()
        renewed = authority("users").issue_client("jane")
        self.write("me.crt", renewed.certificate_pem)
        clock.advance(1)
        self.assertIs(credentials.to("localhost").context(), first)
        self.write("me.key", renewed.key_pem)
        clock.advance(1)
        self.assertIsNot(credentials.to("localhost").context(), first)

    async def test_made_before(self) -> None:
        """
        A ClientTLS made before the CA file changed trusts servers of the new CA and no longer
        those of the old: sessions keep their ClientTLS for as long as they are open.
        """
        clock = Clock()
        credentials = self.credentials(clock)
        kept = credentials.to("localhost")
        self.write("ca.crt", authority("tomorrow").certificate_pem)
        clock.advance(1)
        tomorrows = authority("tomorrow").issue_server(["localhost"])
        await self.pair(self.server_tls(tomorrows), kept)
        with self.assertRaises(VerificationError):
            await self.pair(self.server_tls(), kept)

    def test_missing(self) -> None:
        """A missing CA is named when it is loaded, not before."""
        credentials = ClientCredentials(ca="/nowhere/ca.crt", clock=Clock())
        with self.assertRaises(TLSConfigError) as caught:
            credentials.load()
        self.assertIn("'/nowhere/ca.crt'", str(caught.exception))

    def test_half_a_pair(self) -> None:
        """A certificate without its key is refused at once."""
        with self.assertRaises(TLSConfigError) as caught:
            ClientCredentials(certificate="me.crt", clock=Clock())
        self.assertEqual(str(caught.exception), "a client certificate is given without its key")

"""
Tests for ``twisted_exec.ssh.user_certificate``.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import SSHCertificateType

    from tests.ssh.authority import NOW, Authority
    from twisted_exec.ssh.certificate import read_certificate
    from twisted_exec.ssh.people import LoginRefused
    from twisted_exec.ssh.user_certificate import certificate_text, certified_user


class UserTests(SynchronousTestCase):
    """Who a certificate is for."""

    skip = skip

    def user(self, *principals: bytes, address: str = "192.0.2.7", **more: Any) -> str:
        """Return the user, or the refusal."""
        blob = Authority().certify(Ed25519PrivateKey.generate(), *principals, **more)
        try:
            return certified_user(read_certificate(blob), address, NOW)
        except LoginRefused as refused:
            return str(refused)

    def test_one(self) -> None:
        """The only principal is the user."""
        for name in (
            "ada",
            "ada@example.org",
            "Ada Lovelace",
            "adá",
            "oidc:ada",
            "mysystem:x",
            "x" * 253,
        ):
            self.assertEqual(self.user(name.encode()), name)

    def test_number(self) -> None:
        """None, or several, are refused."""
        self.assertIn("has no principal, so it is for any user", self.user())
        self.assertIn("has 2 principals", self.user(b"ada", b"ada"))
        self.assertIn("has 200 principals", self.user(*[b"%d" % each for each in range(200)]))

    def test_no_names(self) -> None:
        """What is no name is refused, and shown without harm."""
        for principal, problem in (
            (b"", "is empty"),
            (b"x" * 254, "has more than 253 characters"),
            (b"ad\0a", "character that cannot be printed"),
            (b"ada\n", "character that cannot be printed"),
            (b"\x1b[2Jada", "character that cannot be printed"),
            ("ada\u202e".encode(), "character that cannot be printed"),
            ("a\u200bda".encode(), "character that cannot be printed"),
            (b" ada", "space at an end"),
            (b"ada ", "space at an end"),
            (b"default/ada", "has a slash"),
            (b"..\\ada", "backslash"),
            (b"*", "star"),
            (b"system:admin", "begins with system:"),
            (b"System:masters", "begins with system:"),
            (b"system:serviceaccount:kube-system:x", "begins with system:"),
            (b"\xff\xfe", "is not UTF-8"),
        ):
            sentence = self.user(principal)
            self.assertIn(problem, sentence)
            self.assertTrue(sentence.isprintable(), sentence)
            self.assertIn("is no user", sentence)

    def test_host(self) -> None:
        """The certificate of a host is refused."""
        self.assertIn("certificate of a host", self.user(b"ada", kind=SSHCertificateType.HOST))

    def test_time(self) -> None:
        """A certificate is for its time."""
        self.assertIn("is not valid yet", self.user(b"ada", valid=(NOW + 1, NOW + 2)))
        self.assertIn("has expired", self.user(b"ada", valid=(NOW - 2, NOW)))
        self.assertEqual(self.user(b"ada", valid=(NOW, NOW + 1)), "ada")

    def test_source(self) -> None:
        """A certificate may be for certain networks."""
        for networks, address, is_served in (
            (b"192.0.2.0/24", "192.0.2.7", True),
            (b"198.51.100.1,192.0.2.7", "192.0.2.7", True),
            (b"192.0.2.0/24", "::ffff:192.0.2.7", True),
            (b"2001:db8::/32", "2001:db8::1", True),
            (b"fe80::/10", "fe80::1%eth0", True),
            (b"0.0.0.0/0", "192.0.2.7", True),
            (b"192.0.2.0/24", "192.0.3.7", False),
            (b"0.0.0.0/0", "2001:db8::1", False),
            (b"::/0", "192.0.2.7", False),
            (b"192.0.2.7/24", "192.0.2.7", False),  # as OpenSSH: bits of the host are set
            (b"192.0.2.0/24,*", "192.0.2.7", False),
            (b"192.0.2.0/255.255.255.0x", "192.0.2.7", False),
            (b"", "192.0.2.7", False),
            (b"\xff", "192.0.2.7", False),
            (b"192.0.2.0/24", "", False),
        ):
            user = self.user(b"ada", address=address, options={b"source-address": networks})
            self.assertEqual(user == "ada", is_served, (networks, address, user))

    def test_critical_options(self) -> None:
        """Any other critical option is refused, whatever it means."""
        for name in (b"force-command", b"verify-required", b"x@example.org", b"\x1b[2J"):
            sentence = self.user(b"ada", options={name: b""})
            self.assertIn("has the critical option", sentence)
            self.assertTrue(sentence.isprintable())
        both = {b"force-command": b"/bin/true", b"source-address": b"192.0.2.0/24"}
        self.assertIn("force-command", self.user(b"ada", options=both))

    def test_text(self) -> None:
        """The key id is printable in a log, and bounded."""
        for key_id, text in (
            (b"ada@laptop", "ada@laptop (serial 7)"),
            (b'a"\n\x1b[2J', "a???[2J (serial 7)"),
            (b"x" * 1000, "x" * 100 + " (serial 7)"),
        ):
            blob = Authority().certify(Ed25519PrivateKey.generate(), b"ada", key_id=key_id)
            self.assertEqual(certificate_text(read_certificate(blob)), text)

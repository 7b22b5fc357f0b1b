"""
Tests for :mod:`twisted_exec.apiserver.identity.options`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.identity.options import IdentityOptions, identities

ISSUER = "https://exec.example"


class Options(IdentityOptions):
    """Options of a program without others."""

    program = "exec-test"


class IdentityOptionsTests(SynchronousTestCase):
    """Tests for :class:`IdentityOptions`."""

    def read(self, *words: str) -> Identities:
        options = Options()
        options.parseOptions(words)
        return identities(options)

    def refused(self, *words: str) -> str:
        with self.assertRaises(SystemExit) as caught:
            self.read(*words)
        told = str(caught.exception.code)
        self.assertNotIn("\n", told)
        return told

    def test_nothing(self) -> None:
        """By default users have certificates only."""
        self.assertEqual(self.read(), Identities())

    def test_accounts(self) -> None:
        """All ServiceAccount options reach the service, with absolute paths."""
        found = self.read(
            *("--service-account-issuer", ISSUER, "--service-account-issuer", "old"),
            *("--service-account-signing-key-file", "a.key"),
            *("--service-account-key-file", "b.pem", "--service-account-key-file", "/c.pem"),
            *("--service-account-max-token-expiration", "24h"),
            *("--service-account-jwks-uri", "https://keys.example/jwks"),
            *("--api-audiences", "exec, vault", "--api-audiences", "store"),
            "--enable-bootstrap-token-auth",
        )
        self.assertEqual(
            found,
            Identities(
                accounts=Accounts(
                    (ISSUER, "old"),
                    (os.path.abspath("b.pem"), "/c.pem"),
                    os.path.abspath("a.key"),
                    86400,
                    "https://keys.example/jwks",
                ),
                bootstrap_tokens=True,
                api_audiences=("exec", "vault", "store"),
            ),
        )
        self.assertEqual(found.audiences, ("exec", "vault", "store"))

    def test_audiences(self) -> None:
        """By default this server is its first issuer."""
        key = ("--service-account-key-file", "k")
        found = self.read("--service-account-issuer", ISSUER, *key)
        self.assertEqual(found.audiences, (ISSUER,))
        self.assertEqual(Identities().audiences, ())

    def test_needs(self) -> None:
        """Issuer and keys need each other."""
        for name in ("signing-key-file", "key-file", "jwks-uri"):
            told = self.refused(f"--service-account-{name}", "x")
            self.assertIn(f"--service-account-{name} needs --service-account-issuer", told)
        told = self.refused("--service-account-max-token-expiration", "2h")
        self.assertIn("needs --service-account-issuer", told)
        told = self.refused("--service-account-issuer", ISSUER)
        self.assertIn("needs --service-account-signing-key-file", told)

    def test_wrong(self) -> None:
        """Invalid values are refused, with the option's name."""
        issuer = ("--service-account-issuer", ISSUER)
        rest = (*issuer, "--service-account-key-file", "k")
        for words, told in (
            ((*issuer, *issuer), f"--service-account-issuer '{ISSUER}' is empty, or there twice"),
            (("--service-account-issuer", ""), "is empty, or there twice"),
            (("--service-account-issuer", "a\nb"), "is empty, or there twice"),
            (("--service-account-issuer", ":x"), "has a colon and is no URL"),
            (("--service-account-issuer", "https://[x"), "has a colon and is no URL"),
            (
                (*rest, "--service-account-max-token-expiration", "59m"),
                "--service-account-max-token-expiration: give 1h or more",
            ),
            (
                (*rest, "--service-account-max-token-expiration", "soon"),
                "--service-account-max-token-expiration: 'soon' is no duration",
            ),
            (
                (*rest, "--service-account-jwks-uri", "http://x"),
                "--service-account-jwks-uri 'http://x' is no https URL",
            ),
            (("--api-audiences", "a,,b"), "--api-audiences 'a,,b' has an empty name"),
        ):
            self.assertIn(told, self.refused(*words))

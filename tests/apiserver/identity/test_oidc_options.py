"""
Tests for :mod:`twisted_exec.apiserver.identity.oidc_options`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver.identity.oidc_options import OIDCOptions, issuers, web_client
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.web.oidc import WebClient

URL = "https://issuer.example"
NEEDED = {"issuer-url": URL, "client-id": "exec"}


class _Options(OIDCOptions):
    program = "exec-some"
    paths = ("authentication-config", "oidc-ca-file")


def words(**more: str) -> list[str]:
    """A command line with what is needed; an empty value leaves it out."""
    told = {**NEEDED, **{key.replace("_", "-"): value for key, value in more.items()}}
    return [f"--oidc-{name}={value}" for name, value in told.items() if value]


class OIDCOptionsTests(SynchronousTestCase):
    """Tests for :class:`OIDCOptions` and :func:`issuers`."""

    def read(self, told: list[str]) -> Issuers:
        options = _Options()
        options.parseOptions(told)
        return issuers(options)

    def issuer(self, **more: str) -> Issuer:
        found = self.read(words(**more)).issuer
        assert found is not None
        return found

    def refused(self, told: list[str]) -> str:
        with self.assertRaises(SystemExit) as caught:
            self.read(told)
        return str(caught.exception.code)

    def test_nothing(self) -> None:
        """Without options there is no issuer."""
        self.assertFalse(self.read([]))

    def test_web_client(self) -> None:
        """The web console is a client of its own, whose tokens are accepted, too."""
        options = _Options()
        options.parseOptions(words(web_client_id="page", web_scopes="openid, groups"))
        self.assertEqual(web_client(options), WebClient("page", ("openid", "groups")))
        self.assertEqual(self.issuer(web_client_id="page").audiences, ("exec", "page"))
        self.assertEqual(self.issuer(web_client_id="exec").audiences, ("exec",))
        options = _Options()
        options.parseOptions(["--authentication-config=a.yaml", "--oidc-web-client-id=page"])
        self.assertEqual(web_client(options), WebClient("page"))
        options = _Options()
        options.parseOptions(words())
        self.assertIsNone(web_client(options))

    def test_wrong_web_client(self) -> None:
        """Options that belong together are demanded, and a scope is one word."""
        for told, message in (
            (words(web_scopes="openid"), "--oidc-web-client-id is missing"),
            (["--oidc-web-client-id=page"], "needs --oidc-issuer-url or --authentication-config"),
            (words(web_client_id="page", web_scopes="groups"), "such as openid,email"),
            (words(web_client_id="page", web_scopes="openid,a b"), "such as openid,email"),
        ):
            self.assertIn(message, self.refused(told))

    def test_defaults(self) -> None:
        """The user is the subject with the issuer before it, signed by RS256."""
        self.assertEqual(
            self.issuer(),
            Issuer(URL, ("exec",), MappedClaim("sub", f"{URL}#"), algorithms=("RS256",)),
        )

    def test_username_prefix(self) -> None:
        """The prefix is the option's, or none, or the issuer; an email has none by default."""
        for more, expected in (
            ({"username_claim": "email"}, ""),
            ({"username_claim": "upn"}, f"{URL}#"),
            ({"username_prefix": "-"}, ""),
            ({"username_prefix": "oidc:"}, "oidc:"),
            ({"username_claim": "email", "username_prefix": "oidc:"}, "oidc:"),
        ):
            self.assertEqual(self.issuer(**more).username.prefix, expected, more)

    def test_everything(self) -> None:
        """Each option counts."""
        told = self.read(
            [
                *words(
                    username_claim="email",
                    groups_claim="roles",
                    groups_prefix="oidc:",
                    required_claim="hd=example.org,tier=",
                    signing_algs="ES256, RS512",
                    ca_file="ca.crt",
                ),
                "--oidc-required-claim=a=b=c",
            ]
        )
        self.assertEqual(
            told.issuer,
            Issuer(
                URL,
                ("exec",),
                MappedClaim("email"),
                groups=MappedClaim("roles", "oidc:"),
                required=(("hd", "example.org"), ("tier", ""), ("a", "b=c")),
                algorithms=("ES256", "RS512"),
            ),
        )
        self.assertEqual(told.ca_file, os.path.abspath("ca.crt"))

    def test_configuration(self) -> None:
        """A file says it all, and nothing beside it."""
        told = self.read(["--authentication-config=a.yaml"])
        self.assertEqual(told, Issuers(configuration=os.path.abspath("a.yaml")))
        why = self.refused(["--authentication-config=a.yaml", *words()])
        self.assertIn("--authentication-config and --oidc-", why)

    def test_missing(self) -> None:
        """Each option that another one needs is named."""
        self.assertIn("--oidc-client-id is missing", self.refused(words(client_id="")))
        self.assertIn("--oidc-issuer-url is missing", self.refused(words(issuer_url="")))
        for more in (
            ["--oidc-ca-file=a"],
            ["--oidc-signing-algs=ES256"],
            ["--oidc-required-claim=a=b"],
        ):
            self.assertIn("--oidc-issuer-url is missing", self.refused(more))
        why = self.refused(words(groups_prefix="a"))
        self.assertIn("--oidc-groups-claim is missing: it belongs to --oidc-groups-prefix", why)

    def test_bad_values(self) -> None:
        """Invalid values are refused by name."""
        for more, why in (
            ({"issuer_url": "http://x"}, "--oidc-issuer-url: 'http://x' does not begin with https"),
            ({"issuer_url": "https://u:p@x"}, "has a user"),
            ({"signing_algs": "none"}, "--oidc-signing-algs: 'none' is none of RS256"),
            ({"signing_algs": "RS256,HS256"}, "'HS256' is none of"),
            ({"signing_algs": "RS256,"}, "'' is none of"),
            ({"required_claim": "hd"}, "--oidc-required-claim: 'hd' is not CLAIM=VALUE"),
            ({"required_claim": "=x"}, "'=x' is not CLAIM=VALUE"),
            ({"required_claim": "a=1,a=2"}, "'a' is required already"),
        ):
            self.assertIn(why, self.refused(words(**more)))

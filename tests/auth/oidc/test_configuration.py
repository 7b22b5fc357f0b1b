"""
Tests for :mod:`twisted_exec.auth.oidc.configuration`.
"""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.tls.support import authority, write
from twisted_exec.auth.cel import Expressions
from twisted_exec.auth.jwt_keys import ALGORITHMS
from twisted_exec.auth.oidc import claims
from twisted_exec.auth.oidc.claims import Expression, Issuer, MappedClaim
from twisted_exec.auth.oidc.configuration import Issuers, read_configuration
from twisted_exec.tls.errors import TLSConfigError

HOWTO = Path(__file__).parents[3] / "docs" / "howto"
URL = "https://issuer.example"
SMALLEST: dict[str, Any] = {
    "apiVersion": "apiserver.config.k8s.io/v1beta1",
    "kind": "AuthenticationConfiguration",
    "jwt": [
        {
            "issuer": {"url": URL, "audiences": ["exec"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }
    ],
}

WHOLE = f"""
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: false
jwt:
- issuer:
    url: {URL}
    discoveryURL: https://inside.example/discovery
    audiences: [exec, console]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.org
  claimMappings:
    username:
      claim: email
      prefix: "a:"
    groups:
      claim: roles
      prefix: "b:"
    uid:
      claim: oid
- issuer:
    url: https://second.example
    audiences: [exec]
  claimMappings:
    username:
      claim: sub
      prefix: ""
""".encode()


PACKAGE = "cel_expr_python"
EXPRESSIONS = f"""
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {URL}
    audiences: [exec]
  claimValidationRules:
  - expression: claims.email_verified == true
    message: verify your email
  - claim: hd
    requiredValue: example.org
  - expression: claims.exp - claims.iat <= 86400
  claimMappings:
    username:
      expression: claims.email
    groups:
      expression: claims.roles.split(",")
    uid:
      expression: claims.sub
    extra:
    - key: example.com/team
      valueExpression: claims.team
  userValidationRules:
  - expression: '!user.username.startsWith("root")'
    message: not root
""".encode()


def changed(path: str, value: Any) -> bytes:
    """The smallest configuration with one field changed, or left out."""
    document = copy.deepcopy(SMALLEST)
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = document
    for step in way:
        place = place[step] if isinstance(step, int) else place.setdefault(step, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document).encode()


class ReadConfigurationTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.oidc.configuration.read_configuration`."""

    def assertRefused(self, content: bytes, why: str) -> None:
        with self.assertRaises(TLSConfigError) as caught:
            read_configuration(content, "authentication config 'x'")
        line = str(caught.exception)
        self.assertIn(why, line)
        self.assertTrue(line.startswith("authentication config 'x'"))
        self.assertTrue(line.isprintable(), line)

    def test_whole(self) -> None:
        """Everything that is served here is read."""
        first, second = read_configuration(WHOLE, "config")
        self.assertEqual(
            first,
            Issuer(
                url=URL,
                discovery_url="https://inside.example/discovery",
                audiences=("exec", "console"),
                username=MappedClaim("email", "a:"),
                groups=MappedClaim("roles", "b:"),
                uid="oid",
                required=(("hd", "example.org"),),
                algorithms=ALGORITHMS,
            ),
        )
        self.assertEqual((second.username, second.groups), (MappedClaim("sub", ""), None))

    def test_smallest(self) -> None:
        """Few fields are required, and a configuration may have no issuers."""
        self.assertEqual(len(read_configuration(json.dumps(SMALLEST).encode(), "config")), 1)
        self.assertEqual(read_configuration(changed("jwt", None), "config"), ())

    def test_ca(self) -> None:
        """The CA of an issuer is embedded in the file."""
        text = authority("serving").certificate_pem
        content = changed("jwt.0.issuer.certificateAuthority", text.decode())
        self.assertEqual(read_configuration(content, "config")[0].ca_pem, text)

    def test_ca_of_the_how_to(self) -> None:
        """The example of the how-to for agents is read, also with the CA that it has as a comment."""
        text = (HOWTO / "exec-mcp-authentication.yaml").read_text()
        (issuer,) = read_configuration(text.encode(), "config")
        self.assertEqual(issuer.ca_pem, b"")
        ca = authority("serving").certificate_pem.decode()
        lines = [f"    #   {line}" for line in ca.splitlines()]
        before, begin, rest = text.partition("    #   -----BEGIN CERTIFICATE-----\n")
        after = rest.partition("-----END CERTIFICATE-----\n")[2]
        self.assertTrue(begin and after)
        written = f"{before}{chr(10).join(lines)}\n{after}"
        used = re.sub(r"(?m)^    # (?=certificateAuthority|  )", "    ", written)
        (issuer,) = read_configuration(used.encode(), "config")
        self.assertEqual(issuer.ca_pem.decode(), ca)

    def test_no_configuration(self) -> None:
        """Another kind of document is refused, with the expected kind."""
        self.assertRefused(b"", "is not a YAML object")
        self.assertRefused(b"- a", "is not a YAML object")
        self.assertRefused(changed("kind", "Config"), "it is no AuthenticationConfiguration of")
        self.assertRefused(changed("apiVersion", "v1"), "it is no AuthenticationConfiguration of")

    def test_no_yaml(self) -> None:
        """A file that is not YAML is refused with the line of its fault."""
        for content, why in (
            (b"{", "not YAML: line 2, column 1: "),
            (
                WHOLE.replace(b"  claimMappings:", b" claimMappings:"),
                "not YAML: line 15, column 2: ",
            ),
            (b"jwt:\n\tissuer: a", "not YAML: line 2, column 1: "),
            (b"\xff", "not YAML: invalid start byte at byte 0"),
            (b"a: 1\na: 2", "line 2: the key 'a' is there twice; remove or rename one of them"),
            (b"a: &b 1\nc: *b", "line 2: aliases (*) are not accepted"),
            (b"[" * 100, "nested more than 64 levels deep"),
            (b"a\x1b[1m: [", "control characters are not allowed"),
            (b"[" + b"0," * (1 << 15) + b"]", "more than 16384 keys and values"),
        ):
            self.assertRefused(content, why)

    def test_fields(self) -> None:
        """Each refusal names its field."""
        certificate = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
        for path, value, why in (
            ("jwt", {}, ""),
            ("jwt", [5], "jwt is not a list of objects"),
            ("jwt", "", "jwt is not a list of objects"),
            ("anonymous", [], "anonymous is not an object"),
            ("jwt", SMALLEST["jwt"] * 2, "jwt: two issuers have the same url URL"),
            ("jwt", SMALLEST["jwt"] * 65, "more than 64 issuers"),
            (
                "anonymous",
                {"enabled": True},
                "anonymous.enabled: this server serves no anonymous users",
            ),
            ("other", 1, "other is not a known field"),
            ("oth\u001ber", 1, "is not a known field"),
            ("jwt.0.issuer.url", None, "jwt[0].issuer.url is no URL"),
            ("jwt.0.issuer.url", "http://x", "jwt[0].issuer.url does not begin with https://"),
            ("jwt.0.issuer.discoveryURL", URL, "discoveryURL is the url itself"),
            ("jwt.0.issuer.discoveryURL", "http://x", "discoveryURL does not begin with"),
            ("jwt.0.issuer.audiences", None, "jwt[0].issuer.audiences is missing"),
            ("jwt.0.issuer.audiences", "exec", "audiences is not a list of texts"),
            ("jwt.0.issuer.audiences", 0, "audiences is not a list of texts"),
            ("jwt.0.issuer.discoveryURL", 0, "discoveryURL is not a text"),
            ("jwt.0.issuer.audienceMatchPolicy", False, "audienceMatchPolicy is not a text"),
            ("jwt.0.claimMappings.username.expression", 0, "username.expression is not a text"),
            ("jwt.0.issuer.audiences", ["a", "a"], "audiences has a value more than once"),
            ("jwt.0.issuer.audiences", ["a", "b"], "audienceMatchPolicy must be MatchAny"),
            ("jwt.0.issuer.audiences", ["a", ""], "audiences is not a list of texts"),
            (
                "jwt.0.issuer.audienceMatchPolicy",
                "MatchAll",
                "audienceMatchPolicy must be MatchAny",
            ),
            ("jwt.0.issuer.certificateAuthority", certificate, "holds no PEM certificate"),
            (
                "jwt.0.issuer.egressSelectorType",
                "cluster",
                "egressSelectorType is not a known field",
            ),
            ("jwt.0.claimMappings", None, "jwt[0].claimMappings.username.claim is missing"),
            ("jwt.0.claimMappings.username.claim", 5, "username.claim is not a text"),
            ("jwt.0.claimMappings.username.prefix", None, "username.prefix is missing"),
            ("jwt.0.claimMappings.groups", {"claim": "g"}, "groups.prefix is missing"),
            ("jwt.0.claimMappings.groups", {"prefix": "g"}, "groups.claim is missing"),
            ("jwt.0.claimMappings.groups", "g", "groups is not an object"),
            ("jwt.0.claimValidationRules", [{"requiredValue": "a"}], "[0].claim is missing"),
            (
                "jwt.0.claimValidationRules",
                [{"claim": "a", "requiredValue": "1"}, {"claim": "a", "requiredValue": "2"}],
                "claimValidationRules[1].claim: there is a rule for 'a' already",
            ),
        ):
            if why:
                self.assertRefused(changed(path, value), why)

    def test_expressions(self) -> None:
        """CEL may map names, and restrict who is accepted."""
        (issuer,) = read_configuration(EXPRESSIONS, "config")
        assert isinstance(issuer.username, Expression)
        self.assertEqual(issuer.username.text, "claims.email")
        self.assertEqual(issuer.username.field, "jwt[0].claimMappings.username.expression")
        self.assertEqual([key for key, _ in issuer.extra], ["example.com/team"])
        self.assertEqual([each.message for each in issuer.claim_rules], ["verify your email", ""])
        self.assertEqual(issuer.required, (("hd", "example.org"),))
        self.assertEqual([each.expression.about for each in issuer.user_rules], ["user"])

    def test_bad_expressions(self) -> None:
        """An expression that does not compile, or conflicts with other fields, is refused."""
        for path, value, why in (
            ("claimMappings.username", {"expression": "claims."}, "username.expression: INVALID"),
            ("claimMappings.username", {"expression": "user.name"}, "undeclared reference"),
            (
                "claimMappings.username",
                {"expression": "claims.sub", "claim": "sub", "prefix": ""},
                "username.expression: there is a claim or a prefix as well",
            ),
            (
                "claimMappings.username",
                {"expression": "claims.sub", "prefix": ""},
                "username.expression: there is a claim or a prefix as well",
            ),
            (
                "claimMappings.username",
                {"expression": "claims.?email.orValue('x')"},
                "uses claims.email: claims.email_verified must be used",
            ),
            ("claimMappings.uid", {"expression": "1", "claim": "x"}, "uid.expression: there is a"),
            ("claimMappings.extra", [{"key": "team", "valueExpression": "1"}], "extra[0].key"),
            ("claimMappings.extra", [{"key": "A/b", "valueExpression": "1"}], "extra[0].key"),
            (
                "claimMappings.extra",
                [{"key": "authentication.kubernetes.io/x", "valueExpression": "1"}],
                "authentication.kubernetes.io is Kubernetes' own",
            ),
            ("claimMappings.extra", [{"key": "a.b/c"}], "extra[0].valueExpression is missing"),
            ("userValidationRules", [{"expression": "claims.x"}], "undeclared reference"),
            ("userValidationRules", [{"message": "x"}], "[0].expression is missing"),
            ("userValidationRules", [{"expression": "true", "message": "a\nb"}], "message is more"),
            (
                "claimValidationRules",
                [{"expression": "true", "claim": "a"}],
                "claimValidationRules[0].claim is not a known field",
            ),
        ):
            self.assertRefused(changed(f"jwt.0.{path}", value), why)

    def test_without_the_package(self) -> None:
        """Without a CEL library the start fails and names the package."""
        needs.without(self, PACKAGE)
        fresh = {about: Expressions((about,)) for about in claims._EXPRESSIONS}
        self.patch(claims, "_EXPRESSIONS", fresh)  # nothing is compiled yet
        self.assertRefused(EXPRESSIONS, "need the Python package cel-expr-python")


class IssuersTests(SynchronousTestCase):
    """Tests for :class:`twisted_exec.auth.oidc.configuration.Issuers`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.directory = self.mktemp()
        os.makedirs(self.directory)

    def test_nothing(self) -> None:
        """Without configuration there are no issuers."""
        self.assertFalse(Issuers())
        self.assertEqual(Issuers().reloading(self.clock).load(), ())

    def test_options(self) -> None:
        """The issuer of the options gets its CA from a file, which may change."""
        path = write(self.directory, "ca.crt", authority("serving").certificate_pem)
        issuer = Issuer(URL, ("exec",), MappedClaim("sub"))
        told = Issuers(issuer=issuer, ca_file=path).reloading(self.clock)
        self.assertEqual(told.load()[0].ca_pem, authority("serving").certificate_pem)
        write(self.directory, "ca.crt", authority("users").certificate_pem)
        self.clock.advance(2)
        self.assertEqual(told.get()[0].ca_pem, authority("users").certificate_pem)
        self.assertEqual(Issuers(issuer=issuer).reloading(self.clock).load(), (issuer,))

    def test_own_name(self) -> None:
        """No provider may issue tokens in the name of this server."""
        path = write(self.directory, "auth.yaml", json.dumps(SMALLEST).encode())
        for told in (
            Issuers(configuration=path),
            Issuers(issuer=Issuer(URL, ("a",), MappedClaim("b"))),
        ):
            with self.assertRaises(TLSConfigError) as caught:
                told.reloading(self.clock, ["other", URL]).load()
            self.assertIn(f"{URL!r} is this server itself", str(caught.exception))
            self.assertEqual(len(told.reloading(self.clock, ["other"]).load()), 1)

    def test_bad_ca(self) -> None:
        """An invalid CA file is an error at start."""
        path = write(self.directory, "ca.crt", b"nothing")
        told = Issuers(issuer=Issuer(URL, ("exec",), MappedClaim("sub")), ca_file=path)
        with self.assertRaises(TLSConfigError) as caught:
            told.reloading(self.clock).load()
        self.assertIn("CA of the identity provider", str(caught.exception))

    def test_file(self) -> None:
        """A configuration is read again when it changes; a broken one leaves the last in force."""
        path = write(self.directory, "auth.yaml", WHOLE)
        told = Issuers(configuration=path).reloading(self.clock)
        self.assertEqual(len(told.load()), 2)
        write(self.directory, "auth.yaml", json.dumps(SMALLEST).encode())
        self.clock.advance(2)
        self.assertEqual(len(told.get()), 1)
        write(self.directory, "auth.yaml", b"{")
        self.clock.advance(2)
        self.assertEqual(len(told.get()), 1)

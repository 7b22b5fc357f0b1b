"""
Tests for :mod:`twisted_exec.auth.oidc.claims`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.auth.oidc.support import at_once
from tests.program.memory_processes import MemoryReactor
from twisted_exec.auth.expressions import WAITING_OF_USER, Evaluator, TooManyEvaluations
from twisted_exec.auth.jwt import InvalidToken
from twisted_exec.auth.oidc.claims import (
    Expression,
    Issuer,
    MappedClaim,
    ValidationRule,
    checked_url,
)
from twisted_exec.program.job_processes import PROCESSES

URL = "https://issuer.example"
CLAIMS: dict[str, Any] = {"sub": "jane", "n": 5, "roles": ["a", "b"], "deep": {"x": None}}


def claims(text: str) -> Expression:
    return Expression(text, "the.field")


class ExpressionTests(SynchronousTestCase):
    """Tests for :class:`Expression` and :class:`ValidationRule`."""

    def setUp(self) -> None:
        self.reactor = MemoryReactor()
        self.evaluator = Evaluator(self.reactor, lambda: ["evaluator"])

    def value(self, expression: Expression, of: dict[str, Any]) -> Any:
        return at_once(expression.value(of, self.evaluator, "jane"))

    def confirm(self, rule: ValidationRule) -> None:
        at_once(rule.confirm(CLAIMS, self.evaluator, "jane"))

    def test_value(self) -> None:
        """Expressions return JSON values."""
        for text, expected in (
            ("claims.sub", "jane"),
            ("'x:' + claims.sub", "x:jane"),
            ("claims.roles.map(each, 'g:' + each)", ["g:a", "g:b"]),
            ("claims.?missing.orValue('none')", "none"),
            ("claims.n > 4 && has(claims.deep)", True),
            ("claims.deep.x", None),
        ):
            self.assertEqual(self.value(claims(text), CLAIMS), expected, text)

    def test_no_value(self) -> None:
        """A failed evaluation is reported by field, without any part of the claims."""
        secret = {**CLAIMS, "canary": "canary"}
        for text in ("claims.canary.x", "claims.missing", "claims.canary + 1", "claims.n / 0"):
            with self.assertRaises(InvalidToken) as caught:
                self.value(claims(text), secret)
            self.assertEqual(str(caught.exception), "the.field cannot be evaluated about it")

    def test_bounded(self) -> None:
        """An evaluation that may cost much is done elsewhere; one that costs too much has no value."""
        long = {"l": list(range(2000)), "p": ["a"]}
        for text in (
            "claims.l.all(a, claims.l.all(b, claims.l.all(c, true)))",
            "claims.p.exists(p, claims.sub.matches(p))",
        ):
            value = Deferred.fromCoroutine(claims(text).value(long, self.evaluator, "jane"))
            self.assertNoResult(value)
            self.reactor.processes[-1].ends()
            why = self.failureResultOf(value, InvalidToken).value
            self.assertEqual(str(why), "the.field cannot be evaluated about it")

    def test_many(self) -> None:
        """Beyond the limit of costly ones a token cannot be verified now."""
        costly = claims("claims.sub.matches(claims.sub)")
        for _ in range(PROCESSES + WAITING_OF_USER):
            Deferred.fromCoroutine(costly.value(CLAIMS, self.evaluator, "jane"))
        with self.assertRaises(TooManyEvaluations):
            self.value(costly, CLAIMS)

    def test_rules(self) -> None:
        """A rule passes only if it is true; a truthy value is refused."""
        self.confirm(ValidationRule(claims("claims.sub == 'jane'")))
        for text in ("claims.sub == 'joe'", "claims.n", "claims.sub", "null", "claims.missing"):
            with self.assertRaises(InvalidToken):
                self.confirm(ValidationRule(claims(text)))
        with self.assertRaises(InvalidToken) as caught:
            self.confirm(ValidationRule(claims("false"), "come back tomorrow"))
        self.assertEqual(str(caught.exception), "come back tomorrow")


class CheckedURLTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.oidc.claims.checked_url`."""

    def test_good(self) -> None:
        """A URL with https is accepted, with or without a port and a path."""
        for url in (URL, f"{URL}/", f"{URL}:8443/realms/a", "https://[::1]:1/x"):
            self.assertEqual(checked_url(url), url)
        self.assertEqual(checked_url(f"{URL}/keys?p=1", query=True), f"{URL}/keys?p=1")

    def test_bad(self) -> None:
        """Any other URL is refused with a reason."""
        for url, why in (
            (None, "is no URL"),
            ("", "is no URL"),
            (f"{URL}/{'x' * 3000}", "is longer than 2048 characters"),
            ("issuer.example", "does not begin with https://"),
            ("http://issuer.example", "does not begin with https://"),
            ("HTTPS://issuer.example", "does not begin with https://"),
            ("file:///etc/passwd", "does not begin with https://"),
            ("https://", "has no host"),
            ("https://x:0", "no valid port"),
            ("https://x:99999", "no valid port"),
            ("https://[::1", "has no host"),
            ("https://user:secret@x", "has a user"),
            (f"{URL}?a=1", "a query"),
            (f"{URL}#a", "a fragment"),
            ("https://x/\r\nHost: y", "characters that no URL has"),
            ("https://x/ y", "characters that no URL has"),
            ("https://x\\@y", "characters that no URL has"),
            ("https://bücher.example", "characters that no URL has"),
        ):
            with self.assertRaises(ValueError) as caught:
                checked_url(url)
            self.assertIn(why, str(caught.exception))


class IssuerTests(SynchronousTestCase):
    """Tests for :class:`Issuer`."""

    def issuer(self, url: str = URL, discovery_url: str = "") -> Issuer:
        return Issuer(url, ("exec",), MappedClaim("sub"), discovery_url=discovery_url)

    def test_discovery(self) -> None:
        """The discovery document is below the issuer's URL, unless configured otherwise."""
        place = f"{URL}/.well-known/openid-configuration"
        self.assertEqual(self.issuer().discovery, place)
        self.assertEqual(self.issuer(url=f"{URL}/").discovery, place)
        self.assertEqual(
            self.issuer(discovery_url="https://other.example/d").discovery[8:13], "other"
        )

"""
Tests for :mod:`twisted_exec.auth.oidc.claims`, and for users that expressions make.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.auth.oidc.support import at_once, user_of
from tests.program.memory_processes import MemoryReactor
from twisted_exec.auth.expressions import WAITING_OF_USER, Evaluator, TooManyEvaluations
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jwt import InvalidToken
from twisted_exec.auth.oidc.claims import USER, Expression, Issuer, ValidationRule
from twisted_exec.program.job_processes import PROCESSES

CLAIMS: dict[str, Any] = {"sub": "jane", "n": 5, "roles": ["a", "b"], "deep": {"x": None}}


def claims(text: str) -> Expression:
    return Expression(text, "the.field")


class _WithEvaluator(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactor()
        self.evaluator = Evaluator(self.reactor, lambda: ["evaluator"])

    def value(self, expression: Expression, of: dict[str, Any]) -> Any:
        return at_once(expression.value(of, self.evaluator, "jane"))

    def confirm(self, rule: ValidationRule) -> None:
        at_once(rule.confirm(CLAIMS, self.evaluator, "jane"))


class ExpressionTests(_WithEvaluator):
    """Tests for :class:`Expression` and :class:`ValidationRule`."""

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


class UserTests(_WithEvaluator):
    """Users that expressions make."""

    def user(self, username: str = "claims.sub", **more: Any) -> User:
        issuer = Issuer("https://issuer.example", ("exec",), claims(username), **more)
        return user_of(CLAIMS, issuer)

    def assertRefused(self, why: str, **more: Any) -> None:
        with self.assertRaises(InvalidToken) as caught:
            self.user(**more)
        self.assertIn(why, str(caught.exception))

    def test_all(self) -> None:
        """Name, groups, uid, and extras, of which what is empty is left out."""
        extra = (
            ("a.b/list", claims("claims.roles")),
            ("a.b/text", claims("claims.sub")),
            ("a.b/empty", claims("['', '']")),
            ("a.b/none", claims("claims.deep.x")),
        )
        user = self.user(groups=claims("claims.roles"), uid=claims("claims.sub"), extra=extra)
        self.assertEqual(
            user,
            User(
                "jane",
                ("a", "b", "system:authenticated"),
                "jane",
                {"a.b/list": ("a", "b"), "a.b/text": ("jane",)},
            ),
        )

    def test_wrong_types(self) -> None:
        """A name must be a string."""
        self.assertRefused("the.field is no text", username="claims.n")
        self.assertRefused("the.field is no text", username="''")
        self.assertRefused("the.field is neither", groups=claims("[1]"))
        self.assertRefused("the.field is no text", uid=claims("claims.n"))
        self.assertRefused("the.field is neither", extra=(("a.b/c", claims("claims.n")),))

    def test_not_a_name(self) -> None:
        """Expressions cannot produce reserved names, nor characters that no header can carry."""
        self.assertRefused("begins with system:", username="'system:' + claims.sub")
        self.assertRefused("begins with system:", groups=claims("['system:masters']"))
        self.assertRefused("characters", username="claims.sub + '\\n'")
        self.assertRefused("characters", extra=(("a.b/c", claims("'x\\ny'")),))

    def test_user_rules(self) -> None:
        """A user rule sees the whole resulting user."""

        def rule(text: str) -> tuple[ValidationRule, ...]:
            return (ValidationRule(Expression(text, "the.rule", USER)),)

        more = {"groups": claims("claims.roles"), "extra": (("a.b/c", claims("claims.sub")),)}
        good = "user.username == 'jane' && user.groups == ['a', 'b'] && user.uid == ''"
        self.user(user_rules=rule(f"{good} && user.extra['a.b/c'] == ['jane']"), **more)
        self.assertRefused(
            "the.rule is not true of it", user_rules=rule("user.groups == []"), **more
        )

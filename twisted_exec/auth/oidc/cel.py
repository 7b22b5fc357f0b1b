"""
CEL expressions of an AuthenticationConfiguration: mapping and validation of claims.

A malformed expression is reported when the configuration is read.  If an evaluation fails, or costs
too much (:mod:`twisted_exec.auth.expressions`), the token is invalid; the library's message is
dropped, as it quotes claims.  Source: ``k8s.io/apiserver/pkg/authentication/cel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.auth.expressions.evaluator import Evaluator, TooManyEvaluations
from twisted_exec.auth.expressions.language import EvaluationFailed, Expressions, Missing
from twisted_exec.auth.jose.jwt import InvalidToken
from twisted_exec.program.libraries import install

CLAIMS, USER = "claims", "user"
"""The variable of an expression: one of them."""

_EXPRESSIONS = {about: Expressions((about,)) for about in (CLAIMS, USER)}
_MISSING = (
    "CEL expressions need the Python package cel-expr-python, which is not installed here: "
    + install("cel-expr-python")
)


@dataclass(frozen=True)
class Expression:
    """
    A CEL expression.

    :param field: its field in the configuration, for messages.
    :param about: its variable: :data:`CLAIMS` or :data:`USER`.
    """

    text: str
    field: str
    about: str = CLAIMS

    def check(self) -> None:
        """:raises ValueError: the expression does not compile; one line."""
        try:
            _EXPRESSIONS[self.about].check(self.text)
        except Missing:
            raise ValueError(_MISSING) from None
        except EvaluationFailed as error:
            raise ValueError(" ".join(str(error).split())[:200]) from None

    async def value(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> Any:
        """
        Evaluate to a JSON value.

        :param of: the claims, or the user.
        :param subject: whose token it is.
        :raises InvalidToken: the evaluation fails.
        """
        values = {self.about: dict(of)}
        try:
            return await evaluator.value(_EXPRESSIONS[self.about], self.text, values, subject)
        except (EvaluationFailed, Missing):
            raise InvalidToken(f"{self.field} cannot be evaluated about it") from None
        except TooManyEvaluations as problem:
            raise InvalidToken(f"{self.field} cannot be evaluated now: {problem}") from None


@dataclass(frozen=True)
class Rule:
    """A condition; ``message`` is logged when it is false."""

    expression: Expression
    message: str = ""

    async def confirm(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> None:
        """:raises InvalidToken: the condition is false."""
        if await self.expression.value(of, evaluator, subject) is not True:
            raise InvalidToken(self.message or f"{self.expression.field} is not true of it")

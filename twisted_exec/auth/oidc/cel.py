"""
CEL expressions of an AuthenticationConfiguration: mapping and validation of claims.

The evaluator is cel-cpp (the Python package ``cel-expr-python``), which limits the iterations of
loops.  A malformed expression is reported when the configuration is read.  If an evaluation fails
the token is invalid; the library's message is dropped, as it quotes claims.  Source:
``k8s.io/apiserver/pkg/authentication/cel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from twisted_exec.auth.jose.jwt import InvalidToken

CLAIMS, USER = "claims", "user"
"""The variable of an expression: one of them."""

_KEPT = 1024
_MISSING = (
    "CEL expressions need the Python package cel-expr-python, which is not installed here "
    "(twisted-exec[policies])"
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
        _compiled(self.text, self.about)

    def value(self, of: Mapping[str, Any]) -> Any:
        """
        Evaluate to a JSON value.

        :param of: the claims, or the user.
        :raises InvalidToken: the evaluation fails.
        """
        try:
            result = _compiled(self.text, self.about).eval(data={self.about: dict(of)})
            plain, failed = result.plain_value(), str(result.type()) == "ERROR"
        except Exception:  # the library's C++ raises various types
            failed, plain = True, None
        if failed:
            raise InvalidToken(f"{self.field} cannot be evaluated about it")
        return plain


@dataclass(frozen=True)
class Rule:
    """A condition; ``message`` is logged when it is false."""

    expression: Expression
    message: str = ""

    def confirm(self, of: Mapping[str, Any]) -> None:
        """:raises InvalidToken: the condition is false."""
        if self.expression.value(of) is not True:
            raise InvalidToken(self.message or f"{self.expression.field} is not true of it")


@lru_cache(_KEPT)
def _compiled(text: str, about: str) -> Any:
    environment = _environment(about)
    try:
        return environment.compile(text)
    except Exception as error:  # as above
        raise ValueError(" ".join(str(error).split())[:200]) from None


def _environment(about: str) -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError:
        raise ValueError(_MISSING) from None
    return cel.NewEnv(
        variables={about: cel.Type.DYN},
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
    )

"""
Expressions in an AuthenticationConfiguration: from claims to names, and who is let in at all.

The language is CEL, evaluated by cel-cpp (the Python package ``cel-expr-python``), which bounds the
rounds of an expression's loops.  What is wrong with an expression is told when it is read; what
cannot be evaluated about a token makes that token nobody's, and is told without the library's words:
they quote claims.  Source: ``k8s.io/apiserver/pkg/authentication/cel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from twisted_exec.auth.jose.jwt import InvalidToken

CLAIMS, USER = "claims", "user"
"""What an expression may name: one of them."""

_KEPT = 1024
_MISSING = (
    "CEL expressions need the Python package cel-expr-python, which is not installed here "
    "(twisted-exec[policies])"
)


@dataclass(frozen=True)
class Expression:
    """
    An expression that can be evaluated.

    :param field: where it stands, for messages.
    :param about: :data:`CLAIMS` or :data:`USER`.
    """

    text: str
    field: str
    about: str = CLAIMS

    def check(self) -> None:
        """:raises ValueError: it cannot be evaluated, ever; one line."""
        _compiled(self.text, self.about)

    def value(self, of: Mapping[str, Any]) -> Any:
        """
        Its value, as JSON has it.

        :param of: the claims, or the user.
        :raises InvalidToken: it has none for these.
        """
        try:
            found = _compiled(self.text, self.about).eval(data={self.about: dict(of)})
            plain, failed = found.plain_value(), str(found.type()) == "ERROR"
        except Exception:  # whatever the library's C++ finds to say
            failed, plain = True, None
        if failed:
            raise InvalidToken(f"{self.field} cannot be evaluated about it")
        return plain


@dataclass(frozen=True)
class Rule:
    """What must be true; ``message`` is told to the log otherwise."""

    expression: Expression
    message: str = ""

    def confirm(self, of: Mapping[str, Any]) -> None:
        """:raises InvalidToken: it is not true."""
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

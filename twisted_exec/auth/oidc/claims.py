"""
OIDC issuers with their checked URLs, and which of their tokens' claims become a user.

Distributed claims (``_claim_names``) are not fetched: a token could name any URL.

Source of the CEL expressions: ``k8s.io/apiserver/pkg/authentication/cel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.auth.cel import EvaluationFailed, Expressions, Missing
from twisted_exec.auth.expressions import Evaluator
from twisted_exec.auth.jwt import InvalidToken
from twisted_exec.auth.jwt_keys import ALGORITHMS
from twisted_exec.program.libraries import install

CLAIMS, USER = "claims", "user"
"""The possible variables of an expression."""

_EXPRESSIONS = {about: Expressions((about,)) for about in (CLAIMS, USER)}
_MISSING_LIBRARY = (
    "CEL expressions need the Python package cel-expr-python, which is not installed here: "
    + install("cel-expr-python")
)

_MOST_URL_CHARACTERS = 2048


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
        """
        Check that the expression compiles.

        :raises ValueError: it does not compile, or the library is missing; the message is one line.
        """
        try:
            _EXPRESSIONS[self.about].check(self.text)
        except Missing:
            raise ValueError(_MISSING_LIBRARY) from None
        except EvaluationFailed as error:
            raise ValueError(" ".join(str(error).split())[:200]) from None

    async def value(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> Any:
        """
        Return the value, as :meth:`.Evaluator.value` does.

        :param subject: counts in the evaluator as the sender of the values.
        :raises InvalidToken: the evaluation fails.
        :raises TooManyEvaluations: it cannot be evaluated now.
        """
        values = {self.about: dict(of)}
        try:
            return await evaluator.value(_EXPRESSIONS[self.about], self.text, values, subject)
        except (EvaluationFailed, Missing):
            raise InvalidToken(f"{self.field} cannot be evaluated about it") from None


@dataclass(frozen=True)
class ValidationRule:
    """A condition on claims or on the user; ``message`` is logged when it is false."""

    expression: Expression
    message: str = ""

    async def confirm(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> None:
        """
        Check that the condition is true.

        :raises InvalidToken: the condition is false, or cannot be evaluated.
        """
        if await self.expression.value(of, evaluator, subject) is not True:
            raise InvalidToken(self.message or f"{self.expression.field} is not true of it")


@dataclass(frozen=True)
class MappedClaim:
    """A claim whose value, with ``prefix`` before it, becomes a name."""

    name: str
    prefix: str = ""


@dataclass(frozen=True)
class Issuer:
    """
    One issuer of tokens, and the mapping of its claims.

    :param url: exactly the ``iss`` of its tokens; https.
    :param username: a claim or an expression with a string.
    :param groups: a claim or an expression with a string or a list of strings.
    :param uid: a claim or an expression with a string; empty for none.
    :param extra: keys, each with an expression that has a string or a list of strings.
    :param required: claims, each with the value that it must have.
    :param ca_pem: CA of its server's certificate; empty for the system's CAs.
    """

    url: str
    audiences: tuple[str, ...]
    username: MappedClaim | Expression
    groups: MappedClaim | Expression | None = None
    uid: str | Expression = ""
    extra: tuple[tuple[str, Expression], ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[ValidationRule, ...] = ()
    user_rules: tuple[ValidationRule, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    ca_pem: bytes = b""
    discovery_url: str = ""

    @property
    def discovery(self) -> str:
        """URL of the issuer's discovery document.  Source: OpenID Connect Discovery 1.0 §4."""
        return (
            self.discovery_url or f"{self.url.removesuffix('/')}/.well-known/openid-configuration"
        )


def checked_url(text: object, *, query: bool = False) -> str:
    """
    Return the https URL of a server.

    :param query: accept a query.
    :raises ValueError: ``text`` is not acceptable; the message says why, without the URL.
    """
    if not isinstance(text, str) or not text:
        raise ValueError("is no URL")
    if len(text) > _MOST_URL_CHARACTERS:
        raise ValueError(f"is longer than {_MOST_URL_CHARACTERS} characters")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("has characters that no URL has")
    if not text.startswith("https://"):
        raise ValueError("does not begin with https://")
    try:
        url = urlsplit(text)
        usable = bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("has no host, or no valid port")
    if "@" in url.netloc or "#" in text or ("?" in text and not query):
        raise ValueError("has a user, a query or a fragment")
    return text

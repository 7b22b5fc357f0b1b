"""
The user of an ID token: an issuer's mapping of claims.

Distributed claims (``_claim_names``) are not fetched: a token could name any URL. Unlike in
Kubernetes, no token gives a reserved name (``system:...``, ``DOMAIN:system:...``), as
``system:masters`` bypasses RBAC.

Sources: ``k8s.io/apiserver/plugin/pkg/authenticator/token/oidc``, and for CEL expressions
``k8s.io/apiserver/pkg/authentication/cel``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.cel import EvaluationFailed, Expressions, Missing
from twisted_exec.auth.expressions import Evaluator
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jwt import InvalidToken, moment_of
from twisted_exec.auth.jwt_keys import ALGORITHMS
from twisted_exec.auth.x509 import CREDENTIAL_ID
from twisted_exec.program.libraries import install

CLAIMS, USER = "claims", "user"
"""The possible variables of an expression."""

_EXPRESSIONS = {about: Expressions((about,)) for about in (CLAIMS, USER)}
_MISSING = (
    "CEL expressions need the Python package cel-expr-python, which is not installed here: "
    + install("cel-expr-python")
)

_LIMIT_URL = 2048
_LIMIT_ID = 256
_RESERVED = "system:"
_COMPONENT = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+:system:", re.IGNORECASE)


@dataclass(frozen=True)
class Expression:
    """
    A CEL expression.

    :param field: its field in the configuration, for messages.
    :param about: its variable.
    """

    text: str
    field: str
    about: str = CLAIMS

    def check(self) -> None:
        """
        Check that the expression compiles.

        :raises ValueError: it does not, or the library is missing; the message is one line.
        """
        try:
            _EXPRESSIONS[self.about].check(self.text)
        except Missing:
            raise ValueError(_MISSING) from None
        except EvaluationFailed as error:
            raise ValueError(" ".join(str(error).split())[:200]) from None

    async def value(self, of: Mapping[str, Any], evaluator: Evaluator, subject: str) -> Any:
        """
        Return the value, as :meth:`.Evaluator.value` does.

        :param subject: whose token it is.
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
    """A condition; ``message`` is logged when it is false."""

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
    :param groups: likewise, with a string or a list of strings.
    :param uid: likewise, with a string; empty for none.
    :param extra: by key, each a string or a list of strings.
    :param required: claims that must have these values.
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
    Check the https URL of a server.

    :param query: it may have a query.
    :raises ValueError: the reason why it is not acceptable.
    """
    if not isinstance(text, str) or not text:
        raise ValueError("is no URL")
    if len(text) > _LIMIT_URL:
        raise ValueError(f"is longer than {_LIMIT_URL} characters")
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


async def user_of(claims: Mapping[str, Any], issuer: Issuer, evaluator: Evaluator) -> User:
    """
    Map verified claims to a user.

    :raises InvalidToken: they name no valid user, or a rule does not hold.
    """
    token = _Claims(claims, f"{issuer.url} {claims.get('sub')}", evaluator)
    for name, value in issuer.required:
        if claims.get(name) != value:
            raise InvalidToken(f"its claim {name} has not the required value")
    for rule in issuer.claim_rules:
        await rule.confirm(claims, evaluator, token.subject)
    username = issuer.username
    by_email = isinstance(username, MappedClaim) and username.name == "email"
    if by_email and claims.get("email_verified", True) is not True:
        raise InvalidToken("its email is not verified")
    name = _name(await token.text(username), username)
    groups = [_name(each, issuer.groups) for each in await token.texts(issuer.groups) if each]
    uid = await token.text(MappedClaim(issuer.uid) if isinstance(issuer.uid, str) else issuer.uid)
    extra = {key: _printable(await token.texts(each), each) for key, each in issuer.extra}
    extra = {key: values for key, values in extra.items() if values}
    user_info = {"username": name, "uid": uid, "groups": groups, "extra": _lists(extra)}
    for rule in issuer.user_rules:
        await rule.confirm(user_info, evaluator, token.subject)
    expires = moment_of(claims, "exp") if "exp" in claims else math.inf
    extra |= _credential(claims)
    return User(name, with_authenticated(name, groups), uid, extra, expires=expires)


_Source = MappedClaim | Expression | None


def _source_text(source: _Source) -> str:
    return (
        f"its claim {source.name}"
        if isinstance(source, MappedClaim)
        else getattr(source, "field", "")
    )


@dataclass(frozen=True)
class _Claims:
    claims: Mapping[str, Any]
    subject: str
    evaluator: Evaluator

    async def value(self, source: _Source) -> Any:
        if isinstance(source, Expression):
            return await source.value(self.claims, self.evaluator, self.subject)
        return self.claims.get(source.name) if source is not None else None

    async def text(self, source: _Source) -> str:
        if source == MappedClaim(""):
            return ""
        value = await self.value(source)
        if not isinstance(value, str) or not value:
            raise InvalidToken(f"{_source_text(source)} is no text")
        return value

    async def texts(self, source: _Source) -> list[str]:
        value = await self.value(source)
        value = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidToken(f"{_source_text(source)} is neither a text nor a list of them")
        return value


def _name(value: str, source: _Source) -> str:
    """Check the name of a user or group, which every hop must be able to forward."""
    (name,) = _printable([value], source)
    name = source.prefix + name if isinstance(source, MappedClaim) else name
    if name != name.strip():
        raise InvalidToken(f"{_source_text(source)} has characters that no name has")
    if name.startswith(_RESERVED):
        raise InvalidToken(f"{_source_text(source)} has a name that begins with {_RESERVED}")
    if _COMPONENT.match(name):
        raise InvalidToken(f"{_source_text(source)} has a name that is a poollet's")
    return name


def _printable(values: Sequence[str], source: _Source) -> tuple[str, ...]:
    if not all(each.isprintable() for each in values):
        raise InvalidToken(f"{_source_text(source)} has characters that no name has")
    return tuple(each for each in values if each)


def _lists(extra: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {key: list(values) for key, values in extra.items()}


def _credential(claims: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The token's id, for the record; an id with odd characters is dropped, not refused."""
    token_id = claims.get("jti")
    if (
        not isinstance(token_id, str)
        or not token_id.isprintable()
        or not 0 < len(token_id) <= _LIMIT_ID
    ):
        return {}
    return {CREDENTIAL_ID: (f"JTI={token_id}",)}

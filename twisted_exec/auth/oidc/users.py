"""
The user of an ID token: the issuer's mapping, applied to verified claims.

Unlike in Kubernetes, no token gives a reserved name (``system:...``, ``DOMAIN:system:...``), as
``system:masters`` bypasses RBAC.

Source: ``k8s.io/apiserver/plugin/pkg/authenticator/token/oidc``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.expressions import Evaluator
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jwt import InvalidToken
from twisted_exec.auth.oidc.claims import Expression, Issuer, MappedClaim
from twisted_exec.auth.x509 import CREDENTIAL_ID

_MOST_ID_CHARACTERS = 256
_RESERVED = "system:"
_POOLLET = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+:system:", re.IGNORECASE)
"""Begins the names of poollets: ``DOMAIN:system:...``."""

_Source = MappedClaim | Expression | None


async def user_of(claims: Mapping[str, Any], issuer: Issuer, evaluator: Evaluator) -> User:
    """
    Map verified claims to a user.

    :raises InvalidToken: the claims name no valid user, or a rule does not hold.
    """
    token = _Token(claims, f"{issuer.url} {claims.get('sub')}", evaluator)
    for name, value in issuer.required:
        if claims.get(name) != value:
            raise InvalidToken(f"its claim {name} has not the required value")
    for rule in issuer.claim_rules:
        await rule.confirm(claims, evaluator, token.subject)
    username = issuer.username
    by_email = isinstance(username, MappedClaim) and username.name == "email"
    if by_email and claims.get("email_verified", True) is not True:
        raise InvalidToken("its email is not verified")
    name = _checked_name(await token.text(username), username)
    groups = [
        _checked_name(each, issuer.groups) for each in await token.texts(issuer.groups) if each
    ]
    uid = await token.text(MappedClaim(issuer.uid) if isinstance(issuer.uid, str) else issuer.uid)
    extra = {key: _printable(await token.texts(each), each) for key, each in issuer.extra}
    extra = {key: values for key, values in extra.items() if values}
    user_info = {"username": name, "uid": uid, "groups": groups, "extra": _lists(extra)}
    for rule in issuer.user_rules:
        await rule.confirm(user_info, evaluator, token.subject)
    extra |= _credential(claims)
    return User(name, with_authenticated(name, groups), uid, extra)


@dataclass(frozen=True)
class _Token:
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
            raise InvalidToken(f"{_origin_of(source)} is no text")
        return value

    async def texts(self, source: _Source) -> list[str]:
        value = await self.value(source)
        value = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidToken(f"{_origin_of(source)} is neither a text nor a list of them")
        return value


def _origin_of(source: _Source) -> str:
    """Return the origin of a value, for messages."""
    if isinstance(source, MappedClaim):
        return f"its claim {source.name}"
    return source.field if source is not None else ""


def _checked_name(value: str, source: _Source) -> str:
    """Return the name of a user or group, which every hop must be able to forward."""
    (name,) = _printable([value], source)
    name = source.prefix + name if isinstance(source, MappedClaim) else name
    if name != name.strip():
        raise InvalidToken(f"{_origin_of(source)} has characters that no name has")
    if name.startswith(_RESERVED):
        raise InvalidToken(f"{_origin_of(source)} has a name that begins with {_RESERVED}")
    if _POOLLET.match(name):
        raise InvalidToken(f"{_origin_of(source)} has a name that is a poollet's")
    return name


def _printable(values: Sequence[str], source: _Source) -> tuple[str, ...]:
    if not all(each.isprintable() for each in values):
        raise InvalidToken(f"{_origin_of(source)} has characters that no name has")
    return tuple(each for each in values if each)


def _lists(extra: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {key: list(values) for key, values in extra.items()}


def _credential(claims: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the token's id, for audit; an id with unprintable characters is dropped, not refused."""
    token_id = claims.get("jti")
    if (
        not isinstance(token_id, str)
        or not token_id.isprintable()
        or not 0 < len(token_id) <= _MOST_ID_CHARACTERS
    ):
        return {}
    return {CREDENTIAL_ID: (f"JTI={token_id}",)}

"""
OIDC issuers, and the mapping of their tokens' claims to users.

An :class:`Issuer` is one record, whether from kube-apiserver's ``--oidc-`` options or from its
AuthenticationConfiguration (:mod:`.oidc_config`).  :func:`user_of`, from verified claims to a user,
is a function of it.

One rule is stricter than Kubernetes': no token gives a reserved name.  A user or group
``system:...`` from a provider is a mistake or an attack, as ``system:masters`` bypasses RBAC; the
same holds for ``DOMAIN:system:...``, the names of poollets.  Source:
``k8s.io/apiserver/plugin/pkg/authenticator/token/oidc``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.auth.expressions.evaluator import Evaluator
from twisted_exec.auth.groups import with_authenticated
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jose.jwt import InvalidToken, moment_of
from twisted_exec.auth.jose.keys import ALGORITHMS
from twisted_exec.auth.oidc.cel import Expression, Rule
from twisted_exec.auth.x509 import CREDENTIAL_ID

_LIMIT_URL = 2048
_LIMIT_ID = 256
_RESERVED = "system:"
_COMPONENT = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+:system:", re.IGNORECASE)


@dataclass(frozen=True)
class Claim:
    """A claim whose value, with ``prefix`` before it, becomes a name."""

    name: str
    prefix: str = ""


@dataclass(frozen=True)
class Issuer:
    """
    One issuer of tokens, and the mapping of its claims.

    :param url: exactly the ``iss`` of its tokens; https.
    :param audiences: a token must be for one of them.
    :param username: a claim with a string.
    :param groups: a claim with a string or a list of strings; ``None`` for no groups.
    :param uid: a claim with a string; empty for none.
    :param extra: by key, each a string or a list of strings; empty ones are left out.
    :param required: claims that must have these values.
    :param claim_rules: conditions on the claims.
    :param user_rules: conditions on the resulting user.
    :param algorithms: accepted signature algorithms.
    :param ca_pem: CA of its server's certificate; empty for the system's CAs.
    :param discovery_url: URL of its discovery document, if that is not below ``url``.
    """

    url: str
    audiences: tuple[str, ...]
    username: Claim | Expression
    groups: Claim | Expression | None = None
    uid: str | Expression = ""
    extra: tuple[tuple[str, Expression], ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[Rule, ...] = ()
    user_rules: tuple[Rule, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    ca_pem: bytes = b""
    discovery_url: str = ""

    @property
    def discovery(self) -> str:
        """URL of its discovery document.  Source: OpenID Connect Discovery 1.0 §4."""
        return (
            self.discovery_url or f"{self.url.removesuffix('/')}/.well-known/openid-configuration"
        )


def checked_url(text: object, *, query: bool = False) -> str:
    """
    Check the https URL of a server.

    :param query: it may have a query.
    :raises ValueError: it is not acceptable; the message gives the reason.
    """
    if not isinstance(text, str) or not 0 < len(text) <= _LIMIT_URL:
        raise ValueError("no URL")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("has characters that no URL has")
    try:
        url = urlsplit(text)
        usable = bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("is no URL of a host")
    if url.scheme != "https" or not text.startswith("https://"):
        raise ValueError("does not begin with https://")
    if "@" in url.netloc or "#" in text or ("?" in text and not query):
        raise ValueError("has a user, a query or a fragment")
    return text


async def user_of(claims: Mapping[str, Any], issuer: Issuer, evaluator: Evaluator) -> User:
    """
    Map verified claims to a user.

    :raises InvalidToken: they name no user, or a required claim is missing.
    """
    token = _Claims(claims, f"{issuer.url} {claims.get('sub')}", evaluator)
    for name, value in issuer.required:
        if claims.get(name) != value:
            raise InvalidToken(f"it has not the required claim {name}")
    for rule in issuer.claim_rules:
        await rule.confirm(claims, evaluator, token.subject)
    username = issuer.username
    by_email = isinstance(username, Claim) and username.name == "email"
    if by_email and claims.get("email_verified", True) is not True:
        raise InvalidToken("its email is not verified")
    name = _name(await token.text(username), username)
    groups = [_name(each, issuer.groups) for each in await token.texts(issuer.groups) if each]
    uid = await token.text(Claim(issuer.uid) if isinstance(issuer.uid, str) else issuer.uid)
    extra = {key: _printable(await token.texts(each), each) for key, each in issuer.extra}
    extra = {key: values for key, values in extra.items() if values}
    user_info = {"username": name, "uid": uid, "groups": groups, "extra": _lists(extra)}
    for rule in issuer.user_rules:
        await rule.confirm(user_info, evaluator, token.subject)
    expires = moment_of(claims, "exp") if "exp" in claims else math.inf
    extra |= _credential(claims)
    return User(name, with_authenticated(name, groups), uid, extra, expires=expires)


_Source = Claim | Expression | None


def _told(source: _Source) -> str:
    return f"its claim {source.name}" if isinstance(source, Claim) else getattr(source, "field", "")


@dataclass(frozen=True)
class _Claims:
    """
    The claims of one token.

    :param subject: whose token it is, for turns.
    """

    claims: Mapping[str, Any]
    subject: str
    evaluator: Evaluator

    async def value(self, source: _Source) -> Any:
        if isinstance(source, Expression):
            return await source.value(self.claims, self.evaluator, self.subject)
        return self.claims.get(source.name) if source is not None else None

    async def text(self, source: _Source) -> str:
        if source == Claim(""):
            return ""
        value = await self.value(source)
        if not isinstance(value, str) or not value:
            raise InvalidToken(f"{_told(source)} is no text")
        return value

    async def texts(self, source: _Source) -> list[str]:
        value = await self.value(source)
        value = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidToken(f"{_told(source)} is neither a text nor a list of them")
        return value


def _name(value: str, source: _Source) -> str:
    """Check the name of a user or group, which every hop must be able to forward."""
    (name,) = _printable([value], source)
    name = source.prefix + name if isinstance(source, Claim) else name
    if name != name.strip():
        raise InvalidToken(f"{_told(source)} has characters that no name has")
    if name.startswith(_RESERVED):
        raise InvalidToken(f"{_told(source)} has a name that begins with {_RESERVED}")
    if _COMPONENT.match(name):
        raise InvalidToken(f"{_told(source)} has a name that is a poollet's")
    return name


def _printable(values: Sequence[str], source: _Source) -> tuple[str, ...]:
    if not all(each.isprintable() for each in values):
        raise InvalidToken(f"{_told(source)} has characters that no name has")
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

"""
Which issuers of OIDC tokens are believed, and what becomes of their tokens' claims.

An :class:`Issuer` is one record, whether it comes from kube-apiserver's ``--oidc-`` options or from
its AuthenticationConfiguration (:mod:`.oidc_config`).  From verified claims to a user
(:func:`user_of`) is a pure function of it.

One thing is stricter than there: no token makes anybody of Kubernetes' own names.  A user
or a group ``system:...`` from a provider is a mistake or an attack, as ``system:masters`` may
do everything.  Source: ``k8s.io/apiserver/plugin/pkg/authenticator/token/oidc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.auth.groups import with_authenticated
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.jose import InvalidToken
from twisted_exec.auth.jose_keys import ALGORITHMS
from twisted_exec.auth.x509 import CREDENTIAL_ID

_LIMIT_URL = 2048
_LIMIT_ID = 256
_RESERVED = "system:"


@dataclass(frozen=True)
class Claim:
    """A claim whose value, with ``prefix`` before it, is a name here."""

    name: str
    prefix: str = ""


@dataclass(frozen=True)
class Issuer:
    """
    One issuer of tokens, and how its users are called here.

    :param url: exactly as its tokens have it in ``iss``; https.
    :param audiences: a token must be for one of them.
    :param username: a claim with a string.
    :param groups: a claim with a string or a list of them; ``None`` for no groups.
    :param uid: a claim with a string; empty for none.
    :param required: claims that must have these values.
    :param algorithms: what its tokens may be signed with.
    :param ca_pem: who signs its server's certificate; empty for the system's CAs.
    :param discovery_url: of its discovery document, where that is not beneath ``url``.
    """

    url: str
    audiences: tuple[str, ...]
    username: Claim
    groups: Claim | None = None
    uid: str = ""
    required: tuple[tuple[str, str], ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    ca_pem: bytes = b""
    discovery_url: str = ""

    @property
    def discovery(self) -> str:
        """Where its discovery document is.  Source: OpenID Connect Discovery 1.0 §4."""
        return (
            self.discovery_url or f"{self.url.removesuffix('/')}/.well-known/openid-configuration"
        )


def checked_url(text: object, *, query: bool = False) -> str:
    """
    The https URL of a server that may be asked.

    :param query: it may have one.
    :raises ValueError: it is none; the text says why.
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


def user_of(claims: Mapping[str, Any], issuer: Issuer) -> User:
    """
    The user that verified claims are.

    :raises InvalidToken: they name nobody, or something required is missing.
    """
    for name, value in issuer.required:
        if claims.get(name) != value:
            raise InvalidToken(f"it has not the required claim {name}")
    if issuer.username.name == "email" and claims.get("email_verified", True) is not True:
        raise InvalidToken("its email is not verified")
    name = _named(_text(claims, issuer.username.name), issuer.username)
    uid = _text(claims, issuer.uid) if issuer.uid else ""
    groups = _groups(claims, issuer.groups) if issuer.groups else []
    return User(name, with_authenticated(name, groups), uid=uid, extra=_credential(claims))


def _text(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise InvalidToken(f"its claim {claim} is no text")
    return value


def _named(value: str, claim: Claim) -> str:
    """A user or a group by name, which every hop must be able to forward."""
    name = claim.prefix + value
    if not name.isprintable() or name != name.strip():
        raise InvalidToken(f"its claim {claim.name} has characters that no name has")
    if name.startswith(_RESERVED):
        raise InvalidToken(f"its claim {claim.name} has a name that begins with {_RESERVED}")
    return name


def _groups(claims: Mapping[str, Any], claim: Claim) -> Sequence[str]:
    told = claims.get(claim.name)
    told = [] if told is None else [told] if isinstance(told, str) else told
    if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
        raise InvalidToken(f"its claim {claim.name} is neither a text nor a list of them")
    return [_named(each, claim) for each in told if each]


def _credential(claims: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Which token it was, for the record; an id of odd characters is not worth a refusal."""
    told = claims.get("jti")
    if not isinstance(told, str) or not told.isprintable() or not 0 < len(told) <= _LIMIT_ID:
        return {}
    return {CREDENTIAL_ID: (f"JTI={told}",)}

"""
JSON Web Tokens: whose they are, and that nobody else made them.

The one joint to joserfc.  A library for JOSE can do far more than a server should
ever let a stranger ask for, and that is where the holes of others were: ``alg: none``, a MAC
whose key is somebody's public key, keys that the token itself brings or names
(``jwk``, ``jku``, ``x5u``, ``x5c``), headers that change what is signed (``crit``, ``b64``).  So
the header is read here first, the algorithm comes from a list of ours, and the keys are the
issuer's alone: hints of the token about keys, but for ``kid``, are not looked at.

What is told about a token that is refused (:class:`InvalidToken`) holds nothing of the token, as it
goes to logs.  Sources: RFC 7515, RFC 7519, RFC 8725; ``go-oidc`` and
``k8s.io/kubernetes/pkg/serviceaccount`` for what kube-apiserver takes.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError

from twisted_exec.api import body
from twisted_exec.api.status import APIError
from twisted_exec.auth.jose.keys import ALGORITHMS, SigningKey, VerifyingKey

LONGEST_LEEWAY_SECONDS = 300.0
"""By how much clocks may differ at most; more would give tokens a longer life."""

_LIMIT_BYTES = 32 << 10
_LIMIT_HEADER_BYTES = 4 << 10
# To try one takes up to 4 ms, of everybody's time, and anybody can send a token.
_MOST_TRIED = 20
# The end of year 9999: what comes after is in no calendar.
_LATEST = 253402300799.0
_BASE64URL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class InvalidToken(Exception):
    """A token that counts for nothing.  The text says why, and quotes nothing of it."""


class UnknownKey(InvalidToken):
    """None of the keys is the one that the token names; newer ones may have it."""


@dataclass(frozen=True)
class Claimed:
    """What a token says of itself, verified by nobody: good for choosing who shall verify it."""

    issuer: str
    kid: str
    algorithm: str


class _Registry(jws.JWSRegistry):
    max_header_length = _LIMIT_HEADER_BYTES
    max_payload_length = _LIMIT_BYTES
    max_signature_length = 2 << 10


def claimed(token: bytes) -> Claimed | None:
    """What a token says of itself; ``None`` when it is no JWT, so it is another kind of token."""
    if token.count(b".") != 2 or len(token) > _LIMIT_BYTES:
        return None
    header, payload, _ = token.split(b".")
    try:
        head, claims = _object(header, "header"), _object(payload, "payload")
    except InvalidToken:
        return None
    said = (claims.get("iss"), head.get("kid", ""), head.get("alg"))
    issuer, kid, algorithm = (each if isinstance(each, str) else "" for each in said)
    return Claimed(issuer, kid, algorithm)


def claims_of(
    token: bytes,
    keys: Iterable[VerifyingKey],
    algorithms: Collection[str],
    *,
    issuer: str,
    audiences: Collection[str],
    now: float,
    leeway_seconds: float,
) -> Mapping[str, Any]:
    """
    The claims of a token that is genuine, of this issuer, for one of us, and in its time.

    :param algorithms: of :data:`ALGORITHMS`, one or more.
    :param issuer: must be the token's ``iss``, character by character.
    :param audiences: one of them must be in the token's ``aud``.
    :param now: in seconds since 1970.
    :param leeway_seconds: by how much the issuer's clock may differ, to
        :data:`LONGEST_LEEWAY_SECONDS`.
    :raises UnknownKey: it is signed with a key that is not among ``keys``.
    :raises InvalidToken: it is not all of that.
    """
    if not algorithms or not set(algorithms) <= set(ALGORITHMS):
        raise ValueError(f"algorithms {sorted(algorithms)} are not among {', '.join(ALGORITHMS)}")
    if not 0 <= leeway_seconds <= LONGEST_LEEWAY_SECONDS:
        raise ValueError(f"a leeway of {leeway_seconds} seconds")
    claims = _verified(token, keys, algorithms)
    if claims.get("iss") != issuer:
        raise InvalidToken("its issuer is another")
    if not set(_audiences(claims)) & set(audiences):
        raise InvalidToken("it is for another audience")
    _check_times(claims, now, leeway_seconds)
    return claims


def signed(claims: Mapping[str, Any], key: SigningKey) -> str:
    """A token with these claims, signed."""
    registry = _Registry(algorithms=[key.algorithm])
    header = {"alg": key.algorithm, "kid": key.public.kid}
    payload = json.dumps(claims, separators=(",", ":"))
    return jws.serialize_compact(header, payload, key.key, registry=registry)


def _verified(
    token: bytes, keys: Iterable[VerifyingKey], algorithms: Collection[str]
) -> dict[str, Any]:
    if len(token) > _LIMIT_BYTES:
        raise InvalidToken(f"it is longer than {_LIMIT_BYTES >> 10} KiB")
    if token.count(b".") != 2:
        raise InvalidToken("it is no JWT of three parts")
    header = _object(token.partition(b".")[0], "header")
    algorithm, kid = _checked(header, algorithms)
    candidates = [key for key in keys if not kid or key.kid == kid]
    if len(candidates) > _MOST_TRIED:
        raise InvalidToken("it does not say which of many keys has signed it")
    for candidate in candidates:
        if algorithm in candidate.algorithms and _is_signed(token, candidate, algorithm):
            return _object(token.split(b".")[1], "payload")
    if not kid or not candidates:
        raise UnknownKey("no key of the issuer has signed it")
    raise InvalidToken("its signature is wrong")


def _checked(header: Mapping[str, Any], algorithms: Collection[str]) -> tuple[str, str]:
    """The algorithm and the key's id of a header that asks for nothing special."""
    algorithm, kid = header.get("alg"), header.get("kid", "")
    if "crit" in header or "b64" in header:
        raise InvalidToken("its header asks for extensions that are not taken")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise InvalidToken(f"its algorithm is not one of {', '.join(sorted(algorithms))}")
    if not isinstance(kid, str):
        raise InvalidToken("its kid is no string")
    return algorithm, kid


def _is_signed(token: bytes, key: VerifyingKey, algorithm: str) -> bool:
    # What an issuer adds to a header for others ("x5t", "pi.atm") is no reason to refuse.
    registry = _Registry(algorithms=[algorithm], strict_check_header=False)
    try:
        jws.deserialize_compact(token, key.key, registry=registry)
    except (JoseError, ValueError, TypeError):
        return False
    return True


def _object(part: bytes, what: str) -> dict[str, Any]:
    """The JSON object of a part.  With a key twice, readers would differ about it."""
    doubled: list[str] = []
    limit = _LIMIT_HEADER_BYTES if what == "header" else _LIMIT_BYTES
    try:
        if len(part) > limit or not _BASE64URL.issuperset(part):
            raise ValueError
        text = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
        found = body.decode("application/json", text, doubled)
    except (APIError, ValueError):
        raise InvalidToken(f"its {what} is not a JSON object in base64url") from None
    if doubled:
        raise InvalidToken(f"its {what} has a key more than once")
    return found


def _audiences(claims: Mapping[str, Any]) -> list[str]:
    told = claims.get("aud")
    told = [told] if isinstance(told, str) else told
    if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
        raise InvalidToken("its audience is neither a string nor a list of them")
    return told


def _check_times(claims: Mapping[str, Any], now: float, leeway_seconds: float) -> None:
    rules: dict[str, tuple[Callable[[float], bool], str]] = {
        "exp": (lambda moment: now < moment + leeway_seconds, "it has expired"),
        "nbf": (lambda moment: now >= moment - leeway_seconds, "it is not valid yet"),
        "iat": (lambda moment: now >= moment - leeway_seconds, "it was issued in the future"),
    }
    if "exp" not in claims:
        raise InvalidToken("it never expires")
    for name, (holds, otherwise) in rules.items():
        if name in claims and not holds(moment_of(claims, name)):
            raise InvalidToken(otherwise)


def moment_of(claims: Mapping[str, Any], name: str) -> float:
    """
    A claim that is a moment, in seconds since 1970.

    :raises InvalidToken: it is there no number, or beyond any calendar.
    """
    moment = claims.get(name)
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise InvalidToken(f"its {name} is not a number")
    if not math.isfinite(moment) or not 0 <= moment <= _LATEST:
        raise InvalidToken(f"its {name} is in no calendar")
    return float(moment)

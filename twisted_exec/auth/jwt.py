"""
JSON Web Tokens, signed and verified.

Tokens come from anyone. So only our algorithms and the issuer's keys count: of a token's hints
about keys only ``kid`` is used, and a header that changes what is signed (``crit``, ``b64``) is
refused.

The reason of a refusal (:class:`InvalidToken`) contains nothing of the token, as it is logged.

Sources: RFC 7515, RFC 7519, RFC 8725; ``go-oidc`` and ``k8s.io/kubernetes/pkg/serviceaccount`` for
kube-apiserver's rules.
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

from twisted_exec.api import bodies
from twisted_exec.api.status import APIError
from twisted_exec.auth.jwt_keys import ALGORITHMS, SigningKey, VerifyingKey

LONGEST_LEEWAY_SECONDS = 300.0
"""Largest tolerance for clock skew; more would extend the life of tokens."""

_LIMIT_BYTES = 32 << 10
_LIMIT_HEADER_BYTES = 4 << 10
# Each attempt blocks the reactor for up to 4 ms, and any client can send a token.
_MOST_TRIED = 20
# The end of year 9999, the latest time that datetime can represent.
_LATEST = 253402300799.0
_BASE64URL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class InvalidToken(Exception):
    """A token is not valid. The message quotes nothing of the token."""


class UnknownKey(InvalidToken):
    """The key that has signed the token may be missing among the known keys."""


@dataclass(frozen=True)
class Claimed:
    """Unverified claims, for choosing the verifier."""

    issuer: str
    kid: str
    algorithm: str
    expires: float = math.inf


class _Registry(jws.JWSRegistry):
    max_header_length = _LIMIT_HEADER_BYTES
    max_payload_length = _LIMIT_BYTES
    max_signature_length = 2 << 10


def claimed(token: bytes) -> Claimed | None:
    """Return a token's unverified claims; ``None`` if it cannot be read as a JWT."""
    if token.count(b".") != 2 or len(token) > _LIMIT_BYTES:
        return None
    header, payload, _ = token.split(b".")
    try:
        head, claims = _object(header, "header"), _object(payload, "payload")
    except InvalidToken:
        return None
    values = (claims.get("iss"), head.get("kid", ""), head.get("alg"))
    issuer, kid, algorithm = (each if isinstance(each, str) else "" for each in values)
    try:
        expires = moment_of(claims, "exp")
    except InvalidToken:
        expires = math.inf
    return Claimed(issuer, kid, algorithm, expires)


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
    Return the claims of a token after verifying signature, issuer, audience and times.

    :param audiences: one of them must be in the token's ``aud``.
    :param now: in seconds since 1970.
    :raises UnknownKey: the key that has signed it may be missing among ``keys``.
    :raises InvalidToken: another check fails.
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
    """Return a signed token with these claims."""
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
    algorithm, kid = header.get("alg"), header.get("kid", "")
    if "crit" in header or "b64" in header:
        raise InvalidToken("its header asks for extensions that are not taken")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise InvalidToken(f"its algorithm is not one of {', '.join(sorted(algorithms))}")
    if not isinstance(kid, str):
        raise InvalidToken("its kid is no string")
    return algorithm, kid


def _is_signed(token: bytes, key: VerifyingKey, algorithm: str) -> bool:
    # Ignore unknown header fields, which issuers add for other consumers ("x5t", "pi.atm").
    registry = _Registry(algorithms=[algorithm], strict_check_header=False)
    try:
        jws.deserialize_compact(token, key.key, registry=registry)
    except (JoseError, ValueError, TypeError):
        return False
    return True


def _object(part: bytes, what: str) -> dict[str, Any]:
    """Decode a part to its JSON object.  Duplicate keys are refused: parsers differ about them."""
    doubled: list[str] = []
    limit = _LIMIT_HEADER_BYTES if what == "header" else _LIMIT_BYTES
    try:
        if len(part) > limit or not _BASE64URL.issuperset(part):
            raise ValueError
        text = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
        obj = bodies.decode("application/json", text, doubled)
    except (APIError, ValueError):
        raise InvalidToken(f"its {what} is not a JSON object in base64url") from None
    if doubled:
        raise InvalidToken(f"its {what} has a key more than once")
    return obj


def _audiences(claims: Mapping[str, Any]) -> list[str]:
    audiences = claims.get("aud")
    audiences = [audiences] if isinstance(audiences, str) else audiences
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        raise InvalidToken("its audience is neither a string nor a list of them")
    return audiences


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
    Return a claim with a time, in seconds since 1970.

    :raises InvalidToken: there is no such time.
    """
    moment = claims.get(name)
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise InvalidToken(f"its {name} is not a number")
    if not math.isfinite(moment) or not 0 <= moment <= _LATEST:
        raise InvalidToken(f"its {name} is out of range")
    return float(moment)

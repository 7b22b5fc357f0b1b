"""
JSON Web Tokens, signed and verified, and the keys that sign them.

Tokens come from anyone. So only our algorithms and the issuer's keys count: of a token's hints
about keys only ``kid`` is used, and a header that changes what is signed (``crit``, ``b64``) is
refused. All keys are asymmetric, so a token that is "signed" with the text of a public key cannot
be verified.

The reason of a refusal (:class:`InvalidToken`) contains nothing of the token, as it is logged.

Sources: RFC 7515, RFC 7517, RFC 7518 §6, RFC 7519, RFC 8725; ``go-oidc`` and
``k8s.io/kubernetes/pkg/serviceaccount`` for kube-apiserver's rules.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509 import InvalidVersion, load_pem_x509_certificate
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from twisted_exec.api import bodies
from twisted_exec.api.status import APIError
from twisted_exec.tls.errors import TLSConfigError

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


ALGORITHMS = (
    "RS256", "RS384", "RS512",
    "ES256", "ES384", "ES512",
    "PS256", "PS384", "PS512",
)  # fmt: skip
"""Supported algorithms, as of kube-apiserver's ``--oidc-signing-algs``."""

_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_NAMES = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
_RSA = tuple(each for each in ALGORITHMS if not each.startswith("ES"))
# Smaller keys can be broken; larger ones block the reactor for up to a second per token.
_RSA_BITS = range(2048, 8193)
# As in Go's crypto/rsa.  An exponent as long as the key makes verification a hundred times slower.
_LARGEST_EXPONENT = (1 << 31) - 1
_LIMIT_KEYS = 100
_LIMIT_KID = 1024


@dataclass(frozen=True)
class VerifyingKey:
    """A public key of an issuer."""

    kid: str
    algorithms: tuple[str, ...]
    key: RSAKey | ECKey

    def jwk(self) -> dict[str, object]:
        """The public JWK."""
        numbers: dict[str, object] = dict(self.key.as_dict(private=False))
        return {**numbers, "kid": self.kid, "use": "sig", "alg": self.algorithms[0]}


@dataclass(frozen=True)
class SigningKey:
    """
    A private key that signs tokens, and its public half.

    :param algorithm: ``RS256``, or that of its curve.
    """

    algorithm: str
    key: RSAKey | ECKey
    public: VerifyingKey


def signing_key(pem: bytes, what: str) -> SigningKey:
    """
    Parse an unencrypted private key.

    :raises TLSConfigError: there is no usable key.
    """
    try:
        private = load_pem_private_key(pem, password=None)
    except TypeError:
        raise TLSConfigError(f"{what} is encrypted: give one without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TLSConfigError(f"{what} holds no usable PEM private key") from None
    public = _verifying(private.public_key(), what)
    key: RSAKey | ECKey
    key = RSAKey(private, pem) if isinstance(private, rsa.RSAPrivateKey) else ECKey(private, pem)  # type: ignore[arg-type]
    return SigningKey(public.algorithms[0], key, public)


def pem_keys(pem: bytes, what: str) -> tuple[VerifyingKey, ...]:
    """
    Parse all keys of a PEM text, also of certificates.

    Key ids are those of kube-apiserver: the SHA-256 of the public key.

    :raises TLSConfigError: there is no key, or one that cannot be used.
    """
    keys = tuple(_verifying(_public(block, what), what) for block in _blocks(pem))
    if not keys:
        raise TLSConfigError(f"{what} holds no PEM key")
    return keys


def _blocks(pem: bytes) -> list[bytes]:
    begun = pem.split(b"-----BEGIN ")[1:]
    return [b"-----BEGIN " + each for each in begun if not each.startswith(b"EC PARAMETERS")]


def _public(block: bytes, what: str) -> object:
    try:
        if block.startswith(b"-----BEGIN CERTIFICATE"):
            return load_pem_x509_certificate(block).public_key()
        if b"PRIVATE KEY-----" in block:
            return load_pem_private_key(block, password=None).public_key()
        return load_pem_public_key(block)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidVersion):
        # The parser's message could quote a private key, so it is dropped.
        raise TLSConfigError(f"{what} holds a PEM block that is no usable key") from None


def _verifying(public: object, what: str) -> VerifyingKey:
    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size not in _RSA_BITS:
            raise TLSConfigError(
                f"{what}: an RSA key of {public.key_size} bits; those of "
                f"{_RSA_BITS[0]} to {_RSA_BITS[-1]} are taken"
            )
        if public.public_numbers().e > _LARGEST_EXPONENT:
            raise TLSConfigError(f"{what}: an RSA key with a public exponent beyond 31 bits")
        return VerifyingKey(_fingerprint(public), _RSA, RSAKey(public, None))
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _NAMES:
        algorithm = _CURVES[_NAMES[public.curve.name]]
        return VerifyingKey(_fingerprint(public), (algorithm,), ECKey(public, None))
    raise TLSConfigError(f"{what}: only RSA keys and those of {', '.join(_CURVES)} sign tokens")


def _fingerprint(public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode("ascii")


def jwks_keys(document: bytes) -> tuple[VerifyingKey, ...]:
    """
    Return the keys of a JWKS that can verify signatures, without unusable keys (RFC 7517 §5).

    :raises ValueError: there are none, or the document is not acceptable.
    """
    try:
        entries = bodies.decode("application/json", document).get("keys")
    except APIError:
        raise ValueError("the key set is not a JSON object") from None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError("the key set has no list of keys")
    if len(entries) > _LIMIT_KEYS:
        raise ValueError(f"the key set has more than {_LIMIT_KEYS} keys")
    keys = tuple(key for key in map(_from_jwk, entries) if key is not None)
    if not keys:
        raise ValueError("the key set has no key that verifies signatures")
    return keys


def _from_jwk(jwk: Mapping[str, Any]) -> VerifyingKey | None:
    kid, use, operations = jwk.get("kid", ""), jwk.get("use", "sig"), jwk.get("key_ops", ["verify"])
    if not isinstance(kid, str) or len(kid) > _LIMIT_KID or use != "sig":
        return None
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    names = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}.get(str(jwk.get("kty")), ())
    numbers: dict[str, Any] = {name: jwk[name] for name in names if isinstance(jwk.get(name), str)}
    if not names or len(numbers) != len(names):
        return None
    # joserfc would accept numbers of any length, and warn about short ones for each key set.
    if max(map(len, numbers.values())) > _RSA_BITS[-1] // 6 + 8:
        return None
    if len(numbers.get("n", "n" * _RSA_BITS[0])) < _RSA_BITS[0] // 6:
        return None
    try:
        raw = (RSAKey if jwk["kty"] == "RSA" else ECKey).import_key(numbers).public_key
        verifying = _verifying(raw, "key")
    except (JoseError, ValueError, TypeError, KeyError, TLSConfigError, UnsupportedAlgorithm):
        return None
    alg = jwk.get("alg")
    algorithms = tuple(each for each in verifying.algorithms if alg is None or each == alg)
    return VerifyingKey(kid, algorithms, verifying.key) if algorithms else None

"""
Keys that sign and verify JSON Web Tokens, from PEM files and JSON Web Key Sets.

All keys are asymmetric, so a token that is "signed" with the text of a public key cannot be
verified.

Sources: RFC 7517, RFC 7518 §6.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
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
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from twisted_exec.api import bodies
from twisted_exec.api.status import APIError
from twisted_exec.tls.errors import TLSConfigError

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

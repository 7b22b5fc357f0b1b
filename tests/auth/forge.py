"""Forged tokens that no library would issue, for tests of token verification."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


@functools.cache
def rsa_key(name: str = "issuer", bits: int = 2048) -> rsa.RSAPrivateKey:
    """An RSA key, the same for the same name."""
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key(name: str = "issuer") -> ec.EllipticCurvePrivateKey:
    """A key of P-256, the same for the same name."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM (PKCS #8)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    """The public half of a key as PEM."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def b64(data: bytes) -> bytes:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def unb64(text: bytes) -> bytes:
    """Decode base64url without padding."""
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def number(value: int) -> str:
    """A number as a JWK has it."""
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big")).decode()


def jwk(key: rsa.RSAPrivateKey, kid: str = "k1", **more: Any) -> dict[str, Any]:
    """The public half of an RSA key as a JWK."""
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "n": number(numbers.n), "e": number(numbers.e), **more}


def jwks(*keys: Mapping[str, Any]) -> bytes:
    """A key set."""
    return json.dumps({"keys": list(keys)}).encode()


def raw(header: bytes, payload: bytes, key: rsa.RSAPrivateKey) -> bytes:
    """A token of any bytes, signed by ``RS256``."""
    text = b64(header) + b"." + b64(payload)
    return text + b"." + b64(key.sign(text, padding.PKCS1v15(), hashes.SHA256()))


def token(
    claims: Mapping[str, Any],
    key: rsa.RSAPrivateKey | None = None,
    **header: Any,
) -> bytes:
    """A token that says ``alg: RS256`` unless told otherwise, signed by ``RS256`` anyway."""
    head = {"alg": "RS256", "kid": "k1", **header}
    dropped = {name: value for name, value in head.items() if value is not None}
    return raw(json.dumps(dropped).encode(), json.dumps(claims).encode(), key or rsa_key())


def hmac_token(claims: Mapping[str, Any], secret: bytes, **header: Any) -> bytes:
    """A token with a MAC (``HS256``) instead of a signature."""
    head = {"alg": "HS256", "kid": "k1", **header}
    text = b64(json.dumps(head).encode()) + b"." + b64(json.dumps(claims).encode())
    return text + b"." + b64(hmac.new(secret, text, hashlib.sha256).digest())

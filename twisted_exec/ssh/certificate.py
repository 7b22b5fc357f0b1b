"""
OpenSSH certificates, of users and hosts: their form and the signature of their authority.

``cryptography`` reads them.  Source of the format: ``PROTOCOL.certkeys`` of OpenSSH.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)
from twisted.conch.ssh.common import getNS
from twisted.conch.ssh.keys import Key

from twisted_exec.ssh.public_keys import PublicKeyError, check_rsa

MOST_BYTES = 16 << 10
"""Of a certificate; so the number of its principals and options is bounded, too."""

_SUFFIX = b"-cert-v01@openssh.com"
_KEY_STRINGS = {
    b"ssh-ed25519" + _SUFFIX: 1,
    b"ssh-rsa" + _SUFFIX: 2,
    b"ecdsa-sha2-nistp256" + _SUFFIX: 2,
    b"ecdsa-sha2-nistp384" + _SUFFIX: 2,
    b"ecdsa-sha2-nistp521" + _SUFFIX: 2,
}
"""The types, and how many strings the public key of each has."""
_NEVER = 2**64 - 1

PublicKey = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey


class CertificateError(Exception):
    """A certificate cannot be used; the message is a sentence without its content."""


@dataclass(frozen=True)
class Certificate:
    """
    A certificate whose signature is valid.

    :param kind: its type, such as ``ssh-ed25519-cert-v01@openssh.com``.
    :param key: the plain public key.
    :param authority: the public key that has signed it, as a blob.
    :param valid_before: in seconds since 1970; ``None`` for never.
    """

    kind: bytes
    is_of_user: bool
    key: Key
    serial: int
    key_id: bytes
    principals: tuple[bytes, ...]
    valid_after: int
    valid_before: int | None
    critical_options: dict[bytes, bytes]
    authority: bytes

    def is_valid_at(self, now: float) -> bool:
        return self.valid_after <= now and (self.valid_before is None or now < self.valid_before)


def is_certificate(blob: bytes) -> bool:
    """Return whether a blob says that it is a certificate."""
    size = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + size].endswith(_SUFFIX)


def read_certificate(blob: bytes) -> Certificate:
    """
    Read a certificate, and verify that its authority has signed it.

    :raises CertificateError: it is malformed, of a type that is not used, or its signature is wrong or weak.
    """
    if len(blob) > MOST_BYTES:
        raise CertificateError(f"the certificate has more than {MOST_BYTES >> 10} KiB")
    try:
        kind, algorithm = _types(blob)
        read = load_ssh_public_identity(kind + b" " + b64encode(blob))
        assert isinstance(read, SSHCertificate)
        key, authority = _key(read.public_key()), _key(read.signature_key())
    except (CertificateError, PublicKeyError) as error:
        raise CertificateError(str(error)) from None
    except (struct.error, ValueError, TypeError, UnsupportedAlgorithm, NotImplementedError):
        raise CertificateError("the certificate is malformed") from None
    if algorithm == b"ssh-rsa":
        raise CertificateError(
            "the certificate is signed with SHA-1, which is weak; ssh-keygen -t rsa-sha2-512 -s signs well"
        )
    try:
        read.verify_cert_signature()
    except (InvalidSignature, ValueError):
        raise CertificateError("the signature of the certificate is wrong") from None
    return Certificate(
        kind,
        read.type is SSHCertificateType.USER,
        key,
        read.serial,
        read.key_id,
        tuple(read.valid_principals),
        read.valid_after,
        None if read.valid_before == _NEVER else read.valid_before,
        read.critical_options,
        bytes(authority.blob()),
    )


def _key(key: PublicKey) -> Key:
    if isinstance(key, RSAPublicKey):
        check_rsa(key.key_size)
    return Key(key)


def _types(blob: bytes) -> tuple[bytes, bytes]:
    """Return the type of a certificate, and the algorithm of its signature."""
    kind, rest = _strings(blob, 1)
    if bytes(kind) not in _KEY_STRINGS:
        raise CertificateError("certificates of this type are not used")
    *_, rest = _strings(rest, 1 + _KEY_STRINGS[bytes(kind)])  # the nonce, the key
    *_, rest = _strings(rest[12:], 2)  # serial, type; key id, principals
    *_, signature, _ = _strings(rest[16:], 5)  # validity; options, extensions, reserved, authority
    algorithm, _ = _strings(signature, 1)
    return bytes(kind), bytes(algorithm)


def _strings(data: bytes, count: int) -> tuple[bytes, ...]:
    *strings, rest = getNS(data, count)
    return (*strings, rest)

"""
Signatures by which users prove that they have a private key (RFC 4252, section 7).
"""

from __future__ import annotations

import hashlib
import struct

from twisted.conch.ssh.common import NS, getNS
from twisted.conch.ssh.keys import Key

_CERTIFIED = b"-cert-v01@openssh.com"
_PLAIN = (
    b"ssh-ed25519",
    b"ecdsa-sha2-nistp256",
    b"ecdsa-sha2-nistp384",
    b"ecdsa-sha2-nistp521",
)
_RSA = (b"rsa-sha2-512", b"rsa-sha2-256")
_SECURITY_KEYS = (b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com")
_USER_PRESENT = 1

ALGORITHMS = {
    **{each: each for each in (*_PLAIN, *_SECURITY_KEYS)},
    **{each + _CERTIFIED: each + _CERTIFIED for each in _PLAIN},
    **dict.fromkeys(_RSA, b"ssh-rsa"),
    **{each + _CERTIFIED: b"ssh-rsa" + _CERTIFIED for each in _RSA},
}
"""The algorithms that clients may use, with the type of the public key or certificate: none is with SHA-1."""


def is_algorithm_of(algorithm: bytes, blob: bytes) -> bool:
    """Return whether a client may use an algorithm, and with this key or certificate."""
    size = int.from_bytes(blob[:4], "big")
    return algorithm in ALGORITHMS and blob[4 : 4 + size] == ALGORITHMS[algorithm]


def is_signed(algorithm: bytes, key: Key, signature: bytes, message: bytes) -> bool:
    """
    Return whether a signature is valid.

    A security key must say that its user has touched it.

    :param algorithm: as the client names it, checked by :func:`is_algorithm_of`.
    :param key: the public key, of a certificate too.
    """
    try:
        kind, content, rest = getNS(signature, 2)
        if kind != algorithm.removesuffix(_CERTIFIED):
            return False
        if algorithm in _SECURITY_KEYS:
            flags, counter = struct.unpack(">BL", rest)
            if not flags & _USER_PRESENT:
                return False
            message = b"".join(
                (
                    hashlib.sha256(key.application).digest(),
                    struct.pack(">BL", flags, counter),
                    hashlib.sha256(message).digest(),
                )
            )
        elif rest:
            return False
        return bool(key.verify(NS(kind) + NS(content), message))
    except (struct.error, ValueError):
        return False

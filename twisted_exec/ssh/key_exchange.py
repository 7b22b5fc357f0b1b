"""
The server's part of SSH key exchanges, and the keys that follow from them.

Sans I/O.  Sources: RFC 4253, section 7.2; RFC 8731 (Curve25519); draft-ietf-sshm-mlkem-hybrid-kex (ML-KEM).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from twisted.conch.ssh.common import MP, NS

_ELLIPTIC_BYTES, _LATTICE_BYTES = 32, 1184
_KEY_BYTES = 64
"""As the longest key, that of HMAC-SHA-512."""


def _elliptic(share: bytes) -> tuple[bytes, bytes]:
    private = X25519PrivateKey.generate()
    secret = private.exchange(X25519PublicKey.from_public_bytes(share))
    return secret, private.public_key().public_bytes_raw()


def _curve25519(share: bytes) -> tuple[bytes, bytes]:
    secret, reply = _elliptic(share)
    return MP(int.from_bytes(secret, "big")), reply


def _mlkem768x25519(share: bytes) -> tuple[bytes, bytes]:
    if len(share) != _LATTICE_BYTES + _ELLIPTIC_BYTES:
        raise ValueError("the share has another length")
    lattice_secret, encapsulated = MLKEM768PublicKey.from_public_bytes(
        share[:_LATTICE_BYTES]
    ).encapsulate()
    elliptic_secret, reply = _elliptic(share[_LATTICE_BYTES:])
    return NS(sha256(lattice_secret + elliptic_secret).digest()), encapsulated + reply


def _exchanges() -> dict[bytes, Callable[[bytes], tuple[bytes, bytes]]]:
    exchanges: dict[bytes, Callable[[bytes], tuple[bytes, bytes]]] = {
        b"mlkem768x25519-sha256": _mlkem768x25519,
        b"curve25519-sha256": _curve25519,
        b"curve25519-sha256@libssh.org": _curve25519,
    }
    try:
        MLKEM768PrivateKey.generate()
    except UnsupportedAlgorithm:  # cryptography was built with an older OpenSSL
        del exchanges[b"mlkem768x25519-sha256"]
    return exchanges


EXCHANGES = _exchanges()
"""
Functions by the name of the exchange, the best one first; all of them use SHA-256.

Each returns the shared secret in the format of the exchange hash, and the server's share; it raises
``ValueError`` for a client's share that is wrong.

ssh-audit warns of those without ML-KEM.  OpenSSH before 9.9 and PuTTY before 0.83 have none with it.
"""

POST_QUANTUM = tuple(each for each in EXCHANGES if each.startswith(b"mlkem"))
"""Those that an attacker who records connections cannot read later with a quantum computer."""


def exchange_hash(secret: bytes, *parts: bytes) -> bytes:
    """
    Return the hash that the server signs.

    :param parts: the versions, the offers, the host key and the shares, of the client first.
    """
    return sha256(b"".join(map(NS, parts)) + secret).digest()


def derived_keys(secret: bytes, exchange: bytes, session: bytes) -> Sequence[bytes]:
    """
    Return keys of 64 bytes: initial vectors, encryption keys, and integrity keys, each of the client first.

    :param exchange: the hash of this exchange.
    :param session: that of the first one.
    """

    def key(letter: bytes) -> bytes:
        derived = sha256(secret + exchange + letter + session).digest()
        while len(derived) < _KEY_BYTES:
            derived += sha256(secret + exchange + derived).digest()
        return derived

    return [key(letter) for letter in (b"A", b"B", b"C", b"D", b"E", b"F")]

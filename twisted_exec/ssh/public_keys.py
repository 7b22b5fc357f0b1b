"""
Public keys of SSH: lines of files, blobs of the protocol, fingerprints.
"""

from __future__ import annotations

import binascii
import hashlib
import struct
from base64 import b64encode

from cryptography.exceptions import UnsupportedAlgorithm
from twisted.conch.ssh.common import getNS
from twisted.conch.ssh.keys import BadKeyError, Key

from twisted_exec.ssh.text import shown

LEAST_RSA_BITS, MOST_RSA_BITS = 2048, 8192

KEY_TYPES = frozenset(
    {
        b"ssh-ed25519",
        b"ssh-rsa",
        b"ecdsa-sha2-nistp256",
        b"ecdsa-sha2-nistp384",
        b"ecdsa-sha2-nistp521",
        b"sk-ssh-ed25519@openssh.com",
        b"sk-ecdsa-sha2-nistp256@openssh.com",
    }
)


class PublicKeyError(ValueError):
    """A line has no usable public key; the message does not quote it."""


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a public key, as ``ssh-keygen -l`` prints it."""
    return "SHA256:" + b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def key_of(blob: bytes) -> Key:
    """
    Return a plain public key.

    :raises PublicKeyError: it is malformed, of another type, or too short.
    """
    try:
        kind = bytes(getNS(blob)[0])
        if kind not in KEY_TYPES:
            raise PublicKeyError(f'keys of the type "{shown(kind)}" are not used')
        key: Key = Key.fromString(blob, "blob")
        is_canonical = key.blob() == blob
    except PublicKeyError:
        raise
    except (BadKeyError, struct.error, ValueError, TypeError, UnsupportedAlgorithm):
        raise PublicKeyError("the public key is malformed") from None
    if not is_canonical:
        raise PublicKeyError("the public key is malformed")
    if key.type() == "RSA":
        check_rsa(key.size())
    return key


def check_rsa(bits: int) -> None:
    """:raises PublicKeyError: an RSA key has another size than those that are used."""
    if not LEAST_RSA_BITS <= bits <= MOST_RSA_BITS:
        raise PublicKeyError(
            f"the RSA key has {bits} bits; there must be {LEAST_RSA_BITS} to {MOST_RSA_BITS}"
        )


def key_blob(line: str) -> bytes:
    """
    Return the key of a line such as ``ssh-ed25519 AAAA... comment``.

    :raises PublicKeyError: the line has none, such as one with options before the key.
    """
    words = line.split(maxsplit=2)
    if len(words) < 2 or words[0].encode() not in KEY_TYPES:
        hint = " (a certificate cannot be here)" if words and "-cert-v0" in words[0] else ""
        raise PublicKeyError(f"a line must be TYPE BASE64, as in a .pub file of ssh-keygen{hint}")
    try:
        blob = binascii.a2b_base64(words[1], strict_mode=True)
    except ValueError:
        raise PublicKeyError("the public key is no base64") from None
    if key_of(blob).sshType() != words[0].encode():
        raise PublicKeyError("the type of the line is not that of its key")
    return blob


def key_lines(text: str, most: int) -> list[bytes]:
    """
    Return the keys of a file: one in each line that is neither empty nor a comment.

    :raises PublicKeyError: a line has no key, or there are more than ``most``; the message tells the line.
    """
    blobs: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(blobs) >= most:
            raise PublicKeyError(f"there are more than {most} keys")
        try:
            blobs.append(key_blob(line))
        except PublicKeyError as error:
            raise PublicKeyError(f"line {number}: {error}") from None
    return blobs

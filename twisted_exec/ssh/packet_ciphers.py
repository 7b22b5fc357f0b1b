"""
Protection of SSH packets: AES-GCM (RFC 5647, as OpenSSH names it) and encrypt-then-MAC.

Sans I/O.  All of them verify a packet before they decrypt it, and have one error for whatever is wrong with it.
Source of both: ``PROTOCOL`` of OpenSSH, sections 1.5 and 1.6.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

AEAD_CIPHERS = {b"aes256-gcm@openssh.com": 32, b"aes128-gcm@openssh.com": 16}
"""Key bytes of the ciphers that authenticate, so there is no MAC beside them."""
CIPHERS = {b"aes256-ctr": 32, b"aes192-ctr": 24, b"aes128-ctr": 16}
"""Key bytes of the ciphers that need a MAC."""
MACS = {
    b"hmac-sha2-512-etm@openssh.com": hashlib.sha512,
    b"hmac-sha2-256-etm@openssh.com": hashlib.sha256,
}

LENGTH_BYTES = 4
_BLOCK = 16
_BLOCK_WITHOUT_CIPHER = 8
_LEAST_PADDING = 4
_GCM_TAG_BYTES, _GCM_FIXED_BYTES = 16, 4
_COUNTER_MASK = 2**64 - 1
_RANDOM_BYTES = 4096


class CorruptPacket(Exception):
    """A packet is not as its sender has made it, or its sender has not kept to the rules."""


class Sealer(Protocol):
    """Makes packets."""

    def seal(self, sequence: int, kind: int, payload: bytes) -> Sequence[bytes]:
        """
        Return the parts of a packet, in the order of the wire.

        :param kind: the message number, which the payload lacks.
        """


class Opener(Protocol):
    """
    Reads packets.

    :ivar tag_bytes: of a packet, behind what its length counts.
    """

    tag_bytes: int

    def open(self, sequence: int, packet: memoryview) -> bytes:
        """
        Return the message number and the payload.

        :param packet: with its length and its tag.
        :raises CorruptPacket: it was changed, or its padding is wrong.
        """

    def is_length(self, length: int) -> bool:
        """Return whether a packet may have this length."""


class _Padding:
    """Random bytes, many at a time: a call of the system for each packet costs more than the packet."""

    def __init__(self) -> None:
        self._random, self._used = b"", 0

    def bytes(self, count: int) -> bytes:
        start = self._used
        if start + count > len(self._random):
            self._random, start = os.urandom(_RANDOM_BYTES), 0
        self._used = start + count
        return self._random[start : start + count]


_padding = _Padding()


def _padded(kind: int, payload: bytes, block: int, counted: int) -> bytes:
    """
    Return what follows the length.

    :param counted: bytes before it that count for the block.
    """
    size = -(counted + 2 + len(payload)) % block
    if size < _LEAST_PADDING:
        size += block
    return b"".join((bytes((size, kind)), payload, _padding.bytes(size)))


def _payload(padded: bytes | memoryview) -> bytes:
    size = padded[0]
    if size < _LEAST_PADDING or size + 2 > len(padded):
        raise CorruptPacket
    return bytes(padded[1 : len(padded) - size])


class NoCipher:
    """Packets of the first key exchange."""

    tag_bytes = 0

    def seal(self, sequence: int, kind: int, payload: bytes) -> Sequence[bytes]:
        padded = _padded(kind, payload, _BLOCK_WITHOUT_CIPHER, LENGTH_BYTES)
        return [len(padded).to_bytes(LENGTH_BYTES, "big"), padded]

    def open(self, sequence: int, packet: memoryview) -> bytes:
        return _payload(packet[LENGTH_BYTES:])

    def is_length(self, length: int) -> bool:
        return length > _LEAST_PADDING and not (LENGTH_BYTES + length) % _BLOCK_WITHOUT_CIPHER


class GCM:
    """
    One direction of AES-GCM.

    :param iv: at least 12 bytes.
    """

    tag_bytes = _GCM_TAG_BYTES

    def __init__(self, key: bytes, iv: bytes) -> None:
        self._cipher = AESGCM(key)
        self._fixed = iv[:_GCM_FIXED_BYTES]
        self._counter = int.from_bytes(iv[_GCM_FIXED_BYTES:12], "big")

    def _nonce(self) -> bytes:
        counter = self._counter
        self._counter = (counter + 1) & _COUNTER_MASK
        return self._fixed + counter.to_bytes(8, "big")

    def seal(self, sequence: int, kind: int, payload: bytes) -> Sequence[bytes]:
        padded = _padded(kind, payload, _BLOCK, 0)
        length = len(padded).to_bytes(LENGTH_BYTES, "big")
        return [length, self._cipher.encrypt(self._nonce(), padded, length)]

    def open(self, sequence: int, packet: memoryview) -> bytes:
        length, sealed = packet[:LENGTH_BYTES], packet[LENGTH_BYTES:]
        try:
            return _payload(self._cipher.decrypt(self._nonce(), sealed, length))
        except InvalidTag:
            raise CorruptPacket from None

    def is_length(self, length: int) -> bool:
        return length > 0 and not length % _BLOCK


class EncryptThenMAC:
    """
    One direction of counter mode with a MAC over the encrypted packet.

    :param iv: at least 16 bytes.
    :param mac_key: as long as the digest, or longer.
    """

    def __init__(self, key: bytes, iv: bytes, mac: bytes, mac_key: bytes, *, sends: bool) -> None:
        digest = MACS[mac]
        self.tag_bytes = digest().digest_size
        cipher = Cipher(AES(key), CTR(iv[:_BLOCK]))
        self._stream: Any = cipher.encryptor() if sends else cipher.decryptor()
        self._mac = hmac.new(mac_key[: self.tag_bytes], digestmod=digest)

    def _tag(self, sequence: int, length: bytes | memoryview, data: bytes | memoryview) -> bytes:
        mac = self._mac.copy()
        mac.update(sequence.to_bytes(4, "big"))
        mac.update(length)
        mac.update(data)
        return mac.digest()

    def seal(self, sequence: int, kind: int, payload: bytes) -> Sequence[bytes]:
        padded = _padded(kind, payload, _BLOCK, 0)
        length = len(padded).to_bytes(LENGTH_BYTES, "big")
        data = self._stream.update(padded)
        return [length, data, self._tag(sequence, length, data)]

    def open(self, sequence: int, packet: memoryview) -> bytes:
        end = len(packet) - self.tag_bytes
        length, data = packet[:LENGTH_BYTES], packet[LENGTH_BYTES:end]
        if not hmac.compare_digest(self._tag(sequence, length, data), packet[end:]):
            raise CorruptPacket
        return _payload(self._stream.update(data))

    def is_length(self, length: int) -> bool:
        return length > 0 and not length % _BLOCK


def packet_cipher(
    cipher: bytes, mac: bytes, key: bytes, iv: bytes, mac_key: bytes, *, sends: bool
) -> GCM | EncryptThenMAC:
    """
    Return the protection of one direction.

    :param key: cut to what the cipher needs.
    :param mac: not used by the ciphers that authenticate.
    """
    if cipher in AEAD_CIPHERS:
        return GCM(key[: AEAD_CIPHERS[cipher]], iv)
    return EncryptThenMAC(key[: CIPHERS[cipher]], iv, mac, mac_key, sends=sends)

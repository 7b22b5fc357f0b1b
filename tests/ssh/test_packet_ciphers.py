"""
Tests for ``twisted_exec.ssh.packet_ciphers``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.ssh.packet_ciphers import (
    AEAD_CIPHERS,
    CIPHERS,
    LENGTH_BYTES,
    MACS,
    CorruptPacket,
    NoCipher,
    Opener,
    Sealer,
    packet_cipher,
)

PAIRS = [*product(AEAD_CIPHERS, [b""]), *product(CIPHERS, MACS)]


def both_ends(cipher: bytes, mac: bytes) -> tuple[Sealer, Opener]:
    """Return a sender and its receiver."""
    key, iv, mac_key = bytes(range(64)), bytes(range(1, 65)), bytes(range(2, 66))
    sealer = packet_cipher(cipher, mac, key, iv, mac_key, sends=True)
    return sealer, packet_cipher(cipher, mac, key, iv, mac_key, sends=False)


class PacketTests(SynchronousTestCase):
    """Packets of each cipher, and of none."""

    def ends(self) -> list[tuple[Sealer, Opener]]:
        return [(NoCipher(), NoCipher()), *(both_ends(*pair) for pair in PAIRS)]

    def test_read(self) -> None:
        """What is sent arrives, whatever its size, and in packets of an allowed length."""
        for sealer, opener in self.ends():
            for number, size in enumerate((0, 1, 3, 11, 12, 15, 16, 100, 40_000)):
                packet = b"".join(sealer.seal(number, 94, b"x" * size))
                length = int.from_bytes(packet[:LENGTH_BYTES], "big")
                self.assertEqual(len(packet), LENGTH_BYTES + length + opener.tag_bytes)
                self.assertTrue(opener.is_length(length))
                self.assertEqual(opener.open(number, memoryview(packet)), b"\x5e" + b"x" * size)

    def test_no_secret_twice(self) -> None:
        """Two packets of one content have nothing in common behind their lengths."""
        for pair in PAIRS:
            sealer, _ = both_ends(*pair)
            first, second = (b"".join(sealer.seal(0, 94, b"password")) for _ in range(2))
            self.assertNotEqual(first[LENGTH_BYTES:20], second[LENGTH_BYTES:20])

    def changed(self, change: Callable[[bytes], bytes], sequence: int = 0) -> None:
        for pair in PAIRS:
            sealer, opener = both_ends(*pair)
            packet = change(b"".join(sealer.seal(0, 94, b"ls\r")))
            self.assertRaises(CorruptPacket, opener.open, sequence, memoryview(packet))

    def test_changed(self) -> None:
        """A packet with any other bit is refused: in the length, the content or the tag."""
        for at in (0, 3, 4, 5, 19, -1):
            self.changed(lambda packet, at=at: flipped(packet, at))  # type: ignore[misc]

    def test_sequence(self) -> None:
        """With a MAC, a packet is refused as another one than it is."""
        for pair in product(CIPHERS, MACS):
            sealer, opener = both_ends(*pair)
            packet = b"".join(sealer.seal(0, 94, b""))
            self.assertRaises(CorruptPacket, opener.open, 1, memoryview(packet))

    def test_replayed(self) -> None:
        """With AES-GCM, whose nonce counts, a packet is refused a second time."""
        for cipher in AEAD_CIPHERS:
            sealer, opener = both_ends(cipher, b"")
            packet = memoryview(b"".join(sealer.seal(0, 94, b"")))
            opener.open(0, packet)
            self.assertRaises(CorruptPacket, opener.open, 0, packet)

    def test_padding(self) -> None:
        """A packet whose padding is too short, or longer than all of it, is refused, also if its sender has signed it."""
        for padding in (0, 3, 11, 12, 255):
            plain = bytes((padding, 94)) + b"x" * 10
            packet = len(plain).to_bytes(LENGTH_BYTES, "big") + plain
            self.assertRaises(CorruptPacket, NoCipher().open, 0, memoryview(packet))

    def test_lengths(self) -> None:
        """A length that is no multiple of the block is refused before its bytes come."""
        for cipher in (NoCipher(), *(both_ends(*pair)[1] for pair in PAIRS)):
            for length in (0, 1, 4, 17, 2**32 - 1):
                self.assertFalse(cipher.is_length(length), (cipher, length))

    def test_counter_wraps(self) -> None:
        """The counter of AES-GCM begins anew behind its largest value, and the rest of the nonce stays."""
        iv = b"abcd" + b"\xff" * 8
        sealer = packet_cipher(b"aes128-gcm@openssh.com", b"", bytes(16), iv, b"", sends=True)
        opener = packet_cipher(b"aes128-gcm@openssh.com", b"", bytes(16), iv, b"", sends=False)
        for _ in range(2):
            packet = memoryview(b"".join(sealer.seal(0, 2, b"")))
            self.assertEqual(opener.open(0, packet), b"\x02")


def flipped(packet: bytes, at: int) -> bytes:
    """Return a packet with another bit."""
    changed = bytearray(packet)
    changed[at] ^= 1
    return bytes(changed)

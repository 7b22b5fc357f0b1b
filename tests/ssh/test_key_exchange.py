"""
Tests for ``twisted_exec.ssh.key_exchange``.
"""

from __future__ import annotations

from hashlib import sha256

from twisted.trial.unittest import SynchronousTestCase

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from twisted.conch.ssh.common import MP, NS

    from twisted_exec.ssh.key_exchange import EXCHANGES, derived_keys, exchange_hash


class ExchangeTests(SynchronousTestCase):
    """A client's part beside the server's."""

    skip = skip

    def test_curve25519(self) -> None:
        """Both sides have one secret, as a number without leading zeros."""
        for name in (b"curve25519-sha256", b"curve25519-sha256@libssh.org"):
            private = X25519PrivateKey.generate()
            secret, reply = EXCHANGES[name](private.public_key().public_bytes_raw())
            shared = private.exchange(X25519PublicKey.from_public_bytes(reply))
            self.assertEqual(secret, MP(int.from_bytes(shared, "big")))

    def test_mlkem(self) -> None:
        """The secret needs both parts: that of the lattice and that of the curve."""
        exchange = EXCHANGES.get(b"mlkem768x25519-sha256")
        if exchange is None:
            return  # cryptography was built without it
        lattice, private = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
        share = lattice.public_key().public_bytes_raw() + private.public_key().public_bytes_raw()
        secret, reply = exchange(share)
        parts = lattice.decapsulate(reply[:1088])
        parts += private.exchange(X25519PublicKey.from_public_bytes(reply[1088:]))
        self.assertEqual(secret, NS(sha256(parts).digest()))
        self.assertEqual(next(iter(EXCHANGES)), b"mlkem768x25519-sha256")

    def test_wrong_shares(self) -> None:
        """A share that is too short or too long, or that makes a known secret, is refused."""
        for name, exchange in EXCHANGES.items():
            sizes = (1216,) if name.startswith(b"mlkem") else (32,)
            for size in (0, 1, sizes[0] - 1, sizes[0], sizes[0] + 1):
                self.assertRaises(ValueError, exchange, bytes(size))

    def test_keys(self) -> None:
        """Keys differ from each other, and begin as RFC 4253 says."""
        keys = derived_keys(b"K", b"H", b"session")
        self.assertEqual({len(key) for key in keys}, {64})
        self.assertEqual(len(set(keys)), 6)
        first = sha256(b"KHAsession").digest()
        self.assertEqual(keys[0], first + sha256(b"KH" + first).digest())

    def test_hash(self) -> None:
        """The hash covers each part with its length."""
        self.assertNotEqual(exchange_hash(b"K", b"ab", b"c"), exchange_hash(b"K", b"a", b"bc"))
        expected = sha256(NS(b"a") + NS(b"b") + b"K").digest()
        self.assertEqual(exchange_hash(b"K", b"a", b"b"), expected)

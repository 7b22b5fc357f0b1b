"""
Tests for :mod:`twisted_exec.wire.socks5`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.socks5 import Socks5Client, Socks5Refused

CONNECTED = b"\5\0\0\1\0\0\0\0\0\0"


class Socks5ClientTests(SynchronousTestCase):
    """Tests for :class:`Socks5Client`."""

    def test_name(self) -> None:
        """The proxy resolves names; bytes after its answer come from the server."""
        client = Socks5Client("api.internal", 6443)
        self.assertEqual(client.greeting(), b"\5\1\0")
        self.assertEqual(client.receive(b"\5\0"), b"\5\1\0\3\x0capi.internal\x19\x2b")
        self.assertFalse(client.done)
        self.assertEqual(client.receive(CONNECTED + b"early"), b"")
        self.assertTrue(client.done)
        self.assertEqual(client.trailing, b"early")
        self.assertEqual(client.receive(b" bytes"), b"")
        self.assertEqual(client.trailing, b"early bytes")

    def test_addresses(self) -> None:
        """IP addresses are sent as such; the proxy's answer may contain any address type."""
        for host, sent, bound in (
            ("10.0.0.1", b"\1\x0a\0\0\1", b"\4" + bytes(16)),
            ("::1", b"\4" + bytes(15) + b"\1", b"\3\4name"),
            ("b\u00fccher.example", b"\3\x15xn--bcher-kva.example", b"\1" + bytes(4)),
        ):
            client = Socks5Client(host, 80)
            client.greeting()
            self.assertEqual(client.receive(b"\5\0"), b"\5\1\0" + sent + b"\0\x50")
            client.receive(b"\5\0\0" + bound + b"\0\0")
            self.assertTrue(client.done)
            self.assertEqual(client.trailing, b"")

    def test_password(self) -> None:
        """User and password are offered if given, and sent if the proxy selects them."""
        client = Socks5Client("10.0.0.1", 80, "ann", "secret")
        self.assertEqual(client.greeting(), b"\5\2\0\2")
        self.assertEqual(client.receive(b"\5\2"), b"\1\3ann\6secret")
        self.assertEqual(client.receive(b"\1\0"), b"\5\1\0\1\x0a\0\0\1\0\x50")
        open_to_all = Socks5Client("10.0.0.1", 80, "ann", "secret")
        self.assertEqual(open_to_all.receive(b"\5\0")[:2], b"\5\1")

    def test_refusals(self) -> None:
        """Each refusal by the proxy has its own message."""
        for login, said, told in (
            ((), b"\5\xff", "wants a user name and password"),
            (("u", "p"), b"\5\xff", "wants another authentication method"),
            (("u", "p"), b"\5\2\1\1", "does not accept the user name and password"),
            ((), b"\5\0\5\5", "connection refused"),
            ((), b"\5\0\5\2\0\1\0\0\0\0\0\0", "not allowed by its rules"),
            ((), b"\5\0\5\x63", "failure 99"),
        ):
            with self.assertRaises(Socks5Refused) as caught:
                Socks5Client("h", 1, *login).receive(said)
            self.assertIn(told, str(caught.exception))

    def test_broken(self) -> None:
        """Anything but SOCKS5 raises RemoteProtocolError."""
        for login, said in (
            ((), b"HTTP/1.1 400"),
            ((), b"\4\0"),
            ((), b"\5\2"),
            ((), b"\5\7"),
            (("u", "p"), b"\5\2\5\0"),
            ((), b"\5\0\5\0\0\7\0"),
        ):
            with self.assertRaises(RemoteProtocolError):
                Socks5Client("h", 1, *login).receive(said)

    def test_too_long(self) -> None:
        """Names and passwords of more than 255 bytes raise ValueError."""
        for arguments in (("h" * 256, 1), ("h", 1, "u" * 256), ("h", 1, "u", "p" * 256)):
            self.assertRaises(ValueError, Socks5Client, *arguments)

    @given(st.lists(st.integers(1, 5), min_size=1), st.binary(max_size=5))
    def test_any_split(self, sizes: list[int], early: bytes) -> None:
        """Answers may be split anywhere."""
        said = b"\5\2\1\0\5\0\0\3\4name\0\0" + early
        client, answers = Socks5Client("h", 1, "u", "p"), b""
        while said:
            size = sizes.pop(0) if sizes else 64
            answers += client.receive(said[:size])
            said = said[size:]
        self.assertEqual(answers, b"\1\1u\1p" + b"\5\1\0\3\1h\0\1")
        self.assertEqual((client.done, client.trailing), (True, early))

    @given(st.lists(st.binary(max_size=8)))
    def test_any_bytes(self, said: list[bytes]) -> None:
        """Any bytes are an answer, or raise Socks5Refused or RemoteProtocolError."""
        client = Socks5Client("h", 1, "u", "p")
        try:
            for part in said:
                client.receive(part)
        except (Socks5Refused, RemoteProtocolError):
            pass

"""
Tests for :mod:`twisted_exec.auth.forwarded_user`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Forbidden
from twisted_exec.auth.forwarded_user import forwarded_headers
from twisted_exec.auth.interfaces import User


class ForwardedHeadersTests(SynchronousTestCase):
    """The headers about a user for the next hop."""

    def test_headers(self) -> None:
        """Identity as UTF-8; what would break a header is refused."""
        user = User("jäne", ("a b",), "u", {"Ex/tra": ("1", "2")})
        self.assertEqual(
            list(forwarded_headers(user)),
            [
                (b"X-Remote-User", "jäne".encode()),
                (b"X-Remote-Group", b"a b"),
                (b"X-Remote-Uid", b"u"),
                (b"X-Remote-Extra-ex%2Ftra", b"1"),
                (b"X-Remote-Extra-ex%2Ftra", b"2"),
            ],
        )
        self.assertIs(forwarded_headers(user), forwarded_headers(replace(user)))
        for name in ("a\r\nX-Remote-User: root", "a\x00", " a", "\ud800"):
            with self.assertRaises(Forbidden):
                forwarded_headers(User(name))

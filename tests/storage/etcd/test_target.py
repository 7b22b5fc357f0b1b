"""
Tests for :mod:`twisted_exec.storage.etcd.target`.
"""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.storage.etcd.target import PREFIX, Endpoint, parse_target, same_location


class TargetTests(SynchronousTestCase):
    """Tests for :func:`parse_target`."""

    def refused(self, text: str) -> str:
        with self.assertRaises(ValueError) as caught:
            parse_target(text)
        told = str(caught.exception)
        self.assertNotIn("\n", told)
        return told

    def test_whole(self) -> None:
        """A target may set every parameter."""
        found = parse_target(
            "https://etcd-1:2379,https://[fd00::1]:12379,etcd-3/?prefix=/a/b.c&ca=ca.crt&cert=/x/c"
            "&key=/x/k&user=console&password-file=/x/p&compaction=off"
        )
        self.assertEqual(
            list(found.endpoints),
            [Endpoint("etcd-1", 2379), Endpoint("fd00::1", 12379), Endpoint("etcd-3", 2379)],
        )
        self.assertEqual(str(found), "etcd-1:2379,[fd00::1]:12379,etcd-3:2379")
        self.assertTrue(found.secure)
        self.assertEqual((found.prefix, found.ca), ("/a/b.c", os.path.abspath("ca.crt")))
        self.assertEqual((found.certificate, found.key), ("/x/c", "/x/k"))
        self.assertEqual((found.user, found.password_file), ("console", "/x/p"))
        self.assertEqual(found.compaction_seconds, 0.0)

    def test_location(self) -> None:
        """The location names members and prefix, and no credentials; one common member is enough."""
        text = "https://a,b:1?prefix=/x&ca=ca.crt&user=console&password-file=/x/p"
        location = parse_target(text).location
        self.assertEqual(location, "etcd:a:2379,b:1?prefix=/x")
        for other, is_same in (
            ("etcd:b:1,c:1?prefix=/x", True),
            ("etcd:b:1,c:1?prefix=/y", False),
            ("etcd:a:1,b:2?prefix=/x", False),
        ):
            self.assertEqual(same_location(location, other), is_same, other)

    def test_least(self) -> None:
        """Parameters have defaults."""
        found = parse_target("https://etcd?ca=/ca")
        self.assertEqual((str(found), found.prefix), ("etcd:2379", PREFIX))
        self.assertEqual((found.certificate, found.user), ("", ""))
        self.assertEqual(found.compaction_seconds, 300.0)

    def test_http(self) -> None:
        """Plain http is accepted for this host, and for others on explicit request."""
        for host in ("127.0.0.1", "127.8.9.10", "localhost", "[::1]"):
            self.assertFalse(parse_target(f"http://{host}:2379").secure)
        self.assertFalse(parse_target("http://etcd:2379?insecure=true").secure)
        self.assertIn("use https, or say insecure=true", self.refused("http://etcd:2379"))
        self.assertIn("use https", self.refused("http://127.0.0.1,10.0.0.1?insecure=false"))

    def test_refused(self) -> None:
        """An invalid target is refused with a message that says how to correct it."""
        for text, told in [
            ("", "give etcd:https://HOST:PORT"),
            ("?ca=x", "give etcd:https://HOST:PORT"),
            ("x", "ca= is missing"),
            ("ftp://x?ca=x", "an endpoint of etcd is https://HOST:PORT"),
            ("https://:1?ca=x", "an endpoint of etcd is https://HOST:PORT"),
            ("https://x:99999?ca=x", "an endpoint of etcd is https://HOST:PORT"),
            ("https://x:0?ca=x", "an endpoint of etcd is https://HOST:PORT"),
            ("https://[x?ca=x", "an endpoint of etcd is https://HOST:PORT"),
            ("https://x,,y?ca=x", "an endpoint of etcd is https://HOST:PORT"),
            ("https://x/registry?ca=x", "keys are told by prefix="),
            ("https://x,http://y?ca=x", "endpoints are all https, or all http"),
            (",".join(["https://x"] * 17), "more than 16 endpoints"),
            ("https://x", "ca= is missing"),
            ("https://x?ca=", "ca= has no value"),
            ("https://x?ca=x&ca=y", "ca= is given twice"),
            ("https://x?ca=x&cert=y", "key= is missing: it belongs to cert="),
            ("https://x?ca=x&key=y", "cert= is missing: it belongs to key="),
            ("https://x?ca=x&user=y", "password-file= is missing: it belongs to user="),
            ("https://x?ca=x&password-file=y", "user= is missing: it belongs to password-file="),
            ("https://x?ca=x&cacert=y", "cacert= is nothing that etcd: knows: prefix=, ca=,"),
            ("https://x?ca=x&compaction=5m", "compaction= is on, or off"),
            ("https://x?ca=x&insecure=1", "insecure= is true or false"),
            ("http://[::1]?ca=x", "ca=, cert= and key= are for https endpoints"),
            ("https://x?ca=x&prefix=/", "give a path such as /twisted-exec"),
            ("https://x?ca=x&prefix=a", "prefix=a: give a path"),
            ("https://x?ca=x&prefix=/a/", "give a path"),
            ("https://x?ca=x&prefix=/a//b", "give a path"),
            ("https://x?ca=x&prefix=/%0a", "prefix=/\\n: give a path"),
            ("https://x?ca=x&prefix=/" + "a" * 64, "give a path"),
        ]:
            self.assertIn(told, self.refused(text), text)

    def test_secrets(self) -> None:
        """A misplaced password does not appear in messages."""
        told = self.refused("https://root:s3cret@etcd:2379?ca=x")
        self.assertIn("user= and password-file=", told)
        for text in ("https://root:s3cret@etcd:x?ca=x", "https://root:s3cret@[?ca=x"):
            self.assertNotIn("s3cret", self.refused(text))
        self.assertNotIn("s3cret", self.refused("https://root:s3cret@x,https://y?ca=x"))

    @given(st.text(max_size=60))
    def test_anything(self, text: str) -> None:
        """Any text is parsed or refused with a printable ValueError."""
        try:
            parse_target(text)
        except ValueError as problem:
            self.assertTrue(str(problem).isprintable())

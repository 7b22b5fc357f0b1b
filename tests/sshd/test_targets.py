"""
Tests for :mod:`twisted_exec.sshd.targets`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.sshd.targets import Target, parse_namespace, parse_target

LABEL = "n" * 63
SUBDOMAIN = ".".join(["n" * 63] * 3 + ["n" * 61])


class TargetTests(SynchronousTestCase):
    """Which user names name machines."""

    def test_machines(self) -> None:
        """A user name has a machine, and before it a namespace and a Space."""
        for text, target in (
            ("web-1", Target("web-1", "default", "")),
            ("lab/web-1", Target("web-1", "lab", "")),
            ("lab/web-1.rack-7", Target("web-1.rack-7", "lab", "")),
            ("site-a/lab/web-1", Target("web-1", "lab", "site-a")),
            (f"{SUBDOMAIN}/{LABEL}/{SUBDOMAIN}", Target(SUBDOMAIN, LABEL, SUBDOMAIN)),
        ):
            self.assertEqual(parse_target(text), target)

    def test_no_machines(self) -> None:
        """Whatever a path, a URL or a shell gives a meaning names no machine."""
        for text in (
            *("", "/", "//", "a/", "/a", "a//b", "a/b/c/d", "a/b/c/"),
            *(".", "..", "../a", "a/../b", "a/..", "lab/../../api", "./a"),
            *("%2f", "lab%2fa", "%2e%2e/a", "lab/a%00", "a?x=1", "a#b", "a;b", "a&b"),
            *(
                " a",
                "a ",
                "a b",
                "lab/ a",
                "a\tb",
                "a\nb",
                "a\r\nHost: b",
                "a\0",
                "a\0/b",
                "\x1b[2J",
            ),
            *("$(id)", "`id`", "a|b", "a>b", "*", "a*", "~a", "'a'", '"a"', "a\\b", "-a", "a-"),
            *("A", "ä", "a_b", "a:b", "a@b", "lab.x/a", "a..b"),
            *(f"{LABEL}n/a", f"{SUBDOMAIN}n", "a/" * 500, "a" * 100_000),
        ):
            with self.assertRaisesRegex(
                ValueError, r"names no machine: the user name of ssh is"
            ) as caught:
                parse_target(text)
            message = str(caught.exception)
            self.assertTrue(message.isprintable(), message)
            self.assertLess(len(message), 300)

    def test_namespaces(self) -> None:
        """The argument of ``list`` is a namespace, perhaps of a Space."""
        self.assertEqual(parse_namespace("lab"), Target("", "lab", ""))
        self.assertEqual(parse_namespace("site-a/lab"), Target("", "lab", "site-a"))
        for text in ("", "/", "lab/", "/lab", "a/b/c", "..", "../lab", "a b", "*", "a\0", "A"):
            with self.assertRaisesRegex(ValueError, "is no NAMESPACE or SPACE/NAMESPACE"):
                parse_namespace(text)

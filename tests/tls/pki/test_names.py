"""
Tests for :mod:`twisted_exec.tls.pki.names`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import authority
from twisted_exec.tls.errors import TLSConfigError


class NamesTests(SynchronousTestCase):
    """Tests for the names of certificates that an authority issues, or refuses to issue."""

    def test_the_name_is_too_long(self) -> None:
        """A common name longer than 64 characters is refused, and the message gives its length."""
        with self.assertRaises(TLSConfigError) as caught:
            authority("a").issue_client("u" * 65)
        self.assertIn("it has 65", str(caught.exception))

    def test_control_characters(self) -> None:
        """Names with control characters are refused."""
        for names in (("ja\0ne",), ("jane", ("dev\n",)), ("jane", ("dev\x1b[2J",))):
            with self.assertRaises(TLSConfigError) as caught:
                authority("a").issue_client(*names)  # type: ignore[arg-type]
            self.assertIn("control characters", str(caught.exception))

    def test_empty_group(self) -> None:
        """A group must have a name."""
        with self.assertRaises(TLSConfigError):
            authority("a").issue_client("jane", [""])

    def test_no_dns_name(self) -> None:
        """
        Invalid DNS names are refused; wildcards, underscores, IDNs and addresses are accepted.
        """
        for bad in ("a b", "", "x..y", "http://x", "a/b", "*", "x" * 64):
            with self.assertRaises(TLSConfigError, msg=bad):
                authority("a").issue_server([bad])
        for good in ("*.example", "under_score", "bücher.example", "10.0.0.1", "fe80::1"):
            authority("a").issue_server([good])

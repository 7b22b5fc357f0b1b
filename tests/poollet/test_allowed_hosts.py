"""Tests for :mod:`twisted_exec.poollet.allowed_hosts`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.poollet.allowed_hosts import AllowedHost, parse_host


class PlaceTests(SynchronousTestCase):
    """Tests for :func:`parse_host`."""

    def test_read(self) -> None:
        """A host, with or without a port; addresses in any spelling."""
        for text, expected in (
            ("Runtime.Example.", AllowedHost("runtime.example")),
            ("runtime:8443", AllowedHost("runtime", 8443)),
            ("10.0.0.1:1", AllowedHost("10.0.0.1", 1)),
            ("fd00:0::1", AllowedHost("fd00::1")),
            ("[fd00::1]", AllowedHost("fd00::1")),
            ("[fd00::1]:8443", AllowedHost("fd00::1", 8443)),
        ):
            self.assertEqual(parse_host(text), expected)

    def test_refused(self) -> None:
        """Other text is refused with the reason."""
        for text in ("", ":80", "host:", "host:0", "host:99999", "https://host", "a b", "*"):
            with self.assertRaises(ValueError):
                parse_host(text)

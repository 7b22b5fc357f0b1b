"""Tests for :mod:`twisted_exec.program.options.sessions`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.options.sessions import BrowserOptions


class BrowserOptionsTests(SynchronousTestCase):
    """Tests for :class:`BrowserOptions`."""

    def test_origins(self) -> None:
        """Sites are named one by one, in any spelling."""
        options = BrowserOptions()
        options.parseOptions(["--allowed-origin", "https://A.example:443", "--allowed-origin=null"])
        self.assertEqual(options["allowed-origin"], [b"https://a.example", b"null"])

    def test_no_origin(self) -> None:
        """An allowed origin that is not a site is refused."""
        with self.assertRaises(SystemExit):
            BrowserOptions().parseOptions(["--allowed-origin", "*"])

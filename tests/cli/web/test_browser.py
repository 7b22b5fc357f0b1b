"""Tests for :mod:`twisted_exec.cli.web.browser`; a browser opens in the test of the process."""

from __future__ import annotations

import os
import stat

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.web.browser import BrowserPage, has_browser

URL = "http://127.0.0.1:1/console/#secret=s&<"


class BrowserTests(SynchronousTestCase):
    """The file that leads a browser to the page."""

    def test_displays(self) -> None:
        """A browser is opened where there are windows, or where the user names one."""
        for environ, platform, expected in (
            ({}, "linux", False),
            ({"DISPLAY": ""}, "linux", False),
            ({"DISPLAY": ":0"}, "linux", True),
            ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
            ({"BROWSER": "w3m"}, "linux", True),
            ({}, "darwin", True),
        ):
            self.assertEqual(has_browser(environ, platform), expected, environ)

    def test_private(self) -> None:
        """Only this user can read the file, and its name says nothing."""
        page = BrowserPage(URL)
        self.addCleanup(page.remove)
        self.assertEqual(stat.S_IMODE(os.stat(page.path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(page.path.parent).st_mode), 0o700)
        self.assertNotIn("secret", str(page.path))
        self.assertIn('url=http://127.0.0.1:1/console/#secret=s&amp;&lt;"', page.path.read_text())

    def test_removed(self) -> None:
        """The file is removed with its directory, once or twice."""
        page = BrowserPage(URL)
        page.remove()
        page.remove()
        self.assertFalse(page.path.parent.exists())

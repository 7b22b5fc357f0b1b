"""Tests for :mod:`twisted_exec.cli.web.program`; a browser opens in the test of the process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.web.program import BrowserPage, has_browser

URL = "http://127.0.0.1:1/console/#secret=s&<"


class BrowserTests(SynchronousTestCase):
    """The file that leads a browser to the page."""

    def setUp(self) -> None:
        self.home = Path(self.mktemp()).absolute()
        self.home.mkdir()
        self.patch(os, "environ", {**os.environ, "HOME": str(self.home)})

    def page(self, *, snaps: bool = False) -> BrowserPage:
        """A page on a computer with Snaps or without."""
        page = BrowserPage(URL, self.home if snaps else self.home / "absent")
        self.addCleanup(page.remove)
        return page

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
        page = self.page()
        self.assertEqual(stat.S_IMODE(os.stat(page.path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(page.path.parent).st_mode), 0o700)
        self.assertNotIn("secret", str(page.path))
        self.assertIn('url=http://127.0.0.1:1/console/#secret=s&amp;&lt;"', page.path.read_text())

    def test_removed(self) -> None:
        """The file is removed with its directory, once or twice."""
        page = self.page()
        page.remove()
        page.remove()
        self.assertFalse(page.path.parent.exists())

    def test_snap(self) -> None:
        """A browser in a Snap sees the home directory, but no hidden names in it, and not /tmp."""
        page = self.page(snaps=True)
        directory = page.path.parent
        self.assertEqual(directory.parent, self.home)
        self.assertFalse(directory.name.startswith("."))
        self.assertEqual(stat.S_IMODE(os.stat(directory).st_mode), 0o700)
        page.remove()
        self.assertEqual(list(self.home.iterdir()), [])

    def test_no_snap(self) -> None:
        """Without Snaps nothing appears in the home directory."""
        self.page()
        self.assertEqual(list(self.home.iterdir()), [])

    def test_no_home(self) -> None:
        """Without a home directory the file is a temporary one."""
        snaps = self.home.with_name("snaps")
        self.home.rename(snaps)
        page = BrowserPage(URL, snaps)
        self.addCleanup(page.remove)
        self.assertTrue(page.path.exists())
        self.assertNotEqual(page.path.parent.parent, self.home)

"""
Open the page in the user's browser.

The URL has a secret, and every user of this computer can read the arguments of processes.  So the
browser gets the name of a file that only this user can read, and that leads to the URL.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from pathlib import Path

_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Web console</title>
<a href="{url}">Open the web console</a>
"""

_PREFIX = "twisted-exec-web-"
_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")

_SNAPS = Path("/var/lib/snapd")
"""Where a computer has Snaps, such as the Firefox of Ubuntu."""


def has_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether a browser would open in a window, rather than in this terminal."""
    return platform == "darwin" or any(environ.get(name) for name in _DISPLAYS)


def _new_directory(snaps: Path) -> Path:
    """
    Return a new directory that this user's browsers can read, and other users cannot.

    A browser in a Snap has a ``/tmp`` of its own, and in the home directory it can read only names
    without a dot in front.
    """
    if snaps.is_dir():
        with suppress(OSError, RuntimeError):  # there is no home directory, or none to write to
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=Path.home()))
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


class BrowserPage:
    """
    A file that leads to a URL.

    :param snaps: exists if browsers may be Snaps.
    :ivar path: the file, in a directory of its own that only this user can read.
    """

    def __init__(self, url: str, snaps: Path = _SNAPS) -> None:
        self.path = _new_directory(snaps) / "console.html"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(url=escape(url)))

    def open(self) -> None:
        """Open it, in a thread: some browsers return only when they are closed."""
        arguments = (self.path.as_uri(),)
        threading.Thread(target=webbrowser.open, args=arguments, daemon=True).start()

    def remove(self) -> None:
        """Remove the file, because its secret is of no use any more."""
        shutil.rmtree(self.path.parent, ignore_errors=True)

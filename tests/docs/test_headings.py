"""
Tests for the headings of all pages.
"""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import pages

ROOT = pages.DOCS.parent

# docutils reads such a line as a paragraph, without a warning.  A table's border has no words.
_JOINED = re.compile(r"^(?=.*\w)\S.* ([-=~^\"'`*+#])\1{3,}$", re.MULTILINE)


def joined_headings(text: str) -> list[str]:
    """Return the headings whose underline is on the line of the title."""
    return [match[0] for match in _JOINED.finditer(text)]


class HeadingsTests(SynchronousTestCase):
    """Each heading has its underline on the next line."""

    def test_pattern(self) -> None:
        """Headings with the underline on their line are found; correct headings and tables are not."""
        for text, count in (
            ("Driver socket ^^^^^^^^^^^^^\n\ntext\n", 1),
            ("Keys\n----\n\nMore ------\n", 1),
            ("Driver socket\n^^^^^^^^^^^^^\n", 0),
            ("=====  =====\nkey    value\n=====  =====\n", 0),
            (".. code-block:: text\n\n   Title ----\n", 0),
        ):
            self.assertEqual(len(joined_headings(text)), count, text)

    def test_pages(self) -> None:
        """No page has a heading with the underline on its line."""
        files: list[Path] = [ROOT / "CONTRIBUTING.rst", ROOT / "tests" / "README.rst"]
        for path in [*files, *pages.DOCS.rglob("*.rst")]:
            self.assertEqual(joined_headings(path.read_text(encoding="utf-8")), [], str(path))

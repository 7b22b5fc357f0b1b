"""
Tests for ``CHANGELOG.rst``, the page of a release, and ``SECURITY.md``.
"""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import twisted_exec

ROOT = Path(__file__).parents[2]
_ENTRY = re.compile(r"^twisted-exec (\S+) \((\d{4}-\d\d-\d\d)\)\n-+$", re.M)
_SCREENS, _LINES = 3, 50


def entries() -> dict[str, str]:
    """Return the text of each release, the newest first."""
    text = (ROOT / "CHANGELOG.rst").read_text()
    found = list(_ENTRY.finditer(text))
    ends = [each.start() for each in found[1:]] + [len(text)]
    return {each[1]: text[each.end() : end] for each, end in zip(found, ends, strict=True)}


def minor(version: str) -> str:
    """Return the minor release of a version, such as ``0.2`` of ``0.2.0.dev0``."""
    return ".".join(version.split(".")[:2])


class ChangelogTests(SynchronousTestCase):
    """What a user of the last release must know is short and complete."""

    def setUp(self) -> None:
        self.version, self.newest = next(iter(entries().items()))

    def test_released(self) -> None:
        """A released version has the newest entry."""
        if ".dev" not in twisted_exec.__version__:
            self.assertEqual(self.version, twisted_exec.__version__)

    def test_short(self) -> None:
        """The newest entry has three screens at most."""
        self.assertLessEqual(self.newest.strip().count("\n") + 1, _SCREENS * _LINES)

    def test_deprecated(self) -> None:
        """Each deprecation names the release that removes it, a later one."""
        table = self.newest.partition("Deprecated\n~")[2].partition("\n~")[0]
        rows = re.findall(r"^   \* - (.+?)(?=^   \* - |^\S)", table, re.M | re.S)[1:]
        self.assertGreater(len(rows), 4)
        for row in rows:
            *_, removed = re.findall(r"^     - (\S+)", row, re.M)
            self.assertGreater(removed.split("."), self.version.split("."), row)


class SecurityTests(SynchronousTestCase):
    """``SECURITY.md`` is about this release, and its links lead somewhere."""

    def setUp(self) -> None:
        self.text = (ROOT / "SECURITY.md").read_text()

    def test_supported(self) -> None:
        """The newest release of the changelog gets fixes."""
        self.assertIn(f"| {minor(next(iter(entries())))} | yes |", self.text)

    def test_links(self) -> None:
        """Each link leads to a file of the repository."""
        links = re.findall(r"\]\(([^)]+)\)", self.text)
        self.assertIn("docs/reference/threats.rst", links)
        self.assertEqual([link for link in links if not (ROOT / link).is_file()], [])

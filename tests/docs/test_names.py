"""
Tests for names of modules, classes and files on all pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from twisted.python.reflect import ModuleNotFound, namedAny
from twisted.trial.unittest import SynchronousTestCase

from . import pages

ROOT = pages.DOCS.parent

CREATED_BY_READERS = {
    "twisted_exec/api/kinds/machinenotes.py",
    "tests/api/kinds/test_machinenotes.py",
    "twisted_exec/apiserver/controllers/notes.py",
    "tests/apiserver/controllers/test_notes.py",
    "twisted_exec/auth/keys.py",
    "tests/auth/test_keys.py",
    "tests/console/test_company.py",
    "twisted_exec/spacemanager/providers/acme/provider.py",
}
"""Files that how-tos tell their readers to write."""

_LITERAL = re.compile(r"``([^`]+)``")
_DOTTED = re.compile(r"twisted_exec(\.\w+)+")
_BELOW = re.compile(r"[a-z_]+\.[a-z_]\w*(\.[a-z_]\w*)*\.\w+")
_GRPC = re.compile(r".*\.v1alpha1\.\w+")
_TESTS = re.compile(r"(?<![\w./-])tests(\.\w+)+")
_FILE = re.compile(r"(twisted_exec|twisted|tests|docs)/[\w./-]*\w\.(py|rst|yaml|sh|js|mjs|txt)")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page, without news fragments."""
    for path in [ROOT / "CONTRIBUTING.rst", *pages.DOCS.rglob("*.rst")]:
        if "newsfragments" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def literals(pattern: re.Pattern[str]) -> set[tuple[str, str]]:
    """Page and text of every literal that matches."""
    return {
        (page, literal)
        for page, text in texts()
        for literal in _LITERAL.findall(text)
        if pattern.fullmatch(literal)
    }


def exists(name: str) -> bool:
    """Return whether a dotted name can be imported."""
    try:
        namedAny(name)
    except (AttributeError, ModuleNotFound, ImportError):
        return False
    return True


class NamesTests(SynchronousTestCase):
    """Pages name only what exists."""

    def test_modules(self) -> None:
        """Each ``twisted_exec.x.y`` can be imported, unless the notes of a past release have it."""
        names = {
            (page, name)
            for page, name in literals(_DOTTED)
            if not _GRPC.fullmatch(name) and "/release-" not in page
        }
        self.assertEqual([each for each in sorted(names) if not exists(each[1])], [])

    def test_parts_of_modules(self) -> None:
        """
        Each ``x.y.name`` exists, where ``twisted_exec.x.y`` is a module or a package.

        Attributes of classes are left out: some exist in instances alone.
        """
        names = {
            (page, name)
            for page, name in literals(_BELOW)
            if "/release-" not in page
            and ".test_" not in name  # see tests.docs.named_tests
            and exists("twisted_exec." + ".".join(name.split(".")[:2]))
        }
        self.assertGreater(len(names), 20)
        self.assertEqual(
            [each for each in sorted(names) if not exists(f"twisted_exec.{each[1]}")], []
        )

    def test_tests(self) -> None:
        """Each ``tests.x.y`` exists, also in a command, unless the notes of a past release have it."""
        names = {
            (page, match[0])
            for page, text in texts()
            if "/release-" not in page
            for match in _TESTS.finditer(text)
        }
        self.assertGreater(len(names), 50)
        self.assertEqual([each for each in sorted(names) if not exists(each[1])], [])

    def test_index(self) -> None:
        """No page and no message installs twisted-exec from an index that may not have it."""
        installs = re.compile(r"(pip|pipx) install[^\n]* '?twisted-exec(?![/\w])")
        files = [ROOT / "README.md", *pages.DOCS.rglob("*.rst"), *ROOT.glob("twisted_exec/**/*.py")]
        self.assertEqual(
            [str(each) for each in files if installs.search(each.read_text(encoding="utf-8"))], []
        )

    def test_files(self) -> None:
        """Each path of a file in the repository exists."""
        names = {each for each in literals(_FILE) if each[1] not in CREATED_BY_READERS}
        self.assertEqual([each for each in sorted(names) if not (ROOT / each[1]).exists()], [])

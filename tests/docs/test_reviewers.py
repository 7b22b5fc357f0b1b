"""
Tests for ``docs/explanation/reviewers.rst``.
"""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import pages

PACKAGE = Path(__file__).parents[2] / "twisted_exec"
_ROW = re.compile(r"^   \* - ``(\w+)``\n((?:     .*\n)+)", re.M)
_CELL = re.compile(r"^     - ((?:.+\n)(?:       .+\n)*)", re.M)
_THREAT_TEST = re.compile(r"``(\w+)\.[\w.]+\.test_\w+``")
_SOURCES = ("*.py", "*.js")


def rows() -> dict[str, list[str]]:
    """Return the cells of each package: guards, input, where to begin, size, threats."""
    table = pages.table(pages.page("explanation/reviewers"), "Packages")
    return {
        name: [cell.strip() for cell in _CELL.findall(cells)] for name, cells in _ROW.findall(table)
    }


def size(package: Path) -> float:
    """Return the lines of code of a package, in hundreds."""
    paths = [path for pattern in _SOURCES for path in package.rglob(pattern)]
    written = [path for path in paths if "_pb2" not in path.name and "vendor" not in path.parts]
    lines = [line.strip() for path in written for line in path.read_text().splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#")) / 100


class ReviewersPageTests(SynchronousTestCase):
    """The page has each package, as it is."""

    def test_packages(self) -> None:
        """Each package has a row with all cells."""
        packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
        self.assertEqual(rows().keys(), packages)
        for name, cells in rows().items():
            self.assertEqual(len(cells), 5, name)

    def test_begin(self) -> None:
        """The modules to begin with exist."""
        for name, (_, _, begin, _, _) in rows().items():
            for module in re.findall(r"``([\w/.]+)``", begin):
                place = PACKAGE / name / module
                self.assertTrue(place.exists() or place.with_suffix(".py").exists(), place)

    def test_size(self) -> None:
        """A size is right within a quarter."""
        for name, (_, _, _, told, _) in rows().items():
            found = size(PACKAGE / name)
            self.assertTrue(0.75 * found < int(told) < 1.25 * found, f"{name}: {found:.0f}")

    def test_threats(self) -> None:
        """The numbers of tests of threats are right within a quarter."""
        tests = _THREAT_TEST.findall(pages.page("reference/threats"))
        for name, (_, _, _, _, told) in rows().items():
            found = tests.count(name)
            self.assertTrue(0.75 * found <= int(told) <= 1.25 * found, f"{name}: {found}")

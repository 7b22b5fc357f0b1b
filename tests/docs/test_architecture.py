"""
Tests for ``docs/explanation/architecture.rst``.
"""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import pages

PACKAGE = Path(__file__).parents[2] / "twisted_exec"
_ROW = re.compile(r"^   \* - (.+(?:\n {6,}[^-\s].*)*)$", re.MULTILINE)


def sub_packages() -> set[str]:
    """Return the sub-packages of the page's table, in full: ``.text`` is in the package before it."""
    table = pages.table(pages.page("explanation/architecture"), "Sub-packages")
    found = set()
    for cell in _ROW.findall(table):
        package = ""
        for first, name in re.findall(r"``(\w*)\.(\w+)``", cell):
            package = first or package
            found.add(f"{package}.{name}")
    return found


class ArchitecturePageTests(SynchronousTestCase):
    """The page has the packages as they are."""

    def test_sub_packages(self) -> None:
        """Each sub-package has a row, except generated messages."""
        paths = {path.parent.relative_to(PACKAGE) for path in PACKAGE.glob("*/*/__init__.py")}
        self.assertEqual(
            sub_packages(), {".".join(path.parts) for path in paths if path.name != "protos"}
        )

    def test_packages(self) -> None:
        """Each package that programs import has a row."""
        text = pages.section(pages.page("explanation/architecture"), "Packages")
        listed = set(re.findall(r"^   \* - ``(\w+)``$", text, re.MULTILINE))
        packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
        self.assertEqual(listed, packages - {"testing"})

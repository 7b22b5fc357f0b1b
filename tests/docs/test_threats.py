"""
Tests for ``docs/explanation/threats.rst`` and ``docs/reference/threats.rst``.
"""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from . import pages
from .named_tests import exists, functions_of

AREAS = (
    "Identity and permission",
    "Spaces",
    "Tokens and secrets",
    "Resumed sessions",
    "Forwarded requests",
    "Bytes from peers",
    "Hosts and transports",
    "Output to people",
    "The web console",
    "Agents",
)

_ROW = re.compile(
    r"^   \* - (.+?)\n     - (.+?)\n     - (.+?)\n     - (.+?)(?=\n   \* |\n*\Z)", re.M | re.S
)
_NAME = re.compile(r"``([\w.]+)``")


def rows(table: str) -> list[list[str]]:
    """Return the cells of each row of a table: threat, where it was seen, defence, tests."""
    return [[" ".join(cell.split()) for cell in cells] for cells in _ROW.findall(table)][1:]


def areas() -> dict[str, list[list[str]]]:
    """Return the rows of each area."""
    threats = pages.page("reference/threats")
    return {area: rows(pages.section(threats, area)) for area in AREAS}


class ThreatsPageTests(SynchronousTestCase):
    """Every defence that the pages claim has tests."""

    def test_rows(self) -> None:
        """Each area has threats, and each row is complete and names tests."""
        for title, threats in areas().items():
            self.assertTrue(threats, title)
            self.assertEqual([row for row in threats if not all(row)], [], title)
            self.assertEqual([row[0] for row in threats if not _NAME.findall(row[3])], [], title)

    def test_areas(self) -> None:
        """The page of the rules leads to each area."""
        rules = pages.page("explanation/threats")
        labels = re.findall(r"^\.\. _(threats-[\w-]+):$", pages.page("reference/threats"), re.M)
        self.assertEqual(re.findall(r":ref:`(threats-[\w-]+)`", rules), labels)
        self.assertEqual(len(labels), len(AREAS))

    def test_every_test(self) -> None:
        """Every named test exists."""
        for threats in areas().values():
            for threat, _, _, tests in threats:
                for name in _NAME.findall(tests):
                    self.assertTrue(exists(name), f"{threat}: {name}")

    def test_vanished(self) -> None:
        """A test that does not exist is noticed."""
        self.assertNotIn("test_nothing", functions_of("auth.test_jose"))
        self.assertEqual(functions_of("auth.test_nothing"), frozenset())

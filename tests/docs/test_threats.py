"""
Tests for ``docs/reference/threats.rst``.
"""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from . import pages
from .named_tests import exists, functions_of

TABLES = (
    "The rules behind the rows",
    "Identity and permission",
    "Spaces",
    "Tokens and secrets",
    "Resumed sessions",
    "Forwarded requests",
    "Bytes from peers",
    "Hosts and transports",
    "Output to people",
    "The web console",
)
"""Number of threats in each table; change it when you add or remove a threat."""

_ROW = re.compile(
    r"^   \* - (.+?)\n     - (.+?)\n     - (.+?)\n     - (.+?)(?=\n   \* |\n*\Z)", re.M | re.S
)
_NAME = re.compile(r"``([\w.]+)``")


def rows(title: str) -> list[list[str]]:
    """Return the cells of each row of a table: threat, where it was seen, defence, tests."""
    table = pages.table(pages.page("reference/threats"), title)
    return [[" ".join(cell.split()) for cell in cells] for cells in _ROW.findall(table)][1:]


class ThreatsPageTests(SynchronousTestCase):
    """Every defence that the page claims has tests."""

    def test_rows(self) -> None:
        """Each table of the page has threats, and each row is complete."""
        for title in TABLES:
            threats = rows(title)
            self.assertTrue(threats, title)
            self.assertEqual([row for row in threats if not all(row)], [], title)

    def test_every_claim(self) -> None:
        """Each row names tests."""
        for title in TABLES:
            for threat, _, _, tests in rows(title):
                self.assertTrue(_NAME.findall(tests), threat)

    def test_every_test(self) -> None:
        """Every named test exists."""
        for title in TABLES:
            for threat, _, _, tests in rows(title):
                for name in _NAME.findall(tests):
                    self.assertTrue(exists(name), f"{threat}: {name}")

    def test_vanished(self) -> None:
        """A test that does not exist is noticed."""
        self.assertNotIn("test_nothing", functions_of("auth.test_jose"))
        self.assertEqual(functions_of("auth.test_nothing"), frozenset())

"""
Tests for ``docs/explanation/threats.rst``.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import pages

TESTS = Path(__file__).parents[1]
TABLES = {
    "The rules behind the rows": 3,
    "Identity and permission": 66,
    "Spaces": 22,
    "Tokens and secrets": 6,
    "Resumed sessions": 12,
    "Forwarded requests": 9,
    "Bytes from peers": 20,
    "Hosts and transports": 16,
    "Output to people": 22,
    "The web console": 11,
}
"""Number of threats in each table; change it when you add or remove a threat."""

_ROW = re.compile(
    r"^   \* - (.+?)\n     - (.+?)\n     - (.+?)\n     - (.+?)(?=\n   \* |\n*\Z)", re.M | re.S
)
_NAME = re.compile(r"``([\w.]+)``")


def rows(title: str) -> list[list[str]]:
    """Return the cells of each row of a table: threat, where it was seen, defence, tests."""
    table = pages.table(pages.page("explanation/threats"), title)
    return [[" ".join(cell.split()) for cell in cells] for cells in _ROW.findall(table)][1:]


@cache
def functions_of(module: str) -> frozenset[str]:
    """Return the names of all functions of a test module, such as ``auth.test_jose``."""
    path = TESTS.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


class ThreatsPageTests(SynchronousTestCase):
    """Every defence that the page claims has tests."""

    def test_rows(self) -> None:
        """No threat disappears from the page, and each row is complete."""
        for title, number in TABLES.items():
            threats = rows(title)
            self.assertEqual(len(threats), number, title)
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
                    module, _, test = name.rpartition(".")
                    self.assertIn(test, functions_of(module), f"{threat}: {name}")

    def test_vanished(self) -> None:
        """A test that does not exist is noticed."""
        self.assertNotIn("test_nothing", functions_of("auth.test_jose"))
        self.assertEqual(functions_of("auth.test_nothing"), frozenset())

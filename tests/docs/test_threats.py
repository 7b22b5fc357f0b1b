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
    "Who may, and as whom": 30,
    "Spaces": 21,
    "Tokens and secrets": 6,
    "What a hop passes on": 8,
    "Bytes of a peer": 7,
    "Hosts and transports": 4,
    "What is told to people": 5,
    "Not here yet": 3,
}
"""How many threats each has: whoever takes one away says so here."""

_ROW = re.compile(
    r"^   \* - (.+?)\n     - (.+?)\n     - (.+?)\n     - (.+?)(?=\n   \* |\n*\Z)", re.M | re.S
)
_NAME = re.compile(r"``([\w.]+)``")


def rows(title: str) -> list[list[str]]:
    """The cells of each threat of a table: what, where it was seen, what is done, the tests."""
    table = pages.table(pages.page("explanation/threats"), title)
    return [[" ".join(cell.split()) for cell in found] for found in _ROW.findall(table)][1:]


@cache
def named_in(module: str) -> frozenset[str]:
    """The names of a module's tests, such as those of ``auth.test_jose``."""
    path = TESTS.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    made = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, made))


class ThreatsPageTests(SynchronousTestCase):
    """What is claimed is tried."""

    def test_rows(self) -> None:
        """Each threat has its line, with what is done about it."""
        for title, number in TABLES.items():
            found = rows(title)
            self.assertEqual(len(found), number, title)
            self.assertEqual([row for row in found if not all(row)], [], title)

    def test_every_claim(self) -> None:
        """Each line has tests, but where it says that there is nothing yet."""
        for title in TABLES:
            for threat, _, _, told in rows(title):
                has_tests = bool(_NAME.findall(told))
                self.assertEqual(has_tests, title != "Not here yet", threat)

    def test_every_test(self) -> None:
        """Each test that is named is there."""
        for title in TABLES:
            for threat, _, _, told in rows(title):
                for name in _NAME.findall(told):
                    module, _, test = name.rpartition(".")
                    self.assertIn(test, named_in(module), f"{threat}: {name}")

    def test_vanished(self) -> None:
        """A test that is not there is missed."""
        self.assertNotIn("test_nothing", named_in("auth.test_jose"))
        self.assertEqual(named_in("auth.test_nothing"), frozenset())

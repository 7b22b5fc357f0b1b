"""
Tests for ``docs/explanation/faults.rst``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import pages

TESTS = Path(__file__).parents[1]
FAULTS = list(range(1, 43))

_NUMBER = re.compile(r"^   \* - (\d+)$", re.MULTILINE)
_TEST = re.compile(r"test_(\d+)_\w")


def numbers() -> Iterator[int]:
    """The number of each test that is named after a fault."""
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = _TEST.match(node.name)
                if found is not None:
                    yield int(found[1])


class FaultsPageTests(SynchronousTestCase):
    """What is promised is tried."""

    def test_numbers(self) -> None:
        """Each fault has its line, in order."""
        told = _NUMBER.findall(pages.page("explanation/faults"))
        self.assertEqual([int(each) for each in told], FAULTS)

    def test_every_promise(self) -> None:
        """Each line has a test of its number."""
        self.assertEqual(sorted(set(FAULTS) - set(numbers())), [])

"""
Tests for ``docs/explanation/faults.rst``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from . import pages

TESTS = Path(__file__).parents[1]
FAULTS = list(range(1, 43))

_NUMBER = re.compile(r"^   \* - (\d+)$", re.MULTILINE)
_TEST = re.compile(r"^ +(?:async )?def test_(\d+)_\w", re.MULTILINE)


def numbers() -> Iterator[int]:
    """Yield the number of each test that is named after a fault."""
    for path in TESTS.rglob("*.py"):
        yield from map(int, _TEST.findall(path.read_text(encoding="utf-8")))


class FaultsPageTests(SynchronousTestCase):
    """Every promise of the page has a test."""

    def test_numbers(self) -> None:
        """Each fault has its row, in order."""
        rows = _NUMBER.findall(pages.page("explanation/faults"))
        self.assertEqual([int(number) for number in rows], FAULTS)

    def test_every_promise(self) -> None:
        """Each row has a test with its number."""
        self.assertEqual(sorted(set(FAULTS) - set(numbers())), [])

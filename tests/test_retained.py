"""
Tests for :mod:`tests.retained`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import entries, growth, instances, weight


class Part:
    """Something to retain."""


class Keeper:
    """It retains what it is given, in slots of every form."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def method(self) -> None:
        """So that there is a bound method."""


class Slotted:
    __slots__ = ("kept",)

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class RetainedTests(SynchronousTestCase):
    """Nothing hides."""

    def test_instances(self) -> None:
        """An object is found in collections, keys, slots, closures and bound methods."""
        part = Part()
        for kept in (
            [part],
            {part: 1},
            OrderedDict(a=part),
            deque([(part,)]),
            Slotted({part}),
            lambda: part,
            Keeper(part).method,
            partial(print, part),
            [part].append,
        ):
            self.assertEqual(instances(Keeper(kept), Part), [part], kept)

    def test_growth(self) -> None:
        """What an object retains for each act is found; what it retains once is not."""
        kept: list[object] = []
        self.assertEqual(growth(Keeper(kept), lambda: kept.append(1)), 4)
        found: dict[int, int] = {}
        self.assertEqual(growth(Keeper(found), lambda: found.update({1: 2})), 0)

    def test_beside(self) -> None:
        """What the owner only uses is not its own, and neither is a clock."""
        clock, other = Clock(), Keeper([Part()])
        clock.callLater(1, print, Part())
        self.assertEqual(instances(Keeper([clock, other]), Part, beside=[other]), [])

    def test_entries(self) -> None:
        """Entries of all collections count, but attributes do not."""
        keeper = Keeper({"a": [1, 2, 3]})
        before = entries(keeper)
        self.assertEqual(before, 4)
        keeper.kept["b"] = deque([1])
        self.assertEqual(entries(keeper), before + 2)
        keeper.kept.clear()
        self.assertEqual(entries(keeper), 0)

    def test_weight(self) -> None:
        """Texts count by their length, except for keys."""
        light, heavy = weight(Keeper([b""])), weight(Keeper([b"x" * 500, {"a": bytearray(300)}]))
        self.assertEqual(heavy - light, 800)

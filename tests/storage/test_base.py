"""
Tests for :mod:`twisted_exec.storage.base`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.contracts.storage import MACHINES, machine
from twisted_exec.storage.base import Through
from twisted_exec.storage.interfaces import is_exclusive
from twisted_exec.storage.memory import MemoryStorage


class Broken(MemoryStorage):
    """Is not well."""

    exclusive = False

    async def _fail(self) -> object:
        raise OSError("gone")

    def probe(self) -> Deferred[object]:
        """Fails."""
        return Deferred.fromCoroutine(self._fail())


class ThroughTests(TestCase):
    """Tests for :class:`Through`."""

    async def test_below(self) -> None:
        """What there is to say about the store is said of the one below."""
        below = MemoryStorage()
        below.startService()
        self.addCleanup(below.stopService)
        through = Through(below)
        await through.when_ready()
        before = through.version()
        await below.create(MACHINES, machine("a"))
        self.assertEqual((through.version(), await through.current()), (before + 1, before + 1))
        self.assertTrue(through.exclusive)
        await through.probe()

    async def test_broken(self) -> None:
        """So is what is wrong with it."""
        through = Through(Broken())
        self.assertFalse(through.exclusive)
        await self.assertFailure(through.probe(), OSError)


class ExclusiveTests(SynchronousTestCase):
    """Tests for :func:`is_exclusive`."""

    def test_names(self) -> None:
        """A store of release 0.1 says it by another name, a subclass perhaps by both."""
        cases: list[tuple[dict[str, bool], bool]] = [
            ({"exclusive": True}, True),
            ({"exclusive": False}, False),
            ({"alone": True}, True),
            ({"alone": False}, False),
            ({"exclusive": True, "alone": False}, False),
            ({}, False),
        ]
        for attributes, expected in cases:
            storage: Any = SimpleNamespace(**attributes)
            self.assertIs(is_exclusive(storage), expected, attributes)

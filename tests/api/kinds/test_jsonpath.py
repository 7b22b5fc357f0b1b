"""
Tests for :mod:`twisted_exec.api.kinds.jsonpath`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.jsonpath import column, condition


class PathTests(SynchronousTestCase):
    """Values at paths, which columns show."""

    def read(self, path: str, obj: Object) -> str | None:
        return column("X", path).read(obj)

    def test_members(self) -> None:
        """A path of members is followed; a missing or empty value is ``<none>``."""
        self.assertEqual(self.read(".a.b", {"a": {"b": 0}}), "0")
        for there in ({}, {"a": None}, {"a": {"b": ""}}, {"a": [1]}):
            self.assertEqual(self.read(".a.b", there), "<none>")

    def test_choice(self) -> None:
        """A filter selects a list item by a member."""
        there = {"status": {"conditions": [{"type": "A", "status": "False"}, {}]}}
        self.assertEqual(self.read(condition("A"), there), "False")
        self.assertEqual(self.read(condition("B"), there), "<none>")
        self.assertEqual(self.read(".status.conditions[*].type", there), "A")

    def test_not_understood(self) -> None:
        """A path with unsupported syntax is refused."""
        for path in ("a", ".a[0]", '.a[?(@.b>"c")]'):
            with self.assertRaises(ValueError):
                column("X", path)

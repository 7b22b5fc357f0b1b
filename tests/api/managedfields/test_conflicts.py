"""
Tests for :mod:`twisted_exec.api.managedfields.conflicts`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.api.managedfields.owned import VERSION, applied, created, pool
from twisted_exec.api.kinds import Object
from twisted_exec.api.managedfields.conflicts import FieldManagerConflicts


class ConflictTests(SynchronousTestCase):
    """Messages and causes of a conflict."""

    def conflict(self, old: Object, config: Object, manager: str) -> FieldManagerConflicts:
        with self.assertRaises(FieldManagerConflicts) as caught:
            applied(old, config, manager)
        return caught.exception

    def test_one(self) -> None:
        """A single conflict is a message of one line."""
        error = self.conflict(created(pool({"a": "1"})), pool({"a": "2"}), "two")
        told = f'conflict with "maker" using {VERSION}: .metadata.labels.a'
        self.assertEqual(error.message, f"Apply failed with 1 conflict: {told}")
        self.assertEqual((error.code, error.reason), (409, "Conflict"))

    def test_several(self) -> None:
        """Several conflicts are grouped by manager; the API version is omitted for an applier."""
        old = applied(created(pool({"a": "1"})), pool({"b": "1", "c": "1"}), "applier")
        error = self.conflict(old, pool({"a": "2", "b": "2", "c": "2"}), "two")
        self.assertEqual(
            error.message.splitlines(),
            [
                'Apply failed with 3 conflicts: conflicts with "applier":',
                "- .metadata.labels.b",
                "- .metadata.labels.c",
                f'conflicts with "maker" using {VERSION}:',
                "- .metadata.labels.a",
            ],
        )
        self.assertEqual(
            error.details["causes"][0],
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "applier"',
                "field": ".metadata.labels.b",
            },
        )

    def test_very_many(self) -> None:
        """The message counts all conflicts; details list the first thousand."""
        names = [f"k{number}" for number in range(1500)]
        old = created(pool(dict.fromkeys(names, "1")))
        error = self.conflict(old, pool(dict.fromkeys(names, "2")), "two")
        self.assertIn("Apply failed with 1500 conflicts: ", error.message)
        self.assertEqual(len(error.details["causes"]), 1000)
        self.assertEqual(len(error.message.splitlines()), 1001)

"""
Tests for :mod:`twisted_exec.api.managedfields.last_applied`.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.api.managedfields.owned import applied, created, pool
from twisted_exec.api.kinds import Object
from twisted_exec.api.managedfields.conflicts import FieldManagerConflicts
from twisted_exec.api.managedfields.last_applied import ANNOTATION


class LastAppliedTests(SynchronousTestCase):
    """kubectl's annotation of the configuration that it applied client-side."""

    def stored(self, note: Any) -> Object:
        text = note if isinstance(note, str) else json.dumps(note)
        return created(
            pool({"a": "1"}, annotations={ANNOTATION: text}),
            "kubectl-client-side-apply",
        )

    def test_taken_over(self) -> None:
        """
        kubectl may change fields that its annotation lists unchanged; the annotation is updated.
        """
        old = self.stored(pool({"a": "1"}))
        after = applied(old, pool({"a": "2"}), "kubectl")
        note = json.loads(after["metadata"]["annotations"][ANNOTATION])
        self.assertEqual(note, pool({"a": "2"}))

    def test_worthless_notes(self) -> None:
        """An annotation that is unreadable or does not match the object permits no change."""
        for note in [
            "",
            "{",
            "7",
            "[]",
            "[" * 100_000,
            {"kind": "x"},
            pool({"a": "1"}) | {"apiVersion": "v9"},
            pool({"a": "0"}),
            pool({"a": 1}),
            '{"apiVersion": "compute.ironcore.dev/v1alpha1", "spec": '
            + '{"a": ' * 900
            + "1"
            + "}" * 901,
        ]:
            with self.assertRaises(FieldManagerConflicts):
                applied(self.stored(note), pool({"a": "2"}), "kubectl")

    def test_others(self) -> None:
        """Other managers neither gain permission from kubectl's annotation nor write it."""
        with self.assertRaises(FieldManagerConflicts):
            applied(self.stored(pool({"a": "1"})), pool({"a": "2"}), "other")
        old = self.stored(pool({"a": "1"}))
        self.assertEqual(
            applied(old, pool({"b": "1"}), "other")["metadata"]["annotations"],
            old["metadata"]["annotations"],
        )

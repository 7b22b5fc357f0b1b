"""
Tests for :mod:`twisted_exec.api.managedfields.entries`.
"""

from __future__ import annotations

import copy

from twisted.trial.unittest import SynchronousTestCase

from tests.api.managedfields.owned import VERSION, created, pool
from twisted_exec.api.kinds import Object
from twisted_exec.api.managedfields import entries
from twisted_exec.api.managedfields.entries import UPDATE, Manager, ManagerEntry


class DecodeTests(SynchronousTestCase):
    """Tests for :func:`managers.decode`."""

    ENTRY: Object = {
        "manager": "m",
        "operation": "Update",
        "apiVersion": VERSION,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {}},
    }

    def test_garbage(self) -> None:
        """An entry that breaks its type raises a ValueError."""
        for raw in [
            None,
            "x",
            {},
            [None],
            ["x"],
            [{}],
            [self.ENTRY | {"operation": "Wish"}],
            [self.ENTRY | {"operation": 1}],
            [self.ENTRY | {"apiVersion": ""}],
            [self.ENTRY | {"fieldsType": "FieldsV2"}],
            [self.ENTRY | {"fieldsV1": []}],
            [self.ENTRY | {"fieldsV1": {"x": {}}}],
            [self.ENTRY | {"manager": ["m"]}],
            [self.ENTRY | {"manager": "m" * 129}],
            [self.ENTRY | {"subresource": 1}],
            [self.ENTRY | {"time": "yesterday"}],
        ]:
            with self.assertRaises(ValueError, msg=str(raw)):
                entries.decode_entries(raw, VERSION)

    def test_read(self) -> None:
        """Entries of an Apply drop their API version; entries of an Update keep it."""
        raw = [self.ENTRY, self.ENTRY | {"operation": "Apply", "subresource": "status"}]
        first, second = entries.decode_entries(raw, VERSION)
        self.assertEqual((first.api_version, second.api_version), (VERSION, ""))
        self.assertEqual((first.subresource, second.subresource), ("", "status"))


class CappedTests(SynchronousTestCase):
    """Tests for :func:`managers.capped`."""

    def test_oldest(self) -> None:
        """The oldest updates become one entry, as of the youngest of them; applies stay."""
        managed = {
            Manager(f"m{number}", UPDATE, VERSION, ""): ManagerEntry(
                {f"f:{number}": {}}, f"2026-11-20T05:00:{number:02}Z"
            )
            for number in range(12)
        }
        applied = Manager("m", "Apply", "", "")
        left = entries.capped({applied: ManagerEntry({"f:x": {}}), **managed})
        self.assertEqual(len(left), 11)
        bucket = left[Manager("ancient-changes", UPDATE, VERSION, "")]
        self.assertEqual(
            bucket, ManagerEntry({"f:0": {}, "f:1": {}, "f:2": {}}, "2026-11-20T05:00:02Z")
        )
        self.assertIn(applied, left)
        self.assertEqual(entries.capped(left), left)


class OnlyTimesDifferTests(SynchronousTestCase):
    """Tests for :func:`managers.only_times_differ`."""

    def test_told(self) -> None:
        """True if the times of entries differ and nothing else does."""
        old = created(pool({"a": "1"}))
        later, other, mine = (copy.deepcopy(old) for _ in range(3))
        later["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
        self.assertTrue(entries.only_times_differ(later, old))
        self.assertFalse(entries.only_times_differ(old, old))
        other["metadata"]["managedFields"][0]["manager"] = "other"
        self.assertFalse(entries.only_times_differ(other, old))
        mine["metadata"]["labels"] = {"a": "2"}
        mine["metadata"]["managedFields"] = later["metadata"]["managedFields"]
        self.assertFalse(entries.only_times_differ(mine, old))

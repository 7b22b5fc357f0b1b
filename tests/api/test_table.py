"""
Tests for :mod:`twisted_exec.api.table`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds, table

POOL = {
    "kind": "MachinePool",
    "metadata": {"name": "p", "creationTimestamp": "2023-11-14T22:13:20Z"},
    "status": {"availableMachineClasses": [{"name": "small"}]},
}
NOW = 1_700_000_000 + 300


class TableTests(SynchronousTestCase):
    """Tests for :func:`table.table`."""

    def test_rows(self) -> None:
        """Name, the kind's columns, the age; each row has its object's metadata."""
        made = table.table(kinds.MACHINEPOOLS, [POOL], NOW, metadata={"resourceVersion": "7"})
        self.assertEqual(made["metadata"], {"resourceVersion": "7"})
        self.assertEqual(
            [column["name"] for column in made["columnDefinitions"]],
            ["Name", "MachineClasses", "State", "Age", "Reason", "Message"],
        )
        (row,) = made["rows"]
        self.assertEqual(row["cells"], ["p", "small", "Unknown", "5m", "<none>", "<none>"])
        self.assertEqual(row["object"]["kind"], "PartialObjectMetadata")
        self.assertEqual(row["object"]["metadata"], POOL["metadata"])

    def test_include(self) -> None:
        """The ``include`` option decides whether rows carry the object."""
        for include, told in [("Object", POOL), ("None", None)]:
            made = table.table(kinds.MACHINEPOOLS, [POOL], NOW, metadata={}, include=include)
            self.assertEqual(made["rows"][0].get("object"), told)

    def test_without_columns(self) -> None:
        """Later events of a watch have no column definitions."""
        made = table.table(kinds.MACHINEPOOLS, [POOL], NOW, metadata={}, columns=False)
        self.assertEqual(made["columnDefinitions"], [])

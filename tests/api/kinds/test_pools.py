"""
Tests for :mod:`twisted_exec.api.kinds.pools`.  Objects take the way into the store.
"""

from __future__ import annotations

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import kinds
from twisted_exec.api.dialects import SPHERIC


class PoolTests(KindTestCase):
    """MachinePools."""

    kind = kinds.MACHINEPOOLS

    def test_provider(self) -> None:
        """The provider's ID is set once."""
        old = self.create(spec={"providerID": "a://b"})
        self.assertEqual(
            self.update_refused(old, spec={"providerID": "c://d"}),
            ["spec.providerID: Forbidden: field is immutable"],
        )
        empty = self.create()
        self.update(empty, spec={"providerID": "x"})

    def test_columns(self) -> None:
        """The columns show the pool's state and available classes, and wide ones why it is not ready."""
        pool = {"status": {"availableMachineClasses": [{"name": "a"}, {"name": "b"}]}}
        self.assertEqual(self.kind.columns[0].read(pool), "a,b")
        self.assertEqual(self.kind.columns[0].read({}), "<none>")
        for status, cells in (
            ("True", ["Ready", "<none>", "<none>"]),
            ("False", ["NotReady", "PoolletStopped", "stopped"]),
            ("Unknown", ["Unknown", "PoolletStopped", "stopped"]),
        ):
            reasons = {"reason": "PoolletStopped", "message": "stopped"}
            condition = {"type": "Ready", "status": status, **reasons}
            pool = {"status": {"state": "Ready", "conditions": [condition]}}
            self.assertEqual([column.read(pool) for column in self.kind.columns][1:], cells)
        for status, cell in (({}, "Unknown"), ({"status": {"state": "Offline"}}, "Offline")):
            self.assertEqual(self.kind.columns[1].read(status), cell)


class ClassTests(KindTestCase):
    """MachineClasses."""

    kind = kinds.MACHINECLASSES

    def test_capabilities(self) -> None:
        """CPU and memory are needed and positive."""
        self.create(capabilities={"cpu": "500m", "memory": "1Gi", "gpu": 0})
        self.assertEqual(
            self.refused(capabilities={"cpu": 0}),
            [
                "capabilities[cpu]: Invalid value: 0: must be greater than zero",
                "capabilities[memory]: Required value: must be greater than zero",
            ],
        )
        self.assertEqual(len(self.refused(capabilities={"cpu": "x", "memory": "-1"})), 2)

    def test_immutable(self) -> None:
        """Capabilities never change."""
        old = self.create(capabilities={"cpu": 1, "memory": 1})
        self.assertEqual(
            self.update_refused(old, capabilities={"cpu": 2, "memory": 1}),
            ["capabilities: Forbidden: field is immutable"],
        )


class InstanceTypeTests(KindTestCase):
    """Instance types of spheric."""

    kind = kinds.class_kind(SPHERIC)
    measured = {"cpu": "1", "memory": "1Gi"}

    def test_discrete(self) -> None:
        """A discrete type requires capabilities."""
        for fields in ({}, {"class": "Discrete"}):
            self.assertEqual(len(self.refused(**fields)), 2)
            self.create(capabilities=self.measured, **fields)

    def test_continuous(self) -> None:
        """A continuous type needs no capabilities."""
        self.create(**{"class": "Continuous"})

    def test_fixed(self) -> None:
        """The class of an instance type is immutable."""
        made = self.create(capabilities=self.measured, **{"class": "Discrete"})
        self.assertEqual(
            self.update_refused(made, **{"class": "Continuous"}),
            ["class: Forbidden: field is immutable"],
        )

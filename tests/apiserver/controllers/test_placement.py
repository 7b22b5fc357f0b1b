"""
Tests for :mod:`twisted_exec.apiserver.controllers.placement`: where a machine is placed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.dialects import IRONCORE, SPHERIC
from twisted_exec.apiserver.controllers.placement import (
    FAILED,
    OUT_OF_CAPACITY,
    BoundMachines,
    Placement,
    plan,
)

TAINT = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True"}


def pool(
    name: str,
    room: Any = 3,
    *,
    capacity: Any = 10,
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    ready: str = "True",
    classes: str = "small",
) -> dict[str, Any]:
    """A pool that offers one class."""
    key = f"class/machine.{classes}"
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": taints or []},
        "status": {
            "conditions": [{**READY, "status": ready}],
            "capacity": {key: capacity} if capacity is not None else {},
            "allocatable": {key: room} if room is not None else {},
        },
    }


NOT_OFFERED = 'no machine pool offers class "small" (there is 1 pool)'


class PlanTests(SynchronousTestCase):
    """One machine and some pools; the classes are not known, or these."""

    classes: set[str] | None = None

    def plan(
        self, *pools: dict[str, Any], bound: dict[tuple[str, str], int] | None = None, **spec: Any
    ) -> Placement:
        machine = {
            "metadata": {"name": "vm"},
            "spec": {"machineClassRef": {"name": "small"}, **spec},
        }
        return plan(IRONCORE, machine, pools, Counter(bound or {}), self.classes)

    def refused(self, *pools: dict[str, Any], **spec: Any) -> str:
        found = self.plan(*pools, **spec)
        self.assertEqual(found.pool, "")
        return f"{found.reason}: {found.message}"

    def test_most_room(self) -> None:
        """The pool with the most room wins; among equals the first by name."""
        self.assertEqual(self.plan(pool("a", 1), pool("b", "3"), pool("c", 2)).pool, "b")
        self.assertEqual(self.plan(pool("b"), pool("a")).pool, "a")

    def test_bound(self) -> None:
        """Bound machines count before the pool reports them."""
        bound = {("a", "small"): 9, ("b", "small"): 3}
        self.assertEqual(self.plan(pool("a", 10), pool("b", 5), bound=bound).pool, "b")
        bound[("b", "small")] = 10
        self.assertEqual(self.plan(pool("a", 10), pool("b", 5), bound=bound).pool, "a")
        bound[("a", "small")] = 10
        full = self.plan(pool("a", 10), pool("b", 5), bound=bound)
        self.assertEqual(full.reason, OUT_OF_CAPACITY)
        other = {("a", "large"): 10}
        self.assertEqual(self.plan(pool("a", 1), bound=other).pool, "a")

    def test_less_than_capacity(self) -> None:
        """A pool that has less left than was counted knows better."""
        told = self.refused(pool("a", 0, capacity=10))
        self.assertEqual(
            told,
            "OutOfCapacity: no room for class small: 1 of 1 machinepools (0 of 10 places free)",
        )

    def test_without_capacity(self) -> None:
        """A pool may tell only one of the two."""
        self.assertEqual(self.plan(pool("a", 1, capacity=None)).pool, "a")
        self.assertEqual(self.plan(pool("a", None, capacity=1)).pool, "a")
        self.assertIn(NOT_OFFERED, self.refused(pool("a", None, capacity=None)))
        self.assertIn(NOT_OFFERED, self.refused(pool("a", classes="large")))
        self.assertIn("no room", self.refused(pool("a", "many")))

    def test_classes_alone(self) -> None:
        """A pool may tell its classes and not how much there is; then the emptiest is taken."""
        pools = [pool("a", None, capacity=None), pool("b", None, capacity=None)]
        for each in pools:
            each["status"]["availableMachineClasses"] = [{"name": "small"}]
        self.assertEqual(self.plan(*pools, bound={("a", "small"): 1}).pool, "b")
        self.assertIn(NOT_OFFERED, self.refused(pool("a", None, capacity=None)))

    def test_ready(self) -> None:
        """Only a pool that is ready, and stays."""
        for ready in ("False", "Unknown"):
            self.assertIn("not ready: 1", self.refused(pool("a", ready=ready)))
        going = pool("a")
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.assertIn("not ready: 1", self.refused(going))
        older = pool("a")
        older["status"] |= {"conditions": [], "state": "Ready"}
        self.assertEqual(self.plan(older).pool, "a")

    def test_selector(self) -> None:
        """Only a pool with the labels that the machine selects."""
        pools = [pool("a", 9), pool("b", 1, labels={"zone": "1", "x": "y"})]
        self.assertEqual(self.plan(*pools, machinePoolSelector={"zone": "1"}).pool, "b")
        told = self.refused(*pools, machinePoolSelector={"zone": "2", "x": "y"})
        self.assertEqual(
            told, f"{FAILED}: no machine pool has the labels x=y zone=2 (there are 2 pools)"
        )
        told = self.refused(*pools, pool("c", ready="False"), machinePoolSelector={"zone": "2"})
        self.assertEqual(
            told,
            f"{FAILED}: not ready: 1 of 3 machinepools; without the labels zone=2: 2 of 3 machinepools",
        )

    def test_taints(self) -> None:
        """Only a pool whose taints the machine tolerates."""
        for effect in ("NoSchedule", "NoExecute"):
            taints = [{**TAINT, "effect": effect}]
            self.assertIn("with a taint", self.refused(pool("a", taints=taints)))
        for toleration, good in (
            ({"key": "gpu", "operator": "Exists"}, True),
            ({"key": "gpu", "value": "a100"}, True),
            ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}, True),
            ({"operator": "Exists"}, True),
            ({"key": "gpu"}, False),
            ({"key": "gpu", "value": "h100"}, False),
            ({"key": "cpu", "operator": "Exists"}, False),
            ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ):
            found = self.plan(pool("a", taints=[TAINT]), tolerations=[toleration]).pool
            self.assertEqual(found, "a" if good else "", toleration)

    def test_preference(self) -> None:
        """A pool that would rather not have it comes last, and is taken when there is no other."""
        soft = [{**TAINT, "effect": "PreferNoSchedule"}]
        reluctant = pool("a", 9, taints=soft)
        self.assertEqual(self.plan(reluctant, pool("b", 1)).pool, "b")
        self.assertEqual(self.plan(reluctant).pool, "a")
        tolerant = [{"operator": "Exists"}]
        self.assertEqual(self.plan(reluctant, pool("b", 1), tolerations=tolerant).pool, "a")

    def test_many_tolerations(self) -> None:
        """Thousands of tolerations and hundreds of pools take linear time."""

        def place(size: int) -> None:
            pools = [pool(f"p{each}", taints=[TAINT]) for each in range(size)]
            tolerations = [{"key": f"k{each}"} for each in range(10 * size)]
            self.assertIn("with a taint", self.refused(*pools, tolerations=tolerations))

        assert_linear(place, 200)

    def test_nowhere(self) -> None:
        """Without any pool; and with a reason for each."""
        self.assertEqual(self.refused(), f"{FAILED}: there are no machinepools")
        told = self.refused(pool("a", 0), pool("b", ready="False"), pool("c", ready="False"))
        self.assertEqual(
            told,
            "OutOfCapacity: no room for class small: 1 of 3 machinepools (0 of 10 places free); "
            "not ready: 2 of 3 machinepools",
        )

    def test_no_class(self) -> None:
        """A class that does not exist, or that no pool offers, is the reason."""
        others = pool("a", classes="large"), pool("b", classes="large")
        told = f'{FAILED}: no machine pool offers class "small" (there are 2 pools)'
        self.assertEqual(self.refused(*others), told)
        self.assertEqual(
            self.refused(*others, pool("c", ready="False")),
            f"{FAILED}: not ready: 1 of 3 machinepools; without class small: 2 of 3 machinepools",
        )
        self.classes = {"small", "large"}
        self.assertEqual(self.refused(*others), told)
        self.classes = {"large"}
        missing = f'{FAILED}: class "small" does not exist; there are: large'
        for pools in ((), others, [pool("a", classes="large", ready="False")]):
            self.assertEqual(self.refused(*pools), missing)
        self.assertIn("no room", self.refused(pool("a", 0)))  # a pool knows it
        self.assertEqual(self.plan(pool("a")).pool, "a")

    def test_other_names(self) -> None:
        """Fleets have instances, by their own names."""
        fleet = pool("a", labels={"zone": "1"})
        fleet["status"]["allocatable"] = fleet["status"]["capacity"] = {"instance-type/small": 1}
        spec = {"instanceTypeRef": {"name": "small"}, "fleetSelector": {"zone": "1"}}
        instance = {"metadata": {"name": "vm"}, "spec": spec}
        self.assertEqual(plan(SPHERIC, instance, [fleet], Counter()).pool, "a")


class BoundMachinesTests(SynchronousTestCase):
    """Tests for :class:`BoundMachines`."""

    def test_move(self) -> None:
        """Each machine has one place; a place becomes free when its machine moves or goes."""
        bound, small, large = BoundMachines(), ("pool-a", "small"), ("pool-a", "large")
        moves = [
            ("1", small, False),
            ("2", small, False),
            ("1", small, False),
            ("1", large, True),
            ("2", None, True),
            ("2", None, False),
        ]
        for uid, place, is_free in moves:
            machine = {"metadata": {"uid": uid}}
            self.assertEqual(bound.move(machine, place), is_free, (uid, place))
        self.assertEqual(dict(bound.counts), {large: 1})
        self.assertEqual(bound.of_pool("pool-a"), [{"metadata": {"uid": "1"}}])
        self.assertEqual(bound.of_pool("pool-b"), [])

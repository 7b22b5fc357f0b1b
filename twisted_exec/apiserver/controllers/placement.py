"""
Where a machine is placed: the decision, without I/O.

A pool is taken when it is ready, when the machine tolerates its taints and selects its labels,
and when it has room for the machine's class.  Of several, one whose taints would rather not have
the machine comes last; then the one with most room is taken.

Room is what the pool reports as allocatable, and never more than its capacity less the
machines that are bound to it: what its poollet reports is a little behind, and without that a
hundred machines made at once would all be given the same last place.  Poollets of onmetal-api
v0.1 tell only which classes they have; among theirs, the one with fewest machines is taken.

As ironcore's ``internal/controllers/compute/scheduler`` and ``api/common/v1alpha1``; that a taint
``PreferNoSchedule`` counts is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.dialects import Dialect

Object = Mapping[str, Any]
Bound = Counter[tuple[str, str]]
"""How many machines there are, by pool and class."""

OUT_OF_CAPACITY = "OutOfCapacity"
FAILED = "FailedScheduling"

_UNTOLD = 1_000_000
"""The room of a pool that tells its classes and not how much there is of them."""

_HARD = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"


@dataclass(frozen=True)
class Placement:
    """
    What becomes of a machine.

    :param pool: where it goes; empty: nowhere for now.
    :param reason: of the Event that says why it goes nowhere.
    :param message: in words for people.
    """

    pool: str
    reason: str = ""
    message: str = ""


def plan(dialect: Dialect, machine: Object, pools: Sequence[Object], bound: Bound) -> Placement:
    """
    Choose a pool for a machine that has none.

    :param pools: all that there are.
    """
    name = dialect.class_name(machine)
    refused: Counter[str] = Counter()
    fitting: list[tuple[int, int, str]] = []
    for pool in pools:
        room = room_for(dialect, pool, name, bound)
        problem = _problem(dialect, machine, pool, room)
        if problem:
            refused[problem.format(name=name)] += 1
        else:
            fitting.append((_unwelcome(machine, pool), -(room or 0), pool["metadata"]["name"]))
    if fitting:
        return Placement(min(fitting)[2])
    full = refused.get(_FULL.format(name=name), 0)
    told = ", ".join(f"{count} {why}" for why, count in sorted(refused.items()))
    message = f"0 of {len(pools)} {dialect.pool.plural} can have it" + (f": {told}" if told else "")
    return Placement("", OUT_OF_CAPACITY if full else FAILED, message)


_FULL = "without room for class {name}"


def _problem(dialect: Dialect, machine: Object, pool: Object, room: int | None) -> str:
    """Why the pool cannot have it; empty when it can."""
    spec, labels = machine.get("spec", {}), pool["metadata"].get("labels", {})
    if not is_ready(pool):
        return "not ready"
    selector = spec.get(dialect.pool_selector, {})
    if any(labels.get(key) != value for key, value in selector.items()):
        return "without the labels that it selects"
    if any(each.get("effect") in _HARD for each in _untolerated(machine, pool)):
        return "with a taint that it does not tolerate"
    if room is None:
        return "without class {name}"
    return _FULL if room <= 0 else ""


def is_ready(pool: Object) -> bool:
    """Whether a pool's poollet is at work."""
    status = pool.get("status", {})
    if "deletionTimestamp" in pool["metadata"]:
        return False
    for each in status.get("conditions", []):
        if each.get("type") == "Ready":
            return bool(each.get("status") == "True")
    # Poollets of older kinds tell it without conditions.
    return bool(status.get("state") == "Ready")


def room_for(dialect: Dialect, pool: Object, name: str, bound: Bound) -> int | None:
    """How many more machines of a class a pool can have; ``None`` when it has no such class."""
    status, key = pool.get("status", {}), f"{dialect.capacity_prefix}{name}"
    if not status.get("allocatable") and not status.get("capacity"):
        offered = status.get(dialect.classes_field, []) if dialect.classes_field else []
        known = any(each.get("name") == name for each in offered)
        return _UNTOLD - bound[pool["metadata"]["name"], name] if known else None
    allocatable = _amount(status.get("allocatable", {}).get(key))
    capacity = _amount(status.get("capacity", {}).get(key))
    if capacity is not None:
        left = capacity - bound[pool["metadata"]["name"], name]
        return left if allocatable is None else min(allocatable, left)
    return allocatable


def _amount(text: Any) -> int | None:
    try:
        return None if text is None else quantity.value(text)
    except ValueError:
        return 0  # a pool that reports nonsense gets nothing


def _untolerated(machine: Object, pool: Object) -> list[Object]:
    tolerations = machine.get("spec", {}).get("tolerations", [])
    taints = pool.get("spec", {}).get("taints", [])
    return [taint for taint in taints if not any(_tolerates(each, taint) for each in tolerations)]


def _unwelcome(machine: Object, pool: Object) -> int:
    return sum(each.get("effect") == _SOFT for each in _untolerated(machine, pool))


def _tolerates(toleration: Object, taint: Object) -> bool:
    def is_any(key: str) -> bool:
        return not toleration.get(key) or toleration[key] == taint.get(key, "")

    if not is_any("effect") or not is_any("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def turn_of(machine: Object) -> tuple[str, str, str]:
    """The oldest first, then by name."""
    metadata = machine["metadata"]
    return metadata.get("creationTimestamp", ""), metadata.get("namespace", ""), metadata["name"]


def facts_of(dialect: Dialect, pool: Object) -> object:
    """All of a pool that decides about machines, for comparing."""
    status, metadata = pool.get("status", {}), pool["metadata"]
    return (
        is_ready(pool),
        metadata.get("labels"),
        pool.get("spec", {}).get("taints"),
        status.get("capacity"),
        status.get("allocatable"),
        status.get(dialect.classes_field),
    )

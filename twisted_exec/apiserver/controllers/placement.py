"""
Choose a pool for a machine, without I/O.

A pool fits when it is ready, the machine tolerates its taints and selects its labels, and it has
room for the machine's class.  Among several, pools with a ``PreferNoSchedule`` taint come last;
then the pool with the most room wins.

Room is the reported allocatable amount, capped by capacity minus the machines bound to the pool:
a poollet's report lags behind, and without the cap a hundred machines created at once would all
get the same last place.  Poollets of onmetal-api v0.1 report only class names; among their pools
the one with the fewest machines wins.

Follows ironcore's ``internal/controllers/compute/scheduler`` and ``api/common/v1alpha1``;
honouring ``PreferNoSchedule`` is an addition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.dialects import Dialect

Object = Mapping[str, Any]
Bound = Counter[tuple[str, str]]
"""Number of bound machines by pool and class."""

OUT_OF_CAPACITY = "OutOfCapacity"
FAILED = "FailedScheduling"
_READY = "Ready"

_UNTOLD = 1_000_000
"""Room of a pool that reports class names without amounts."""

_HARD = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"


@dataclass(frozen=True)
class Placement:
    """
    Decision for one machine.

    :param pool: the chosen pool; empty when none fits.
    :param reason: reason of the Event and of the condition Ready when no pool fits.
    :param message: the same for people.
    """

    pool: str
    reason: str = ""
    message: str = ""


def plan(dialect: Dialect, machine: Object, pools: Sequence[Object], bound: Bound) -> Placement:
    """
    Choose a pool for a machine that has none.

    :param pools: every pool of the dialect.
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
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(refused.items()))
    message = f"0 of {len(pools)} {dialect.pool.plural} can have it" + (
        f": {reasons}" if reasons else ""
    )
    return Placement("", OUT_OF_CAPACITY if full else FAILED, message)


def with_decision(
    dialect: Dialect, machine: Object, placement: Placement, now: str
) -> dict[str, Any] | None:
    """
    Return the machine with a condition Ready that says why it waits, or, once it has a pool, without
    that condition.

    :return: ``None`` if nothing changes, or if a poollet has set the condition.
    """
    status: Object = machine.get("status", {})
    conditions = list(status.get("conditions", []))
    ready: Object = next((each for each in conditions if each.get("type") == _READY), {})
    is_ours = not ready or ready.get("reason") in (OUT_OF_CAPACITY, FAILED)
    if not dialect.conditions or not is_ours:
        return None
    if placement.pool:
        changed = [each for each in conditions if each is not ready]
    else:
        value = ("False", placement.reason, placement.message)
        changed = with_conditions(conditions, {_READY: value}, now)
    if changed == conditions:
        return None
    return {**machine, "status": {**status, "conditions": changed}}


def shows(machine: Object, placement: Placement) -> bool:
    """Return whether the machine's condition Ready says already why it waits."""
    conditions = machine.get("status", {}).get("conditions", [])
    ready: Object = next((each for each in conditions if each.get("type") == _READY), {})
    return (ready.get("reason"), ready.get("message")) == (placement.reason, placement.message)


_FULL = "without room for class {name}"


def _problem(dialect: Dialect, machine: Object, pool: Object, room: int | None) -> str:
    """Why the pool does not fit; empty when it does."""
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
    """Return whether the pool's poollet reports it as ready."""
    status = pool.get("status", {})
    if "deletionTimestamp" in pool["metadata"]:
        return False
    for each in status.get("conditions", []):
        if each.get("type") == _READY:
            return bool(each.get("status") == "True")
    # Older poollets (onmetal-api v0.1) report a state and no conditions.
    return bool(status.get("state") == "Ready")


def room_for(dialect: Dialect, pool: Object, name: str, bound: Bound) -> int | None:
    """Number of further machines of a class that fit; ``None`` without that class."""
    status, key = pool.get("status", {}), f"{dialect.capacity_prefix}{name}"
    if not status.get("allocatable") and not status.get("capacity"):
        offered = status.get(dialect.classes_field, []) if dialect.classes_field else []
        has_class = any(each.get("name") == name for each in offered)
        return _UNTOLD - bound[pool["metadata"]["name"], name] if has_class else None
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
        return 0  # an unreadable amount counts as no room


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
    """Sort key: oldest first, then by name."""
    metadata = machine["metadata"]
    return metadata.get("creationTimestamp", ""), metadata.get("namespace", ""), metadata["name"]


def facts_of(dialect: Dialect, pool: Object) -> object:
    """The pool's properties that affect placement, for comparison."""
    status, metadata = pool.get("status", {}), pool["metadata"]
    return (
        is_ready(pool),
        metadata.get("labels"),
        pool.get("spec", {}).get("taints"),
        status.get("capacity"),
        status.get("allocatable"),
        status.get(dialect.classes_field),
    )

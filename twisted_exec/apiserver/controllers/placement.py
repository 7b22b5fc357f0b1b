"""
The placement of a machine: which pool it gets, or why it gets none; without I/O.

A pool fits when it is ready, the machine tolerates its taints and selects its labels, and it has
room for the machine's class. A poollet's report lags behind, so the machines that are bound to a
pool limit its room, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.dialects import Dialect, missing_class, pool_labels
from twisted_exec.api.kinds import Object

ReadOnlyObject = Mapping[str, Any]
Place = tuple[str, str]
"""A pool and a class."""
Bound = Counter[Place]
"""Number of bound machines by pool and class."""

OUT_OF_CAPACITY = "OutOfCapacity"
FAILED = "FailedScheduling"
_READY = "Ready"

_UNREPORTED_CAPACITY = 1_000_000
"""Room of a pool that reports class names without amounts."""

_HARD = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"

_Toleration = tuple[str, str, str | None]
"""Key and effect, empty for all, and value, ``None`` for any."""

_FULL, _WITHOUT = "no room for class {name}", "without class {name}"
_UNLABELLED = "without the labels {labels}"


@dataclass(frozen=True)
class Placement:
    """
    Decision for one machine.

    :param pool: the chosen pool; empty when none fits.
    """

    pool: str
    reason: str = ""
    message: str = ""


class BoundMachines:
    """
    The bound machines and their places.

    :ivar counts: how many machines have each place.
    """

    def __init__(self) -> None:
        self._machines: dict[str, tuple[Place, Object]] = {}
        """By UID."""
        self.counts: Bound = Counter()

    def of_pool(self, pool: str) -> list[Object]:
        return [machine for (name, _), machine in self._machines.values() if name == pool]

    def move(self, machine: Object, place: Place | None) -> bool:
        """
        Record the place of a machine.

        :param place: ``None`` if the machine is not bound, or is deleted.
        :return: whether another place has become free.
        """
        uid = machine["metadata"]["uid"]
        before, _ = self._machines.pop(uid, (None, None))
        if place is not None:
            self._machines[uid] = place, machine
            self.counts[place] += 1
        if before is not None:
            self.counts[before] -= 1
            if not self.counts[before]:
                del self.counts[before]
        return before is not None and before != place


def plan(
    dialect: Dialect,
    machine: ReadOnlyObject,
    pools: Sequence[ReadOnlyObject],
    bound: Bound,
    classes: Collection[str] | None = None,
) -> Placement:
    """
    Choose a pool for a machine that has none.

    :param classes: names of all classes; ``None`` if they are not known.
    """
    name, is_offered = dialect.class_name(machine), False
    refused: Counter[str] = Counter()
    places = 0  # of full pools
    fitting: list[tuple[int, int, str]] = []
    tolerations = _tolerations(machine)
    for pool in pools:
        room = room_for(dialect, pool, name, bound)
        is_offered = is_offered or room is not None
        untolerated = _untolerated(tolerations, pool)
        problem = _problem(dialect, machine, pool, room, untolerated)
        if problem:
            refused[problem] += 1
            places += _capacity(dialect, pool, name) or 0 if problem == _FULL else 0
        else:
            unwelcome = untolerated.count(_SOFT)
            fitting.append((unwelcome, -(room or 0), pool["metadata"]["name"]))
    if fitting:
        return Placement(min(fitting)[2])
    if not is_offered and classes is not None and name not in classes:
        return Placement("", FAILED, missing_class(name, classes))
    labels = pool_labels(dialect, machine)
    lacks = {_WITHOUT: f'offers class "{name}"', _UNLABELLED: f"has the labels {labels}"}
    if len(refused) == 1 and (lack := lacks.get(*refused)):
        noun = dialect.pool_noun.split()[-1]
        count = f"there is 1 {noun}" if len(pools) == 1 else f"there are {len(pools)} {noun}s"
        return Placement("", FAILED, f"no {dialect.pool_noun} {lack} ({count})")
    free = {_FULL: f" (0 of {places} places free)"} if places else {}
    # The reason first: lists of machines cut the end off.
    among = f"of {len(pools)} {dialect.pool.plural}"
    reasons = [
        f"{why.format(name=name, labels=labels)}: {n} {among}{free.get(why, '')}"
        for why, n in sorted(refused.items())
    ]
    message = "; ".join(reasons) or f"there are no {dialect.pool.plural}"
    return Placement("", OUT_OF_CAPACITY if _FULL in refused else FAILED, message)


def with_decision(
    dialect: Dialect, machine: ReadOnlyObject, placement: Placement, now: str
) -> dict[str, Any] | None:
    """
    Return the machine with its condition Ready after the decision, or ``None`` if nothing is to be
    written.
    """
    status: ReadOnlyObject = machine.get("status", {})
    conditions = list(status.get("conditions", []))
    ready: ReadOnlyObject = next((each for each in conditions if each.get("type") == _READY), {})
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


def shows(machine: ReadOnlyObject, placement: Placement) -> bool:
    """Return whether the machine's condition Ready says already why it waits."""
    conditions = machine.get("status", {}).get("conditions", [])
    ready: ReadOnlyObject = next((each for each in conditions if each.get("type") == _READY), {})
    return (ready.get("reason"), ready.get("message")) == (placement.reason, placement.message)


def _problem(
    dialect: Dialect,
    machine: ReadOnlyObject,
    pool: ReadOnlyObject,
    room: int | None,
    untolerated: Sequence[str],
) -> str:
    spec, labels = machine.get("spec", {}), pool["metadata"].get("labels", {})
    if not is_ready(pool):
        return "not ready"
    selector = spec.get(dialect.pool_selector, {})
    if any(labels.get(key) != value for key, value in selector.items()):
        return _UNLABELLED
    if any(effect in _HARD for effect in untolerated):
        return "with a taint that the machine does not tolerate"
    if room is None:
        return _WITHOUT
    return _FULL if room <= 0 else ""


def is_ready(pool: ReadOnlyObject) -> bool:
    """Return whether a pool is reported as ready, and is not being deleted."""
    status = pool.get("status", {})
    if "deletionTimestamp" in pool["metadata"]:
        return False
    for each in status.get("conditions", []):
        if each.get("type") == _READY:
            return bool(each.get("status") == "True")
    # Older poollets (onmetal-api v0.1) report a state and no conditions.
    return bool(status.get("state") == "Ready")


def room_for(dialect: Dialect, pool: ReadOnlyObject, name: str, bound: Bound) -> int | None:
    """Number of further machines of a class that fit; ``None`` without that class."""
    status, key = pool.get("status", {}), f"{dialect.capacity_prefix}{name}"
    if not status.get("allocatable") and not status.get("capacity"):
        offered = status.get(dialect.classes_field, []) if dialect.classes_field else []
        has_class = any(each.get("name") == name for each in offered)
        return _UNREPORTED_CAPACITY - bound[pool["metadata"]["name"], name] if has_class else None
    allocatable = _amount(status.get("allocatable", {}).get(key))
    capacity = _capacity(dialect, pool, name)
    if capacity is not None:
        left = capacity - bound[pool["metadata"]["name"], name]
        return left if allocatable is None else min(allocatable, left)
    return allocatable


def _capacity(dialect: Dialect, pool: ReadOnlyObject, name: str) -> int | None:
    key = f"{dialect.capacity_prefix}{name}"
    return _amount(pool.get("status", {}).get("capacity", {}).get(key))


def _amount(text: Any) -> int | None:
    try:
        return None if text is None else quantity.value(text)
    except ValueError:
        return 0  # an unreadable amount counts as no room


def _tolerations(machine: ReadOnlyObject) -> frozenset[_Toleration]:
    return frozenset(
        (
            each.get("key") or "",
            each.get("effect") or "",
            None if each.get("operator") == "Exists" else each.get("value") or "",
        )
        for each in machine.get("spec", {}).get("tolerations", [])
    )


def _untolerated(tolerations: frozenset[_Toleration], pool: ReadOnlyObject) -> list[str]:
    """Return the effects of the pool's taints that no toleration matches."""
    return [
        taint.get("effect", "")
        for taint in pool.get("spec", {}).get("taints", [])
        # A few look-ups and no search: a user may give a machine thousands of tolerations.
        if tolerations.isdisjoint(
            product(
                ("", taint.get("key", "")),
                ("", taint.get("effect", "")),
                (None, taint.get("value") or ""),
            )
        )
    ]


def turn_of(machine: ReadOnlyObject) -> tuple[str, str, str]:
    """Sort key: oldest first, then by name."""
    metadata = machine["metadata"]
    return metadata.get("creationTimestamp", ""), metadata.get("namespace", ""), metadata["name"]


def facts_of(dialect: Dialect, pool: ReadOnlyObject) -> object:
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

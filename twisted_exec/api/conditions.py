"""
Status conditions.

Source: ``k8s.io/apimachinery/pkg/api/meta/conditions.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted_exec.api.status import one_line

Object = dict[str, Any]
ConditionValue = tuple[str, str, str]
"""Status, reason and message of a condition."""

CONSOLE_IN_USE = "ConsoleInUse"
"""
Condition of a machine while sessions of its console are open: True if one of them is a writer.  It
names sessions, not users, because more people may read machines than sessions.
"""
CONSOLE_HEALTHY = "ConsoleHealthy"
"""Condition of a machine that an alert with a condition looks at: False after a match, until the machine starts again."""
CONSOLE_OUTPUT = "ConsoleOutput"
"""
Condition of a machine: its message is the last line that the machine has printed, where the
runtime's operator allows it.
"""
CONSOLE_STORED = "ConsoleStored"
"""Condition of a machine while its console output is not on the runtime's disk: False; its message says why."""
CONSOLE_LINE = "ConsoleLine"
"""
Condition of a machine whose driver chooses between several ways to the console: True while one is
open. Its message names the chosen way, and why others were refused.
"""
POWER_UNKNOWN = "the power of the server is not known: "
"""
How the message of :data:`CONSOLE_LINE` begins while the console is open, but the BMC does not answer other requests; the
problem follows.
"""
POWER_SWITCHED = "PowerSwitched"
"""
Condition of a machine whose ``spec.power`` only opens and closes its console, since its class does not switch it: False;
its message says so.
"""
SERVER_OFF = "ServerOff"
"""
Reason of the condition Ready of a machine that is to be on, and whose server others have switched off, or that was off
when its machine was created; its message says how to switch it on.
"""
_HAS_WRITER = "HasWriter"
"""Reason of :data:`CONSOLE_IN_USE` if the ids of the writers follow :data:`_WRITERS` in the message."""
# Programs read the ids from the message: ironcore's IRI, and API servers of other projects, pass on conditions, and no
# member of our own beside them.
_WRITERS = "the writers are the sessions "
_MAX_WRITERS = 12

MAX_MESSAGE = 1024
"""Longer messages are cut to this number of characters."""


def with_conditions(
    current: Sequence[Object],
    changes: Mapping[str, ConditionValue],
    now: str,
    generation: int | None = None,
) -> list[Object]:
    """
    Return ``current`` with these conditions set.

    :param changes: by type. Conditions of other types stay.
    """
    before = {condition.get("type"): condition for condition in current}
    result = [dict(condition) for condition in current if condition.get("type") not in changes]
    result += [
        _condition(type, value, before.get(type, {}), now, generation)
        for type, value in changes.items()
    ]
    order = {condition.get("type"): position for position, condition in enumerate(current)}
    return sorted(result, key=lambda condition: order.get(condition.get("type"), len(order)))


def condition_of(obj: Mapping[str, Any], type: str) -> Object:
    """Return the condition of this type, not a copy; empty if the object has none."""
    conditions = (obj.get("status") or {}).get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and each.get("type") == type:
            return each
    return {}


def is_powered_off(machine: Mapping[str, Any]) -> bool:
    """
    Return whether a machine has no console because it is powered off.

    One that is to be off, and is on until its guest has shut down, has a console: its state is
    Running, and its condition Ready says why.
    """
    if (machine.get("spec") or {}).get("power") != "Off":
        return False
    is_running = (machine.get("status") or {}).get("state") == "Running"
    return not (is_running and condition_of(machine, "Ready").get("status") in ("False", "Unknown"))


def unplaced(machine: Mapping[str, Any], noun: str, pool_noun: str) -> str:
    """Return that a machine has no pool, with the scheduler's reason if there is one."""
    ready = condition_of(machine, "Ready")
    why = ": ".join(filter(None, (ready.get("reason"), ready.get("message"))))
    text = f'{noun} "{machine["metadata"]["name"]}" has no {pool_noun} yet'
    return f"{text}: {why}" if why else text


def _condition(
    type: str, value: ConditionValue, before: Object, now: str, generation: int | None
) -> Object:
    status, reason, message = value
    new: Object = {
        "type": type,
        "status": status,
        # Texts of other programs end up on people's terminals: strip control characters.
        "reason": one_line(reason),
        "message": one_line(message)[:MAX_MESSAGE],
    }
    if generation is not None:
        new["observedGeneration"] = generation
    if {key: before.get(key, "") for key in new} == new:
        return dict(before)
    moved = before.get("status") != status
    new["lastTransitionTime"] = now if moved else before.get("lastTransitionTime", now)
    return new


def console_in_use(writers: Sequence[str]) -> ConditionValue:
    """
    Return the condition :data:`CONSOLE_IN_USE`.

    :param writers: ids of sessions.
    """
    if not writers:
        return "False", "NoWriter", "no session is a writer"
    if len(writers) > _MAX_WRITERS:
        return "True", "ManyWriters", f"{len(writers)} sessions are writers"
    return "True", _HAS_WRITER, _WRITERS + ", ".join(writers)


def writers_of(machine: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the ids of the sessions that are writers; ``None`` if the machine does not say."""
    condition = condition_of(machine, CONSOLE_IN_USE)
    if condition.get("status") == "False":
        return frozenset()
    if condition.get("status") == "True" and condition.get("reason") == _HAS_WRITER:
        return frozenset(str(condition.get("message", "")).removeprefix(_WRITERS).split(", "))
    return None

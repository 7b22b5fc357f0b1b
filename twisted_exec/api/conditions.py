"""
Conditions: what a status says of an object, each in a word for programs and a line for people.

Source: ``k8s.io/apimachinery/pkg/api/meta/conditions.go`` (``SetStatusCondition``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted_exec.api.status import one_line

Object = dict[str, Any]
Told = tuple[str, str, str]
"""Status, reason and message of a condition."""

MAX_MESSAGE = 1024
"""Characters of a message that are kept."""


def with_conditions(
    known: Sequence[Object], told: Mapping[str, Told], now: str, generation: int | None = None
) -> list[Object]:
    """
    ``known`` with these conditions set; a condition's time moves only when its status does.

    :param told: by type.  Conditions of other types stay.
    :param generation: what they are about, when objects of the kind count theirs.
    """
    before = {one.get("type"): one for one in known}
    made = [dict(one) for one in known if one.get("type") not in told]
    made += [
        _condition(type, one, before.get(type, {}), now, generation) for type, one in told.items()
    ]
    order = {one.get("type"): place for place, one in enumerate(known)}
    return sorted(made, key=lambda one: order.get(one.get("type"), len(order)))


def _condition(type: str, told: Told, before: Object, now: str, generation: int | None) -> Object:
    status, reason, message = told
    new: Object = {
        "type": type,
        "status": status,
        # Others' words end on people's terminals.
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

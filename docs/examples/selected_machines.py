"""
A kind whose objects select machines by labels: the field, its check, and the selected machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import selectors
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import Object, validation
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR
from twisted_exec.api.schema import Schema
from twisted_exec.program.turns import ShortTurns
from twisted_exec.storage.interfaces import DELETED, Event

MACHINE_SELECTOR: Schema = {
    **LABEL_SELECTOR,
    "description": "machineSelector selects machines of the object's namespace by their labels. "
    "An empty selector selects all of them.",
}


def validate(obj: Object) -> list[Cause]:
    selector = obj["spec"].get("machineSelector", {})
    return list(validation.label_selector(selector, "spec.machineSelector"))


def labels_of(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels", {})
    return labels


def may_be_selected_anew(event: Event) -> bool:
    """Return whether a change of a machine may change which objects select it."""
    if event.type == DELETED or event.previous is None:
        return True
    return labels_of(event.previous) != labels_of(event.obj)


async def selected(obj: Object, machines: Iterable[Object], clock: IReactorTime) -> list[Object]:
    """
    Return the selected machines.

    :param machines: those of the object's namespace.
    :raises ValueError: an earlier release has stored a selector that is refused now.
    """
    selector = selectors.of_object(obj["spec"].get("machineSelector"))
    turns, matching = ShortTurns(clock), []
    for machine in machines:
        await turns.breathe()
        if selector.matches(labels_of(machine)):
            matching.append(machine)
    return matching

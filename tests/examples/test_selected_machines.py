"""
``selected_machines.py`` of ``docs/howto/add-a-kind.rst``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.api.kinds.support import KindTestCase
from tests.examples.test_controller import example
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import struct
from twisted_exec.program.turns import REST_SECONDS, TURN_SECONDS
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event

selected_machines = example("selected_machines")


def machine(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels} if labels else {"name": name}}


class SelectorTests(KindTestCase):
    """A kind with the field and its check."""

    kind = Kind(
        resource=Resource("console.twisted-exec.dev", "v1alpha1", "windows", "Window"),
        singular="window",
        description="Window selects machines.",
        schema={
            "spec": struct(
                {"machineSelector": selected_machines.MACHINE_SELECTOR}, description="spec is it."
            )
        },
        required=["spec"],
        validate=selected_machines.validate,
    )

    def selected(self, selector: Any = None) -> list[str]:
        obj = self.create(spec={} if selector is None else {"machineSelector": selector})
        machines = [machine("db-1", role="db"), machine("web-1", role="web"), machine("bare")]
        made = Deferred.fromCoroutine(selected_machines.selected(obj, machines, Clock()))
        return [each["metadata"]["name"] for each in self.successResultOf(made)]

    def test_selected(self) -> None:
        """The labels decide; an empty selector selects all machines."""
        without = {"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]}
        for selector, names in (
            (None, ["db-1", "web-1", "bare"]),
            ({}, ["db-1", "web-1", "bare"]),
            ({"matchLabels": {"role": "db"}}, ["db-1"]),
            (without, ["bare"]),
        ):
            self.assertEqual(self.selected(selector), names, selector)

    def test_invalid(self) -> None:
        """A selector with In and no values is refused at its path."""
        expressions = [{"key": "role", "operator": "In"}]
        (cause,) = self.refused(spec={"machineSelector": {"matchExpressions": expressions}})
        path = "spec.machineSelector.matchExpressions[0].values"
        self.assertTrue(cause.startswith(f"{path}: Required value: "), cause)

    def test_turns(self) -> None:
        """Many machines are compared in short turns."""
        clock, machines = Clock(), [machine(f"vm-{number}") for number in range(10)]

        def slow() -> Any:
            for each in machines:
                clock.rightNow += TURN_SECONDS
                yield each

        made = Deferred.fromCoroutine(
            selected_machines.selected(self.create(spec={}), slow(), clock)
        )
        self.assertNoResult(made)
        clock.pump([REST_SECONDS] * len(machines))
        self.assertEqual(len(self.successResultOf(made)), len(machines))

    def test_changes(self) -> None:
        """A change of the labels counts, and no other change of a machine that stays."""
        plain, db = machine("vm"), machine("vm", role="db")
        for type, before, after, counts in (
            (ADDED, None, plain, True),
            (MODIFIED, plain, db, True),
            (MODIFIED, db, plain, True),
            (MODIFIED, db, {**db, "status": {}}, False),
            (MODIFIED, plain, machine("vm"), False),
            (DELETED, db, db, True),
        ):
            event = Event(type, after, before, 1)
            self.assertIs(selected_machines.may_be_selected_anew(event), counts, event)

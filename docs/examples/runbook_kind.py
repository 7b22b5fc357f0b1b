"""
A kind that selects machines by labels: a Runbook says what to do with them.
"""

from __future__ import annotations

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import Column, Kind, Object, cell, validation
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import integer, string, struct

_SPEC = struct(
    {
        "machineSelector": {
            **LABEL_SELECTOR,
            "description": "machineSelector selects machines of the runbook's namespace by their "
            "labels. An empty selector selects all of them.",
        },
        "steps": string("steps are what to do, in one line or more.", maxLength=16384),
        "link": string(
            "link is the https address of a page about it.",
            pattern=r"https://[!-~]+",
            maxLength=2048,
        ),
    },
    required=["steps"],
    description="spec says what to do with which machines.",
)
_STATUS = struct(
    {"machines": integer("machines is the number of selected machines.")},
    description="status is the observed state of the runbook.",
)


def _validate(runbook: Object) -> list[Cause]:
    spec = runbook["spec"]
    causes = [*validation.label_selector(spec.get("machineSelector", {}), "spec.machineSelector")]
    if not all(line.isprintable() for line in spec["steps"].split("\n")):
        causes.append(fields.invalid("spec.steps", spec["steps"], "must be printable lines"))
    return causes


RUNBOOKS = Kind(
    resource=Resource("console.twisted-exec.dev", "v1alpha1", "runbooks", "Runbook"),
    singular="runbook",
    short_names=("rb", "rbs"),
    description="Runbook says what to do with the machines that it selects.",
    schema={"spec": _SPEC, "status": _STATUS},
    required=["spec"],
    columns=(
        Column("Machines", cell("status", "machines"), "The number of selected machines"),
        Column("Link", cell("spec", "link"), "A page about it", priority=1),
    ),
    has_status=True,
    counts_generation=True,
    validate=_validate,
)

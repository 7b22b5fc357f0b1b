"""
A complete kind: a MachineNote is a remark about one machine.
"""

from __future__ import annotations

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import Column, Kind, Object, cell
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import moment, string, struct

_SPEC = struct(
    {
        "machine": string("machine is the name of the Machine, in the note's namespace."),
        "severity": string(
            "severity says how urgent the note is.", enum=["Info", "Warning"], default="Info"
        ),
        "text": string("text is the remark, in one line.", maxLength=256),
        "dueTime": moment("dueTime is when the work on the machine must be done."),
    },
    required=["machine", "text"],
    description="spec is the content of the note.",
)


def _validate(note: Object) -> list[Cause]:
    machine, text = note["spec"]["machine"], note["spec"]["text"]  # required by the schema
    causes = [
        fields.invalid("spec.machine", machine, problem) for problem in names.dns_label(machine)
    ]
    if not text.isprintable():
        causes.append(fields.invalid("spec.text", text, "must be one line of printable characters"))
    return causes


def _validate_update(new: Object, old: Object) -> list[Cause]:
    if new["spec"]["machine"] != old["spec"]["machine"]:
        return [fields.forbidden("spec.machine", "field is immutable")]
    return []


MACHINENOTES = Kind(
    resource=Resource("console.twisted-exec.dev", "v1alpha1", "machinenotes", "MachineNote"),
    singular="machinenote",
    short_names=("notes",),
    description="MachineNote is a remark about one machine, for the people who operate it.",
    schema={"spec": _SPEC},
    required=["spec"],
    columns=(
        Column("Machine", cell("spec", "machine"), "The machine of the note"),
        Column("Severity", cell("spec", "severity"), "How urgent the note is"),
        Column("Text", cell("spec", "text"), "The remark", priority=1),
    ),
    fields={"spec.machine": lambda note: str(note.get("spec", {}).get("machine", ""))},
    counts_generation=True,
    validate=_validate,
    validate_update=_validate_update,
)

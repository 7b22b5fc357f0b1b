"""
The consoles of deleted machines, whose output is retained.
"""

from __future__ import annotations

from twisted_exec.api.kinds.kind import Column, Kind, Object, cell
from twisted_exec.api.logs import QUERY as LOG_QUERY
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import moment, string, struct

_UID_LENGTH = 8

_DELETED_CONSOLES_SPEC = struct(
    {
        "machine": string(
            "machine is the name of the deleted machine, which was in the namespace of this object."
        ),
        "machineResource": string(
            "machineResource is the resource of the machine, in the format PLURAL.GROUP."
        ),
        "machineUID": string("machineUID is the UID of the machine."),
        "pool": string("pool is the pool of the machine, whose runtime retains the output."),
        "deletionTime": moment("deletionTime is the time at which the machine was deleted."),
        "expirationTime": moment(
            "expirationTime is the time after which the server deletes this object. The runtime may "
            "discard the output earlier, by its own settings."
        ),
    },
    description="spec describes the deleted machine. It does not change.",
)

DELETEDCONSOLES = Kind(
    resource=Resource("console.twisted-exec.dev", "v1alpha1", "deletedconsoles", "DeletedConsole"),
    singular="deletedconsole",
    short_names=(),
    description="DeletedConsole is the console of a deleted machine. Its subresource log is what the "
    "console printed, as long as the runtime of the machine retains it.",
    schema={"spec": _DELETED_CONSOLES_SPEC},
    columns=(
        Column("Machine", cell("spec", "machine"), "The deleted machine"),
        Column("Pool", cell("spec", "pool"), "The pool of the machine"),
        Column(
            "Deleted",
            cell("spec", "deletionTime"),
            "Time since the machine was deleted",
            moment=True,
        ),
        Column("UID", cell("spec", "machineUID"), "The UID of the machine", priority=1),
    ),
    fields={
        "spec.machine": lambda obj: str(obj.get("spec", {}).get("machine", "")),
        "spec.machineUID": lambda obj: str(obj.get("spec", {}).get("machineUID", "")),
        "spec.pool": lambda obj: str(obj.get("spec", {}).get("pool", "")),
    },
    texts={"log": LOG_QUERY},
    server_made="the server creates them when machines are deleted",
)


def name_of(machine: Object) -> str:
    """Return the name of the DeletedConsole of a machine."""
    metadata = machine["metadata"]
    return f"{metadata['name']}-{metadata['uid'][:_UID_LENGTH]}"


def log_path(namespace: str, name: str) -> str:
    """Return the path of the log of a DeletedConsole at a poollet."""
    resource = DELETEDCONSOLES.resource
    return f"/apis/{resource.group}/namespaces/{namespace}/{resource.plural}/{name}/log"

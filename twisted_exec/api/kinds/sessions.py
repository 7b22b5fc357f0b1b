"""
Console sessions: who is at which console, now.

An API server writes one for each stream that it passes on, and takes it away when the
stream ends; nobody else makes or changes one.  Whoever deletes one ends the session.  In
between its writer says every now and then that it is still there, and how much
has passed; one whose writer says no more is taken away by others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import integer, moment, string, struct

MODES = ("Drive", "TakeOver", "Watch")
"""What a session was opened for; who drives at the moment only the machine's end knows."""

_SPEC = struct(
    {
        "session": string("The session's id, as every hop's audit has it."),
        "user": string("Whose it is."),
        "caller": string("Who spoke for the user: a proxy, or who acts as the user."),
        "machine": string("The machine's name; its namespace is the session's."),
        "machineResource": string("What the machine is, as PLURAL.GROUP."),
        "machineUID": string("The machine's uid."),
        "pool": string("The pool that it runs in."),
        "mode": string(
            "What it was opened for: to drive, to drive instead of others, or to look on.",
            enum=list(MODES),
        ),
        "via": string("What was asked for, as RESOURCE/SUBRESOURCE."),
        "address": string("Where it came from: a host's address."),
        "protocol": string("How its client speaks."),
        "agent": string("What its client calls itself."),
        "replica": string("The API server that passes it on."),
    },
    description="What the session is.",
)
_STATUS = struct(
    {
        "bytesToMachine": integer("Bytes that came from the user, framing included."),
        "bytesToUser": integer("Bytes that came from the machine, framing included."),
        "renewTime": moment("When its API server last said that it is there."),
        "leaseDurationSeconds": integer("How long that holds."),
        "endedBy": string("Who deleted it."),
    },
    description="What has become of it.",
)


def _told(key: str, part: str = "spec", none: str = "<none>") -> Any:
    def read(session: Object) -> str:
        value = session.get(part, {}).get(key)
        return none if value in (None, "") else str(value)

    return read


def _selected(key: str) -> Any:
    def read(session: Mapping[str, Any]) -> str:
        return str(session.get("spec", {}).get(key, ""))

    return read


CONSOLESESSIONS = Kind(
    resource=Resource("console.twisted-exec.dev", "v1alpha1", "consolesessions", "ConsoleSession"),
    singular="consolesession",
    short_names=("sessions",),
    description="ConsoleSession is one user at the console of one machine; to delete it ends that.",
    schema={"spec": _SPEC, "status": _STATUS},
    columns=(
        Column("Machine", _told("machine"), "The machine"),
        Column("User", _told("user"), "Whose session it is"),
        Column("Mode", _told("mode"), "What it was opened for"),
        Column("From", _told("address"), "Where it came from"),
        Column("Protocol", _told("protocol"), "How its client speaks", priority=1),
        Column("In", _told("bytesToMachine", "status", "0"), "Bytes to the machine", priority=1),
        Column("Out", _told("bytesToUser", "status", "0"), "Bytes to the user", priority=1),
        Column("Via", _told("via"), "What was asked for", priority=1),
        Column("Replica", _told("replica"), "The API server that passes it on", priority=1),
        Column("Session", _told("session"), "The id in the audit", priority=1),
    ),
    fields={f"spec.{key}": _selected(key) for key in ("machine", "machineUID", "user", "replica")},
    server_made="a console session is made by opening a console, and only the server changes it",
)

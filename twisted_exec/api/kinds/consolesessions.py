"""
Console sessions.

A session represents a user who is connected to a console now, or whose connection was lost, for as
long as the user may come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds.kind import Column, Kind, cell
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import boolean, integer, moment, string, struct

MODES = ("Drive", "TakeOver", "Watch")
"""Values of ``spec.mode``."""

_SPEC = struct(
    {
        "session": string("session is the ID of the session, as in the audit log of every hop."),
        "user": string("user is the name of the user."),
        "caller": string(
            "caller is the authenticated caller if it is not the user: a front proxy or an impersonator."
        ),
        "machine": string(
            "machine is the name of the machine, which is in the namespace of the session."
        ),
        "machineResource": string(
            "machineResource is the resource of the machine, in the format PLURAL.GROUP."
        ),
        "machineUID": string("machineUID is the UID of the machine."),
        "pool": string("pool is the pool of the machine."),
        "mode": string(
            "mode is the mode that the session requested: Drive (to be a writer), TakeOver (to be the writer "
            "instead of another user) or Watch (to be an observer). The present role is in the status.",
            enum=list(MODES),
        ),
        "via": string("via is the requested endpoint, in the format RESOURCE/SUBRESOURCE."),
        "address": string("address is the IP address of the client."),
        "protocol": string("protocol is the stream protocol of the client."),
        "agent": string("agent is the user agent of the client."),
        "recording": string(
            "recording is the name of the ConsoleRecording of the session, in the same namespace. It is empty if the "
            "session is not recorded."
        ),
        "replica": string("replica is the API server that forwards the session."),
    },
    description="spec describes the session. It changes only when the user resumes the session over "
    "another connection.",
)
_STATUS = struct(
    {
        "bytesToMachine": integer(
            "bytesToMachine is the number of bytes from the user, including framing."
        ),
        "bytesToUser": integer(
            "bytesToUser is the number of bytes from the machine, including framing."
        ),
        "renewTime": moment("renewTime is the last time the API server renewed the session."),
        "leaseDurationSeconds": integer(
            "leaseDurationSeconds is how long the session remains valid after renewTime."
        ),
        "role": string(
            "role is the present role of the session. It is empty if the machine's runtime does not report it.",
            enum=["Writer", "Observer"],
        ),
        "resumable": boolean(
            "resumable is true if the user can resume the session after a loss of the connection."
        ),
        "awaySince": moment(
            "awaySince is when the connection was lost. It is missing while the user is connected."
        ),
        "endedBy": string("endedBy is the user who deleted the session."),
    },
    description="status is the observed state of the session.",
)


def _selected(key: str) -> Any:
    def read(session: Mapping[str, Any]) -> str:
        return str(session.get("spec", {}).get(key, ""))

    return read


def _resumable(session: Mapping[str, Any]) -> str:
    return "true" if session.get("status", {}).get("resumable") else "false"


CONSOLESESSIONS = Kind(
    resource=Resource("console.twisted-exec.dev", "v1alpha1", "consolesessions", "ConsoleSession"),
    singular="consolesession",
    short_names=("sessions", "session"),
    description="ConsoleSession is the connection of one user to the console of one machine. Deleting it ends the connection.",
    schema={"spec": _SPEC, "status": _STATUS},
    columns=(
        Column("Machine", cell("spec", "machine"), "The machine"),
        Column("User", cell("spec", "user"), "The user of the session"),
        Column(
            "Requested",
            cell("spec", "mode"),
            "The mode that the session requested",
        ),
        Column("Role", cell("status", "role"), "The present role of the session"),
        Column(
            "Away",
            cell("status", "awaySince"),
            "How long the user has been absent, after a loss of the connection",
            moment=True,
        ),
        Column("From", cell("spec", "address"), "The address of the client"),
        Column(
            "Protocol", cell("spec", "protocol"), "The stream protocol of the client", priority=1
        ),
        Column(
            "Resumable",
            _resumable,
            "Whether the user can resume the session after a loss of the connection",
            priority=1,
        ),
        Column(
            "In", cell("status", "bytesToMachine", missing="0"), "Bytes to the machine", priority=1
        ),
        Column("Out", cell("status", "bytesToUser", missing="0"), "Bytes to the user", priority=1),
        Column("Via", cell("spec", "via"), "The requested endpoint", priority=1),
        Column("Recording", cell("spec", "recording"), "The recording of the session", priority=1),
        Column(
            "Replica",
            cell("spec", "replica"),
            "The API server that forwards the session",
            priority=1,
        ),
        Column("Session", cell("spec", "session"), "The session ID in the audit log", priority=1),
    ),
    fields={f"spec.{key}": _selected(key) for key in ("machine", "machineUID", "user", "replica")},
    server_made="console sessions are created by opening a console, and only the server changes them",
)

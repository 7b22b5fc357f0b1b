"""
Console recordings: what a machine's console printed, as evidence.

The runtime of the machine makes the recording, and reports its newest signed head, which is stored
in the status: apart from the recording itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twisted_exec.api import fields, times
from twisted_exec.api.declared_reasons import LONGEST_REASON, check_reason
from twisted_exec.api.fields import Cause, shown
from twisted_exec.api.kinds.consolepolicies import GROUP, LONGEST_RETENTION_DAYS, RECORDED_INPUT
from twisted_exec.api.kinds.kind import NOTHING, Column, Kind, Object, cell
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import array, boolean, integer, moment, string, struct
from twisted_exec.api.status import BadRequest

RECORDING, CLOSED, FAILED = PHASES = ("Recording", "Closed", "Failed")
PENDING, ENDING = "Pending", "Ending"
"""States of a recording without a phase, and of one that is to end."""
NOT_STARTED, INTERRUPTED, INCOMPLETE, NOT_STORED = PROBLEMS = (
    "NotStarted",
    "Interrupted",
    "Incomplete",
    "NotStored",
)
"""Reasons of the message about a recording that has not failed."""
CONTENT = "content"
"""The subresource with the recording itself."""
CONTENT_TYPE = "application/x-asciicast"
DEFAULT_RETENTION_DAYS = 30
DEFAULT_INPUT = "masked"
MOST_USERS = 100

SET_BY_SERVER = (
    "machineUID",
    "pool",
    "user",
    "policies",
    "endsWithSessions",
    "users",
    "lastSessionTime",
    "endedTime",
    "endedReason",
)
_MUTABLE = ("reason", "retentionDays", "ended", "endedTime", "endedReason")
_LONGEST_HEAD = 4096
LONGEST_STATUS_REASON = 64
_LONGEST_ENDED_REASON = 1024

_SPEC = struct(
    {
        "machine": string(
            "machine is the name of a machine in the namespace of the recording.",
            minLength=1,
            maxLength=253,
        ),
        "machineResource": string(
            "machineResource is the resource of the machine, in the format PLURAL.GROUP. Defaults to the "
            "first resource with a machine of that name.",
            maxLength=253,
        ),
        "input": string(
            "input says how much of the input of users is recorded besides the output: none; masked, which is "
            "only what the machine echoed, so no password that is typed blindly; or all.",
            enum=list(RECORDED_INPUT),
            default=DEFAULT_INPUT,
        ),
        "reason": string(
            "reason says why the console is recorded, such as the number of a ticket.",
            maxLength=4 * LONGEST_REASON,
        ),
        "retentionDays": integer(
            "retentionDays is how many days after its end the recording is deleted.",
            minimum=1,
            maximum=LONGEST_RETENTION_DAYS,
            default=DEFAULT_RETENTION_DAYS,
        ),
        "ended": boolean(
            "ended ends the recording when it is set to true. A recording that has ended cannot be continued."
        ),
        "machineUID": string("machineUID is the UID of the machine. Set by the server."),
        "pool": string(
            "pool is the pool of the machine, whose runtime makes and retains the recording. Set by the server."
        ),
        "user": string("user is the user who created the recording. Set by the server."),
        "policies": array(
            string(),
            "policies are the ConsolePolicies of the namespace for which the server created the recording. "
            "Such a recording is changed and deleted only by users who may update these. Set by the server.",
            maxItems=64,
        ),
        "endsWithSessions": boolean(
            "endsWithSessions is true if the server ends the recording after the last session at the console. "
            "Set by the server."
        ),
        "users": array(
            string(),
            "users are the users whose sessions needed the recording. Set by the server.",
            maxItems=MOST_USERS,
        ),
        "lastSessionTime": moment(
            "lastSessionTime is when such a session was last opened, to within 10 seconds. Set by the server."
        ),
        "endedTime": moment("endedTime is when ended was set to true. Set by the server."),
        "endedReason": string(
            "endedReason says why ended was set to true. Set by the server.",
            maxLength=_LONGEST_ENDED_REASON,
        ),
    },
    required=["machine"],
    description="spec describes the machine, and what is recorded.",
)
_STATUS = struct(
    {
        "phase": string(
            "phase is Recording; Closed when the recording is complete; or Failed if the runtime could not "
            "make it.",
            enum=list(PHASES),
        ),
        "reason": string(
            "reason says what message is about: NotStarted, Interrupted, Incomplete, NotStored or Failed.",
            maxLength=LONGEST_STATUS_REASON,
        ),
        "message": string(
            "message says why the recording failed, or what is missing in it.", maxLength=1024
        ),
        "epoch": string("epoch is that of the journal to which the offsets belong.", maxLength=128),
        "firstOffset": integer("firstOffset is the offset of the first byte of output.", minimum=0),
        "endOffset": integer("endOffset is the offset behind the last byte of output.", minimum=0),
        "startTime": moment("startTime is when the recording began."),
        "endTime": moment("endTime is when it was closed, or failed."),
        "location": string(
            "location is the URL of the recording in the store of the runtime, once it is closed and the store has "
            "it. The subresource content is read from there.",
            maxLength=1024,
        ),
        "head": string(
            "head is the newest signed head of the recording. Without a newer one in a copy of the content, "
            "twisted-exec recording verify finds that the end of the copy is missing.",
            maxLength=_LONGEST_HEAD,
        ),
    },
    description="status is the state of the recording, as the poollet of the machine's pool reports it.",
)


def state_of(recording: Object) -> str:
    """Return the state of a recording: its phase, :data:`PENDING` or :data:`ENDING`."""
    phase = str(recording.get("status", {}).get("phase") or PENDING)
    is_to_end = recording["spec"].get("ended") or "deletionTimestamp" in recording["metadata"]
    return ENDING if is_to_end and phase not in (CLOSED, FAILED) else phase


def end_of(recording: Object) -> float | None:
    """Return when a recording ended, in seconds since the epoch; ``None`` if it goes on."""
    status, spec = recording.get("status", {}), recording["spec"]
    if status.get("phase") in (CLOSED, FAILED) and status.get("endTime"):
        return times.seconds(status["endTime"])
    if spec.get("endedTime"):
        return times.seconds(spec["endedTime"])
    return None


def ended_spec(spec: Object, now: float, why: str) -> Object:
    """
    Return the spec of a recording that ends.

    :param now: seconds since the epoch.
    """
    ended = {"ended": True, "endedTime": times.timestamp(now)}
    return {**spec, **ended, "endedReason": why[:_LONGEST_ENDED_REASON]}


def content_path(namespace: str, name: str) -> str:
    """Return the path of the content of a recording at a poollet."""
    resource = CONSOLERECORDINGS.resource
    return f"/apis/{resource.group}/namespaces/{namespace}/{resource.plural}/{name}/{CONTENT}"


def _validate(recording: Object) -> list[Cause]:
    reason = recording["spec"].get("reason", "")
    try:
        check_reason(reason)
    except BadRequest as error:
        return [fields.invalid("spec.reason", reason, error.message)]
    return []


def _carry_over(new: Object, old: Object) -> None:
    for key in (*SET_BY_SERVER, "machineResource"):
        if key in old["spec"]:
            new.setdefault("spec", {}).setdefault(key, old["spec"][key])


def _validate_update(new: Object, old: Object) -> list[Cause]:
    return list(_update_problems(new["spec"], old["spec"]))


def _update_problems(new: Object, old: Object) -> Iterator[Cause]:
    changed = {key for key in {*new, *old} if new.get(key) != old.get(key)}
    for key in sorted(changed - {*_MUTABLE}):
        yield fields.forbidden(f"spec.{key}", "is immutable: end this recording and create another")
    if old.get("ended") and not new.get("ended"):
        yield fields.forbidden("spec.ended", "cannot be taken back: create another recording")
    for key in sorted(changed & {"endedTime", "endedReason"}):
        yield fields.forbidden(f"spec.{key}", "is set by the server")


def _validate_status(new: Object, old: Object) -> list[Cause]:
    phase, before = (each.get("status", {}).get("phase") for each in (new, old))
    if before in (CLOSED, FAILED) and phase != before:
        return [fields.forbidden("status.phase", f"is {before}, and a recording does not go on")]
    return []


def _end(recording: Object) -> str:
    end = end_of(recording)
    return NOTHING if end is None else times.timestamp(end)


def size_of(recording: Object) -> int | None:
    """Return the number of bytes of output; ``None`` if it is not known."""
    status = recording.get("status", {})
    if "endOffset" not in status:
        return None
    return max(int(status["endOffset"]) - int(status.get("firstOffset", 0)), 0)


def _bytes(recording: Object) -> str:
    size = size_of(recording)
    return "<none>" if size is None else str(size)


def _policies(recording: Object) -> str:
    return ",".join(recording["spec"].get("policies", ())) or "<none>"


def _users(recording: Object) -> str:
    return ",".join(recording["spec"].get("users", ())) or "<none>"


def _field(key: str) -> Any:
    return lambda recording: str(recording.get("spec", {}).get(key, ""))


CONSOLERECORDINGS = Kind(
    resource=Resource(GROUP, "v1alpha1", "consolerecordings", "ConsoleRecording"),
    singular="consolerecording",
    short_names=("recordings", "recording"),
    description="ConsoleRecording is a recording of a machine's console that proves itself. Its subresource "
    "content is the recording as an asciicast.",
    schema={"spec": _SPEC, "status": _STATUS},
    required=("spec",),
    columns=(
        Column("Machine", cell("spec", "machine"), "The machine"),
        Column("Input", cell("spec", "input"), "How much of the users' input is recorded"),
        Column("State", state_of, "Pending, Recording, Ending, Closed or Failed"),
        Column("Bytes", _bytes, "The bytes of output in the recording"),
        Column("Policies", _policies, "The ConsolePolicies that require the recording"),
        Column("Ended", _end, "Time since the end", moment=True),
        Column("Users", _users, "The users whose sessions needed the recording", priority=1),
        Column("Reason", cell("spec", "reason"), "Why", priority=1),
        Column("Pool", cell("spec", "pool"), "The pool of the machine", priority=1),
    ),
    has_status=True,
    counts_generation=True,
    fields={f"spec.{key}": _field(key) for key in ("machine", "machineUID", "pool")},
    texts={CONTENT: {}},
    text_types={CONTENT: (CONTENT_TYPE,)},
    carry_over=_carry_over,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
)


def recorded_input(text: str) -> str:
    """
    Return the input to record; empty text means the default.

    :raises BadRequest: there is no such input.
    """
    if text and text not in RECORDED_INPUT:
        raise BadRequest(
            f"a recording has the input {', '.join(RECORDED_INPUT[:-1])} or {RECORDED_INPUT[-1]}, not "
            f"{shown(text)}"
        )
    return text or DEFAULT_INPUT


def recording_of_query(args: Mapping[bytes, Sequence[bytes]]) -> str:
    """
    Return the input to record by a query; empty if it asks for no recording.

    :raises BadRequest: the query is not valid.
    """
    values = args.get(b"record", ())
    if not values:
        return ""
    if len(values) > 1:
        raise BadRequest("the request asks for a recording more than once: ask once")
    return recorded_input(values[0].decode("ascii", "replace"))

"""
Console requests: a user asks for an approval to use the console of a machine.

Subresource ``approval`` approves or denies a request; an approval may be withdrawn, a denial is
final.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from twisted_exec.api import fields, times
from twisted_exec.api.declared_reasons import LONGEST_REASON, check_reason
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.consolepolicies import GROUP
from twisted_exec.api.kinds.kind import Column, Kind, Object, cell
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import boolean, integer, moment, string, struct
from twisted_exec.api.status import BadRequest

RIGHTS = ("observe", "drive", "takeover")
"""The rights that a request can be for, lowest first: the verbs of ``machines/console``."""
PENDING, APPROVED, DENIED, EXPIRED, USED = "Pending", "Approved", "Denied", "Expired", "Used"
WITHDRAWN, DELETED = "Withdrawn", "Deleted"
DEFAULT_SECONDS = 3600
LONGEST_SECONDS = 86_400
PENDING_SECONDS = 86_400
"""How long a request may wait for its approval."""

_BY_APPROVERS = ("approved", "denied", "message")
_BY_SERVER = ("user", "userUID", "caller", "machineUID")

_SPEC = struct(
    {
        "machine": string(
            "machine is the name of a machine in the namespace of the request.",
            minLength=1,
            maxLength=253,
        ),
        "machineResource": string(
            "machineResource is the resource of the machine, in the format PLURAL.GROUP. Defaults to the "
            "first resource with a machine of that name.",
            maxLength=253,
        ),
        "reason": string(
            "reason says why the user needs the console, such as the number of a ticket.",
            maxLength=4 * LONGEST_REASON,
        ),
        "right": string(
            "right is the right that the user needs: observe, drive or takeover. Each includes those before it.",
            enum=list(RIGHTS),
            default="drive",
        ),
        "seconds": integer(
            "seconds is how long the approval is to be valid.",
            minimum=60,
            maximum=LONGEST_SECONDS,
            default=DEFAULT_SECONDS,
        ),
        "user": string("user is the user who created the request. Set by the server."),
        "userUID": string("userUID is the UID of that user. Set by the server."),
        "caller": string(
            "caller is the user who impersonated the user of the request. Set by the server."
        ),
        "machineUID": string("machineUID is the UID of the machine. Set by the server."),
    },
    required=["machine"],
    description="spec describes the machine, the user and the right. It is immutable.",
)
_STATUS = struct(
    {
        "approved": boolean("approved is true if the request is approved."),
        "denied": boolean("denied is true if the request is denied, or its approval is withdrawn."),
        "message": string("message is a remark of the approver.", maxLength=1024),
        "decidedBy": string("decidedBy is the user who approved or denied. Set by the server."),
        "decisionTime": moment("decisionTime is the time of the decision. Set by the server."),
        "expirationTime": moment("expirationTime is when the approval ends. Set by the server."),
        "session": string(
            "session is the session that used an approval for one session. Set by the server."
        ),
        "previousSession": string(
            "previousSession is the session that this session resumes. Set by the server."
        ),
        "useTime": moment(
            "useTime is when an approval for one session was first used. Set by the server."
        ),
    },
    description="status is the decision.",
)


def expiry(request: Object) -> float:
    """Return when an approval ends, or a request that waits can no longer be approved."""
    until = request.get("status", {}).get("expirationTime")
    if until:
        return times.seconds(until)
    return times.seconds(request["metadata"]["creationTimestamp"]) + PENDING_SECONDS


def used_at(request: Object) -> float:
    """Return when an approval for one session was first used; infinite if it was not."""
    time = request.get("status", {}).get("useTime")
    return times.seconds(time) if time else math.inf


def state_of(request: Object, now: float) -> str:
    """Return the state of a request, such as :data:`PENDING` or :data:`APPROVED`."""
    status = request.get("status", {})
    if "deletionTimestamp" in request["metadata"]:
        return DELETED
    if status.get("denied"):
        return _denied(status)
    if status.get("session"):
        return USED
    if expiry(request) <= now:
        return EXPIRED
    return APPROVED if status.get("approved") else PENDING


def _denied(status: Object) -> str:
    return WITHDRAWN if status.get("expirationTime") else DENIED  # which only approvals have


def _validate(request: Object) -> list[Cause]:
    reason = request["spec"].get("reason", "")
    try:
        check_reason(reason)
    except BadRequest as error:
        return [fields.invalid("spec.reason", reason, error.message)]
    return []


def _carry_over(new: Object, old: Object) -> None:
    for key in _BY_SERVER:
        if key in old["spec"]:
            new.setdefault("spec", {}).setdefault(key, old["spec"][key])


def _validate_update(new: Object, old: Object) -> list[Cause]:
    if new["spec"] == old["spec"]:
        return []
    return [fields.forbidden("spec", "is immutable: delete the request and create another")]


def _carry_status(subresource: str, new: Object, old: Object) -> None:
    """Approval cannot set what the server sets, and a status update changes nothing."""
    before = old.get("status", {})
    decision = new.get("status", {}) if subresource == "approval" else before
    status: dict[str, Any] = {k: v for k, v in before.items() if k not in _BY_APPROVERS}
    status |= {key: decision[key] for key in _BY_APPROVERS if key in decision}
    if subresource == "approval" and status.get("denied") and not before.get("denied"):
        status["approved"] = False
        if status.get("message") == before.get("message"):
            status.pop("message", None)  # the remark of the approval
    new["status"] = status


def _validate_status(new: Object, old: Object) -> list[Cause]:
    return list(_decision_problems(new.get("status", {}), old.get("status", {})))


def _decision_problems(status: Object, before: Object) -> Iterator[Cause]:
    message = status.get("message", "")
    if not message.isprintable():
        yield fields.invalid("status.message", message, "must be printable characters")
    if before.get("denied") and not (status.get("denied") and not status.get("approved")):
        yield fields.forbidden("status", "a denial is final: create another request")
    elif before.get("approved") and not status.get("approved") and not status.get("denied"):
        yield fields.forbidden(
            "status.approved", "to withdraw an approval, set status.denied to true"
        )


def _state(request: Object) -> str:
    status = request.get("status", {})
    if "deletionTimestamp" in request["metadata"]:
        return DELETED
    if status.get("denied"):
        return _denied(status)
    if not status.get("approved"):
        return PENDING
    return USED if status.get("session") else APPROVED


CONSOLEREQUESTS = Kind(
    resource=Resource(GROUP, "v1alpha1", "consolerequests", "ConsoleRequest"),
    singular="consolerequest",
    description="ConsoleRequest asks another user to approve the use of a machine's console, which a "
    "ConsolePolicy may require.",
    schema={"spec": _SPEC, "status": _STATUS},
    required=("spec",),
    columns=(
        Column("Machine", cell("spec", "machine"), "The machine"),
        Column("User", cell("spec", "user"), "The user of the request"),
        Column("Right", cell("spec", "right"), "The right that the user needs"),
        Column("Reason", cell("spec", "reason"), "Why"),
        Column("State", _state, "Pending, Approved, Denied, Used, Withdrawn or Deleted"),
        Column("Decided By", cell("status", "decidedBy"), "The user who decided"),
        Column("Expires", cell("status", "expirationTime"), "When the approval ends", priority=1),
    ),
    has_status=True,
    status_parts=("approval",),
    fields={
        "spec.machine": lambda request: str(request["spec"].get("machine", "")),
        "spec.user": lambda request: str(request["spec"].get("user", "")),
    },
    carry_over=_carry_over,
    validate=_validate,
    validate_update=_validate_update,
    carry_status=_carry_status,
    validate_status=_validate_status,
)

"""
Console policies: conditions under which consoles of machines may be used.

Policies only restrict: a user also needs the permission for the console.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, patterns, times
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.hours import DAYS, MOST_WINDOWS, hours_problems, time_zone
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR
from twisted_exec.api.kinds.subjects import (
    SUBJECT,
    prepare_subjects,
    subject_name,
    subject_problems,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import array, boolean, integer, string, struct

GROUP = "console.twisted-exec.dev"
REQUIRED, OPTIONAL, NONE, ONCE = "Required", "Optional", "None", "Once"
STRICT, COMPATIBLE = "Strict", "Compatible"
SESSIONS, INPUT = "Sessions", "Input"
MOST_PEOPLE = 10
RECORDED_INPUT = ("none", "masked", "all")
"""How much of the users' input a recording contains, least first."""
LONGEST_RETENTION_DAYS = 3650

# Causes of the refusal of a session (403).
REASON_REQUIRED = "ReasonRequired"
"""Reason of a cause: the session needs another reason than it has."""
APPROVAL_REQUIRED = "ApprovalRequired"
"""Reason of a cause: the session needs an approved ConsoleRequest."""
POLICY_REQUIRED = "ConsolePolicyRequired"
"""Reason of a cause: an agent may do it only where a ConsolePolicy with subjects covers it."""
NOT_ALLOWED = "ConsolePolicyNotMet"
"""Reason of a cause: another condition, which the user cannot meet by asking."""

_MOST_VIEWERS = 1000
_MOST_SUBJECTS = 256
_HIGHEST_INPUT_RATE = 1 << 20
_LONGEST_SECONDS = 30 * 86_400

_HOURS = struct(
    {
        "days": array(
            string(enum=list(DAYS)),
            "days are the days of the week on which the hours begin. Defaults to every day.",
            unique=True,
            maxItems=len(DAYS),
        ),
        "from": string("from is the time at which the hours begin, such as 08:00."),
        "to": string(
            "to is the time at which the hours end, such as 18:00, or 24:00 for the end of the day. If it is "
            "before from, the hours end on the next day."
        ),
    },
    required=["from", "to"],
)
_RECORDING = struct(
    {
        "mode": string(
            "mode is Required if sessions are refused, and accept no input, while the console cannot be recorded; or "
            "Optional if they go on without a recording then.",
            enum=[REQUIRED, OPTIONAL],
            default=REQUIRED,
        ),
        "input": string(
            "input says how much of the input of users is recorded besides the output: none; masked, which is "
            "only what the machine echoed, so no password that is typed blindly; or all.",
            enum=list(RECORDED_INPUT),
            default="masked",
        ),
        "retentionDays": integer(
            "retentionDays is how many days after its end a recording is deleted.",
            minimum=1,
            maximum=LONGEST_RETENTION_DAYS,
            default=90,
        ),
    },
    description="recording says that sessions are recorded. The server creates a ConsoleRecording with the first "
    "session at a console, and ends it after the last one.",
)
_SPEC = struct(
    {
        "selector": {
            **LABEL_SELECTOR,
            "description": "selector selects machines of the policy's namespace by their labels. An empty selector "
            "selects all of them.",
        },
        "subjects": array(
            SUBJECT,
            "subjects are the users, groups and ServiceAccounts whose sessions the policy restricts, as in a "
            "RoleBinding. Without subjects it restricts everybody.",
            maxItems=_MOST_SUBJECTS,
        ),
        "restricts": string(
            "restricts is Sessions if the policy restricts all sessions. With Input it restricts only sessions that "
            "may type: others, such as with --read-only, and screens, meet none of its conditions, and can only "
            "observe.",
            enum=[SESSIONS, INPUT],
            default=SESSIONS,
        ),
        "reason": string(
            "reason is Required if a session needs a reason, such as the number of a ticket; else Optional.",
            enum=[REQUIRED, OPTIONAL],
            default=OPTIONAL,
        ),
        "reasonPattern": string(
            "reasonPattern is a regular expression in the syntax of RE2 that the reason must contain, such as "
            "OPS-[0-9]+. It needs reason: Required.",
            minLength=1,
            maxLength=patterns.MOST_BYTES,
        ),
        "maxSeconds": integer(
            "maxSeconds is the longest duration of a session. Its user is warned before the end.",
            minimum=1,
            maximum=_LONGEST_SECONDS,
        ),
        "idleSeconds": integer(
            "idleSeconds is the longest time that a session may last without input. Output of the machine "
            "does not count. Its user is warned before the end.",
            minimum=1,
            maximum=_LONGEST_SECONDS,
        ),
        "hours": array(
            _HOURS,
            "hours are the times of the week at which the consoles may be used. A session ends when "
            "the hours end. Without hours there is no limit.",
            maxItems=MOST_WINDOWS,
        ),
        "timeZone": string(
            "timeZone is the IANA name of the time zone of hours, such as Europe/Berlin. Defaults to UTC.",
            minLength=1,
            maxLength=64,
        ),
        "viewers": integer(
            "viewers is the largest number of sessions at one console at the same time.",
            minimum=1,
            maximum=_MOST_VIEWERS,
        ),
        "inputBytesPerSecond": integer(
            "inputBytesPerSecond is the highest rate at which the machine gets input from these sessions, on "
            "average, with bursts of one second. Faster input waits, and nothing of it is lost.",
            minimum=1,
            maximum=_HIGHEST_INPUT_RATE,
        ),
        "yieldsToPeople": boolean(
            "yieldsToPeople says that a person who may drive the console, and types, takes the floor at once from a "
            "user whom the policy restricts. Between two people whom it restricts it changes nothing. Agents and "
            "ServiceAccounts are no people."
        ),
        "people": integer(
            "people is the number of different users that must be connected to the console before it accepts "
            "input. 2 is the four-eyes principle. A ServiceAccount and an impersonated user do not count as "
            "people, and cannot use the console if people is more than 1.",
            minimum=1,
            maximum=MOST_PEOPLE,
            default=1,
        ),
        "approval": string(
            "approval is Required if a session needs a ConsoleRequest that another user has approved. With Once, "
            "each approval is for one session only. With None, no approval is needed.",
            enum=[NONE, REQUIRED, ONCE],
            default=NONE,
        ),
        "approvers": string(
            "approvers says who approves requests, for the message to users who need an approval. It grants "
            "nothing.",
            maxLength=256,
        ),
        "verbs": string(
            "verbs is Strict if only the verbs observe, drive and takeover of machines/console allow the use of "
            "the console. With Compatible, create on machines/exec allows it as well.",
            enum=[STRICT, COMPATIBLE],
            default=COMPATIBLE,
        ),
        "recording": _RECORDING,
    },
    description="spec describes the machines and the conditions of their consoles.",
)


def _prepare(policy: Object) -> None:
    spec = policy.get("spec")
    if isinstance(spec, dict):
        prepare_subjects(spec.get("subjects"))


def _validate(policy: Object) -> list[Cause]:
    return list(_problems(policy.get("spec", {})))


def _problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    yield from validation.label_selector(spec.get("selector", {}), "spec.selector")
    subjects = spec.get("subjects")
    if subjects == []:
        detail = "must not be empty: leave it out to restrict everybody"
        yield fields.invalid("spec.subjects", [], detail)
    yield from subject_problems(subjects or [], "spec.subjects")
    yield from _reason_problems(spec)
    viewers, people = spec.get("viewers"), spec.get("people", 1)
    if viewers is not None and viewers < people:
        detail = f"must be at least people, {people}: no console would ever accept input"
        yield fields.invalid("spec.viewers", viewers, detail)
    windows = spec.get("hours")
    if windows == []:
        yield fields.invalid(
            "spec.hours",
            [],
            "must not be empty, because no session would be allowed: leave it out for any time",
        )
    if windows is not None:
        yield from hours_problems(windows, "spec.hours")
    if "timeZone" in spec:
        if not windows:
            yield fields.forbidden("spec.timeZone", "has a meaning only with spec.hours")
        try:
            time_zone(spec["timeZone"])
        except ValueError as error:
            yield fields.invalid("spec.timeZone", spec["timeZone"], str(error))
    approvers = spec.get("approvers", "")
    if not approvers.isprintable():
        yield fields.invalid("spec.approvers", approvers, "must be printable characters")


def _reason_problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    pattern = spec.get("reasonPattern")
    if pattern is None:
        return
    field = "spec.reasonPattern"
    if spec.get("reason") != REQUIRED:
        yield fields.forbidden(field, "has a meaning only with spec.reason: Required")
    if problem := patterns.problem(pattern):
        yield fields.invalid(field, pattern, problem)
    elif not patterns.SUPPORTED:
        yield fields.invalid(
            field, pattern, f"this server cannot search it: {patterns.UNSUPPORTED}"
        )


def _selector(policy: Object) -> str:
    selector = policy.get("spec", {}).get("selector") or {}
    terms = [f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items())]
    for each in selector.get("matchExpressions", ()):
        values = f" ({','.join(each['values'])})" if each.get("values") else ""
        terms.append(f"{each['key']} {each['operator']}{values}")
    return ",".join(terms) or "<all>"


def _subjects(policy: Object) -> str:
    subjects = policy.get("spec", {}).get("subjects")
    return ",".join(map(subject_name, subjects)) if subjects else "<all>"


def _duration(key: str) -> Any:
    def read(policy: Object) -> str:
        value = policy.get("spec", {}).get(key)
        return times.human(value) if value else "<none>"

    return read


def _recording(policy: Object) -> str:
    recording = policy.get("spec", {}).get("recording")
    if recording is None:
        return "<none>"
    return f"{recording.get('mode', REQUIRED)}, input {recording.get('input', 'masked')}"


def _value(key: str, default: str) -> Any:
    return lambda policy: str(policy.get("spec", {}).get(key, default))


def _input_rate(policy: Object) -> str:
    rate = policy.get("spec", {}).get("inputBytesPerSecond")
    return f"{rate} B/s" if rate else "<any>"


def _yields(policy: Object) -> str:
    return "ToPeople" if policy.get("spec", {}).get("yieldsToPeople") else "<none>"


def _hours(policy: Object) -> str:
    spec = policy.get("spec", {})
    spans = [
        " ".join(filter(None, (",".join(each.get("days", ())), f"{each['from']}-{each['to']}")))
        for each in spec.get("hours", ())
    ]
    return f"{'; '.join(spans)} {spec.get('timeZone', 'UTC')}" if spans else "<any>"


CONSOLEPOLICIES = Kind(
    resource=Resource(GROUP, "v1alpha1", "consolepolicies", "ConsolePolicy"),
    singular="consolepolicy",
    description="ConsolePolicy restricts the use of consoles of machines: by a reason, an approval, hours, "
    "time, people and recordings. Several policies for one machine apply together.",
    schema={"spec": _SPEC},
    required=("spec",),
    columns=(
        Column("Machines", _selector, "The selector of machines"),
        Column("Subjects", _subjects, "The users and groups whose sessions are restricted"),
        Column("Reason", _value("reason", OPTIONAL), "Whether a session needs a reason"),
        Column("Approval", _value("approval", NONE), "Whether a session needs an approval"),
        Column("People", _value("people", "1"), "The users that input needs"),
        Column("Max", _duration("maxSeconds"), "The longest duration of a session"),
        Column("Idle", _duration("idleSeconds"), "The longest time without input"),
        Column("Hours", _hours, "The times at which the consoles may be used", priority=1),
        Column("Restricts", _value("restricts", SESSIONS), "Which sessions", priority=1),
        Column("Input", _input_rate, "The highest rate of input", priority=1),
        Column("Yields", _yields, "Whether a person who types takes the floor", priority=1),
        Column("Verbs", _value("verbs", COMPATIBLE), "The permissions that count", priority=1),
        Column("Recording", _recording, "Whether sessions are recorded", priority=1),
    ),
    counts_generation=True,
    prepare=_prepare,
    validate=_validate,
)

"""
Console policies: conditions under which consoles of machines may be used.

Policies only restrict: a user also needs the permission for the console.

Hours of a policy are times of the week in a time zone. A time that the clocks skip is read as if
they had not changed yet. If a time occurs twice, the first counts, as in :mod:`zoneinfo`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from twisted_exec.api import fields, patterns, times
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.validation import LABEL_SELECTOR
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import array, integer, string, struct

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MOST_WINDOWS = 32

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00", re.ASCII)
_DAY_MINUTES = 24 * 60
_WEEK_SECONDS = 7 * 86_400
_HORIZON_DAYS = 16
"""Every window begins again within a week, or within two if the clocks skip it once."""


@dataclass(frozen=True)
class Window:
    """
    One span of time on some days of each week.

    :param days: 0 is Monday.
    :param first: minute of the day at which it begins.
    :param last: minute at which it ends; not after ``first`` if it ends on the next day.
    """

    days: frozenset[int]
    first: int
    last: int

    def on(self, day: date, zone: tzinfo) -> tuple[float, float] | None:
        """Return the beginning and the end on a day (seconds since the epoch)."""
        if day.weekday() not in self.days:
            return None
        ends_tomorrow = self.last <= self.first
        first = _moment(day, self.first, zone)
        last = _moment(day + timedelta(days=ends_tomorrow), self.last, zone)
        return (first, last) if first < last else None


class Hours:
    """The hours of one policy."""

    def __init__(self, windows: Sequence[Window], zone: tzinfo) -> None:
        self._windows, self._zone = tuple(windows), zone
        self._cache = (0.0, 0.0, False)
        """Beginning and end of the present state of the hours, and whether they are open."""

    def closes(self, now: float) -> float | None:
        """
        Return when the hours end.

        :return: ``None`` if ``now`` is outside the hours; infinity if they never end.
        """
        until, is_open = self._now(now)
        if not is_open:
            return None
        return until if until < now + _WEEK_SECONDS else float("inf")

    def opens(self, now: float) -> float:
        """Return when hours begin after ``now``, which is outside them."""
        return self._now(now)[0]

    def _now(self, now: float) -> tuple[float, bool]:
        since, until, is_open = self._cache
        if not since <= now < until or (is_open and until >= now + _WEEK_SECONDS):
            until, is_open = self._evaluated(now)
            self._cache = now, until, is_open
        return until, is_open

    def _evaluated(self, now: float) -> tuple[float, bool]:
        end, spans = now, self._spans(now)
        for first, last in spans:
            if first <= end < last:
                end = last
        if end > now:
            return end, True
        return min((first for first, _ in spans if first > now), default=float("inf")), False

    def text(self, moment: float) -> str:
        """Return a moment in the time zone of the hours, for messages."""
        return f"{datetime.fromtimestamp(moment, self._zone):%a %Y-%m-%d %H:%M} {self._zone}"

    def _spans(self, now: float) -> list[tuple[float, float]]:
        today = datetime.fromtimestamp(now, self._zone).date()
        days = [today + timedelta(days=number) for number in range(-1, _HORIZON_DAYS)]
        spans = (window.on(day, self._zone) for day in days for window in self._windows)
        return sorted(span for span in spans if span is not None)


def parse_hours(windows: Sequence[Mapping[str, Any]], zone: str) -> Hours:
    """
    Parse the hours of a valid policy.

    :raises ValueError: there is no such time zone.
    """
    return Hours(tuple(map(_window, windows)), time_zone(zone))


def time_zone(name: str) -> tzinfo:
    """
    Return a time zone by its IANA name.

    :raises ValueError: there is no such zone.
    """
    if name == "UTC":
        return UTC
    # Imported here: clients import the kinds and need no time zones.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    problem = "must be the IANA name of a time zone, such as UTC or Europe/Berlin"
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        problem = "this server has no time zones besides UTC: install the package tzdata"
    raise ValueError(problem)


def hours_problems(windows: Sequence[Mapping[str, Any]], field: str) -> Iterator[Cause]:
    """Yield the problems of ``hours``, which fit the schema."""
    for at, each in enumerate(windows):
        here = f"{field}[{at}]"
        wrong = [key for key in ("from", "to") if not _TIME.fullmatch(each[key])]
        for key in wrong:
            yield fields.invalid(f"{here}.{key}", each[key], "must be a time such as 08:30")
        if not wrong and each["from"] == "24:00":
            yield fields.invalid(f"{here}.from", each["from"], "must be before 24:00")
        elif not wrong and each["from"] == each["to"]:
            detail = "must not equal from: a whole day is 00:00 to 24:00"
            yield fields.invalid(f"{here}.to", each["to"], detail)


def _window(each: Mapping[str, Any]) -> Window:
    days = frozenset(DAYS.index(day) for day in each.get("days") or DAYS)
    return Window(days, _minute(each["from"]), _minute(each["to"]))


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def _moment(day: date, minute: int, zone: tzinfo) -> float:
    more, minute = divmod(minute, _DAY_MINUTES)
    clock = time(*divmod(minute, 60), tzinfo=zone)
    return datetime.combine(day + timedelta(days=more), clock).timestamp()


GROUP = "console.twisted-exec.dev"
REQUIRED, OPTIONAL, NONE, ONCE = "Required", "Optional", "None", "Once"
STRICT, COMPATIBLE = "Strict", "Compatible"
MOST_PEOPLE = 10
RECORDED_INPUT = ("none", "masked", "all")
"""How much of the users' input a recording contains, least first."""
LONGEST_RETENTION_DAYS = 3650

_MOST_VIEWERS = 1000
_LONGEST_SECONDS = 30 * 86_400

_HOURS = struct(
    {
        "days": {
            **array(
                string(enum=list(DAYS)),
                "days are the days of the week on which the hours begin. Defaults to every day.",
                unique=True,
            ),
            "maxItems": len(DAYS),
        },
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
        "hours": {
            **array(
                _HOURS,
                "hours are the times of the week at which the consoles may be used. A session ends when "
                "the hours end. Without hours there is no limit.",
            ),
            "maxItems": MOST_WINDOWS,
        },
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
        "people": integer(
            "people is the number of different users that must be connected to the console before it accepts "
            "input. 2 is the rule of four eyes. A ServiceAccount and an impersonated user do not count as "
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


def _validate(policy: Object) -> list[Cause]:
    return list(_problems(policy.get("spec", {})))


def _problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    yield from validation.label_selector(spec.get("selector", {}), "spec.selector")
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
        yield fields.invalid("spec.approvers", approvers, "must not have control characters")


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
        Column("Reason", _value("reason", OPTIONAL), "Whether a session needs a reason"),
        Column("Approval", _value("approval", NONE), "Whether a session needs an approval"),
        Column("People", _value("people", "1"), "The users that input needs"),
        Column("Max", _duration("maxSeconds"), "The longest duration of a session"),
        Column("Idle", _duration("idleSeconds"), "The longest time without input"),
        Column("Hours", _hours, "The times at which the consoles may be used", priority=1),
        Column("Verbs", _value("verbs", COMPATIBLE), "The permissions that count", priority=1),
        Column("Recording", _recording, "Whether sessions are recorded", priority=1),
    ),
    counts_generation=True,
    validate=_validate,
)

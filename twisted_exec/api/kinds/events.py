"""
Events: what happened to an object, kept for an hour.

There are two APIs for the same Events, of which core/v1 is the one that is stored;
in ``events.k8s.io/v1`` some fields have other names.

Source: ``k8s.io/api/core/v1`` (Event), ``pkg/apis/core/validation/events.go``,
``pkg/registry/core/event`` and the columns of ``pkg/printers/internalversion``
of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from twisted_exec.api import fields, names, times
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, integer, moment, string, struct
from twisted_exec.api.selectors import Field

EVENT_SECONDS = 3600.0
"""How long an Event is kept after it was last written."""

_LONGEST_WORD = 128
_LONGEST_MESSAGE = 1024


def _reference(description: str) -> Schema:
    return struct(
        {
            "apiVersion": string("API version of the referent."),
            "kind": string("Kind of the referent."),
            "namespace": string("Namespace of the referent."),
            "name": string("Name of the referent."),
            "uid": string("UID of the referent."),
            "resourceVersion": string("The resourceVersion that the event is about."),
            "fieldPath": string("The part of the referent that the event is about."),
        },
        description=description,
    )


_SCHEMA: dict[str, Schema] = {
    "involvedObject": _reference("The object that this event is about."),
    "reason": string("Why it happened, in one word for machines: such as Started."),
    "message": string("What happened, for people."),
    "source": struct(
        {
            "component": string("The program that reports the event."),
            "host": string("The host that it runs on."),
        },
        description="Who reports the event.",
    ),
    "firstTimestamp": moment("When it happened first."),
    "lastTimestamp": moment("When it happened last."),
    "count": integer("How often it happened.", minimum=0, maximum=2**31 - 1),
    "type": string("Normal or Warning; others may come."),
    "eventTime": moment("When it happened first, to the microsecond."),
    "series": struct(
        {
            "count": integer("How often it happened.", minimum=0, maximum=2**31 - 1),
            "lastObservedTime": moment("When it happened last."),
        },
        description="How often this event came again.",
    ),
    "action": string("What was done or tried."),
    "related": _reference("Another object that takes part."),
    "reportingComponent": string("Name of the controller that reports the event."),
    "reportingInstance": string("Which instance of the controller it is."),
}


def _involved(event: Mapping[str, Any], key: str) -> str:
    return str(event.get("involvedObject", {}).get(key, ""))


def _source(event: Mapping[str, Any]) -> str:
    return str(event.get("source", {}).get("component") or event.get("reportingComponent", ""))


def _shown_source(event: Object) -> str:
    told = (_source(event), event.get("source", {}).get("host", ""))
    return ", ".join(item for item in told if item)


def last_seen(event: Object) -> str | None:
    """When an event happened last, as RFC 3339; ``None`` when it does not tell."""
    told = event.get("series", {}).get("lastObservedTime") or event.get("lastTimestamp")
    return told or event.get("eventTime")


def _first_seen(event: Object) -> str | None:
    return event.get("firstTimestamp") or event.get("eventTime")


def _count(event: Object) -> str:
    return str(event.get("series", {}).get("count") or event.get("count") or 1)


def _object(event: Object) -> str:
    kind, name = _involved(event, "kind").lower(), _involved(event, "name")
    return f"{kind}/{name}" if name else kind


def written(event: Object) -> float:
    """
    When an event was last written, by all that it tells of that.

    :return: seconds since the epoch; 0 when it tells nothing.
    """
    told = (event["metadata"].get("creationTimestamp"), last_seen(event))
    return max((_seconds(moment_) for moment_ in told if moment_), default=0.0)


def _seconds(text: str) -> float:
    try:
        return times.seconds(text)
    except ValueError:
        return 0.0


def _validate(event: Object) -> list[Cause]:
    return list(_place_causes(event)) + (list(_new_causes(event)) if "eventTime" in event else [])


def _validate_new(event: Object) -> list[Cause]:
    """Only what came through core/v1 may lack what Events are to tell today."""
    old = event_to_core(event)
    causes = _validate(old)
    if "eventTime" not in old and "firstTimestamp" not in old:
        causes += [fields.required("eventTime"), *_new_causes(old)]
    return [cause | {"field": _field_in_new(cause["field"])} for cause in causes]


def _field_in_new(field: str) -> str:
    first, dot, rest = field.partition(".")
    return f"{_NEW_NAMES.get(first, first)}{dot}{rest}"


def _place_causes(event: Object) -> Iterator[Cause]:
    """An event stands beside its object; those of cluster-scoped objects in ``default``."""
    here, involved = event["metadata"].get("namespace", ""), _involved(event, "namespace")
    at_home = ("default", "kube-system") if "eventTime" in event else ("default",)
    if here != involved and (involved or here not in at_home):
        yield fields.invalid("involvedObject.namespace", involved, "does not match event.namespace")


def _new_causes(event: Object) -> Iterator[Cause]:
    """Events that name a time to the microsecond must tell more than old ones."""
    reporter = event.get("reportingComponent", "")
    if not reporter:
        yield fields.required("reportingComponent")
    else:
        for problem in names.qualified_name(reporter):
            yield fields.invalid("reportingComponent", reporter, problem)
    for key in ("reportingInstance", "action", "reason"):
        if not event.get(key):
            yield fields.required(key)
        elif len(event[key].encode()) > _LONGEST_WORD:
            yield fields.invalid(key, "", f"can have at most {_LONGEST_WORD} characters")
    if len(event.get("message", "").encode()) > _LONGEST_MESSAGE:
        yield fields.invalid("message", "", f"can have at most {_LONGEST_MESSAGE} characters")


EVENTS = Kind(
    resource=Resource("", "v1", "events", "Event"),
    singular="event",
    short_names=("ev",),
    description="Event is a report of something that happened to an object; kept for an hour.",
    schema=_SCHEMA,
    required=("involvedObject",),
    own_columns=True,
    columns=(
        Column("Last Seen", last_seen, "When it happened last.", moment=True),
        Column("Type", lambda event: event.get("type", ""), "Normal or Warning."),
        Column("Reason", lambda event: event.get("reason", ""), "Why it happened."),
        Column("Object", _object, "What it happened to."),
        Column("Subobject", lambda event: _involved(event, "fieldPath"), priority=1),
        Column("Source", _shown_source, "Who reports it.", priority=1),
        Column("Message", lambda event: event.get("message", "").strip(), "What happened."),
        Column("First Seen", _first_seen, "When it happened first.", priority=1, moment=True),
        Column("Count", _count, "How often it happened.", priority=1),
        Column("Name", lambda event: str(event["metadata"]["name"]), priority=1),
    ),
    fields={
        "involvedObject.kind": lambda event: _involved(event, "kind"),
        "involvedObject.namespace": lambda event: _involved(event, "namespace"),
        "involvedObject.name": lambda event: _involved(event, "name"),
        "involvedObject.uid": lambda event: _involved(event, "uid"),
        "involvedObject.apiVersion": lambda event: _involved(event, "apiVersion"),
        "involvedObject.resourceVersion": lambda event: _involved(event, "resourceVersion"),
        "involvedObject.fieldPath": lambda event: _involved(event, "fieldPath"),
        "reason": lambda event: str(event.get("reason", "")),
        "reportingComponent": lambda event: str(event.get("reportingComponent", "")),
        "source": _source,
        "type": lambda event: str(event.get("type", "")),
    },
    validate=_validate,
)

_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {new: core for core, new in _NEW_NAMES.items()}
_NEW = Resource("events.k8s.io", "v1", "events", "Event")


def event_from_core(event: Mapping[str, Any]) -> Object:
    """An Event of core/v1 as one of events.k8s.io/v1."""
    renamed = {_NEW_NAMES.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": _NEW.api_version}


def event_to_core(event: Mapping[str, Any]) -> Object:
    """An Event of events.k8s.io/v1 as one of core/v1."""
    renamed = {_CORE_NAMES.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": EVENTS.resource.api_version}


def _read_core(column: Column) -> Column:
    return replace(column, read=lambda event: column.read(event_to_core(event)))


def _select_core(field: Field) -> Field:
    return lambda event: field(event_to_core(event))


EVENTS_V1 = Kind(
    resource=_NEW,
    singular="event",
    short_names=("ev",),
    description="Event is a report of something that happened to an object; kept for an hour.",
    schema={_NEW_NAMES.get(key, key): value for key, value in _SCHEMA.items()},
    required=("regarding",),
    kept_as=EVENTS.resource,
    own_columns=True,
    columns=tuple(_read_core(column) for column in EVENTS.columns),
    fields={
        _field_in_new(key): _select_core(field)
        for key, field in EVENTS.fields.items()
        if key != "source"
    },
    validate=_validate_new,
)
"""The same Events by their newer API."""

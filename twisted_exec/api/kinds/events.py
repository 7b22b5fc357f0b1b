"""
Events: reports about objects, retained for about an hour.

Sources: ``k8s.io/api/core/v1`` (Event), ``pkg/apis/core/validation/events.go``,
``pkg/registry/core/event`` and ``pkg/printers/internalversion`` of Kubernetes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from twisted_exec.api import fields, names, times
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, integer, moment, string, struct
from twisted_exec.api.selectors import Field

NORMAL, WARNING = "Normal", "Warning"
"""Types of Events."""
EVENT_SECONDS = 3600.0
"""Retention of an Event after its last write."""

_MAX_WORD_BYTES = 128
_MAX_MESSAGE_BYTES = 1024


def _reference(description: str) -> Schema:
    return struct(
        {
            "apiVersion": string("apiVersion is the API version of the referent."),
            "kind": string("kind is the kind of the referent."),
            "namespace": string("namespace is the namespace of the referent."),
            "name": string("name is the name of the referent."),
            "uid": string("uid is the UID of the referent."),
            "resourceVersion": string(
                "resourceVersion is the version of the referent that the event is about."
            ),
            "fieldPath": string("fieldPath is the part of the referent that the event is about."),
        },
        description=description,
    )


_SCHEMA: dict[str, Schema] = {
    "involvedObject": _reference("The object that the event is about."),
    "reason": string("reason is a one-word CamelCase reason for the event, such as Started."),
    "message": string("A human-readable description of the event."),
    "source": struct(
        {
            "component": string("component is the program that reported the event."),
            "host": string("host is the host that the program runs on."),
        },
        description="The program that reported the event.",
    ),
    "firstTimestamp": moment("The first time the event occurred."),
    "lastTimestamp": moment("The last time the event occurred."),
    "count": integer("The number of times the event has occurred.", minimum=0, maximum=2**31 - 1),
    "type": string("type is Normal or Warning. New types may be added."),
    "eventTime": moment("eventTime is the first time the event occurred, in microseconds."),
    "series": struct(
        {
            "count": integer(
                "count is the number of occurrences in the series.", minimum=0, maximum=2**31 - 1
            ),
            "lastObservedTime": moment("lastObservedTime is the time of the last occurrence."),
        },
        description="series describes repeated occurrences of the event.",
    ),
    "action": string("action is the action that was taken or that failed."),
    "related": _reference("related is another object that is involved."),
    "reportingComponent": string("The name of the controller that reported the event."),
    "reportingInstance": string("reportingInstance is the ID of the controller's instance."),
}


def _involved(event: Mapping[str, Any], key: str) -> str:
    return str(event.get("involvedObject", {}).get(key, ""))


def _source(event: Mapping[str, Any]) -> str:
    return str(event.get("source", {}).get("component") or event.get("reportingComponent", ""))


def _source_and_host(event: Object) -> str:
    parts = (_source(event), event.get("source", {}).get("host", ""))
    return ", ".join(item for item in parts if item)


def last_seen(event: Object) -> str | None:
    """Return the last time of an event in RFC 3339; ``None`` if unset."""
    last = event.get("series", {}).get("lastObservedTime") or event.get("lastTimestamp")
    return last or event.get("eventTime")


def _first_seen(event: Object) -> str | None:
    return event.get("firstTimestamp") or event.get("eventTime")


def _count(event: Object) -> str:
    return str(event.get("series", {}).get("count") or event.get("count") or 1)


def _object(event: Object) -> str:
    kind, name = _involved(event, "kind").lower(), _involved(event, "name")
    return f"{kind}/{name}" if name else kind


def written(event: Object) -> float:
    """Return when an event was last written, in seconds since the epoch; 0 if it does not say."""
    moments = (event["metadata"].get("creationTimestamp"), last_seen(event))
    return max((_seconds(moment_) for moment_ in moments if moment_), default=0.0)


def new_event(
    about: Object,
    resource: Resource,
    identity: object,
    *,
    type: str,
    reason: str,
    component: str,
    host: str,
    at: float,
) -> Object:
    """
    Return an Event without a message and a count.

    :param resource: of ``about``: items of lists have no ``kind`` of their own.
    :param identity: the name is derived from it, so that the same Event, written again, is no
        second one.
    :param host: the instance of ``component`` that reports the Event; empty if any does.
    :param at: in seconds since the epoch.
    """
    metadata = about["metadata"]
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.resource.api_version,
        "kind": EVENTS.resource.kind,
        "metadata": {
            "name": f"{metadata['name'][:200].rstrip('-.')}.{digest}",
            # Kubernetes puts Events about cluster-scoped objects there.
            "namespace": metadata.get("namespace") or "default",
        },
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": type,
        "reason": reason,
        "source": {"component": component} | ({"host": host} if host else {}),
        "reportingComponent": component,
        **({"reportingInstance": host} if host else {}),
        "firstTimestamp": times.timestamp(at),
        "lastTimestamp": times.timestamp(at),
    }


def cut_message(message: str) -> str:
    """Return as much of a message as an Event can have."""
    return message.encode()[:_MAX_MESSAGE_BYTES].decode(errors="ignore")


def _seconds(text: str) -> float:
    try:
        return times.seconds(text)
    except ValueError:
        return 0.0


def _validate(event: Object) -> list[Cause]:
    return list(_place_causes(event)) + (list(_new_causes(event)) if "eventTime" in event else [])


def _validate_new(event: Object) -> list[Cause]:
    old = event_to_core(event)
    causes = _validate(old)
    if "eventTime" not in old and "firstTimestamp" not in old:
        causes += [fields.required("eventTime"), *_new_causes(old)]
    return [cause | {"field": _field_in_new(cause["field"])} for cause in causes]


def _field_in_new(field: str) -> str:
    first, dot, rest = field.partition(".")
    return f"{_NEW_NAMES.get(first, first)}{dot}{rest}"


def _place_causes(event: Object) -> Iterator[Cause]:
    here, involved = event["metadata"].get("namespace", ""), _involved(event, "namespace")
    cluster_namespaces = ("default", "kube-system") if "eventTime" in event else ("default",)
    if here != involved and (involved or here not in cluster_namespaces):
        yield fields.invalid("involvedObject.namespace", involved, "does not match event.namespace")


def _new_causes(event: Object) -> Iterator[Cause]:
    reporter = event.get("reportingComponent", "")
    if not reporter:
        yield fields.required("reportingComponent")
    else:
        for problem in names.qualified_name(reporter):
            yield fields.invalid("reportingComponent", reporter, problem)
    for key in ("reportingInstance", "action", "reason"):
        if not event.get(key):
            yield fields.required(key)
        elif len(event[key].encode()) > _MAX_WORD_BYTES:
            yield fields.invalid(key, "", f"can have at most {_MAX_WORD_BYTES} characters")
    if len(event.get("message", "").encode()) > _MAX_MESSAGE_BYTES:
        yield fields.invalid("message", "", f"can have at most {_MAX_MESSAGE_BYTES} characters")


EVENTS = Kind(
    resource=Resource("", "v1", "events", "Event"),
    singular="event",
    short_names=("ev",),
    description="Event is a report of something that happened to an object; retained for an hour.",
    schema=_SCHEMA,
    required=("involvedObject",),
    own_columns=True,
    columns=(
        Column("Last Seen", last_seen, "The last time the event occurred", moment=True),
        Column("Type", lambda event: event.get("type", ""), "Normal or Warning"),
        Column("Reason", lambda event: event.get("reason", ""), "The reason for the event"),
        Column("Object", _object, "The object that the event is about"),
        Column("Subobject", lambda event: _involved(event, "fieldPath"), priority=1),
        Column("Source", _source_and_host, "The program that reported the event", priority=1),
        Column(
            "Message",
            lambda event: event.get("message", "").strip(),
            "The description of the event",
        ),
        Column(
            "First Seen", _first_seen, "The first time the event occurred", priority=1, moment=True
        ),
        Column("Count", _count, "The number of occurrences", priority=1),
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
    """Convert an Event from core/v1 to events.k8s.io/v1."""
    renamed = {_NEW_NAMES.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": _NEW.api_version}


def event_to_core(event: Mapping[str, Any]) -> Object:
    """Convert an Event from events.k8s.io/v1 to core/v1."""
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
    description="Event is a report of something that happened to an object; retained for an hour.",
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
"""The same Events in their newer API."""

"""
The target's Events about a broker's machines, sans I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twisted_exec.api.resource import Resource
from twisted_exec.api.times import seconds
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.machinebroker.objects import CachedMachine
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

EVENTS = Resource("", "v1", "events", "Event")
_NANOSECONDS = 10**9
# Larger values are nanoseconds: seconds since the epoch have ten digits until the year 2286.
_LARGEST_SECONDS = 10**12


def selector(place: BrokerPlace) -> str:
    """Return the field selector of Events about machines."""
    return f"involvedObject.kind={place.machines.kind}"


def events_of(
    listed: Iterable[Object], machines: Mapping[str, CachedMachine], filter: pb.EventFilter
) -> list[event_pb2.Event]:
    """Convert the target's Events about this broker's machines, oldest first."""
    events = [
        event
        for event in _read(listed, machines)
        if _event_matches(event.spec.involved_object_meta.id, event, filter)
    ]
    return sorted(events, key=lambda event: event.spec.event_time)


def _read(
    listed: Iterable[Object], machines: Mapping[str, CachedMachine]
) -> Iterator[event_pb2.Event]:
    for each in listed:
        about = each.get("involvedObject") or {}
        machine = machines.get(str(about.get("uid", "")))
        if machine is None:
            continue
        try:
            spec = event_pb2.EventSpec(
                involved_object_meta=machine.machine.metadata,
                reason=each.get("reason") or "",
                message=each.get("message") or "",
                type=each.get("type") or "Normal",
                event_time=_time(each),
                action=each.get("action") or "",
            )
        except (TypeError, ValueError):
            continue  # not a valid Event
        yield event_pb2.Event(spec=spec)


def _time(event: Object) -> int:
    series = event.get("series") or {}
    text = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return int(seconds(text)) if text else 0


def _event_matches(machine_id: str, event: event_pb2.Event, filter: pb.EventFilter) -> bool:
    if filter.id and filter.id != machine_id:
        return False
    labels, at = event.spec.involved_object_meta.labels, event.spec.event_time
    if any(labels.get(key) != value for key, value in filter.label_selector.items()):
        return False
    first, last = _in_seconds(filter.events_from_time), _in_seconds(filter.events_to_time)
    return first <= at and (not last or at <= last)


def _in_seconds(moment: int) -> int:
    return moment // _NANOSECONDS if moment > _LARGEST_SECONDS else moment

"""
What happened to machines, as the target's Events tell it.

Times are in seconds since the epoch, as ironcore's own broker tells them; poollets that count in
nanoseconds are understood, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twisted_exec.api.resource import Resource
from twisted_exec.api.times import seconds
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.machinebroker.target import Place

from .objects import Held

EVENTS = Resource("", "v1", "events", "Event")

_NANOSECONDS = 10**9
# Seconds since the epoch have ten digits, and will for a while.
_LARGEST_SECONDS = 10**12


def selector(place: Place) -> str:
    """The field selector of Events about machines."""
    return f"involvedObject.kind={place.machines.kind}"


def events_of(
    listed: Iterable[Object], held: Mapping[str, Held], asked: pb.EventFilter
) -> list[event_pb2.Event]:
    """
    The runtime's events among the target's, oldest first.

    :param held: our machines by the UID of their object: Events of others are none of ours.
    """
    found = [
        event
        for event in _read(listed, held)
        if _is_asked(event.spec.involved_object_meta.id, event, asked)
    ]
    return sorted(found, key=lambda event: event.spec.event_time)


def _read(listed: Iterable[Object], held: Mapping[str, Held]) -> Iterator[event_pb2.Event]:
    for each in listed:
        about = each.get("involvedObject") or {}
        machine = held.get(str(about.get("uid", "")))
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
            continue  # no Event that Kubernetes would write
        yield event_pb2.Event(spec=spec)


def _time(event: Object) -> int:
    series = event.get("series") or {}
    told = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return int(seconds(told)) if told else 0


def _is_asked(machine_id: str, event: event_pb2.Event, asked: pb.EventFilter) -> bool:
    if asked.id and asked.id != machine_id:
        return False
    labels, at = event.spec.involved_object_meta.labels, event.spec.event_time
    if any(labels.get(key) != value for key, value in asked.label_selector.items()):
        return False
    first, last = _in_seconds(asked.events_from_time), _in_seconds(asked.events_to_time)
    return first <= at and (not last or at <= last)


def _in_seconds(told: int) -> int:
    return told // _NANOSECONDS if told > _LARGEST_SECONDS else told

"""Copy the runtime's events to Events of the Machines that they concern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, NotImplementedByBackend
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.recorder import Recorder

LOOK_SECONDS = 5.0
MAX_EVENTS = 1000
"""Limit per answer; the newest are used."""

_NANOSECONDS = 10**9
# A timestamp in seconds has ten digits until the year 2286; a number beyond this limit counts
# nanoseconds.
_LARGEST_SECONDS = 10**12


@dataclass
class RuntimeEvents:
    """
    Forwards a runtime's events.

    :param synced: whether ``machines`` is complete.
    """

    runtime: IMachineRuntime
    clock: IReactorTime
    dialect: Dialect
    machines: Callable[[], Iterable[Object]]
    synced: Callable[[], bool]
    recorder: Recorder
    metrics: WorkQueueMetrics = UNREAD
    _since: int = 0
    """Time of the newest event so far, in the runtime's unit."""
    _forwarded: Counter[bytes] = field(default_factory=Counter)
    """Events at the time ``_since``, which the next listing repeats."""
    _problem: str = ""

    _log = Logger()

    def __post_init__(self) -> None:
        self._loop = PokedLoop(
            self._look, self.clock, LOOK_SECONDS, metrics=self.metrics.of("runtime-events")
        )

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> Deferred[None]:
        """Stop; fires when nothing is under way."""
        return self._loop.stop()

    async def _look(self) -> float | None:
        return await self._ask() if self.synced() else None

    async def _ask(self) -> float | None:
        """:return: :data:`math.inf` if the runtime keeps no events."""
        event_filter = pb.EventFilter(events_from_time=self._since)
        try:
            listed = await self.runtime.list_events(pb.ListEventsRequest(filter=event_filter))
        except APIError as error:
            return self._refused(error)
        self._problem = ""
        by_uid = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        for event in self._new(listed.events):
            spec = event.spec
            machine = by_uid.get(spec.involved_object_meta.labels.get(self.dialect.uid_label, ""))
            if machine is not None and spec.reason:
                type = spec.type if spec.type in ("Normal", "Warning") else "Normal"
                at = _seconds(spec.event_time)
                self.recorder.record(machine, type, spec.reason[:128], spec.message, at=at)
        return None

    def _new(self, events: Iterable[event_pb2.Event]) -> list[event_pb2.Event]:
        ordered = sorted(events, key=lambda event: event.spec.event_time)[-MAX_EVENTS:]
        again, new = self._forwarded.copy(), []
        for event in ordered:
            at, identity = event.spec.event_time, event.SerializeToString(deterministic=True)
            if at < self._since:
                continue
            if at == self._since and again[identity] > 0:
                again[identity] -= 1
                continue
            new.append(event)
        for event in new:
            at = event.spec.event_time
            if at > self._since:
                self._since, self._forwarded = at, Counter()
            self._forwarded[event.SerializeToString(deterministic=True)] += 1
        return new

    def _refused(self, error: APIError) -> float | None:
        if error.code == NotImplementedByBackend.code:
            self._log.info("the machine runtime keeps no events")
            return inf
        if error.message != self._problem:
            self._log.debug("the machine runtime's events: {why}", why=error.message)
            self._problem = error.message
        return None


def _seconds(event_time: int) -> float:
    """Convert to seconds: runtimes count nanoseconds or seconds."""
    return event_time / _NANOSECONDS if event_time > _LARGEST_SECONDS else float(event_time)

"""Copy the runtime's events to Events of the Machines that they concern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, NotImplementedByBackend
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
    _since: int = 0
    """Time of the newest event so far, in the runtime's unit."""
    _forwarded: Counter[bytes] = field(default_factory=Counter)
    """Events at the time ``_since``, which the next listing repeats."""
    _ticker: LoopingCall | None = None
    _looking: Deferred[None] | None = None
    _problem: str = ""

    _log = Logger()

    def start(self) -> None:
        self._ticker = LoopingCall(self._look)
        self._ticker.clock = self.clock
        self._ticker.start(LOOK_SECONDS)

    def stop(self) -> None:
        if self._ticker is not None and self._ticker.running:
            self._ticker.stop()
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> None:
        if self._looking is None and self.synced():
            self._looking = Deferred.fromCoroutine(self._ask())
            self._looking.addErrback(self._failed).addBoth(self._looked)

    def _looked(self, _: object) -> None:
        self._looking = None

    async def _ask(self) -> None:
        event_filter = pb.EventFilter(events_from_time=self._since)
        try:
            listed = await self.runtime.list_events(pb.ListEventsRequest(filter=event_filter))
        except APIError as error:
            self._refused(error)
            return
        self._problem = ""
        by_uid = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        for event in self._new(listed.events):
            spec = event.spec
            machine = by_uid.get(spec.involved_object_meta.labels.get(self.dialect.uid_label, ""))
            if machine is not None and spec.reason:
                type = spec.type if spec.type in ("Normal", "Warning") else "Normal"
                at = _seconds(spec.event_time)
                self.recorder.record(machine, type, spec.reason[:128], spec.message, at=at)

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

    def _refused(self, error: APIError) -> None:
        if error.code == NotImplementedByBackend.code and self._ticker is not None:
            self._log.info("the machine runtime keeps no events")
            self._ticker.stop()
        elif error.message != self._problem:
            self._log.debug("the machine runtime's events: {why}", why=error.message)
            self._problem = error.message

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("listing the runtime's events failed", failure)


def _seconds(event_time: int) -> float:
    """Convert to seconds: runtimes count nanoseconds or seconds."""
    return event_time / _NANOSECONDS if event_time > _LARGEST_SECONDS else float(event_time)

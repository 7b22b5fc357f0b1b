"""
The ConsoleRecordings of a pool.

The runtime retains a recording until it learns that the object is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerecordings import CLOSED, FAILED, INCOMPLETE
from twisted_exec.api.status import APIError, Conflict, Invalid, NotFound
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.iri.interfaces import IConsoleRecordings
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.poollet.recordings.messages import WARNING, events_of, is_over, request, status_of
from twisted_exec.poollet.runtime_controller import WAIT_SECONDS, RuntimeController, RuntimeReports
from twisted_exec.program.turns import ShortTurns

MOST_RECORDINGS = 20_000

_RESOURCE = CONSOLERECORDINGS.resource
_HEAD_FIELDS = frozenset(("status.head", "status.epoch"))
CHANGED = "the recording was cut, replaced or made anew on the runtime's host: what is there does not continue the head"
NOT_HANDLED = "RecordingNotHandled"
"""Reason of the Event about a recording with a report of the runtime that cannot be handled."""
_REPORTED_FIELDS = ("phase", "message", "location")
"""Fields of a status whose changes are Events."""


class RecordingController(RuntimeController):
    """
    The recordings of one pool.

    :param now: seconds since the epoch.
    :param report: records an Event about a recording.
    :param metrics: of the program's queues.
    """

    label = "console recordings"
    service = IConsoleRecordings
    no_service = "the machine runtime of the pool makes no recordings"

    def __init__(
        self,
        client: IKubeClient,
        runtime: object,
        clock: IReactorTime,
        dialect: Dialect,
        pool: str,
        *,
        has_machine: Callable[[str], bool],
        synced: Callable[[], bool],
        now: Callable[[], float],
        report: Callable[[Object, str, str, str], None],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._client = client
        self._workload = dialect.workload.qualified
        self._has_machine, self._now, self._record_event = has_machine, now, report
        self._written: dict[str, Object] = {}
        """The newest :data:`_REPORTED_FIELDS` by UID; the copy may not have them yet."""
        self._owner = f"{dialect.pool.plural}.{dialect.pool.group}/{pool}"
        self._selector = f"spec.pool={pool}"
        self.recordings = Reflector(
            client,
            _RESOURCE,
            clock,
            field_selector=self._selector,
            on_change=self._changed,
            max_objects=MOST_RECORDINGS,
            optional=True,
        )
        super().__init__(runtime, clock, self.recordings, synced, metrics)
        self._by_uid: dict[str, Object] = {}
        self._listed: dict[str, Object] | None = None
        """All recordings of the pool, read after the runtime's last answer; ``None`` before the first need."""
        self._released: dict[str, str] = {}

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None:
            self._by_uid.pop(before["metadata"]["uid"], None)
        if after is not None:
            self._by_uid[after["metadata"]["uid"]] = after
            self._released.pop(after["metadata"]["uid"], None)
        elif before is not None:
            self._written.pop(before["metadata"]["uid"], None)
        if after is None and before is not None and self._is_own(before):
            self._released[before["metadata"]["uid"]] = before["spec"].get("machineUID", "")
        if _sent_part(before) != _sent_part(after):
            self._send_soon()

    def _is_own(self, recording: Object) -> bool:
        # Pools of two kinds may have the same name.
        resource: str = recording["spec"].get("machineResource", self._workload)
        return resource == self._workload

    def _own(self) -> list[Object]:
        return [each for each in self.recordings if self._is_own(each)]

    # Recordings to make.

    async def _send(self, sent: str) -> str:
        released = dict(self._released)
        turns = ShortTurns(self._clock)
        message = await request(self._owner, self._own(), released, turns)
        if message.generation != sent:
            await self._provider().set_recordings(message)
        for uid in released:
            self._released.pop(uid, None)
        return message.generation

    async def _unsupported(self) -> None:
        for recording in self._own():
            if not is_over(recording):
                await self._write(
                    recording,
                    pb.RecordingStatus(state=FAILED, reason=FAILED, message=self.no_service),
                )

    # Their statuses.

    async def _list_reports(self, instance: str, acknowledged: int) -> RuntimeReports:
        message = pb.ListRecordingsRequest(
            owner=self._owner,
            instance=instance,
            acknowledged=acknowledged,
            wait_seconds=WAIT_SECONDS,
        )
        self._listed = None
        answer = await self._provider().list_recordings(message)
        return RuntimeReports(answer.instance, answer.generation, answer.recordings)

    async def _handle(self, report: pb.RecordingStatus) -> None:
        recording = self._by_uid.get(report.uid)
        if recording is None:
            recording = await self._read(report)
        if recording is not None:
            await self._write(recording, report)

    def _key(self, report: pb.RecordingStatus) -> str:
        return report.uid

    def _failed(self, report: pb.RecordingStatus, why: str) -> None:
        recording = self._by_uid.get(report.uid)
        if recording is not None:
            self._record_event(recording, WARNING, NOT_HANDLED, why)

    async def _read(self, report: pb.RecordingStatus) -> Object | None:
        """
        Read a recording that the copy does not have; release it if its object is deleted.

        The copy may be late, as a session begins its recording as soon as the object is created.
        """
        is_ours = report.owner == self._owner or self._has_machine(report.machine_uid)
        if not is_ours or report.uid in self._released:
            return None
        if self._listed is None:
            listed = await self._client.list(_RESOURCE, field_selector=self._selector)
            self._listed = {each["metadata"]["uid"]: each for each in listed["items"]}
        recording = self._listed.get(report.uid)
        if recording is None:
            self._released[report.uid] = report.machine_uid
            self._send_soon()
        return recording

    async def _write(self, recording: Object, reported: pb.RecordingStatus) -> None:
        metadata = recording["metadata"]
        before: Object = self._written.get(metadata["uid"]) or recording.get("status", {})
        try:
            written = await self._client.patch(
                _RESOURCE,
                metadata["name"],
                {
                    "metadata": {"uid": metadata["uid"]},
                    "status": status_of(reported, self._now()),
                },
                metadata.get("namespace", ""),
                subresource="status",
            )
            after: Object = written.get("status", {})
            for event in events_of(before, after):
                self._record_event(recording, *event)
            self._written[metadata["uid"]] = {key: after.get(key) for key in _REPORTED_FIELDS}
        except APIError as error:
            if error.code not in (NotFound.code, Invalid.code, Conflict.code):
                raise
            # Deleted; or the runtime reports less than it did before, which people must see.
            level = self._log.debug if error.code == NotFound.code else self._log.error
            level("console recording {name}: {why}", name=metadata["name"], why=error.message)
            refused = {each.get("field") for each in error.details.get("causes", ())}
            if error.code == Invalid.code and refused & _HEAD_FIELDS:
                await self._refused(recording, before)

    async def _refused(self, recording: Object, before: Object) -> None:
        phase = "" if before.get("phase") in (CLOSED, FAILED) else FAILED
        if phase or before.get("message") != CHANGED:
            uid = recording["metadata"]["uid"]
            report = pb.RecordingStatus(
                uid=uid, state=phase, reason=phase or INCOMPLETE, message=CHANGED
            )
            await self._write(recording, report)


def _sent_part(recording: Object | None) -> tuple[Any, ...] | None:
    if recording is None:
        return None
    metadata = recording["metadata"]
    is_deleted = "deletionTimestamp" in metadata
    return metadata["uid"], recording.get("spec"), is_deleted, is_over(recording)

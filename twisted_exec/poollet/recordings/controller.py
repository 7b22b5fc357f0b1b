"""
Carries ConsoleRecordings to the machine runtime, and its signed heads to the API server.

As with alerts, two things run side by side: the recordings are sent whenever they change, and statuses are
listed with calls that wait for the next one.  A status is acknowledged after it is written.  The runtime
retains a recording until it learns that the object is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.status import APIError, NotFound, NotImplementedByBackend
from twisted_exec.iri.interfaces import IConsoleRecordings
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.informers.reflector import Backoff, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.poollet.recordings.messages import is_over, request, status_of

SEND_DELAY_SECONDS = 0.2
"""Changes within this time are sent together."""
WAIT_SECONDS = 20
SHORT_SECONDS = 1.0
UNSUPPORTED_SECONDS = 60.0
"""A runtime without recordings may be replaced by one with them."""
MOST_RECORDINGS = 20_000
NO_SERVICE = "the machine runtime of the pool makes no recordings"

_RESOURCE = CONSOLERECORDINGS.resource
_INVALID = 422


class RecordingController:
    """
    The recordings of one pool.

    :param has_machine: returns whether a UID is that of a Machine of the pool.
    :param synced: whether ``has_machine`` knows all.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        runtime: object,
        clock: Any,
        dialect: Dialect,
        pool: str,
        *,
        has_machine: Callable[[str], bool],
        synced: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._client, self._runtime, self._clock = client, runtime, clock
        self._workload = dialect.workload.qualified
        self._has_machine, self._synced, self._now = has_machine, synced, now
        self._owner = f"{dialect.pool.plural}.{dialect.pool.group}/{pool}"
        self._selector = f"spec.pool={pool}"
        self.recordings = Reflector(
            client,
            _RESOURCE,
            clock,
            field_selector=self._selector,
            on_change=self._changed,
            max_objects=MOST_RECORDINGS,
        )
        self._released: dict[str, str] = {}
        self._sent = ""
        self._is_supported = IConsoleRecordings.providedBy(runtime)
        self._is_dirty = True
        self._sending: Deferred[None] | None = None
        self._send_call: IDelayedCall | None = None
        self._polling: Deferred[None] | None = None
        self._problem = ""
        self._stopped = True

    def start(self) -> None:
        """Start; the runtime is known."""
        if not self._stopped:
            return
        self._stopped = False
        self.recordings.start()
        self._polling = Deferred.fromCoroutine(self._poll()).addErrback(self._failed)
        self._send_soon()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when no request is pending."""
        self._stopped = True
        if self._send_call is not None and self._send_call.active():
            self._send_call.cancel()
        running = [each for each in (self._sending, self._polling) if each]
        for each in running:
            each.cancel()
        return DeferredList([*running, self.recordings.stop()])

    def _changed(self, before: Object | None, after: Object | None) -> None:
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

    # What is to be recorded.

    def _send_soon(self) -> None:
        self._is_dirty = True
        waits = self._send_call is not None and self._send_call.active()
        if not (waits or self._sending or self._stopped):
            self._send_call = self._clock.callLater(SEND_DELAY_SECONDS, self._send)

    def _send(self) -> None:
        self._sending = Deferred.fromCoroutine(self._send_recordings()).addErrback(self._failed)
        self._sending.addBoth(self._was_sent)

    def _was_sent(self, _: object) -> None:
        self._sending = None
        if self._is_dirty:
            self._send_soon()

    async def _send_recordings(self) -> None:
        backoff = Backoff()
        while not (self.recordings.synced and self._synced()):
            await deferLater(self._clock, backoff.pause())
        backoff.reset()
        while self._is_dirty:
            self._is_dirty = False
            released = dict(self._released)
            message = request(self._owner, self._own(), released)
            try:
                if message.generation != self._sent:
                    await self._call("set_recordings", message)
            except APIError as error:
                self._is_dirty = True
                await self._refused(error)
                await deferLater(self._clock, self._pause(error, backoff))
            else:
                self._sent = message.generation
                self._is_supported, self._problem = True, ""
                for uid in released:
                    self._released.pop(uid, None)

    def _pause(self, error: APIError, backoff: Backoff) -> float:
        return (
            backoff.pause() if error.code != NotImplementedByBackend.code else UNSUPPORTED_SECONDS
        )

    async def _refused(self, error: APIError) -> None:
        if error.code == NotImplementedByBackend.code:
            self._is_supported = False
            for recording in self._own():
                if not is_over(recording):
                    reported = pb.RecordingStatus(state="Failed", message=NO_SERVICE)
                    await self._write(recording, reported)
        elif error.message != self._problem:
            self._problem = error.message
            self._log.warn("console recordings: the machine runtime: {why}", why=error.message)

    def _call(self, method: str, message: Any) -> Deferred[Any]:
        if not IConsoleRecordings.providedBy(self._runtime):
            raise NotImplementedByBackend(NO_SERVICE)
        answering: Deferred[Any] = getattr(self._runtime, method)(message)
        return answering

    # What is recorded.

    async def _poll(self) -> None:
        backoff, instance, acknowledged = Backoff(), "", 0
        while not self._stopped:
            if not self._sent or not self._is_supported:
                await deferLater(self._clock, 1.0)
                continue
            message = pb.ListRecordingsRequest(
                owner=self._owner,
                instance=instance,
                acknowledged=acknowledged,
                wait_seconds=WAIT_SECONDS,
            )
            began = self._clock.seconds()
            try:
                answer = await self._call("list_recordings", message)
                if answer.instance != instance:
                    instance, acknowledged = answer.instance, 0
                if answer.generation != self._sent and self._sending is None:
                    self._sent = ""  # the runtime was restarted
                    self._send_soon()
                    await deferLater(self._clock, SEND_DELAY_SECONDS)
                new = [each for each in answer.recordings if each.number > acknowledged]
                for reported in new:
                    await self._handle(reported)
                    acknowledged = reported.number
            except APIError as error:
                await self._refused(error)
                await deferLater(self._clock, self._pause(error, backoff))
                continue
            if new or self._clock.seconds() - began >= SHORT_SECONDS:
                backoff.reset()
            else:  # a runtime that does not wait
                await deferLater(self._clock, backoff.pause())

    async def _handle(self, reported: pb.RecordingStatus) -> None:
        """:raises APIError: the API server fails; the status is listed again."""
        recording = self._find(reported.uid)
        if recording is None:
            recording = await self._read(reported)
        if recording is not None:
            await self._write(recording, reported)

    def _find(self, uid: str) -> Object | None:
        return next((each for each in self.recordings if each["metadata"]["uid"] == uid), None)

    async def _read(self, reported: pb.RecordingStatus) -> Object | None:
        """
        Read a recording that the copy does not have; release it if its object is deleted.

        The copy may be late: a session begins its recording as soon as the object is created.
        """
        is_ours = reported.owner == self._owner or self._has_machine(reported.machine_uid)
        if not is_ours or reported.uid in self._released:
            return None
        listed = await self._client.list(_RESOURCE, field_selector=self._selector)
        for each in listed["items"]:
            if each["metadata"]["uid"] == reported.uid:
                found: Object = each
                return found
        self._released[reported.uid] = reported.machine_uid
        self._send_soon()
        return None

    async def _write(self, recording: Object, reported: pb.RecordingStatus) -> None:
        metadata = recording["metadata"]
        try:
            await self._client.patch(
                _RESOURCE,
                metadata["name"],
                {
                    "metadata": {"uid": metadata["uid"]},
                    "status": status_of(reported, self._now()),
                },
                metadata.get("namespace", ""),
                subresource="status",
            )
        except APIError as error:
            if error.code in (NotFound.code, _INVALID, 409):
                # Deleted; or the runtime reports less than it did before, which people must see.
                level = self._log.debug if error.code == NotFound.code else self._log.error
                level("console recording {name}: {why}", name=metadata["name"], why=error.message)
                return
            raise

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("console recordings", failure)


def _sent_part(recording: Object | None) -> tuple[Any, ...] | None:
    if recording is None:
        return None
    metadata = recording["metadata"]
    is_deleted = "deletionTimestamp" in metadata
    return metadata["uid"], recording.get("spec"), is_deleted, is_over(recording)

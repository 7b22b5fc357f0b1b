"""
End ConsoleRecordings whose sessions or machine are gone, and delete them after their retention.

A recording that the server made for sessions ends a while after the last session at its machine, so
that a user who comes back within that time goes on with it.  Which policy or user needs it is not
known here, and does not matter: as long as there are sessions, it goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS, CONSOLESESSIONS, Object
from twisted_exec.api.kinds.policies.consolerecordings import CLOSED, FAILED, end_of, ended_spec
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.controllers.deletion import Expired, ExpiryController, delete_all
from twisted_exec.apiserver.controllers.event_recorder import WARNING, Reports
from twisted_exec.storage.follower import Followed
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, Listing

GRACE_SECONDS = 60.0
"""Time without sessions after which a recording ends, at the next look."""
UNCLOSED_SECONDS = 300.0
"""Time after its end in which the runtime should have closed a recording."""
NOT_CLOSED = "RecordingNotClosed"
_DAY_SECONDS = 86_400


class ConsoleRecordings(ExpiryController):
    """
    The controller of ConsoleRecordings; runs on the leader only.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    :param reports: records Events about recordings that nobody closes.
    """

    _log = Logger()
    trouble = "cannot update console recordings"

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        clock: IReactorTime,
        now: Callable[[], float],
        reports: Reports,
    ) -> None:
        super().__init__(storage, clock)
        self._now, self._reports = now, reports
        self._unclosed: set[str] = set()
        """UIDs of recordings with an Event; a new leader repeats it."""
        self._machine_resources = [each.workload for each in dialects]
        self._recordings: dict[Key, Object] = {}
        self._machines: set[str] = set()
        self._sessions: dict[Key, str] = {}
        self._numbers: Counter[str] = Counter()
        """Numbers of sessions, by UID of the machine."""
        self._without_since: dict[str, float] = {}
        """When the last session left a machine, by the monotonic clock."""
        self._unlisted: set[Resource] = set()
        self._expired = Expired[Key](clock)

    def stopService(self) -> None:
        """Stop following the store."""
        super().stopService()
        for facts in (self._recordings, self._sessions, self._numbers, self._without_since):
            facts.clear()
        self._machines.clear()
        self._unclosed.clear()
        self._expired.clear()

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        followed = [
            (CONSOLERECORDINGS.resource, self._recording_changed),
            (CONSOLESESSIONS.resource, self._session_changed),
            *((each, self._machine_changed) for each in self._machine_resources),
        ]
        self._unlisted = {resource for resource, _ in followed}
        return [self._follow(*each) for each in followed]

    def _follow(self, resource: Resource, changed: Callable[[Event], None]) -> Followed:
        def listed(listing: Listing) -> None:
            for obj in listing.items:
                changed(Event(ADDED, obj, None, listing.version))
            self._unlisted.discard(resource)

        return Followed(resource, changed, listed)

    def _recording_changed(self, event: Event) -> None:
        if event.type == DELETED:
            self._recordings.pop(key_of(event.obj), None)
            self._unclosed.discard(event.obj["metadata"]["uid"])
        else:
            self._recordings[key_of(event.obj)] = event.obj

    def _session_changed(self, event: Event) -> None:
        key, uid = key_of(event.obj), event.obj["spec"].get("machineUID", "")
        if event.type != DELETED and key not in self._sessions:
            self._sessions[key] = uid
            self._numbers[uid] += 1
            self._without_since.pop(uid, None)
        elif event.type == DELETED and key in self._sessions:
            uid = self._sessions.pop(key)
            self._numbers[uid] -= 1
            if not self._numbers[uid]:
                del self._numbers[uid]
                self._without_since[uid] = self._clock.seconds()

    def _machine_changed(self, event: Event) -> None:
        uid = event.obj["metadata"]["uid"]
        if event.type == DELETED:
            self._machines.discard(uid)
        else:
            self._machines.add(uid)

    async def _look(self) -> None:
        if self._unlisted:  # sessions that are not known yet would seem to be gone
            return
        open_ = [each for each in self._recordings.values() if not _is_over(each)]
        machines = {each["spec"].get("machineUID", "") for each in open_}
        now = self._clock.seconds()
        self._without_since = {
            uid: self._without_since.get(uid, now) for uid in machines if uid not in self._numbers
        }
        for recording in open_:
            if why := self._why_to_end(recording):
                await self._end(recording, why)
        for recording in list(self._recordings.values()):
            await self._report_unclosed(recording)
        await self._delete_expired()

    def _why_to_end(self, recording: Object) -> str:
        """Return why a recording is to end; empty if it goes on."""
        spec = recording["spec"]
        uid = spec.get("machineUID", "")
        if uid not in self._machines:
            return "the machine was deleted"
        if not spec.get("endsWithSessions") or uid in self._numbers:
            return ""
        # The object of a session comes a moment after the session, which is noted in the recording.
        is_joined = self._now() - seconds(spec["lastSessionTime"]) < GRACE_SECONDS
        if is_joined or self._clock.seconds() - self._without_since[uid] < GRACE_SECONDS:
            return ""
        return f"no session has been open for {GRACE_SECONDS:.0f} seconds"

    async def _end(self, recording: Object, why: str) -> None:
        spec = ended_spec(recording["spec"], self._now(), why)
        ended = {**recording, "metadata": {**recording["metadata"]}, "spec": spec}
        try:
            await self._storage.update(CONSOLERECORDINGS.resource, ended)
        except (Conflict, NotFound):
            pass  # a session has just joined it, or it was deleted

    async def _report_unclosed(self, recording: Object) -> None:
        """Record an Event if the poollet or the runtime of an ended recording does not close it."""
        uid, status = recording["metadata"]["uid"], recording.get("status", {})
        ended = recording["spec"].get("endedTime")
        if status.get("phase") in (CLOSED, FAILED) or not ended or uid in self._unclosed:
            return
        if self._now() - seconds(ended) >= UNCLOSED_SECONDS:
            self._unclosed.add(uid)
            pool = recording["spec"].get("pool", "")
            message = (
                f"the recording ended at {ended}, and its runtime has not closed it: nothing is proven about output "
                f'after the newest head in its status; check the poollet and the runtime of pool "{pool}"'
            )
            await self._reports.tell(CONSOLERECORDINGS, recording, WARNING, NOT_CLOSED, message)

    async def _delete_expired(self) -> None:
        now = self._now()
        over = self._expired.due(
            key
            for key, each in self._recordings.items()
            if (ended := end_of(each)) is not None
            and ended + each["spec"]["retentionDays"] * _DAY_SECONDS <= now
        )
        await delete_all(self._storage, CONSOLERECORDINGS.resource, over)


def _is_over(recording: Object) -> bool:
    phase = recording.get("status", {}).get("phase")
    return bool(recording["spec"].get("ended")) or phase in (CLOSED, FAILED)

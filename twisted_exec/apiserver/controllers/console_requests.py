"""
Record Events about ConsoleRequests, and delete them some days after their end.

Expired requests are deleted an hour after their time, by the monotonic clock: everything looks
expired while the time of day is wrong, and what was deleted does not come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object, machine_kind
from twisted_exec.api.kinds.policies.consolerequests import expiry
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.controllers.coalescing import CoalescedRuns
from twisted_exec.apiserver.controllers.event_recorder import NORMAL, WARNING, Reports
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added, log_failure
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage

LOOK_SECONDS = 60.0
EXPIRED_SECONDS = 3600.0
KEPT_DAYS = 7
"""Days after the end of a request."""
_MOST_EVENTS = 1000

_DAY_SECONDS = 86_400


class ConsoleRequests(StoreFollower):
    """
    The controller of ConsoleRequests; runs on the leader only.

    :param storage: started before this service is.
    :param verbs: without admission.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        super().__init__(storage)
        self._clock, self._now = clock, now
        self._machines = {each.workload.qualified: machine_kind(each) for each in dialects}
        self._reports = Reports(verbs, "console-requests", now)
        self._ends: dict[Key, float] = {}
        self._expired_since: dict[Key, float] = {}
        self._unreported: deque[tuple[Object, str, str, str]] = deque(maxlen=_MOST_EVENTS)
        self._runs = CoalescedRuns(self._report, self._failed, self._report_soon)
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """List and follow the requests."""
        super().startService()
        self._loop.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        """Stop following the store."""
        super().stopService()
        self._loop.stop()
        self._ends.clear()
        self._expired_since.clear()
        self._unreported.clear()

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        listed = listed_as_added(self._noted)
        return [Followed(CONSOLEREQUESTS.resource, self._changed, listed)]

    def _noted(self, event: Event) -> None:
        key = key_of(event.obj)
        if event.type == DELETED:
            self._ends.pop(key, None)
        else:
            decided = event.obj.get("status", {}).get("decisionTime")
            ends = expiry(event.obj)
            if event.obj.get("status", {}).get("denied") and decided:
                ends = seconds(decided)
            self._ends[key] = ends

    def _changed(self, event: Event) -> None:
        self._noted(event)
        if event.type != DELETED:
            message = _message(event)
            if message is not None:
                self._unreported.append((event.obj, *message))
                self._runs.ask()

    def _report_soon(self) -> None:
        self._runs.ask()

    async def _report(self) -> None:
        while self._unreported and self.running:
            request, level, reason, message = self._unreported.popleft()
            await self._reports.tell(CONSOLEREQUESTS, request, level, reason, message)
            spec, namespace = request["spec"], request["metadata"]["namespace"]
            kind = self._machines.get(spec.get("machineResource", ""))
            if kind is None:
                continue
            try:
                machine = await self._storage.get(kind.resource, namespace, spec["machine"])
            except NotFound:
                continue
            if machine["metadata"]["uid"] == spec.get("machineUID"):
                await self._reports.tell(kind, machine, level, reason, message)

    def look(self) -> Deferred[None]:
        """Delete requests that ended some days ago.  Never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        clock, since = self._clock.seconds(), self._expired_since
        oldest = self._now() - KEPT_DAYS * _DAY_SECONDS
        expired = [key for key, ends in self._ends.items() if ends <= oldest]
        self._expired_since = {key: since.get(key, clock) for key in expired}
        for key, at in list(self._expired_since.items()):
            if clock - at < EXPIRED_SECONDS:
                continue
            try:
                obj = await self._storage.get(CONSOLEREQUESTS.resource, *key)
                await self._storage.delete(CONSOLEREQUESTS.resource, obj)
            except (Conflict, NotFound):
                continue  # the next run sees the new state

    def _failed(self, failure: Failure) -> None:
        log_failure(self._log, "cannot update console requests", failure)


def _message(event: Event) -> tuple[str, str, str] | None:
    """Return level, reason and message of the Event about a change; ``None`` for no Event."""
    spec, status = event.obj["spec"], event.obj.get("status", {})
    before = (event.previous or {}).get("status", {})
    name, user, right = event.obj["metadata"]["name"], spec.get("user", ""), spec["right"]
    because = f": {spec['reason']}" if spec.get("reason") else ""
    by = status.get("decidedBy", "")
    if event.type == ADDED:
        text = f'user "{user}" asks for approval to {right} the console, request "{name}"{because}'
        return NORMAL, "ConsoleRequested", text
    if status.get("denied") and not before.get("denied"):
        verb = "withdrew the approval of" if before.get("approved") else "denied"
        return WARNING, "ConsoleDenied", f'user "{by}" {verb} request "{name}" of user "{user}"'
    if status.get("approved") and not before.get("approved"):
        until = status.get("expirationTime", "")
        text = f'user "{by}" approved that user "{user}" may {right} the console until {until}, request "{name}"'
        return NORMAL, "ConsoleApproved", f"{text}{because}"
    if status.get("session") and not before.get("session"):
        text = f'session {status["session"]} of user "{user}" used the approval "{name}" by user "{by}"'
        return NORMAL, "ConsoleApprovalUsed", text
    return None

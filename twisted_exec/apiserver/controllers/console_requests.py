"""
Record Events about ConsoleRequests, and delete requests a week after their end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object, machine_kind
from twisted_exec.api.kinds.policies.consolerequests import expiry
from twisted_exec.api.status import NotFound
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.controllers.coalescing import CoalescedRuns
from twisted_exec.apiserver.controllers.deletion import Expired, ExpiryController, delete_all
from twisted_exec.apiserver.controllers.event_recorder import NORMAL, WARNING, Reports
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.storage.follower import Followed, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage

RETENTION_DAYS = 7
"""Days after the end of a request."""
_MOST_EVENTS = 1000

_DAY_SECONDS = 86_400


class ConsoleRequests(ExpiryController):
    """
    The controller of ConsoleRequests; runs on the leader only.

    :param storage: started before this service is.
    :param verbs: without admission.
    :param now: seconds since the epoch.
    """

    _log = Logger()
    trouble = "cannot update console requests"

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        super().__init__(storage, clock)
        self._now = now
        self._machines = {each.workload.qualified: machine_kind(each) for each in dialects}
        self._reports = Reports(verbs, "console-requests", now)
        self._ends: dict[Key, float] = {}
        self._expired = Expired[Key](clock)
        self._unreported: deque[tuple[Object, str, str, str]] = deque(maxlen=_MOST_EVENTS)
        self._runs = CoalescedRuns(self._report, self._failed, self._report_soon)

    def stopService(self) -> None:
        """Stop following the store."""
        super().stopService()
        self._ends.clear()
        self._expired.clear()
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

    async def _look(self) -> None:
        oldest = self._now() - RETENTION_DAYS * _DAY_SECONDS
        due = self._expired.due(key for key, ends in self._ends.items() if ends <= oldest)
        await delete_all(self._storage, CONSOLEREQUESTS.resource, due)


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

"""
The controller of ConsoleRequests: Events about them, and their deletion some days after their end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    CONSOLEREQUESTS,
    Object,
    machine_kind,
)
from twisted_exec.api.kinds.consolerequests import expiry
from twisted_exec.api.kinds.events import NORMAL, WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.controllers.expiry import (
    DAY_SECONDS,
    ExpiryCandidates,
    ExpiryController,
    delete_all,
)
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.storage.follower import Followed, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage

RETENTION_DAYS = 7
"""Days for which a request is kept after its end."""


_Message = tuple[Object, str, str, str]
"""An object, and the level, reason and text of an Event about it."""


class ConsoleRequests(ExpiryController):
    """
    The controller of ConsoleRequests; runs on the leader only.

    :param verbs: without admission.
    :param now: seconds since the epoch.
    """

    _log = Logger()
    controller = "console-requests"
    trouble = "cannot update console requests"

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock, metrics)
        self._now = now
        self._machines = {each.workload.qualified: machine_kind(each) for each in dialects}
        self._recorder = own_recorder(
            verbs, clock, now, about=CONSOLEREQUESTS.resource, component="console-requests"
        )
        self._ends: dict[Key, float] = {}
        self._expired = ExpiryCandidates[Key](clock)
        self._unreported: dict[Key, list[_Message]] = {}
        # Only Events wait in it, and these tell users nothing about themselves.
        self._queue: WorkQueue[Key] = WorkQueue(
            self._report, clock, metrics=metrics.of(self.controller)
        )
        self.add_part(self._recorder)
        self.add_part(self._queue)

    def stopService(self) -> Deferred[None]:
        self._ends.clear()
        self._expired.clear()
        self._unreported.clear()
        return super().stopService()

    def followed(self) -> list[Followed]:
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
        key, message = key_of(event.obj), None
        if event.type == DELETED:
            self._unreported.pop(key, None)
        else:
            message = _message(event)
        if message is not None:
            self._unreported.setdefault(key, []).append((event.obj, *message))
            self._queue.add(key)

    async def _report(self, key: Key) -> None:
        while messages := self._unreported.get(key):
            request, level, reason, message = messages[0]
            objects = [(CONSOLEREQUESTS.resource, request), *await self._machine_of(request)]
            for resource, obj in objects:
                self._recorder.record(obj, level, reason, message, resource=resource)
            del messages[0]
        self._unreported.pop(key, None)

    async def _machine_of(self, request: Object) -> list[tuple[Resource, Object]]:
        spec = request["spec"]
        kind = self._machines.get(spec.get("machineResource", ""))
        if kind is None:
            return []
        namespace = request["metadata"]["namespace"]
        try:
            machine = await self._storage.get(kind.resource, namespace, spec["machine"])
        except NotFound:
            return []
        is_same = machine["metadata"]["uid"] == spec.get("machineUID")
        return [(kind.resource, machine)] if is_same else []

    async def _look(self) -> None:
        oldest = self._now() - RETENTION_DAYS * DAY_SECONDS
        due = self._expired.due(key for key, ends in self._ends.items() if ends <= oldest)
        await delete_all(self._storage, CONSOLEREQUESTS.resource, due)


def _message(event: Event) -> tuple[str, str, str] | None:
    spec, status = event.obj["spec"], event.obj.get("status", {})
    before = (event.previous or {}).get("status", {})
    name, user, right = event.obj["metadata"]["name"], spec.get("user", ""), spec["right"]
    because = f": {spec['reason']}" if spec.get("reason") else ""
    by = status.get("decidedBy", "")
    if event.type == ADDED:
        text = f'user "{user}" asks for approval to {right} the console, request "{name}"{because}'
        return NORMAL, "ConsoleRequested", text
    if status.get("denied") and not before.get("denied"):
        reason, verb = "ConsoleDenied", "denied"
        if before.get("approved"):
            reason, verb = "ConsoleApprovalWithdrawn", "withdrew the approval of"
        return WARNING, reason, f'user "{by}" {verb} request "{name}" of user "{user}"'
    if status.get("approved") and not before.get("approved"):
        until = status.get("expirationTime", "")
        text = f'user "{by}" approved that user "{user}" may {right} the console until {until}, request "{name}"'
        return NORMAL, "ConsoleApproved", f"{text}{because}"
    if status.get("session") and not before.get("session"):
        text = f'session {status["session"]} of user "{user}" used the approval "{name}" by user "{by}"'
        return NORMAL, "ConsoleApprovalUsed", text
    return None

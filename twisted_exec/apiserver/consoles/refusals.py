"""
Events about users who were refused at consoles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from twisted_exec.api.conditions import writers_of
from twisted_exec.api.kinds import (
    CONSOLESESSIONS,
    Kind,
    Object,
)
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.status import (
    APIError,
)
from twisted_exec.auth.refusals import TAKEOVER_DENIED, RefusalLimit, TakeoverDenials
from twisted_exec.kube.recorder import Recorder
from twisted_exec.program.audit import Trail
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.subject import Subject

REFUSED = "ConsoleRefused"


class ConsoleRefusals(Service):
    """
    Records refusals as Events, and denied take-overs in the audit log, too.

    :param recorder: it is stopped with this service.
    :param seconds: returns the time, by a monotonic clock.
    """

    def __init__(
        self, storage: IStorage, recorder: Recorder, trail: Trail, seconds: Callable[[], float]
    ) -> None:
        self._storage, self._recorder = storage, recorder
        self._by_policies = RefusalLimit(seconds)
        self._denials = TakeoverDenials(trail, RefusalLimit(seconds))

    def startService(self) -> None:
        super().startService()
        self._recorder.start()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return self._recorder.stop()

    def by_policy(self, kind: Kind, machine: Object, subject: Subject, message: str) -> None:
        """Record that a policy refused a user, at a limited rate."""
        if self._by_policies.count(subject):
            acting = f' (by user "{subject.caller}")' if subject.caller else ""
            text = f'user "{subject.user}"{acting} was refused the console: {message}'
            self._tell(kind, machine, REFUSED, text)

    async def takeover(self, kind: Kind, subject: Subject, message: str) -> None:
        """Record that a take-over was denied, at a limited rate."""
        if not self._denials.count(subject):
            return
        machine: Object | None = None
        writers: list[str] = []
        try:
            machine = await self._storage.get(kind.resource, subject.namespace, subject.machine)
            writers = await self._writers(machine)
        except APIError:
            pass  # the record does without
        uid = "" if machine is None else machine["metadata"]["uid"]
        text = self._denials.record(subject, uid, writers, message, impersonator=subject.caller)
        if machine is not None:
            self._tell(kind, machine, TAKEOVER_DENIED, text)

    async def _writers(self, machine: Object) -> list[str]:
        sessions = writers_of(machine)
        if not sessions:
            return []
        namespace = machine["metadata"]["namespace"]
        listing = await self._storage.list(CONSOLESESSIONS.resource, namespace, stale=True)
        specs = (each["spec"] for each in listing.items)
        return [each.get("user", "") for each in specs if each.get("session") in sessions]

    def _tell(self, kind: Kind, machine: Object, reason: str, text: str) -> None:
        self._recorder.record(machine, WARNING, reason, text, resource=kind.resource)

"""
Events about users whom this server refused a console: by a ConsolePolicy, or a take-over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.conditions import writers_of
from twisted_exec.api.kinds import CONSOLESESSIONS, Kind, Object
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.controllers.event_recorder import WARNING, Reports
from twisted_exec.auth.refusals import TAKEOVER_DENIED, RefusalLimit, TakeoverDenials
from twisted_exec.observe.audit import Trail
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.interfaces import Subject

REFUSED = "ConsoleRefused"


class ConsoleRefusals:
    """
    Records the Events, and the audit records of denied take-overs.

    :param seconds: returns the time, by a monotonic clock.
    """

    _log = Logger()

    def __init__(
        self, storage: IStorage, reports: Reports, trail: Trail, seconds: Callable[[], float]
    ) -> None:
        self._storage, self._reports = storage, reports
        self._by_policies = RefusalLimit(seconds)
        self._denials = TakeoverDenials(trail, RefusalLimit(seconds))

    def by_policy(self, kind: Kind, machine: Object, subject: Subject, message: str) -> None:
        """
        Record that a policy refused a user, unless that was recorded a short time ago.

        :param message: of the refusal; it names the policy.
        """
        if self._by_policies.is_due(subject):
            acting = f' (by user "{subject.caller}")' if subject.caller else ""
            text = f'user "{subject.user}"{acting} was refused the console: {message}'
            self._tell(kind, machine, REFUSED, text)

    async def takeover(self, kind: Kind, subject: Subject, message: str) -> None:
        """
        Record that a take-over was denied, unless that was recorded a short time ago.

        :param message: of the refusal.
        """
        if not self._denials.is_due(subject):
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
        """Return the users who have the floor; the machine names their sessions."""
        sessions = writers_of(machine)
        if not sessions:
            return []
        namespace = machine["metadata"]["namespace"]
        listing = await self._storage.list(CONSOLESESSIONS.resource, namespace, stale=True)
        specs = (each["spec"] for each in listing.items)
        return [each.get("user", "") for each in specs if each.get("session") in sessions]

    def _tell(self, kind: Kind, machine: Object, reason: str, text: str) -> None:
        telling: Deferred[Any] = Deferred.fromCoroutine(
            self._reports.tell(kind, machine, WARNING, reason, text)
        )
        telling.addErrback(lambda failure: self._log.failure("cannot record an event", failure))

"""
Events about users whom a ConsolePolicy refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.controllers.event_recorder import WARNING, Reports
from twisted_exec.streaming.interfaces import Subject

REFUSED = "ConsoleRefused"
EVERY_SECONDS = 60.0
"""Time between two Events about one user and machine: programs may try without end."""
_MOST = 1024


class PolicyRefusals:
    """
    Records the Events.

    :param seconds: returns the time, by a monotonic clock.
    """

    _log = Logger()

    def __init__(self, reports: Reports, seconds: Callable[[], float]) -> None:
        self._reports, self._seconds = reports, seconds
        self._last: dict[tuple[str, str, str], float] = {}

    def report(self, kind: Kind, machine: Object, subject: Subject, message: str) -> None:
        """
        Record that a policy refused a user, unless that was recorded a short time ago.

        :param message: of the refusal; it names the policy.
        """
        key = (str(machine["metadata"]["uid"]), subject.user, subject.caller)
        now = self._seconds()
        if now - self._last.get(key, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        if len(self._last) >= _MOST:
            self._last.clear()
        self._last[key] = now
        acting = f' (by user "{subject.caller}")' if subject.caller else ""
        text = f'user "{subject.user}"{acting} was refused the console: {message}'
        telling: Deferred[Any] = Deferred.fromCoroutine(
            self._reports.tell(kind, machine, WARNING, REFUSED, text)
        )
        telling.addErrback(lambda failure: self._log.failure("cannot record an event", failure))

"""
Take-overs that a poollet denies: audit records, and Events of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted_exec.api.conditions import writers_of
from twisted_exec.auth.refusals import TAKEOVER_DENIED, RefusalLimit, TakeoverDenials
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.streaming.interfaces import Subject
from twisted_exec.streaming.sessions.registry import Sessions


class Denials:
    """
    Records the take-overs.

    :param sessions: of this poollet; they have the names of the users who have the floor.
    :param seconds: returns the time, by a monotonic clock.
    """

    def __init__(
        self, sessions: Sessions, recorder: Recorder, seconds: Callable[[], float]
    ) -> None:
        self._sessions, self._recorder = sessions, recorder
        self._denials = TakeoverDenials(sessions.trail, RefusalLimit(seconds))

    def is_due(self, subject: Subject) -> bool:
        """Return whether to record this one; ask once for each."""
        return self._denials.is_due(subject)

    def record(self, subject: Subject, machine: Object | None, message: str) -> None:
        """
        Record a denied take-over.

        :param machine: ``None`` if it is not known.
        :param message: of the refusal.
        """
        if machine is None:
            self._denials.record(subject, "", (), message)
            return
        writers = self._users(writers_of(machine) or ())
        text = self._denials.record(subject, machine["metadata"]["uid"], writers, message)
        self._recorder.record(machine, "Warning", TAKEOVER_DENIED, text)

    def _users(self, sessions: Collection[str]) -> list[str]:
        several = (self._sessions.with_id(each) for each in sessions)
        return [session.subject.user for each in several for session in each]

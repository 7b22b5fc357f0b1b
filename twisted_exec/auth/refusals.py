"""Refused users, for Events and audit, at a limited rate."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from twisted_exec.program.audit import Trail
from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.streaming.subject import Subject

TAKEOVER_DENIED = "ConsoleTakeoverDenied"
"""Reason of the Event."""
EVERY_SECONDS = 60.0
"""Time between two reports about one user, caller and machine."""
_RECORD = "takeover_denied"


class RefusalLimit:
    """
    Limits the number of reports.

    :param seconds: returns the time, by a monotonic clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._limit = WindowLimit[tuple[str, ...]](seconds, window_seconds=EVERY_SECONDS)

    def count(self, subject: Subject) -> bool:
        """Count a report, if it is due; return whether it is."""
        return self._limit.allow(
            (
                subject.resource,
                subject.namespace,
                subject.machine,
                subject.user,
                subject.caller,
            )
        )


class TakeoverDenials:
    """Records take-overs that a hop denied, before there was a session."""

    def __init__(self, trail: Trail, limit: RefusalLimit) -> None:
        self._trail, self._limit = trail, limit

    def count(self, subject: Subject) -> bool:
        """Count a denial; return whether to record it."""
        return self._limit.count(subject)

    def record(
        self,
        subject: Subject,
        uid: str,
        writers: Collection[str],
        message: str,
        *,
        impersonator: str = "",
    ) -> str:
        """
        Write the audit record.

        :param writers: the users who have the floor, as far as they are known.
        :param message: of the refusal.
        :return: the text of the Event.
        """
        names = sorted({each for each in writers if each})
        fields = {"other_user": ", ".join(names), "reason": message}
        # The user is refused before the machine is read, so the request does not know its UID.
        self._trail.record(_RECORD, replace(subject, uid=uid or subject.uid), fields)
        acting = f' (by user "{impersonator}")' if impersonator else ""
        others = ", ".join(f'user "{name}"' for name in names)
        source = f" from {others}" if others else ""
        return f'user "{subject.user}"{acting} may not take over the console{source}'

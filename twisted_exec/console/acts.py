"""
Reports of take-overs and of discarded input at a console, for its operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TAKEOVER = "takeover"
INPUT_DENIED = "input_denied"

_WINDOW_SECONDS = 60.0
_MOST = {TAKEOVER: 20, INPUT_DENIED: 1}
"""Reports of one session in that time: a user can lean on a key, and two scripts can quarrel."""


@dataclass(frozen=True)
class Act:
    """
    One act.

    :param kind: :data:`TAKEOVER` or :data:`INPUT_DENIED`.
    :param session: the id of the session.
    :param user: the session's user; empty if unknown.
    :param other: the user who had the floor before the take-over, or who has it; empty if the floor
        is free or the user has no name.
    :param message: a sentence for people, printable.
    """

    kind: str
    session: str
    user: str
    other: str
    message: str


def ignore(act: Act) -> None:
    """Report nothing."""


class ActReports:
    """
    Reports the acts of one session, at a limited rate.

    :param acted: called with each act that is reported.
    :param seconds: returns the time.
    """

    def __init__(self, acted: Callable[[Act], None], seconds: Callable[[], float]) -> None:
        self._acted, self._seconds = acted, seconds
        self._windows: dict[str, tuple[float, int]] = {}

    def report(self, act: Act) -> None:
        """Report an act, unless the session had too many of this kind in the last minute."""
        now = self._seconds()
        since, count = self._windows.get(act.kind, (now, 0))
        if now - since >= _WINDOW_SECONDS:
            since, count = now, 0
        if count < _MOST[act.kind]:
            self._windows[act.kind] = (since, count + 1)
            self._acted(act)

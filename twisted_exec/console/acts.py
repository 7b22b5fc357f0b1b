"""
Acts of users at a console that its operators want to know of: take-overs and discarded input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TAKEOVER = "takeover"
INPUT_DENIED = "input_denied"

_LEAST_SECONDS = {TAKEOVER: 1.0, INPUT_DENIED: 60.0}
"""Time between two reports of one session: a user can lean on a key."""


@dataclass(frozen=True)
class Act:
    """
    One act.

    :param kind: :data:`TAKEOVER` or :data:`INPUT_DENIED`.
    :param session: the id of the session.
    :param user: the session's user; empty if unknown.
    :param other: the user who had the floor before, or has it; empty if nobody has, or if unknown.
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

    :param acted: is called with each act that is reported.
    :param seconds: returns the time.
    """

    def __init__(self, acted: Callable[[Act], None], seconds: Callable[[], float]) -> None:
        self._acted, self._seconds = acted, seconds
        self._last: dict[str, float] = {}

    def report(self, act: Act) -> None:
        """Report an act, unless the session had one of this kind a short time ago."""
        now, last = self._seconds(), self._last.get(act.kind)
        if last is None or now - last >= _LEAST_SECONDS[act.kind]:
            self._last[act.kind] = now
            self._acted(act)

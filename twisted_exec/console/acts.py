"""
Reports of take-overs and denied input at a console, for its operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted_exec.program.window_limit import WindowLimit

TAKEOVER = "takeover"
TAKEOVER_DENIED = "takeover_denied"
INPUT_DENIED = "input_denied"

_WINDOW_SECONDS = 60.0
_MOST = {TAKEOVER: 20, TAKEOVER_DENIED: 1, INPUT_DENIED: 1}
"""Reports of each kind about one user per window."""


@dataclass(frozen=True)
class Act:
    """
    One act.

    :param kind: a constant of this module.
    :param other: the user who had the floor, or who has it; may be empty.
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
    """Reports the acts at one console, at a limited rate for each user."""

    def __init__(self, acted: Callable[[Act], None], seconds: Callable[[], float]) -> None:
        self._acted = acted
        self._limit = WindowLimit[tuple[str, str]](seconds, window_seconds=_WINDOW_SECONDS)

    def report(self, act: Act) -> None:
        """Report an act, unless the user had too many of its kind."""
        # Users of hops that name no users differ by their sessions.
        if self._limit.allows((act.kind, act.user or act.session), _MOST[act.kind]):
            self._acted(act)

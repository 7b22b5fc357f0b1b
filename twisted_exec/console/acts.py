"""
Reports of take-overs, denied input and messages at a console, and their limits for each user.

A user may send 10 messages and take over 20 times in a minute. The runtime turns reports into
Events for operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from twisted_exec.program.window_limit import WindowLimit

TAKEOVER = "takeover"
TAKEOVER_DENIED = "takeover_denied"
INPUT_DENIED = "input_denied"
MESSAGE = "message"

_WINDOW_SECONDS = 60.0
_MOST = {TAKEOVER: 20, TAKEOVER_DENIED: 1, INPUT_DENIED: 1, MESSAGE: 10}
"""Reports of each kind about one user per window."""


@dataclass(frozen=True)
class Act:
    """
    One act.

    :param kind: a constant of this module.
    :param other: the user who had the floor, or who has it; may be empty.
    :param message: a sentence for people, printable; of a message its text.
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

    def report(self, act: Act) -> bool:
        """Report an act, unless the user had too many of its kind; return whether it was reported."""
        if not self._limit.allow(_key(act), self.most(act)):
            return False
        self._acted(act)
        return True

    def most(self, act: Act) -> int:
        """Return how many acts of this kind a user may have in a minute."""
        return _MOST[act.kind]

    def wait_seconds(self, act: Act) -> int:
        """Return when the user may have another act of this kind, in whole seconds."""
        return math.ceil(self._limit.rest_seconds(_key(act)))


def _key(act: Act) -> tuple[str, str]:
    # Users of hops that name no users differ by their sessions.  Messages reach others, so all of
    # these users together count as one: a user may have any number of sessions.
    return act.kind, act.user if act.kind == MESSAGE else act.user or act.session

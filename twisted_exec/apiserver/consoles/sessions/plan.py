"""
The next step for the ConsoleSession of one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Step(Enum):
    """What to do next for the object of a session."""

    CREATE = auto()
    RENEW = auto()
    END = auto()
    """The user did not come back in time: the session is over."""
    REMOVE = auto()
    FORGET = auto()
    WAIT = auto()


@dataclass(frozen=True)
class SessionState:
    """
    A session of this server, and its object.

    :ivar is_live: the session goes on, or its user may come back.
    :ivar is_stale: the object lacks a change.
    :ivar is_due: the object is to be renewed, so that other servers do not delete it.
    """

    is_live: bool
    is_away_too_long: bool
    has_object: bool
    is_stale: bool
    is_due: bool


def plan(state: SessionState) -> Step:
    """Decide what to do next."""
    if state.is_live and state.is_away_too_long:
        return Step.END
    if not state.is_live:
        return Step.REMOVE if state.has_object else Step.FORGET
    if not state.has_object:
        return Step.CREATE
    return Step.RENEW if state.is_stale or state.is_due else Step.WAIT

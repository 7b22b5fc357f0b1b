"""
How a cluster of kind stands, from what is recorded of it and whether kind lists it: pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.spacemanager.providers.kind.cli import said
from twisted_exec.spacemanager.providers.kind.records import CREATING, DELETING, Attempt, Record

ABSENT = "absent"
"""There is none."""
OTHERS = "others'"
"""It is there, and nothing is recorded of it."""
GROWING = "growing"
"""It is being made."""
FAILED = "failed"
"""It could not be made, or its making was broken off."""
COMPLETE = "complete"
"""It was made here, and is there."""
LEAVING = "leaving"
"""It is being deleted."""

MAKING_SECONDS = 1800.0
"""How long one may be in the making: the image may have to be fetched first."""


@dataclass(frozen=True)
class ClusterState:
    """
    :param which: one of the words above.
    :param forget: the record says nothing any more, and is to go.
    :param late: its making takes too long, and is to be ended.
    """

    which: str
    reason: str = ""
    message: str = ""
    forget: bool = False
    late: bool = False


def standing(record: Record | None, attempt: Attempt, listed: bool, now: float) -> ClusterState:
    """
    How one stands.

    :param attempt: read before ``record``, which is written while it is busy.
    :param listed: kind lists it, asked after both were read if it is to be believed.
    """
    if record is None:
        # Whoever is at work has written nothing yet, so whatever is there is not of its making.
        return ClusterState(OTHERS if listed else ABSENT, forget=not attempt.busy)
    if record.state == CREATING and attempt.busy:
        late = now - record.began > MAKING_SECONDS
        return ClusterState(GROWING, "Creating", "kind is making it", late=late)
    if record.state == CREATING and attempt.code != 0:
        return _not_made(attempt, listed)
    if not listed:
        return ClusterState(ABSENT, forget=not attempt.busy)
    if record.state == DELETING:
        return ClusterState(LEAVING)
    return ClusterState(COMPLETE)


def _not_made(attempt: Attempt, listed: bool) -> ClusterState:
    if attempt.code is None:
        told = "its making was broken off"
        return ClusterState(
            FAILED, "Interrupted", f"{told}; it is made anew when it is created again"
        )
    if b"already exist" in attempt.told:
        # Somebody else was first: that one is theirs.
        return ClusterState(OTHERS if listed else ABSENT, forget=True)
    told = said(attempt.told) or f"exit code {attempt.code}"
    if listed:
        # kind has taken back what it made, so this is no part of it.  If it could not, it says so, and nobody
        # can tell its remains from somebody else's beginnings.
        return ClusterState(OTHERS, forget=True)
    return ClusterState(FAILED, "CreateFailed", f"kind could not make it: {told}")

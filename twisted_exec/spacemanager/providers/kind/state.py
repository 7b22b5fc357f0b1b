"""
The state of a kind cluster, from its record and kind's list; pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.spacemanager.providers.kind.cli import error_of
from twisted_exec.spacemanager.providers.kind.records import CREATING, DELETING, Attempt, Record

ABSENT = "absent"
"""The cluster does not exist."""
OTHERS = "others'"
"""The cluster exists, and has no record."""
GROWING = "growing"
"""The cluster is being created."""
FAILED = "failed"
"""The creation failed or was interrupted."""
COMPLETE = "complete"
"""The cluster was created here, and exists."""
LEAVING = "leaving"
"""The cluster is being deleted."""

MAKING_SECONDS = 1800.0
"""Limit for a creation, which may have to pull the image first."""


@dataclass(frozen=True)
class ClusterState:
    """
    The state of a cluster.

    :param which: one of the words above.
    :param forget: the record is obsolete and must be removed.
    :param late: the creation takes too long and must be killed.
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
        detail = "its making was broken off"
        return ClusterState(
            FAILED, "Interrupted", f"{detail}; it is made anew when it is created again"
        )
    if b"already exist" in attempt.log:
        # Somebody else was first: that one is theirs.
        return ClusterState(OTHERS if listed else ABSENT, forget=True)
    detail = error_of(attempt.log) or f"exit code {attempt.code}"
    if listed:
        # kind has taken back what it made, so this is no part of it.  If it could not, it says so, and nobody
        # can tell its remains from somebody else's beginnings.
        return ClusterState(OTHERS, forget=True)
    return ClusterState(FAILED, "CreateFailed", f"kind could not make it: {detail}")

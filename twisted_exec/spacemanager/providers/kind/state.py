"""The state of a cluster, from its record and from what kind and its server say."""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.spacemanager.providers.kind.cli import error_of
from twisted_exec.spacemanager.providers.kind.records import (
    CREATING,
    DELETING,
    ClusterCreation,
    ClusterRecord,
)

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
    """The state of a cluster."""

    which: str
    reason: str = ""
    message: str = ""
    forget: bool = False
    late: bool = False


def state_of(
    record: ClusterRecord | None, attempt: ClusterCreation, listed: bool, now: float
) -> ClusterState:
    """
    Return the state of a cluster.

    :param attempt: the last creation, read before ``record``.
    :param listed: whether kind lists the cluster, requested after reading both.
    """
    if record is None:
        # A running creation has no record yet, so a listed cluster is not its result.
        return ClusterState(OTHERS if listed else ABSENT, forget=not attempt.busy)
    if record.state == CREATING and attempt.busy:
        late = now - record.began > MAKING_SECONDS
        return ClusterState(GROWING, "Creating", "kind is creating it", late=late)
    if record.state == CREATING and attempt.code != 0:
        return _not_made(attempt, listed)
    if not listed:
        return ClusterState(ABSENT, forget=not attempt.busy)
    if record.state == DELETING:
        return ClusterState(LEAVING)
    return ClusterState(COMPLETE)


def _not_made(attempt: ClusterCreation, listed: bool) -> ClusterState:
    if attempt.code is None:
        return ClusterState(FAILED, "Interrupted", "the creation was interrupted")
    if b"already exist" in attempt.log:
        # Another creator was faster, and owns the cluster.
        return ClusterState(OTHERS if listed else ABSENT, forget=True)
    detail = error_of(attempt.log) or f"exit code {attempt.code}"
    if listed:
        # kind removes the nodes of a failed creation, so this cluster is another's.  If the removal
        # fails too, the remains are indistinguishable from another creation under way.
        return ClusterState(OTHERS, forget=True)
    return ClusterState(FAILED, "CreateFailed", f"kind could not create it: {detail}")

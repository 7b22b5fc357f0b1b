"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.state`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.spacemanager.providers.kind.records import (
    CREATING,
    DELETING,
    MADE,
    ClusterCreation,
    ClusterRecord,
)
from twisted_exec.spacemanager.providers.kind.state import (
    ABSENT,
    COMPLETE,
    FAILED,
    GROWING,
    LEAVING,
    MAKING_SECONDS,
    OTHERS,
    ClusterState,
    state_of,
)

BUSY, BROKEN_OFF, DONE = ClusterCreation(True), ClusterCreation(False), ClusterCreation(False, 0)
REFUSED = ClusterCreation(False, 1, b'ERROR: failed to create cluster: command "docker run" failed')
TAKEN = ClusterCreation(False, 1, b'ERROR: node(s) already exist for a cluster with the name "red"')


def of(
    state: str | None, attempt: ClusterCreation, listed: bool, now: float = 110.0
) -> ClusterState:
    """Return the state of a cluster whose creation began at 100."""
    record = ClusterRecord("space-1", state, 100.0) if state else None
    return state_of(record, attempt, listed, now)


class StandingTests(SynchronousTestCase):
    """Tests for :func:`state_of`."""

    def test_all(self) -> None:
        """Each combination of record, run and list gives one state."""
        expected = {
            # No record: a listed cluster is not ours, even during a run.
            (None, BROKEN_OFF, False): (ABSENT, True),
            (None, BROKEN_OFF, True): (OTHERS, True),
            (None, BUSY, False): (ABSENT, False),
            (None, BUSY, True): (OTHERS, False),
            # Creation runs: kind lists clusters before they are complete.
            (CREATING, BUSY, False): (GROWING, False),
            (CREATING, BUSY, True): (GROWING, False),
            # Complete, but not recorded yet.
            (CREATING, DONE, True): (COMPLETE, False),
            (CREATING, DONE, False): (ABSENT, True),
            # Failed: kind removes its own nodes, so a listed cluster is not ours.
            (CREATING, REFUSED, False): (FAILED, False),
            (CREATING, REFUSED, True): (OTHERS, True),
            (CREATING, TAKEN, False): (ABSENT, True),
            (CREATING, TAKEN, True): (OTHERS, True),
            # Interrupted, for example by a power failure.
            (CREATING, BROKEN_OFF, False): (FAILED, False),
            (CREATING, BROKEN_OFF, True): (FAILED, False),
            (MADE, DONE, True): (COMPLETE, False),
            (MADE, DONE, False): (ABSENT, True),
            (MADE, BUSY, True): (COMPLETE, False),
            (MADE, BUSY, False): (ABSENT, False),
            (DELETING, DONE, True): (LEAVING, False),
            (DELETING, DONE, False): (ABSENT, True),
            (DELETING, BUSY, True): (LEAVING, False),
            (DELETING, BUSY, False): (ABSENT, False),
            (DELETING, BROKEN_OFF, True): (LEAVING, False),
        }
        for case, (which, forget) in expected.items():
            found = of(*case)
            self.assertEqual((found.which, found.forget), (which, forget), case)

    def test_why_it_failed(self) -> None:
        """A failure carries kind's message; an interrupted run has the reason Interrupted."""
        refused = of(CREATING, REFUSED, False)
        self.assertEqual(refused.reason, "CreateFailed")
        self.assertIn("docker run", refused.message)
        self.assertEqual(of(CREATING, BROKEN_OFF, True).reason, "Interrupted")

    def test_late(self) -> None:
        """A run is late after MAKING_SECONDS."""
        self.assertFalse(of(CREATING, BUSY, True, 100 + MAKING_SECONDS).late)
        self.assertTrue(of(CREATING, BUSY, True, 101 + MAKING_SECONDS).late)

"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.state`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.spacemanager.providers.kind.records import (
    CREATING,
    DELETING,
    MADE,
    Attempt,
    Record,
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
    standing,
)

BUSY, BROKEN_OFF, DONE = Attempt(True), Attempt(False), Attempt(False, 0)
REFUSED = Attempt(False, 1, b'ERROR: failed to create cluster: command "docker run" failed')
TAKEN = Attempt(False, 1, b'ERROR: node(s) already exist for a cluster with the name "red"')


def of(state: str | None, attempt: Attempt, listed: bool, now: float = 110.0) -> ClusterState:
    """How one stands that was begun at 100."""
    record = Record("space-1", state, 100.0) if state else None
    return standing(record, attempt, listed, now)


class StandingTests(SynchronousTestCase):
    """Tests for :func:`standing`."""

    def test_all(self) -> None:
        """Every record, run and list that can come together has one meaning."""
        expected = {
            # Nothing recorded: what is there is another's, whoever is at work.
            (None, BROKEN_OFF, False): (ABSENT, True),
            (None, BROKEN_OFF, True): (OTHERS, True),
            (None, BUSY, False): (ABSENT, False),
            (None, BUSY, True): (OTHERS, False),
            # Begun, and under way: half built ones are listed before they can be used.
            (CREATING, BUSY, False): (GROWING, False),
            (CREATING, BUSY, True): (GROWING, False),
            # Done, though nobody saw it.
            (CREATING, DONE, True): (COMPLETE, False),
            (CREATING, DONE, False): (ABSENT, True),
            # Refused: kind takes back what it made, so what is there is another's.
            (CREATING, REFUSED, False): (FAILED, False),
            (CREATING, REFUSED, True): (OTHERS, True),
            (CREATING, TAKEN, False): (ABSENT, True),
            (CREATING, TAKEN, True): (OTHERS, True),
            # The power failed.
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
        """What kind said is told; of one that was broken off, that it is made anew."""
        refused = of(CREATING, REFUSED, False)
        self.assertEqual(refused.reason, "CreateFailed")
        self.assertIn("docker run", refused.message)
        self.assertEqual(of(CREATING, BROKEN_OFF, True).reason, "Interrupted")

    def test_late(self) -> None:
        """A run that takes too long is to be ended."""
        self.assertFalse(of(CREATING, BUSY, True, 100 + MAKING_SECONDS).late)
        self.assertTrue(of(CREATING, BUSY, True, 101 + MAKING_SECONDS).late)

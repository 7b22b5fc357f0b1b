"""
Tests for :mod:`twisted_exec.nodeserver.nodes.address_conflict`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.nodes.address_conflict import (
    ADDRESS_CONFLICT,
    CALM_SECONDS,
    LONGEST_SECONDS,
    AddressConflict,
)


def node(address: str, version: str) -> Object:
    status = {
        "addresses": [{"type": "InternalDNS", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    return {"metadata": {"resourceVersion": version}, "status": status}


OURS, THEIRS = node("10.9.9.9", "2"), node("10.1.1.1", "3")


class ContestTests(SynchronousTestCase):
    """Tests for :class:`AddressConflict`."""

    def setUp(self) -> None:
        self.contest = AddressConflict(1)

    def overwritten(self, now: float) -> bool:
        """Write, and let another writer overwrite it at once."""
        self.contest.wrote(OURS, "1")
        return self.contest.observe(THEIRS, now)

    def test_accident(self) -> None:
        """One or two foreign writes may be chance; more are reported."""
        reported = [self.overwritten(0.0) for _ in range(ADDRESS_CONFLICT)]
        self.assertEqual(reported, [False] * (ADDRESS_CONFLICT - 1) + [True])

    def test_rare(self) -> None:
        """Foreign writes that are hours apart are chance, however many there are."""
        times = [number * 2 * CALM_SECONDS for number in range(9)]
        self.assertEqual([self.overwritten(now) for now in times], [False] * 9)

    def test_nothing_written(self) -> None:
        """Values from before our first write are no conflict."""
        self.assertEqual([self.contest.observe(THEIRS, 0.0) for _ in range(9)], [False] * 9)

    def test_old_copy(self) -> None:
        """A copy that is as old as what we changed says nothing of what came then."""
        for _ in range(9):
            self.contest.wrote(OURS, "1")
            self.assertFalse(self.contest.observe(node("10.1.1.1", "1"), 0.0))

    def test_agreed(self) -> None:
        """A writer of our own address is no opponent."""
        for _ in range(9):
            self.contest.wrote(OURS, "1")
            self.assertFalse(self.contest.observe(node("10.9.9.9", "3"), 0.0))

    def test_gives_way(self) -> None:
        """While it is quiet nothing is noticed, and each pause is longer, up to a longest one."""
        now, pauses = 0.0, []
        for _ in range(40):
            if self.overwritten(now):
                pauses.append(self.contest.quiet_until - now)
                self.assertFalse(self.overwritten(now))
                now = self.contest.quiet_until
        self.assertGreater(len(pauses), 9)
        self.assertGreater(pauses[4], pauses[0])
        self.assertLessEqual(max(pauses), LONGEST_SECONDS)

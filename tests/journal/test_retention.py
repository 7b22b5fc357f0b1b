"""
Tests for :mod:`twisted_exec.journal.retention`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.journal.retention import (
    ClockTrust,
    JournalUsage,
    Removal,
    Retention,
    SegmentFile,
    Space,
    StoreLimits,
    plan,
)

DAY = 86_400 * 10**9
NOW = 20_000 * DAY
MIB = 1 << 20
ROOMY = Space(1 << 50, 1 << 49)
FOREVER = Retention(0, 0)


def usage(
    key: str, count: int, retention: Retention = FOREVER, deleted_at: int = 0
) -> JournalUsage:
    """A journal with segments of 1 MiB, one per day, the newest of today."""
    segments = [SegmentFile(at, MIB, NOW - (count - 1 - at) * DAY) for at in range(count)]
    return JournalUsage(key, segments, retention, deleted_at)


class PlanTests(SynchronousTestCase):
    """Tests for :func:`plan`."""

    def removed(
        self, usages: list[JournalUsage], limits: StoreLimits, space: Space = ROOMY
    ) -> list[str]:
        removals = plan(usages, limits, space, NOW)
        return [f"{each.key}{'' if each.first is None else each.first}" for each in removals]

    def test_age(self) -> None:
        """Output beyond the days of its class is removed; the newest segment as well."""
        limits = StoreLimits()
        self.assertEqual(self.removed([usage("a", 5, Retention(2.5, 0))], limits), ["a0", "a1"])
        old = JournalUsage("b", [SegmentFile(7, MIB, NOW - 3 * DAY)], Retention(2, 0))
        self.assertEqual(self.removed([old], limits), ["b7"])

    def test_machine_size(self) -> None:
        """A journal beyond its size loses its oldest segments, never the newest."""
        retention = Retention(0, 2 * MIB)
        self.assertEqual(self.removed([usage("a", 4, retention)], StoreLimits()), ["a0", "a1"])
        self.assertEqual(self.removed([usage("a", 1, Retention(0, 1))], StoreLimits()), [])

    def test_fair(self) -> None:
        """The largest journal gives first; a small one loses nothing."""
        usages = [usage("a", 2), usage("b", 9), usage("c", 6)]
        removed = self.removed(usages, StoreLimits(total_bytes=10 * MIB))
        self.assertEqual(sorted(removed), ["b0", "b1", "b2", "b3", "b4", "c0", "c1"])

    def test_free(self) -> None:
        """The file system keeps its free space, as long as there is something to remove."""
        space = Space(1 << 40, 3 * MIB)
        limits = StoreLimits(free_bytes=5 * MIB)
        self.assertEqual(self.removed([usage("a", 4)], limits, space), ["a0", "a1"])
        limits = StoreLimits(free_bytes=1 << 40)
        self.assertEqual(len(self.removed([usage("a", 4), usage("b", 1)], limits, space)), 3)

    def test_deleted(self) -> None:
        """The journal of a deleted machine goes as a whole, after its days."""
        limits = StoreLimits(deleted_days=7)
        usages = [
            usage("a", 2, deleted_at=NOW - 8 * DAY),
            usage("b", 2, deleted_at=NOW - 6 * DAY),
        ]
        self.assertEqual(self.removed(usages, limits), ["a"])

    def test_clock(self) -> None:
        """While the clock cannot be trusted, nothing is removed for its age."""
        usages = [usage("a", 5, Retention(1, 0)), usage("b", 2, deleted_at=1)]
        self.assertEqual(plan(usages, StoreLimits(), ROOMY, NOW, by_age=False), [])

    @given(
        st.lists(st.integers(1, 20), max_size=12),
        st.integers(1, 100),
        st.integers(0, 5),
    )
    def test_sizes(self, counts: list[int], total: int, days: int) -> None:
        """Whatever there is: the rest fits, unless only newest segments are left; order is kept."""
        usages = [usage(f"j{at}-", count, Retention(days, 0)) for at, count in enumerate(counts)]
        removals = plan(usages, StoreLimits(total_bytes=total * MIB), ROOMY, NOW)
        left = {each.key: len(each.segments) for each in usages}
        for removal in removals:
            first = len(next(each for each in usages if each.key == removal.key).segments)
            self.assertEqual(removal, Removal(removal.key, first - left[removal.key]))
            left[removal.key] -= 1
        self.assertTrue(sum(left.values()) <= total or max(left.values(), default=0) <= 1)


class ClockTrustTests(SynchronousTestCase):
    """Jumps of the time of day, while a store is open and while it is closed."""

    def test_jumps(self) -> None:
        """Ages count again a day after a jump; small corrections do not matter."""
        second = 10**9
        trust = ClockTrust()
        trust.begin(0, NOW, NOW - 60 * second)
        self.assertTrue(trust.check(60, NOW + 61 * second))
        self.assertFalse(trust.check(120, NOW + DAY))
        self.assertFalse(trust.check(86_500, NOW + 2 * DAY))
        self.assertTrue(trust.check(86_520, NOW + 2 * DAY))

    def test_start(self) -> None:
        """A start long after the run before it removes nothing for a day."""
        trust = ClockTrust()
        trust.begin(0, NOW, NOW - DAY)
        self.assertFalse(trust.check(60, NOW + 60 * 10**9))

"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.counters`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.nodeserver.kubelet_api.counters import (
    LEAST,
    LONGEST_SECONDS,
    Counter,
    Counters,
    Sample,
)

SECOND = 10**9
NOON = 1_795_150_800 * SECOND


def sample(at: float, nanocores: int = SECOND // 4, window: float = 15) -> Sample:
    """So many seconds after noon."""
    return Sample(NOON + int(at * SECOND), int(window * SECOND), nanocores, 1 << 20)


def seconds(counted: Counter) -> float:
    """CPU usage in core-seconds."""
    return (counted.core_nanoseconds - LEAST) / SECOND


class CountTests(SynchronousTestCase):
    """Tests for :class:`Counters`."""

    def setUp(self) -> None:
        self.counts = Counters()

    def test_begin(self) -> None:
        """The first window counts; the count begins where it does."""
        counted = self.counts.take("web", sample(0))
        self.assertEqual((seconds(counted), counted.started), (3.75, NOON - 15 * SECOND))

    def test_rates_come_back(self) -> None:
        """The rate between two counter values is the leaf's own."""
        before = self.counts.take("web", sample(0))
        for at, nanocores in ((15, SECOND), (30, 0), (47, 2 * SECOND)):
            after = self.counts.take("web", sample(at, nanocores))
            elapsed = after.sample.at - before.sample.at
            used = after.core_nanoseconds - before.core_nanoseconds
            self.assertEqual(used * SECOND // elapsed, nanocores)
            self.assertEqual(after.started, before.started)
            before = after

    def test_fresh_container(self) -> None:
        """Nothing is counted from before a container was started."""
        counted = self.counts.take("web", sample(0), since=NOON - 12 * SECOND)
        self.assertEqual((seconds(counted), counted.started), (3.0, NOON - 12 * SECOND))

    def test_same_again(self) -> None:
        """A moment that is known, or older, changes nothing."""
        counted = self.counts.take("web", sample(15))
        self.assertIs(self.counts.take("web", sample(15, 7)), counted)
        self.assertIs(self.counts.take("web", sample(0, 7)), counted)

    def test_restarted(self) -> None:
        """A container that was started again is counted anew, with a later start."""
        self.counts.take("web", sample(0), since=NOON - 100 * SECOND)
        again = self.counts.take("web", sample(15), since=NOON + 5 * SECOND)
        self.assertEqual((seconds(again), again.started), (2.5, NOON + 5 * SECOND))
        # Started between what the leaf had told already and now: nothing is counted twice.
        at_once = self.counts.take("web", sample(15), since=NOON + 16 * SECOND)
        self.assertEqual((seconds(at_once), at_once.started), (0, NOON + 15 * SECOND))

    def test_not_looked_at(self) -> None:
        """Usage over a long gap is not invented."""
        self.counts.take("web", sample(0))
        late = LONGEST_SECONDS + 1
        again = self.counts.take("web", sample(late, window=2 * late))
        self.assertEqual(again.started, NOON)
        self.assertEqual(seconds(again), late / 4)

    def test_idle(self) -> None:
        """An idle container's counter is not 0: readers take 0 for missing."""
        self.assertEqual(self.counts.take("web", sample(0, 0)).core_nanoseconds, LEAST)

    def test_forgotten(self) -> None:
        """Counters of vanished containers are forgotten."""
        self.counts.take("web", sample(0))
        self.counts.take("db", sample(0))
        self.counts.keep({"db", "more"})
        self.assertEqual(len(self.counts), 1)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 4000),
                st.integers(0, 4 * SECOND),
                st.integers(0, 3000),
                st.integers(0, 4000),
            ),
            max_size=20,
        )
    )
    def test_never_falls(self, samples: list[tuple[int, int, int, int]]) -> None:
        """However a leaf tells it, no count falls without a later start."""
        counts, before = Counters(), None
        for at, nanocores, window, since in samples:
            after = counts.take("web", sample(at, nanocores, window), NOON + since * SECOND)
            self.assertLessEqual(after.started, after.sample.at)
            if before is not None and after.core_nanoseconds < before.core_nanoseconds:
                self.assertGreaterEqual(after.started, before.sample.at)
            before = after

    @given(st.lists(st.integers(0, 4 * SECOND), min_size=4, max_size=12), st.integers(1, 2))
    def test_replicas(self, rates: list[int], later: int) -> None:
        """A reader that changes between replicas never finds more than was used."""
        first, second = Counters(), Counters()
        before = first.take("web", sample(-15, 0))
        for turn, rate in enumerate(rates):
            counter = first.take("web", sample(15 * turn, rate))
            if turn >= later:
                other = second.take("web", sample(15 * turn, rate))
                if turn > later:
                    used = other.core_nanoseconds - before.core_nanoseconds
                    self.assertLessEqual(used, rate * 15 + SECOND)
            before = counter

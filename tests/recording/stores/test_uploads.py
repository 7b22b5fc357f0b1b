"""
Uploads of closed recordings: :mod:`twisted_exec.recording.stores.uploads`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.recording_store import RecordingStoreContract, stored, text_of
from tests.control.support import WithoutJitter
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.recording.stores.uploads import LONGEST_DELAY_SECONDS, UploadMetrics, Uploads

from .doubles import MemoryStore

AWAY = StoreError("unreachable", "cannot reach the bucket.")


class MemoryTests(RecordingStoreContract, SynchronousTestCase):
    """The double is a store."""

    def setUp(self) -> None:
        self.store = MemoryStore()

    def make_store(self) -> MemoryStore:
        """See :meth:`RecordingStoreContract.make_store`."""
        return self.store

    def leftovers(self) -> int:
        """See :meth:`RecordingStoreContract.leftovers`."""
        return 0

    def test_given_up(self) -> None:
        """Nothing is ever left."""


class UploadsTests(SynchronousTestCase):
    """A store in memory."""

    def setUp(self) -> None:
        self.clock, self.store = Clock(), MemoryStore()
        self.registry = CollectorRegistry()
        self.uploads = self.make_uploads()

    def make_uploads(self) -> Uploads:
        """Uploads, as after a start."""
        self.registry = CollectorRegistry()
        return Uploads(
            self.store, self.clock, UploadMetrics().register(self.registry), rng=WithoutJitter()
        )

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the store."""
        value = self.registry.get_sample_value(f"twisted_exec_recording_store_{name}", labels)
        assert value is not None, name
        return value

    def test_stored(self) -> None:
        """A recording is stored and compared; the metrics count it."""
        done = self.uploads.store("a", text_of(b"abc"))
        self.assertEqual(self.successResultOf(done), stored(b"abc"))
        self.assertEqual(self.store.content, {"a": b"abc"})
        self.assertEqual(self.metric("recordings_total"), 1)
        self.assertEqual(self.metric("bytes_total"), 3)
        self.assertEqual(self.metric("waiting"), 0)
        self.assertEqual(self.uploads.problem, "")

    def test_one_at_a_time(self) -> None:
        """Recordings are stored in turn."""
        self.store.gate = gate = Deferred()
        first = self.uploads.store("a", text_of(b"1"))
        second = self.uploads.store("b", text_of(b"2"))
        self.assertEqual(self.store.calls, ["put a"])
        self.assertEqual(self.metric("waiting"), 2)
        self.store.gate = None
        gate.callback(None)
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(self.store.calls, ["put a", "put b"])

    def test_away_for_minutes(self) -> None:
        """
        While the store is away, attempts become rarer, one line says so, and the recording waits; it is
        stored when the store is back.
        """
        self.store.problem = AWAY
        done = self.uploads.store("a", text_of(b"abc"))
        self.assertNoResult(done)
        self.assertEqual(self.uploads.problem, "cannot reach the bucket.")
        for seconds in (1, 2, 4, 8, 16, 32, LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS):
            count = len(self.store.calls)
            self.clock.advance(seconds - 0.1)
            self.assertEqual(len(self.store.calls), count)
            self.clock.advance(0.1)
            self.assertEqual(len(self.store.calls), count + 1)
        self.assertEqual(self.metric("failures_total", kind="unreachable"), 9)
        self.assertEqual(self.metric("waiting"), 1)
        self.assertNoResult(done)
        self.store.problem = None
        self.clock.advance(LONGEST_DELAY_SECONDS)
        self.assertEqual(self.successResultOf(done), stored(b"abc"))
        self.assertEqual(self.uploads.problem, "")
        self.assertEqual(self.metric("waiting"), 0)

    def test_other_content(self) -> None:
        """A recording that the store has changed is not taken for stored; it is sent again."""
        self.store.damage = b"!"
        done = self.uploads.store("a", text_of(b"abc"))
        self.assertNoResult(done)
        self.assertIn("memory://store/a.cast is not as it was sent", self.uploads.problem)
        self.clock.advance(1)
        self.successResultOf(done)
        self.assertEqual(self.store.content, {"a": b"abc"})

    def test_unreadable(self) -> None:
        """A recording that cannot be read does not stop the others."""
        broken = self.uploads.store("a", text_of(b"abc", until=0))
        fine = self.uploads.store("b", text_of(b"b"))
        self.clock.pump([1.0] * 5)
        self.successResultOf(fine)
        self.assertNoResult(broken)
        self.assertGreater(self.metric("failures_total", kind="source"), 1)
        self.assertIn("the recording a cannot be read", self.uploads.problem)
        self.assertGreater(len(self.flushLoggedErrors(OSError)), 1)

    def test_unreadable_among_others(self) -> None:
        """Recordings that cannot be read hold no others up."""
        for number in range(50):
            self.uploads.store(f"bad-{number}", text_of(b"abc", until=0))
        done = self.uploads.store("good", text_of(b"abc"))
        self.clock.advance(1)
        self.successResultOf(done)
        for _ in range(20):
            self.clock.advance(LONGEST_DELAY_SECONDS)
        done = self.uploads.store("late", text_of(b"abc"))
        self.clock.advance(LONGEST_DELAY_SECONDS)
        self.successResultOf(done)
        self.flushLoggedErrors(OSError)

    def test_without_end(self) -> None:
        """A store whose content has no end is not read for ever."""

        class Endless(MemoryStore):
            def read(self, name: str, offset: int, limit: int) -> Deferred[bytes]:
                return succeed(b"x" * limit)

        self.store = Endless()
        self.assertNoResult(self.make_uploads().store("a", text_of(b"abc")))
        self.assertEqual(self.metric("failures_total", kind="answer"), 1)

    def test_deleted(self) -> None:
        """A recording is deleted when the store can do it."""
        self.successResultOf(self.uploads.store("a", text_of(b"abc")))
        self.store.problem = AWAY
        done = self.uploads.delete("a")
        self.assertNoResult(done)
        self.store.problem = None
        self.clock.advance(1)
        self.successResultOf(done)
        self.assertEqual(self.store.content, {})

    def test_deleted_before_it_is_stored(self) -> None:
        """A recording that is deleted meanwhile is not stored; what it has left is deleted."""
        self.store.gate = Deferred()
        storing = self.uploads.store("a", text_of(b"abc"))
        self.store.gate = None
        self.successResultOf(self.uploads.delete("a"))
        self.assertNoResult(storing)
        self.assertEqual(self.store.calls, ["put a", "delete a"])
        self.assertEqual(self.metric("waiting"), 0)

    def test_twice(self) -> None:
        """A recording that waits already is stored once; both callers learn of it."""
        self.store.gate = gate = Deferred()
        both = [self.uploads.store("a", text_of(b"abc")) for _ in range(2)]
        self.store.gate = None
        gate.callback(None)
        for each in both:
            self.assertEqual(self.successResultOf(each), stored(b"abc"))
        self.assertEqual(self.store.calls, ["put a"])

    def test_stopped(self) -> None:
        """The program stops in the middle; after the next start the recording is stored."""
        self.store.gate = Deferred()
        done = self.uploads.store("a", text_of(b"abc"))
        self.successResultOf(self.uploads.stop())
        self.assertTrue(self.store.is_closed)
        self.assertNoResult(done)
        self.store.gate = None
        self.successResultOf(self.make_uploads().store("a", text_of(b"abc")))
        self.assertEqual(self.store.content, {"a": b"abc"})

    def test_stopped_while_waiting(self) -> None:
        """The program stops while the store is away."""
        self.store.problem = AWAY
        self.uploads.store("a", text_of(b"abc"))
        self.successResultOf(self.uploads.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

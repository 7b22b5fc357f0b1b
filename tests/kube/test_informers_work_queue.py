"""Tests for :mod:`twisted_exec.kube.informers`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.kube.informers import (
    FIRST_PAUSE_SECONDS,
    LONGEST_RETRY_SECONDS,
    MAX_WORKERS,
    WorkQueue,
)


class QueueTests(SynchronousTestCase):
    """Tests for :class:`WorkQueue`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.waiting: dict[str, Deferred[None]] = {}
        self.begun: list[str] = []
        self.told: list[tuple[str, int]] = []
        self.queue: WorkQueue[str] = WorkQueue(self.work, self.clock, self.tell)

    async def work(self, key: str) -> None:
        self.begun.append(key)
        self.waiting[key] = Deferred()
        await self.waiting[key]

    def tell(self, key: str, refused: APIError, failures: int) -> None:
        self.told.append((refused.message, failures))

    def test_once_at_a_time(self) -> None:
        """Keys added during their own work run once more after it."""
        for _ in range(3):
            self.queue.add("a")
        self.assertEqual(self.begun, ["a"])
        self.waiting["a"].callback(None)
        self.clock.advance(0)
        self.assertEqual(self.begun, ["a", "a"])
        self.waiting["a"].callback(None)
        self.clock.advance(0)
        self.assertEqual((self.begun, len(self.queue)), (["a", "a"], 0))

    def test_so_many_at_once(self) -> None:
        """At most MAX_WORKERS keys run at once; the others wait."""
        for number in range(MAX_WORKERS + 1):
            self.queue.add(str(number))
        self.assertEqual(len(self.begun), MAX_WORKERS)
        self.waiting["0"].callback(None)
        self.assertEqual(len(self.begun), MAX_WORKERS + 1)

    def test_failures(self) -> None:
        """A failed key is retried with growing pauses; ``add`` does not shorten them."""
        self.queue.add("a")
        for number in range(1, 12):
            self.waiting["a"].errback(ServiceUnavailable("down"))
            self.queue.add("a")
            self.assertEqual(len(self.begun), number)
            self.clock.advance(LONGEST_RETRY_SECONDS)
            self.assertEqual(len(self.begun), number + 1)
        self.assertEqual(self.told[-1], ("down", 11))

    def test_hurry(self) -> None:
        """``hurry`` retries a key at once and resets its pauses."""
        self.queue.hurry("a")
        self.waiting["a"].errback(ServiceUnavailable("down"))
        for _ in range(10):
            self.clock.advance(LONGEST_RETRY_SECONDS)
            self.waiting["a"].errback(ServiceUnavailable("down"))
        begun = len(self.begun)
        self.queue.hurry("a")
        self.clock.advance(0)
        self.assertEqual(len(self.begun), begun + 1)
        self.queue.hurry("a")  # its work is running, so it runs once more afterwards
        self.waiting["a"].errback(ServiceUnavailable("down"))
        self.clock.advance(FIRST_PAUSE_SECONDS)
        self.assertEqual(len(self.begun), begun + 2)

    def test_a_bug(self) -> None:
        """An unexpected exception is logged, and the key is retried."""
        self.queue.add("a")
        self.waiting["a"].errback(RuntimeError("broken"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.clock.advance(LONGEST_RETRY_SECONDS)
        self.assertEqual(self.begun, ["a", "a"])

    def test_stop(self) -> None:
        """Stopping cancels running and waiting keys; later keys do not start."""
        for key in ("a", "b"):
            self.queue.add(key)
        self.waiting["b"].errback(ServiceUnavailable("down"))
        self.successResultOf(self.queue.stop())
        self.queue.add("c")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.begun, ["a", "b"])

    def test_stop_midway(self) -> None:
        """Stopping cancels and awaits the running work, and starts no waiting key."""
        cancelled, slow = [], Deferred[None]()

        async def work(key: str) -> None:
            self.begun.append(key)
            try:
                await Deferred()
            except CancelledError:
                cancelled.append(key)
                if key == "0":
                    await slow
                raise

        queue = WorkQueue(work, self.clock, self.tell)
        for number in range(MAX_WORKERS + 2):
            queue.add(str(number))
        under_way = list(self.begun)
        stopped = queue.stop()
        self.assertEqual(sorted(cancelled), sorted(under_way))
        self.assertNoResult(stopped)
        slow.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.begun, under_way)

    def test_many_that_are_over_at_once(self) -> None:
        """Keys that finish at once run without recursion, and in several reactor turns."""

        async def work(key: str) -> None:
            if key not in self.waiting:
                self.waiting[key] = Deferred()
                await self.waiting[key]
            self.begun.append(key)

        queue = WorkQueue(work, self.clock, self.tell)
        for number in range(MAX_WORKERS):
            queue.add(f"slow {number}")
        for number in range(2000):
            self.waiting[str(number)] = Deferred()  # its work ends at once
            queue.add(str(number))
        self.assertEqual(self.begun, [])
        self.waiting["slow 0"].callback(None)
        self.assertLess(len(self.begun), 100)
        for _ in range(50):
            self.clock.advance(0)
        self.assertEqual(self.begun, ["slow 0", *map(str, range(2000))])
        self.assertEqual(len(queue), MAX_WORKERS - 1)
        self.successResultOf(queue.stop())

    def test_stop_of_many(self) -> None:
        """Stopping cancels only the running work, however many keys wait."""

        async def work(key: str) -> None:
            self.begun.append(key)
            await Deferred()

        queue = WorkQueue(work, self.clock, self.tell)
        for number in range(2000):
            queue.add(str(number))
        self.successResultOf(queue.stop())
        self.assertEqual(len(self.begun), MAX_WORKERS)
        self.assertEqual(self.clock.getDelayedCalls(), [])

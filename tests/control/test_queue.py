"""Tests for :mod:`twisted_exec.control.queue`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.control.queue import (
    LONGEST_RETRY_SECONDS,
    MAX_WORKERS,
    SLICE_SECONDS,
    Again,
    WorkQueue,
)


class QueueTests(SynchronousTestCase):
    """Tests for :class:`WorkQueue`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.waiting: dict[str, Deferred[float | None]] = {}
        self.begun: list[str] = []
        self.reported: list[tuple[str, int]] = []
        self.queue: WorkQueue[str] = WorkQueue(self.work, self.clock, self.report)

    async def work(self, key: str) -> float | None:
        self.begun.append(key)
        self.waiting[key] = Deferred()
        return await self.waiting[key]

    def report(self, key: str, refused: APIError, failures: int) -> None:
        self.reported.append((refused.message, failures))

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
        self.assertEqual(self.reported[-1], ("down", 11))

    def test_after(self) -> None:
        """A key that is added for several times runs at the earliest, and once for all of them."""
        self.queue.add_after("a", 10.0)
        self.queue.add_after("a", 5.0)
        self.queue.add_after("a", 7.0)
        self.clock.advance(4.9)
        self.assertEqual(self.begun, [])
        self.clock.advance(0.1)
        self.assertEqual(self.begun, ["a"])
        self.queue.add_after("a", 3.0)  # its work is running: the time counts from now
        self.clock.advance(2.0)
        self.waiting["a"].callback(None)
        self.clock.advance(0.9)
        self.assertEqual(self.begun, ["a"])
        self.clock.advance(0.1)
        self.waiting["a"].callback(None)
        self.assertEqual((self.begun, len(self.queue)), (["a", "a"], 0))
        self.queue.add_after("a", 3.0)
        self.queue.add("a")
        self.assertEqual(self.begun, ["a"] * 3)

    def test_again(self) -> None:
        """A worker says when its key runs again; an earlier addition takes its place."""
        self.queue.add("a")
        self.waiting["a"].callback(30.0)
        self.queue.add("a")
        self.waiting["a"].callback(30.0)
        self.clock.advance(29.9)
        self.assertEqual(self.begun, ["a", "a"])
        self.clock.advance(0.1)
        self.assertEqual(self.begun, ["a"] * 3)

    def test_needs_time(self) -> None:
        """A worker that needs time is called again with back-off, within its limit; nothing is reported."""
        self.queue.add("a")
        for number in range(1, 12):
            self.assertEqual((len(self.begun), self.queue.is_running("a")), (number, True))
            self.waiting["a"].errback(Again(5.0))
            self.assertEqual((self.queue.is_running("a"), "a" in self.queue), (False, True))
            self.queue.add("a")
            self.clock.advance(5.0)
        self.assertEqual(self.reported, [])

    def test_needed_time_before(self) -> None:
        """A worker that needed time has not failed: only errors count as failures in succession."""
        self.queue.add("a")
        for error in (Again(), ServiceUnavailable("down"), Again(), ServiceUnavailable("down")):
            self.waiting["a"].errback(error)
            self.clock.advance(LONGEST_RETRY_SECONDS)
        self.assertEqual(self.reported, [("down", 1), ("down", 2)])

    def test_forget(self) -> None:
        """A forgotten key does not run, wherever it waits; running work continues, and is not repeated."""
        self.queue.add_after("delayed", 1.0)
        self.queue.add("failed")
        self.waiting["failed"].errback(ServiceUnavailable("down"))
        for number in range(MAX_WORKERS):
            self.queue.add(f"running {number}")
        self.queue.add("queued")
        self.queue.add("running 0")
        for key in ("delayed", "failed", "queued", "running 0", "unknown"):
            self.queue.forget(key)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.waiting["running 0"].callback(None)
        self.clock.advance(0)
        self.assertEqual(self.begun, ["failed", *(f"running {n}" for n in range(MAX_WORKERS))])
        self.assertEqual(len(self.queue), MAX_WORKERS - 1)

    def test_forget_and_cancel(self) -> None:
        """Forgetting a key can end its work, which is not repeated; the key can be added again."""
        self.queue.add("a")
        first = self.waiting["a"]
        self.queue.forget("a", cancel=True)
        self.assertTrue(first.called)
        self.assertEqual((len(self.queue), self.clock.getDelayedCalls()), (0, []))
        self.queue.add("a")
        self.assertEqual(self.begun, ["a", "a"])

    def test_busy_server(self) -> None:
        """A key of which a server says when to try again waits at least so long, within a limit."""
        for asked, pause in ((20, 20.0), (3600, LONGEST_RETRY_SECONDS)):
            self.begun.clear()
            self.queue.hurry("a")
            self.clock.advance(0)
            busy = ServiceUnavailable("busy", retry_after_seconds=asked)
            self.waiting["a"].errback(busy)
            self.clock.advance(pause - 0.1)
            self.assertEqual(self.begun, ["a"])
            self.clock.advance(0.1)
            self.assertEqual(self.begun, ["a", "a"])
            self.waiting["a"].errback(busy)

    def test_in_turn(self) -> None:
        """A key that is added all the time delays each other by one run."""
        queue = WorkQueue(self.work, self.clock, workers=1)
        for key in "abc":
            queue.add(key)
        for key in "abca":
            queue.add("a")
            self.assertEqual(self.begun[-1], key)
            self.waiting[key].callback(None)
            self.clock.advance(0)

    def test_one_fails_for_ever(self) -> None:
        """Of ten thousand keys the others are done once, and a failing one is retried once a minute."""

        async def work(key: int) -> None:
            done.append(key)
            if key == 5000:
                raise ServiceUnavailable("down")

        done: list[int] = []
        queue = WorkQueue(work, self.clock)
        for key in range(10_000):
            queue.add(key)
        self.assertEqual((len(done), len(queue)), (10_000, 1))
        self.clock.pump([1.0] * 3600)
        self.assertEqual(set(done[10_000:]), {5000})
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        retries = len(done) - 10_000
        self.assertTrue(60 <= retries <= 130, retries)

    def test_metrics(self) -> None:
        """The metrics say how many keys wait, how long they waited, and how many were retried."""
        registry = CollectorRegistry()
        metrics = WorkQueueMetrics(registry).of("c")
        queue = WorkQueue(self.work, self.clock, workers=1, metrics=metrics)

        def value(name: str) -> float | None:
            return registry.get_sample_value(f"workqueue_{name}", {"name": "c"})

        for key in "abcd":
            queue.add(key)
        self.assertEqual(value("depth"), 3)
        queue.forget("d")
        self.clock.advance(5.0)
        self.waiting["a"].errback(ServiceUnavailable("down"))
        self.assertEqual((value("depth"), value("retries_total")), (1, 1))
        self.assertEqual(value("queue_duration_seconds_sum"), 5.0)
        self.successResultOf(queue.stop())
        self.assertEqual(value("depth"), 0)

    def test_stuck(self) -> None:
        """The metrics say how long workers have been at their keys, in all queues of a name."""
        registry = CollectorRegistry()
        metrics = WorkQueueMetrics(registry)
        queues = [WorkQueue(self.work, self.clock, metrics=metrics.of("c")) for _ in range(2)]

        def values() -> list[float | None]:
            names = ("unfinished_work_seconds", "longest_running_processor_seconds")
            return [registry.get_sample_value(f"workqueue_{each}", {"name": "c"}) for each in names]

        self.assertEqual(values(), [0, 0])
        queues[0].add("a")
        self.clock.advance(100)
        queues[1].add("b")
        self.clock.advance(10)
        self.assertEqual(values(), [120, 110])
        self.waiting["a"].callback(None)
        self.assertEqual(values(), [10, 10])
        self.successResultOf(queues[1].stop())
        self.assertEqual(values(), [0, 0])

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
        self.queue.hurry("a")  # its work is running, so it runs once more, at once afterwards
        self.waiting["a"].errback(ServiceUnavailable("down"))
        self.clock.advance(0)
        self.assertEqual(len(self.begun), begun + 2)

    def test_a_bug(self) -> None:
        """An unexpected exception is logged, and the key is retried."""
        self.queue.add("a")
        self.waiting["a"].errback(RuntimeError("broken"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        told = "the controller failed (RuntimeError); its log says more"
        self.assertEqual(self.reported, [(told, 1)])
        self.clock.advance(LONGEST_RETRY_SECONDS)
        self.assertEqual(self.begun, ["a", "a"])
        self.waiting["a"].errback(RuntimeError("broken"))
        self.assertEqual(
            (len(self.flushLoggedErrors()), len(self.reported)), (0, 2), "the same again"
        )
        self.clock.advance(LONGEST_RETRY_SECONDS)
        self.waiting["a"].errback(RuntimeError("broken in another way"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_stop(self) -> None:
        """Stopping cancels running and waiting keys; later keys do not start."""
        for key in ("a", "b"):
            self.queue.add(key)
        self.waiting["b"].errback(ServiceUnavailable("down"))
        self.successResultOf(self.queue.stop())
        self.queue.add("c")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.begun, ["a", "b"])

    def test_drained(self) -> None:
        """One can wait until all keys are done, but for those that wait for their time."""
        for number in range(MAX_WORKERS + 1):
            self.queue.add(str(number))
        self.queue.add_after("later", 60.0)
        drained = self.queue.drained()
        for number in range(MAX_WORKERS + 1):
            self.assertNoResult(drained)
            self.waiting[str(number)].callback(None)
        self.successResultOf(drained)
        self.successResultOf(self.queue.drained())
        self.queue.add("0")
        self.queue.drained().addErrback(lambda _: None).cancel()
        self.waiting["0"].callback(None)

    def test_restart(self) -> None:
        """A stopped queue that starts again knows nothing of before."""
        self.queue.add("a")
        self.waiting["a"].errback(ServiceUnavailable("down"))
        self.queue.add("b")
        self.successResultOf(self.queue.stop())
        self.queue.start()
        self.assertEqual(len(self.queue), 0)
        self.queue.add("a")
        self.assertEqual(self.begun, ["a", "b", "a"])

    def test_broken_report(self) -> None:
        """A key is retried also if the report of its failure fails."""

        def report(*_: object) -> None:
            raise ZeroDivisionError

        queue = WorkQueue(self.work, self.clock, report)
        queue.add("a")
        self.waiting["a"].errback(ServiceUnavailable("down"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(LONGEST_RETRY_SECONDS)
        self.assertEqual(self.begun, ["a", "a"])

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

        queue = WorkQueue(work, self.clock, self.report)
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

        queue = WorkQueue(work, self.clock, self.report)
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

    def test_short_turns(self) -> None:
        """Work that takes long leaves the reactor to others after each key."""

        async def work(key: int) -> None:
            done.append(key)
            self.clock.rightNow += SLICE_SECONDS

        done: list[int | str] = []
        queue = WorkQueue(work, self.clock)
        for key in range(5):
            queue.add(key)
        self.clock.callLater(0, done.append, "another")
        self.assertEqual(done, [0])
        self.clock.advance(0)
        self.assertEqual(done, [0, 1, "another", 2, 3, 4])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_of_many(self) -> None:
        """Stopping cancels only the running work, however many keys wait."""

        async def work(key: str) -> None:
            self.begun.append(key)
            await Deferred()

        queue = WorkQueue(work, self.clock, self.report)
        for number in range(2000):
            queue.add(str(number))
        self.successResultOf(queue.stop())
        self.assertEqual(len(self.begun), MAX_WORKERS)
        self.assertEqual(self.clock.getDelayedCalls(), [])

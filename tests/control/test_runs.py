"""Tests for :mod:`twisted_exec.control.runs`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.control.runs import BackgroundTask, Failures, StoppingParts


class Waits(BackgroundTask):
    """Goes on until the test says so."""

    def __init__(self) -> None:
        self.under_way: Deferred[None] = Deferred()
        self.crashes: list[Failure] = []

    def start(self) -> None:
        """Begin to wait."""
        self._begin(self._run())

    async def _run(self) -> None:
        await self.under_way

    def _crashed(self, failure: Failure) -> None:
        self.crashes.append(failure)


class RunningTests(SynchronousTestCase):
    """Tests for :class:`BackgroundTask`."""

    def test_stopped(self) -> None:
        """Stopping cancels the task without reporting a crash; a second stop does nothing."""
        waits = Waits()
        self.successResultOf(waits.stop())
        waits.start()
        self.successResultOf(waits.stop())
        self.assertTrue(waits.under_way.called)
        self.successResultOf(waits.stop())
        self.assertEqual(waits.crashes, [])

    def test_crashed(self) -> None:
        """An unexpected error is reported as a crash when it happens, and not again at the stop."""
        waits = Waits()
        waits.start()
        waits.under_way.errback(OSError("gone"))
        self.assertEqual([each.type for each in waits.crashes], [OSError])
        self.successResultOf(waits.stop())
        self.assertEqual(len(waits.crashes), 1)


class FailuresTests(SynchronousTestCase):
    """Tests for :class:`Failures`."""

    def test_each(self) -> None:
        """All blocks run, and the first failure is raised in the end."""
        failures, done = Failures(), []
        for number in range(4):
            with failures.noted():
                if number in (1, 2):
                    raise ValueError(number)
                done.append(number)
        self.assertEqual(done, [0, 3])
        self.assertEqual(self.assertRaises(ValueError, failures.raise_first).args, (1,))

    def test_none(self) -> None:
        """Without a failure nothing is raised."""
        failures = Failures()
        with failures.noted():
            pass
        failures.raise_first()

    def test_cancelled(self) -> None:
        """A cancellation ends the run."""
        failures = Failures()
        with self.assertRaises(CancelledError), failures.noted():
            raise CancelledError
        failures.raise_first()


class StoppingTests(SynchronousTestCase):
    """Tests for :class:`StoppingParts`."""

    def test_over(self) -> None:
        """over() waits for all added parts; finished parts are dropped."""
        stopping, first, second = StoppingParts(), Deferred[None](), Deferred[None]()
        stopping.add(first)
        stopping.add(second)
        stopping.add(succeed(None))
        over = stopping.over()
        first.callback(None)
        self.assertEqual(len(stopping), 1)
        self.assertNoResult(over)
        second.callback(None)
        self.successResultOf(over)
        self.assertEqual(len(stopping), 0)
        self.successResultOf(stopping.over())

    def test_failure(self) -> None:
        """A part that fails while stopping is logged and does not prevent the end."""
        stopping = StoppingParts()
        stopping.add(fail(ZeroDivisionError()))
        self.successResultOf(stopping.over())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

"""
Tests for :mod:`twisted_exec.program.service`.
"""

from __future__ import annotations

import gc

from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.service import AsyncService, ServiceWithCleanup


class Slow(AsyncService):
    """Is ready when the test says so."""

    label = "snail"

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    async def start(self) -> None:
        """Waits for the test."""
        self.collects = gc.isenabled()
        self.under_way: Deferred[None] = Deferred()
        try:
            await self.under_way
        except CancelledError:
            self.done.append("cancelled")
            raise

    async def stop(self) -> None:
        """Records the stop."""
        self.done.append("stopped")


class StartingTests(SynchronousTestCase):
    """Tests for :class:`AsyncService`."""

    def setUp(self) -> None:
        self.service = Slow()
        self.told: list[LogEvent] = []
        globalLogPublisher.addObserver(self.told.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.told.append)

    def test_ready(self) -> None:
        """when_ready() fires when the service is ready, called before or after that."""
        before = self.service.when_ready()
        self.service.startService()
        self.assertNoResult(before)
        self.service.under_way.callback(None)
        self.successResultOf(before)
        self.successResultOf(self.service.when_ready())

    def test_no_collections(self) -> None:
        """No garbage is collected while a start makes its objects; then it goes on as before."""
        self.addCleanup(gc.enable)
        for collects in (True, False):
            (gc.enable if collects else gc.disable)()
            self.service.startService()
            self.assertFalse(self.service.collects)
            self.assertEqual(gc.isenabled(), collects)
            self.service.under_way.callback(None)

    def test_failure(self) -> None:
        """when_ready() fails with the reason, which is then not reported anywhere else."""
        waiting = self.service.when_ready()
        self.service.startService()
        self.service.under_way.errback(OSError("no room"))
        self.assertEqual(str(self.failureResultOf(waiting, OSError).value), "no room")
        self.failureResultOf(self.service.when_ready(), OSError)
        self.assertEqual(self.told, [])

    def test_failure_of_a_part(self) -> None:
        """If one of several gathered parts fails, when_ready() fails with that part's error."""
        waiting = self.service.when_ready()
        self.service.startService()
        part: Deferred[None] = Deferred()
        gatherResults([part], consumeErrors=True).chainDeferred(self.service.under_way)  # type: ignore[arg-type]
        part.errback(OSError("no room"))
        self.failureResultOf(waiting, OSError)

    def test_nobody_asks(self) -> None:
        """A failed start is logged if when_ready() was not called."""
        self.service.startService()
        self.service.under_way.errback(OSError("no room"))
        (event,) = self.told
        self.assertEqual(event["log_format"].format(**event), "snail: no room")
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_given_up(self) -> None:
        """A stop cancels a start under way, then undoes it, and reports no failure."""
        waiting = self.service.when_ready()
        self.service.startService()
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.service.done, ["cancelled", "stopped"])
        self.assertNoResult(waiting)
        self.assertEqual(self.told, [])

    def test_parts_given_up(self) -> None:
        """Cancelling a start that waits for several parts is not a failure."""
        waiting = self.service.when_ready()
        self.service.startService()
        self.service.under_way.errback(self.cancelled(Deferred()))
        self.assertNoResult(waiting)
        self.assertEqual(self.told, [])

    def cancelled(self, part: Deferred[None]) -> Failure:
        """Return the failure of a gathered Deferred after this part of it is cancelled."""
        parts = gatherResults([part], consumeErrors=True)
        part.cancel()
        return self.failureResultOf(parts, FirstError)

    def test_again(self) -> None:
        """After a restart, when_ready() waits for the second start."""
        self.service.startService()
        self.service.under_way.callback(None)
        self.successResultOf(self.service.stopService())
        self.service.startService()
        waiting = self.service.when_ready()
        self.assertNoResult(waiting)
        self.service.under_way.callback(None)
        self.successResultOf(waiting)


class OutlivedTests(SynchronousTestCase):
    """Tests for :class:`ServiceWithCleanup`."""

    def test_order(self) -> None:
        """Stopping closes what the service uses after the service itself, and waits for both."""
        slow, closed = Slow(), Deferred[None]()

        def close() -> Deferred[None]:
            slow.done.append("closed")
            return closed

        outlived = ServiceWithCleanup(slow, close)
        outlived.startService()
        slow.under_way.callback(None)
        self.successResultOf(slow.when_ready())
        stopping = outlived.stopService()
        self.assertEqual((slow.done, slow.running), (["stopped", "closed"], False))
        self.assertNoResult(stopping)
        closed.callback(None)
        self.successResultOf(stopping)

"""
Tests for :mod:`twisted_exec.program.tasks`.
"""

from __future__ import annotations

import gc
import weakref

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import NotFound
from twisted_exec.program.tasks import settled


class SettledTests(SynchronousTestCase):
    """Tests for :func:`settled`."""

    def test_result(self) -> None:
        """A result is that of the Deferred."""
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(settled(succeed(7)))), 7)

    def test_errors_are_freed(self) -> None:
        """An error that was handled is freed at once, whether there was one before or later."""

        waiting: list[Deferred[None]] = []

        async def is_handled() -> bool:
            try:
                await settled(waiting.pop())
            except NotFound:
                return True
            return False

        gc.disable()
        self.addCleanup(gc.enable)
        for is_before in (True, False):
            error, done = NotFound("machines", "vm"), Deferred[None]()
            left = weakref.ref(error)
            if is_before:
                done.errback(error)
            waiting.append(done)
            handled = Deferred.fromCoroutine(is_handled())
            if not is_before:
                done.errback(error)
            del error, done
            self.assertTrue(self.successResultOf(handled))
            self.assertIsNone(left())

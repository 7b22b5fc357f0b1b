"""
What a coroutine keeps in order, from when it is begun until it is stopped.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure


class Running:
    """Has one coroutine under way, or none."""

    _running: Deferred[None] | None = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._running = Deferred.fromCoroutine(work).addErrback(self._ended)

    def stop(self) -> Deferred[None]:
        """Cancel what is under way; fires when nothing is left."""
        running, self._running = self._running, None
        if running is None:
            return succeed(None)
        running.cancel()
        return running

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._crashed(failure)

    def _crashed(self, failure: Failure) -> None:
        """It has ended by something that nobody thought of; to be told."""
        raise NotImplementedError

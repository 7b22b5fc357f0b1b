"""
What is under way: a coroutine, from when it is begun until it is stopped, and whatever is being stopped.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.logger import Logger
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


class Stopping:
    """Parts of something that are being stopped, one after another while it goes on."""

    _log = Logger()

    def __init__(self) -> None:
        self._under_way: set[Deferred[Any]] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, stopping: Deferred[Any]) -> None:
        """One more; what it fails with is logged."""
        self._under_way.add(stopping)
        stopping.addErrback(lambda failure: self._log.failure("while stopping", failure))
        stopping.addBoth(lambda _: self._under_way.discard(stopping))

    def over(self) -> Deferred[Any]:
        """Fires when all that were added until now have stopped; never fails."""
        return DeferredList(list(self._under_way))

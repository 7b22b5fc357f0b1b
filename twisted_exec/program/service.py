"""
Services of a program, whose start may fail.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

S = TypeVar("S", bound="AsyncService")

SUMMARY = "summary"
"""
Key of events that a program may show to a user at a terminal, without the rest of the log: with the warnings, so the
end of what a warning says has it.
"""


class AsyncService(Service):
    """
    A service whose start is a coroutine.

    Subclasses implement :meth:`start` and :meth:`stop`.
    """

    label = ""
    _log = Logger()

    def __init__(self) -> None:
        self._starting: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._outcome: Failure | bool = False

    async def start(self) -> None:
        """Do everything that is needed to be ready."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Undo :meth:`start`, also if it was cancelled half way."""
        raise NotImplementedError

    def startService(self) -> None:
        """Start; :meth:`when_ready` reports the result."""
        super().startService()
        self._outcome = False
        collects = gc.isenabled()
        gc.disable()  # a third of the time with 10 000 stored objects, none of which is garbage
        try:
            self._starting = Deferred.fromCoroutine(self.start())
        finally:
            if collects:
                gc.enable()
        self._starting.addCallbacks(lambda _: self._settle(True), self._failed)

    def when_ready(self) -> Deferred[None]:
        """Fires when :meth:`start` has completed, unless it is stopped; fails with its error."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        if self._outcome:
            self._settle(self._outcome)
        return waiting

    def stopService(self) -> Deferred[None]:
        """Cancel a running start, and stop; fires when everything has stopped."""
        super().stopService()
        if self._starting is not None:
            self._starting.cancel()
        return Deferred.fromCoroutine(self.stop())

    def _failed(self, failure: Failure) -> None:
        reason = getattr(failure.value, "subFailure", failure)  # of gatherResults
        if not reason.check(CancelledError):
            self._settle(reason)

    def _settle(self, outcome: Failure | bool) -> None:
        self._outcome = outcome
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if isinstance(outcome, Failure):
                waiter.errback(outcome)
            else:
                waiter.callback(None)
        if isinstance(outcome, Failure) and not waiting:
            why = outcome.getErrorMessage()
            self._log.failure("{label}: {why}", outcome, label=self.label, why=why)


class ServiceWithCleanup(Service, Generic[S]):
    """A service with resources that are closed after it has stopped."""

    def __init__(self, served: S, close: Callable[[], Deferred[None]]) -> None:
        self.served, self._close = served, close

    def when_ready(self) -> Deferred[None]:
        return self.served.when_ready()

    def startService(self) -> None:
        super().startService()
        self.served.startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.served.stopService()
        await self._close()

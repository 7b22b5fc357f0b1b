"""Coroutines in the background, failures of single objects, and parts that stop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, InternalError


class BackgroundTask:
    """Mixin: runs at most one coroutine in the background."""

    _running: Deferred[None] | None = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._running = Deferred.fromCoroutine(work).addErrback(self._ended)

    def stop(self) -> Deferred[None]:
        """Cancel the coroutine; fires when it has ended."""
        running, self._running = self._running, None
        if running is None:
            return succeed(None)
        running.cancel()
        return running

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._crashed(failure)

    def _crashed(self, failure: Failure) -> None:
        raise NotImplementedError


class SingleRun:
    """Work of which at most one run is active."""

    _log = Logger()

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        self._run, self._what = run, what
        self._is_active = False
        self._waiting: list[Deferred[None]] = []

    def start(self) -> None:
        """Begin a run, unless one is active."""
        if not self._is_active:
            self._is_active = True
            Deferred.fromCoroutine(self._run()).addErrback(self._failed).addBoth(self._over)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("{what} failed", failure=failure, what=self._what)

    def _over(self, _: object) -> None:
        self._is_active = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)

    def ended(self) -> Deferred[None]:
        """Wait for the active run, if there is one."""
        waiter: Deferred[None] = Deferred()
        if self._is_active:
            self._waiting.append(waiter)
        else:
            waiter.callback(None)
        return waiter


def readable(error: object) -> APIError:
    """
    Return an error that users may read.

    Of a bug that is only its type, because its text may be about something secret.
    """
    if isinstance(error, APIError):
        return error
    return InternalError(f"the controller failed ({type(error).__name__}); its log says more")


class Failures:
    """The failures of single objects in a run over many: the others do not wait."""

    def __init__(self) -> None:
        self.first: Exception | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Take note of a failure of the block, but not of a cancellation."""
        try:
            yield
        except CancelledError:
            raise
        except Exception as error:
            self.first = self.first or error

    def raise_first(self) -> None:
        """Raise the first failure, if there was one, so that the run is repeated."""
        first, self.first = self.first, None
        try:
            if first is not None:
                raise first
        finally:
            del first  # else the error and this frame would refer to each other


class StoppingParts:
    """The parts of a running service that are stopping."""

    _log = Logger()

    def __init__(self) -> None:
        self._under_way: set[Deferred[Any]] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, stopping: Deferred[Any]) -> None:
        """Add a part by the Deferred of its stop; a failure is logged."""
        self._under_way.add(stopping)
        stopping.addErrback(lambda failure: self._log.failure("while stopping", failure))
        stopping.addBoth(lambda _: self._under_way.discard(stopping))

    def over(self) -> Deferred[Any]:
        """Fires when the parts added so far have stopped."""
        return DeferredList(list(self._under_way))

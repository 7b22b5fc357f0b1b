"""
A work queue by key: one worker per key at a time, a limit for all, and back-off for keys that fail.

A program for several clusters has one queue for each, so that a dead cluster does not delay the
others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.kube.informers.reflector import Backoff

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
MAX_WORKERS = 8
SLICE = 50
"""Number of workers to start per turn of the reactor."""

K = TypeVar("K", bound=Hashable)


@dataclass
class _Work:
    """The state of one key; removed after a success."""

    backoff: Backoff = field(
        default_factory=lambda: Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    )
    busy: bool = False
    running: Deferred[None] | None = None
    """The running worker, to cancel it; ``None`` while the worker starts."""
    again: bool = False
    """Whether the key was added again since the worker started."""
    timer: IDelayedCall | None = None
    failures: int = 0


class WorkQueue(Generic[K]):
    """
    A queue of keys.

    :param work: handles one key; called again with back-off after a failure.
    :param refused: called with the key, the error, and the number of consecutive failures of this
        key.
    """

    _log = Logger()

    def __init__(
        self,
        work: Callable[[K], Awaitable[None]],
        clock: IReactorTime,
        refused: Callable[[K, APIError, int], None] = lambda *_: None,
    ) -> None:
        self._do, self._clock, self._told = work, clock, refused
        self._work: dict[K, _Work] = {}
        self._waiting: deque[tuple[K, _Work]] = deque()
        self._at_work = 0
        self._next_turn: IDelayedCall | None = None
        self._is_beginning = self._stopped = False

    def __len__(self) -> int:
        return len(self._work)

    def add(self, key: K) -> None:
        """
        Queue a key; a key that is queued already stays queued once.

        A key that failed lately waits for its back-off: frequent changes must not bypass it.
        """
        if self._stopped:
            return
        work = self._work.setdefault(key, _Work())
        if work.busy:
            work.again = True
        elif work.timer is None:
            self._begin(key, work)

    def hurry(self, key: K) -> None:
        """
        Queue a key without waiting for its back-off, because the cause of its failure has changed.
        """
        work = self._work.get(key)
        if work is not None and work.timer is not None and not self._stopped:
            work.backoff.reset()
            work.timer.reset(0.0)
        else:
            self.add(key)

    def stop(self) -> Deferred[None]:
        """Cancel all workers; fires when they have ended."""
        self._stopped = True
        self._waiting.clear()
        calls = [self._next_turn, *(work.timer for work in self._work.values())]
        for call in calls:
            if call is not None and call.active():
                call.cancel()
        ending = [work.running for work in self._work.values() if work.running is not None]
        for running in ending:
            running.cancel()
        done: Deferred[None] = DeferredList(ending).addCallback(lambda _: None)
        return done

    def _begin(self, key: K, work: _Work) -> None:
        work.timer, work.again, work.busy = None, False, True
        self._waiting.append((key, work))
        if self._next_turn is None:
            self._begin_some()

    def _begin_some(self) -> None:
        """
        Start workers in the free slots.

        A worker that completes synchronously frees its slot here.  The loop starts the next without
        recursion, and returns to the reactor after a number of them.
        """
        self._next_turn = None
        if self._is_beginning:
            return
        self._is_beginning, begun = True, 0
        while self._waiting and self._at_work < MAX_WORKERS and begun < SLICE:
            key, work = self._waiting.popleft()
            self._at_work += 1
            begun += 1
            done = Deferred.fromCoroutine(self._one(key))
            work.running = done
            done.addBoth(self._ended, key, work)
        self._is_beginning = False
        if begun == SLICE and self._waiting:
            self._next_turn = self._clock.callLater(0, self._begin_some)

    async def _one(self, key: K) -> None:
        await self._do(key)

    def _ended(self, result: object, key: K, work: _Work) -> None:
        work.running, work.busy = None, False
        self._at_work -= 1
        if self._stopped:
            return
        self._settle(key, work, result)
        if self._waiting and self._next_turn is None:
            self._begin_some()

    def _settle(self, key: K, work: _Work, result: object) -> None:
        if isinstance(result, Failure):
            self._failed(key, work, result)
        elif work.again:
            work.timer = self._clock.callLater(0, self._begin, key, work)
            work.failures = 0
            work.backoff.reset()
        else:
            del self._work[key]

    def _failed(self, key: K, work: _Work, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        work.failures += 1
        if isinstance(failure.value, APIError):
            self._told(key, failure.value, work.failures)
        else:
            self._log.failure("work on {key} failed", failure, key=key)
        work.timer = self._clock.callLater(work.backoff.pause(), self._begin, key, work)

"""
Work by keys: one worker for each key at a time, so many at once, and a pause that grows where it fails.

Who works for several clusters has a queue for each, so that one that is dead keeps no other waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.kube.watch import Backoff

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
MAX_WORKERS = 8

K = TypeVar("K", bound=Hashable)


@dataclass
class _Work:
    """What is known about one key; it is forgotten when its work went well."""

    backoff: Backoff = field(
        default_factory=lambda: Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    )
    busy: bool = False
    running: Deferred[None] | None = None
    """What is to be cancelled at the end; there is none yet while the worker begins."""
    again: bool = False
    """There is something new since the worker began."""
    timer: IDelayedCall | None = None
    failures: int = 0


class WorkQueue(Generic[K]):
    """
    Keys to be looked at.

    :param work: looks at one; what it fails with, it is asked again for.
    :param told: called with each failure and how many there were for that key in a row.
    """

    _log = Logger()

    def __init__(
        self,
        work: Callable[[K], Awaitable[None]],
        clock: IReactorTime,
        told: Callable[[K, APIError, int], None] = lambda *_: None,
    ) -> None:
        self._do, self._clock, self._told = work, clock, told
        self._work: dict[K, _Work] = {}
        self._slots = DeferredSemaphore(MAX_WORKERS)
        self._at_work: set[K] = set()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._work)

    def add(self, key: K) -> None:
        """
        Look at a key, soon; once for all who say so before.

        Where it failed lately its pause goes on: whatever changes that often is no reason to hurry.
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
        Look at a key now, although it failed lately: somebody has changed what made it fail, and waits.
        """
        work = self._work.get(key)
        if work is not None and work.timer is not None and not self._stopped:
            work.backoff.reset()
            work.timer.reset(0.0)
        else:
            self.add(key)

    def stop(self) -> Deferred[None]:
        """Cancel all work; fires when none is left."""
        self._stopped = True
        ending = []
        # Those who wait go first: each that ended with its slot would let the next one have it, one within another.
        waiting_first = sorted(self._work.items(), key=lambda item: item[0] in self._at_work)
        for _, work in waiting_first:
            if work.timer is not None and work.timer.active():
                work.timer.cancel()
            if work.running is not None:
                ending.append(work.running)
                work.running.cancel()
        done: Deferred[None] = DeferredList(ending).addCallback(lambda _: None)
        return done

    def _begin(self, key: K, work: _Work) -> None:
        work.timer, work.again, work.busy = None, False, True
        done: Deferred[None] = self._slots.run(lambda: Deferred.fromCoroutine(self._one(key)))
        done.addBoth(lambda result: self._ended(key, work, result))
        # Nothing else tells: one that got its slot at once has "been called", and waits all the same.
        if work.busy:
            work.running = done

    async def _one(self, key: K) -> None:
        if self._stopped:  # whoever is cancelled makes room
            return
        self._at_work.add(key)
        try:
            await self._do(key)
        finally:
            self._at_work.discard(key)

    def _ended(self, key: K, work: _Work, result: object) -> None:
        work.running, work.busy = None, False
        if self._stopped:
            return
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

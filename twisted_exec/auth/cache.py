"""
A short-lived cache of answers that cost a round trip.

Concurrent requests for the same key share one round trip. Failures are not cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

T = TypeVar("T")


class AnswerCache(Generic[T]):
    """
    Cached answers.

    :param keep_seconds: lifetime of an answer in seconds; 0 to not cache it.
    :param size: largest number of cached answers.
    """

    def __init__(
        self, clock: IReactorTime, keep_seconds: Callable[[T], float], size: int = 8192
    ) -> None:
        self._clock, self._keep_seconds, self._size = clock, keep_seconds, size
        self._answers: OrderedDict[bytes, tuple[float, T]] = OrderedDict()
        self._waiters: dict[bytes, list[Deferred[T]]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes, ask: Callable[[], Awaitable[T]]) -> Deferred[T]:
        """
        Return the cached answer, or that of ``ask()``.

        Cancelling the Deferred gives up this caller only.
        """
        waiter: Deferred[T] = Deferred()
        cached = self._answers.get(key)
        if cached is not None and self._clock.seconds() < cached[0]:
            self._answers.move_to_end(key)
            waiter.callback(cached[1])
        elif key in self._waiters:
            self._waiters[key].append(waiter)
        else:
            self._waiters[key] = [waiter]
            self._ask(key, ask)
        return waiter

    def clear(self) -> None:
        """Forget all answers, also those of round trips that are under way."""
        self._answers.clear()
        self._waiters = {}

    def _ask(self, key: bytes, ask: Callable[[], Awaitable[T]]) -> None:
        began, waiters = self._clock.seconds(), self._waiters

        async def asking() -> T:
            return await ask()

        def answered(result: T | Failure) -> None:
            if not isinstance(result, Failure) and waiters is self._waiters:
                # From the start of the request: the answer may be as old as that.
                self._remember(key, began, result)
            for waiter in waiters.pop(key):
                if not waiter.called:
                    waiter.callback(result)

        Deferred.fromCoroutine(asking()).addBoth(answered)

    def _remember(self, key: bytes, began: float, answer: T) -> None:
        self._answers[key] = began + self._keep_seconds(answer), answer
        self._answers.move_to_end(key)
        # The first has been of no use for the longest time: while it counts, the others are few.
        now = self._clock.seconds()
        while len(self._answers) > self._size or now >= next(iter(self._answers.values()))[0]:
            self._answers.popitem(last=False)
            if not self._answers:
                return

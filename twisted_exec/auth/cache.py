"""
Answers that cost a round trip, remembered for a moment.

Questions that are the same and open at the same time share one round trip.  Failures of
the asking itself are never remembered.  What is remembered is bounded in number
and in time; the time is what a withdrawn permission may still count.
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
    :param clock: ages the answers.
    :param keep_seconds: how long an answer counts; 0 not to remember it.
    :param size: how many answers are remembered.
    """

    def __init__(
        self, clock: IReactorTime, keep_seconds: Callable[[T], float], size: int = 8192
    ) -> None:
        self._clock, self._keep_seconds, self._size = clock, keep_seconds, size
        self._answers: OrderedDict[bytes, tuple[float, T]] = OrderedDict()
        self._asked: dict[bytes, list[Deferred[T]]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes, ask: Callable[[], Awaitable[T]]) -> Deferred[T]:
        """
        The remembered answer, or that of ``ask()``.

        Cancelling the Deferred gives up this question only; others may share it.
        """
        waiter: Deferred[T] = Deferred()
        known = self._answers.get(key)
        if known is not None and self._clock.seconds() < known[0]:
            self._answers.move_to_end(key)
            waiter.callback(known[1])
        elif key in self._asked:
            self._asked[key].append(waiter)
        else:
            self._asked[key] = [waiter]
            self._ask(key, ask)
        return waiter

    def _ask(self, key: bytes, ask: Callable[[], Awaitable[T]]) -> None:
        began = self._clock.seconds()

        async def asking() -> T:
            return await ask()

        def answered(result: T | Failure) -> None:
            if not isinstance(result, Failure):
                # Counted from the question: the answer is as old as that.
                self._remember(key, began, result)
            for waiter in self._asked.pop(key):
                if not waiter.called:
                    waiter.callback(result)

        Deferred.fromCoroutine(asking()).addBoth(answered)

    def _remember(self, key: bytes, began: float, answer: T) -> None:
        self._answers[key] = began + self._keep_seconds(answer), answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._size:
            self._answers.popitem(last=False)

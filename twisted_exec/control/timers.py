"""Functions that are called later."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Timers:
    """Functions that are due at a time, each of them once."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._due: dict[Callable[[], None], IDelayedCall] = {}

    def __contains__(self, function: Callable[[], None]) -> bool:
        return function in self._due

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function after a time, unless it is due already."""

        def call() -> None:
            del self._due[function]
            function()

        if function not in self._due:
            self._due[function] = self._clock.callLater(seconds, call)

    def cancel(self, function: Callable[[], None]) -> None:
        if (timer := self._due.pop(function, None)) is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        for function in list(self._due):
            self.cancel(function)

"""
Timers with names, which stop while the connection of a console is lost.

The modules that start them have their times, such as :mod:`.script` and :mod:`.window`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IDelayedCall, IReactorTime


@dataclass
class _Timer:
    seconds: float
    call: Callable[[], None]
    is_steady: bool
    pending: IDelayedCall | None = None


class PausableTimers:
    """
    Timers with names.

    While the connection is lost, most of what they wait for cannot happen.  So :meth:`pause` stops
    all but the steady ones, and :meth:`resume` starts them anew with their full time.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._timers: dict[str, _Timer] = {}
        self._is_paused = False

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def after(
        self, name: str, seconds: float, call: Callable[[], None], *, steady: bool = False
    ) -> None:
        """
        Call later, instead of the earlier call of that name.

        :param steady: the time goes on during a pause.
        """
        self.cancel(name)
        timer = self._timers[name] = _Timer(seconds, call, steady)
        if steady or not self._is_paused:
            self._start(name, timer)

    def restart(self, name: str) -> None:
        timer = self._timers.get(name)
        if timer is not None and timer.pending is not None:
            timer.pending.reset(timer.seconds)

    def cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None and timer.pending is not None:
            timer.pending.cancel()

    def cancel_all(self) -> None:
        for name in list(self._timers):
            self.cancel(name)

    def pause(self) -> None:
        """Stop all timers that are not steady."""
        self._is_paused = True
        for timer in self._timers.values():
            if timer.pending is not None and not timer.is_steady:
                timer.pending.cancel()
                timer.pending = None

    def resume(self) -> None:
        self._is_paused = False
        for name, timer in self._timers.items():
            if timer.pending is None:
                self._start(name, timer)

    def _start(self, name: str, timer: _Timer) -> None:
        timer.pending = self._clock.callLater(timer.seconds, self._due, name)

    def _due(self, name: str) -> None:
        self._timers.pop(name).call()

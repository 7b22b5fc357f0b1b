"""
Time that passes in tests with a simulated clock.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock


def pass_seconds(clock: Clock, seconds: float, pump: Callable[[], object] = lambda: None) -> None:
    """
    Let time pass from one delayed call to the next, which may delay further calls.

    :param pump: called at the beginning and after each step, such as to let a network work.
    """
    end = clock.seconds() + seconds
    pump()
    while (calls := clock.getDelayedCalls()) and calls[0].getTime() <= end:
        clock.advance(max(calls[0].getTime() - clock.seconds(), 0))
        pump()
    clock.advance(end - clock.seconds())
    pump()

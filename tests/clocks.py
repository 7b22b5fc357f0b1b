"""
Time that passes when a test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def expire(reactor: Any, seconds: float) -> None:
    """
    Let the time limits of a real reactor that end in ``seconds`` or later end now.

    With a limit of an hour, which no machine reaches however slow it is, a test decides what happens
    before the end of the limit.
    """
    for call in reactor.getDelayedCalls():
        if call.getTime() - reactor.seconds() >= seconds:
            call.reset(0)

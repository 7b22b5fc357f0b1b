"""Waiting for states that send no event, such as those of processes and files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater


async def until(
    is_so: Callable[[], bool | Awaitable[bool]],
    clock: IReactorTime,
    every_seconds: float,
    longest_seconds: float = inf,
) -> bool:
    """
    Wait for a state: look at once, and then again and again.

    A :class:`~twisted_exec.control.loop.PokedLoop` does work that is repeated for ever.

    :return: false if the state has not come in time.
    """
    end = clock.seconds() + longest_seconds
    while True:
        answer = is_so()
        if answer if isinstance(answer, bool) else await answer:
            return True
        if clock.seconds() >= end:
            return False
        await deferLater(clock, every_seconds)

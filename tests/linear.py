"""
Work whose cost grows no faster than its size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from timeit import timeit

GROWTH = 8.0
"""Largest growth of the CPU time with four times the size: linear work has 4, quadratic work 16."""
ROUNDS = 3
MOST_ROUNDS = 12
"""Work that seems to grow faster is measured so often: on a busy machine three rounds may all be slow."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """
    Return the CPU time of this thread that work takes, without garbage collection.

    Collections take the longer the more objects the process has, and large work starts more of them.
    """
    return timeit(work, timer=time.thread_time, number=1)


def assert_linear(work: Callable[[int], object], size: int, about: object = "") -> None:
    """
    Fail if ``work(4 * size)`` takes much more than four times the CPU time of ``work(size)``.

    Both are measured in the same thread, in turns and without garbage collection, and the best of
    three rounds counts, or of :data:`MOST_ROUNDS`: a slow or busy machine slows down both.

    :param work: all that it does counts, so it prepares little; it may run many times.
    :param size: so much that ``work(size)`` takes a millisecond or more, or fixed costs hide the growth.
    :param about: what a failure names, such as the case of a table.
    """
    small, large = [], []
    for number in range(1, MOST_ROUNDS + 1):
        for costs, of in ((small, size), (large, 4 * size)):
            costs.append(cpu_seconds(partial(work, of)))
        growth = min(large) / min(small)
        if number >= ROUNDS and growth <= GROWTH:
            return
    raise AssertionError(
        f"{about} {size} take {min(small):.4f} s of CPU time, {4 * size} take {min(large):.4f} s:"
        f" {growth:.1f} times as much, more than {GROWTH}"
    )


def assert_even(
    cost: Callable[[int], float], size: int, about: object, least_nanoseconds: float
) -> None:
    """
    Fail if a byte of ``4 * size`` takes much more CPU time than one of ``size``.

    :param cost: nanoseconds of CPU time for a byte, of so many bytes.
    :param about: what a failure names.
    :param least_nanoseconds: what takes less in all grows too little to tell.
    """
    small, large = [], []
    for _ in range(MOST_ROUNDS):
        small.append(cost(size))
        large.append(cost(4 * size))
        growth = 4 * min(large) / min(small)
        if growth <= GROWTH or 4 * size * min(large) < least_nanoseconds:
            return
    raise AssertionError(
        f"{about}: a byte of {size} takes {min(small):.0f} ns, of {4 * size} {min(large):.0f}"
    )

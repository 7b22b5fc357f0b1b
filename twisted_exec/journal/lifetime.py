"""
The life of a store of journals, which its parts share.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.control.timers import Timers
from twisted_exec.streaming.lifecycle import Living

_Result = TypeVar("_Result")


class StoreLife(Enum):
    """The phase of a store."""

    NEW = "new"
    OPEN = "open"
    CLOSING = "closing"
    """The disk gets the last output."""
    CLOSED = "closed"
    GIVEN_UP = "given up"
    """The stop has not waited for the disk: the next process may own the files."""


STORE_TRANSITIONS: Mapping[StoreLife, frozenset[StoreLife]] = {
    StoreLife.NEW: frozenset({StoreLife.OPEN}),
    StoreLife.OPEN: frozenset({StoreLife.CLOSING}),
    StoreLife.CLOSING: frozenset({StoreLife.CLOSED, StoreLife.GIVEN_UP}),
    StoreLife.CLOSED: frozenset(),
    StoreLife.GIVEN_UP: frozenset(),
}
"""What may follow each phase of a store's life."""


class Lifetime(Living[StoreLife]):
    """
    The life of one store.

    :param run_in_thread: runs a function in the thread for long work.
    """

    transitions = STORE_TRANSITIONS

    def __init__(
        self, clock: IReactorTime, run_in_thread: Callable[[Callable[[], Any]], Deferred[Any]]
    ) -> None:
        self.life = StoreLife.NEW
        self._timers = Timers(clock)
        self._run_in_thread = run_in_thread

    @property
    def is_open(self) -> bool:
        """Whether the store is open, and no stop is under way."""
        return self.life is StoreLife.OPEN

    @property
    def is_given_up(self) -> bool:
        """Whether nothing may be written any more; also for threads."""
        return self.life is StoreLife.GIVEN_UP

    def open(self) -> None:
        self._become(StoreLife.OPEN)

    def begin_closing(self) -> None:
        """Cancel what is due."""
        self._become(StoreLife.CLOSING)
        self._timers.cancel_all()

    def close(self) -> None:
        self._become(StoreLife.CLOSED)

    def give_up(self) -> None:
        self._become(StoreLife.GIVEN_UP)

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function after a time, unless it is due already; never if the store is not open."""
        if self.is_open:
            self._timers.later(seconds, function)

    def is_due(self, function: Callable[[], None]) -> bool:
        return function in self._timers

    def in_thread(self, function: Callable[[], _Result]) -> Deferred[_Result]:
        """Run a function in the thread for long work, which fails if the store has given up."""

        def work() -> _Result:
            if self.is_given_up:
                raise given_up()
            return function()

        return self._run_in_thread(work)


def given_up() -> OSError:
    """Return the error of work for which the stop has not waited."""
    return OSError(errno.ECANCELED, "the stop has not waited for the disk")

"""Coalesce triggers into runs, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class CoalescedRuns:
    """
    Runs a coroutine one at a time.

    :param failed: called with the failure of a run.
    :param again: called after a run during which another was requested; may call :meth:`ask`.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, None]],
        failed: Callable[[Failure], None],
        again: Callable[[], None],
    ) -> None:
        self._make, self._failed, self._ask_again = make, failed, again
        self._going = self._again = False

    def ask(self) -> None:
        """Start a run, or request one more after the current."""
        if self._going:
            self._again = True
            return
        self._going, self._again = True, False
        Deferred.fromCoroutine(self._make()).addErrback(self._failed).addBoth(self._over)

    def _over(self, _: object) -> None:
        self._going = False
        if self._again:
            self._ask_again()

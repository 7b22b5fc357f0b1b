"""
One pass at a time: what those who follow the store do when something has changed.

A pass reads what there is and does what is to be done; whatever changes while it is under way asks
for one more behind it, however much that is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class CoalescedRuns:
    """
    :param make: begins a pass.
    :param failed: told of one that failed, before the next.
    :param again: called when a pass is over during which another was asked for; it asks for that,
        when it is still wanted.
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
        """Begin a pass, or one more behind the one that is under way."""
        if self._going:
            self._again = True
            return
        self._going, self._again = True, False
        Deferred.fromCoroutine(self._make()).addErrback(self._failed).addBoth(self._over)

    def _over(self, _: object) -> None:
        self._going = False
        if self._again:
            self._ask_again()

"""
A disk that freezes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twisted_exec.program.disk_thread import AtOnce, Unanswered


class FreezableThread(AtOnce):
    """
    A thread whose disk freezes.

    :ivar is_frozen: functions wait for :meth:`thaw`.
    """

    def __init__(self) -> None:
        self.is_frozen = False
        self._waiting: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self._is_late = False

    def call(self, function: Callable[[], Any], *, is_long: bool = False) -> Any:
        if not self.is_frozen:
            return function()
        if self._is_late:
            raise Unanswered
        answer: Deferred[Any] = Deferred()
        self._waiting.append((function, answer))
        self._is_late = True
        self.late()
        raise Unanswered(answer)

    def run(self, function: Callable[[], Any]) -> Deferred[Any]:
        if not self.is_frozen:
            return AtOnce.run(self, function)
        answer: Deferred[Any] = Deferred()
        self._waiting.append((function, answer))
        return answer

    def thaw(self) -> None:
        """Answer everything that waits."""
        self.is_frozen = False
        waiting, self._waiting = self._waiting, []
        was_late, self._is_late = self._is_late, False
        for function, answer in waiting:
            try:
                result = function()
            except OSError:
                result = Failure()
            if was_late:
                was_late = False
                self.answered()
            answer.callback(result)

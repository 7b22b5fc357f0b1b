"""
The way back from a freeze (:meth:`.IHandsOver.freeze`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError
from twisted.logger import Logger


class UndoStack:
    """
    Steps that take a freeze back.

    Push a step before what it takes back begins: a freeze may fail half way.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._steps: list[Callable[[], Awaitable[object]]] = []

    @property
    def is_empty(self) -> bool:
        return not self._steps

    def push(self, step: Callable[[], Awaitable[object]]) -> None:
        self._steps.append(step)

    def clear(self) -> None:
        """Forget the steps: a successor has taken over."""
        self._steps.clear()

    async def undo(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """
        Take the steps, the last one first; the log has those that fail.

        If this is cancelled, because the program stops, the other steps stay.

        :param may_go_on: asked after a failure; if it is false, the failure is raised, and the
            other steps stay.
        """
        while self._steps:
            try:
                await self._steps.pop()()
            except CancelledError:
                raise
            except Exception:
                if not may_go_on():
                    raise
                self._log.failure("a part did not go on after a hand-over that failed")

"""
Visible actions of adaptors: they are counted, and suppressed once the manager is dead.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred


class Dead(Exception):
    """The step has no effect, because the manager was killed."""


class Steps:
    """
    :ivar open: the calls in progress.
    :ivar lived: how many more steps have an effect; ``None`` for all.
    """

    def __init__(self) -> None:
        self.count = 0
        self.open: list[str] = []
        self.lived: int | None = None
        self.held_back = False

    def take(self) -> None:
        """
        Count a synchronous step, before it acts.

        :raises Dead: the step has no effect.
        """
        self.count += 1
        if self.lived is not None:
            self.lived -= 1
            if self.lived < 0:
                self.held_back = True
                raise Dead

    async def begin(self) -> None:
        """Count an asynchronous step; never return if it has no effect."""
        try:
            self.take()
        except Dead:
            await Deferred()

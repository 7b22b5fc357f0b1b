"""
What adaptors do that others can see: counted, and held back once their manager is dead.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred


class Dead(Exception):
    """Nothing comes of it: whoever wanted it is there no more."""


class Steps:
    """
    :ivar open: what is under way.
    :ivar lived: how many more steps have an effect; ``None`` for all.
    """

    def __init__(self) -> None:
        self.count = 0
        self.open: list[str] = []
        self.lived: int | None = None
        self.held_back = False

    def take(self) -> None:
        """
        Before each step that is done at once.

        :raises Dead: it has no effect.
        """
        self.count += 1
        if self.lived is not None:
            self.lived -= 1
            if self.lived < 0:
                self.held_back = True
                raise Dead

    async def begin(self) -> None:
        """Before each that takes its time; never comes back when it has no effect."""
        try:
            self.take()
        except Dead:
            await Deferred()

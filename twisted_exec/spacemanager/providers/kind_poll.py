"""
Hints of a provider that tells nobody: it is asked which names there are, every few seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.api.status import APIError
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.hints import Changed

POLL_SECONDS = 2.0


class Poll:
    """
    :param clock: provides ``IReactorTime``.
    :param names: asks for all names that there are.
    :param unsettled: what is worth a look although its name is there as before.
    """

    def __init__(
        self,
        clock: Any,
        names: Callable[[], Awaitable[Sequence[str]]],
        unsettled: Callable[[], Sequence[Physical]],
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._clock, self._names, self._unsettled = clock, names, unsettled
        self._seconds = seconds
        self._told: list[Callable[[Physical | None], object]] = []
        self._seen: set[str] | None = None
        self._next: IDelayedCall | None = None
        self._asking: Deferred[None] | None = None

    def add(self, changed: Changed) -> Callable[[], None]:
        """Have ``changed`` called; :return: ends that."""

        # Several may add what compares equal: each has an entry of its own.
        def entry(physical: Physical | None) -> None:
            changed(physical)

        self._told.append(entry)
        if len(self._told) == 1:
            self._ask()

        def stop() -> None:
            if entry in self._told:
                self._told.remove(entry)
                if not self._told:
                    self.close()

        return stop

    def tell(self, physical: Physical | None) -> None:
        """Something may have changed."""
        for entry in list(self._told):
            entry(physical)

    def close(self) -> None:
        """Tell nobody any more."""
        self._told.clear()
        self._seen = None
        if self._next is not None:
            self._next.cancel()
            self._next = None
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()

    def _ask(self) -> None:
        self._next = None
        self._asking = asking = Deferred.fromCoroutine(self._asked())
        asking.addErrback(lambda failure: failure.trap(CancelledError, APIError) and None)
        asking.addCallback(lambda _done: self._again(asking))

    def _again(self, asking: Deferred[None]) -> None:
        if self._told and self._asking in (asking, None):
            self._asking = None
            self._next = self._clock.callLater(self._seconds, self._ask)

    async def _asked(self) -> None:
        now = set(await self._names())
        before, self._seen = self._seen, now
        if before is None:
            self.tell(None)  # what happened before is looked for once
            return
        for name in sorted(before ^ now):
            self.tell(Physical(name))
        for physical in self._unsettled():
            if physical.name in before & now:
                self.tell(physical)

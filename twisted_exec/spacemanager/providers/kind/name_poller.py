"""A poller of the names of clusters, since kind has no watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.base import Changed, Watchers

POLL_SECONDS = 2.0


class NamePoller:
    """
    Polls the names while there are watchers.

    :param unsettled: returns clusters that may change although their names stay.
    """

    def __init__(
        self,
        clock: Any,
        names: Callable[[], Awaitable[Sequence[str]]],
        unsettled: Callable[[], Sequence[Physical]],
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._names, self._unsettled = names, unsettled
        # Poll at the same pace after a failure: the lists report it to their callers.
        self._loop = PokedLoop(
            self._poll, clock, seconds, backoff=lambda: Backoff(seconds, seconds)
        )
        self._watchers = Watchers("clusters of kind", self._start, self._loop.stop)
        self._seen: set[str] | None = None

    def add(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    def tell(self, physical: Physical | None) -> None:
        self._watchers.tell(physical)

    def close(self) -> Deferred[Any]:
        """Remove all watchers; fires when polling has ended."""
        return self._watchers.close()

    def _start(self) -> None:
        if not self._loop.running:
            self._seen = None
            self._loop.start()

    async def _poll(self) -> None:
        now = set(await self._names())
        before, self._seen = self._seen, now
        if before is None:
            self.tell(None)  # one hint for everything before
            return
        for name in sorted(before ^ now):
            self.tell(Physical(name))
        for physical in self._unsettled():
            if physical.name in before & now:
                self.tell(physical)

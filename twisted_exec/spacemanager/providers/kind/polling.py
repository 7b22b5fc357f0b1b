"""
Hints for a provider without notifications: the list of names is polled every few seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.program.tasks import BackgroundTask
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.common.hints import Changed, Watchers

POLL_SECONDS = 2.0


class NamePoller(BackgroundTask):
    """
    Polls the names while there are watchers.

    :param clock: provides ``IReactorTime``.
    :param names: returns all names.
    :param unsettled: returns clusters that may change although their names stay.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        names: Callable[[], Awaitable[Sequence[str]]],
        unsettled: Callable[[], Sequence[Physical]],
        seconds: float = POLL_SECONDS,
    ) -> None:
        self._clock, self._names, self._unsettled = clock, names, unsettled
        self._seconds = seconds
        self._watchers = Watchers("clusters of kind", self._start, self.stop)
        self._seen: set[str] | None = None

    def add(self, changed: Changed) -> Callable[[], None]:
        """Add a watcher.  :return: a function that removes it."""
        return self._watchers.add(changed)

    def tell(self, physical: Physical | None) -> None:
        """Notify the watchers."""
        self._watchers.tell(physical)

    def close(self) -> Deferred[Any]:
        """Remove all watchers; fires when polling has ended."""
        return self._watchers.close()

    def _start(self) -> None:
        if self._running is None:
            self._seen = None
            self._begin(self._go_on())

    async def _go_on(self) -> None:
        while True:
            try:
                await self._poll()
            except APIError:
                pass  # lists report the problem
            await deferLater(self._clock, self._seconds)

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("asking for clusters of kind ended", failure)

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

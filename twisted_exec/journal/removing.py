"""
Removing old output of a store's journals, as :mod:`.retention` plans it.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

from twisted.logger import Logger

from twisted_exec.control.runs import SingleRun
from twisted_exec.journal.directories import Directories
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.journal.retention import (
    DEFAULT_RETENTION,
    ClockTrust,
    Removal,
    Retention,
    StoreLimits,
    plan,
)
from twisted_exec.journal.writer import JournalWriter

_REMOVE_SECONDS = 60.0


class Remover:
    """
    Removes old output at an interval.

    :param journals: by their keys; those whose files are all removed are dropped.
    :param now: the time of day, in nanoseconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        lifetime: Lifetime,
        clock: Any,
        now: Callable[[], int],
        directories: Directories,
        limits: StoreLimits,
        writer: JournalWriter,
        journals: MutableMapping[str, Journal],
    ) -> None:
        self._lifetime, self._clock, self._now = lifetime, clock, now
        self._directories, self._limits = directories, limits
        self._writer, self._journals = writer, journals
        self._retentions: dict[str, Retention] = {}
        self._clock_trust = ClockTrust()
        self._removing = SingleRun(self.remove_old, "removing old output of journals")

    def begin(self, last_time: int | None) -> None:
        """
        Remove old output from now on.

        :param last_time: the time of day that the last run of the program has noted.
        """
        self._clock_trust.begin(self._clock.seconds(), self._now(), last_time)
        self._schedule()

    def _schedule(self) -> None:
        self._lifetime.later(_REMOVE_SECONDS, self._pass)

    def _pass(self) -> None:
        self._schedule()
        self._removing.start()

    async def ended(self) -> None:
        """Wait for a removal that is under way."""
        await self._removing.ended()

    def limit(self, key: str, retention: Retention) -> None:
        """Set the limits of a journal."""
        self._retentions[key] = retention

    def forget(self, key: str) -> None:
        """Drop a journal, but not its files."""
        self._retentions.pop(key, None)
        self._journals.pop(key, None)

    def shrink(self, key: str, journal: Journal) -> None:
        """Keep a journal within its size."""
        limit = self._retentions.get(key, DEFAULT_RETENTION).machine_bytes
        if limit:
            journal.shrink(limit)

    async def remove_old(self) -> None:
        by_age = self._clock_trust.check(self._clock.seconds(), self._now())
        retentions, now = dict(self._retentions), self._now()

        def look() -> list[Removal]:
            usages = list(self._directories.usages(retentions))
            return plan(usages, self._limits, self._directories.space(), now, by_age=by_age)

        for removal in await self._lifetime.in_thread(look):
            if self._lifetime.is_given_up:
                return
            try:
                await self._remove(removal)
            except OSError as error:
                self._log.warn("journal {key}: {why}", key=removal.key, why=error.strerror)

    async def _remove(self, removal: Removal) -> None:
        journal = self._journals.get(removal.key)
        if removal.first is None:
            if journal is not None:
                journal.rest()
                self.forget(removal.key)
                self._writer.forget(journal)
            await self._lifetime.in_thread(partial(self._directories.remove, removal.key))
        elif journal is not None:
            journal.drop(removal.first)
        else:
            remove = self._directories.remove_segment
            await self._lifetime.in_thread(partial(remove, removal.key, removal.first))

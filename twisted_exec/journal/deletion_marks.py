"""
The marks of deleted machines beside their journals, which begin the time until these are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.display import reason_of
from twisted_exec.journal.directories import Directories
from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.program.disk_thread import Files as DiskFiles

_MARK_SECONDS = 60.0


class DeletionMarks:
    """Sets and removes the marks; a change that fails is tried again each minute, and once at the stop."""

    _log = Logger()

    def __init__(self, lifetime: Lifetime, thread: DiskFiles, directories: Directories) -> None:
        self._lifetime, self._thread, self._directories = lifetime, thread, directories
        self._changes: dict[str, Callable[[], None]] = {}
        self._logged = ""  # the last reason, until all marks are on disk

    def begin(self) -> None:
        if self._changes:
            self._try_later()

    def deleted(self, key: str, facts: Mapping[str, str], now: int) -> None:
        self._change(key, partial(self._directories.mark_deleted, key, facts, now))

    def revived(self, key: str) -> None:
        self._change(key, partial(self._directories.unmark_deleted, key))

    def _change(self, key: str, change: Callable[[], None]) -> None:
        self._changes[key] = change
        self._try(key, change)

    def _try(self, key: str, change: Callable[[], None]) -> Deferred[None]:
        def changed(_: object) -> None:
            if self._changes.get(key) is change:
                del self._changes[key]
            if not self._changes:
                self._logged = ""

        return self._thread.run(change).addCallbacks(changed, self._failed)

    def _failed(self, failure: Failure) -> None:
        failure.trap(OSError)
        why = reason_of(failure.value)
        # The journal of a machine that was deleted at once may have no directory yet.
        is_early = failure.check(FileNotFoundError) is not None
        if not is_early and why != self._logged:  # the others are on the same disk
            self._logged = why
            self._log.warn("deleted machines are not marked on disk at present: {why}", why=why)
        self._try_later()

    def _try_later(self) -> None:
        self._lifetime.later(_MARK_SECONDS, self.try_again)

    def try_again(self) -> None:
        for key, change in list(self._changes.items()):
            self._try(key, change)

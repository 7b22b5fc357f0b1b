"""
Stores that take each other's place.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor

from tests.storage.sqlites import RESERVED_BYTES
from twisted_exec.storage.quota import NO_LIMITS
from twisted_exec.storage.sqlite import SQLiteStorage


class OpensStores:
    """Mix into a ``TestCase``: opens stores that end with the test."""

    remembered = 20
    remembered_bytes = 20_000
    limits = NO_LIMITS

    def reactor(self) -> Any:
        """Return the reactor of the stores."""
        return reactor

    def open(self: Any, path: str, *, inherits: bool = False) -> SQLiteStorage:
        """
        Return a store that is started.

        :param inherits: the file was another store's until now.
        """
        storage = SQLiteStorage(
            path,
            reactor,
            remembered=self.remembered,
            remembered_bytes=self.remembered_bytes,
            reserved_bytes=RESERVED_BYTES,
            limits=self.limits,
        )
        if inherits:
            storage.inherit()
        storage.startService()
        self.addCleanup(storage.stopService)
        return storage

    async def handed_over(self: Any, path: str) -> tuple[SQLiteStorage, SQLiteStorage]:
        """Return a store that goes on through its successor, and the successor."""
        old = self.open(path)
        await old.freeze()
        new = self.open(path, inherits=True)
        old.retire()
        await old.current()
        return old, new

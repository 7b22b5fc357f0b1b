"""
Stores in files, which end with the test.
"""

from __future__ import annotations

import sqlite3

from twisted.internet import reactor

from twisted_exec.storage.quota import NO_LIMITS
from twisted_exec.storage.sqlite import store
from twisted_exec.storage.sqlite.database import open_database
from twisted_exec.storage.sqlite.store import SQLiteStorage

RESERVED_BYTES = 1 << 18
"""Of stores in tests: each of hundreds would keep the 16 MiB of a server on the disk."""


class SQLiteStores:
    """Opens stores that end with the test."""

    remembered = 20
    remembered_bytes = 20_000
    limits = NO_LIMITS
    reserved_bytes = RESERVED_BYTES
    path: str
    database: sqlite3.Connection
    """The connection of the store that was opened last."""

    def open(self, path: str | None = None) -> SQLiteStorage:
        def opened(path: str) -> sqlite3.Connection:
            self.database = open_database(path)
            return self.database

        self.patch(store, "open_database", opened)  # type: ignore[attr-defined]
        storage = SQLiteStorage(
            path or self.path,
            reactor,  # type: ignore[arg-type]
            remembered=self.remembered,
            remembered_bytes=self.remembered_bytes,
            reserved_bytes=self.reserved_bytes,
            limits=self.limits,
        )
        storage.startService()
        self.addCleanup(storage.stopService)  # type: ignore[attr-defined]
        return storage

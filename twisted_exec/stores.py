"""Stores of an API server's objects, and the parts to write another, for applications."""

from __future__ import annotations

from twisted_exec.api.encoded import Encoded
from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.history import (
    REMEMBERED_BYTES,
    REMEMBERED_CHANGES,
    History,
    Key,
    key_of,
    table_of,
)
from twisted_exec.storage.history_storage import HistoryStorage
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, Listing, Object
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits
from twisted_exec.storage.sqlite.store import SQLiteStorage
from twisted_exec.storage.write_checks import check_absent, check_current, created, versioned

__all__ = [
    "ADDED",
    "DELETED",
    "MODIFIED",
    "NO_LIMITS",
    "REMEMBERED_BYTES",
    "REMEMBERED_CHANGES",
    "Encoded",
    "EtcdStorage",
    "Event",
    "Followed",
    "History",
    "HistoryStorage",
    "Key",
    "Listing",
    "MemoryStorage",
    "Object",
    "QuotaLimits",
    "SQLiteStorage",
    "StoreFollower",
    "check_absent",
    "check_current",
    "created",
    "key_of",
    "listed_as_added",
    "table_of",
    "versioned",
]

"""
The ``--storage`` option: which store a program uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.quota import (
    NAMESPACE_BYTES,
    NO_LIMITS,
    TOTAL_BYTES,
    QuotaLimits,
    size_option,
)
from twisted_exec.storage.sqlite import SQLiteStorage

FORMS = "sqlite:PATH, etcd:https://HOST:PORT[,...]?prefix=...&ca=...&cert=...&key=..., or memory"
"""The forms of the option's value."""


def storage_option(text: str) -> Callable[..., IStorage]:
    """
    Read ``--storage``.

    :return: a function that creates the store, given the reactor and ``limits``, without opening
        it.
    :raises ValueError: the message is one line and shows no secret.
    """
    kind, _, rest = text.partition(":")
    if kind == "sqlite" and rest:
        # Absolute, because twistd changes the working directory when it becomes a daemon.
        return partial(SQLiteStorage, os.path.abspath(rest))
    if kind == "etcd":
        # Imported here: servers without etcd do not need grpcio.
        from twisted_exec.storage.etcd.store import EtcdStorage
        from twisted_exec.storage.etcd.target import parse_target

        return partial(EtcdStorage, parse_target(rest))
    if text == "memory":
        return _memory
    raise ValueError(f"give {FORMS} to keep nothing")


def _memory(reactor: Any, limits: QuotaLimits = NO_LIMITS) -> IStorage:
    return MemoryStorage(limits=limits)


QUOTA_OPTIONS: list[list[Any]] = [
    [
        "storage-quota-namespace",
        None,
        NAMESPACE_BYTES,
        "Limit of the size of the objects in a namespace, as JSON; 0 for none.",
        size_option,
    ],
    [
        "storage-quota-total",
        None,
        TOTAL_BYTES,
        "Limit of the size of the objects in all namespaces; 0 for none.",
        size_option,
    ],
]
"""Options of all programs with a store."""


def limits_of(options: Mapping[str, Any]) -> QuotaLimits:
    """Return the limits that :data:`QUOTA_OPTIONS` set."""
    # Options that are not given are text still.
    return QuotaLimits(*(size_option(str(options[option[0]])) for option in QUOTA_OPTIONS))

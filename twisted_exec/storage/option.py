"""
The ``--storage`` option: which store a program uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits
from twisted_exec.storage.sqlite.store import SQLiteStorage

FORMS = "sqlite:PATH, etcd:https://HOST:PORT[,...]?prefix=...&ca=...&cert=...&key=..., or memory"
"""The forms of the option's value."""


def storage_option(text: str) -> Callable[..., IStorage]:
    """
    Read ``--storage``.

    :return: a function that creates the store, without opening it.
    :raises ValueError: the message shows no secret.
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

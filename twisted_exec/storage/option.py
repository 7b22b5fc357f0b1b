"""
``--storage``: where a program that stores keeps its objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.sqlite import SQLiteStorage

FORMS = "sqlite:PATH, etcd:https://HOST:PORT[,...]?prefix=...&ca=...&cert=...&key=..., or memory"
"""What the option takes."""


def storage_option(text: str) -> Callable[[Any], IStorage]:
    """
    Read ``--storage``.

    :return: makes the store, given the reactor; nothing is opened by that.
    :raises ValueError: with one line that says what is wrong, and shows no secret.
    """
    kind, _, rest = text.partition(":")
    if kind == "sqlite" and rest:
        # Absolute: a daemon's working directory is another one.
        return partial(SQLiteStorage, os.path.abspath(rest))
    if kind == "etcd":
        # Here, so that who has no etcd needs none of what it is called with.
        from twisted_exec.storage.etcd.store import EtcdStorage
        from twisted_exec.storage.etcd.target import parse_target

        return partial(EtcdStorage, parse_target(rest))
    if text == "memory":
        return lambda reactor: MemoryStorage()
    raise ValueError(f"give {FORMS} to keep nothing")

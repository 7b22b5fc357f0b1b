"""
Endings of the poollet's sessions: changes of Machines and of the pool.
"""

from __future__ import annotations

from twisted_exec.api.dialects import Dialect
from twisted_exec.kube.interfaces import Object
from twisted_exec.poollet.machines.config import wants_power
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.endings import (
    machine_deleted,
    machine_powered_off,
    pool_deleted,
)


def machine_ending(before: Object | None, after: Object | None, dialect: Dialect) -> Ending | None:
    """
    Return why the sessions of a Machine end with this change, or ``None``.

    :param after: ``None`` when it is gone, or no longer bound to this pool.
    """
    if before is None:
        return None
    name = before["metadata"]["name"]
    if after is None or after["metadata"].get("deletionTimestamp"):
        return machine_deleted(dialect.noun, name)
    if wants_power(before) and not wants_power(after):
        return machine_powered_off(dialect.noun, name)
    return None


def pool_ending(before: Object | None, after: Object | None, dialect: Dialect) -> Ending | None:
    """Return why all sessions end with this change of the pool, or ``None``."""
    if before is None:
        return None
    if after is None or after["metadata"].get("deletionTimestamp"):
        return pool_deleted(dialect.pool_noun, before["metadata"]["name"])
    return None

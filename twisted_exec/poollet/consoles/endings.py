"""
What ends sessions from this side: changes of Machines and pools.
"""

from __future__ import annotations

from twisted_exec.api.dialects import Dialect
from twisted_exec.kube.interfaces import Object
from twisted_exec.poollet.machines.config import wants_power
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    Ending,
)


def machine_ending(before: Object | None, after: Object | None, dialect: Dialect) -> Ending | None:
    """
    Why the sessions of a Machine end with this change, or ``None``.

    :param after: ``None`` when it is gone, or no longer bound to this pool.
    """
    if before is None:
        return None
    name = before["metadata"]["name"]
    if after is None or after["metadata"].get("deletionTimestamp"):
        return Ending(MACHINE_DELETED, f'{dialect.noun} "{name}" was deleted')
    if wants_power(before) and not wants_power(after):
        return Ending(POWERED_OFF, f'{dialect.noun} "{name}" was powered off')
    return None


def pool_ending(before: Object | None, after: Object | None, dialect: Dialect) -> Ending | None:
    """Why all sessions end with this change of the pool, or ``None``."""
    if before is None:
        return None
    if after is None or after["metadata"].get("deletionTimestamp"):
        message = f'{dialect.pool_noun} "{before["metadata"]["name"]}" was deleted'
        return Ending(POOL_DELETED, message)
    return None

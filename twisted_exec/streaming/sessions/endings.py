"""Which sessions a change of a machine or pool ends, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, POWERED_OFF, Ending
from twisted_exec.streaming.subject import Subject


@dataclass(frozen=True)
class MachineKey:
    """
    The sessions of one machine or Pod.

    :param uid: of the object, whose name a new object may have by now.
    """

    uid: str

    def covers(self, subject: Subject, ending: Ending) -> bool:
        keeps = ending.reason == POWERED_OFF and subject.subresource in ("log", "screen")
        return bool(self.uid) and subject.uid == self.uid and not keeps


@dataclass(frozen=True)
class PoolKey:
    """
    The sessions of the machines of one pool, or of the Pods of one Node.

    :param resource: of these machines, such as ``machines.compute.ironcore.dev``; empty matches
        any.
    """

    name: str
    resource: str = ""

    def covers(self, subject: Subject, ending: Ending) -> bool:
        same_resource = not self.resource or subject.resource == self.resource
        return bool(self.name) and subject.pool == self.name and same_resource


@dataclass(frozen=True)
class EndingRules:
    """
    Decisions about changes of one kind of machine, and of the pools that run them.

    A change is the object before and after it; ``None`` when it does not exist, or is none of ours.

    :param ends_gracefully: sessions of a machine that is being deleted go on until it is gone.
    """

    noun: str
    pool_noun: str
    ends_gracefully: bool = False

    def machine_ending(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> Ending | None:
        """
        Return why a change of a machine ends its sessions, or ``None``.

        For ``Off`` only the state after the change counts: an interrupted watch may miss the
        change.
        """
        if before is None:
            return None
        name = before["metadata"]["name"]
        if after is None or self._is_going(before, after):
            return Ending(MACHINE_DELETED, f'{self.noun} "{name}" was deleted')
        if not self.ends_gracefully and (after.get("spec") or {}).get("power") == "Off":
            return Ending(POWERED_OFF, f'{self.noun} "{name}" was powered off')
        return None

    def pool_ending(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> Ending | None:
        """Return why a change of a pool ends its machines' sessions, or ``None``."""
        if before is None or (after is not None and not self._is_going(before, after)):
            return None
        return Ending(POOL_DELETED, f'{self.pool_noun} "{before["metadata"]["name"]}" was deleted')

    def _is_going(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        # A watch that was interrupted may miss that an object was deleted and created again.
        if after["metadata"].get("uid") != before["metadata"].get("uid"):
            return True
        return not self.ends_gracefully and bool(after["metadata"].get("deletionTimestamp"))


POD_ENDINGS = EndingRules("pod", "node", ends_gracefully=True)
"""Endings of the sessions of Pods, and of the Nodes that run them."""

"""
Endings that come from objects: which sessions they concern, and what users read.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    Ending,
    Subject,
)


@dataclass(frozen=True)
class MachineKey:
    """
    The sessions of one machine or Pod.

    :param uid: of the object.  The name is not enough: a new object may have it by now.
    """

    uid: str

    def covers(self, subject: Subject, ending: Ending) -> bool:
        """
        Return whether the ending concerns a session.

        A machine that is off still has its log, and followers of the log wait for the next boot.
        """
        keeps = ending.reason == POWERED_OFF and subject.subresource == "log"
        return bool(self.uid) and subject.uid == self.uid and not keeps


@dataclass(frozen=True)
class PoolKey:
    """
    The sessions of all machines of one pool, or of all Pods of one Node.

    :param resource: of these machines, such as ``machines.compute.ironcore.dev``: pools of two
        dialects may have the same name.  Empty matches any.
    """

    name: str
    resource: str = ""

    def covers(self, subject: Subject, ending: Ending) -> bool:
        """Return whether the ending concerns a session."""
        same_resource = not self.resource or subject.resource == self.resource
        return bool(self.name) and subject.pool == self.name and same_resource


def machine_deleted(noun: str, name: str) -> Ending:
    """
    The ending of sessions whose machine or Pod is gone.

    :param noun: the users' word for such an object.
    """
    return Ending(MACHINE_DELETED, f'{noun} "{name}" was deleted')


def machine_powered_off(noun: str, name: str) -> Ending:
    """The ending of sessions whose machine has lost power."""
    return Ending(POWERED_OFF, f'{noun} "{name}" was powered off')


def pool_deleted(noun: str, name: str) -> Ending:
    """The ending of sessions whose pool or Node is gone."""
    return Ending(POOL_DELETED, f'{noun} "{name}" was deleted')

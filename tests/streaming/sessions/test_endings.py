"""Tests for :mod:`twisted_exec.streaming.sessions.endings`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    Ending,
    Subject,
)
from twisted_exec.streaming.sessions.endings import (
    MachineKey,
    PoolKey,
    machine_deleted,
    machine_powered_off,
    pool_deleted,
)

CONSOLE = Subject("s", uid="u", pool="p", resource="machines")
LOG = Subject("s", uid="u", pool="p", resource="machines", subresource="log")


class KeyTests(SynchronousTestCase):
    """The sessions that an object's key covers."""

    def test_keys(self) -> None:
        """A UID covers a machine's sessions, a name those of a pool; power-off spares logs."""
        for key, reason, console, log in (
            (MachineKey("u"), MACHINE_DELETED, True, True),
            (MachineKey("u"), POWERED_OFF, True, False),
            (MachineKey("other"), MACHINE_DELETED, False, False),
            (PoolKey("p"), POOL_DELETED, True, True),
            (PoolKey("p", "machines"), POOL_DELETED, True, True),
            (PoolKey("p", "pods"), POOL_DELETED, False, False),
            (PoolKey("other"), POOL_DELETED, False, False),
        ):
            covered = (key.covers(CONSOLE, Ending(reason)), key.covers(LOG, Ending(reason)))
            self.assertEqual(covered, (console, log), (key, reason))

    def test_empty(self) -> None:
        """An empty key covers no session, not even one whose object is not known yet."""
        for key in (MachineKey(""), PoolKey(""), PoolKey("", "machines")):
            self.assertFalse(key.covers(Subject("s"), Ending(MACHINE_DELETED)))


class MessageTests(SynchronousTestCase):
    """Reasons and messages for users."""

    def test_messages(self) -> None:
        """They name the object with the users' word for it."""
        for ending, reason, message in (
            (machine_deleted("machine", "vm"), MACHINE_DELETED, 'machine "vm" was deleted'),
            (machine_powered_off("server", "vm"), POWERED_OFF, 'server "vm" was powered off'),
            (pool_deleted("machine pool", "a"), POOL_DELETED, 'machine pool "a" was deleted'),
        ):
            self.assertEqual(ending, Ending(reason, message))

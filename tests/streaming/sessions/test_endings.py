"""Tests for :mod:`twisted_exec.streaming.sessions.endings`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.interfaces import MACHINE_DELETED, POOL_DELETED, POWERED_OFF, Ending
from twisted_exec.streaming.sessions.endings import POD_ENDINGS, EndingRules, MachineKey, PoolKey
from twisted_exec.streaming.subject import Subject

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


def changed(power: str = "On", uid: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "vm", "uid": uid, **metadata}, "spec": {"power": power}}


DYING = changed(deletionTimestamp="2026-01-01T00:00:00Z")
MACHINES = EndingRules("machine", "machine pool")


class EndingRulesTests(SynchronousTestCase):
    """The changes that end sessions."""

    def test_machine(self) -> None:
        """Sessions end when the machine goes, is another one, or is off."""
        deleted = Ending(MACHINE_DELETED, 'machine "vm" was deleted')
        off = Ending(POWERED_OFF, 'machine "vm" was powered off')
        for before, after, ending in (
            (changed(), None, deleted),
            (changed(), DYING, deleted),
            (changed("Off"), DYING, deleted),
            (changed(), changed(uid="2"), deleted),
            (changed(), changed("Off"), off),
            (None, changed(), None),
            (None, changed("Off"), None),
            (changed(), changed(labels={"a": "b"}), None),
            (changed("Off"), changed(), None),
            (changed(), {"metadata": {"name": "vm", "uid": "1"}}, None),
        ):
            self.assertEqual(MACHINES.machine_ending(before, after), ending, (before, after))

    def test_pod(self) -> None:
        """Sessions of a Pod that is being deleted continue until it is gone or replaced."""
        deleted = Ending(MACHINE_DELETED, 'pod "vm" was deleted')
        for before, after, ending in (
            (changed(), None, deleted),
            (changed(), changed(uid="2"), deleted),
            (changed(), DYING, None),
            (DYING, None, deleted),
            (None, changed(), None),
            (changed(), changed(labels={"a": "b"}), None),
        ):
            self.assertEqual(POD_ENDINGS.machine_ending(before, after), ending, (before, after))

    def test_pool(self) -> None:
        """Sessions of all machines of a pool end when it is deleted."""
        deleted = Ending(POOL_DELETED, 'machine pool "vm" was deleted')
        for before, after, ending in (
            (changed(), None, deleted),
            (changed(), DYING, deleted),
            (None, changed(), None),
            (changed(), changed(), None),
        ):
            self.assertEqual(MACHINES.pool_ending(before, after), ending, (before, after))

    def test_node(self) -> None:
        """Those on a Node that is being deleted go on until it is gone."""
        self.assertIsNone(POD_ENDINGS.pool_ending(changed(), DYING))
        deleted = Ending(POOL_DELETED, 'node "vm" was deleted')
        self.assertEqual(POD_ENDINGS.pool_ending(changed(), None), deleted)

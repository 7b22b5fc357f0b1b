"""
Tests for :mod:`twisted_exec.apiserver.controllers.paused_writes`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.control.support import WithoutJitter
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.controllers.paused_writes import Operation, PausedWrites
from twisted_exec.storage.history import Key

BIND, EVENT = Operation.BIND, Operation.RECORD_EVENT
FULL = Forbidden("exceeded quota")
MACHINES: list[Key] = [("a", f"vm-{number}") for number in range(3)]


class HoldsTests(SynchronousTestCase):
    """Machines in the namespace ``a``, whose quota is used up."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.paused = PausedWrites(self.clock, WithoutJitter())

    def refuse(self) -> None:
        self.paused.refused(BIND, "a", FULL)

    def test_scope(self) -> None:
        """A refusal pauses writes of its kind in its namespace, and no others."""
        self.refuse()
        self.assertTrue(self.paused.is_paused(BIND, "a"))
        self.assertFalse(self.paused.is_paused(BIND, "b"))
        self.assertFalse(self.paused.is_paused(EVENT, "a"))

    def test_pauses(self) -> None:
        """Each pause is twice as long as the last one, up to a minute."""
        pauses = []
        for _ in range(8):
            self.refuse()
            self.paused.hold(BIND, MACHINES[0])
            pauses.append(self.paused.wait_seconds())
            self.clock.advance(pauses[-1] or 0.0)
            self.assertFalse(self.paused.is_paused(BIND, "a"))
        self.assertEqual(pauses, [1, 2, 4, 8, 16, 32, 60, 60])

    def test_concurrent_refusals(self) -> None:
        """Refusals of writes that were under way already do not make the pause longer."""
        self.refuse()
        self.refuse()
        self.clock.advance(1)
        self.assertFalse(self.paused.is_paused(BIND, "a"))

    def test_due(self) -> None:
        """After the pause one machine is due; the others stay held."""
        for key in MACHINES:
            self.paused.hold(BIND, key)
        self.refuse()
        self.assertEqual(list(self.paused.due(MACHINES)), [])
        self.clock.advance(1)
        (key,) = self.paused.due(MACHINES)
        self.refuse()
        held = self.paused.accepted(BIND, "a")
        self.assertEqual({key, *held}, set(MACHINES))
        self.assertEqual(len(held), 2)

    def test_no_longer_pending(self) -> None:
        """A machine that is deleted meanwhile is not tried; the next one takes its turn."""
        for key in MACHINES:
            self.paused.hold(BIND, key)
        self.assertEqual(list(self.paused.due(MACHINES[:1])), MACHINES[:1])
        self.assertIsNone(self.paused.wait_seconds())
        self.paused.hold(BIND, MACHINES[0])
        self.assertEqual(list(self.paused.due([])), [])
        self.assertIsNone(self.paused.wait_seconds())

    def test_accepted(self) -> None:
        """An accepted write ends the pause, and the next refusal begins with the shortest again."""
        self.refuse()
        self.paused.hold(BIND, MACHINES[0])
        self.assertEqual(list(self.paused.accepted(BIND, "a")), MACHINES[:1])
        self.assertFalse(self.paused.is_paused(BIND, "a"))
        self.assertEqual(list(self.paused.accepted(BIND, "a")), [])
        self.refuse()
        self.clock.advance(1)
        self.assertFalse(self.paused.is_paused(BIND, "a"))

    def test_log(self) -> None:
        """The log has one line for each kind of write, namespace and cause."""
        with capturedLogs() as logged:
            for _ in range(3):
                self.refuse()
            self.paused.refused(BIND, "b", FULL)
            self.paused.refused(EVENT, "a", FULL)
        self.assertEqual(
            [formatEvent(event) for event in logged],
            [
                "namespace a: machines cannot be assigned to pools: exceeded quota",
                "namespace b: machines cannot be assigned to pools: exceeded quota",
                "namespace a: Events of machines cannot be recorded: exceeded quota",
            ],
        )

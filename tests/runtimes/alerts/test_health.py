"""
Tests for :mod:`twisted_exec.runtimes.alerts.health`, in a runtime.
"""

from __future__ import annotations

from tests.runtimes.alerts.alerts_case import PANIC, AlertsCase
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.journal import Journal


class HealthTests(AlertsCase):
    """The condition of a machine."""

    def test_condition(self) -> None:
        """
        The machine is unhealthy until its next start, also for the next runtime.
        """
        self.assertIsNone(self.alerts.condition("uid-1"))
        self.set()
        self.journal.booted("Started")
        self.assertEqual(self.alerts.condition("uid-1")[0], "True")  # type: ignore[index]
        self.print(PANIC)
        message = 'at offset 0 the machine printed "[   1.5] Kernel panic - not syncing: test"'
        expected = ("False", "KernelPanic", message)
        self.assertEqual(self.alerts.condition("uid-1"), expected)
        self.found(self.found()[0].number)
        self.alerts = self.make()
        self.set()
        self.assertEqual(self.alerts.condition("uid-1"), expected)
        self.journal.booted("Started")
        self.assertEqual(self.alerts.condition("uid-1")[0], "True")  # type: ignore[index]

    def test_condition_without_the_disk(self) -> None:
        """A machine whose boots cannot be read when the line is found is unhealthy until its next start."""
        self.set()
        self.journal.booted("Started")
        self.journal.lacks_boots = True
        self.print(PANIC)
        for self.journal.lacks_boots in (True, False, False):
            self.assertEqual(self.alerts.condition("uid-1")[0], "False")  # type: ignore[index]
        self.journal.booted("Started")
        self.assertEqual(self.alerts.condition("uid-1")[0], "True")  # type: ignore[index]

    def test_condition_of_a_lost_journal(self) -> None:
        """
        A machine whose journal was deleted with the line is not unhealthy for ever.
        """
        self.set()
        self.print(PANIC)
        self.alerts.stop()
        self.journal = Journal(self.now)
        self.alerts = self.make()
        self.set()
        self.assertEqual(self.alerts.condition("uid-1")[0], "True")  # type: ignore[index]

    def test_condition_of_a_deleted_alert(self) -> None:
        """
        When the alert is gone, its condition is, too.
        """
        self.set()
        self.print(PANIC)
        self.set(pb.AlertPattern(id="other", literal="x", condition="Other"))
        self.assertEqual(self.alerts.condition("uid-1")[0], "True")  # type: ignore[index]
        self.set(pb.AlertPattern(id="other", literal="x"))
        self.assertIsNone(self.alerts.condition("uid-1"))

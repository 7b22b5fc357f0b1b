"""
Tests for :mod:`twisted_exec.standalone.standard_streams`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import Logger, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.standalone.standard_streams import LONGEST_SECONDS, QUIET_SECONDS, FirstCommands

TEXT = "\nReady. In another terminal, type:\n\nkubectl get machines\nkubectl console vm\n\n"


class FirstCommandsTests(SynchronousTestCase):
    """Tests for :class:`FirstCommands`."""

    def setUp(self) -> None:
        self.clock, self.publisher = Clock(), LogPublisher()
        self.log = Logger(observer=self.publisher)
        self.written: list[str] = []
        self.running = True
        first = FirstCommands(self.clock, self.written.append, self.publisher)
        first.show(["kubectl get machines", "kubectl console vm"], lambda: self.running)

    def test_last(self) -> None:
        """The commands come after the log, as lines that can be copied."""
        for _ in range(3):
            self.clock.advance(QUIET_SECONDS * 0.9)
            self.log.info("provider default: in use")
        self.assertEqual(self.written, [])
        self.clock.advance(QUIET_SECONDS)
        self.assertEqual(self.written, [TEXT])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_busy_log(self) -> None:
        """A log that is never quiet does not keep the commands back."""
        for _ in range(int(LONGEST_SECONDS * 10)):
            self.log.info("a machine started")
            self.clock.advance(0.1)
        self.clock.advance(0.1)
        self.assertEqual(self.written, [TEXT])

    def test_stopped(self) -> None:
        """A program that stopped meanwhile prints nothing."""
        self.running = False
        self.clock.advance(LONGEST_SECONDS)
        self.assertEqual(self.written, [])

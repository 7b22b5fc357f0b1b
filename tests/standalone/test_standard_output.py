"""
Tests for :mod:`twisted_exec.standalone.standard_output`.
"""

from __future__ import annotations

import os

from twisted.internet.task import Clock
from twisted.logger import Logger, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.service import SUMMARY
from twisted_exec.standalone.standard_output import (
    LONGEST_SECONDS,
    QUIET_SECONDS,
    FirstCommands,
    TerminalSummary,
)

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


class SummaryTests(SynchronousTestCase):
    """Tests for :class:`TerminalSummary`."""

    def test_summary(self) -> None:
        """The file has everything, also from before it was open; the terminal has what matters."""
        written: list[str] = []
        summary = TerminalSummary(written.append)
        log = Logger(observer=summary)
        log.info("pool local is registered")
        path = os.path.join(self.mktemp(), "log")
        os.mkdir(os.path.dirname(path))
        summary.open(path)
        log.info("going on without this {what}", what="program", **{SUMMARY: True})
        log.warn("the disk is\n{state}", state="full")
        log.error("no answer")
        log.critical("exec-standalone: the port is in use")
        self.assertEqual(
            written,
            [
                "going on without this program\n",
                "warning: the disk is full\n",
                "error: no answer\n",
            ],
        )
        with open(path, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 6)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_large_file(self) -> None:
        """A large file of earlier runs is renamed at the start, a small one continues."""
        path = self.mktemp()
        for size, is_renamed in ((1, False), (17 << 20, True)):
            with open(path, "w") as file:
                file.truncate(size)
            TerminalSummary(self.fail).open(path)
            self.assertIs(os.path.exists(f"{path}.1"), is_renamed)

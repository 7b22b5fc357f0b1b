"""
The run of ``docs/howto/write-a-driver.rst`` that plays a file.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from tests.examples.test_examples import EXAMPLES
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.testing.drivers import Line, OutputOnlyContract


class PlayedRunTests(OutputOnlyContract, TestCase):
    """``played_run.py`` with a test clock, so that it prints when the test says so."""

    answer = b"second 2"

    def setUp(self) -> None:
        self.clock, self.path = Clock(), os.path.abspath(self.mktemp())
        with open(self.path, "wb") as file:
            for second in range(1, 91):
                file.write(b"second %d" % second + b"." * (960 - len(b"second %d" % second)))
        namespace: dict[str, Any] = {"__name__": "played_run"}
        exec((EXAMPLES / "played_run.py").read_text(), namespace)
        self.run_class = namespace["PlayedRun"]

    def make_console(self) -> Any:
        return self.run_class(self.clock, self.path)

    def clean(self, console: Any) -> Any:
        return console.stop()

    def cause_output(self, console: Any, line: Line) -> None:
        self.clock.pump([1, 1])

    async def test_paused(self) -> None:
        """A paused line gets nothing, and goes on when it is resumed."""
        _, line = await self.opened()
        line.transport.pauseProducing()
        self.clock.pump([1, 1])
        self.assertEqual(line.got, b"")
        line.transport.resumeProducing()
        self.clock.pump([0, 1])
        self.assertIn(self.answer, line.got)

    async def test_paused_often(self) -> None:
        """Short pauses delay nothing for good."""
        _, line = await self.opened()
        for _ in range(20):
            line.transport.pauseProducing()
            self.clock.advance(0.9)
            line.transport.resumeProducing()
            line.transport.resumeProducing()
            self.clock.advance(0)
        self.assertIn(b"second 17", line.got)
        self.assertNotIn(b"second 19", line.got)

    async def test_missing(self) -> None:
        """A missing file is a reason not to start, and no exception."""
        os.remove(self.path)
        failed = self.make_console().connect(Factory.forProtocol(Line))
        self.assertEqual(self.failureResultOf(failed, CannotStart).value.condition, "FileMissing")

"""The fake console keeps what every console promises."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ProcessDone
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_exec.console.notices import notice
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.testing.console import FakeConsole
from twisted_exec.testing.drivers import (
    BreakableContract,
    ConsoleContract,
    Line,
    OutputOnlyContract,
)


class ContractTests(BreakableContract, ConsoleContract, TestCase):
    """Tests for :class:`FakeConsole` as a console."""

    provoke = b"hello"
    answer = b"hello"

    def make_console(self) -> FakeConsole:
        return FakeConsole(echo=True)

    async def clean(self, console: FakeConsole) -> None:
        console.ends()


class OutputOnlyTests(OutputOnlyContract, TestCase):
    """Tests for :class:`FakeConsole` without ``echo`` as a console without input."""

    answer = b"boot"

    def make_console(self) -> FakeConsole:
        return FakeConsole()

    def cause_output(self, console: FakeConsole, line: Line) -> None:
        console.says(b"boot")

    async def clean(self, console: FakeConsole) -> None:
        console.ends()


class LogConsole(FakeConsole):
    """A log: prints one notice for all input."""

    def __init__(self) -> None:
        super().__init__(echo=True)
        self._has_noticed = False

    def says(self, data: bytes) -> None:
        """Handle input, which ``echo`` passes here."""
        if not self._has_noticed:
            self._has_noticed = True
            super().says(notice("this console has no input"))

    def log(self, data: bytes) -> None:
        """Print output of the machine."""
        super().says(data)


class OutputOnlyNoticeTests(OutputOnlyContract, TestCase):
    """Tests for a console that prints a notice when it discards input."""

    answer = b"boot"
    discard_notice = b"this console has no input"

    def make_console(self) -> LogConsole:
        return LogConsole()

    def cause_output(self, console: LogConsole, line: Line) -> None:
        console.log(b"boot")

    async def clean(self, console: LogConsole) -> None:
        console.ends()


class FakeConsoleTests(SynchronousTestCase):
    """Tests for :class:`FakeConsole` as a double."""

    def setUp(self) -> None:
        self.console = FakeConsole(paced=False)

    def open(self) -> Any:
        return self.successResultOf(self.console.connect(Factory.forProtocol(Line)))

    def test_typed(self) -> None:
        """The test reads what was typed, each byte once."""
        self.assertEqual(self.console.typed(), b"")
        line = self.open()
        line.transport.write(b"ab")
        self.assertEqual((self.console.typed(), self.console.typed()), (b"ab", b""))
        self.assertEqual(line.got, b"")

    def test_says(self) -> None:
        """An open line receives the console's output; output before it is lost."""
        self.console.says(b"boot")
        line = self.open()
        self.console.says(b"login: ")
        self.assertEqual(line.got, b"login: ")
        self.assertEqual((self.console.opened, self.console.paced), (1, False))

    def test_refusal(self) -> None:
        """It may refuse once."""
        self.console.refusal = OSError("no line")
        self.failureResultOf(self.console.connect(Factory.forProtocol(Line)), OSError)
        self.open()

    def test_ends(self) -> None:
        """It ends once, and says how."""
        line = self.open()
        self.assertTrue(self.console.is_open)
        self.console.ends(ProcessDone(None))
        self.console.ends()
        self.assertFalse(self.console.is_open)
        self.assertEqual([type(reason) for reason in line.lost], [ProcessDone])
        self.console.window_changed(TerminalSize(80, 24))
        self.assertEqual(self.console.sizes, [TerminalSize(80, 24)])

    def test_abort(self) -> None:
        """A session may abort the line."""
        line = self.open()
        line.transport.abortConnection()
        self.assertEqual(len(line.lost), 1)

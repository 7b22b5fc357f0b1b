"""
Tests for :mod:`twisted_exec.runtimes.lines.command` and
:mod:`twisted_exec.runtimes.lines.programs`.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.protocol import Factory
from zope.interface.verify import verifyObject

from tests.runtimes.peers import reactor
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.runtimes.config import ConfigError, parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver
from twisted_exec.runtimes.lines.command import EARLY_END_SECONDS, CommandDriver
from twisted_exec.runtimes.lines.programs import last_line
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.streaming.interfaces import IBreakable, TerminalSize
from twisted_exec.testing.drivers import (
    QUICK,
    BreakableContract,
    ConsoleContract,
    Line,
    MachineDriverContract,
)

CAT = ["/bin/sh", "-c", "stty raw -echo; echo up; exec cat"]


class CommandCase(RuntimeCase):
    """Machines behind commands."""

    settle_seconds = 0.0
    early_end_seconds = EARLY_END_SECONDS

    def driver(self, command: Any = CAT, **keys: Any) -> CommandDriver:
        document = {
            "name": "rack",
            "driver": "command",
            "capabilities": {"cpu": 1, "memory": "1Gi"},
            "same_user": True,
            "lines": {"m": {"command": command, "break": "<break>"}},
            **keys,
        }
        (machine_class,) = parse({"classes": [document]})
        driver = machine_class.build(reactor, self.table).driver
        assert isinstance(driver, CommandDriver)
        driver.timing = QUICK
        driver.settle_seconds = self.settle_seconds
        driver.early_end_seconds = self.early_end_seconds
        return driver

    async def opened_line(self, *command: str, **keys: Any) -> tuple[SharedLine, Line]:
        run = self.driver(list(command) or CAT, **keys).run(self.facts())
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return run, line


class ContractTests(MachineDriverContract, ConsoleContract, BreakableContract, CommandCase):
    """The contracts of drivers and consoles."""

    starts = PROGRAMS
    provoke = b"hello"
    answer = b"hello"
    first_words = b"up"

    def make_driver(self) -> CommandDriver:
        return self.driver()

    def make_console(self) -> SharedLine:
        return self.driver().run(self.facts())

    def clean(self, console: SharedLine) -> Any:
        return console.stop()


class DriverTests(CommandCase):
    """Tests for :class:`CommandDriver`."""

    starts = PROGRAMS

    def test_driver(self) -> None:
        """It is one; what no line has on this host is missing."""
        verifyObject(IMachineDriver, self.driver())
        self.assertEqual(self.driver().missing(), "")
        lines = {"a": {"command": ["nosuch-1"]}, "b": {"command": ["/bin/cat"]}}
        self.assertEqual(self.driver(lines=lines).missing(), "")
        del lines["b"]
        self.assertIn("no executable 'nosuch-1'", self.driver(lines=lines).missing())

    def test_mistakes(self) -> None:
        """Each mistake has a message."""
        for keys, why in (
            ({"same_user": False}, "needs either user: NAME, or same_user: true"),
            ({"user": "nobody"}, "needs either user: NAME, or same_user: true"),
            ({"lines": {"m": {"command": "console"}}}, "lines[m]: command must be a list"),
            ({"lines": {"m": {"command": ["x"], "break": "x" * 65}}}, "more than 64 bytes"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(**keys)
            self.assertIn(why, str(caught.exception))

    async def test_break(self) -> None:
        """It is the keys that the program has for it; a line without any has none."""
        run, line = await self.opened_line()
        await line.until(b"up")
        run.send_break(100)
        await line.until(b"<break>")
        plain = self.driver(lines={"m": {"command": CAT}}).run(self.facts())
        self.assertFalse(IBreakable.providedBy(plain))

    async def test_size(self) -> None:
        """The terminal has the viewers' size."""
        script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
        run, line = await self.opened_line("/bin/sh", "-c", script)
        await line.until(b"up")
        run.window_changed(TerminalSize(100, 30))
        await line.until(b"30 100")

    async def test_ended(self) -> None:
        """A command that ends is a lost line, with its exit code and its last words, and starts again."""
        self.early_end_seconds = 600.0
        marker = os.path.join(self.directory, "second")
        script = (
            f"echo up; test -e {marker} && exec cat; touch {marker}; read x; echo busy.; exit 3"
        )
        _, line = await self.opened_line("/bin/sh", "-c", script)
        await line.until(b"up")
        line.transport.write(b"x\r")
        await line.until(b"was lost: /bin/sh ended with exit code 3: busy; input")
        await line.until(b"line is back")
        line.transport.write(b"again\r")
        await line.until(b"again\r\n")
        self.assertEqual(self.reasons(), ["LineLost", "LineBack"])

    async def test_ended_late(self) -> None:
        """The machine's earlier output reaches only its viewers."""
        self.early_end_seconds = 0.0
        _, line = await self.opened_line("/bin/sh", "-c", "echo canary; read x; exit 3")
        await line.until(b"canary")
        line.transport.write(b"x\r")
        await line.until(b"was lost: /bin/sh ended with exit code 3; input")
        self.assertNotIn("canary", str(self.events) + str(self.changes))

    async def test_ended_well(self) -> None:
        """Even a command that succeeds was only the way to the machine."""
        _, line = await self.opened_line("/bin/sh", "-c", "read x; exit 0")
        line.transport.write(b"x\r")
        await line.until(b"/bin/sh ended")

    async def test_nothing_left(self) -> None:
        """Power off ends the command and all that it started."""
        run, line = await self.opened_line("/bin/sh", "-c", "echo up; sleep 1000 & exec cat")
        await line.until(b"up")
        self.assertTrue(self.alive())
        await run.stop()
        self.assertEqual(self.alive(), [])
        self.assertEqual(len(line.lost), 1)

    async def test_ended_at_once(self) -> None:
        """A command that ends immediately has not reached the machine; its output says why."""
        self.settle_seconds = 600.0
        with self.assertRaises(CannotStart) as caught:
            await self.opened_line("/bin/sh", "-c", "echo cannot connect; exit 1")
        self.assertEqual(
            caught.exception.message,
            'line "m": /bin/sh ended with exit code 1: cannot connect',
        )
        self.assertEqual(self.reasons(), [])

    async def test_settled(self) -> None:
        """A command that keeps running has reached the machine; its earlier output is not lost."""
        self.settle_seconds = 0.05
        _, line = await self.opened_line()
        await line.until(b"up")

    async def test_not_there(self) -> None:
        """A missing command is reported."""
        with self.assertRaises(CannotStart) as caught:
            await self.opened_line("nosuch-program")
        self.assertIn("no executable 'nosuch-program'", caught.exception.message)


class LastLineTests(CommandCase):
    """Tests for :func:`last_line`."""

    def test_words(self) -> None:
        """The last line that has any, bounded and without control characters."""
        self.assertEqual(last_line(b"first\r\nlast\x1b[0m.\r\n \r\n"), "last[0m")
        self.assertEqual(last_line(b""), "")
        self.assertEqual(len(last_line(b"x" * 999)), 200)

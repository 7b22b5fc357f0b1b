"""
``kubectl-console`` as a process whose connection is lost.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint

from tests.cli.console.test_program_process import COMMAND, ConsoleProcess, TerminalCase
from tests.tiers import PROGRAMS
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.remotecommand.client import LOST
from twisted_exec.testing.resumable_console import ResumableConsole
from twisted_exec.wire.endings import COMPLETED, Ending
from twisted_exec.wire.resize import TerminalSize

reactor: Any = _reactor

LONG = [(503, None)] * 4
"""Refusals that make an outage last for more than half a second."""

PATIENT = f"""
from twisted_exec.cli.console import first_screen, outage
first_screen.WAIT_SECONDS = outage.SILENT_SECONDS = 600
{COMMAND}
"""
"""The program; it waits for the first screen, and is silent in an outage, for ten minutes."""


REDIRECTED = f"""
import os
for number in map(int, os.environ["NUMBERS"].split()):
    os.dup2(os.open(os.environ["INTO"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
{COMMAND}
"""
"""The program, with output in a file."""


class ResumeCase(TerminalCase):
    """``self.console`` is a console whose sessions can be resumed."""

    async def setUp(self) -> None:
        await super().setUp()
        self.console = ResumableConsole(reactor, seconds=3600)
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(self.console)
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        self.config = ClientConfig(f"http://127.0.0.1:{port.getHost().port}")

    @property
    def typed(self) -> bytes:
        """The text that reached the line."""
        return b"".join(item for item in self.console.line if isinstance(item, bytes))

    async def until_typed(self, expected: bytes) -> None:
        """Wait until the line has got this."""
        while len(self.typed) < len(expected):
            await self._settle()
        self.assertEqual(self.typed, expected)

    def lose(self, *refusals: tuple[int, int | None]) -> None:
        """Cut the connection; refuse the next attempts."""
        self.console.refusals = [*refusals]
        for connection in self.console.live:
            connection.cut()

    async def prompt(self, *arguments: str, **more: Any) -> ConsoleProcess:
        """Start the program on a terminal; fires when it shows the machine's prompt."""
        self.console.print(b"$ ")
        process = self.start_on_terminal(*arguments, **more)
        await process.until(rb"\$ ")
        return process


class TerminalTests(ResumeCase):
    """A user at a terminal."""

    starts = PROGRAMS
    exact = True

    async def test_goes_on(self) -> None:
        """Output and keys continue; two lines and the status say what happened."""
        process = await self.prompt()
        process.type(b"ls\r")
        await self.until_typed(b"ls\r")
        self.lose(*LONG)
        self.console.print(b"bin\r\n")
        lost = rb"\$ \r +\rconnection lost; Ctrl-\] leaves, not Ctrl-C\r\nreconnecting\r\n\$ "
        await process.until(lost)
        process.type(b"pwd\r")
        # In the row that counts, or below it in a terminal that cannot move its cursor.
        await process.until(
            rb"reconnected after \d+\.\d s; 5 bytes of output follow(\x1b\[K\x1b8|\r\n\$ )bin\r\n"
        )
        await self.until_typed(b"ls\rpwd\r")
        process.type(b"~s")
        await process.until(rb"\r\n  output      at offset 7\r\n(.*\r\n)*.*yes; resumed 1 time\r\n")
        process.type(b"~.")
        await self.ends_so(process, 0)

    async def test_short_loss(self) -> None:
        """A short loss passes without a word, and nothing is repeated."""
        process = await self.prompt(command=PATIENT)
        for printed in (b"0", b"01", b"012"):
            self.lose()
            self.console.print(printed[-1:])
            await process.until(rb"\$ " + printed)
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        end = b"helps.\r\n$ 012\r\nDisconnected from vm.\r\n"
        self.assertTrue(process.stdout.endswith(end), process.stdout)

    async def test_leave(self) -> None:
        """A user reads which program restarts, and may leave meanwhile."""
        process = await self.prompt()
        self.console.refusals = [(503, None)] * 1000
        self.console.stop("exec-apiserver is restarting")
        await process.until(
            rb"exec-apiserver is restarting; Ctrl-\] leaves, not Ctrl-C\r\nreconnecting"
        )
        process.type(b"~s")
        await process.until(
            rb"connection lost \d+ s ago \(exec-apiserver is restarting\); reconnecting"
        )
        process.type(b"~.")
        await self.ends_so(process, 0)

    async def test_size(self) -> None:
        """The size that the terminal has got during the outage is sent after it."""
        process = await self.prompt()
        self.lose(*LONG)
        await process.until(rb"reconnecting")
        self.set_size(TerminalSize(132, 43))
        process.signal(signal.SIGWINCH)
        await process.until(rb"reconnected")
        while self.console.sizes[-1] != TerminalSize(132, 43):
            await self._settle()
        process.type(b"\x1d")
        await self.ends_so(process, 0)

    async def test_uncertain_keys(self) -> None:
        """After a restart of the machine's end the user reads how many keys are uncertain."""
        process = await self.prompt("--quiet")
        process.type(b"ls\r")
        await self.until_typed(b"ls\r")
        self.console.restart()
        self.console.print(b"bin\r\n$ ")
        await process.until(
            rb"bin\r\n\$ \r +\r"
            rb"the connection was lost, and 3 keys may not have reached the machine\r\n\$ "
        )
        process.type(b"pwd\r")
        await self.until_typed(b"ls\rpwd\r")
        process.type(b"\x1d")
        await self.ends_so(process, 0)

    async def lose_keys(self, numbers: str) -> tuple[bytes, bytes]:
        """
        Lose keys that a user has typed, while these descriptors go to a file.

        :return: what the terminal shows, and what is in the file.
        """
        path = os.path.abspath(self.mktemp())
        self.console.print(b"$ ")
        process = self.start_on_terminal(
            "--quiet", command=REDIRECTED, env={"NUMBERS": numbers, "INTO": path}
        )

        def shown() -> tuple[bytes, bytes]:
            with open(path, "a+b") as file:
                file.seek(0)
                return process.stdout, file.read()

        for expected in (rb"\$ ", b"3 keys may not have reached the machine"):
            while not any(re.search(expected, each) for each in shown()):
                await self._settle()
            if not self.typed:
                process.type(b"ls\r")
                await self.until_typed(b"ls\r")
                self.console.restart()
        process.type(b"~?\x1d")
        await self.ends_so(process, 0)
        return shown()

    async def test_standard_error_in_a_file(self) -> None:
        """Messages are on the terminal, also the answers to commands."""
        terminal, file = await self.lose_keys("2")
        self.assertIn(b"3 keys may not have reached the machine\r\n", terminal)
        self.assertIn(b"right after Enter", terminal)
        self.assertEqual(file, b"")

    async def test_output_in_a_file(self) -> None:
        """Messages are on the terminal, and output is in the file."""
        terminal, file = await self.lose_keys("1")
        self.assertIn(b"3 keys may not have reached the machine\r\n", terminal)
        self.assertEqual(file, b"$ ")

    async def test_both_in_a_file(self) -> None:
        """With a terminal for input only, messages are on standard error."""
        terminal, file = await self.lose_keys("1 2")
        self.assertIn(
            b"the connection was lost, and 3 keys may not have reached the machine\n", file
        )
        self.assertNotIn(b"keys may not", terminal)

    async def test_refused(self) -> None:
        """A session that is over ends with the server's reason."""
        process = await self.prompt()
        self.lose((404, None))
        await self.ends_so(process, 1)
        self.assertRegex(process.stdout, rb"\r\nthe session could not be resumed: [^\r]+\r\n\Z")


class ScreenTests(ResumeCase):
    """The first output at a terminal."""

    starts = PROGRAMS

    def shown_to(self, *arguments: str, term: str = "xterm") -> ConsoleProcess:
        """Start the program at a console that has printed a lot, and has a screen."""
        self.console.print(b"old output\r\n" * 1000 + b"new")
        offset = len(self.console.journal) - 1
        self.console.state = {
            "epoch": self.console.epoch,
            "offset": offset,
            "output": "\x1b[?1049hthe editor ne",
            "columns": 80,
            "rows": 24,
        }
        return self.start_on_terminal(*arguments, command=PATIENT, env={"TERM": term})

    async def test_screen(self) -> None:
        """
        It is the screen, and then the output behind it; leaving resets the modes of the screen.

        The greeting covers the last row.
        """
        process = self.shown_to()
        await process.until(rb"the editor new\x1b7.*\x1b\[24;1HConnected to vm.*\x1b8\Z")
        self.assertNotIn(b"old output", process.stdout)
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertIn(b"\x1b[?1049l", process.stdout)

    async def test_raw(self) -> None:
        """It is the output with ``--raw``, and on a terminal that can only print; then comes the greeting."""
        for arguments, term in ((["--raw"], "xterm"), ([], "dumb")):
            process = self.shown_to(*arguments, term=term)
            await process.until(rb"old output\r\nnew\s+Connected to vm")
            self.assertNotIn(b"editor", process.stdout)
            process.type(b"\x1d")
            await self.ends_so(process, 0)


class PipeTests(ResumeCase):
    """A script."""

    starts = PROGRAMS
    exact = True

    async def test_earlier_queries(self) -> None:
        """A pipe gets every byte of earlier output."""
        self.console.print(b"old \x1b[6n")
        process = self.start("--raw")
        await process.until(rb"old \x1b\[6n")

    async def test_goes_on(self) -> None:
        """The linger time begins anew after an outage that lasts longer than it."""
        process = self.start_with_clock("--linger", "600")
        process.type(b"uname\n")
        process.transport.closeStdin()
        await self.until_typed(b"uname\n")
        self.lose(*LONG)
        while len(self.console.refusals) == len(LONG):
            await self._settle()
        self.pass_seconds(process, 600)
        self.console.print(b"Linux\n")
        await process.until(b"Linux\n")
        self.pass_seconds(process, 600)
        await self.ends_with(process, 0)
        self.assertEqual(process.stdout, b"Linux\n")

    async def test_end_of_input(self) -> None:
        """The end of the input reaches the machine's side once, also over an outage."""
        process = self.start()
        process.type(b"uname\n")
        await self.until_typed(b"uname\n")
        self.lose(*LONG)
        process.transport.closeStdin()
        while None not in self.console.line:
            await self._settle()
        self.console.end(Ending(COMPLETED))
        await self.ends_with(process, 0)
        self.assertEqual(self.console.line.count(None), 1)

    async def test_uncertain_input(self) -> None:
        """A script whose input may not have reached the machine fails."""
        process = self.start("--linger", "600")
        process.type(b"reboot\n")
        await self.until_typed(b"reboot\n")
        self.console.restart()
        line = "the connection was lost, and 7 keys may not have reached the machine"
        await self.ends_with(process, 1, line)

    async def test_no_resume(self) -> None:
        """With ``--no-resume`` a lost connection is the end."""
        self.console.print(b"up")
        process = self.start("--no-resume")
        await process.until(b"up")
        self.lose()
        await self.ends_with(process, 1, LOST)
        self.assertEqual(len(self.console.connections), 1)

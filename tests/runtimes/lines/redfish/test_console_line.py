"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.console_line`, with ssh and a BMC's shell."""

from __future__ import annotations

import os
import pwd
from typing import Any

from twisted.internet.protocol import Factory

from tests import needs
from tests.runtimes.bmc.shell import ShellServer, enters, prints
from tests.runtimes.peers import Sshd, reactor
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.layer import LayeredEndpoint
from twisted_exec.runtimes.lines.redfish.console_line import ConsoleLine
from twisted_exec.runtimes.lines.redfish.quirks import Quirk, find, load
from twisted_exec.runtimes.lines.ssh import SSHDriver, SSHLine
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.testing.drivers import Line

DELL = find(load(), "Dell Inc.", "", "")
LENOVO = find(load(), "Lenovo", "", "")
HPE = find(load(), "HPE", "", "")
OPENBMC = find(load(), "NVIDIA", "GH200", "", "OpenBmc")

DELL_BANNER = b"Connected to Serial Device 2. To end type: ^\\\r\n"
DELL_COMMANDS = {b"connect com2": enters(DELL_BANNER, b"login: ")}


class ShellCase(RuntimeCase):
    """A BMC's shell, and a line through it."""

    starts = PROGRAMS
    skip = needs.sshd()

    def serve(self, quirk: Quirk, commands: Any, *, is_shell: bool = True) -> None:
        self.quirk = quirk
        self.server = ShellServer(
            commands, prompt=quirk.prompts[0] if is_shell else b"", escapes=quirk.never_send
        ).listen()
        self.addCleanup(self.server.stop)
        self.write("known", self.server.known_hosts())
        self.write("password", self.server.password + "\n")
        self.notes: list[str] = []

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    def endpoint(self, *, releases: bool = False) -> LayeredEndpoint:
        line = SSHLine(
            "127.0.0.1",
            self.server.port,
            self.server.user,
            known_hosts=os.path.join(self.directory, "known"),
            password_file=os.path.join(self.directory, "password"),
        )
        entries = self.quirk.entry_commands if self.server.prompt else ()
        inner = SSHDriver({}, reactor, self.table).endpoint(
            self.facts(), line, is_shell=bool(entries)
        )
        return LayeredEndpoint(
            inner,
            lambda upper: ConsoleLine(
                upper, reactor, self.quirk, entries, self.notes.append, releases=releases
            ),
        )

    async def open(self, **more: Any) -> Line:
        line: Line = await self.wait(self.endpoint(**more).connect(Factory.forProtocol(Line)))
        self.clean_later(self._end, line)
        return line

    async def _end(self, line: Line) -> None:
        line.transport.loseConnection()
        await line.over()

    async def refusal(self, **more: Any) -> CannotStart:
        with self.assertRaises(CannotStart) as caught:
            await self.endpoint(**more).connect(Factory.forProtocol(Line))
        return caught.exception


class EntryTests(ShellCase):
    """The way to the console."""

    async def test_hidden(self) -> None:
        """Users see the machine's output alone, and their input reaches it."""
        self.serve(DELL, DELL_COMMANDS)
        self.server.greeting = b"Welcome to iDRAC\r\n"
        line = await self.open()
        await line.until(b"login: ")
        line.transport.write(b"root\r")
        await line.until(b"root\r")
        self.assertEqual(line.got, b"login: root\r")
        self.assertEqual(self.server.shell.typed, b"connect com2\r")
        line.transport.window_changed(TerminalSize(100, 30))

    async def test_alternative(self) -> None:
        """Newer firmware of Lenovo knows other commands."""
        self.serve(
            LENOVO,
            {
                b"console 1": prints(b"The command line contains extraneous arguments\r\n"),
                b"console start": enters(b"", b"login: "),
            },
        )
        line = await self.open()
        await line.until(b"login: ")
        self.assertEqual(line.got.lstrip(), b"login: ")

    async def test_taken(self) -> None:
        """The console of another session is no loss, but a condition; it can be released."""
        taken = prints(b"Virtual Serial Port is currently in use by another session.\r\n")
        commands = {b"vsp": taken}
        self.serve(HPE, commands)
        self.assertEqual((await self.refusal()).condition, "ConsoleTaken")

        def stop(shell: Any) -> None:
            commands[b"vsp"] = enters(b"Press 'ESC (' to return to the CLI Session.\r\n", b"up")
            shell.ask()

        commands[b"stop /system1/oemhp_vsp1"] = stop
        line = await self.open(releases=True)
        await line.until(b"up")

    async def test_refused(self) -> None:
        """A BMC without the command says why."""
        self.serve(DELL, {})
        refusal = await self.refusal()
        self.assertEqual(refusal.condition, "EntryFailed")
        self.assertIn("unknown command", refusal.message)
        self.assertEqual(self.alive(), [])

    async def test_closed(self) -> None:
        """A BMC that closes in the dialogue, with or without words."""
        self.serve(DELL, {b"connect com2": lambda shell: shell.hang_up()})
        with self.assertRaises(Exception) as caught:
            await self.endpoint().connect(Factory.forProtocol(Line))
        self.assertIn("ssh", str(caught.exception))
        self.server.commands = {
            b"connect com2": lambda shell: (shell.says(b"No more sessions\r\n"), shell.hang_up())
        }
        self.assertIn("closed the connection: No more sessions", (await self.refusal()).message)


class GuardTests(ShellCase):
    """The way out of it."""

    async def test_fall_out(self) -> None:
        """When the BMC shows its prompt the line ends; users see no prompt, and type nothing there."""
        self.serve(DELL, DELL_COMMANDS)
        line = await self.open()
        await line.until(b"login: ")
        typed = self.server.shell.typed
        self.server.shell.fall_out()
        error = await line.over()
        self.assertIsInstance(error, CannotStart)
        self.assertEqual(error.condition, "ConsoleEnded")
        line.transport.write(b"racadm serveraction powerdown\r")
        self.assertNotIn(b"racadm>>", line.got)
        await self.until(lambda: self.server.shell.is_gone)
        self.assertEqual(self.server.shell.typed, typed)

    async def test_within_line(self) -> None:
        """The prompt within a line of the machine is output."""
        self.serve(DELL, DELL_COMMANDS)
        line = await self.open()
        self.server.shell.says(b"\r\nsay racadm>> here\r\n")
        await line.until(b"say racadm>> here")
        line.transport.write(b"on")
        await line.until(b"on")

    async def test_escapes(self) -> None:
        """The vendor's escape does not reach the BMC, in parts or whole; the user is told how much was dropped."""
        self.serve(HPE, {b"vsp": enters(b"Press 'ESC (' to return to the CLI Session.\r\n", b"up")})
        line = await self.open()
        await line.until(b"up")
        for part in (b"a\x1b(", b"b\x1b", b"(", b"((", b"c\r"):
            line.transport.write(part)
        await line.until(b"c\r")
        self.assertEqual(self.server.shell.got, b"a\x1bb\x1bc\r")
        self.assertEqual(len(self.notes), 1)
        self.assertIn("(HPE iLO) is not sent; bytes dropped so far: 1", self.notes[0])

    async def test_port_is_console(self) -> None:
        """A port that is the console begins at once, without a dialogue, and keeps its own escape."""
        self.serve(OPENBMC, {}, is_shell=False)
        self.server.greeting = b"login: "
        line = await self.open()
        await line.until(b"login: ")
        line.transport.write(b"x\r~.y\r~~z")
        await line.until(b"z")
        self.assertEqual(self.server.shell.got, b"x\r~y\r~~z")


SCRIPT = r"""#!/bin/sh
# A BMC's shell on a real terminal; its console ends after four keys.
printf 'Welcome\n'
while printf 'racadm>>' && read -r line; do
    case $line in
    'connect com2')
        printf 'Connected to Serial Device 2. To end type: ^\\\n'
        stty raw -echo
        printf 'login: '
        head -c 4
        stty sane
        printf '\r\n'
        ;;
    *) printf 'unknown command\n' ;;
    esac
done
"""


class RealServerTests(RuntimeCase):
    """A BMC's shell behind OpenSSH's server, as a forced command."""

    starts = PROGRAMS
    skip = needs.sshd()

    def setUp(self) -> None:
        super().setUp()
        self.server = Sshd(self.directory)
        self.addCleanup(self.server.stop)
        self.server.start()
        script = self.server.path("shell")
        with open(script, "w") as file:
            file.write(SCRIPT)
        os.chmod(script, 0o700)
        with open(self.server.path("user.pub")) as file:
            key = file.read()
        with open(self.server.path("user.pub"), "w") as file:
            file.write(f'command="{script}" {key}')

    async def test_console(self) -> None:
        """The command is typed at the terminal's pace, and the end of the console is noticed."""
        line = SSHLine(
            "127.0.0.1",
            self.server.port,
            pwd.getpwuid(os.geteuid()).pw_name,
            identity_file=self.server.path("user"),
            known_hosts=self.server.path("known_hosts"),
        )
        endpoint = LayeredEndpoint(
            SSHDriver({}, reactor, self.table).endpoint(self.facts(), line, is_shell=True),
            lambda upper: ConsoleLine(upper, reactor, DELL, DELL.entry_commands, lambda text: None),
        )
        console: Line = await self.wait(endpoint.connect(Factory.forProtocol(Line)))
        await console.until(b"login: ")
        console.transport.write(b"a\x1cbcd")
        error = await console.over()
        self.assertEqual(console.got.rstrip(), b"login: abcd")
        self.assertEqual(error.condition, "ConsoleEnded")


class LoginTests(ShellCase):
    """Passwords."""

    async def test_methods(self) -> None:
        """The password answers keyboard-interactive and password logins, and is in no argument or environment."""
        self.serve(DELL, DELL_COMMANDS)
        for method in (b"keyboard-interactive", b"password"):
            self.server.methods = [method]
            line = await self.open()
            await line.until(b"login: ")
            self.assertEqual(self.server.logins[-1], (method, self.server.password.encode()))
            for pid in self.alive():
                for name in ("cmdline", "environ"):
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        self.assertNotIn(self.server.password.encode(), file.read())

    async def refused(self) -> str:
        with self.assertRaises(Exception) as caught:
            await self.endpoint().connect(Factory.forProtocol(Line))
        message = str(caught.exception)
        self.assertNotIn(self.server.password, message)
        return message

    async def test_wrong(self) -> None:
        """A wrong password is tried once, and is the reason."""
        self.serve(DELL, DELL_COMMANDS)
        self.write("password", "wrong\n")
        self.assertIn("Permission denied", await self.refused())
        self.assertEqual(self.server.logins, [(b"keyboard-interactive", b"wrong")])

    async def test_other_question(self) -> None:
        """Only the question for the password is answered with it: a BMC that wants a new one gets none."""
        self.serve(DELL, DELL_COMMANDS)
        for question in (b"New password: ", b"Retype the Password: ", b"Token: "):
            self.server.question = question
            self.assertIn("Permission denied", await self.refused())
            self.assertNotIn(
                self.server.password.encode(), [each for _, each in self.server.logins]
            )

    async def test_other_host_key(self) -> None:
        """A BMC with another key gets no password."""
        self.serve(DELL, DELL_COMMANDS)
        other = ShellServer({}).listen()
        self.addCleanup(other.stop)
        self.write("known", self.server.known_hosts(other._key))
        self.assertIn("Host key verification failed", await self.refused())
        self.write("known", "")
        self.assertIn("Host key verification failed", await self.refused())
        self.assertEqual(self.server.logins, [])

    async def test_no_password(self) -> None:
        """A file that is missing or empty is the condition, and nothing is connected."""
        self.serve(DELL, DELL_COMMANDS)
        for text in ("", "\nsecond\n", "x" * 2000):
            self.write("password", text)
            self.assertEqual((await self.refusal()).condition, "NoPassword")
        os.unlink(os.path.join(self.directory, "password"))
        self.assertIn("cannot be read", (await self.refusal()).message)
        self.assertEqual(self.server.shells, [])

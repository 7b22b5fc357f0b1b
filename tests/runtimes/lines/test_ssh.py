"""
Tests for :mod:`twisted_exec.runtimes.lines.ssh`, with a real OpenSSH server.
"""

from __future__ import annotations

import os
import pwd
from typing import Any

from twisted.internet.protocol import Factory
from zope.interface.verify import verifyObject

from tests import needs
from tests.runtimes.peers import Sshd, reactor
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.runtimes.config import ConfigError, parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.lines.ssh import SSHDriver, SSHLine, arguments
from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.testing.drivers import (
    QUICK,
    BreakableContract,
    ConsoleContract,
    Line,
    MachineDriverContract,
)

CAT = "stty raw -echo; echo up; exec cat"


class SSHCase(RuntimeCase):
    """A class whose machines are reached by ssh."""

    skip = needs.sshd()

    def driver(self, **keys: Any) -> SSHDriver:
        document = {
            "name": "rack",
            "driver": "ssh",
            "capabilities": {"cpu": 1, "memory": "1Gi"},
            "known_hosts": "/known",
            "lines": {"m": {"host": "console.lab"}},
            **keys,
        }
        (machine_class,) = parse({"classes": [document]})
        driver = machine_class.build(reactor, self.table).driver
        assert isinstance(driver, SSHDriver)
        driver.timing = QUICK
        return driver


class ConfigTests(SSHCase):
    """The configuration file."""

    def test_shared(self) -> None:
        """Keys of the class are defaults for its lines."""
        driver = self.driver(
            user="ann",
            identity_file="/id",
            lines={
                "a": {"host": "h", "command": "x y"},
                "m": {"host": "i", "user": "bob", "port": 3},
            },
        )
        self.assertEqual(
            driver.lines.options_of(self.facts("a")),
            SSHLine("h", 22, "ann", "x y", "/id", "/known"),
        )
        self.assertEqual(
            driver.lines.options_of(self.facts("m")), SSHLine("i", 3, "bob", "", "/id", "/known")
        )
        verifyObject(IMachineDriver, driver)
        self.assertEqual(driver.missing(), "")

    def test_mistakes(self) -> None:
        """Each mistake has a message; options of ssh are not valid hosts."""
        for keys, why in (
            ({"known_hosts": ""}, "lines[m]: known_hosts is missing"),
            ({"identity_file": "id"}, "identity_file 'id' is not an absolute path"),
            ({"password_file": "p"}, "password_file 'p' is not an absolute path"),
            ({"user": "-oX"}, "user '-oX' is not a valid user"),
            ({"lines": {"m": {"host": "-oProxyCommand=x"}}}, "is not a valid host"),
            ({"lines": {"m": {"host": "a b"}}}, "host 'a b' is not a valid host"),
            ({"lines": {"m": {"host": "a", "port": 0}}}, "port must be between 1 and 65535"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(**keys)
            self.assertIn(why, str(caught.exception))

    def test_arguments(self) -> None:
        """ssh never prompts, checks host keys and forwards nothing; the command is one argument."""
        words = arguments(SSHLine("h", known_hosts="/known hosts", command="x; y"), "/log")
        for word in ("BatchMode=yes", "StrictHostKeyChecking=yes", "ClearAllForwardings=yes"):
            self.assertIn(word, words)
        self.assertIn('UserKnownHostsFile="/known hosts"', words)
        self.assertEqual(words[-3:], ["--", "h", "x; y"])
        self.assertEqual(words[words.index("-F") + 1], "none")
        self.assertNotIn("-i", words)
        self.assertNotIn("PubkeyAuthentication=no", words)
        login = arguments(SSHLine("h", password_file="/secret"), "/log")
        for word in ("BatchMode=no", "NumberOfPasswordPrompts=1", "PubkeyAuthentication=no"):
            self.assertIn(word, login)
        self.assertNotIn("/secret", login)
        both = arguments(SSHLine("h", identity_file="/id", password_file="/secret"), "/log")
        self.assertNotIn("PubkeyAuthentication=no", both)
        own = arguments(SSHLine("h", config="/etc/lab_config"), "/log")
        self.assertEqual((own[-1], own[own.index("-F") + 1]), ("h", "/etc/lab_config"))


class ServerTests(MachineDriverContract, ConsoleContract, BreakableContract, SSHCase):
    """A console behind a real server."""

    starts = PROGRAMS
    provoke = b"hello"
    answer = b"hello"
    first_words = b"up"

    def setUp(self) -> None:
        super().setUp()
        self.server = Sshd(self.directory)
        self.addCleanup(self.server.stop)
        self.server.start()

    def make_driver(self, command: str = CAT, **line: Any) -> SSHDriver:
        return self.driver(
            user=pwd.getpwuid(os.geteuid()).pw_name,
            known_hosts=self.server.path("known_hosts"),
            identity_file=self.server.path("user"),
            lines={
                "m": {"host": "127.0.0.1", "port": self.server.port, "command": command, **line}
            },
        )

    def make_console(self, command: str = CAT, **line: Any) -> SharedLine:
        run = self.make_driver(command, **line).run(self.facts())
        self.addCleanup(run.stop)
        return run

    def clean(self, console: SharedLine) -> Any:
        return console.stop()

    async def refusal(self, run: SharedLine) -> str:
        with self.assertRaises(CannotStart) as caught:
            await run.connect(Factory.forProtocol(Line))
        self.assertEqual(caught.exception.condition, "LineFailed")
        self.assertEqual(self.alive(), [])
        return caught.exception.message

    async def test_break(self) -> None:
        """It reaches the server, which sends it to whatever the console is."""
        run, line = await self.opened()
        run.send_break(100)
        await self.until(lambda: "request break" in self.server.log())
        line.transport.write(b"~.~B\r~.")
        await line.until(b"~.~B\r~.")

    async def test_size(self) -> None:
        """The far terminal has the viewers' size."""
        run = self.make_console("while :; do stty size; sleep 0.05; done")
        line = await run.connect(Factory.forProtocol(Line))
        await line.until(b"\n")
        run.window_changed(TerminalSize(100, 30))
        await line.until(b"30 100")

    async def test_other_host_key(self) -> None:
        """A host with another key than the one that is known is not talked to."""
        self.server.know("user")
        self.assertIn("Host key verification failed", await self.refusal(self.make_console()))

    async def test_key_refused(self) -> None:
        """A key that the server does not know is no reason to ask for a password."""
        key = self.server.path("host")
        message = await self.refusal(self.make_console(identity_file=key))
        self.assertIn("Permission denied (publickey", message)

    async def test_password_beside_key(self) -> None:
        """A line with a key and a password logs in with the key."""
        path = os.path.join(self.directory, "password")
        with open(path, "w") as file:
            file.write("unused\n")
        os.chmod(path, 0o600)
        run = self.make_console(password_file=path)
        line = await self.wait(run.connect(Factory.forProtocol(Line)))
        await line.until(b"up")

    async def test_lost(self) -> None:
        """A connection that ends is made again; what ssh said of it is not in the console."""
        _, line = await self.opened()
        for program in list(self.server._programs):
            await program.stop()
        await line.until(b"was lost: ssh ended with exit code 255")
        await line.until(b"line is back")
        line.transport.write(b"again")
        await line.until(b"again")
        self.assertNotIn(b"Authenticated", line.got)

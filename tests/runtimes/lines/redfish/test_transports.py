"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.endpoint`: each way to the console, with real clients."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory

from tests import needs
from tests.runtimes.bmc.server import PASSWORD, USER
from tests.runtimes.bmc.shell import ShellServer, enters, prints
from tests.runtimes.lines.redfish.support import RedfishCase, reactor
from tests.runtimes.peers import IPMISim
from tests.tiers import PROGRAMS
from tests.tls.support import write
from twisted_exec.runtimes.lines.ipmi import IPMIDriver, IPMILine
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import Line, MachineDriverContract

BANNER = b"Connected to Serial Device 2. To end type: ^\\\r\n"


class ShellCase(RedfishCase):
    """A Dell whose console is behind its shell."""

    starts = PROGRAMS
    skip = needs.sshd()
    kind = "dell"

    def setUp(self) -> None:
        super().setUp()
        self.commands = {b"connect com2": enters(BANNER, b"login: ")}
        self.shell = ShellServer(
            self.commands, prompt=b"racadm>>", escapes=[b"\x1c"], user=USER, password=PASSWORD
        ).listen()
        self.addCleanup(self.shell.stop)
        self.known = write(self.directory, "known", self.shell.known_hosts().encode())
        (network,) = (path for path in self.bmc.documents if path.endswith("/NetworkProtocol"))
        if self.kind == "dell":
            self.bmc.documents[network]["SSH"]["Port"] = self.shell.port
        self.bmc.documents[network]["IPMI"]["ProtocolEnabled"] = False

    def make_driver(self, **keys: Any) -> RedfishDriver:
        return super().make_driver(**{"known_hosts": self.known, **keys})


class ShellTests(MachineDriverContract, ShellCase):
    """The console behind a BMC's shell."""

    async def test_console(self) -> None:
        """Users see the machine, and nothing of the BMC."""
        _, line = await self.opened_line()
        await line.until(b"login: ")
        line.transport.write(b"root\r")
        await line.until(b"root\r")
        self.assertEqual(line.got, b"login: root\r")
        self.assertEqual(self.conditions[-1][:2], ("True", "VendorSSH"))

    async def test_drop(self) -> None:
        """Keys that would leave the console are not sent, and a notice says so."""
        _, line = await self.opened_line()
        line.transport.write(b"a\x1cb")
        await line.until(b"bytes dropped so far: 1]")
        await self.until(lambda: self.shell.shell.got == b"ab")

    async def test_fall_out(self) -> None:
        """The BMC's own prompt ends the line at once; then the console is entered again."""
        _, line = await self.opened_line()
        self.shell.shell.fall_out()
        await line.until(b"line is back")
        self.assertIn("ConsoleEnded", self.reasons())
        self.assertNotIn(b"racadm", line.got)

    async def test_no_host_key(self) -> None:
        """Without known_hosts nothing is sent to the BMC's SSH server."""
        refusal = await self.refusal(self.make_driver(known_hosts=""))
        self.assertIn("known_hosts is missing", refusal.message)
        self.assertEqual(self.shell.logins, [])

    async def test_taken(self) -> None:
        """A console that another client has is not taken from it."""
        self.commands[b"connect com2"] = prints(b"Serial Device 2 is in use\r\n")
        refusal = await self.refusal()
        self.assertEqual(refusal.condition, "ConsoleTaken")
        self.assertEqual(self.conditions[-1][:2], ("False", "ConsoleTaken"))


class FallBackTests(ShellCase):
    """A way that does not open."""

    kind = "openbmc"

    def setUp(self) -> None:
        super().setUp()
        self.shell.prompt = b""
        self.bmc.documents[self.bmc.system]["SerialConsole"]["SSH"]["Port"] = self.shell.port

    async def test_next(self) -> None:
        """The next way is tried, and the condition says why the first was not taken."""
        self.bmc.console.answers = [403] * 100
        _, line = await self.opened_line(self.make_driver(transports=["openbmc", "ssh"]))
        line.transport.write(b"hello")
        await line.until(b"hello")
        _, reason, message = self.conditions[-1]
        self.assertEqual(reason, "SSH")
        self.assertIn("not openbmc: the BMC refuses the session", message)
        self.assertIn("not ipmi: ", message)

    async def test_first(self) -> None:
        """The WebSocket of OpenBMC comes first."""
        await self.opened_line()
        self.assertEqual(self.conditions[-1][:2], ("True", "OpenBMC"))
        self.assertEqual(self.shell.logins, [])


class SOLTests(RedfishCase):
    """Serial over LAN."""

    starts = PROGRAMS
    skip = needs.ipmi()
    kind = "hpe"

    async def setUp(self) -> None:
        super().setUp()
        self.sol = IPMISim(self.directory)
        self.addCleanup(self.sol.stop)
        await self.sol.start()
        self.bmc.password = "secret-canary"
        write(self.directory, "password", b"secret-canary\n")
        os.chmod(self.password, 0o600)
        (network,) = (path for path in self.bmc.documents if path.endswith("/NetworkProtocol"))
        self.bmc.documents[network]["IPMI"]["Port"] = self.sol.port

    def make_driver(self, **keys: Any) -> RedfishDriver:
        return super().make_driver(**{"transports": ["ipmi"], "cipher_suite": 3, **keys})

    async def opened_by(self, driver: RedfishDriver) -> tuple[SharedLine, Line]:
        run, line = await self.opened_line(driver)
        line.transport.write(b"hello")
        await line.until(b"hello")
        return run, line

    async def test_console(self) -> None:
        """It is a console; nothing of ipmitool is in it."""
        _, line = await self.opened_by(self.make_driver())
        self.assertEqual(line.got, b"hello")
        self.assertEqual(self.conditions[-1][:2], ("True", "IPMI"))

    async def opened_elsewhere(self) -> Line:
        """Another client has the only session."""
        server = IPMILine("127.0.0.1", self.sol.port, USER, self.password, cipher_suite=3)
        endpoint = IPMIDriver({}, reactor, self.table).endpoint(self.facts(), server)
        line: Line = await endpoint.connect(Factory.forProtocol(Line))

        async def close() -> None:
            line.transport.loseConnection()
            await line.over()

        self.addCleanup(lambda: Deferred.fromCoroutine(close()))
        return line

    async def test_taken(self) -> None:
        """The session of another client is left alone, and the condition says who is in the way."""
        await self.opened_elsewhere()
        refusal = await self.refusal()
        self.assertEqual(refusal.condition, "ConsoleTaken")
        self.assertNotIn("ConsoleReleased", self.reasons())

    async def test_steal(self) -> None:
        """If the operator says so, it is ended, with an Event."""
        other = await self.opened_elsewhere()
        await self.opened_by(self.make_driver(steal=True))
        self.assertIn("ConsoleReleased", self.reasons())
        await other.over()

    async def test_left_by_us(self) -> None:
        """A session that an earlier runtime of ours has left is ended, with an Event."""
        await self.opened_elsewhere()  # stands for that session
        driver = self.make_driver()
        await self.refusal(driver)
        (bmc,) = driver._bmcs.values()
        bmc.mark.write()
        await self.opened_by(driver)
        self.assertIn("ConsoleReleased", self.reasons())

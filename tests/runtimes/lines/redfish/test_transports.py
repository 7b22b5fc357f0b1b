"""The driver ``redfish`` with each way to the console that a small BMC and its shell have, and the faults of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.protocol import Factory

from tests import needs
from tests.runtimes.bmc.server import PASSWORD, USER
from tests.runtimes.bmc.shell import Answer, Shell, ShellServer, enters, prints
from tests.runtimes.lines.redfish.support import BMCCase
from tests.tiers import PROGRAMS
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import (
    QUICK,
    BreakableContract,
    ConsoleContract,
    Line,
    MachineDriverContract,
)

BANNER = b"Connected to Serial Device 2. To end type: ^\\\r\n"


class TransportCase(BMCCase):
    """A BMC with a shell at another port."""

    starts = PROGRAMS
    skip = needs.sshd()

    def setUp(self) -> None:
        super().setUp()
        self.conditions: list[ConditionValue] = []
        self.state = os.path.join(self.directory, "drivers")
        os.mkdir(self.state)
        self.known = os.path.join(self.directory, "known")

    def serve_shell(
        self, commands: Mapping[bytes, Answer], prompt: bytes, *escapes: bytes
    ) -> ShellServer:
        shell = ShellServer(
            commands, prompt=prompt, escapes=escapes, user=USER, password=PASSWORD
        ).listen()
        self.addCleanup(shell.stop)
        with open(self.known, "w") as file:
            file.write(shell.known_hosts())
        return shell

    def change(self, path: str, member: str, value: object) -> None:
        """Change a document of the BMC."""
        self.bmc.documents[path][member] = value

    def make_driver(self, **keys: Any) -> RedfishDriver:
        driver = self.driver_of(
            driver="redfish",
            user=USER,
            password_file=self.password,
            pin=self.bmc.pin,
            lines={"m": {"host": "127.0.0.1", "port": self.bmc.port}},
            **({"known_hosts": self.known} if os.path.exists(self.known) else {}),
            **keys,
        )
        assert isinstance(driver, RedfishDriver)
        driver.timing = QUICK
        driver.use_directory(self.state)
        return driver

    def make_run(self, **keys: Any) -> SharedLine:
        run = self.make_driver(**keys).run(self.facts())
        self.addCleanup(run.stop)
        return run

    def facts(self, id: str = "m") -> MachineFacts:
        return replace(super().facts(id), described=self.conditions.append)

    async def open(self, **keys: Any) -> Line:
        line: Line = await self.wait(self.make_run(**keys).connect(Factory.forProtocol(Line)))
        return line

    async def refusal(self, **keys: Any) -> CannotStart:
        run = self.make_run(**keys)
        with self.assertRaises(CannotStart) as caught:
            await run.connect(Factory.forProtocol(Line))
        self.assertNotIn(PASSWORD, caught.exception.message)
        return caught.exception


class HostKeyTests(TransportCase):
    """A BMC whose host key nobody has got yet."""

    kind = "dell"

    async def test_command(self) -> None:
        """The condition has the command that shows the key, with the port."""
        refusal = await self.refusal(transports=["vendor-ssh"])
        self.assertEqual(refusal.condition, "NoHostKey")
        self.assertIn("known_hosts is missing: ssh-keyscan -p 22 127.0.0.1 shows", refusal.message)


class VendorShellTests(TransportCase):
    """iDRAC: the console is behind the BMC's shell."""

    kind = "dell"

    def setUp(self) -> None:
        super().setUp()
        self.commands: dict[bytes, Answer] = {b"connect com2": enters(BANNER, b"login: ")}
        self.shell = self.serve_shell(self.commands, b"racadm>>", b"\x1c")
        path = "/redfish/v1/Managers/iDRAC.Embedded.1/NetworkProtocol"
        self.change(path, "SSH", {"Port": self.shell.port, "ProtocolEnabled": True})

    async def test_opens(self) -> None:
        """It is chosen, and users see the machine alone."""
        line = await self.open()
        await line.until(b"login: ")
        line.transport.write(b"root\x1c\r")
        await line.until(b"root\r")
        self.assertEqual(self.shell.shell.got, b"root\r")
        status, reason, message = self.conditions[-1]
        self.assertEqual((status, reason), ("True", "VendorSSH"))
        self.assertIn("behind the command connect com2", message)
        self.assertIn("bytes dropped so far: 1", line.got.replace(b"\r\n  ", b" ").decode())
        self.assertNotIn(b"racadm", line.got)

    async def test_fall_out(self) -> None:
        """When the BMC falls back to its shell the console is entered anew, and nobody typed there."""
        line = await self.open()
        await line.until(b"login: ")
        first = self.shell.shell
        first.fall_out()
        await line.until(b"was lost: the BMC has ended the console")
        line.transport.write(b"racadm serveraction powerdown\r")
        await line.until(b"line is back")
        await self.until(lambda: self.shell.shell is not first and self.shell.shell.is_console)
        self.assertNotIn(b"powerdown", first.typed)
        self.assertIn("ConsoleEnded", self.reasons())
        self.assertIn("ConsoleEnded", [reason for _, reason, _ in self.conditions])
        self.assertNotIn(b"racadm", line.got)

    async def test_taken(self) -> None:
        """The console of another client is a condition, where the BMC has no command to release it."""
        self.commands[b"connect com2"] = prints(b"Serial device 2 is currently in use\r\n")
        self.assertEqual((await self.refusal(transports=["vendor-ssh"])).condition, "ConsoleTaken")

    async def test_wrong_password(self) -> None:
        """A password that only the shell refuses is the reason of that way."""
        self.shell.password = "other"
        await self.shell.stop()
        shell = ShellServer(self.commands, prompt=b"racadm>>", user=USER, password="other").listen()
        self.addCleanup(shell.stop)
        with open(self.known, "w") as file:
            file.write(shell.known_hosts())
        path = "/redfish/v1/Managers/iDRAC.Embedded.1/NetworkProtocol"
        self.change(path, "SSH", {"Port": shell.port, "ProtocolEnabled": True})
        message = (await self.refusal(transports=["vendor-ssh"])).message
        self.assertIn("not vendor-ssh: ssh ended with exit code 255", message)
        self.assertIn("Permission denied", message)

    async def test_other_host_key(self) -> None:
        """Without the host's key no password is sent."""
        with open(self.known, "w"):
            pass
        message = (await self.refusal(transports=["vendor-ssh"])).message
        self.assertIn("Host key verification failed", message)
        self.assertEqual(self.shell.logins, [])


class ContractTests(MachineDriverContract, ConsoleContract, BreakableContract, TransportCase):
    """A console behind a BMC's shell is a console."""

    kind = "dell"
    provoke = b"hello"
    answer = b"hello"
    first_words = b"login: "

    def setUp(self) -> None:
        super().setUp()
        self.shell = self.serve_shell({b"connect com2": enters(BANNER, b"login: ")}, b"racadm>>")
        path = "/redfish/v1/Managers/iDRAC.Embedded.1/NetworkProtocol"
        self.change(path, "SSH", {"Port": self.shell.port, "ProtocolEnabled": True})


class ReleaseTests(TransportCase):
    """iLO: the console of another client can be released."""

    kind = "hpe"

    def setUp(self) -> None:
        super().setUp()
        taken = prints(b"Virtual Serial Port is currently in use by another session.\r\n")
        self.commands: dict[bytes, Answer] = {b"vsp": taken, b"stop /system1/oemhp_vsp1": self.stop}
        self.shell = self.serve_shell(self.commands, b"</>hpiLO->", b"\x1b(")
        path = "/redfish/v1/Managers/1/NetworkProtocol"
        self.change(path, "SSH", {"Port": self.shell.port, "ProtocolEnabled": True})

    def stop(self, shell: Shell) -> None:
        banner = b"Starting virtual serial port.\r\nPress 'ESC (' to return to the CLI Session.\r\n"
        self.commands[b"vsp"] = enters(banner, b"login: ")
        shell.ask()

    async def test_not_ours(self) -> None:
        """Without ``steal`` it stays with its client, and nothing is typed that would end it."""
        self.assertEqual((await self.refusal(transports=["vendor-ssh"])).condition, "ConsoleTaken")
        self.assertNotIn(b"stop", b"".join(shell.typed for shell in self.shell.shells))

    async def test_steal(self) -> None:
        """With ``steal`` it is released, and an Event says so."""
        line = await self.open(transports=["vendor-ssh"], steal=True)
        await line.until(b"login: ")
        self.assertIn("ConsoleReleased", self.reasons())


class SystemPortTests(TransportCase):
    """OpenBMC: a port of its own is the console."""

    kind = "openbmc"

    def setUp(self) -> None:
        super().setUp()
        self.shell = self.serve_shell({}, b"")
        self.shell.greeting = b"login: "
        self.console = self.bmc.documents["/redfish/v1/Systems/System_0"]["SerialConsole"]
        self.console["SSH"]["Port"] = self.shell.port

    async def test_opens(self) -> None:
        """It is chosen behind a WebSocket that is not there."""
        self.bmc.console.answers = [404] * 10
        line = await self.open()
        await line.until(b"login: ")
        status, reason, message = self.conditions[-1]
        self.assertEqual((status, reason), ("True", "SSH"))
        self.assertIn("not openbmc: ", message)

    async def test_manager_port(self) -> None:
        """The port of the BMC's own shell is never opened, whatever the server announces (BlueField)."""
        path = "/redfish/v1/Managers/BMC_0/NetworkProtocol"
        self.change(path, "SSH", {"Port": self.shell.port, "ProtocolEnabled": True})
        message = (await self.refusal(transports=["ssh", "vendor-ssh"])).message
        self.assertIn(f"port {self.shell.port} is the BMC's own shell", message)
        self.assertEqual((self.shell.logins, self.shell.shells), ([], []))

    async def test_websocket(self) -> None:
        """The console at bmcweb's path comes first."""
        line = await self.open()
        self.bmc.console.says(b"by WebSocket")
        await line.until(b"by WebSocket")
        self.assertEqual(self.conditions[-1][1], "OpenBMC")
        self.assertEqual(self.shell.shells, [])

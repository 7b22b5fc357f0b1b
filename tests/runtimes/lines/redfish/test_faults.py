"""The table of faults in ``docs/howto/bare-metal.rst``: what becomes of a console by each way."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests import needs
from tests.docs import pages
from tests.runtimes.bmc.server import PASSWORD
from tests.runtimes.bmc.shell import enters, prints
from tests.runtimes.lines.redfish.test_transports import BANNER, TransportCase
from tests.runtimes.peers import IPMISim

_CELL = re.compile(r"^   [* ] - (.*)$", re.MULTILINE)


def column(way: str) -> dict[str, str]:
    """The cells of the table for one way, by fault."""
    cells = _CELL.findall(pages.table(pages.page("howto/bare-metal"), "Faults of a console"))
    width = 6
    rows = [cells[at : at + width] for at in range(0, len(cells), width)]
    at = rows[0].index(f"``{way}``")
    return {row[0]: row[at] for row in rows[1:]}


class _FaultCase(TransportCase):
    """
    :cvar way: its name in the class.
    """

    way = ""

    async def fails(self, fault: str) -> None:
        """An opening fails for the reason in the table."""
        found = (await self.refusal(transports=[self.way])).condition
        self.assertEqual(column(self.way)[fault], f"``{found}``")

    async def comes_back(self, fault: str, end: Callable[[], object]) -> None:
        """An open console has the reason in the table when it ends, and is opened again."""
        line = await self.open(transports=[self.way])
        opened = len(self.conditions)
        end()
        await line.until(b"line is back")
        reason = self.conditions[opened][1]
        self.assertEqual(column(self.way)[fault], f"``{reason}``, then open")
        self.assertIn(reason, self.reasons())


class WebSocketTests(_FaultCase):
    """``websocket``"""

    way = "websocket"

    async def test_login(self) -> None:
        self.bmc.console.answers = [401] * 10
        await self.fails("the console refuses the login")

    async def test_none(self) -> None:
        self.bmc.console.answers = [404] * 10
        await self.fails("the BMC has no console there")

    async def test_taken(self) -> None:
        self.bmc.console.answers = [503] * 10
        await self.fails("another client has the only console")

    async def test_ends(self) -> None:
        await self.comes_back("the connection ends", self.bmc.console.vanish)


class OpenBMCTests(WebSocketTests):
    """``openbmc``"""

    kind = way = "openbmc"


class SystemPortTests(_FaultCase):
    """``ssh``"""

    kind, way = "openbmc", "ssh"

    def setUp(self) -> None:
        super().setUp()
        self.shell = self.serve_shell({}, b"")
        self.shell.greeting = b"login: "
        console = self.bmc.documents["/redfish/v1/Systems/System_0"]["SerialConsole"]
        console["SSH"]["Port"] = self.shell.port

    async def test_login(self) -> None:
        self.shell.methods = []
        await self.fails("the console refuses the login")

    async def test_none(self) -> None:
        await self.shell.stop()
        await self.fails("the BMC has no console there")

    async def test_ends(self) -> None:
        await self.comes_back("the connection ends", lambda: self.shell.shell.hang_up())


class VendorShellTests(_FaultCase):
    """``vendor-ssh``"""

    kind, way = "dell", "vendor-ssh"

    def setUp(self) -> None:
        super().setUp()
        self.commands = {b"connect com2": enters(BANNER, b"login: ")}
        self.shell = self.serve_shell(self.commands, b"racadm>>", b"\x1c")
        path = "/redfish/v1/Managers/iDRAC.Embedded.1/NetworkProtocol"
        self.change(path, "SSH", {"Port": self.shell.port, "ProtocolEnabled": True})

    async def test_login(self) -> None:
        self.shell.methods = []
        await self.fails("the console refuses the login")

    async def test_none(self) -> None:
        del self.commands[b"connect com2"]
        await self.fails("the BMC has no console there")

    async def test_taken(self) -> None:
        self.commands[b"connect com2"] = prints(b"Serial device 2 is currently in use\r\n")
        await self.fails("another client has the only console")

    async def test_ends(self) -> None:
        await self.comes_back("the connection ends", lambda: self.shell.shell.hang_up())

    async def test_prompt(self) -> None:
        """Nobody types there."""
        await self.comes_back("the BMC's prompt appears", lambda: self.shell.shell.fall_out())


class IPMITests(_FaultCase):
    """``ipmi``; the suite ``tests.interop.bare_metal`` shows its other faults."""

    way = "ipmi"
    skip = needs.ipmi()

    async def serve(self, password: str = PASSWORD) -> IPMISim:
        ipmi = IPMISim(self.directory, password=password)
        self.addCleanup(ipmi.stop)
        await ipmi.start()
        self.bmc.documents[self.bmc.system]["SerialConsole"] = {"IPMI": {"Port": ipmi.port}}
        return ipmi

    async def test_login(self) -> None:
        await self.serve("another")
        await self.fails("the console refuses the login")

    async def test_none(self) -> None:
        await (await self.serve()).stop()
        await self.fails("the BMC has no console there")

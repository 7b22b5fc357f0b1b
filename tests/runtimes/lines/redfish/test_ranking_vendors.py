"""
Tests of :mod:`twisted_exec.runtimes.lines.redfish.ranking` with the documents of each vendor's BMC, as the small BMC
serves them: from its login to the ways to the console.
"""

from __future__ import annotations

import json
import os

from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.bmc.server import HOST, SmallBMC
from tests.runtimes.lines.redfish.support import BMCCase
from twisted_exec.runtimes.lines.redfish.discovery import discover
from twisted_exec.runtimes.lines.redfish.quirks import find, load
from twisted_exec.runtimes.lines.redfish.ranking import rank

UNANNOUNCED = "the server announces none"
NO_COMMAND = "no command is known that enters the console: port 22 is the BMC's own shell"


def only_openbmc(row: str) -> str:
    return f"only OpenBMC has it, and the row of quirks is {row}"


NO_ROW = "only OpenBMC has it, and no row of quirks is about this server"


class VendorTests(BMCCase):
    """The BMCs in ``tests/runtimes/bmc/documents``."""

    async def check(
        self, kind: str, row: str, choices: dict[str, tuple[int, str]], refused: dict[str, str]
    ) -> None:
        """
        Compare all ways with what a person expects.

        :param kind: see :class:`~tests.runtimes.bmc.server.SmallBMC`.
        :param choices: port and reason, the best first.
        :param refused: reasons.
        """
        self.bmc = self.make_bmc(kind)
        sessions = self.sessions()
        server = await discover(sessions.get)
        await sessions.close()
        quirk = find(load(), server.manufacturer, server.model, server.firmware, server.controller)
        self.assertEqual(quirk.name, row)
        ranking = rank(server, quirk, HOST)
        self.assertEqual(
            [(each.transport.value, (each.port, each.why)) for each in ranking.choices],
            list(choices.items()),
        )
        self.assertEqual({each.transport.value: each.why for each in ranking.refused}, refused)

    async def test_dell(self) -> None:
        """An iDRAC says that there is no serial console; behind its shell there is one."""
        await self.check(
            "dell",
            "Dell iDRAC",
            {
                "vendor-ssh": (22, "the console is behind the command connect com2 at port 22"),
                "ipmi": (623, "the BMC announces it"),
            },
            {
                "websocket": UNANNOUNCED,
                "ssh": UNANNOUNCED,
                "openbmc": only_openbmc("Dell iDRAC"),
            },
        )

    async def test_lenovo(self) -> None:
        """An XCC names SSH and IPMI without ports: port 22 is its shell."""
        await self.check(
            "lenovo",
            "Lenovo XCC",
            {
                "vendor-ssh": (22, "the console is behind the command console 1 at port 22"),
                "ipmi": (623, "the BMC announces it"),
            },
            {
                "websocket": UNANNOUNCED,
                "ssh": UNANNOUNCED,
                "openbmc": only_openbmc("Lenovo XCC"),
            },
        )

    async def test_hpe(self) -> None:
        """An iLO is the same with another command."""
        await self.check(
            "hpe",
            "HPE iLO",
            {
                "vendor-ssh": (22, "the console is behind the command vsp at port 22"),
                "ipmi": (623, "the BMC announces it"),
            },
            {"websocket": UNANNOUNCED, "ssh": UNANNOUNCED, "openbmc": only_openbmc("HPE iLO")},
        )

    async def test_supermicro(self) -> None:
        """A Supermicro announces the command of its shell; IPMI is better."""
        await self.check(
            "supermicro",
            "Supermicro",
            {
                "ipmi": (623, "the BMC announces it"),
                "vendor-ssh": (
                    22,
                    "the console is behind the command cd system1/sol1, start at port 22",
                ),
            },
            {
                "websocket": UNANNOUNCED,
                "ssh": "port 22 is the BMC's own shell; see vendor-ssh",
                "openbmc": only_openbmc("Supermicro"),
            },
        )

    async def test_openbmc(self) -> None:
        """The host of a GH200, not its baseboard: a WebSocket, or a port of its own."""
        await self.check(
            "openbmc",
            "OpenBMC",
            {
                "openbmc": (0, "the row of quirks is OpenBMC"),
                "ssh": (2200, "port 2200 is the console"),
                "ipmi": (623, "the BMC announces it"),
            },
            {"websocket": UNANNOUNCED, "vendor-ssh": NO_COMMAND},
        )

    async def test_bluefield(self) -> None:
        """A BlueField has neither manufacturer nor model; port 22 is its shell, 2200 its console."""
        await self.check(
            "bluefield",
            "BlueField",
            {
                "ssh": (2200, "port 2200 is the console"),
                "ipmi": (623, "the BMC announces it"),
            },
            {
                "websocket": UNANNOUNCED,
                "openbmc": only_openbmc("BlueField"),
                "vendor-ssh": NO_COMMAND,
            },
        )

    async def test_huawei(self) -> None:
        """An iBMC has IPMI alone."""
        await self.check(
            "huawei",
            "Huawei iBMC",
            {"ipmi": (623, "the BMC announces it")},
            {
                "websocket": UNANNOUNCED,
                "ssh": UNANNOUNCED,
                "vendor-ssh": NO_COMMAND,
                "openbmc": only_openbmc("Huawei iBMC"),
            },
        )

    async def test_websocket(self) -> None:
        """A BMC of the newest schema, of a vendor that nobody knows."""
        await self.check(
            "websocket",
            "a BMC without a row",
            {"websocket": (0, "the server announces it")},
            {
                "ssh": UNANNOUNCED,
                "vendor-ssh": NO_COMMAND,
                "ipmi": "the BMC announces none",
                "openbmc": NO_ROW,
            },
        )


class MockupTests(SynchronousTestCase):
    """A directory in the layout of DMTF's mockups, as programs that capture BMCs write it."""

    def test_directory(self) -> None:
        """It is served as a file of ours is."""
        mockup = os.path.abspath(self.mktemp())
        for path, document in SmallBMC("huawei").documents.items():
            os.makedirs(mockup + path, exist_ok=True)
            with open(os.path.join(mockup + path, "index.json"), "w") as file:
                json.dump(document, file)
        self.assertEqual(SmallBMC(mockup).documents, SmallBMC("huawei").documents)

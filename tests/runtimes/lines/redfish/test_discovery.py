"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.discovery`, with documents of several vendors."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests.runtimes.bmc.server import SmallBMC
from twisted_exec.api.status import BadGateway, NotFound
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines.redfish.discovery import (
    IPMI,
    SSH,
    TELNET,
    WEBSOCKET,
    ConsoleFacts,
    Server,
    discover,
)


class DiscoveryCase(TestCase):
    """Documents without a BMC."""

    def setUp(self) -> None:
        self.read: list[str] = []

    async def discover(self, documents: dict[str, Any], system: str = "") -> Server:
        async def get(path: str) -> Any:
            self.read.append(path)
            if path not in documents:
                raise NotFound("documents", path)
            return documents[path]

        return await discover(get, system, "set system there")

    async def of(self, kind: str, system: str = "") -> Server:
        return await self.discover(SmallBMC(kind).documents, system)


class VendorTests(DiscoveryCase):
    """What vendors' documents say."""

    async def test_openbmc(self) -> None:
        """The system with a console is chosen; values of resets come from the ActionInfo."""
        server = await self.of("openbmc")
        self.assertEqual(server.system, "/redfish/v1/Systems/System_0")
        self.assertEqual((server.controller, server.max_sessions), ("OpenBmc", 15))
        self.assertEqual(server.consoles[SSH], ConsoleFacts(True, 2200))
        self.assertEqual(server.manager_ports[SSH].port, 22)
        self.assertIn("ForceOn", server.reset_values)

    async def test_websocket(self) -> None:
        """The WebSocket of a newer schema has a path."""
        server = await self.of("websocket")
        self.assertEqual(server.consoles[WEBSOCKET].uri, "/console/1?kind=serial")

    async def test_dell(self) -> None:
        """What a BMC denies is not the same as what it does not mention."""
        server = await self.of("dell")
        self.assertEqual((server.manufacturer, server.firmware), ("Dell Inc.", "6.00.30.00"))
        self.assertEqual(server.consoles, {})
        self.assertEqual(server.manager_types, ())
        self.assertEqual(server.manager_ports[IPMI], ConsoleFacts(True))
        self.assertEqual(server.manager_ports[TELNET], ConsoleFacts(False, 23))

    async def test_bluefield(self) -> None:
        """The vendor of the BMC stands for a missing manufacturer, and the system's id for a model."""
        server = await self.of("bluefield")
        self.assertEqual((server.manufacturer, server.model), ("Nvidia", "Bluefield"))

    async def test_lenovo(self) -> None:
        """A short session."""
        server = await self.of("lenovo")
        self.assertEqual(server.session_seconds, 300)
        self.assertEqual(server.manager_types, ("IPMI", "SSH"))

    async def test_supermicro(self) -> None:
        """The port of the BMC's shell, with an entry command."""
        facts = (await self.of("supermicro")).consoles[SSH]
        self.assertTrue(facts.shared_with_cli)
        self.assertEqual(facts.entry_command, "cd system1/sol1; start")


class ChoiceTests(DiscoveryCase):
    """Which system is meant."""

    async def test_by_id(self) -> None:
        """The operator may name it."""
        server = await self.of("openbmc", "HGX_Baseboard_0")
        self.assertEqual(server.system, "/redfish/v1/Systems/HGX_Baseboard_0")
        self.assertNotIn("/redfish/v1/Systems/System_0", self.read)

    async def test_unknown(self) -> None:
        """A wrong id is told, with those that exist."""
        with self.assertRaises(CannotStart) as caught:
            await self.of("openbmc", "x")
        self.assertEqual(caught.exception.condition, "NoSystem")
        self.assertIn("set system there; its systems are: ", caught.exception.message)
        self.assertIn("System_0", caught.exception.message)

    async def test_ambiguous(self) -> None:
        """Without a console, or with two, the operator has to choose."""
        documents = SmallBMC("openbmc").documents
        system, other = (
            documents[f"/redfish/v1/Systems/{name}"] for name in ("System_0", "HGX_Baseboard_0")
        )
        other["SerialConsole"] = system["SerialConsole"]
        for _ in range(2):
            with self.assertRaises(CannotStart) as caught:
                await self.discover(documents)
            self.assertIn("set system there; its systems are: System_0", caught.exception.message)
            system.pop("SerialConsole", None)
            other.pop("SerialConsole", None)


class BadDocumentTests(DiscoveryCase):
    """Documents that are wrong or malicious."""

    async def test_missing(self) -> None:
        """A BMC with one system and no more is enough."""
        documents = SmallBMC("dell").documents
        for path in list(documents):
            if "Managers" in path or "SessionService" in path:
                del documents[path]
        server = await self.discover(documents)
        self.assertEqual((server.model, server.session_seconds), ("PowerEdge R750", 1800))

    async def test_types(self) -> None:
        """Members of other types count as missing."""
        for wrong in (None, [], {}, 3, "x", True, [[]], {"Members": 3}):
            documents = SmallBMC("websocket").documents
            path = "/redfish/v1/Systems/1"
            for name in list(documents[path]):
                documents[path] = {**documents[path], name: wrong}
            await self.discover(documents)

    async def test_foreign_host(self) -> None:
        """A link to another host is not followed."""
        documents = SmallBMC("dell").documents
        for member in ("Systems", "Managers", "SessionService"):
            changed = {**documents}
            link = {"@odata.id": "https://evil.example/redfish/v1/Systems"}
            changed["/redfish/v1/"] = {**documents["/redfish/v1/"], member: link}
            if member == "Managers":
                system = {**changed["/redfish/v1/Systems/System.Embedded.1"], "Links": {}}
                changed["/redfish/v1/Systems/System.Embedded.1"] = system
            with self.assertRaises(BadGateway):
                await self.discover(changed)
        self.assertNotIn("evil", "".join(self.read))

    async def test_many_systems(self) -> None:
        """The number of documents that are read has a limit."""
        documents = SmallBMC("dell").documents
        members = [{"@odata.id": f"/redfish/v1/Systems/{number}"} for number in range(10_000)]
        documents["/redfish/v1/Systems"]["Members"] = members
        with self.assertRaises(CannotStart):
            await self.discover(documents)
        self.assertLess(len(self.read), 10)

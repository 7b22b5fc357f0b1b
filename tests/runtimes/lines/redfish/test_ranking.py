"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.ranking`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.lines.redfish.discovery import ConsoleFacts, Server
from twisted_exec.runtimes.lines.redfish.quirks import GENERIC, Quirk, Transport, find, load
from twisted_exec.runtimes.lines.redfish.ranking import Choice, Ranking, rank

HOST = "bmc-1.lab"
MANAGER = {"ssh": ConsoleFacts(True, 22), "ipmi": ConsoleFacts(True, 623)}
OPENBMC_CONSOLES = {"ssh": ConsoleFacts(True, 2200), "ipmi": ConsoleFacts(True)}


def quirk(name: str) -> Quirk:
    return next(each for each in load() if each.name == name)


def ranked(
    row: Quirk,
    consoles: Mapping[str, ConsoleFacts] | None = None,
    manager: Mapping[str, ConsoleFacts] = MANAGER,
    **more: Any,
) -> Ranking:
    return rank(Server(consoles=consoles or {}, manager_ports=manager, **more), row, HOST)


def refusal(ranking: Ranking, transport: Transport) -> str:
    (found,) = (each.why for each in ranking.refused if each.transport is transport)
    return found


def summary(ranking: Ranking) -> list[tuple[str, int]]:
    return [(each.transport.value, each.port) for each in ranking.choices]


class RowTests(SynchronousTestCase):
    """What the rows add to facts that BMCs do not announce; :mod:`.test_ranking_vendors` has whole BMCs."""

    def test_order(self) -> None:
        """The row knows of IPMI, and the BMC of its port."""
        for row, consoles, manager, expected in (
            (
                "Lenovo XCC",
                {},
                {"ssh": ConsoleFacts(True, 22)},
                [("vendor-ssh", 22), ("ipmi", 623)],
            ),
            ("Huawei iBMC", {}, {"ipmi": ConsoleFacts(True, 6230)}, [("ipmi", 6230)]),
            ("Lenovo with a BMC of AMI", {}, {}, [("ipmi", 623)]),
        ):
            self.assertEqual(summary(ranked(quirk(row), consoles, manager)), expected, row)

    def test_all_ways(self) -> None:
        """Each way is either a choice or refused, with a reason."""
        for row in (*load(), GENERIC):
            ranking = ranked(row)
            names = [each.transport for each in (*ranking.choices, *ranking.refused)]
            self.assertEqual(sorted(names, key=str), sorted(Transport, key=str))
            for each in (*ranking.choices, *ranking.refused):
                self.assertTrue(each.why)

    def test_model_of_bmc(self) -> None:
        """OpenBMC of any vendor has the row of OpenBMC."""
        self.assertEqual(find(load(), "ACME", "x", "2.14", "OpenBmc").name, "OpenBMC")


class ShellTests(SynchronousTestCase):
    """The SSH port that is the BMC's shell."""

    def test_bluefield(self) -> None:
        """Port 22 of a BlueField is never used, whatever it announces."""
        for consoles in (
            OPENBMC_CONSOLES,
            {},
            {"ssh": ConsoleFacts(True, 22)},
            {"ssh": ConsoleFacts(True, 2200, shared_with_cli=True)},
            {"ssh": ConsoleFacts(True)},
        ):
            ranking = ranked(quirk("BlueField"), consoles)
            self.assertNotIn(("ssh", 22), summary(ranking))
            self.assertNotIn(Transport.VENDOR_SSH, [each.transport for each in ranking.choices])
            self.assertIn(
                "no command is known that enters the console",
                refusal(ranking, Transport.VENDOR_SSH),
            )

    def test_other_port(self) -> None:
        """A shell at another port is known by the BMC's network services."""
        ranking = ranked(
            GENERIC, {"ssh": ConsoleFacts(True, 2022)}, {"ssh": ConsoleFacts(True, 2022)}
        )
        self.assertIn("port 2022 is the BMC's own shell", refusal(ranking, Transport.SSH))

    def test_no_prompt(self) -> None:
        """A command alone is not enough: nobody would notice the end of the console."""
        announced = {"ssh": ConsoleFacts(True, 22, entry_command="sol", shared_with_cli=True)}
        ranking = ranked(GENERIC, announced)
        self.assertIn("no prompt", refusal(ranking, Transport.VENDOR_SSH))
        own_port = {"ssh": ConsoleFacts(True, 2200, entry_command="sol")}
        self.assertIn("no prompt", refusal(ranked(GENERIC, own_port), Transport.SSH))

    def test_announced_command(self) -> None:
        """The command that the BMC announces is used with the prompts of a row without command."""
        row = Quirk("lab", prompts=(b"->",))
        announced = {
            "ssh": ConsoleFacts(True, 22, entry_command="cd sol1; start", shared_with_cli=True)
        }
        (choice,) = (each for each in ranked(row, announced).choices if each.entries)
        self.assertEqual(choice.entries[0].commands, (b"cd sol1", b"start"))
        self.assertTrue(choice.has_shell)
        for command in ("a\rb", "é", "x" * 65, ";", "a;b;c;d;e"):
            announced = {"ssh": ConsoleFacts(True, 22, entry_command=command, shared_with_cli=True)}
            why = refusal(ranked(row, announced), Transport.VENDOR_SSH)
            self.assertIn("no command is known", why)

    def test_switched_off(self) -> None:
        """What the BMC has switched off is not tried."""
        off = {"ssh": ConsoleFacts(False, 22), "ipmi": ConsoleFacts(False, 623)}
        ranking = ranked(quirk("Dell iDRAC"), {}, off)
        self.assertEqual(ranking.choices, ())
        self.assertIn("SSH is switched off at the BMC", refusal(ranking, Transport.VENDOR_SSH))
        self.assertIn("IPMI over LAN is switched off", refusal(ranking, Transport.IPMI))


class WebSocketTests(SynchronousTestCase):
    """The WebSocket of ComputerSystem 1.26."""

    def choice(self, uri: str, enabled: bool | None = True) -> Choice | str:
        ranking = ranked(GENERIC, {"websocket": ConsoleFacts(enabled, uri=uri)}, {})
        for choice in ranking.choices:
            if choice.transport is Transport.WEBSOCKET:
                return choice
        return refusal(ranking, Transport.WEBSOCKET)

    def test_first(self) -> None:
        """It is the first choice, also of a vendor with another row."""
        announced = {"websocket": ConsoleFacts(True, uri="/console/1?kind=serial")}
        for row in (GENERIC, quirk("Dell iDRAC"), quirk("Supermicro")):
            first = ranked(row, announced).choices[0]
            self.assertEqual(
                (first.transport, first.targets),
                (Transport.WEBSOCKET, ("/console/1?kind=serial",)),
            )

    def test_uri(self) -> None:
        """A URI is used if it leads to the BMC itself, with TLS."""
        for uri, target in (
            ("/redfish/v1/Systems/1/c", "/redfish/v1/Systems/1/c"),
            ("wss://bmc-1.lab/c?a=b", "/c?a=b"),
            ("wss://BMC-1.LAB:443/c", "/c"),
        ):
            choice = self.choice(uri)
            assert isinstance(choice, Choice), choice
            self.assertEqual(choice.targets, (target,))
        for uri in (
            "ws://bmc-1.lab/c",
            "wss://evil.example/c",
            "wss://bmc-1.lab@evil.example/c",
            "//evil.example/c",
            "c",
            "/c d",
            "/c\r\nX: y",
            "/é",
            "wss://[/c",
            "/" + "c" * 2000,
        ):
            self.assertIn("leads elsewhere", str(self.choice(uri)), uri)

    def test_not_announced(self) -> None:
        """Without a URI, or switched off, there is none."""
        self.assertIn("without a ConsoleURI", str(self.choice("")))
        self.assertIn("it is switched off at the BMC", str(self.choice("/c", False)))
        self.assertIsInstance(self.choice("/c", None), Choice)

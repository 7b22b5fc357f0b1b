"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.quirks`."""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.config_file import ConfigError
from twisted_exec.runtimes.lines.redfish.quirks import GENERIC, Quirk, Transport, find, load

# What the BMCs in the named documents say: manufacturer, model, firmware, model of the BMC.
SERVERS = [
    ("Dell iDRAC", ("Dell Inc.", "PowerEdge R750", "6.00.30.00", "")),
    ("Lenovo XCC", ("Lenovo", "ThinkSystem SR670 V2", "TGBT20E 1.40 2021-05-17", "")),
    ("Lenovo with a BMC of AMI", ("Lenovo", "ThinkServer HS350X V3", "1.0", "")),
    ("HPE iLO", ("HPE", "ProLiant DL360 Gen10", "iLO 5 v2.90", "iLO 5")),
    ("HPE iLO", ("Hewlett Packard Enterprise", "ProLiant", "", "")),
    ("Supermicro", ("Supermicro", "SYS-821GE-TNHR", "01.02.03", "")),
    ("OpenBMC", ("NVIDIA", "System_0", "GH200-24.05-2", "OpenBmc")),
    ("BlueField", ("Nvidia", "Bluefield", "BF-23.10-4", "OpenBmc")),
    ("NVIDIA DGX", ("NVIDIA", "DGXH100", "23.11.09", "")),
    ("Huawei iBMC", ("Huawei", "2288H V5", "3.12", "iBMC")),
    (GENERIC.name, ("ACME", "One", "1", "")),
    (GENERIC.name, ("", "", "", "")),
]


class OursTests(SynchronousTestCase):
    """The rows of the product."""

    def test_servers(self) -> None:
        """Each known server has the row of its vendor."""
        for name, server in SERVERS:
            self.assertEqual(find(load(), *server).name, name, server)

    def test_complete(self) -> None:
        """Each row names a public source, and what to try; a console with a shell has a prompt."""
        for quirk in load():
            self.assertIn("https://", quirk.source, quirk.name)
            self.assertTrue(quirk.transports, quirk.name)
            if Transport.VENDOR_SSH in quirk.transports:
                self.assertTrue(quirk.entry_commands and quirk.prompts, quirk.name)
                self.assertTrue(quirk.never_send, quirk.name)

    def test_escapes(self) -> None:
        """The sequences are bytes, as the vendors document them."""
        by_name = {quirk.name: quirk for quirk in load()}
        self.assertEqual(by_name["Dell iDRAC"].never_send, (b"\x1c",))
        self.assertEqual(by_name["HPE iLO"].never_send, (b"\x1b(",))
        self.assertEqual(by_name["OpenBMC"].never_send, (b"\r~.", b"\n~."))
        self.assertIn(b"\r\x1bT", by_name["Supermicro"].never_send)


class FileTests(SynchronousTestCase):
    """A file of the operator."""

    def load(self, text: str) -> tuple[Quirk, ...]:
        self.path = os.path.abspath(self.mktemp())
        with open(self.path, "w") as file:
            file.write(text)
        return load(self.path)

    def test_first(self) -> None:
        """Its rows come before ours; the first that fits counts."""
        quirks = self.load(
            "quirks:\n"
            "- {name: ours, manufacturer: [dell*], model: ['*r750*'], source: lab}\n"
            "- {name: rest, manufacturer: [DELL*], keep_alive_seconds: 20, source: lab}\n"
        )
        self.assertEqual(find(quirks, "Dell Inc.", "PowerEdge R750", "1").name, "ours")
        self.assertEqual(find(quirks, "Dell Inc.", "PowerEdge R640", "1").keep_alive_seconds, 20)
        self.assertEqual(find(quirks, "HPE", "x", "1").name, "HPE iLO")

    def test_firmware(self) -> None:
        """A range has its first version, and not its last; unknown firmware is in no range."""
        quirks = self.load(
            "quirks:\n"
            "- {name: range, firmware: {from: '2.90', before: '3.1'}, source: lab}\n"
            "- {name: word, manufacturer: [w], firmware: {from: TGBT20E}, source: lab}\n"
        )
        for firmware, is_in in (
            ("2.90", True),
            ("2.90.1", True),
            ("3.0", True),
            ("3.09", False),
            ("2.100", True),
            ("iLO 5 v2.91", True),
            ("2.89", False),
            ("3.1", False),
            ("10.0", False),
            ("", False),
            ("2." + "9" * 5000, True),
        ):
            name = find(quirks, "acme", "x", firmware).name
            self.assertEqual(name == "range", is_in, firmware[:20])
        self.assertEqual(find(quirks, "w", "x", "TGBT20F").name, "word")
        self.assertEqual(find(quirks, "w", "x", "TGBT19Z").name, GENERIC.name)

    def test_mistakes(self) -> None:
        """Each mistake has the file, the row, and the line."""
        for row, why in (
            ("name: x", "source is missing"),
            ("name: x, source: s, promts: [a]", "unknown key 'promts'; did you mean prompts?"),
            ("name: x, source: s, prompts: []", "prompts must be a list of 1 to 16 texts"),
            ("name: x, source: s, prompts: ['a ']", "must be printable, without blanks"),
            ("name: x, source: s, never_send: ['☎']", "is no text of bytes"),
            ("name: x, source: s, never_send: [7]", "7 is no text of 1 to 64 bytes"),
            ("name: x, source: s, transports: [telnet]", "'telnet' is none of websocket, openbmc"),
            ("name: x, source: s, transports: [ipmi, ipmi]", "names one of them twice"),
            ("name: x, source: s, entry: [{commands: [vsp]}]", "entry needs prompts"),
            ("name: x, source: s, entry: [{release: [vsp]}]", "commands is missing"),
            (
                'name: x, source: s, prompts: [p], entry: [{commands: ["a\\nb"]}]',
                "no command in one line",
            ),
            ("name: x, source: s, firmware: {}", "it needs from, before, or both"),
            ("name: x, source: s, firmware: {from: '3', before: '3'}", "no firmware is from 3"),
            ("name: x, source: s, firmware: {before: '-'}", "neither digits nor letters"),
            ("name: x, source: s, keep_alive_seconds: 1", "must be between 5 and 3600"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.load("# a comment\nquirks:\n- {" + row + "}\n")
            message = str(caught.exception)
            self.assertIn(why, message)
            self.assertTrue(message.startswith(f"{self.path}: quirks[0]"), message)
            self.assertIn("(line 3)", message)

    def test_no_file(self) -> None:
        """A file that is not there, or has another form, is an error."""
        with self.assertRaisesRegex(ConfigError, "cannot read /nonexistent"):
            load("/nonexistent")
        with self.assertRaisesRegex(ConfigError, "must be a mapping"):
            self.load("quirks: [7]")
        with self.assertRaisesRegex(ConfigError, "quirks is missing"):
            self.load("rows: []")

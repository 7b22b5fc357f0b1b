"""Tests for :mod:`twisted_exec.cli.mcp.table`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.mcp.table import BY_NAME, TOOLS, faults, with_defaults


class TableTests(SynchronousTestCase):
    """The tools as clients see them."""

    def test_described(self) -> None:
        """Each tool has hints, and a closed schema with a description of each parameter."""
        for tool in TOOLS:
            described = tool.describe()
            hints = described["annotations"]
            self.assertEqual(hints["readOnlyHint"], not tool.acts)
            self.assertFalse(hints["destructiveHint"] and hints["readOnlyHint"])
            schema = described["inputSchema"]
            self.assertEqual(schema["additionalProperties"], False)
            self.assertLessEqual(set(schema.get("required", ())), set(schema["properties"]))
            for name, each in schema["properties"].items():
                self.assertTrue(each["description"], f"{tool.name} {name}")
            self.assertNotIn("x-kubernetes", str(described))

    def test_faults(self) -> None:
        """Arguments that do not fit are named."""
        for name, arguments, expected in (
            ("get_screen", {}, "machine"),
            ("get_screen", {"machine": 1}, "machine"),
            ("get_screen", {"machine": "vm", "colour": "x"}, "colour"),
            ("read_log", {"machine": "vm", "offset": -1}, "offset"),
            ("read_log", {"machine": "vm", "offset": 10**30}, "offset"),
            ("read_log", {"machine": "vm", "offset": 1.5}, "offset"),
            ("read_log", {"machine": "vm", "offset": -(10**30)}, "offset"),
            ("read_log", {"machine": "vm", "offset": float("inf")}, "offset"),
            ("read_log", {"machine": "vm", "offset": "1"}, "offset"),
            ("read_log", {"machine": "vm", "offset": True}, "offset"),
            ("read_log", {"machine": "vm", "offset": [1]}, "offset"),
            ("read_log", {"machine": "vm", "tail_lines": 10**30}, "tail_lines"),
            ("list_machines", {"offset": 10**30}, "offset"),
            ("request_access", {"machine": "vm", "seconds": 10**30}, "seconds"),
            ("request_access", {"machine": "vm", "right": "takeover"}, "right"),
            ("read_log", {"machine": "vm", "epoch": "x"}, "epoch"),
            (
                "wait_for",
                {"machine": "vm", "pattern": "x", "timeout_seconds": 301},
                "timeout_seconds",
            ),
            ("wait_for", {"machine": "vm", "pattern": "x" * 2000}, "pattern"),
            ("send", {"machine": "vm", "keys": ["any"]}, "keys"),
            ("send", {"machine": "vm", "keys": ["enter"] * 65}, "keys"),
            ("send", {"machine": "vm", "text": "x" * 5000}, "text"),
            ("power", {"machine": "vm", "state": "Broken"}, "state"),
        ):
            wrong = list(faults(BY_NAME[name], arguments))
            self.assertTrue(wrong and expected in wrong[0], (name, arguments, wrong))

    def test_repeated_keys(self) -> None:
        """A key may be pressed twice."""
        self.assertEqual(list(faults(BY_NAME["send"], {"machine": "vm", "keys": ["up", "up"]})), [])

    def test_defaults(self) -> None:
        """Parameters that are left out have their defaults."""
        complete = with_defaults(BY_NAME["wait_for"], {"machine": "vm", "pattern": "x"})
        self.assertEqual(complete["timeout_seconds"], 30)

"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.options`."""

from __future__ import annotations

import os
from typing import Any

from tests.runtimes.support import RuntimeCase
from twisted_exec.runtimes.config import ConfigError
from twisted_exec.runtimes.lines.redfish.client import Trust
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.redfish.options import RedfishLine
from twisted_exec.runtimes.lines.redfish.quirks import Transport

PIN = "ab" * 32
REQUIRED = {"user": "admin", "password_file": "/password", "pin": PIN}


class OptionTests(RuntimeCase):
    """The configuration of a class."""

    def driver(self, lines: Any = None, **keys: Any) -> RedfishDriver:
        lines = lines or {"m": {"host": "10.0.0.1"}}
        driver = self.driver_of(driver="redfish", lines=lines, **{**REQUIRED, **keys})
        assert isinstance(driver, RedfishDriver)
        return driver

    def test_defaults(self) -> None:
        """Nothing is switched, stolen or accepted without a word of the operator."""
        line = self.driver().lines.options_of(self.facts())
        expected = RedfishLine("10.0.0.1", Trust(pin=b"\xab" * 32), 443, "", "admin", "/password")
        self.assertEqual(line, expected)
        self.assertEqual(
            (expected.power, expected.steal, expected.force_off), (False, False, False)
        )

    def test_lines(self) -> None:
        """Keys of the class are defaults for its lines; a line with a CA has no pin."""
        lines = {
            "m": {"host": "a", "ca": "/ca", "system": "System_0", "transports": ["ipmi", "ssh"]},
            "n": {"host": "b", "port": 8443, "power": False},
        }
        driver = self.driver(lines, power=True, steal=True)
        first, second = (driver.lines.options_of(self.facts(name)) for name in "mn")
        assert first is not None and second is not None
        self.assertEqual((first.trust, first.power), (Trust(ca="/ca"), True))
        self.assertEqual(first.transports, (Transport.IPMI, Transport.SSH))
        self.assertEqual((second.port, second.power, second.steal), (8443, False, True))

    def test_remedy(self) -> None:
        """A row of a list is read by itself; the classes file is not."""
        line = self.driver().lines.options_of(self.facts())
        assert line is not None
        self.assertEqual(
            line.system_remedy, "set system in the classes file, and reload the runtime"
        )
        path = os.path.join(self.directory, "rack.csv")
        with open(path, "w") as file:
            file.write("name,address\nm,10.0.1.1\n")
        reader_keys = {**REQUIRED, "lines_from": path, "networks": ["10.0.1.0/24"]}
        driver = self.driver_of(driver="redfish", **reader_keys)
        assert isinstance(driver, RedfishDriver)
        line = driver.lines.options_of(self.facts())
        assert line is not None
        self.assertEqual(line.system_remedy, "set system in its row of the list (lines_from)")

    def test_mistakes(self) -> None:
        """Each mistake has a message with the key."""
        for keys, why in (
            ({"user": ""}, "user is missing"),
            ({"password_file": ""}, "password_file is missing"),
            ({"password_file": "x"}, "not an absolute path"),
            ({"pin": ""}, "pin and ca are missing"),
            ({"pin": "xyz"}, "no SHA-256"),
            ({"ca": "/ca"}, "both ca and pin"),
            ({"transports": ["sssh"]}, "'sssh' is none of"),
            ({"login": "none"}, "login must be one of"),
            ({"quirks": "x"}, "not an absolute path"),
            ({"lines": {"m": {"host": "-x"}}}, "not a valid host"),
            ({"lines": {"m": {"host": "x", "system": "a/b"}}}, "no id of a system"),
            ({"lines": {"m": {"host": "x"}, "n": {"host": "X"}}}, "two names must not lead"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(**keys)
            self.assertIn(why, str(caught.exception))

"""Tests for lists of lines with the driver ``redfish``, with small BMCs."""

from __future__ import annotations

import os
from typing import Any

from tests.runtimes.bmc.server import USER
from tests.runtimes.lines.redfish.support import RedfishCase
from twisted_exec.runtimes.lines import line_list
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.testing.drivers import QUICK


class ListedTests(RedfishCase):
    """``lines_from`` of a class of BMCs."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(line_list, "LOOK_SECONDS", 0.01)
        self.patch(line_list, "SETTLE_SECONDS", 0.01)
        self.path = os.path.join(self.directory, "rack.csv")

    def write(self, *rows: str) -> None:
        with open(f"{self.path}.new", "w") as file:
            file.write("name,address,system\n" + "".join(f"{row}\n" for row in rows))
        os.replace(f"{self.path}.new", self.path)

    def listed(self, **keys: Any) -> RedfishDriver:
        driver = self.driver_of(
            driver="redfish",
            user=USER,
            password_file=self.password,
            pin=self.bmc.pin,
            port=self.bmc.port,
            lines_from=self.path,
            networks=["127.0.0.0/8"],
            **keys,
        )
        assert isinstance(driver, RedfishDriver)
        driver.timing = QUICK
        driver.use_directory(self.state)
        return driver

    async def test_row(self) -> None:
        """A row is a console; a removed row ends it, and a new one opens it again; no session is left."""
        self.write("m,127.0.0.1,", "other,127.0.0.9,")
        run, line = await self.opened_line(self.listed())
        line.transport.write(b"hello")
        await line.until(b"hello")
        self.write("other,127.0.0.9,")
        await self.until(lambda: "no line is called" in run.outage)
        await self.until(lambda: not self.bmc.sessions)
        self.write("m,127.0.0.1,", "other,127.0.0.9,")
        await line.until(b"line is back")
        self.assertEqual(line.lost, [])
        self.write("other,127.0.0.9,")
        await self.until(lambda: "no line is called" in run.outage)
        await run.stop()
        self.assertEqual(self.bmc.sessions, {})

    async def test_power_of_removed_row(self) -> None:
        """A machine whose row was removed no longer switches the server of that row."""
        self.bmc.set_power("Off")
        self.write("m,127.0.0.1,", "other,127.0.0.9,")
        run, _ = await self.opened_line(self.listed(power=True))
        self.write("other,127.0.0.9,")
        await self.until(lambda: "no line is called" in run.outage)
        await run.shut_down()
        self.assertEqual(self.bmc.resets, ["On"])
        self.assertIn("PowerFailed", self.reasons())

    async def test_no_list(self) -> None:
        """A class whose list is not there yet is offered."""
        self.assertEqual(self.listed().missing(), "")

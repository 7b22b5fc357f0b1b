"""Tests for lists of lines with the driver ``redfish``, with small BMCs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from twisted.internet.protocol import Factory

from tests.docs import pages
from tests.runtimes.bmc.server import SESSIONS, USER, SmallBMC
from tests.runtimes.lines.redfish.support import RedfishCase
from twisted_exec.program.config_file import read_yaml
from twisted_exec.program.server_list import read_servers
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.lines import line_list
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import QUICK, Line


class ListedCase(RedfishCase):
    """A class of BMCs in a list."""

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

    def second_bmc(self) -> SmallBMC:
        """One at 127.0.0.2, with the port and the key of the first one."""
        return self.make_bmc(
            self.kind, self.bmc.port, host="127.0.0.2", identity=self.bmc.identity, session_limit=1
        )

    async def open(self, driver: RedfishDriver, id: str) -> tuple[SharedLine, Line]:
        run = driver.run(self.facts(id))
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return run, line

    async def reaches(self, line: Line, bmc: SmallBMC, word: bytes) -> None:
        """A line is open again, and its input reaches a BMC."""
        await line.until(b"line is back")
        line.transport.write(word)
        await self.until(lambda: word in bmc.console.got)


class ListedTests(ListedCase):
    """``lines_from`` of a class of BMCs."""

    async def test_row(self) -> None:
        """A row is a console; a removed row ends it, and a new one opens it again; no session is left."""
        self.write("m,127.0.0.1,", "other,127.0.0.9,")
        run, line = await self.opened_line(self.listed())
        line.transport.write(b"hello")
        await line.until(b"hello")
        self.write("other,127.0.0.9,")
        await self.until(lambda: "has removed its row" in run.outage)
        await self.until(lambda: not self.bmc.sessions)
        self.write("m,127.0.0.1,", "other,127.0.0.9,")
        await line.until(b"line is back")
        self.assertEqual(line.lost, [])
        self.write("other,127.0.0.9,")
        await self.until(lambda: "has removed its row" in run.outage)
        await run.stop()
        self.assertEqual(self.bmc.sessions, {})

    async def test_power_of_removed_row(self) -> None:
        """A machine whose row was removed no longer switches the server of that row."""
        self.bmc.set_power("Off")
        self.write("m,127.0.0.1,", "other,127.0.0.9,")
        run, _ = await self.opened_line(self.listed(power=True))
        self.write("other,127.0.0.9,")
        await self.until(lambda: "has removed its row" in run.outage)
        with self.assertRaises(CannotStart) as caught:
            await run.shut_down()
        self.assertEqual((self.bmc.resets, caught.exception.condition), (["On"], "NoLine"))

    async def test_no_list(self) -> None:
        """A class whose list is not there yet is offered."""
        self.assertEqual(self.listed().missing(), "")


class ChangedTests(ListedCase):
    """Rows that change while machines use them, at BMCs that have one session each."""

    def setUp(self) -> None:
        super().setUp()
        self.bmc.session_limit = 1

    def assert_no_second(self) -> None:
        """No BMC was asked for a second session, and none is held for nobody."""
        reasons = {each[1] for each in (*self.events, *self.conditions, *self.changes)}
        self.assertEqual(reasons & {"SessionLimit", "BMCInUse"}, set())

    async def test_exchanged(self) -> None:
        """Two machines whose rows exchange their BMCs go on with the right ones, with one session each."""
        second = self.second_bmc()
        self.write("m,127.0.0.1,", "n,127.0.0.2,")
        driver = self.listed()
        first_run, first_line = await self.open(driver, "m")
        second_run, second_line = await self.open(driver, "n")
        self.write("m,127.0.0.2,", "n,127.0.0.1,")
        await self.reaches(first_line, second, b"of m")
        await self.reaches(second_line, self.bmc, b"of n")
        self.assertNotIn(b"of m", self.bmc.console.got)
        self.assertNotIn(b"of n", second.console.got)
        self.assert_no_second()
        await first_run.stop()
        await second_run.stop()
        self.assertEqual((self.bmc.sessions, second.sessions, os.listdir(self.state)), ({}, {}, []))

    async def test_other_system(self) -> None:
        """A row that changes only its system stays in the session."""
        self.write("m,127.0.0.1,", "n,127.0.0.2,")
        run, line = await self.open(self.listed(), "m")
        self.write("m,127.0.0.1,1", "n,127.0.0.2,")
        await self.reaches(line, self.bmc, b"of 1")
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (1, 1))
        self.assert_no_second()
        changed = [message for _, reason, message in self.conditions if reason == "LineChanged"]
        self.assertEqual(len(changed), 1)
        self.assertIn(f"the operator has changed its row in the list {self.path}", changed[0])
        self.assertIn(b"was lost: the operator has changed its row", line.got)
        self.assertNotIn(b"WebSocket ended", line.got)
        await run.stop()
        self.assertEqual((self.bmc.sessions, os.listdir(self.state)), ({}, []))

    async def test_while_opening(self) -> None:
        """A machine whose row changes while its console is opened does not get the console of the old row."""
        second = self.second_bmc()
        self.write("m,127.0.0.1,", "n,127.0.0.3,")
        run, line = await self.open(self.listed(), "m")
        self.bmc.console.hangs = True
        self.bmc.console.vanish()
        asked = len(self.bmc.console.requests)
        await self.until(lambda: len(self.bmc.console.requests) > asked)
        self.write("m,127.0.0.2,", "n,127.0.0.3,")
        await self.reaches(line, second, b"of m")
        await self.until(lambda: not self.bmc.sessions)
        await run.stop()
        self.assertEqual(second.sessions, {})

    async def test_changed_twice(self) -> None:
        """A machine whose row changes and is then removed leaves its BMC to the next one at once."""
        self.write("m,127.0.0.1,", "n,127.0.0.3,")
        driver = self.listed()
        driver.timing = replace(QUICK, first_delay_seconds=5, longest_delay_seconds=5)
        run, line = await self.open(driver, "m")
        self.write("m,127.0.0.1,1", "n,127.0.0.3,")
        await line.until(b"was lost: the operator has changed its row")
        self.write("n,127.0.0.1,")
        await self.until(lambda: driver.lines.options_of(self.facts("m")) is None)
        await self.open(driver, "n")
        self.assert_no_second()
        await run.stop()

    async def test_stopped_behind(self) -> None:
        """A stop right behind the removal of a row waits for the end of the session, too."""
        self.write("m,127.0.0.1,", "n,127.0.0.3,")
        run, _ = await self.open(self.listed(), "m")
        self.bmc.faults.hangs = {f"DELETE {SESSIONS}/S1"}
        self.write("n,127.0.0.3,")
        await self.until(lambda: self.bmc.waiting)
        stopping = run.stop()
        self.assertNoResult(stopping)
        self.bmc.faults.hangs = set()
        self.bmc.answer()
        await stopping
        self.assertEqual(self.bmc.sessions, {})

    async def test_while_shutting_down(self) -> None:
        """A server whose row was given to another machine is not switched off any more."""
        self.bmc.faults.ignores_graceful = True
        second = self.second_bmc()
        self.write("m,127.0.0.1,", "n,127.0.0.3,")
        driver = self.listed(power=True, force_off=True, shutdown_seconds=600)
        run, line = await self.open(driver, "m")
        off = run.shut_down()
        await self.until(lambda: self.bmc.resets)
        self.write("m,127.0.0.2,", "n,127.0.0.3,")
        await self.reaches(line, second, b"of m")
        with self.assertRaises(CannotStart):
            await off
        with self.assertRaises(CannotStart) as caught:
            await run.shut_down()
        self.assertEqual(caught.exception.condition, "LineChanged")
        self.assertEqual((self.bmc.resets, second.resets), (["GracefulShutdown"], []))
        await self.until(lambda: not self.bmc.sessions)


class ExampleTests(ListedCase):
    """The class in ``docs/howto/rack-8-runtime.yaml``."""

    async def test_console(self) -> None:
        """With the list of the page it is a console, verified by the CA."""
        document: Any = read_yaml(str(pages.DOCS / "howto" / "rack-8-runtime.yaml"))
        (example,) = document["classes"]
        self.assertNotIn("pin", example)
        (row,) = read_servers(str(pages.DOCS / "howto" / "rack-8.csv")).servers
        self.write(f"default/m,127.0.0.1,{row.system}")
        places = {
            "user": USER,
            "password_file": self.password,
            "ca": self.ca,
            "lines_from": self.path,
            "networks": ["127.0.0.0/8"],
            "port": self.bmc.port,
        }
        driver = self.driver_of(**{**example, **places})
        driver.timing = QUICK
        driver.use_directory(self.state)
        _, line = await self.open(driver, "m")
        line.transport.write(b"hello")
        await line.until(b"hello")
        self.assertEqual(self.conditions[-1][:2], ("True", "WebSocket"))

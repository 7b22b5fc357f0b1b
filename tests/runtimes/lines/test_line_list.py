"""
Tests for :mod:`twisted_exec.runtimes.lines.line_list`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import formatEvent, globalLogPublisher
from zope.interface import implementer

from tests.runtimes.peers import reactor
from tests.runtimes.support import RuntimeCase
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.program.server_list import MAX_SERVERS
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver, IProbed, MachineFacts
from twisted_exec.runtimes.lines import line_list
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.ipmi import IPMIDriver, IPMILine
from twisted_exec.runtimes.lines.line_list import bmc_lines
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import QUICK, Line
from twisted_exec.tls.endpoints import unix_client_endpoint

HEAD = "name,address,system,labels\n"


@dataclass(frozen=True)
class BMC:
    """The line of a BMC."""

    address: str
    system: str


@implementer(IStreamClientEndpoint, IProbed)
class Probed:
    """A far end that is away, until it is said to be back."""

    is_back = False

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        return fail(ServiceUnavailable("it is away"))

    def has_come_back(self) -> Deferred[bool]:
        return succeed(self.is_back)


@implementer(IMachineDriver)
class BMCDriver(LineDriver[BMC]):
    """A BMC at each socket of a directory whose name is its address."""

    name = "bmc"
    directory = ""
    attempts = 0
    probed: Probed | None = None

    def missing(self) -> str:
        return ""

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        self.attempts += 1
        name, line = self.lines.claim(facts)
        if self.probed is not None:
            return name, self.probed
        return name, unix_client_endpoint(self.reactor, f"{self.directory}/{line.address}")


def make(reader: Reader) -> BMC:
    address = reader.take("address", str)
    reader.reserve(("bmc", address), f"the BMC {address}")
    return BMC(address, reader.take("system", str, ""))


class ListCase(RuntimeCase):
    """A list in a file."""

    def setUp(self) -> None:
        super().setUp()
        self.path = os.path.join(self.directory, "rack.csv")
        self.logged: list[str] = []

        def observe(event: Any) -> None:
            if event["log_namespace"] == line_list.__name__ + ".LineList":
                self.logged.append(str(formatEvent(event)))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def write(self, *rows: str, text: str | None = None) -> None:
        """Replace the file by one with these rows."""
        with open(f"{self.path}.new", "w") as file:
            file.write(HEAD + "".join(f"{row}\n" for row in rows) if text is None else text)
        os.replace(f"{self.path}.new", self.path)


class ConfigTests(ListCase):
    """``lines_from`` of a class."""

    def classes(self, *classes: dict[str, Any]) -> list[Any]:
        common = {
            "driver": "ipmi",
            "capabilities": {"cpu": 1, "memory": "1Gi"},
            "user": "admin",
            "password_file": "/password",
            "lines_from": self.path,
            "networks": ["10.0.1.0/24", "fd00::/64"],
        }
        named = [{"name": f"c{at}", **common, **each} for at, each in enumerate(classes)]
        document = [{key: value for key, value in each.items() if value} for each in named]
        return parse({"classes": document}, "f.yaml")

    def driver(self, **keys: Any) -> IPMIDriver:
        (made,) = self.classes(keys)
        driver = made.build(reactor, self.table).driver
        assert isinstance(driver, IPMIDriver)
        return driver

    def test_class(self) -> None:
        """A row says which server has which name, and all else is the class's."""
        self.write("lab/web-1,10.0.1.11,,rack=r7", "lab/web-2,fd00::2,,")
        driver = self.driver(power=True)
        self.assertEqual(driver.lines.names, ("lab/web-1", "lab/web-2"))
        line = driver.lines.options_of(self.facts("x"))
        self.assertIsNone(line)
        _, line = driver.lines.claim(machine("web-1"))
        self.assertEqual(line, IPMILine("10.0.1.11", 623, "admin", "/password", power=True))
        (made,) = self.classes({})
        self.assertEqual(made.quantity, MAX_SERVERS)

    def test_mistakes(self) -> None:
        """Each mistake of the class has a message."""
        self.write("web-1,10.0.1.11,,")
        for keys, why in (
            ({"user": None}, "f.yaml: classes[0] (c0): user is missing"),
            ({"networks": None}, "networks is missing: with lines_from, the networks"),
            ({"networks": ["10.0.1.1/24"]}, "networks: 10.0.1.1/24 has host bits set"),
            ({"networks": ["bmc.lab"]}, "networks: 'bmc.lab' does not appear to be"),
            ({"lines": {"a": {"host": "h"}}}, "give lines or lines_from, not both"),
            ({"lines_from": "rack.csv"}, "lines_from 'rack.csv' is not an absolute path"),
            (
                {"lines_from": None, "lines": {"a": {"host": "h"}}},
                "networks is for lines_from only",
            ),
            ({"driver": "socket", "user": None, "password_file": None}, "lines is missing"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.classes(keys)
            self.assertIn(why, str(caught.exception))

    def test_elsewhere(self) -> None:
        """No row has a password sent out of the networks of the class; the others are used."""
        self.write("evil,192.0.2.1,,", "mapped,::ffff:10.0.1.1,,", "web-1,10.0.1.11,,")
        self.assertEqual(self.driver().lines.names, ("web-1",))
        refused = [each for each in self.logged if "row refused" in each]
        self.assertEqual(len(refused), 2)
        self.assertIn("rack.csv: evil: 192.0.2.1 is in none of the networks", refused[0])
        self.assertIn("(line 2)", refused[0])

    async def test_power_of_changed_row(self) -> None:
        """A switch that began with the old row of a machine does not go on at its server."""
        self.write("m,10.0.1.11,,", "other,10.0.1.13,,")
        driver = self.driver(power=True)
        switch = driver.power_of(self.facts())
        assert switch is not None
        self.write("m,10.0.1.12,,", "other,10.0.1.13,,")
        lines: Any = driver.lines
        lines._list.reading()()()
        with self.assertRaises(ServiceUnavailable) as caught:
            await switch.off()
        self.assertIn("does not have this server any more", caught.exception.message)

    def test_other_class(self) -> None:
        """A row cannot take a server that another class has, nor one of another list."""
        self.write("web-1,10.0.1.11,,", "web-2,10.0.1.12,,")
        plain = {"lines_from": None, "networks": None, "lines": {"db": {"host": "10.0.1.11"}}}
        _, second, third = self.classes(plain, {}, {})
        lists = [each.build(reactor, self.table).driver.lines for each in (second, third)]
        self.assertEqual([each.names for each in lists], [("web-2",), ()])
        self.assertIn("classes[0] (c0): lines[db] has the controller", self.logged[1])

    def test_refused_row(self) -> None:
        """A machine whose row is wrong hears why, with file and line; others do not."""
        for row, why in (
            ("web-9,192.0.2.9,,", "192.0.2.9 is in none of the networks of the class"),
            ("lab/web-9,bmc.lab,,", "address 'bmc.lab' is not an IP address"),
            ("web-9,10.0.1.11,,", "line 2 (web-1) has the BMC 10.0.1.11 already"),
        ):
            self.write("web-1,10.0.1.11,,", row)
            driver = self.driver()
            with self.assertRaises(CannotStart) as caught:
                driver.lines.claim(machine("web-9"))
            self.assertEqual(caught.exception.condition, "RowRefused")
            self.assertIn('the row of "lab/web-9" is refused: ', caught.exception.message)
            self.assertIn(f"{self.path}: {row.partition(',')[0]}: {why}", caught.exception.message)
            self.assertIn("(line 3)", caught.exception.message)
            with self.assertRaises(CannotStart) as caught:
                driver.lines.claim(machine("web-8"))
            self.assertEqual(caught.exception.condition, "NoLine")

    def test_wrong_file(self) -> None:
        """The runtime starts without the lines of a list that cannot be used, and machines hear why."""
        self.write(text="web-1,10.0.1.11")
        driver = self.driver()
        with self.assertRaises(CannotStart) as caught:
            driver.lines.claim(machine("web-1"))
        self.assertEqual(caught.exception.condition, "ListRefused")
        self.assertIn("the list is not used", caught.exception.message)
        self.assertIn("it may be cut off (line 1)", caught.exception.message)


def machine(name: str) -> MachineFacts:
    return MachineFacts(
        id=name,
        label=f"lab/{name}",
        hostname="",
        directory="",
        marker=("", ""),
        started=lambda leader: None,
        event=lambda *arguments: None,
        namespace="lab",
        name=name,
    )


class ReloadTests(ListCase):
    """A list that changes while machines use it."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(line_list, "LOOK_SECONDS", 0.01)
        self.patch(line_list, "SETTLE_SECONDS", 0.01)
        for number in (1, 2, 3):
            self.far(name=f"10.0.1.{number}", greeting=f"bmc {number}.".encode())

    def driver(self) -> BMCDriver:
        document = {"lines_from": self.path, "networks": ["10.0.1.0/24"]}
        reader = Reader(document, "f.yaml: classes[0]")
        driver = BMCDriver(bmc_lines(reader, make, ("address", "system")), reactor)
        reader.done()
        driver.directory, driver.timing = self.directory, QUICK
        return driver

    async def open(self, driver: BMCDriver, name: str = "m") -> tuple[SharedLine, Line]:
        run = driver.run(self.facts(name))
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return run, line

    async def read(self, driver: BMCDriver) -> None:
        """Wait until the file is read again."""
        lines: Any = driver.lines
        await self.until(lambda: lines._list.is_current)

    async def test_new_row(self) -> None:
        """A machine gets the line that is listed after it was created, without a restart."""
        self.write("other,10.0.1.2,,")
        driver = self.driver()
        run = driver.run(self.facts())
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        with self.assertRaises(CannotStart) as caught:
            await run.connect(Factory.forProtocol(Line))
        self.assertEqual(caught.exception.condition, "NoLine")
        await run.stop()
        await self.until(lambda: "m" in driver.lines.names)
        _, line = await self.open(driver)
        await line.until(b"bmc 1.")

    async def test_other_address(self) -> None:
        """A server whose BMC moves is followed; the other lines and their viewers notice nothing."""
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        driver = self.driver()
        _, line = await self.open(driver)
        _, other = await self.open(driver, "other")
        await line.until(b"bmc 1.")
        await other.until(b"bmc 2.")
        self.write("other,10.0.1.2,,rack=r7", "m,10.0.1.3,,")
        await line.until(b"was lost: the operator has changed its row in the list")
        await line.until(b"bmc 3.")
        self.assertIn("LineChanged", self.reasons())
        other.transport.write(b"here")
        await other.until(b"here")
        self.assertNotIn(b"lost", bytes(other.got))
        self.assertEqual(line.lost, [])

    async def test_removed_row(self) -> None:
        """
        A removed row ends the connection; the machine waits, with that reason, and goes on when the row is back.
        """
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        driver = self.driver()
        run, line = await self.open(driver)
        await line.until(b"bmc 1.")
        self.write("other,10.0.1.2,,")
        await line.until(b"was lost: the operator has removed its row from the list")
        attempts = driver.attempts
        await self.until(lambda: driver.attempts > attempts + 1)  # so at least one is complete
        self.assertIn("the operator has removed its row from the list", run.outage)
        self.assertEqual(self.reasons(), ["NoLine"])
        self.assertEqual(self.changes[-1][1], "NoLine")
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        await line.until(b"line is back")
        self.assertEqual(line.lost, [])

    async def test_come_back(self) -> None:
        """A line that is lost is opened before its long pause ends, if it is listed again or its far end is back."""
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        driver, facts = self.driver(), self.facts()
        driver.probed = Probed()
        _, endpoint = driver.lines.endpoint(facts, driver._claim)
        self.addCleanup(driver.lines.release, facts)
        assert IProbed.providedBy(endpoint)
        probed: Any = endpoint
        factory = Factory.forProtocol(Line)
        with self.assertRaises(ServiceUnavailable):
            await probed.connect(factory)
        self.assertFalse(await probed.has_come_back())
        driver.probed.is_back = True
        self.assertTrue(await probed.has_come_back())
        driver.probed.is_back = False
        self.write("other,10.0.1.2,,")
        await self.until(lambda: "m" not in driver.lines.names)
        self.assertFalse(await probed.has_come_back())
        with self.assertRaises(CannotStart):
            await probed.connect(factory)
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        await self.until(lambda: "m" in driver.lines.names)
        self.assertTrue(await probed.has_come_back())

    async def test_nothing_removed(self) -> None:
        """A missing, empty, cut off or senseless list removes nothing, and says why once."""
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        driver = self.driver()
        _, line = await self.open(driver)
        for text in ("", HEAD, HEAD + "other,10.0.1.2", "# servers: 2\n" + HEAD + "m,10.0.1.1,,\n"):
            self.write(text=text)
            await self.read(driver)
            self.assertIn("the lines stay as they are", self.logged[-1])
            self.assertEqual(driver.lines.names, ("m", "other"))
            self.assertEqual(
                "delete their Machines, and reload the runtime" in self.logged[-1],
                text in ("", HEAD),
            )
        os.unlink(self.path)
        await self.read(driver)
        self.assertIn("No such file", self.logged[-1])
        os.mkdir(self.path)
        await self.read(driver)
        self.assertEqual(driver.lines.names, ("m", "other"))
        os.rmdir(self.path)
        self.write("m,10.0.1.1,,")
        await self.read(driver)
        self.assertEqual(driver.lines.names, ("m",))
        line.transport.write(b"here")
        await line.until(b"here")
        self.assertNotIn(b"lost", bytes(line.got))

    async def test_wrong_row(self) -> None:
        """A row that becomes wrong leaves its line as it is, and nobody else gets its server."""
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        driver = self.driver()
        await self.open(driver)
        for rows in (
            ("m,192.0.2.1,,", "other,10.0.1.2,,", "thief,10.0.1.1,,"),
            ("m,bmc.lab,,", "other,10.0.1.2,,", "thief,10.0.1.1,,"),
            ("thief,10.0.1.1,,", "m,10.0.1.1,,", "other,10.0.1.2,,"),
        ):
            self.write(*rows)
            await self.read(driver)
            lines: Any = driver.lines
            self.assertEqual(set(driver.lines.names), {"m", "other"}, rows)
            self.assertEqual(lines._list["m"], BMC("10.0.1.1", ""))

    async def test_swapped(self) -> None:
        """Two servers may change their addresses with each other."""
        self.write("m,10.0.1.1,,", "other,10.0.1.2,,")
        driver = self.driver()
        _, line = await self.open(driver)
        self.write("m,10.0.1.2,,", "other,10.0.1.1,,")
        await line.until(b"bmc 2.")

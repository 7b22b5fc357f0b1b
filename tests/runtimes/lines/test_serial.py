"""
Tests for :mod:`twisted_exec.runtimes.lines.serial`, with a pseudo-terminal as the device.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.protocol import Factory
from zope.interface.verify import verifyObject

from tests.runtimes.lines.test_serial_port import Device
from tests.runtimes.peers import reactor
from tests.runtimes.support import RuntimeCase
from twisted_exec.runtimes.config import ConfigError, parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver
from twisted_exec.runtimes.lines import device_lock
from twisted_exec.runtimes.lines.serial import SerialDriver, SerialLine
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import (
    QUICK,
    BreakableContract,
    ConsoleContract,
    Line,
    MachineDriverContract,
)
from twisted_exec.wire.com_port import LineSettings


class _Echo:
    """The machine at the other end of a device: prints what is typed."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def fileno(self) -> int:
        return self._device.machine

    def logPrefix(self) -> str:
        return "echo"

    def doRead(self) -> None:
        if data := self._device.read():
            self._device.says(data)

    def connectionLost(self, reason: Any) -> None:
        """The other end is closed for now."""

    def stop(self) -> None:
        reactor.removeReader(self)


class SerialCase(RuntimeCase):
    """A device that echoes, found by a link."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(device_lock, "LOCK_DIRECTORY", self.directory)
        self.path = os.path.join(self.directory, "ttyUSB0")
        self.plug_in()

    def plug_in(self) -> None:
        self.device = Device()
        self.addCleanup(self.device.pull_out)
        # A terminal nobody has open is hung up at once, and its reader sees an end.
        keeps = os.open(self.device.path, os.O_RDWR | os.O_NOCTTY)
        self.keeps = keeps
        os.symlink(self.device.path, self.path)
        self.echo: Any = _Echo(self.device)
        reactor.addReader(self.echo)
        self.addCleanup(self.echo.stop)

    def pull_out(self) -> None:
        self.echo.stop()
        os.close(self.keeps)
        os.unlink(self.path)
        self.device.pull_out()

    def tearDown(self) -> None:
        if self.device.machine >= 0:
            self.pull_out()

    def driver(self, **keys: Any) -> SerialDriver:
        lines = {"m": {"device": self.path, **keys}}
        machine_class = {"name": "bench", "driver": "serial", "lines": lines}
        (built,) = parse(
            {"classes": [{**machine_class, "capabilities": {"cpu": 1, "memory": "1Gi"}}]}
        )
        driver = built.build(reactor, self.table).driver
        assert isinstance(driver, SerialDriver)
        driver.timing = QUICK
        return driver

    async def opened_line(self) -> Line:
        run = self.driver().run(self.facts())
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return line


class ContractTests(MachineDriverContract, ConsoleContract, BreakableContract, SerialCase):
    """The contracts of drivers and consoles."""

    provoke = b"hello"
    answer = b"hello"

    def make_driver(self) -> SerialDriver:
        return self.driver()

    def make_console(self) -> SharedLine:
        return self.driver().run(self.facts())

    def clean(self, console: SharedLine) -> Any:
        return console.stop()


class DriverTests(SerialCase):
    """Tests for :class:`SerialDriver`."""

    def test_driver(self) -> None:
        """The driver reads its keys, and does not report an unplugged device as missing."""
        driver = self.driver(baud=115200, hangup=False)
        verifyObject(IMachineDriver, driver)
        self.assertEqual(driver.missing(), "")
        self.assertEqual(
            driver.lines.options_of(self.facts()),
            SerialLine(self.path, LineSettings(115200), hangup=False),
        )

    def test_mistakes(self) -> None:
        """Each mistake has a message with its place."""
        for keys, why in (
            ({"device": "ttyS0"}, "lines[m]: device 'ttyS0' is no path"),
            ({"hangup": 1}, "lines[m]: hangup must be true or false"),
            ({"speed": 9600}, "lines[m]: unknown key 'speed'"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(**keys)
            self.assertIn(why, str(caught.exception))

    async def test_unplugged(self) -> None:
        """A device that is pulled out is opened again when it is back; the viewers stay."""
        line = await self.opened_line()
        self.pull_out()
        await line.until(b"was lost")
        await self.until(lambda: any("is it plugged in?" in each[2] for each in self.changes))
        self.plug_in()
        await line.until(b"line is back")
        line.transport.write(b"again")
        await line.until(b"again")
        # Lost, then known to be pulled out.
        self.assertEqual(self.reasons(), ["LineLost", "LineLost", "LineBack"])
        self.assertEqual(line.lost, [])

    async def test_not_plugged_in(self) -> None:
        """Power on says so; it is tried again by whoever keeps the machine."""
        self.pull_out()
        with self.assertRaises(CannotStart) as caught:
            await self.opened_line()
        self.assertEqual(caught.exception.condition, "LineFailed")
        self.assertIn("is it plugged in?", caught.exception.message)

"""
Tests for :mod:`twisted_exec.runtimes.lines.socket`, and a real ser2net behind it.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

from twisted.internet.protocol import Factory
from zope.interface.verify import verifyObject

from tests import needs
from tests.runtimes.peers import Ser2net, reactor
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.runtimes.config import ConfigError, parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.lines.socket import SocketDriver
from twisted_exec.streaming.interfaces import IBreakable
from twisted_exec.testing.drivers import (
    QUICK,
    BreakableContract,
    ConsoleContract,
    Far,
    Line,
    MachineDriverContract,
)

SIZE = {"cpu": 1, "memory": "1Gi"}
BREAK_ON, BREAK_OFF = b"\xff\xfa\x2c\5\5\xff\xf0", b"\xff\xfa\x2c\5\6\xff\xf0"


def document(**lines: Any) -> dict[str, Any]:
    entry = {"name": "rack", "driver": "socket", "capabilities": SIZE, "lines": lines}
    return {"classes": [entry]}


class SocketCase(RuntimeCase):
    """A class with lines."""

    def driver(self, **lines: Any) -> SocketDriver:
        (machine_class,) = parse(document(**lines))
        built = machine_class.build(reactor, self.table)
        assert isinstance(built.driver, SocketDriver)
        built.driver.timing = QUICK
        return built.driver

    async def line(self, driver: SocketDriver, id: str) -> tuple[SharedLine, Line]:
        run = driver.run(self.facts(id))
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return run, line


class ConfigTests(SocketCase):
    """The configuration file."""

    def test_quantity(self) -> None:
        """There may be as many machines as lines, unless the file says otherwise."""
        entry = document(a={"endpoint": "unix:/a"}, b={"endpoint": "unix:/b"})
        self.assertEqual(parse(entry)[0].quantity, 2)
        entry["classes"][0]["quantity"] = 1
        self.assertEqual(parse(entry)[0].quantity, 1)

    def test_mistakes(self) -> None:
        """Each is one line that says where and why."""
        for line, why in (
            ({}, "lines[a]: endpoint is missing"),
            ({"endpoint": "http://x"}, "endpoint 'http://x' is not of the form tcp:host="),
            ({"endpoint": "unix:/a", "protocol": "ssh"}, "protocol must be one of raw, telnet"),
            (
                {"endpoint": "unix:/a", "baud": 9600},
                "baud needs protocol: rfc2217, not raw",
            ),
            ({"endpoint": "tcp:host=x"}, "lines[a]: endpoint 'tcp:host=x' has no port"),
            ({"endpoint": "tcp:host=x:port=ssh:nosuch=1"}, "lines[a]: endpoint 'tcp:host=x:"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(a=line)
            self.assertIn(why, str(caught.exception))
            self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_endpoints(self) -> None:
        """An endpoint leads where it seems to lead, or it is refused with a remedy."""
        for good in (
            "tcp:10.0.0.5:7001",
            "tcp:host=console.lab:port=7001:timeout=5",
            r"tcp:host=fd00\:\:1:port=7001",
            r"unix:/run/a\=b",
            "unix:path=/run/serial:timeout=5",
        ):
            self.assertEqual(len(parse(document(a={"endpoint": good}))), 1)
        for bad, why in (
            ("tcp:host=fd00::1:port=7001", r"put a backslash before each colon"),
            ("tcp:fd00::1:7001", r"put a backslash before each colon"),
            ("tcp:host=[fd00::1]:port=7001", r"put a backslash before each colon"),
            ("tcp:host=a:host=b:port=1", "is not of the form"),
            ("tcp:host=a:port=1:\n=2", "is not of the form"),
            ("tcp:host=:port=1", "has no valid host"),
            ("tcp:host=a/b:port=1", "has no valid host"),
            ("tcp:host=a:port=0", "has no port from 1 to 65535"),
            ("tcp:host=a:port=\u0661", "has no port from 1 to 65535"),
            ("tcp:host=a:port=1:timeout=x", "has a timeout"),
            ("tcp://10.0.0.1:7001", "is a URL, not an endpoint; write tcp:host=10.0.0.1:port=7001"),
            ("tcp://[fd00::1]:7001/", r"write tcp:host=fd00\:\:1:port=7001"),
            ("tcp://[/", "write tcp:host=HOST:port=PORT"),
            ("unix:///run/serial", "write unix:/run/serial"),
            ("unix:run/serial", "must have an absolute path"),
            ("unix:/run/a=b", "is not of the form"),
            ("unix:", "must have an absolute path"),
            ("tcp:", "has no port"),
        ):
            with self.assertRaises(ConfigError, msg=bad) as caught:
                parse(document(a={"endpoint": bad}))
            self.assertIn(why, str(caught.exception))

    def test_driver(self) -> None:
        """It is one, and every host can have it."""
        driver = self.driver(a={"endpoint": "unix:/a"})
        verifyObject(IMachineDriver, driver)
        self.assertEqual(driver.missing(), "")


class LineTests(SocketCase):
    """The assignment of lines to machines."""

    async def test_tcp(self) -> None:
        """A TCP port is a line, too; that its other end is gone is noticed in silence."""
        factory = Factory.forProtocol(lambda: far.build())
        far = Far("")
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        endpoint = f"tcp:host=127.0.0.1:port={port.getHost().port}"
        run, line = await self.line(self.driver(m={"endpoint": endpoint}), "m")
        line.transport.write(b"hello")
        await line.until(b"hello")
        handle = run._link.transport.getHandle()  # Only its own end has the options of a socket.
        self.assertTrue(handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        self.assertEqual(handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 30)
        await run.stop()

    async def test_wrong_name(self) -> None:
        """Power on of a machine without a line fails with the names of the free lines."""
        driver = self.driver(a={"endpoint": "unix:/a"}, b={"endpoint": "unix:/b"})
        with self.assertRaises(CannotStart) as caught:
            await self.line(driver, "c")
        self.assertEqual(caught.exception.condition, "NoLine")
        self.assertIn("free lines are: a, b", caught.exception.message)

    async def test_two_machines(self) -> None:
        """The second machine of a line waits for the first to go off."""
        driver = self.driver(m={"endpoint": self.far().endpoint})
        run, _ = await self.line(driver, "m")
        other = driver.run(replace(self.facts("m"), id="other"))
        with self.assertRaises(CannotStart) as caught:
            await other.connect(Factory.forProtocol(Line))
        self.assertEqual(caught.exception.condition, "LineTaken")
        await run.stop()
        await other.connect(Factory.forProtocol(Line))
        await other.stop()

    def test_break(self) -> None:
        """BREAK is available if the protocol has it."""
        driver = self.driver(
            raw={"endpoint": "unix:/a"},
            plain={"endpoint": "unix:/b", "protocol": "telnet"},
            full={"endpoint": "unix:/c", "protocol": "rfc2217"},
        )
        can = [IBreakable.providedBy(driver.run(self.facts(id))) for id in ("raw", "plain", "full")]
        self.assertEqual(can, [False, True, True])


class Ser2netTests(MachineDriverContract, ConsoleContract, BreakableContract, SocketCase):
    """
    A line of a real ser2net, by RFC 2217.

    Its device is a network port as well: what ser2net has done to the line can be read there.
    """

    starts = PROGRAMS
    skip = needs.ser2net()
    provoke = b"hello"
    answer = b"hello"

    async def setUp(self) -> None:
        super().setUp()
        self.server = Ser2net(self.directory)
        self.addCleanup(self.server.stop)
        await self.server.start()

    def make_driver(self) -> SocketDriver:
        settings = {"endpoint": self.server.endpoint, "protocol": "rfc2217", "baud": 115200}
        return self.driver(m=settings)

    def make_console(self) -> SharedLine:
        return self.make_driver().run(self.facts("m"))

    def clean(self, console: SharedLine) -> Any:
        return console.stop()

    async def test_settings_and_break(self) -> None:
        """The rate arrives at the device, and so does BREAK, with its beginning and its end."""
        console, line = await self.opened()
        await self.until(lambda: b"\xff\xfa\x2c\1\0\1\xc2\0\xff\xf0" in self.server.device())
        console.send_break(50)
        await self.until(lambda: BREAK_OFF in self.server.device())
        self.assertIn(BREAK_ON, self.server.device())
        line.transport.write(b"goes on")
        await line.until(b"goes on")
        self.assertEqual(self.events, [])

    async def test_plain_telnet(self) -> None:
        """Its port without RFC 2217 sends BREAK as well."""
        driver = self.driver(m={"endpoint": self.server.endpoint, "protocol": "telnet"})
        run, line = await self.line(driver, "m")
        line.transport.write(b"up\xff\r")
        await line.until(b"up\xff\r")
        assert IBreakable.providedBy(run)
        run.send_break(50)
        await self.until(lambda: b"\xff\xf3" in self.server.device())

    async def test_restarted(self) -> None:
        """A server that is restarted is found again, by the same session."""
        _, line = await self.opened()
        await self.server.stop()
        await line.until(b"was lost")
        await self.server.start()
        # The old one may have been found once more while it was going.
        while b"again" not in line.got:
            line.transport.write(b"again")
            await self.pause()
        self.assertEqual(self.reasons()[-1], "LineBack")
        self.assertEqual(line.lost, [])

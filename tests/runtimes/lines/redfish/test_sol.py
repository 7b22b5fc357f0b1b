"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.endpoint` with Serial over LAN: a real ipmitool and ``ipmi_sim``."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.protocol import Factory

from tests import needs
from tests.contracts.machine_runtime import machine
from tests.runtimes.bmc.server import USER
from tests.runtimes.lines.redfish.support import RedfishCase, reactor
from tests.runtimes.peers import IPMISim
from tests.tiers import PROGRAMS
from tests.tls.support import write
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.lines.ipmi import IPMIDriver, IPMILine
from twisted_exec.runtimes.lines.redfish.bmc import kept_path
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.redfish.line_mark import LineMark
from twisted_exec.runtimes.lines.shared_line import LineTiming, SharedLine
from twisted_exec.testing.drivers import Line


class SOLTests(RedfishCase):
    """Serial over LAN."""

    starts = PROGRAMS
    skip = needs.ipmi()
    kind = "hpe"

    async def setUp(self) -> None:
        super().setUp()
        self.sol = IPMISim(self.directory)
        self.addCleanup(self.sol.stop)
        await self.sol.start()
        self.bmc.password = "secret-canary"
        write(self.directory, "password", b"secret-canary\n")
        os.chmod(self.password, 0o600)
        (network,) = (path for path in self.bmc.documents if path.endswith("/NetworkProtocol"))
        self.bmc.documents[network]["IPMI"]["Port"] = self.sol.port

    def make_driver(self, **keys: Any) -> RedfishDriver:
        return super().make_driver(**{"transports": ["ipmi"], "cipher_suite": 3, **keys})

    async def opened_by(self, driver: RedfishDriver) -> tuple[SharedLine, Line]:
        run, line = await self.opened_line(driver)
        line.transport.write(b"hello")
        await line.until(b"hello")
        return run, line

    async def test_console(self) -> None:
        """It is a console; nothing of ipmitool is in it."""
        _, line = await self.opened_by(self.make_driver())
        self.assertEqual(line.got, b"hello")
        self.assertEqual(self.conditions[-1][:2], ("True", "IPMI"))

    async def opened_elsewhere(self) -> Line:
        """Another client has the only session."""
        server = IPMILine("127.0.0.1", self.sol.port, USER, self.password, cipher_suite=3)
        driver = IPMIDriver({"m": server}, reactor, self.table)
        driver.timing = LineTiming(first_delay_seconds=600, open_seconds=600)  # it does not fight
        run = driver.run(self.facts())
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return line

    async def test_taken(self) -> None:
        """The session of another client is left alone, and the condition says who is in the way."""
        await self.opened_elsewhere()
        refusal = await self.refusal()
        self.assertEqual(refusal.condition, "ConsoleTaken")
        self.assertNotIn("ConsoleReleased", self.reasons())

    async def test_steal(self) -> None:
        """If the operator says so, it is ended, with an Event."""
        other = await self.opened_elsewhere()
        await self.opened_by(self.make_driver(steal=True))
        self.assertIn("ConsoleReleased", self.reasons())
        await other.until(b"line was lost")

    async def test_left_by_us(self) -> None:
        """A session that an earlier runtime of ours has left is ended, with an Event."""
        await self.opened_elsewhere()  # stands for that session
        driver = self.make_driver()
        await self.refusal(driver)
        address = f"127.0.0.1:{self.bmc.port}"
        LineMark(kept_path(self.state, address, "line")).write()
        await self.opened_by(driver)
        self.assertIn("ConsoleReleased", self.reasons())

    async def test_not_released(self) -> None:
        """A session that the BMC does not end at a stop is an Event, and the next run may end it as its own."""
        address = f"127.0.0.1:{self.bmc.port}"
        mark = LineMark(kept_path(self.state, address, "line"))
        run, _ = await self.opened_by(self.make_driver())
        self.assertTrue(mark.is_recent())
        self.patch(IPMIDriver, "leave_seconds", 0.3)
        await self.sol.stop()
        await run.stop()
        self.assertEqual(self.reasons(), ["ConsoleNotReleased"])
        self.assertTrue(mark.is_recent())

    async def test_released(self) -> None:
        """A stop ends the session, so that another client can have it at once."""
        run, _ = await self.opened_by(self.make_driver())
        await run.stop()
        self.assertEqual(self.events, [])
        await self.opened_elsewhere()

    async def test_runtime_stops(self) -> None:
        """So does an orderly stop of the whole runtime."""
        runtime = await self.make_runtime(
            {
                "name": "metal",
                "driver": "redfish",
                "capabilities": {"cpu": 1, "memory": "1Gi"},
                "user": USER,
                "password_file": self.password,
                "pin": self.bmc.pin,
                "transports": ["ipmi"],
                "cipher_suite": 3,
                "lines": {"m": {"host": "127.0.0.1", "port": self.bmc.port}},
            }
        )
        request = pb.CreateMachineRequest(machine=machine("m", "metal"))
        id = (await runtime.create_machine(request)).machine.metadata.id
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        await runtime.stopService()
        self.assertEqual(self.bmc.sessions, {})
        await self.opened_elsewhere()

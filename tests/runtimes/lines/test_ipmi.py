"""
Tests for :mod:`twisted_exec.runtimes.lines.ipmi`, with a real ipmitool and a simulated BMC.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory
from zope.interface.verify import verifyObject

from tests import needs
from tests.console.doubles import MemoryStream
from tests.contracts.machine_runtime import machine
from tests.runtimes.peers import IPMISim, reactor
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.runtimes import supervisor
from twisted_exec.runtimes.config import ConfigError, parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver, IShutdown
from twisted_exec.runtimes.lines import ipmi
from twisted_exec.runtimes.lines.ipmi import IPMIDriver, IPMILine, arguments
from twisted_exec.runtimes.lines.programs import run_program
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.machine_records import MachineRecord
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.testing.drivers import (
    QUICK,
    BreakableContract,
    ConsoleContract,
    Line,
    MachineDriverContract,
)

BREAK = b"\xff\xf3"


class IPMICase(RuntimeCase):
    """A class of servers with IPMI."""

    skip = needs.ipmi()

    def setUp(self) -> None:
        super().setUp()
        self.patch(IPMIDriver, "ask_seconds", 600.0)  # however slow this machine is

    def driver(self, **keys: Any) -> IPMIDriver:
        document = {
            "name": "server",
            "driver": "ipmi",
            "capabilities": {"cpu": 1, "memory": "1Gi"},
            "user": "admin",
            "password_file": "/password",
            "lines": {"m": {"host": "10.0.0.1"}},
            **keys,
        }
        given = {key: value for key, value in document.items() if value is not None}
        (machine_class,) = parse({"classes": [given]})
        driver = machine_class.build(reactor, self.table).driver
        assert isinstance(driver, IPMIDriver)
        driver.timing, driver.look_seconds = QUICK, 0.05
        return driver


class ConfigTests(IPMICase):
    """The configuration file."""

    def test_shared(self) -> None:
        """Keys of the class are defaults for its lines."""
        lines = {
            "a": {"host": "h"},
            "m": {"host": "i", "port": 6230, "power": False, "force": True},
        }
        driver = self.driver(power=True, cipher_suite=3, lines=lines)
        self.assertEqual(
            driver.lines.options_of(self.facts("a")),
            IPMILine("h", 623, "admin", "/password", 3, True),
        )
        self.assertEqual(
            driver.lines.options_of(self.facts("m")),
            IPMILine("i", 6230, "admin", "/password", 3, False, True),
        )
        verifyObject(IMachineDriver, driver)
        self.assertEqual(driver.missing(), "")
        self.assertTrue(IShutdown.providedBy(driver.run(self.facts("a"))))
        self.assertFalse(IShutdown.providedBy(driver.run(self.facts("m"))))

    def test_mistakes(self) -> None:
        """Each mistake has a message."""
        for keys, why in (
            ({"user": ""}, "lines[m]: user is missing"),
            ({"password_file": "secret"}, "password_file must be the absolute path"),
            ({"cipher_suite": 99}, "cipher_suite must be between 0 and 17"),
            ({"lines": {"m": {"host": "-x"}}}, "host '-x' is not a valid host"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(**keys)
            self.assertIn(why, str(caught.exception))

    def test_arguments(self) -> None:
        """The password stays in its file."""
        words = arguments(IPMILine("h", user="u", password_file="/p"), "sol", "activate")
        self.assertEqual(words[-2:], ["sol", "activate"])
        self.assertEqual(words[words.index("-f") + 1], "/p")
        self.assertNotIn("-C", words)
        self.assertNotIn("-P", words)


class ComplaintTests(IPMICase):
    """Error messages of ipmitool."""

    up = b"[SOL Session operational.  Use ~? for help]\r\n"

    def test_before(self) -> None:
        """Before the machine is reached, its last words."""
        self.assertEqual(
            ipmi._complaint(b"Error: Unable to connect.\r\n"), "Error: Unable to connect"
        )

    def test_after(self) -> None:
        """Afterwards only what is surely its own: the machine's last words are its viewers' alone."""
        output = self.up + b"password: canary\r\nSOL session closed by BMC\r\ncanary"
        self.assertEqual(ipmi._complaint(output), "SOL session closed by BMC")
        self.assertEqual(ipmi._complaint(self.up + b"canary\r\n"), "")


class SimulatedCase(IPMICase):
    """A simulated BMC."""

    async def setUp(self) -> None:
        super().setUp()
        self.bmc = IPMISim(self.directory)
        self.addCleanup(self.bmc.stop)
        await self.bmc.start()

    def make_driver(self, id: str = "m", **line: Any) -> IPMIDriver:
        keys = {"host": "127.0.0.1", "port": self.bmc.port, "cipher_suite": 3, **line}
        return self.driver(password_file=self.bmc.path("password"), lines={id: keys})

    def make_console(self, id: str = "m", **line: Any) -> SharedLine:
        run = self.make_driver(id, **line).run(self.facts(id))
        self.addCleanup(run.stop)
        return run

    def clean(self, console: SharedLine) -> Any:
        return console.stop()

    async def opened_line(self, id: str = "m", **line: Any) -> tuple[SharedLine, Line]:
        run = self.make_console(id, **line)
        console_line: Line = await run.connect(Factory.forProtocol(Line))
        return run, console_line

    async def refusal(self, id: str = "m", **line: Any) -> CannotStart:
        before = self.alive()
        with self.assertRaises(CannotStart) as caught:
            await self.opened_line(id, **line)
        self.assertEqual(self.alive(), before)
        return caught.exception


class LineTests(MachineDriverContract, ConsoleContract, BreakableContract, SimulatedCase):
    """Serial over LAN is a console."""

    starts = PROGRAMS
    provoke = b"hello"
    answer = b"hello"

    async def test_break(self) -> None:
        """It arrives at the serial port."""
        run, line = await self.opened()
        run.send_break(100)
        # The simulation sends it before the next key, not by itself.
        line.transport.write(b"~.")
        await line.until(b"~.")
        self.assertIn(BREAK + b"~.", self.bmc.far.peer.got)

    async def test_listed(self) -> None:
        """The BMC of a row is reached with the class's port and credentials; without its row it is left."""
        path = os.path.join(self.directory, "rack.csv")
        with open(path, "w") as file:
            file.write("name,address\nm,127.0.0.1\nother,127.0.0.2\n")
        driver = self.driver(
            lines=None,
            lines_from=path,
            networks=["127.0.0.0/8"],
            port=self.bmc.port,
            cipher_suite=3,
            password_file=self.bmc.path("password"),
        )
        run = driver.run(self.facts())
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        line.transport.write(self.provoke)
        await line.until(self.answer)
        with open(path, "w") as file:
            file.write("name,address\nother,127.0.0.2\n")
        await self.until(lambda: "has removed its row" in run.outage)
        self.assertEqual(self.alive(), [])

    async def test_taken(self) -> None:
        """A session of another client is not ended, and the message says how to."""
        _, first = await self.opened_line()
        refusal = await self.refusal("other")
        self.assertEqual(refusal.condition, "LineFailed")
        self.assertIn("another client has the SOL session; force: true", refusal.message)
        self.assertEqual(first.lost, [])

    async def test_forced(self) -> None:
        """With force it is taken; theirs is lost."""
        await self.opened_line()
        _, second = await self.opened_line("other", force=True)
        second.transport.write(b"mine")
        await second.until(b"mine")

    async def test_restarted(self) -> None:
        """A BMC that restarts is found again, by the same session."""
        # Short, for the loss to be noticed soon; long enough for a BMC that is slow for a moment.
        self.patch(ipmi, "_PATIENCE", ("-N", "1", "-R", "4"))
        _, line = await self.opened_line()
        await self.bmc.restart()
        line.transport.write(b"x")
        await line.until(b"the console line was lost: ipmitool ended with exit code")
        await line.until(b"line is back")
        line.transport.write(b"again")
        await line.until(b"again")
        self.assertEqual(self.reasons(), ["LineLost", "LineBack"])

    async def test_wrong_password(self) -> None:
        """A wrong password is reported, without the password."""
        wrong = os.path.join(self.directory, "wrong")
        with open(wrong, "w") as file:
            file.write("another-canary\n")
        refusal = await self.refusal(password_file=wrong)
        self.assertIn("Unable to establish IPMI v2", refusal.message)
        self.assertIn(f"or refuses user admin or the password in {wrong}", refusal.message)
        forced = await self.refusal(password_file=wrong, force=True)
        self.assertIn(f"the password in {wrong}", forced.message)
        self.assertNotIn("canary", refusal.message)
        power = await self.refusal(password_file=wrong, power=True)
        self.assertEqual(power.condition, "PowerFailed")

    async def test_no_password(self) -> None:
        """A missing password file is reported before any attempt."""
        refusal = await self.refusal(password_file="/nonexistent")
        self.assertEqual(refusal.condition, "NoPassword")

    async def test_password_is_nowhere(self) -> None:
        """Neither in the command line of the program nor in its environment."""
        await self.opened_line()
        (pid,) = self.alive()
        for name in ("cmdline", "environ"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                self.assertNotIn(b"canary", file.read())


class PowerTests(SimulatedCase):
    """The chassis is the machine's power."""

    starts = PROGRAMS

    async def test_on(self) -> None:
        """On switches on what is off."""
        await self.opened_line(power=True)
        self.assertEqual(self.bmc.power, "1")
        self.assertEqual((self.reasons(), len(self.boots)), (["PoweredOn"], 1))

    async def test_already_on(self) -> None:
        """A chassis that is on is not switched."""
        self.bmc.set_power(True)
        await self.opened_line(power=True)
        self.assertEqual((self.bmc.power, self.reasons()), ("", []))
        self.assertEqual(self.boots, [])

    async def test_off(self) -> None:
        """Off asks the system to shut down, and no more where it does."""
        run, _ = await self.opened_line(power=True)
        await run.shut_down()
        self.assertEqual((self.bmc.power, self.shutdowns), ("1s", ["m"]))
        await run.stop()
        self.assertEqual(self.bmc.power, "1s")

    async def test_off_hard(self) -> None:
        """A machine that does not shut down in time is switched off, with an Event."""
        with open(self.bmc.path("stubborn"), "w"):
            run, _ = await self.opened_line(power=True, shutdown_seconds=0.1)
        await run.shut_down()
        self.assertEqual(self.bmc.power, "1s0")
        self.assertEqual(self.reasons(), ["PoweredOn", "SwitchedOff"])

    async def test_no_bmc(self) -> None:
        """If the BMC does not answer, the machine is not changed, which is a failure."""
        run, _ = await self.opened_line(power=True)
        self.patch(IPMIDriver, "ask_seconds", 0.3)
        self.patch(IPMIDriver, "leave_seconds", 0.3)
        await self.bmc.stop()
        with self.assertRaises(ServiceUnavailable):
            await run.shut_down()
        self.assertEqual(self.shutdowns, [])
        await run.stop()
        self.assertEqual(self.reasons()[-1], "ConsoleNotReleased")
        self.assertIn("may keep the SOL session of this runtime", self.events[-1][2])
        self.assertEqual((await self.refusal(power=True)).condition, "PowerFailed")

    async def test_line_fails(self) -> None:
        """A machine that was switched on runs, though its line cannot be opened yet."""
        _, first = await self.opened_line()
        _, second = await self.opened_line("other", power=True)
        await second.until(b"another client has the SOL session")
        await first.transport.stop()
        await second.until(b"line is back")


class ServedCase(SimulatedCase):
    """A server whose class names its BMC, in a whole runtime."""

    async def create(self) -> tuple[MachineRuntime, MachineRecord]:
        self.bmc.set_power(True)
        self.patch(supervisor, "_FIRST_ASK_SECONDS", 0.05)
        self.patch(supervisor, "_LONGEST_ASK_SECONDS", 0.05)
        runtime = await self.make_runtime(
            {
                "name": "server",
                "driver": "ipmi",
                "capabilities": {"cpu": 1, "memory": "1Gi"},
                "user": "admin",
                "password_file": self.bmc.path("password"),
                "power": True,
                "lines": {"m": {"host": "127.0.0.1", "port": self.bmc.port, "cipher_suite": 3}},
            }
        )
        request = pb.CreateMachineRequest(machine=machine("m", "server"))
        answer = await runtime.create_machine(request)
        return runtime, runtime.machines.records.get(answer.machine.metadata.id)

    async def switch(self, runtime: MachineRuntime, record: MachineRecord, power: int) -> None:
        request = pb.UpdateMachinePowerRequest(machine_id=record.id, power=power)  # type: ignore[arg-type]
        await runtime.update_machine_power(request)


class RuntimeTests(ServedCase):
    """Its console and its power."""

    starts = PROGRAMS

    async def echoes(self, runtime: MachineRuntime, record: MachineRecord, typed: bytes) -> None:
        user = MemoryStream(runtime.attach(Grant(record.id))[1])
        # Two packets: ipmi_sim drops the first one of a session if it has the number of the last one before.
        for part in (typed[:1], typed[1:]):
            user.viewer.data_received(part)
            await self.until(lambda: part in user.got)  # noqa: B023
        user.viewer.detached("leaves")

    async def test_power_cycle(self) -> None:
        """Its console echoes, also after the machine was off and on; the deletion switches nothing."""
        runtime, record = await self.create()
        await self.until(lambda: record.state == pb.MACHINE_RUNNING)
        await self.echoes(runtime, record, b"1first")
        await self.switch(runtime, record, pb.POWER_OFF)
        await self.until(lambda: record.state == pb.MACHINE_STOPPED)
        self.assertEqual((self.bmc.power, record.conditions), ("s", []))
        await self.switch(runtime, record, pb.POWER_ON)
        await self.until(lambda: record.state == pb.MACHINE_RUNNING)
        await self.echoes(runtime, record, b"2second")
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=record.id))
        self.assertEqual(self.bmc.power, "s1")
        reasons = [each.spec.reason for each in runtime.machines.records.events]
        expected = ["Started", "ShuttingDown", "PoweredOff", "PoweredOn", "Started", "Deleted"]
        self.assertEqual(reasons, expected)


class UnconfirmedTests(ServedCase):
    """A chassis that is to be off."""

    starts = PROGRAMS

    def write_password(self, password: str) -> None:
        with open(self.bmc.path("password"), "w") as file:
            file.write(f"{password}\n")

    async def test_refused(self) -> None:
        """A BMC that does not take the request is asked again; the machine says why it is not off."""
        runtime, record = await self.create()
        await self.until(lambda: record.state == pb.MACHINE_RUNNING)
        self.write_password("another")
        await self.switch(runtime, record, pb.POWER_OFF)
        await self.until(lambda: [each.reason for each in record.conditions] == ["PowerFailed"])
        self.assertIn("it may be on; trying again", record.conditions[0].message)
        self.assertEqual((record.state, self.bmc.power), (pb.MACHINE_RUNNING, ""))
        self.write_password(self.bmc.password)
        await self.until(lambda: record.state == pb.MACHINE_STOPPED)
        self.assertEqual(self.bmc.power, "s")

    async def test_opening(self) -> None:
        """A machine whose console is still being opened is asked to shut down first."""
        runtime, record = await self.create()
        self.assertEqual(record.state, pb.MACHINE_PENDING)
        await self.switch(runtime, record, pb.POWER_OFF)
        await self.until(lambda: record.state == pb.MACHINE_STOPPED)
        self.assertEqual(self.bmc.power, "s")


class ProgramTests(RuntimeCase):
    """Tests for :func:`run_program`."""

    starts = PROGRAMS

    async def run_shell(self, script: str, seconds: float = 600) -> bytes:
        marker = ("TWISTED_EXEC_MACHINE", f"{self.mark}/m")
        words = ["sh", "-c", script]
        return await run_program(reactor, words, path="/bin", marker=marker, seconds=seconds)

    async def test_printed(self) -> None:
        """The result is the output, bounded."""
        self.assertEqual(await self.run_shell("echo a; read x; echo $x"), b"a\n\n")
        self.assertEqual(len(await self.run_shell("head -c 100000 /dev/zero")), 64 << 10)

    async def test_failed(self) -> None:
        """Its last words, or how it ended."""
        for script, why in (("echo no.; exit 1", "sh: no"), ("exit 7", "exit code 7")):
            with self.assertRaises(ServiceUnavailable) as caught:
                await self.run_shell(script)
            self.assertIn(why, caught.exception.message)

    async def test_cannot_be_started(self) -> None:
        """A program for which no process can be created fails with 503."""

        class Full:
            def spawnProcess(self, *words: Any, **options: Any) -> None:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        with self.assertRaises(ServiceUnavailable) as caught:
            await run_program(Full(), ["sh"], path="/bin", marker=("X", "m"), seconds=1)
        self.assertIn("sh cannot be started: Resource", caught.exception.message)

    async def test_slow(self) -> None:
        """A program that takes too long is killed."""
        with self.assertRaises(ServiceUnavailable) as caught:
            await self.run_shell("echo busy; exec sleep 1000", seconds=0.1)
        self.assertIn("it took more than 0.1 s", caught.exception.message)
        self.assertEqual(self.alive(), [])

    async def test_children(self) -> None:
        """The children of a program that takes too long are killed with it."""
        with self.assertRaises(ServiceUnavailable):
            await self.run_shell("sleep 1000 & sleep 1000", seconds=0.1)
        await self.until(lambda: not self.alive())

    async def test_cancelled(self) -> None:
        """A program whose caller cancels is killed, and no process is left when the Deferred fires."""
        running = Deferred.fromCoroutine(self.run_shell("exec sleep 1000"))
        await self.until(self.alive)
        (pid,) = self.alive()
        running.cancel()
        with self.assertRaises(CancelledError):
            await running
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

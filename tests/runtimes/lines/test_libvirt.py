"""
Tests for :mod:`twisted_exec.runtimes.lines.libvirt`, with a libvirt of its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests import needs, procfs
from tests.flows.deployment import settled
from tests.flows.programs import Program, start
from tests.runtimes.peers import listens
from tests.shared import ENDS_WITH_PARENT, SharedPrograms, use
from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver, IShutdown, MachineFacts
from twisted_exec.runtimes.lines.libvirt import LibvirtDriver, configure, console_source
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.testing.drivers import ConsoleContract, Line, MachineDriverContract

from ..qemus import tiny_rom
from ..support import RuntimeCase, pause

reactor: Any = _reactor

_DOMAIN = """
<domain type='qemu'><name>{name}</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><loader type='rom'>{rom}</loader></os>
<features><acpi/></features><on_poweroff>destroy</on_poweroff>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<serial type='{kind}'>{source}<target port='0'/></serial></devices></domain>
"""


class ConfigureTests(SynchronousTestCase):
    """Tests for :func:`configure`."""

    def driver(self, **keys: Any) -> LibvirtDriver:
        reader = Reader(keys, "f.yaml: x")
        build = configure(reader, {})
        reader.done()
        self.quantity = reader.quantity
        driver = build(reactor, ProcessTable(reactor, "X"))
        assert isinstance(driver, LibvirtDriver)
        return driver

    def test_domains(self) -> None:
        """A domain has the name of its machine by default; the quantity is the number of domains."""
        driver = self.driver(domains={"team/web-1": None, "web-2": {"domain": "old"}})
        verifyObject(IMachineDriver, driver)
        facts = MachineFacts("m", "team/web-1", "", "", ("", ""), lambda _: None, lambda *_: None)
        result = driver.lines.options_of(replace(facts, namespace="team", name="web-1"))
        assert result is not None
        self.assertEqual((result.domain, result.uri), ("web-1", "qemu:///system"))
        self.assertEqual(self.quantity, 2)

    def test_refusals(self) -> None:
        """Wrong values are refused."""
        for keys, message in (
            ({}, "domains is missing"),
            ({"domains": {"a": {"domain": "-c"}}}, "domains[a]: domain '-c' is not a valid name"),
            ({"domains": {"a": None, "b": {"domain": "a"}}}, "domains[a] has the domain a already"),
            ({"domains": {"a": None}, "uri": "--help"}, "uri '--help' is not of the form"),
            ({"domains": {"a": {"name": "b"}}}, "unknown key 'name'"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.driver(**keys)
            self.assertIn(message, str(caught.exception))

    def test_in_a_file(self) -> None:
        """The configuration knows the driver."""
        (machine_class,) = parse(
            {
                "classes": [
                    {
                        "name": "domains",
                        "driver": "libvirt",
                        "domains": {"web-1": None},
                        "capabilities": {"cpu": 1, "memory": "1Gi"},
                    }
                ]
            }
        )
        self.assertEqual(machine_class.quantity, 1)


class ConsoleOfTests(SynchronousTestCase):
    """Tests for :func:`console_source`."""

    def test_kinds(self) -> None:
        """A terminal or a UNIX socket of this host; the console before other lines."""
        for devices, expected in (
            ("<console type='pty'><source path='/dev/pts/3'/></console>", ("pty", "/dev/pts/3")),
            ("<serial type='unix'><source path='/run/x'/></serial>", ("unix", "/run/x")),
            (
                "<serial type='unix'><source path='/a'/></serial>"
                "<console type='pty'><source path='/b'/></console>",
                ("pty", "/b"),
            ),
        ):
            text = f"<domain><devices>{devices}</devices></domain>"
            self.assertEqual(console_source(text), expected)

    def test_none(self) -> None:
        """Other kinds of consoles are none, and damaged XML is reported."""
        tcp = "<domain><devices><serial type='tcp'><source host='h'/></serial></devices></domain>"
        for text, message in (
            (tcp, "<console type='pty'/>"),
            ("<domain/>", "<console type='pty'/>"),
            ("<domain", "cannot be read"),
        ):
            with self.assertRaises(ServiceUnavailable) as caught:
                console_source(text)
            self.assertIn(message, caught.exception.message)


class Libvirt(SharedPrograms):
    """
    A libvirt that runs as another user than root.

    :ivar directory: its home and its sockets; each of its QEMUs has the path in its command line.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="lv-")
        self.rom = os.path.join(self.directory, "tiny.rom")
        self._socket = os.path.join(self.directory, "libvirt", "libvirt-sock")
        self.uri = f"qemu+unix:///session?socket={self._socket}"
        self._daemon: Program | None = None

    async def start(self) -> None:
        with open(self.rom, "wb") as file:
            file.write(tiny_rom())
        os.chmod(self.rom, 0o644)
        user = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        environment = [f"HOME={self.directory}", f"XDG_RUNTIME_DIR={self.directory}"]
        clean = ["env", "-i", f"PATH={os.environ['PATH']}", *environment]
        self._daemon = start([*clean, *ENDS_WITH_PARENT, *user, "libvirtd"], cwd=self.directory)
        while not listens(self._socket):
            await pause()
        # Before the first definition libvirt starts QEMU to see what it can do, which takes seconds.
        self.define("first")
        self.virsh("undefine", "first")
        await settled(lambda: procfs.open_sockets(self._daemon.pid))
        self.started({"libvirtd": self._daemon})

    async def restore(self) -> list[str]:
        """Undefine all domains and kill their QEMUs; return all other differences."""
        if self._daemon.exit_code is not None:
            return ["libvirtd has ended"]
        for name in self.domains():
            with contextlib.suppress(subprocess.CalledProcessError):  # it ends with its QEMU
                self.virsh("undefine", name)
        # A QEMU needs more than a second to end when libvirt asks for it.
        for pid in self.processes():
            if procfs.name(pid).startswith("qemu"):
                os.kill(pid, signal.SIGKILL)
        found = []
        if not await self.until(lambda: not self.processes()):
            found.append(f"processes {self.processes()} run")
        if not await self.until(lambda: not self.domains()):
            found.append(f"domains {self.domains()} are defined")
        if not await self.until(lambda: not self.connected()):
            found.append("more connections of libvirtd")
        return found

    async def stop(self) -> None:
        if self._daemon is not None:
            await self._daemon.stop()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.remove_files()

    def remove_files(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[int]:
        """Return QEMUs and clients of this libvirt."""
        return procfs.with_argument(self.directory)

    def domains(self) -> list[str]:
        return self.virsh("list", "--all", "--name").split()

    def virsh(self, *words: str) -> str:
        command = ["virsh", "-q", "-c", self.uri, *words]
        output = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        return output.stdout.strip()

    def define(self, name: str, kind: str = "pty", source: str = "") -> None:
        path = os.path.join(self.directory, f"{name}.xml")
        with open(path, "w") as file:
            file.write(_DOMAIN.format(name=name, rom=self.rom, kind=kind, source=source))
        self.virsh("define", path)


class DomainCase(RuntimeCase):
    """Domains of a libvirt of this process."""

    skip = needs.libvirt()

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.libvirt = await use(self, Libvirt, Libvirt)
        self.virsh, self.define = self.libvirt.virsh, self.libvirt.define

    def facts(self, id: str = "web-1") -> MachineFacts:
        return replace(super().facts(id), namespace="default", name=id)

    def driver(self, **keys: Any) -> LibvirtDriver:
        reader = Reader({"uri": self.libvirt.uri, "domains": {"web-1": None}, **keys}, "x")
        driver = configure(reader, {})(reactor, self.table)
        assert isinstance(driver, LibvirtDriver)
        return driver

    def run_of(self, name: str = "web-1", **keys: Any) -> SharedLine:
        run = self.driver(**keys).run(self.facts(name))
        assert isinstance(run, SharedLine)
        self.addCleanup(run.stop)
        return run

    async def line(self, run: SharedLine) -> Line:
        line: Line = await run.connect(Factory.forProtocol(Line))
        return line


class SharedTests(DomainCase):
    """One libvirt of this process."""

    starts = PROGRAMS

    async def test_restored(self) -> None:
        """Domains and their processes are gone for the next test; a client that runs on is a difference."""
        self.define("web-1")
        self.virsh("start", "web-1")
        self.define("web-2")
        client = start(["sh", "-c", "exec tail -f /dev/null $0", self.libvirt.rom])
        await self.until(self.libvirt.processes)

        async def until(condition: Callable[[], bool]) -> bool:
            """Wait as long as it takes; in vain when only the client is left."""
            while not condition():
                if self.libvirt.processes() == [client.pid] and not (
                    self.libvirt.domains() or self.libvirt.connected()
                ):
                    return condition()  # it may have become true in the meantime
                await pause()
            return True

        self.patch(self.libvirt, "until", until)
        self.assertEqual(await self.libvirt.restore(), [f"processes [{client.pid}] run"])
        await client.stop()
        self.assertEqual(self.libvirt.domains(), [])
        self.assertEqual(self.libvirt.processes(), [])


class ContractTests(MachineDriverContract, ConsoleContract, DomainCase):
    """The contracts of drivers and consoles."""

    starts = PROGRAMS
    machine_id = "web-1"
    provoke = b"x"
    answer = b"x."

    async def setUp(self) -> None:  # type: ignore[override]
        await super().setUp()
        self.define("web-1")

    def make_driver(self) -> LibvirtDriver:
        return self.driver()

    def make_console(self) -> SharedLine:
        return self.run_of()

    def clean(self, console: SharedLine) -> Any:
        return console.stop()


class DomainTests(DomainCase):
    """The power and the console of domains."""

    starts = PROGRAMS

    async def test_life(self) -> None:
        """
        A domain is started, goes on when its machine is let go of, goes on when it was
        suspended, and is destroyed when it does not shut down.
        """
        self.define("web-1")
        run = self.run_of()
        line = await self.line(run)
        line.transport.write(b"x")
        await line.until(b"x.")
        await run.stop()
        self.assertEqual(self.virsh("domstate", "web-1"), "running")

        self.virsh("suspend", "web-1")
        run = self.run_of(shutdown_seconds=0)
        verifyObject(IShutdown, run)
        line = await self.line(run)
        self.assertEqual(self.virsh("domstate", "web-1"), "running")
        line.transport.write(b"y")
        await line.until(b"y.")
        await run.shut_down()
        self.assertEqual(self.virsh("domstate", "web-1"), "shut off")
        self.assertIn("SwitchedOff", [reason for _, reason, _ in self.events])

    async def test_lost(self) -> None:
        """A domain that somebody else destroys and starts again is a lost line, which is opened again."""
        self.define("web-1")
        run = self.run_of()
        line = await self.line(run)
        self.virsh("destroy", "web-1")
        await line.until(b"was lost")
        await self.until(lambda: 'domain "web-1" is shut off' in run.outage)
        self.virsh("start", "web-1")
        await line.until(b"line is back")
        line.transport.write(b"x")
        await line.until(b"x.")
        self.assertEqual(self.reasons()[-2:], ["LineLost", "LineBack"])
        self.assertEqual(line.lost, [])

    async def test_shuts_down(self) -> None:
        """
        A missing domain is reported, a running one is not started, and one that obeys the power
        button is not destroyed.
        """
        for name, condition, message in (
            ("web-1", "PowerFailed", "failed to get domain 'web-1'"),
            ("web-9", "NoLine", 'no line is called "default/web-9"'),
        ):
            with self.assertRaises(CannotStart) as caught:
                await self.line(self.run_of(name))
            self.assertEqual(caught.exception.condition, condition)
            self.assertIn(message, caught.exception.message)

        socket = os.path.join(self.libvirt.directory, "serial")
        self.define("web-1", "unix", f"<source mode='bind' path='{socket}'/>")
        self.virsh("start", "web-1")
        run = self.run_of(shutdown_seconds=3600)
        line = await self.line(run)
        self.assertNotIn("PoweredOn", [reason for _, reason, _ in self.events])
        line.transport.write(b"^")
        await line.until(b"^")
        await run.shut_down()
        self.assertEqual((self.virsh("domstate", "web-1"), self.shutdowns), ("shut off", ["web-1"]))
        self.assertNotIn("SwitchedOff", [reason for _, reason, _ in self.events])

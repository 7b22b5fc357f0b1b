"""
Tests for :mod:`twisted_exec.runtimes.libvirt`, with a libvirt of their own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests import needs
from tests.contracts.console import ConsoleContract, Line
from tests.contracts.machine_driver import MachineDriverContract
from tests.runtimes.peers import listens
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.interfaces import CannotStart, IMachineDriver, IShutdown, MachineFacts
from twisted_exec.runtimes.libvirt import LibvirtDriver, configure, console_source
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.processes import ProcessTable

from .qemus import tiny_rom
from .support import RuntimeCase

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
            ({"domains": {"a": None, "b": {"domain": "a"}}}, "domain 'a' occurs more than once"),
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


class _Daemon(ProcessProtocol):
    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()
        self.said = b""

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        self.said += data

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)


class DomainCase(RuntimeCase):
    """Domains of a libvirt of the test's own, which runs as another user than root."""

    skip = needs.libvirt()
    timeout = 120

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        self.place = tempfile.mkdtemp(prefix="lv-")
        self.addCleanup(shutil.rmtree, self.place, True)
        self.rom = os.path.join(self.place, "tiny.rom")
        with open(self.rom, "wb") as file:
            file.write(tiny_rom())
        os.chmod(self.rom, 0o644)
        os.chown(self.place, account.pw_uid, account.pw_gid)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.place,
            "XDG_RUNTIME_DIR": self.place,
        }
        self.daemon = _Daemon()
        switch = os.geteuid() == 0
        reactor.spawnProcess(
            self.daemon,
            shutil.which("libvirtd"),
            ["libvirtd"],
            env=environment,
            path=self.place,
            uid=account.pw_uid if switch else None,
            gid=account.pw_gid if switch else None,
        )
        self.addCleanup(self.end_daemon)
        socket = os.path.join(self.place, "libvirt", "libvirt-sock")
        await self.until(lambda: listens(socket))
        self.uri = f"qemu+unix:///session?socket={socket}"

    async def end_daemon(self) -> None:
        for name in self.virsh("list", "--all", "--name").split():
            subprocess.run(["virsh", "-q", "-c", self.uri, "destroy", name], capture_output=True)
        if self.daemon.transport.pid:  # type: ignore[union-attr]
            self.daemon.transport.signalProcess(signal.SIGTERM)  # type: ignore[union-attr]
            await self.daemon.ended

    def facts(self, id: str = "web-1") -> MachineFacts:
        return replace(super().facts(id), namespace="default", name=id)

    def virsh(self, *words: str) -> str:
        done = subprocess.run(
            ["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def define(self, name: str, kind: str = "pty", source: str = "") -> None:
        path = os.path.join(self.place, f"{name}.xml")
        with open(path, "w") as file:
            file.write(_DOMAIN.format(name=name, rom=self.rom, kind=kind, source=source))
        self.virsh("define", path)

    def driver(self, **keys: Any) -> LibvirtDriver:
        reader = Reader({"uri": self.uri, "domains": {"web-1": None}, **keys}, "x")
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


class ContractTests(MachineDriverContract, ConsoleContract, DomainCase):
    """The contracts of drivers and consoles."""

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

        socket = os.path.join(self.place, "serial")
        self.define("web-1", "unix", f"<source mode='bind' path='{socket}'/>")
        self.virsh("start", "web-1")
        run = self.run_of()
        line = await self.line(run)
        self.assertNotIn("PoweredOn", [reason for _, reason, _ in self.events])
        line.transport.write(b"^")
        await line.until(b"^")
        await run.shut_down()
        self.assertEqual(self.virsh("domstate", "web-1"), "shut off")
        self.assertNotIn("SwitchedOff", [reason for _, reason, _ in self.events])

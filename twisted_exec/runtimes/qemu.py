"""
Virtual machines under QEMU, whose serial port is the console.

A machine is always emulated (``tcg``), by one thread, with a virtual clock that follows the real
one and sleeps (``-icount``): an idle U-Boot otherwise burns a core.  It has no network card and no disk; its
firmware boots to a prompt by itself.

QEMU listens on two UNIX sockets in the machine's private directory: the serial port, and its control
line (QMP).  It starts with the processor stopped, so that nothing is printed before
somebody listens; the first command on the control line is ``cont``.

QEMU has a pseudo-terminal of its own, for three reasons: it leads a session then, so a ``^C`` at the
runtime's terminal does not reach it; its complaints can be read; and it is hung up,
and ends, when the runtime is killed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import Factory, ProcessProtocol, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.session import LineEnded
from twisted_exec.streaming.interfaces import LINE_LOST, POWERED_OFF, Ending, TerminalSize
from twisted_exec.tls.endpoints import unix_client_endpoint

from .interfaces import Build, IMachineDriver, IRun, MachineFacts
from .processes import Family, ProcessTable, leader
from .qmp import QMP, QMPError
from .reader import Reader
from .terminals import read_rest

PROGRAM = "qemu-system-x86_64"
FIRMWARE = "/usr/lib/u-boot/qemu-x86/u-boot.rom"

_MIB = 1 << 20
_PATH = "/usr/local/bin:/usr/bin:/bin"
_START_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_QUIT_SECONDS = 2.0
_MAX_COMPLAINT_BYTES = 4096
_COMPLAINT = re.compile(r"qemu[^:\s]*: (?!warning: )")


@dataclass(frozen=True)
class QemuOptions:
    """
    What the machines of a class are made of.

    :param memory_mib: the guest's memory.
    :param firmware: a ROM image for ``-bios``.
    :param program: QEMU for x86_64, by name or path.
    """

    memory_mib: int = 128
    firmware: str = FIRMWARE
    program: str = PROGRAM


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """A class's keys, as :class:`~twisted_exec.runtimes.drivers.IDriverMaker` asks."""
    options = QemuOptions(
        memory_mib=reader.size("memory", "16Mi", "1Ti", resources["memory"]) // _MIB,
        firmware=reader.take("firmware", str, FIRMWARE),
        program=reader.take("program", str, PROGRAM),
    )
    return lambda reactor, table: QemuDriver(options, reactor, table)


@implementer(IMachineDriver)
class QemuDriver:
    """Runs a class of QEMU machines."""

    name = "qemu"

    def __init__(self, options: QemuOptions, reactor: Any, table: ProcessTable) -> None:
        self.options = options
        self.reactor = reactor
        self.table = table
        self.sandbox = True
        """Until a QEMU says that it was built without."""

    def missing(self) -> str:
        lacks = []
        if self.program() is None:
            lacks.append(f"{self.options.program} (Debian package qemu-system-x86)")
        if not os.access(self.options.firmware, os.R_OK):
            lacks.append(f"{self.options.firmware} (Debian package u-boot-qemu)")
        return f"this host has no {' and no '.join(lacks)}" if lacks else ""

    def program(self) -> str | None:
        return shutil.which(self.options.program, path=_PATH)

    def run(self, facts: MachineFacts) -> QemuRun:
        return QemuRun(self, facts)


def arguments(
    options: QemuOptions, program: str, serial: str, control: str, *, sandbox: bool = True
) -> list[str]:
    """
    QEMU's command line.

    :param serial: path of the serial port's socket.
    :param control: path of the control line's.
    :param sandbox: have the kernel refuse system calls that the machine does not need.
    """
    words = [program, "-nodefaults", "-no-user-config"]
    words += ["-machine", "pc", "-accel", "tcg,thread=single"]
    words += ["-icount", "shift=6,align=on,sleep=on"]
    words += ["-m", f"{options.memory_mib}M", "-bios", options.firmware]
    words += ["-display", "none", "-nic", "none"]
    words += ["-chardev", f"socket,id=serial0,path={_escape(serial)},server=on,wait=off"]
    words += ["-serial", "chardev:serial0"]
    words += ["-chardev", f"socket,id=control0,path={_escape(control)},server=on,wait=off"]
    words += ["-mon", "chardev=control0,mode=control"]
    if sandbox:
        denied = "obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
        words += ["-sandbox", f"on,{denied}"]
    return [*words, "-S"]


def _escape(path: str) -> str:
    """A comma separates QEMU's options; two are one."""
    return path.replace(",", ",,")


@dataclass
class _Power:
    """How far a machine is from being off."""

    is_off: bool = False
    guest_did_it: bool = False
    waiting: list[Deferred[None]] = field(default_factory=list)


@implementer(IRun)
class QemuRun:
    """One virtual machine from power on to power off."""

    paced = False
    _log = Logger()

    def __init__(self, driver: QemuDriver, facts: MachineFacts) -> None:
        self._driver = driver
        self._facts = facts
        self._power = _Power()
        self._process: _Process | None = None
        self._control: QMP | None = None
        mark = facts.marker[1]
        self._family = Family(driver.table, lambda found: found == mark)

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        starting = Deferred.fromCoroutine(self._start(factory))
        return starting.addTimeout(_START_SECONDS, self._driver.reactor).addErrback(_too_slow)

    def window_changed(self, size: TerminalSize) -> None:
        """A serial port has no size."""

    def stop(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())

    async def _start(self, factory: IProtocolFactory) -> Any:
        missing = self._driver.missing()
        if missing:
            raise ServiceUnavailable(missing)
        try:
            return await self._boot(factory)
        except (ConnectionDone, ConnectionLost, QMPError):
            # Its control line may be closed before what it said of it has come.
            await self._wait_for_exit(_QUIT_SECONDS)
            raise ServiceUnavailable(f"QEMU ended while it started{self._complaint()}") from None

    async def _boot(self, factory: IProtocolFactory) -> Any:
        serial, control = self._sockets()
        self._spawn(serial, control)
        self._control = await self._reach(control, Factory.forProtocol(lambda: QMP(self._told)))
        await self._control.greeting
        line = await self._reach(serial, Factory.forProtocol(lambda: _SerialLine(self)))
        inner = factory.buildProtocol(None)  # type: ignore[arg-type]
        line.join(inner)
        await self._until_heard(self._control)
        await self._control.execute("cont")
        return inner

    async def _until_heard(self, control: QMP) -> None:
        """
        Wait until QEMU has accepted the serial port's connection.

        For us it is connected before; what the guest prints in between is lost.
        """
        while True:
            devices = await control.execute("query-chardev")
            (serial,) = [one for one in devices if one.get("label") == "serial0"]
            if not str(serial.get("filename")).startswith("disconnected:"):
                return
            await deferLater(self._driver.reactor, _LOOK_SECONDS)

    def _sockets(self) -> tuple[str, str]:
        """Free paths for the serial port and the control line."""
        paths = tuple(os.path.join(self._facts.directory, name) for name in ("serial", "control"))
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
        return paths[0], paths[1]

    def _spawn(self, serial: str, control: str) -> None:
        options, program = self._driver.options, self._driver.program()
        assert program is not None
        variable, value = self._facts.marker
        self._process = _Process(self._exited)
        transport = self._driver.reactor.spawnProcess(
            self._process,
            program,
            arguments(options, program, serial, control, sandbox=self._driver.sandbox),
            env={"PATH": _PATH, "LANG": "C.UTF-8", variable: value},
            path="/",
            usePTY=True,
        )
        found = leader(transport.pid) if transport.pid else None
        if found is not None:
            self._family.add(found)
            self._facts.started(found)

    async def _reach(self, path: str, factory: Factory) -> Any:
        """Connect to one of QEMU's sockets, as soon as it listens."""
        factory.noisy = False
        endpoint = unix_client_endpoint(self._driver.reactor, path)
        while not self._power.is_off:
            try:
                return await endpoint.connect(factory)
            except ConnectError:
                await deferLater(self._driver.reactor, _LOOK_SECONDS)
        if self._driver.sandbox and "sandbox" in self._complaint():
            # Built without seccomp.  The next start, which comes soon, goes without.
            self._driver.sandbox = False
            self._log.warn("this QEMU has no sandbox: machines run without")
        raise ServiceUnavailable(f"QEMU ended at once{self._complaint()}")

    def _complaint(self) -> str:
        """What QEMU said of its end, for a message; empty when it said nothing."""
        said = self._process.complaint() if self._process is not None else ""
        return f": {said}" if said else ""

    def _told(self, event: str, data: dict[str, Any]) -> None:
        if event == "SHUTDOWN" and data.get("guest"):
            self._power.guest_did_it = True
        elif event == "RESET" and data.get("guest"):
            self._facts.event("Normal", "Reset", "the guest restarted")
        elif event == "GUEST_PANICKED":
            self._facts.event("Warning", "Panicked", "the guest's system panicked")

    def _exited(self) -> None:
        self._power.is_off = True
        waiting, self._power.waiting = self._power.waiting, []
        for waiter in waiting:
            waiter.callback(None)

    def line_lost(self, inner: Any) -> None:
        """The serial port is closed: find out whether the machine is off, then tell."""
        waiting = Deferred.fromCoroutine(self._wait_for_exit(_QUIT_SECONDS))
        waiting.addCallback(lambda _: inner.connectionLost(Failure(LineEnded(self._ending()))))
        waiting.addErrback(lambda failure: self._log.failure("serial line", failure=failure))

    def _ending(self) -> Ending:
        if self._power.guest_did_it:
            return Ending(POWERED_OFF, f'machine "{self._facts.label}" powered itself off')
        return Ending(LINE_LOST, f'the emulator of "{self._facts.label}" ended{self._complaint()}')

    async def _wait_for_exit(self, seconds: float) -> None:
        """Until QEMU has ended, or the time is over."""
        if self._power.is_off:
            return
        exited: Deferred[None] = Deferred()
        self._power.waiting.append(exited)
        try:
            await exited.addTimeout(seconds, self._driver.reactor)
        except TimeoutError:
            pass
        finally:
            if exited in self._power.waiting:
                self._power.waiting.remove(exited)

    async def _stop(self) -> None:
        """Ask the control line first; whatever is left after that is ended by signals."""
        if self._process is None:
            return
        if self._control is not None and not self._power.is_off:
            self._control.execute("quit").addErrback(lambda failure: failure.trap(QMPError))
            await self._wait_for_exit(_QUIT_SECONDS)
        left = await self._family.end()
        if left:
            self._facts.event("Warning", "ProcessesLeft", "QEMU cannot be ended")
        else:
            await self._wait_for_exit(_QUIT_SECONDS)  # its exit is told a little later
        if self._control is not None:
            self._control.transport.abortConnection()
        self._process.close()


def _too_slow(failure: Failure) -> Failure:
    if failure.check(TimeoutError):
        return Failure(ServiceUnavailable(f"QEMU did not start in {_START_SECONDS:.0f} s"))
    return failure


class _SerialLine(Protocol):
    """The serial port; hands everything to the line's own protocol."""

    transport: Any

    def __init__(self, run: QemuRun) -> None:
        self._run = run
        self._inner: Any = None

    def join(self, inner: Any) -> None:
        self._inner = inner
        inner.makeConnection(self.transport)

    def dataReceived(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._inner is not None:
            self._run.line_lost(self._inner)


class _Process(ProcessProtocol):
    """QEMU's process; keeps the last of what it prints."""

    transport: Any

    def __init__(self, exited: Callable[[], None]) -> None:
        self._exited = exited
        self._printed: deque[bytes] = deque(maxlen=16)
        self._signal: int | None = None

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        self._printed.append(data[-_MAX_COMPLAINT_BYTES:])

    def complaint(self) -> str:
        """Its last complaint (not mere warnings), or the signal that ended it."""
        text = b"".join(self._printed)[-_MAX_COMPLAINT_BYTES:].decode("utf-8", "replace")
        said = [line for line in text.splitlines() if _COMPLAINT.match(line)]
        if said:
            return "".join(char for char in said[-1] if char.isprintable())
        return f"signal {self._signal}" if self._signal else ""

    def processExited(self, reason: Failure) -> None:
        # Why it ended may be in its terminal still, and is asked for at once.
        if self.transport.connected:
            self._printed.extend(read_rest(self.transport.fd))
        self._signal = getattr(reason.value, "signal", None)
        self._exited()

    def close(self) -> None:
        if self.transport is not None and self.transport.connected:
            self.transport.connectionLost(Failure(ConnectionDone()))

"""
One QEMU machine, from power on to power off.

QEMU listens on two UNIX sockets in the machine's private directory: the serial port, and its control
line (QMP).  It starts with the processor stopped, so that nothing is printed before
somebody listens; the last command of the start is ``cont``.  A machine that is adopted runs already,
and only its sockets are opened again.

What QEMU tells, and what it does not (it is asked now and then), becomes the machine's state.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.session import LineEnded
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IHotPlug,
    IKept,
    IRun,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.processes import Leader, ProcessFamily
from twisted_exec.runtimes.qemu.command_line import AUTO, KVM, TCG, Parts, Sockets, arguments
from twisted_exec.runtimes.qemu.disks import Disks
from twisted_exec.runtimes.qemu.health import Health
from twisted_exec.runtimes.qemu.hotplug import HotPlugSlots
from twisted_exec.runtimes.qemu.process import PATH, ChildProcess, DetachedProcess, has_kvm
from twisted_exec.runtimes.qemu.qmp import QMP, QMPError
from twisted_exec.runtimes.qemu.serial_line import SerialLine, SerialPort
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    POWERED_OFF,
    Ending,
    IBreakable,
    TerminalSize,
)
from twisted_exec.tls.endpoints import unix_client_endpoint

if TYPE_CHECKING:
    from twisted_exec.runtimes.qemu.driver import QemuDriver

_START_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_QUIT_SECONDS = 2.0
_LOST = (ConnectionDone, ConnectionLost, QMPError)


@dataclass
class _Power:
    """How far a machine is from being off."""

    is_off: bool = False
    guest_did_it: bool = False
    why: str = ""
    waiting: list[Deferred[None]] = field(default_factory=list)


@implementer(IRun, IBreakable, IHotPlug, IKept)
class QemuRun:
    """
    One virtual machine.

    :param adopted: its process, when it runs already.
    """

    paced = False
    _log = Logger()

    def __init__(
        self, driver: QemuDriver, facts: MachineFacts, adopted: Sequence[Leader] = ()
    ) -> None:
        self._driver = driver
        self._facts = facts
        self._adopted = list(adopted)
        self._power = _Power()
        self._process: ChildProcess | DetachedProcess | None = None
        self._control: QMP | None = None
        self._line: SerialLine | None = None
        self._accelerator = ""
        self._released = False
        variable, value = facts.marker
        self._environment = {"PATH": PATH, "LANG": "C.UTF-8", variable: value}
        self._family = ProcessFamily(driver.table, lambda found: found == value, adopted)
        self._disks = Disks(
            driver.options.disks,
            os.path.join(facts.storage, "disks"),
            self._environment,
            driver.reactor,
        )
        machine = driver.options.board.machine
        self._slots = HotPlugSlots(self._ask, self._disks, machine, driver.reactor)
        self._health = Health(
            self._ask, facts, driver.reactor, fall_back=self._fall_back, tidy=self._tidy
        )
        if driver.options.shutdown_seconds:
            alsoProvides(self, IShutdown)

    # Starting.

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        starting = Deferred.fromCoroutine(self._start(factory))
        return starting.addTimeout(_START_SECONDS, self._driver.reactor).addErrback(_too_slow)

    async def _start(self, factory: IProtocolFactory) -> Any:
        missing = self._driver.missing()
        if missing:
            raise ServiceUnavailable(missing)
        if self._adopted:
            return await self._attempt(factory, None)
        parts = await self._parts()
        self._accelerator = self._choose()
        try:
            return await self._attempt(factory, parts)
        except ServiceUnavailable as error:
            if not self._may_fall_back():
                raise
            why = error.message
        await self._clear()
        self._accelerator = TCG
        protocol = await self._attempt(factory, parts)
        self._without_kvm(f"KVM cannot run this machine, which is emulated now ({why})")
        return protocol

    async def _attempt(self, factory: IProtocolFactory, parts: Parts | None) -> Any:
        try:
            return await self._boot(factory, parts)
        except _LOST:
            # Its control line may be closed before what it said of it has come.
            await self._wait_for_exit(_QUIT_SECONDS)
            raise ServiceUnavailable(f"QEMU ended while it started{self._complaint()}") from None

    async def _boot(self, factory: IProtocolFactory, parts: Parts | None) -> Any:
        sockets = self._sockets()
        if parts is None:
            self._adopt()
        else:
            self._spawn(sockets, parts)
        self._control = await self._reach(sockets.control, lambda: QMP(self._told))
        await self._control.greeting
        line = self._line = SerialLine(self._port_lost)
        port = await self._reach(sockets.serial, lambda: SerialPort(line))
        inner = factory.buildProtocol(None)  # type: ignore[arg-type]
        line.join(port, inner)
        await self._until_heard()
        if parts is not None and parts.ignition:
            os.unlink(parts.ignition)  # QEMU has read it
        if parts is None and (await self._ask("query-kvm")).get("enabled"):
            self._accelerator = KVM
        if (await self._ask("query-status")).get("status") == "prelaunch":
            await self._ask("cont")
        self._health.start(self._driver.watch_seconds)
        return inner

    async def _parts(self) -> Parts:
        facts = self._facts
        ignition = os.path.join(facts.directory, "ignition") if facts.ignition_data else ""
        if ignition:
            _write_secret(ignition, facts.ignition_data)
        return Parts(
            disks=await self._disks.prepare(facts.volumes),
            interfaces=facts.network_interfaces,
            hostname=facts.hostname,
            ignition=ignition,
            uid=facts.uid,
            id=facts.id,
        )

    async def _until_heard(self) -> None:
        """
        Wait until QEMU has accepted the serial port's connection.

        For us it is connected before; what the guest prints in between is lost.
        """
        while True:
            devices = await self._ask("query-chardev")
            (serial,) = [one for one in devices if one.get("label") == "serial0"]
            if not str(serial.get("filename")).startswith("disconnected:"):
                return
            await deferLater(self._driver.reactor, _LOOK_SECONDS)

    def _sockets(self) -> Sockets:
        """Where its sockets are, of an adopted machine; else free paths for them."""
        found = Sockets(*(os.path.join(self._facts.directory, n) for n in ("serial", "control")))
        if not self._adopted:
            _remove(found.serial)
            _remove(found.control)
        return found

    def _adopt(self) -> None:
        process = self._process = DetachedProcess(self._exited, self._log_file())
        for one in self._adopted:
            process.adopt(one, self._driver.reactor)

    def _log_file(self) -> str:
        return os.path.join(self._facts.directory, "qemu.log")

    def _spawn(self, sockets: Sockets, parts: Parts) -> None:
        driver, program = self._driver, self._driver.program()
        assert program is not None
        words = arguments(
            program,
            driver.options.board,
            sockets,
            parts,
            accelerator=self._accelerator,
            sandbox=driver.sandbox,
        )
        self._power = _Power()
        power = self._power

        def exited() -> None:
            if power is self._power:  # else of an attempt that failed before
                self._exited()

        if self._facts.keep:
            self._process = DetachedProcess(exited, self._log_file())
        else:
            self._process = ChildProcess(exited)
        try:
            found = self._process.start(words, self._environment, driver.reactor)
        except OSError as error:
            raise ServiceUnavailable(f"QEMU cannot be started: {error}") from None
        if found is not None:
            self._family.add(found)
            self._facts.started(found)

    async def _reach(self, path: str, make: Any) -> Any:
        """Connect to one of QEMU's sockets, as soon as it listens."""
        factory = Factory.forProtocol(make)
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

    async def _clear(self) -> None:
        """Nothing is left of an attempt that failed."""
        await self._family.end()
        if self._control is not None:
            self._control.transport.abortConnection()
            self._control = None
        if self._line is not None:
            self._line.drop()
            self._line = None
        if self._process is not None:
            self._process.close()

    # KVM.

    def _choose(self) -> str:
        wanted = self._driver.options.accelerator
        if wanted != AUTO:
            return wanted
        failed_before = os.path.exists(self._no_kvm())
        return KVM if has_kvm() and not failed_before else TCG

    def _may_fall_back(self) -> bool:
        return self._accelerator == KVM and self._driver.options.accelerator != KVM

    def _no_kvm(self) -> str:
        """A file that is there when KVM failed this machine before."""
        return os.path.join(self._facts.storage, "no-kvm")

    def _without_kvm(self, why: str) -> None:
        try:
            os.makedirs(self._facts.storage, mode=0o700, exist_ok=True)
            with open(self._no_kvm(), "w"):
                pass
        except OSError:
            pass  # it fails again next time, and is emulated again
        self._facts.event("Warning", "KVMFailed", why)

    def _fall_back(self) -> bool:
        """KVM cannot run what the guest does; emulation can, after another start."""
        if not self._may_fall_back():
            return False
        self._power.why = "KVM cannot run what the guest does: it starts again, emulated"
        self._without_kvm(self._power.why)
        if self._control is not None:
            self._control.execute("quit").addErrback(lambda failure: None)
        return True

    def _tidy(self) -> None:
        if isinstance(self._process, DetachedProcess):
            self._process.trim_log()

    # What QEMU tells.

    def _told(self, event: str, data: dict[str, Any]) -> None:
        if event == "SHUTDOWN":
            self._power.guest_did_it = bool(data.get("guest")) and (
                data.get("reason") != "guest-panic"
            )
        elif event == "GUEST_PANICKED":
            self._power.why = "the guest's system panicked"
            self._facts.event("Warning", "Panicked", self._power.why)
        elif event == "DEVICE_DELETED":
            self._slots.ejected(str(data.get("device")))
        else:
            self._health.told(event, data)

    async def _ask(self, command: str, **arguments: Any) -> Any:
        """
        One command on the control line.

        :raises QMPError: QEMU refused it, or is gone.
        :raises ServiceUnavailable: it does not answer.
        """
        if self._control is None:
            raise QMPError("QEMU is not there")
        seconds = self._driver.answer_seconds
        answer = self._control.execute(command, **arguments)
        try:
            return await answer.addTimeout(seconds, self._driver.reactor)
        except TimeoutError:
            raise ServiceUnavailable(
                f"QEMU has not answered for {seconds:g} s: power the machine off and on if that lasts"
            ) from None

    # The line.

    def window_changed(self, size: TerminalSize) -> None:
        """A serial port has no size."""

    def send_break(self, milliseconds: int) -> None:
        """As :class:`IBreakable` says; QEMU's BREAK has a length of its own."""
        if self._control is not None and not self._power.is_off:
            asked = self._control.execute("chardev-send-break", id="serial0")
            asked.addErrback(lambda failure: failure.trap(QMPError))

    def _port_lost(self) -> None:
        """The serial port is closed: is the machine off, or only the port?"""
        done = Deferred.fromCoroutine(self._reopen())
        done.addErrback(lambda failure: self._log.failure("serial line", failure=failure))

    async def _reopen(self) -> None:
        line = self._line
        if line is None:
            return
        if not self._released:
            await self._wait_for_exit(_LOOK_SECONDS if line.is_open else _QUIT_SECONDS)
        if line.is_open and not self._power.is_off:
            try:
                port = await self._reach(self._sockets_again().serial, lambda: SerialPort(line))
            except ServiceUnavailable:
                pass  # it ended meanwhile
            else:
                line.join(port)
                self._facts.event(
                    "Warning", "LineReopened", "the serial line was lost, and is back"
                )
                return
        line.end(Failure(LineEnded(self._ending())))

    def _sockets_again(self) -> Sockets:
        directory = self._facts.directory
        return Sockets(os.path.join(directory, "serial"), os.path.join(directory, "control"))

    def _ending(self) -> Ending:
        if self._power.guest_did_it:
            return Ending(POWERED_OFF, f'machine "{self._facts.label}" powered itself off')
        why = f": {self._power.why}" if self._power.why else self._complaint()
        return Ending(LINE_LOST, f'the emulator of "{self._facts.label}" ended{why}')

    # Hardware.

    def attach_volume(self, volume: pb.Volume) -> Deferred[None]:
        return Deferred.fromCoroutine(self._slots.attach(volume))

    def detach_volume(self, name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._slots.detach(name))

    def resize_volume(self, volume: pb.Volume) -> Deferred[None]:
        return Deferred.fromCoroutine(self._slots.resize(volume))

    # Ending.

    def shut_down(self) -> Deferred[None]:
        """As :class:`IShutdown` says: ACPI's power button."""
        return Deferred.fromCoroutine(self._shut_down())

    async def _shut_down(self) -> None:
        seconds = self._driver.options.shutdown_seconds
        try:
            await self._ask("system_powerdown")
        except (QMPError, ServiceUnavailable):
            return
        await self._wait_for_exit(seconds)
        if not self._power.is_off:
            self._facts.event(
                "Warning", "ShutdownIgnored", f"the guest did not shut down in {seconds:g} s"
            )

    def release(self) -> None:
        """As :class:`IKept` says."""
        self._released = True
        self._wake()
        self._let_go()

    def stop(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        """Ask the control line first; whatever is left after that is ended by signals."""
        _remove(os.path.join(self._facts.directory, "ignition"))
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
        self._let_go()

    def _let_go(self) -> None:
        self._health.stop()
        if self._control is not None:
            self._control.transport.abortConnection()
        if self._line is not None:
            self._line.drop()
        if self._process is not None:
            self._process.close()

    def _exited(self) -> None:
        self._power.is_off = True
        self._health.stop()
        self._wake()

    def _wake(self) -> None:
        waiting, self._power.waiting = self._power.waiting, []
        for waiter in waiting:
            waiter.callback(None)

    async def _wait_for_exit(self, seconds: float) -> None:
        """Until QEMU has ended, or the time is over."""
        power = self._power
        if power.is_off:
            return
        exited: Deferred[None] = Deferred()
        power.waiting.append(exited)
        try:
            await exited.addTimeout(seconds, self._driver.reactor)
        except TimeoutError:
            pass
        finally:
            if exited in power.waiting:
                power.waiting.remove(exited)

    def _complaint(self) -> str:
        """What QEMU said of its end, for a message; empty when it said nothing."""
        said = self._process.complaint() if self._process is not None else ""
        return f": {said}" if said else ""


def _too_slow(failure: Failure) -> Failure:
    if failure.check(TimeoutError):
        return Failure(ServiceUnavailable(f"QEMU did not start in {_START_SECONDS:.0f} s"))
    return failure


def _write_secret(path: str, content: bytes) -> None:
    """
    :raises CannotStart: there is no room for it.
    """
    _remove(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise CannotStart(
            "IgnitionFailed", f"there is no room for the machine's ignition: {error.strerror}"
        ) from None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

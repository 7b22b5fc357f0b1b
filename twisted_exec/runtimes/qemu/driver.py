"""
The driver ``qemu``: virtual machines whose serial port is the console.

By default, a class without kernel and images is emulated (``tcg``) by one thread, whose virtual
clock sleeps when the guest is idle (``-icount``). Other machines run with KVM, or are emulated if
KVM is not available or fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from twisted_exec.api.display import reason_of
from twisted_exec.api.status import NotImplementedByBackend, ServiceUnavailable
from twisted_exec.console.line import LineEnded
from twisted_exec.control.polling import until
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.config_file import Reader
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.interfaces import (
    Build,
    CannotStart,
    IAdoptsMachines,
    IHardware,
    IHotPlug,
    IJournalWriter,
    IMachineDriver,
    IReleasable,
    IRun,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.processes import Leader, ProcessFamily, ProcessTable
from twisted_exec.runtimes.qemu.accelerator import Accelerator, has_kvm
from twisted_exec.runtimes.qemu.command_line import (
    AUTO,
    ICOUNT,
    KVM,
    TCG,
    Board,
    QemuParts,
    SocketPaths,
    arguments,
)
from twisted_exec.runtimes.qemu.disks import DiskOptions, Disks, HotPlugSlots, check
from twisted_exec.runtimes.qemu.health import GuestHealth
from twisted_exec.runtimes.qemu.idle_pause import IdlePause
from twisted_exec.runtimes.qemu.log_port import LogWatcher
from twisted_exec.runtimes.qemu.process import PATH, ChildProcess, DetachedProcess, ProcessExit
from twisted_exec.runtimes.qemu.qmp import QMP, QMPError
from twisted_exec.runtimes.qemu.serial import QemuSerialLine
from twisted_exec.runtimes.qemu.serial_connection import SerialConnection
from twisted_exec.streaming.interfaces import (
    LINE_LOST,
    POWERED_OFF,
    Ending,
    IBreakable,
    TerminalSize,
)
from twisted_exec.tls.endpoints import unix_client_endpoint

PROGRAM = "qemu-system-x86_64"
FIRMWARE = "/usr/lib/u-boot/qemu-x86/u-boot.rom"

_MIB = 1 << 20
_POLL_SECONDS = 0.02
_QUIT_SECONDS = 2.0
_LOST = (ConnectionDone, ConnectionLost, QMPError)


@dataclass(frozen=True)
class QemuOptions:
    """
    The options of a class of QEMU machines.

    :param shutdown_seconds: time for a shutdown; 0 powers off without one.
    """

    board: Board = field(default_factory=lambda: Board(firmware=FIRMWARE))
    disks: DiskOptions = field(default_factory=DiskOptions)
    program: str = PROGRAM
    accelerator: str = ICOUNT
    network: str = "restricted"
    shutdown_seconds: float = 0.0
    idle_seconds: float = 0.0


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    kernel, images = reader.take("kernel", str, ""), reader.take("images", str, "")
    initrd, append = reader.take("initrd", str, ""), reader.take("append", str, "")
    if (initrd or append) and not kernel:
        raise reader.error("initrd and append need a kernel")
    has_system = bool(kernel or images)
    accelerator = reader.choice(
        "accelerator", (AUTO, KVM, TCG, ICOUNT), AUTO if has_system else ICOUNT
    )
    network = reader.choice("network", ("restricted", "open", "none"), "restricted")
    cpus = resources["cpu"] if accelerator != ICOUNT else 1
    board = Board(
        memory_mib=reader.size("memory", "16Mi", "1Ti", resources["memory"]) // _MIB,
        cpus=int(reader.number("cpus", 1, 64, min(cpus, 64))),
        machine=reader.choice("machine", ("pc", "q35"), "pc"),
        firmware=reader.take("firmware", str, "" if has_system else FIRMWARE),
        kernel=kernel,
        initrd=initrd,
        append=append,
        network_is_open=network == "open",
    )
    options = QemuOptions(
        board=board,
        disks=_disks(reader, images),
        program=reader.take("program", str, PROGRAM),
        accelerator=accelerator,
        network=network,
        shutdown_seconds=reader.number("shutdown_seconds", 0, 3600, 30 if has_system else 0),
        idle_seconds=reader.number("idle_seconds", 0, 86400, 0),
    )
    return lambda reactor, table: QemuDriver(options, reactor, table)


def _disks(reader: Reader, images: str) -> DiskOptions:
    if images and not os.path.isabs(images):
        raise reader.error(f"images: {images!r} is not an absolute path")
    limit = reader.size("disk_limit", "1Mi", "1Pi", "1Ti")
    size = reader.size("disk_size", "1Mi", "1Pi", min(limit, DiskOptions.size_bytes))
    if size > limit:
        raise reader.error("disk_size is larger than disk_limit")
    return DiskOptions(images, size, limit)


@implementer(IMachineDriver, IHardware, IAdoptsMachines)
class QemuDriver:
    """
    Runs a class of QEMU machines.

    :ivar start_seconds: time limit for a QEMU to start, or to answer the next runtime.
    :ivar off_seconds: from the end of a machine until QEMU must have written its disks and ended.
    :ivar sandbox: use seccomp; false after a QEMU reported that it was built without.
    """

    name = "qemu"
    watch_seconds = 10.0
    answer_seconds = 10.0
    start_seconds = 20.0
    off_seconds = 10.0
    unplug_seconds = 10.0

    def __init__(self, options: QemuOptions, reactor: Any, table: ProcessTable) -> None:
        self.options = options
        self.reactor = reactor
        self.table = table
        self.sandbox = True
        self.watcher = LogWatcher(reactor)

    def missing(self) -> str:
        options, board, lacks = self.options, self.options.board, []
        if self.program() is None:
            lacks.append(f"{options.program} (Debian package qemu-system-x86)")
        for path in (board.firmware, board.kernel, board.initrd):
            if path and not os.access(path, os.R_OK):
                hint = " (Debian package u-boot-qemu)" if path == FIRMWARE else ""
                lacks.append(f"{path}{hint}")
        if options.disks.images and not os.path.isdir(options.disks.images):
            lacks.append(f"directory {options.disks.images}")
        if options.accelerator == KVM and not has_kvm():
            lacks.append("usable KVM (/dev/kvm)")
        return f"this host has no {' and no '.join(lacks)}" if lacks else ""

    def program(self) -> str | None:
        return shutil.which(self.options.program, path=PATH)

    def check_volume(self, volume: pb.Volume) -> None:
        check(self.options.disks, volume)

    def check_network_interface(self, interface: pb.NetworkInterface) -> None:
        if self.options.network == "none":
            raise NotImplementedByBackend(
                f"network interface {interface.name!r}: the class has no network"
            )

    def run(self, facts: MachineFacts) -> IRun:
        return QemuRun(self, facts)

    def adopt(self, facts: MachineFacts, leaders: Sequence[Leader]) -> IRun:
        return QemuRun(self, facts, leaders)


@implementer(IRun, IBreakable, IHotPlug)
class QemuRun:
    """
    One virtual machine.

    QEMU listens on UNIX sockets in the machine's private directory. It starts with a stopped
    processor, so the guest prints nothing before the serial port is connected.
    """

    paced = False
    _log = Logger()

    def __init__(
        self, driver: QemuDriver, facts: MachineFacts, adopted: Sequence[Leader] = ()
    ) -> None:
        self._driver = driver
        self._facts = facts
        self._adopted = list(adopted)
        self._exit = ProcessExit()
        self._process: ChildProcess | DetachedProcess | None = None
        self._control: QMP | None = None
        self._line: QemuSerialLine | None = None
        self._accelerator = Accelerator(driver.options.accelerator, facts)
        self._released = False
        variable, value = facts.marker
        self._environment = {"PATH": PATH, "LANG": "C.UTF-8", variable: value}
        self._family = ProcessFamily(driver.table, lambda mark: mark == value, adopted)
        self._disks = Disks(
            driver.options.disks,
            os.path.join(facts.storage, "disks"),
            self._environment,
            driver.reactor,
        )
        machine = driver.options.board.machine
        self._serial = SerialConnection(
            driver.reactor, driver.watcher, facts, self._ask, self._reach
        )
        if facts.journal is not None:
            alsoProvides(self, IJournalWriter)
        if facts.keep:
            alsoProvides(self, IReleasable)
        self._slots = HotPlugSlots(
            self._ask, self._disks, machine, driver.reactor, driver.unplug_seconds
        )
        self._idle = IdlePause(self._ask, driver.reactor, 0)  # until it boots
        self._health = GuestHealth(
            self._ask,
            facts,
            driver.reactor,
            fall_back=self._fall_back,
            tidy=self._tidy,
            is_idle=lambda: self._idle.is_paused,
        )
        if driver.options.shutdown_seconds:
            alsoProvides(self, IShutdown)

    # Start.

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        starting = Deferred.fromCoroutine(self._start(factory))
        starting.addTimeout(self._driver.start_seconds, self._driver.reactor)
        return starting.addErrback(self._too_slow)

    def _too_slow(self, failure: Failure) -> Failure:
        if failure.check(TimeoutError):
            seconds = self._driver.start_seconds
            return Failure(ServiceUnavailable(f"QEMU did not start in {seconds:.0f} s"))
        return failure

    async def _start(self, factory: IProtocolFactory) -> Any:
        missing = self._driver.missing()
        if missing:
            raise ServiceUnavailable(missing)
        if self._adopted:
            return await self._attempt(factory, None)
        parts = await self._parts()
        self._accelerator.choose()
        try:
            return await self._attempt(factory, parts)
        except ServiceUnavailable as error:
            if not self._accelerator.may_fall_back:
                raise
            why = error.message
        await self._clear()
        self._accelerator.emulate()
        protocol = await self._attempt(factory, parts)
        self._accelerator.record_failure(f"KVM cannot run this machine; it is emulated ({why})")
        return protocol

    async def _attempt(self, factory: IProtocolFactory, parts: QemuParts | None) -> Any:
        try:
            return await self._boot(factory, parts)
        except _LOST:
            # The control socket may close before the error message has arrived.
            await self._wait_for_exit(_QUIT_SECONDS)
            raise ServiceUnavailable(f"QEMU ended during its start{self._complaint()}") from None

    async def _boot(self, factory: IProtocolFactory, parts: QemuParts | None) -> Any:
        sockets = self._sockets()
        driver = self._driver
        self._idle = IdlePause(self._ask, driver.reactor, driver.options.idle_seconds)
        line = self._line = QemuSerialLine(self._port_lost, self._idle.active)
        inner = factory.buildProtocol(None)  # type: ignore[arg-type]
        line.begin(inner)
        # Before a new QEMU starts, because _spawn deletes the log of the previous QEMU.
        is_logged = await self._serial.catch_up(line, sockets.serial)
        if parts is None and not is_logged and self._facts.journal is not None:
            self._facts.journal.lost()  # the socket lost what it printed without a client
        if parts is None:
            self._adopt()
        else:
            self._spawn(sockets, parts)
        self._control = await self._reach(sockets.control, lambda: QMP(self._event_received))
        await self._control.greeting
        await self._serial.connect(line, sockets.serial)
        if parts is not None and parts.ignition:
            os.unlink(parts.ignition)  # QEMU has read it
        if parts is None and (await self._ask("query-kvm")).get("enabled"):
            self._accelerator.current = KVM
        status = (await self._ask("query-status")).get("status")
        if status == "prelaunch":
            if self._facts.journal is not None:
                self._facts.journal.booted("Started")
            await self._ask("cont")
        elif status == "paused" and driver.options.idle_seconds:
            await self._ask("cont")  # paused by the former runtime
            self._idle.active()
        self._health.start(self._driver.watch_seconds)
        return inner

    async def _parts(self) -> QemuParts:
        facts = self._facts
        ignition = os.path.join(facts.directory, "ignition") if facts.ignition_data else ""
        if ignition:
            _write_secret(ignition, facts.ignition_data)
        return QemuParts(
            disks=await self._disks.prepare(facts.volumes),
            interfaces=facts.network_interfaces,
            hostname=facts.hostname,
            ignition=ignition,
            uid=facts.uid,
            id=facts.id,
        )

    def _sockets(self) -> SocketPaths:
        sockets = self._socket_paths()
        if not self._adopted:
            _remove(sockets.serial)
            _remove(sockets.control)
        return sockets

    def _adopt(self) -> None:
        process = self._process = DetachedProcess(self._exited, self._log_file())
        for leader in self._adopted:
            process.adopt(leader, self._driver.reactor)

    def _log_file(self) -> str:
        return os.path.join(self._facts.directory, "qemu.log")

    def _spawn(self, sockets: SocketPaths, parts: QemuParts) -> None:
        driver, program = self._driver, self._driver.program()
        assert program is not None
        files = self._serial.create_log()
        if files is not None:
            sockets = replace(sockets, serial="")
        words = arguments(
            program,
            driver.options.board,
            sockets,
            parts,
            accelerator=self._accelerator.current,
            sandbox=driver.sandbox,
        )
        self._exit = ProcessExit()
        exit = self._exit

        def exited() -> None:
            if exit is self._exit:  # else of an earlier, failed attempt
                self._exited()

        if self._facts.keep:
            # QEMU inherits the FIFO, so that its input has no end while no runtime runs.
            self._process = DetachedProcess(exited, self._log_file(), files)
        else:
            self._process = ChildProcess(exited)
        try:
            leader = self._process.start(words, self._environment, driver.reactor)
        except OSError as error:
            raise ServiceUnavailable(f"QEMU cannot be started: {reason_of(error)}") from None
        finally:
            if files is not None:
                os.close(files)
        if leader is not None:
            self._family.add(leader)
            self._facts.started(leader)

    async def _reach(self, path: str, make: Any) -> Any:
        factory = Factory.forProtocol(make)
        factory.noisy = False
        endpoint = unix_client_endpoint(self._driver.reactor, path)
        while not self._exit.is_off:
            try:
                return await endpoint.connect(factory)
            except ConnectError:
                await deferLater(self._driver.reactor, _POLL_SECONDS)
        if self._driver.sandbox and "sandbox" in self._complaint():
            # Built without seccomp.  The supervisor retries soon, then without it.
            self._driver.sandbox = False
            self._log.warn("this QEMU has no seccomp sandbox; machines run without it")
        raise ServiceUnavailable(f"QEMU ended immediately{self._complaint()}")

    async def _clear(self) -> None:
        await self._family.end()
        if self._control is not None:
            self._control.transport.abortConnection()
            self._control = None
        if self._line is not None:
            self._line.drop()
            self._line = None
        if self._process is not None:
            self._process.close()

    def _fall_back(self) -> bool:
        if not self._accelerator.may_fall_back:
            return False
        self._exit.why = "KVM cannot run this guest; the machine restarts with emulation"
        self._accelerator.record_failure(self._exit.why)
        if self._control is not None:
            self._control.execute("quit").addErrback(lambda failure: None)
        return True

    def _tidy(self) -> None:
        self._serial.tidy()
        if isinstance(self._process, DetachedProcess):
            self._process.trim_log()

    # Events and commands.

    def _event_received(self, event: str, data: dict[str, Any]) -> None:
        if event == "SHUTDOWN":
            # QEMU counts a panic as the guest's own request, too (qapi/run-state.json,
            # ShutdownCause).
            self._exit.by_guest = bool(data.get("guest")) and (data.get("reason") != "guest-panic")
            ended = Deferred.fromCoroutine(self._end_when_off())
            ended.addErrback(lambda failure: self._log.failure("ending QEMU", failure=failure))
        elif event == "GUEST_PANICKED":
            self._exit.why = "the guest's system panicked"
            self._facts.event("Warning", "Panicked", self._exit.why)
        elif event == "DEVICE_DELETED":
            self._slots.ejected(str(data.get("device")))
        else:
            if event == "RESET" and self._facts.journal is not None:
                self._facts.journal.booted("Reset")
            self._health.event_received(event, data)

    async def _end_when_off(self) -> None:
        """
        Wait for the end of a QEMU whose machine is off; kill a QEMU that stays.

        Some releases of QEMU hang if a command comes at that moment.
        """
        await self._wait_for_exit(self._driver.off_seconds)
        if not (self._exit.is_off or self._released):
            self._log.warn(
                "QEMU of {machine} has not ended: it is killed", machine=self._facts.label
            )
            await self._family.end()

    async def _ask(self, command: str, **arguments: Any) -> Any:
        if self._control is None:
            raise QMPError("QEMU is not connected")
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
        """Do nothing: a serial port has no size."""

    def send_break(self, milliseconds: int) -> None:
        """See :meth:`IBreakable.send_break`; QEMU decides on the length."""
        if self._control is not None and not self._exit.is_off:
            self._idle.active()
            line = self._line
            if line is not None:
                line.break_begins()
            sending = self._control.execute("chardev-send-break", id="serial0")
            if line is not None:
                sending.addBoth(line.break_ends)
            sending.addErrback(lambda failure: failure.trap(QMPError))

    def _port_lost(self) -> None:
        done = Deferred.fromCoroutine(self._reopen())
        done.addErrback(lambda failure: self._log.failure("serial line", failure=failure))

    async def _reopen(self) -> None:
        line = self._line
        if line is None or (self._released and line.is_open):
            return  # another run has the machine
        if not self._released:
            await self._wait_for_exit(_POLL_SECONDS if line.is_open else _QUIT_SECONDS)
        if line.is_open and not self._exit.is_off:
            try:
                await self._serial.connect(line, self._socket_paths().serial)
            except (ServiceUnavailable, QMPError):
                pass  # QEMU ended meanwhile
            else:
                self._facts.event(
                    "Warning", "LineReopened", "the serial line was lost and is connected again"
                )
                return
        if self._exit.is_off:
            await self._read_last_events()
        line.end(Failure(LineEnded(self._ending())))

    async def _read_last_events(self) -> None:
        """Wait until the control socket has closed: the last event may be that of a power off."""

        def is_closed() -> bool:
            return self._control is None or self._control.is_lost

        await until(is_closed, self._driver.reactor, _POLL_SECONDS, _QUIT_SECONDS)

    def _socket_paths(self) -> SocketPaths:
        directory = self._facts.directory
        return SocketPaths(os.path.join(directory, "serial"), os.path.join(directory, "control"))

    def _ending(self) -> Ending:
        if self._exit.by_guest:
            return Ending(POWERED_OFF, f'machine "{self._facts.label}" powered itself off')
        why = f": {self._exit.why}" if self._exit.why else self._complaint()
        return Ending(LINE_LOST, f'the emulator of "{self._facts.label}" ended{why}')

    # Hardware.

    def attach_volume(self, volume: pb.Volume) -> Deferred[None]:
        return Deferred.fromCoroutine(self._slots.attach(volume))

    def detach_volume(self, name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._slots.detach(name))

    def resize_volume(self, volume: pb.Volume) -> Deferred[None]:
        return Deferred.fromCoroutine(self._slots.resize(volume))

    # Stop.

    @as_deferred
    async def shut_down(self) -> None:
        """See :meth:`IShutdown.shut_down`: the power button of ACPI."""
        seconds = self._driver.options.shutdown_seconds
        try:
            await self._ask("system_powerdown")
        except (QMPError, ServiceUnavailable):
            return
        await self._wait_for_exit(seconds)
        if not self._exit.is_off:
            self._facts.event(
                "Warning", "ShutdownIgnored", f"the guest did not shut down in {seconds:g} s"
            )

    @as_deferred
    async def release(self) -> None:
        self._released = True
        self._exit.wake()
        pausing = self._idle.leave()
        if pausing is not None:
            pausing.addTimeout(_QUIT_SECONDS, self._driver.reactor)
            await pausing.addErrback(lambda failure: failure.trap(TimeoutError) and None)
        self._disconnect()

    @as_deferred
    async def stop(self) -> None:
        """Send ``quit``; end remaining processes by signals."""
        _remove(os.path.join(self._facts.directory, "ignition"))
        if self._process is None:
            return
        if self._control is not None and not self._exit.is_off:
            self._control.execute("quit").addErrback(lambda failure: failure.trap(QMPError))
            await self._wait_for_exit(_QUIT_SECONDS)
        left = await self._family.end()
        if left:
            self._facts.event("Warning", "ProcessesLeft", "QEMU cannot be ended")
        else:
            await self._wait_for_exit(_QUIT_SECONDS)  # processExited comes a little later
        self._disconnect()

    def _disconnect(self) -> None:
        self._health.stop()
        self._idle.stop()
        if self._control is not None:
            self._control.transport.abortConnection()
        if self._line is not None:
            self._line.drop()
        if self._process is not None:
            self._process.close()

    def _exited(self) -> None:
        self._exit.is_off = True
        self._health.stop()
        self._idle.stop()
        self._exit.wake()
        self._serial.finish()

    def _wait_for_exit(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._exit.wait(seconds, self._driver.reactor)

    def _complaint(self) -> str:
        complaint = self._process.complaint() if self._process is not None else ""
        return f": {complaint}" if complaint else ""


def _write_secret(path: str, content: bytes) -> None:
    _remove(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise CannotStart(
            "IgnitionFailed", f"the machine's ignition data cannot be written: {error.strerror}"
        ) from None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

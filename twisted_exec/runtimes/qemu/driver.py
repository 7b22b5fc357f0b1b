"""
The driver ``qemu``: virtual machines whose serial port is the console.

A class without kernel and images boots U-Boot, which uses a full core while it waits for a key.
Such machines are therefore emulated (``tcg``) by one thread whose virtual clock sleeps when the
guest is idle (``-icount``). Other machines run with KVM, or are emulated if KVM is not available or
fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zope.interface import implementer

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import (
    Build,
    IAdoptsMachines,
    IHardware,
    IMachineDriver,
    IRun,
    MachineFacts,
)
from twisted_exec.runtimes.processes import Leader, ProcessTable
from twisted_exec.runtimes.qemu.accelerator import has_kvm
from twisted_exec.runtimes.qemu.command_line import AUTO, ICOUNT, KVM, TCG, Board
from twisted_exec.runtimes.qemu.disks import DiskOptions, check
from twisted_exec.runtimes.qemu.log_port import LogWatcher
from twisted_exec.runtimes.qemu.process import PATH
from twisted_exec.runtimes.qemu.run import QemuRun

PROGRAM = "qemu-system-x86_64"
FIRMWARE = "/usr/lib/u-boot/qemu-x86/u-boot.rom"

_MIB = 1 << 20


@dataclass(frozen=True)
class QemuOptions:
    """
    The options of a class.

    :param program: name or path of QEMU for x86_64.
    :param accelerator: ``auto``, ``kvm``, ``tcg`` or ``icount``.
    :param network: ``restricted``, ``open`` or ``none``.
    :param shutdown_seconds: time for a shutdown; 0 powers off without one.
    :param idle_seconds: see :class:`.IdlePause`.
    """

    board: Board = field(default_factory=lambda: Board(firmware=FIRMWARE))
    disks: DiskOptions = field(default_factory=DiskOptions)
    program: str = PROGRAM
    accelerator: str = ICOUNT
    network: str = "restricted"
    shutdown_seconds: float = 0.0
    idle_seconds: float = 0.0


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """Read the keys of a class; see :meth:`.IDriverMaker.configure`."""
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

    :ivar watch_seconds: interval of status queries.
    :ivar answer_seconds: time limit for answers on the control socket.
    :ivar start_seconds: time limit for a QEMU to start, or to answer the next runtime.
    :ivar off_seconds: from the end of a machine until QEMU must have written its disks and ended.
    :ivar unplug_seconds: time that a guest has to release a disk.
    :ivar watcher: notices output of machines that outlive the runtime.
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
        """See :meth:`IHardware.check_volume`."""
        check(self.options.disks, volume)

    def check_network_interface(self, interface: pb.NetworkInterface) -> None:
        """See :meth:`IHardware.check_network_interface`."""
        if self.options.network == "none":
            raise NotImplementedByBackend(
                f"network interface {interface.name!r}: the class has no network"
            )

    def run(self, facts: MachineFacts) -> IRun:
        return QemuRun(self, facts)

    def adopt(self, facts: MachineFacts, leaders: Sequence[Leader]) -> IRun:
        """See :meth:`IAdoptsMachines.adopt`."""
        return QemuRun(self, facts, leaders)

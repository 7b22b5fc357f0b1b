"""
QEMU's command line for one machine.

Users' values cannot inject options: for example, node names are hashes, paths are JSON values or
have their commas doubled, unusual hostnames are left out, and ignition data is passed as a file.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.iri.protos import machine_pb2 as pb

KVM, TCG, ICOUNT, AUTO = "kvm", "tcg", "icount", "auto"
"""
Accelerators: KVM; emulation; emulation by one thread whose clock sleeps when the guest is idle; KVM
if available, else emulation.
"""

IGNITION = "opt/com.coreos/config"
HOSTNAME = "opt/dev.twisted-exec/hostname"

_ACCELERATORS = {
    KVM: ["-accel", "kvm", "-cpu", "host"],
    TCG: ["-accel", "tcg", "-cpu", "max"],
    ICOUNT: ["-accel", "tcg,thread=single", "-icount", "shift=6,align=on,sleep=on"],
}
_HOSTNAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Disk:
    """
    One disk of a machine.

    :param base: path of the backing image, or empty.
    :param base_format: ``qcow2`` or ``raw``; never detected from the file.
    """

    volume: str
    path: str
    base: str = ""
    base_format: str = ""

    @property
    def node(self) -> str:
        return node_name(self.volume)

    def blockdev(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "driver": "qcow2",
            "node-name": self.node,
            "discard": "unmap",
            "file": {"driver": "file", "filename": self.path},
            # Explicit even without a base: QEMU would use the backing file named in the disk itself.
            "backing": None,
        }
        if self.base:
            options["backing"] = {
                "driver": self.base_format,
                "read-only": True,
                "file": {"driver": "file", "filename": self.base, "read-only": True},
            }
            if self.base_format == "qcow2":
                options["backing"]["backing"] = None
        return options

    def device(self) -> dict[str, Any]:
        return {
            "driver": "virtio-blk-pci",
            "id": f"{self.node}-card",
            "drive": self.node,
            # virtio-blk transfers 20 bytes of it (VIRTIO 1.2, 5.2.6, VIRTIO_BLK_T_GET_ID).
            "serial": self.volume[:20],
        }


def node_name(volume: str) -> str:
    """Return the node name for a volume: a hash, because QEMU limits names to 31 characters."""
    return "v" + hashlib.sha256(volume.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class QemuParts:
    """
    The parts of one machine that do not come from its class.

    :param uid: UID of the API object; passed to the guest if it is a UUID.
    """

    disks: Sequence[Disk] = ()
    interfaces: Sequence[pb.NetworkInterface] = ()
    hostname: str = ""
    ignition: str = ""
    uid: str = ""
    id: str = ""


@dataclass(frozen=True)
class Board:
    """
    The parts that all machines of a class have.

    :param network_is_open: guests can reach the networks of the host.
    """

    memory_mib: int = 128
    cpus: int = 1
    machine: str = "pc"
    firmware: str = ""
    kernel: str = ""
    initrd: str = ""
    append: str = ""
    network_is_open: bool = False


@dataclass(frozen=True)
class SocketPaths:
    """
    Paths of the UNIX sockets for the serial port and for QMP.

    :param serial: empty for a serial port that is connected later, by QMP.
    """

    serial: str
    control: str


def arguments(
    program: str,
    board: Board,
    sockets: SocketPaths,
    parts: QemuParts = QemuParts(),
    *,
    accelerator: str = ICOUNT,
    sandbox: bool = True,
) -> list[str]:
    """Build the command line."""
    words = [program, "-nodefaults", "-no-user-config", "-machine", board.machine]
    words += [*_ACCELERATORS[accelerator], "-smp", str(board.cpus), "-m", f"{board.memory_mib}M"]
    # The guest's kernel reports a panic to it, and QEMU sends GUEST_PANICKED
    # (docs/specs/pvpanic.rst).
    words += ["-display", "none", "-nic", "none", "-device", "pvpanic"]
    for option in ("firmware", "kernel", "initrd", "append"):
        value = getattr(board, option)
        if value:
            words += [{"firmware": "-bios"}.get(option, f"-{option}"), value]
    words += [*_line("serial0", sockets.serial), "-serial", "chardev:serial0"]
    words += [*_line("control0", sockets.control), "-mon", "chardev=control0,mode=control"]
    words += _disks(parts.disks) + _network(board, parts) + _identity(parts)
    if sandbox:
        denied = "obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
        words += ["-sandbox", f"on,{denied}"]
    # Stopped until the serial line is connected, so that no output is lost; then QMP sends
    # ``cont``.
    return [*words, "-S"]


def _line(name: str, path: str) -> list[str]:
    if not path:
        return ["-chardev", f"null,id={name}"]
    return ["-chardev", f"socket,id={name},path={_escape(path)},server=on,wait=off"]


def _disks(disks: Sequence[Disk]) -> list[str]:
    words = []
    for at, disk in enumerate(disks, 1):
        words += ["-blockdev", json.dumps(disk.blockdev())]
        words += ["-device", json.dumps({**disk.device(), "bootindex": at})]
    return words


def _network(board: Board, parts: QemuParts) -> list[str]:
    """Cards on QEMU's user-mode network; no guest port is reachable from outside."""
    words = []
    hostname = f",hostname={parts.hostname}" if _HOSTNAME.fullmatch(parts.hostname) else ""
    restrict = "off" if board.network_is_open else "on"
    for at, interface in enumerate(parts.interfaces):
        words += ["-netdev", f"user,id=net{at},restrict={restrict}{hostname}"]
        mac = hashlib.sha256(f"{parts.id}/{interface.name}".encode()).hexdigest()[:6]
        # QEMU's own prefix, which is one of locally administered addresses.
        address = f"52:54:00:{mac[0:2]}:{mac[2:4]}:{mac[4:6]}"
        words += ["-device", f"virtio-net-pci,netdev=net{at},mac={address}"]
    return words


def _identity(parts: QemuParts) -> list[str]:
    """
    Ignition, hostname and UUID, at the places where guests look for them.

    Source: systemd.system-credentials(7) (``system.hostname``), and Ignition's documentation for
    the platform ``qemu``.
    """
    words = []
    if parts.ignition:
        words += ["-fw_cfg", f"name={IGNITION},file={_escape(parts.ignition)}"]
    if _HOSTNAME.fullmatch(parts.hostname):
        words += ["-fw_cfg", f"name={HOSTNAME},string={parts.hostname}"]
        credential = f"io.systemd.credential:system.hostname={parts.hostname}"
        words += ["-smbios", f"type=11,value={credential}"]
    try:
        words += ["-uuid", str(uuid.UUID(parts.uid))]
    except ValueError:
        pass  # UIDs of other API servers need not be UUIDs
    return words


def _escape(path: str) -> str:
    # QEMU ends a value at a single comma.
    return path.replace(",", ",,")

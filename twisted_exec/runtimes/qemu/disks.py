"""
Disks of QEMU machines: qcow2 files per machine, backed by shared images, and hot plugging.

The suffix of an image determines its format. A qcow2 image that refers to other files is refused.

Source: QEMU, ``docs/tools/qemu-img.rst``, and its ``docs/system/security.rst``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api import quantity
from twisted_exec.api.display import reason_of
from twisted_exec.api.status import BadRequest, Conflict, NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.qemu.command_line import Disk, node_name
from twisted_exec.runtimes.qemu.qmp import QMPError

TOOL = "qemu-img"
FORMATS = {".qcow2": "qcow2", ".raw": "raw", ".img": "raw"}

_PATH = "/usr/local/bin:/usr/bin:/bin"
_TOOL_SECONDS = 20.0
_MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True)
class DiskOptions:
    """The disk options of a class."""

    images: str = ""
    size_bytes: int = 10 << 30
    limit_bytes: int = 1 << 40


def check(options: DiskOptions, volume: pb.Volume) -> None:
    """
    :raises APIError: no machine of a class with these options can have such a disk.
    """
    if volume.HasField("connection"):
        driver = volume.connection.driver
        raise NotImplementedByBackend(
            f"volume {volume.name!r} is of driver {driver!r}; machines of this runtime have "
            "local disks only (emptyDisk, localDisk)"
        )
    image = volume.local_disk.image.image
    if image and not options.images:
        raise NotImplementedByBackend(
            f"volume {volume.name!r}: the class has no images (its key images: names a directory)"
        )
    if image:
        _inside(options.images, image)
    if not 0 <= volume.local_disk.size_bytes <= options.limit_bytes:
        raise BadRequest(
            f"volume {volume.name!r}: a disk has at most {quantity.binary(options.limit_bytes)}"
        )


def _inside(directory: str, image: str) -> str:
    root = os.path.realpath(directory)
    # realpath raises ValueError for a NUL, which no file name can contain.
    path = os.path.realpath(os.path.join(root, image)) if "\0" not in image else root
    if os.path.commonpath([root, path]) != root or path == root:
        raise BadRequest(f"image {image[:200]!r} is not in the class's directory of images")
    return path


@dataclass(frozen=True)
class _Image:
    path: str
    format: str
    size_bytes: int


class Disks:
    """The disks of one machine, in a directory of their own."""

    def __init__(
        self, options: DiskOptions, directory: str, environment: Mapping[str, str], reactor: Any
    ) -> None:
        self._options = options
        self._directory = directory
        self._environment = environment
        self._reactor = reactor

    async def prepare(self, volumes: Sequence[pb.Volume]) -> list[Disk]:
        """
        Create missing disks, enlarge small ones, and delete those of removed volumes.

        :return: the disks, in the order of their device names.
        :raises CannotStart: a disk cannot be prepared.
        """
        try:
            self._remove_others({self._file(volume.name) for volume in volumes})
        except OSError as error:
            raise CannotStart(
                "DiskFailed", f"the disk of a removed volume cannot be deleted: {reason_of(error)}"
            ) from None
        # By length first: vdz comes before vdaa.
        ordered = sorted(volumes, key=lambda volume: (len(volume.device), volume.device))
        return [await self.make(volume) for volume in ordered]

    async def make(self, volume: pb.Volume) -> Disk:
        """Create a disk, or enlarge an existing one."""
        image = await self._image(volume)
        size = self._size(volume, image)
        path = self._file(volume.name)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            if not os.path.exists(path):
                await self._create(path, image, size)
            elif (await self._info(path, "qcow2"))["virtual-size"] < size:
                await self._tool("resize", "-f", "qcow2", path, str(size))
        except (OSError, ToolFailed) as error:
            why = reason_of(error)
            raise CannotStart(
                "DiskFailed", f"the disk of volume {volume.name!r} cannot be made: {why}"
            ) from None
        base, format = (image.path, image.format) if image is not None else ("", "")
        return Disk(volume.name, path, base, format)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self._file(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise Conflict(
                f"the disk of volume {name!r} cannot be deleted: {reason_of(error)}; it is tried again, also at the "
                "next start of the machine"
            ) from None

    def size(self, volume: pb.Volume) -> int:
        """Return the desired size of a volume without an image, in bytes."""
        return int(volume.local_disk.size_bytes) or self._options.size_bytes

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, f"{node_name(name)}.qcow2")

    def _remove_others(self, retained: set[str]) -> None:
        try:
            names = os.listdir(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            path = os.path.join(self._directory, name)
            if path not in retained:
                os.unlink(path)

    def _size(self, volume: pb.Volume, image: _Image | None) -> int:
        requested = int(volume.local_disk.size_bytes)
        if image is None:
            return self.size(volume)
        if requested and requested < image.size_bytes:
            raise CannotStart(
                "DiskTooSmall",
                f"volume {volume.name!r} has {requested} bytes, but its image "
                f"{volume.local_disk.image.image!r} has {image.size_bytes}: make the volume larger",
            )
        return requested or image.size_bytes

    async def _image(self, volume: pb.Volume) -> _Image | None:
        name = volume.local_disk.image.image
        if not name:
            return None
        path = _inside(self._options.images, name)
        # The suffix decides, never the content: a guest could write the header of another format at
        # the start of a raw disk, and such a header can name any file of the host.
        format = FORMATS.get(os.path.splitext(path)[1])
        if format is None:
            raise CannotStart(
                "ImageUnusable",
                f"the name of image {name!r} must end in {', '.join(FORMATS)}, which determines the format",
            )
        if not os.path.isfile(path):
            raise CannotStart(
                "ImageMissing",
                f"image {name!r} is not in {self._options.images}: copy it there; images are "
                "not downloaded",
            )
        return _Image(path, format, await self._image_size(name, path, format))

    async def _image_size(self, name: str, path: str, format: str) -> int:
        try:
            if format == "raw":
                return os.path.getsize(path)
            info = await self._info(path, format)
        except (OSError, ToolFailed) as error:
            why = reason_of(error)
            raise CannotStart("ImageUnusable", f"image {name!r}: {why}") from None
        details = info.get("format-specific", {}).get("data", {})
        # These, too, could name any file of the host.
        if "backing-filename" in info or "data-file" in details:
            raise CannotStart(
                "ImageUnusable",
                f"image {name!r} refers to other files of this host: convert it to a single file "
                "(qemu-img convert -O qcow2)",
            )
        return int(info["virtual-size"])

    async def _create(self, path: str, image: _Image | None, size_bytes: int) -> None:
        words = ["create", "-q", "-f", "qcow2"]
        if image is not None:
            words += ["-F", image.format, "-b", image.path]
        try:
            # An interrupted qemu-img leaves no disk at the path, which would count as made.
            await self._tool(*words, f"{path}.new", str(size_bytes))
            os.replace(f"{path}.new", path)
        except ToolFailed:
            try:
                os.unlink(f"{path}.new")
            except FileNotFoundError:
                pass
            raise

    async def _info(self, path: str, format: str) -> dict[str, Any]:
        """Run ``qemu-img info``; ``-U`` permits files in use by a machine."""
        output = await self._tool("info", "-U", "-f", format, "--output=json", path)
        try:
            info: dict[str, Any] = json.loads(output)
        except ValueError:
            raise ToolFailed(f"the output of {TOOL} is not JSON") from None
        return info

    async def _tool(self, *words: str) -> bytes:
        program = shutil.which(TOOL, path=_PATH)
        if program is None:
            raise ToolFailed(f"this host has no {TOOL} (Debian package qemu-utils)")
        tool = _Tool()
        self._reactor.spawnProcess(
            tool, program, [TOOL, *words], env={"PATH": _PATH, **self._environment}, path="/"
        )
        try:
            return await tool.done.addTimeout(_TOOL_SECONDS, self._reactor)
        except TimeoutError:
            raise ToolFailed(f"{TOOL} did not end in {_TOOL_SECONDS:.0f} s") from None


class ToolFailed(Exception):
    """``qemu-img`` failed, is missing, or was too slow; the message says why."""


class _Tool(ProcessProtocol):
    transport: Any

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._kill())
        self._printed = {1: bytearray(), 2: bytearray()}

    def connectionMade(self) -> None:
        self.transport.closeStdin()

    def childDataReceived(self, child_fd: int, data: bytes) -> None:
        printed = self._printed[child_fd]
        printed += data
        if len(printed) > _MAX_OUTPUT_BYTES:
            self._kill()

    def _kill(self) -> None:
        if self.transport.pid:
            self.transport.signalProcess("KILL")

    def processExited(self, reason: Failure) -> None:
        """Do nothing: output may follow until processEnded."""

    def processEnded(self, reason: Failure) -> None:
        if self.done.called:
            return
        if getattr(reason.value, "exitCode", None) == 0:
            self.done.callback(bytes(self._printed[1]))
            return
        errors = self._printed[2].decode("utf-8", "replace").strip().splitlines()
        self.done.errback(ToolFailed((errors or [f"{TOOL} failed"])[-1].removeprefix(f"{TOOL}: ")))


class HotPlugSlots:
    """
    The PCI slots of one running machine.

    To unplug a card, QEMU sends a request to the guest (ACPI) and reports when the guest has
    released the card. A guest may also release a card without a request; then only the block device
    behind it remains to be removed.

    Source: QEMU, ``docs/interop/qmp-intro.rst`` and ``qapi/{block-core,qdev}.json``.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        disks: Disks,
        machine: str,
        reactor: Any,
        unplug_seconds: float,
    ) -> None:
        self._ask = ask
        self._disks = disks
        self._machine = machine
        self._reactor, self._unplug_seconds = reactor, unplug_seconds
        self._waiting: dict[str, Deferred[None]] = {}
        self._ejected: set[str] = set()

    def ejected(self, card: str) -> None:
        self._ejected.add(card)
        waiting = self._waiting.get(card)
        if waiting is not None and not waiting.called:
            waiting.callback(None)

    async def attach(self, volume: pb.Volume) -> None:
        """Create and plug a disk."""
        self._must_be_pluggable()
        disk = await self._disks.make(volume)
        try:
            await self._ask("blockdev-add", **disk.blockdev())
            await self._plug(disk)
        except QMPError as error:
            self._disks.remove(volume.name)
            raise Conflict(f"QEMU does not accept volume {volume.name!r}: {error}") from None

    async def _plug(self, disk: Disk) -> None:
        self._ejected.discard(disk.device()["id"])
        try:
            await self._ask("device_add", **disk.device())
        except QMPError:
            await self._ask("blockdev-del", **{"node-name": disk.node})
            raise

    async def detach(self, name: str) -> None:
        """
        Unplug and delete a disk.

        :raises APIError: the guest or QEMU does not release the disk, or the machine type has no
            hot plugging.
        """
        self._must_be_pluggable()
        card = Disk(name, "").device()["id"]
        released = self._waiting.setdefault(card, Deferred())
        try:
            # A disk that is unplugged, and could not be deleted, has no node any more.
            if await self._current_size(node_name(name)) is not None:
                await self._unplug(card, released)
                await self._ask("blockdev-del", **{"node-name": node_name(name)})
        except TimeoutError:
            raise Conflict(
                f"the guest has not released volume {name!r} for {self._unplug_seconds:.0f} s: unmount it "
                "there, or power the machine off"
            ) from None
        except QMPError as error:
            raise Conflict(f"QEMU does not release volume {name!r}: {error}") from None
        finally:
            self._waiting.pop(card, None)
        self._disks.remove(name)

    async def _unplug(self, card: str, released: Deferred[None]) -> None:
        if card in self._ejected:
            return
        try:
            await self._ask("device_del", id=card)
        except QMPError as error:
            if error.kind != "DeviceNotFound":  # else the guest is releasing it now
                raise
        await released.addTimeout(self._unplug_seconds, self._reactor)

    async def resize(self, volume: pb.Volume) -> None:
        """
        Enlarge a disk.

        :raises APIError: the disk is larger, or QEMU refused, or did not answer.
        """
        name, size = node_name(volume.name), int(volume.local_disk.size_bytes)
        try:
            current = await self._current_size(name)
            if current is not None and size > current:
                await self._ask("block_resize", **{"node-name": name, "size": size})
        except QMPError as error:
            raise Conflict(f"volume {volume.name!r} cannot be resized: {error}") from None
        if current is None:
            raise Conflict(
                f"volume {volume.name!r} is unplugged, but its disk could not be deleted: power the "
                "machine off and on, so that it has the volume again"
            )
        if 0 < size < current:
            raise Conflict(
                f"the disk of volume {volume.name!r} has {current} bytes and cannot become smaller"
            )

    async def _current_size(self, name: str) -> int | None:
        for node in await self._ask("query-named-block-nodes"):
            if node["node-name"] == name:
                return int(node["image"]["virtual-size"])
        return None

    def _must_be_pluggable(self) -> None:
        if self._machine != "pc":
            raise Conflict(
                f"disks of a running {self._machine} machine cannot be changed: power it off, or use a "
                "class with machine: pc"
            )

"""
Disks of QEMU machines: qcow2 files of a machine's own, over images that all may read.

An image is a file in the class's directory of images, named by the volume.  Its format is that
of its suffix and is never guessed: what a guest writes at the beginning of a raw disk
could make it look like another format, whose header names files of this host.  For the same reason
a qcow2 image that itself names other files is refused.

Source: QEMU, ``docs/tools/qemu-img.rst``, and its ``docs/system/security.rst``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api.status import BadRequest, NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.qemu.command_line import Disk, node_name

TOOL = "qemu-img"
FORMATS = {".qcow2": "qcow2", ".raw": "raw", ".img": "raw"}

_PATH = "/usr/local/bin:/usr/bin:/bin"
_TOOL_SECONDS = 20.0
_MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True)
class DiskOptions:
    """
    What disks a class has.

    :param images: the directory of images; empty for a class without.
    :param size_bytes: of a disk whose volume does not say it.
    :param limit_bytes: no disk is larger.
    """

    images: str = ""
    size_bytes: int = 10 << 30
    limit_bytes: int = 1 << 40


def check(options: DiskOptions, volume: pb.Volume) -> None:
    """
    :raises APIError: the class can never have such a disk.
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
        raise BadRequest(f"volume {volume.name!r}: a disk has at most {options.limit_bytes} bytes")


def _inside(directory: str, image: str) -> str:
    """
    The path of an image.

    :raises BadRequest: it leads out of the directory, or its format cannot be told.
    """
    root = os.path.realpath(directory)
    # No file's name has a NUL, and realpath(3) will not hear of one.
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
    """
    The disks of one machine.

    :param directory: the machine's own, made when it is missing.
    :param environment: of the processes that make disks.
    """

    def __init__(
        self, options: DiskOptions, directory: str, environment: Mapping[str, str], reactor: Any
    ) -> None:
        self._options = options
        self._directory = directory
        self._environment = environment
        self._reactor = reactor

    async def prepare(self, volumes: Sequence[pb.Volume]) -> list[Disk]:
        """
        Make what is missing, enlarge what is too small, remove what nobody wants any more.

        :return: the disks, in the order of their device names.
        :raises CannotStart: one cannot be had; the message says what to do.
        """
        try:
            self._remove_others({self._file(volume.name) for volume in volumes})
        except OSError as error:
            raise CannotStart(
                "DiskFailed", f"a disk that is not wanted any more cannot be removed: {error}"
            ) from None
        ordered = sorted(volumes, key=lambda one: (len(one.device), one.device))
        return [await self.make(volume) for volume in ordered]

    async def make(self, volume: pb.Volume) -> Disk:
        """
        One disk; one that is there already is enlarged when it is too small.

        :raises CannotStart: as :meth:`prepare`.
        """
        image = await self._image(volume)
        wanted = self._size(volume, image)
        path = self._file(volume.name)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            if not os.path.exists(path):
                await self._create(path, image, wanted)
            elif (await self._info(path, "qcow2"))["virtual-size"] < wanted:
                await self._tool("resize", "-f", "qcow2", path, str(wanted))
        except (OSError, ToolFailed) as error:
            raise CannotStart(
                "DiskFailed", f"the disk of volume {volume.name!r} cannot be made: {error}"
            ) from None
        base, format = (image.path, image.format) if image is not None else ("", "")
        return Disk(volume.name, path, base, format)

    def remove(self, name: str) -> None:
        """The disk of a volume that is no more."""
        try:
            os.unlink(self._file(name))
        except FileNotFoundError:
            pass

    def size(self, volume: pb.Volume) -> int:
        """What a volume asks for, in bytes."""
        return int(volume.local_disk.size_bytes) or self._options.size_bytes

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, f"{node_name(name)}.qcow2")

    def _remove_others(self, wanted: set[str]) -> None:
        try:
            names = os.listdir(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            path = os.path.join(self._directory, name)
            if path not in wanted:
                os.unlink(path)

    def _size(self, volume: pb.Volume, image: _Image | None) -> int:
        asked = int(volume.local_disk.size_bytes)
        if image is None:
            return self.size(volume)
        if asked and asked < image.size_bytes:
            raise CannotStart(
                "DiskTooSmall",
                f"volume {volume.name!r} has {asked} bytes, but its image "
                f"{volume.local_disk.image.image!r} has {image.size_bytes}: make the volume larger",
            )
        return asked or image.size_bytes

    async def _image(self, volume: pb.Volume) -> _Image | None:
        name = volume.local_disk.image.image
        if not name:
            return None
        path = _inside(self._options.images, name)
        format = FORMATS.get(os.path.splitext(path)[1])
        if format is None:
            raise CannotStart(
                "ImageUnusable",
                f"image {name!r} must end in {', '.join(FORMATS)}: a format is never guessed",
            )
        if not os.path.isfile(path):
            raise CannotStart(
                "ImageMissing",
                f"image {name!r} is not in {self._options.images}: put it there, nothing is "
                "pulled over the network",
            )
        return _Image(path, format, await self._image_size(name, path, format))

    async def _image_size(self, name: str, path: str, format: str) -> int:
        try:
            if format == "raw":
                return os.path.getsize(path)
            found = await self._info(path, format)
        except (OSError, ToolFailed) as error:
            raise CannotStart("ImageUnusable", f"image {name!r}: {error}") from None
        details = found.get("format-specific", {}).get("data", {})
        if "backing-filename" in found or "data-file" in details:
            raise CannotStart(
                "ImageUnusable",
                f"image {name!r} names other files of this host: make it whole "
                "(qemu-img convert -O qcow2)",
            )
        return int(found["virtual-size"])

    async def _create(self, path: str, image: _Image | None, size_bytes: int) -> None:
        words = ["create", "-q", "-f", "qcow2"]
        if image is not None:
            words += ["-F", image.format, "-b", image.path]
        try:
            await self._tool(*words, f"{path}.new", str(size_bytes))
            os.replace(f"{path}.new", path)
        except ToolFailed:
            try:
                os.unlink(f"{path}.new")
            except FileNotFoundError:
                pass
            raise

    async def _info(self, path: str, format: str) -> dict[str, Any]:
        """What is in a file; also in one that a machine uses (``-U``)."""
        said = await self._tool("info", "-U", "-f", format, "--output=json", path)
        try:
            found: dict[str, Any] = json.loads(said)
        except ValueError:
            raise ToolFailed(f"{TOOL} said nothing that can be read") from None
        return found

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
    """``qemu-img`` said no; the message is its last line."""


class _Tool(ProcessProtocol):
    """Runs ``qemu-img``; ``done`` fires with what it printed, and cancelling it ends it."""

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
        """Its output may still come."""

    def processEnded(self, reason: Failure) -> None:
        if self.done.called:
            return
        if getattr(reason.value, "exitCode", None) == 0:
            self.done.callback(bytes(self._printed[1]))
            return
        said = self._printed[2].decode("utf-8", "replace").strip().splitlines()
        self.done.errback(ToolFailed((said or [f"{TOOL} failed"])[-1].removeprefix(f"{TOOL}: ")))

"""
Tests for :mod:`twisted_exec.runtimes.qemu.disks`, with the real ``qemu-img``.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.api.status import BadRequest, NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import CannotStart
from twisted_exec.runtimes.qemu.disks import DiskOptions, Disks, check


def volume(name: str = "v", image: str = "", size: int = 0, device: str = "oda") -> pb.Volume:
    disk = pb.LocalDisk(size_bytes=size, image=pb.ImageSpec(image=image))
    return pb.Volume(name=name, device=device, local_disk=disk)


class CheckTests(SynchronousTestCase):
    """Tests for :func:`check`."""

    def refusal(self, options: DiskOptions, expected: pb.Volume, kind: type[Any]) -> str:
        with self.assertRaises(kind) as caught:
            check(options, expected)
        return str(caught.exception.message)

    def test_fine(self) -> None:
        """A disk of a size, one of none, one of an image that may yet come."""
        options = DiskOptions(images="/nonexistent")
        for expected in (volume(), volume(size=1 << 30), volume(image="debian.qcow2")):
            check(options, expected)

    def test_escapes(self) -> None:
        """An image is in its directory, whatever its name says."""
        images = self.mktemp()
        os.makedirs(images)
        os.symlink("/etc/passwd", os.path.join(images, "link.raw"))
        for name in ("../x.raw", "/etc/passwd", "a/../../x.raw", "link.raw", ".", "\0"):
            output = self.refusal(DiskOptions(images), volume(image=name), BadRequest)
            self.assertIn("not in the class's directory of images", output)
        check(DiskOptions(os.path.abspath(images)), volume(image="sub/x.raw"))
        check(DiskOptions(images), volume(image="nbd:host:1"))  # a file's name like any other

    def test_refusals(self) -> None:
        """Unsupported volumes are refused with the reason."""
        self.assertIn(
            "the class has no images",
            self.refusal(DiskOptions(), volume(image="x.raw"), NotImplementedByBackend),
        )
        connection = pb.Volume(name="c", connection=pb.VolumeConnection(driver="ceph"))
        self.assertIn(
            "is of driver 'ceph'", self.refusal(DiskOptions(), connection, NotImplementedByBackend)
        )
        for size in (-1, 2 << 40):
            self.refusal(DiskOptions(), volume(size=size), BadRequest)


class DisksTests(RuntimeCase):
    """Tests for :class:`Disks`."""

    starts = PROGRAMS
    skip = needs.qemu()

    def setUp(self) -> None:
        super().setUp()
        self.images = os.path.join(self.directory, "images")
        self.place = os.path.join(self.directory, "disks")
        os.mkdir(self.images)
        options = DiskOptions(self.images, size_bytes=3 << 20)
        self.disks = Disks(options, self.place, {}, reactor)

    def image(self, name: str, *words: str) -> str:
        path = os.path.join(self.images, name)
        format = "raw" if name.endswith((".img", ".raw")) else "qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", format, *words, path, "1M"], check=True)
        return path

    def info(self, path: str) -> dict[str, Any]:
        words = ["qemu-img", "info", "-f", "qcow2", "--output=json", path]
        result: dict[str, Any] = json.loads(subprocess.check_output(words))
        return result

    async def refusal(self, expected: pb.Volume) -> CannotStart:
        with self.assertRaises(CannotStart) as caught:
            await self.disks.prepare([expected])
        return caught.exception

    async def test_empty(self) -> None:
        """Without an image a disk is empty, of its size or the class's."""
        first, second = await self.disks.prepare([volume("a", size=1 << 20), volume("b")])
        self.assertEqual(self.info(first.path)["virtual-size"], 1 << 20)
        self.assertEqual(self.info(second.path)["virtual-size"], 3 << 20)
        self.assertNotIn("backing-filename", self.info(first.path))

    async def test_images(self) -> None:
        """With one it lies over the image, of the format that the suffix says, and may be larger."""
        for name, format in (("a.qcow2", "qcow2"), ("a.raw", "raw"), ("a.img", "raw")):
            path = self.image(name)
            (disk,) = await self.disks.prepare([volume(name.replace(".", "-"), name, 2 << 20)])
            self.assertEqual((disk.base, disk.base_format), (path, format))
            result = self.info(disk.path)
            self.assertEqual(result["backing-filename-format"], format)
            self.assertEqual(result["virtual-size"], 2 << 20)

    async def test_again(self) -> None:
        """Disks persist, grow on request, and are deleted with their volumes."""
        (disk,) = await self.disks.prepare([volume("a", size=1 << 20)])
        before = os.stat(disk.path).st_ino
        await self.disks.prepare([volume("a", size=2 << 20)])
        self.assertEqual(os.stat(disk.path).st_ino, before)
        self.assertEqual(self.info(disk.path)["virtual-size"], 2 << 20)
        await self.disks.prepare([volume("b", size=1 << 20)])
        self.assertFalse(os.path.exists(disk.path))
        await self.disks.prepare([])
        self.assertEqual(os.listdir(self.place), [])

    async def test_order(self) -> None:
        """Disks are in the order of their devices."""
        expected = [
            volume("z", device="odaa"),
            volume("b", device="odb"),
            volume("c", device="oda"),
        ]
        result = [disk.volume for disk in await self.disks.prepare(expected)]
        self.assertEqual(result, ["c", "b", "z"])

    async def test_missing(self) -> None:
        """A missing image is reported with the remedy."""
        error = await self.refusal(volume(image="debian.qcow2"))
        self.assertEqual(error.condition, "ImageMissing")
        self.assertIn(f"'debian.qcow2' is not in {self.images}: copy it there", error.message)

    async def test_no_format(self) -> None:
        """A suffix without a format is refused, whatever the file contains."""
        os.rename(self.image("a.qcow2"), os.path.join(self.images, "a.disk"))
        error = await self.refusal(volume(image="a.disk"))
        self.assertEqual(error.condition, "ImageUnusable")

    async def test_guest_wrote_a_header(self) -> None:
        """A raw image that begins like another format is raw all the same."""
        self.image("inner.qcow2")
        os.rename(os.path.join(self.images, "inner.qcow2"), os.path.join(self.images, "x.raw"))
        (disk,) = await self.disks.prepare([volume(image="x.raw")])
        self.assertEqual(disk.base_format, "raw")
        # The whole file is the disk, not the mebibyte that its beginning tells of.
        self.assertLess(self.info(disk.path)["virtual-size"], 1 << 20)

    async def test_names_files(self) -> None:
        """An image that names other files of the host is refused."""
        secret = self.image("secret.raw")
        self.image("chain.qcow2", "-F", "raw", "-b", secret)
        self.image("outside.qcow2", "-o", f"data_file={self.directory}/data,data_file_raw=on")
        for name in ("chain.qcow2", "outside.qcow2"):
            error = await self.refusal(volume(image=name))
            self.assertEqual(error.condition, "ImageUnusable")
            self.assertIn("refers to other files of this host", error.message)

    async def test_damaged(self) -> None:
        """A damaged qcow2 file is reported with the tool's message."""
        with open(os.path.join(self.images, "a.qcow2"), "w") as file:
            file.write("nothing")
        error = await self.refusal(volume(image="a.qcow2"))
        self.assertEqual(error.condition, "ImageUnusable")
        self.assertIn("Image is not in qcow2 format", error.message)

    async def test_too_small(self) -> None:
        """A disk is not smaller than its image."""
        self.image("a.raw")
        error = await self.refusal(volume(image="a.raw", size=1 << 19))
        self.assertEqual(error.condition, "DiskTooSmall")

    async def test_no_room(self) -> None:
        """A failed creation is reported and leaves nothing behind."""
        with open(self.place, "w"):
            pass  # a file where the directory of disks should be
        error = await self.refusal(volume())
        self.assertEqual(error.condition, "DiskFailed")
        self.assertIn("the disk of volume 'v' cannot be made", error.message)

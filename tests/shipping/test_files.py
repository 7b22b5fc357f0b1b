"""
Plain files: :mod:`twisted_exec.shipping.files`.
"""

from __future__ import annotations

import os
import resource
import stat
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from twisted_exec.shipping.files import FilesSink, file_name
from twisted_exec.shipping.interfaces import ILineSink, Labels, ShippedLine, SinkError

_VM = Labels("vm-1", "lab", "b35cbd52")


class FilesTests(TestCase):
    """One directory."""

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())

    def sink(self, **options: Any) -> FilesSink:
        return FilesSink("files", self.directory, reactor, **options)

    async def send(self, sink: FilesSink, *texts: bytes, labels: Labels = _VM) -> None:
        batch = sink.new_batch()
        for text in texts:
            batch.add(labels, ShippedLine(0, 1, 1_700_000_000_000_000_000, 0, text))
        await sink.send(batch)
        await sink.settle()

    def content(self, name: str = "lab_vm-1_b35cbd52.log") -> bytes:
        with open(os.path.join(self.directory, name), "rb") as file:
            return file.read()

    async def test_lines(self) -> None:
        """Each machine has a file, for its owner only, whose lines begin with their times."""
        sink = self.sink()
        verifyObject(ILineSink, sink)
        await self.send(sink, b"one")
        await self.send(sink, b"two")
        await self.send(sink, b"three", labels=Labels("vm-2"))
        time = b"2023-11-14T22:13:20.000000000Z"
        self.assertEqual(self.content(), time + b" one\n" + time + b" two\n")
        self.assertEqual(self.content("vm-2.log"), time + b" three\n")
        for path, mode in ((self.directory, 0o700), (f"{self.directory}/vm-2.log", 0o600)):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), mode)

    async def test_without_times(self) -> None:
        """Lines may be as the console printed them."""
        await self.send(self.sink(timestamps=False), b"one", b"", b"\xff")
        self.assertEqual(self.content(), b"one\n\n\xff\n")

    async def test_rotation(self) -> None:
        """A file does not exceed its size; the oldest is deleted, and no line is cut."""
        sink = self.sink(max_bytes=100, old_files=2, timestamps=False)
        for number in range(10):
            await self.send(sink, b"%d" % number * 39)
        names = sorted(os.listdir(self.directory))
        name = "lab_vm-1_b35cbd52.log"
        self.assertEqual(names, [name, f"{name}.1", f"{name}.2"])
        found = b"".join(self.content(each) for each in reversed(names))
        self.assertEqual(found, b"".join(b"%d" % number * 39 + b"\n" for number in range(4, 10)))

    async def test_logrotate(self) -> None:
        """Another program may rename the file at any time."""
        sink = self.sink(timestamps=False)
        await self.send(sink, b"one")
        os.rename(f"{self.directory}/{file_name(_VM)}", f"{self.directory}/old")
        await self.send(sink, b"two")
        self.assertEqual((self.content("old"), self.content()), (b"one\n", b"two\n"))

    async def test_full(self) -> None:
        """A line that does not fit leaves nothing behind, and the failure is reported."""
        sink = self.sink(timestamps=False)
        await self.send(sink, b"one")
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, old[1]))
        try:
            with self.assertRaises(SinkError) as caught:
                await self.send(sink, b"two" * 10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        self.assertEqual(caught.exception.kind, "disk")
        self.assertIn(f"{self.directory}/lab_vm-1_b35cbd52.log cannot be", str(caught.exception))
        self.assertEqual(self.content(), b"one\n")
        await self.send(sink, b"two")
        self.assertEqual(self.content(), b"one\ntwo\n")

    async def test_symlink(self) -> None:
        """Nothing is written through a symbolic link or into a FIFO."""
        os.mkdir(self.directory)
        os.symlink("/dev/full", f"{self.directory}/{file_name(_VM)}")
        os.mkfifo(f"{self.directory}/fifo.log")
        for labels in (_VM, Labels("fifo")):
            with self.assertRaises(SinkError):
                await self.send(self.sink(), b"one", labels=labels)

    def test_names(self) -> None:
        """Names from elsewhere cannot leave the directory."""
        cases = [
            (Labels("../../etc/passwd"), "%2F..%2Fetc%2Fpasswd.log"),
            (Labels(".hidden"), "hidden.log"),
            (Labels("a b\n", "ä"), "%C3%A4_a%20b%0A.log"),
            (Labels("x" * 400, "lab", "b35cbd52"), "_b35cbd52.log"),
            (Labels("vm", "lab", "../" * 100), "..%2F..log"),
        ]
        for labels, end in cases:
            name = file_name(labels)
            self.assertTrue(name.endswith(end), name)
            self.assertFalse("/" in name or name.startswith("."), name)
            self.assertLessEqual(len(name), 250)

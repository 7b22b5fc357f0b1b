"""
Tests for :mod:`twisted_exec.journal.files`, :mod:`~twisted_exec.journal.segments`,
:mod:`~twisted_exec.journal.records` and :mod:`~twisted_exec.journal.blocks`: what is left after every kind of accident.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import shutil
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from stat import S_ISREG
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.journal.support import ManualDisk, check, close_segments, contents, retry, seal_one, sync
from twisted_exec.journal.files import UNSYNCED_BYTES
from twisted_exec.journal.interfaces import EventKind, missing_bytes
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.records import FIRST_RECORD, HEADER_BYTES

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND


class Killed(BaseException):
    """``SIGKILL`` between two system calls, or within one."""


class FailingLayer:
    """
    The module ``os``, whose calls fail on purpose.

    :ivar calls: the number of calls so far.
    :ivar kill_at: the process dies at this call.
    :ivar error: the number of the error of each writing call; 0 for none.
    :ivar takes_changes: a full disk can be written in place.
    :ivar unreadable: the number of the error of each opening of a file; 0 for none.
    :ivar bad_at: reading at this position of a file fails.
    :ivar called: called before each call.
    """

    def __init__(self) -> None:
        self.calls, self.kill_at, self.error = 0, -1, 0
        self.unreadable, self.bad_at = 0, -1
        self.takes_changes = False
        self.called: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            self.called()
            if self.calls == self.kill_at:
                if name in ("write", "pwrite"):  # the kernel may have written a part
                    function(args[0], args[1][: len(args[1]) // 2], *args[2:])
                raise Killed
            writes = name in ("write", "pwrite", "fdatasync") or (
                name == "open" and args[1] & os.O_CREAT
            )
            if self.error == errno.EROFS:
                writes |= name in ("ftruncate", "unlink", "rename", "utime", "fsync")
                writes |= name == "open" and args[1] & os.O_ACCMODE != os.O_RDONLY
            elif self.takes_changes and name == "pwrite":
                writes = args[2] + len(args[1]) > os.fstat(args[0]).st_size
            if name == "open" and self.unreadable:
                raise OSError(self.unreadable, os.strerror(self.unreadable))
            if name == "pread" and args[2] == self.bad_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.error and writes:
                raise OSError(self.error, os.strerror(self.error))
            return function(*args, **options)

        return call


class Case(SynchronousTestCase):
    """Journals in a directory of the test."""

    now = 1_000 * SECOND

    def setUp(self) -> None:
        self.addCleanup(close_segments)
        self.path = self.mktemp()

    def journal(self, layer: Any = os, run: int = 1, cut: int = 0, path: str = "") -> Journal:
        self.disk = ManualDisk(path or self.path, layer, run, cut)
        return Journal(lambda: self.now, self.disk)

    def file(self, kind: str, path: str = "") -> str:
        """The path of the only segment of a kind."""
        (name,) = [each for each in os.listdir(path or self.path) if each.endswith(kind)]
        return os.path.join(path or self.path, name)


class KillTests(Case):
    """``kill -9`` loses nothing that anybody has seen."""

    def scenario(self, journal: Journal, disk: ManualDisk, seen: bytearray) -> None:
        """Everything that writes; ``seen`` gets what viewers were shown."""

        def show() -> None:
            seen.extend(journal.read(len(seen), 1 << 20))

        journal.watch(show)
        for number in range(4):
            journal.booted("Started")
            journal.append(b"line %d\n" % number)
            journal.append(b"x" * 70_000)
            journal.joined("s-1", "ada", "writer")
            if number % 2:
                sync(journal)
            journal.append(b"more\n")
            assert journal.open_files() is not None
            journal.open_files().roll()
            journal.append(b"after\n")
            for first in list(journal.open_files().pending):
                seal_one(journal.open_files(), first)
            journal.cursor("syslog").save(number)
            if number == 2:
                journal.open_files().drop(journal.start)
            if number == 3:
                journal.rest()
                journal.append(b"rested\n")

    def test_every_call(self) -> None:
        """At whichever system call the process dies: no byte is lost, and no offset is used twice."""
        layer = FailingLayer()
        self.scenario(self.journal(layer), self.disk, bytearray())
        total = layer.calls
        self.assertGreater(total, 100)
        for call in range(1, total + 1, soak.figure(self)):
            self.path = self.mktemp()
            layer, seen = FailingLayer(), bytearray()
            layer.kill_at = call
            with self.assertRaises(Killed):
                self.scenario(self.journal(layer), self.disk, seen)
            journal = self.journal(run=2)
            self.assertGreaterEqual(journal.end, len(seen), call)
            if journal.start < journal.end:
                self.assertEqual(
                    contents(journal)[: len(seen) - journal.start], seen[journal.start :]
                )
            kinds = {each.kind for each in journal.events(0, journal.end)}
            self.assertNotIn(EventKind.GAP, kinds)
            end = journal.end
            journal.append(b"next")
            self.assertEqual(journal.read(end, 4), b"next")
            numbers = [each.number for each in journal.boots()]
            self.assertEqual(
                numbers, list(range(1, 5))[numbers[0] - 1 : numbers[-1]] if numbers else []
            )

    def test_torn_record(self) -> None:
        """Of a record that was written in part, nothing is left."""
        journal = self.journal()
        journal.append(b"whole")
        size = os.path.getsize(self.file("open"))
        journal.append(b"torn")
        os.truncate(self.file("open"), size + 18)
        again = self.journal(run=2)
        self.assertEqual((contents(again), again.end), (b"whole", 5))
        self.assertEqual(os.path.getsize(self.file("open")), size)


class PowerCutTests(Case):
    """After a power cut, everything before the last ``fdatasync`` is there, and no offset repeats."""

    def test_every_length(self) -> None:
        """The segment may end at any byte."""
        journal = self.journal()
        for number in range(10):
            journal.append(b"line %d\n" % number)
        journal.booted("Started")
        sync(journal)
        synced = journal.end
        for number in range(10, 20):
            journal.append(b"line %d\n" % number)
        whole, end = contents(journal), journal.end
        synced_size = journal.open_files().open.synced[0]
        size = os.path.getsize(self.file("open"))
        for length in range(0, size, soak.figure(self)):
            path = self.mktemp()
            shutil.copytree(self.path, path)
            os.truncate(self.file("open", path), length)
            again = self.journal(run=2, cut=1, path=path)
            found = contents(again)
            self.assertTrue(whole.startswith(found), length)
            if length >= synced_size:
                self.assertGreaterEqual(len(found), synced, length)
            self.assertGreaterEqual(again.end, end)
            self.assertEqual(again.end % (128 << 20), 0)
            self.assertIsNone(missing_bytes(again, 0, again.end), length)
            at = again.end
            again.append(b"new")
            self.assertEqual(again.read(at, 3), b"new")
            self.assertEqual(contents(again), found + b"new")

    def test_jumps_once(self) -> None:
        """Later starts continue without another gap."""
        self.journal().append(b"one")
        second = self.journal(run=2, cut=1)
        second.append(b"two")
        third = self.journal(run=3, cut=1)
        self.assertEqual(third.end, second.end)
        self.assertEqual(contents(third), b"onetwo")

    def test_vanished(self) -> None:
        """The newest segment may be gone altogether."""
        journal = self.journal()
        journal.append(b"sealed")
        journal.open_files().roll()
        self.disk.seal_all()
        journal.append(b"gone")
        os.unlink(self.file("open"))
        again = self.journal(run=2, cut=1)
        self.assertEqual(contents(again), b"sealed")
        self.assertGreaterEqual(again.end, 6 + UNSYNCED_BYTES)


class SealTests(Case):
    """Sealed segments."""

    def test_empty(self) -> None:
        """A segment without output is sealed as well, with its events."""
        self.journal().booted("Started")
        journal = self.journal(run=2, cut=1)
        journal.append(b"abc")
        files = journal.open_files()
        assert files is not None
        seal_one(files, 0)
        self.assertEqual(sorted(os.listdir(self.path))[0], "0" * 16 + ".sealed")
        again = self.journal(run=3, cut=1)
        self.assertEqual((contents(again), again.boots()[0].offset), (b"abc", 0))

    def test_size(self) -> None:
        """Lines of a log take a third of their size or less."""
        journal = self.journal()
        for number in range(12_000):
            self.now += 36 * SECOND
            journal.append(
                b"[%8d.123456] systemd[1]: Started session %d of user root.\r\n" % (number, number)
            )
        size = journal.end
        journal.open_files().roll()
        self.disk.seal_all()
        self.assertLess(os.path.getsize(self.file("sealed")) * 3, size)


class DamageTests(Case):
    """Damage becomes a gap; every byte that is read is the byte that was printed."""

    def check(self, kind: str, whole: bytes, step: int) -> None:
        """Change one byte of the segment after the other, and read what is left."""
        source = self.file(kind)
        with open(source, "rb") as file:
            original = file.read()
        for position in range(0, len(original), step):
            path = self.mktemp()
            shutil.copytree(self.path, path)
            with open(os.path.join(path, os.path.basename(source)), "r+b") as file:
                file.seek(position)
                file.write(bytes([original[position] ^ 0x41]))
            journal = self.journal(run=2, path=path)
            offset, read = journal.start, 0
            while (offset := journal.next_available(offset)) < journal.end:
                data = journal.read(offset, 100_000)
                if data:
                    self.assertEqual(data, whole[offset : offset + len(data)], position)
                    offset, read = offset + len(data), read + len(data)
            missing = missing_bytes(journal, 0, journal.end)
            if missing is not None:
                self.assertEqual(read + missing, journal.end, position)
            journal.last_lines(5)
            journal.printed_since(0)
            journal.boots()
            journal.append(b"next")
            self.assertEqual(journal.read(journal.end - 4, 4), b"next")

    def output(self) -> tuple[Journal, bytes]:
        journal = self.journal()
        whole = b"".join(b"line %05d\n" % number for number in range(20_000))
        journal.booted("Started")
        for at in range(0, len(whole), 4096):
            self.now += SECOND
            journal.append(whole[at : at + 4096])
        return journal, whole

    def test_open(self) -> None:
        """In the open segment, output up to the next index record is lost."""
        journal, whole = self.output()
        sync(journal)
        self.check("open", whole, 4001)

    def test_open_head(self) -> None:
        """The header may be damaged as well, or a checkpoint."""
        journal = self.journal()
        journal.append(b"output\n")
        sync(journal)
        self.check("open", b"output\n", 1)

    def test_sealed(self) -> None:
        """In a sealed segment, a block is lost, or all of the segment if it is the index."""
        journal, whole = self.output()
        journal.open_files().roll()
        self.disk.seal_all()
        self.check("sealed", whole, 701)

    def test_foreign(self) -> None:
        """A segment of another journal is never read."""
        for kind in ("open", "sealed"):
            mine, other = self.mktemp(), self.mktemp()
            for path, text in ((mine, b"mine"), (other, b"other")):
                journal = self.journal(path=path)
                journal.append(text)
                if kind == "sealed":
                    journal.open_files().roll()
                    self.disk.seal_all()
            shutil.copy(self.file(kind, other), self.file(kind, mine))
            self.assertEqual(contents(self.journal(run=2, path=mine)), b"", kind)

    def test_epoch(self) -> None:
        """A lost or damaged epoch is that of the segments."""
        journal = self.journal()
        journal.append(b"abc")
        for damage in (b"", b"?" * 17):
            with open(os.path.join(self.path, "epoch"), "wb") as file:
                file.write(damage)
            again = self.journal(run=2)
            self.assertEqual((again.epoch, contents(again)), (journal.epoch, b"abc"))

    def test_times(self) -> None:
        """A block that does not compress is a gap as well if its times are damaged."""
        journal = self.journal()
        journal.append(random.Random(1).randbytes(65_536))
        journal.open_files().roll()
        self.disk.seal_all()
        journal.rest()
        with open(self.file("sealed"), "r+b") as file:
            # The block begins with its times: an offset of one byte, and a time.
            (byte,) = os.pread(file.fileno(), 1, HEADER_BYTES + 1)
            os.pwrite(file.fileno(), bytes([byte ^ 1]), HEADER_BYTES + 1)
        self.assertEqual(journal.read(0, 9), b"")
        self.assertEqual(journal.next_available(0), 65_536)


class UnreadableTests(Case):
    """Files that cannot be read at present, for example for want of descriptors."""

    def test_no_descriptors(self) -> None:
        """Readers wait, or get an error; the line gets none, and nothing counts as damaged."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.booted("Started")
        for _ in range(30):
            journal.append(b"y\n" * 32_768)
        self.disk.seal_all()
        journal.rest()
        layer.unreadable = errno.EMFILE
        self.assertEqual((journal.read(0, 9), journal.next_available(0)), (b"", 0))
        self.assertEqual((journal.read(1_900_000, 9), journal.next_available(5)), (b"", 5))
        for read in (
            partial(journal.last_lines, 3),
            partial(journal.line_start, 9),
            partial(journal.events, 0, 99),
            journal.boots,
            partial(journal.printed_since, 0),
            partial(journal.time_at, 0),
        ):
            self.assertEqual(self.assertRaises(OSError, read).errno, errno.EMFILE)
        journal.append(b"more\n")
        self.assertEqual(journal.read(journal.end - 5, 9), b"more\n")
        journal.booted("Started")
        layer.unreadable = 0
        self.assertEqual(journal.read(0, 4), b"y\ny\n")
        self.assertIsNotNone(retry(journal))
        self.assertEqual([each.number for each in journal.boots()], [1, 2])
        self.assertEqual(missing_bytes(journal, 0, journal.end), 0)

    def test_bad_sector(self) -> None:
        """An error of the disk is damage: the block is a gap."""
        layer = FailingLayer()
        journal = self.journal(layer)
        for _ in range(20):
            journal.append(b"y\n" * 32_768)
        self.disk.seal_all()
        journal.rest()
        journal.read(0, 1)
        layer.bad_at = 64
        journal.rest()
        self.assertEqual(journal.read(0, 9), b"")
        self.assertEqual(journal.next_available(0), 65_536)
        self.assertEqual(journal.read(65_536, 2), b"y\n")


class RefusedTests(Case):
    """Files that may be another user's are not used."""

    now = 1_800_000_000 * SECOND

    def check(self, journal: Journal, reason: str) -> None:
        """The line continues in memory, and the journal says that older output is missing."""
        journal.append(b"abc")
        start = journal.start
        self.assertEqual((journal.read(start, 9), self.disk.failures), (b"abc", [reason]))
        self.assertGreater(start, 1 << 40)
        (event,) = journal.events(0, journal.end)
        self.assertEqual(
            (event.kind, event.offset, event.data["bytes"]), (EventKind.GAP, start, None)
        )
        self.assertIsNone(retry(journal))

    def check_entry(self, replace: Callable[[str], object]) -> None:
        """
        An entry in place of the newest segment is left as it is, and hides that segment only.

        :param replace: called with the path of the segment.
        """
        journal = self.journal()
        journal.append(b"older\n")
        journal.open_files().roll()
        self.disk.seal_all()
        journal.append(b"lost\n")
        name, end = self.file("open"), journal.end
        os.rename(name, f"{self.path}.moved")
        replace(name)
        entry = os.lstat(name)
        again = self.journal(run=2)
        again.append(b"next\n")
        self.assertEqual((contents(again), self.disk.failures), (b"older\nnext\n", []))
        self.assertGreater(again.end, end)
        self.assertIsNone(missing_bytes(again, 0, again.end))
        self.assertEqual(os.lstat(name), entry)
        last = self.journal(run=3)
        self.assertEqual((contents(last), last.end), (b"older\nnext\n", again.end))

    def test_unreadable_for_a_while(self) -> None:
        """
        A journal whose directory could not be read continues on the disk later.

        The offsets in memory stay as they are, beyond those on the disk.
        """
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.booted("Started")
        journal.append(b"before\n")
        os.rename(self.path, f"{self.path}.moved")
        os.symlink("nowhere", self.path)
        again = self.journal(run=2)
        again.booted("Started")
        again.append(b"during\n")
        at = again.start
        os.unlink(self.path)
        os.rename(f"{self.path}.moved", self.path)
        self.assertEqual(retry(again), 0)
        again.append(b"after\n")
        for each in (again, self.journal(run=3)):
            self.assertEqual(contents(each), b"before\nduring\nafter\n")
            self.assertEqual(
                (each.start, each.next_available(7), each.epoch), (0, at, journal.epoch)
            )
            self.assertIsNone(missing_bytes(each, 0, each.end))
            self.assertEqual(
                [(boot.number, boot.offset) for boot in each.boots()], [(1, 0), (2, at)]
            )

    def test_directory(self) -> None:
        """The directory is not a symbolic link, and is private."""
        os.mkdir(f"{self.path}.d", 0o700)
        os.symlink(f"{self.path}.d", self.path)
        self.check(self.journal(), "it is not a directory")
        os.unlink(self.path)
        os.mkdir(self.path)
        os.chmod(self.path, 0o755)
        self.check(
            self.journal(), f"it is open to other users (mode 755); type: chmod 700 {self.path}"
        )

    def test_segment(self) -> None:
        """A segment is not a symbolic link, a directory, or a FIFO that nobody opens."""
        moved = os.path.abspath(f"{self.path}.moved")
        for replace in (partial(os.symlink, moved), os.mkdir, os.mkfifo):
            self.path = self.mktemp()
            self.check_entry(replace)

    def test_owner(self) -> None:
        """A segment belongs to our user."""
        if os.geteuid():
            return

        def replace(name: str) -> None:
            shutil.copy(f"{self.path}.moved", name)
            os.chown(name, 12345, -1)

        self.check_entry(replace)

    def test_newer(self) -> None:
        """A segment of a later release is left as it is."""
        self.journal().append(b"old")
        name = self.file("open")
        from zlib import crc32

        with open(name, "r+b") as file:
            head = bytearray(file.read(FIRST_RECORD))
            head[8] = 2
            head[56:60] = crc32(head[:56]).to_bytes(4, "little")
            file.seek(0)
            file.write(head)
        self.check(self.journal(run=2), "the segment has format 2; this release reads 1")


class MissingTests(Case):
    """The newest segment is gone or was cut: no offset is used twice, and a gap says it."""

    def written(self) -> Journal:
        """A journal with two sealed segments, a full one, and the newest."""
        journal = self.journal()
        for number in range(4):
            journal.append(b"%d" % number * 5000)
            if number < 3:
                journal.open_files().roll()
            if number < 2:
                self.disk.seal_all()
        sync(journal)
        return journal

    def check(self, whole: bytes, begin: int, end: int) -> None:
        """Bytes from ``begin`` on are missing; ``end`` was the end of the journal."""
        again = self.journal(run=2)
        epoch = again.epoch
        self.assertGreaterEqual(again.end, end)
        again.append(b"next")
        for each in (again, self.journal(run=3)):
            self.assertEqual((contents(each), each.epoch), (whole[:begin] + b"next", epoch))
            gaps = [event for event in each.events(0, each.end) if event.kind == EventKind.GAP]
            self.assertEqual([event.offset for event in gaps], [begin or each.start])
            self.assertEqual([event.data["bytes"] for event in gaps], [None])

    def test_deleted(self) -> None:
        """Any number of the newest segments may be gone, sealed or not."""
        names = sorted(name for name in self.kept() if name[:1] == "0")
        self.assertEqual(len(names), 4)
        for count in range(1, 5):
            self.path = self.mktemp()
            journal = self.written()
            whole = contents(journal)
            for name in names[-count:]:
                os.unlink(os.path.join(self.path, name))
            self.check(whole, 20_000 - count * 5000, journal.end)

    def kept(self) -> list[str]:
        self.written()
        return os.listdir(self.path)

    def test_deleted_without_mark(self) -> None:
        """Without the mark, a sealed segment says that another was behind it."""
        journal = self.written()
        whole = contents(journal)
        for first in (10_000, 15_000):
            os.unlink(journal.open_files().path(first, "open"))
        os.unlink(os.path.join(self.path, "newest"))
        self.check(whole, 10_000, journal.end)

    def test_cut(self) -> None:
        """The newest segment may have any length that is shorter than its checkpoint."""
        journal = self.written()
        whole = contents(journal)
        path = journal.open_files().path(15_000, "open")
        size = os.path.getsize(path)
        for length in (0, 1, 63, 64, 207, 208, size - 1):
            copy = self.mktemp()
            shutil.copytree(self.path, copy)
            os.truncate(os.path.join(copy, os.path.basename(path)), length)
            self.path, original = copy, self.path
            self.check(whole, 15_000, journal.end)
            self.path = original

    def test_all(self) -> None:
        """Without any segment and without a mark, the journal has another epoch."""
        journal = self.written()
        for name in os.listdir(self.path):
            if name != "epoch":
                os.unlink(os.path.join(self.path, name))
        again = self.journal(run=2)
        again.append(b"next")
        for each in (again, self.journal(run=3)):
            self.assertNotEqual(each.epoch, journal.epoch)
            self.assertEqual(each.epoch, again.epoch)
            self.assertIsNone(missing_bytes(each, 0, 4))
            self.assertEqual(contents(each), b"next")


class StrangeNamesTests(Case):
    """Files that are named as segments."""

    def test_copied(self) -> None:
        """A segment that was copied under another name hides nothing."""
        journal = self.journal()
        for _ in range(40):
            self.now += SECOND
            journal.append(b"y\n" * 32_768)
        self.disk.seal_all()
        journal.booted("Started")
        whole = contents(journal)
        for name in [each for each in os.listdir(self.path) if each[0] == "0"]:
            for offset in (100_000, 1_700_000, journal.end - 1000):
                kind = name.rpartition(".")[2]
                copy = self.mktemp()
                shutil.copytree(self.path, copy)
                shutil.copy(os.path.join(copy, name), os.path.join(copy, f"{offset:016x}.{kind}"))
                again = self.journal(run=2, path=copy)
                self.assertEqual((again.end, contents(again)), (journal.end, whole))
                self.assertEqual(len(list(again.events(0, again.end))), 1)
                self.assertEqual(again.printed_since(self.now), 39 << 16)
                self.assertEqual(again.last_lines(100), again.end - 200)

    def test_offsets(self) -> None:
        """A name with an offset that no journal reaches is not a segment."""
        journal = self.journal()
        journal.append(b"output")
        for name in ("f" * 16, "7" + "f" * 15, "3" + "f" * 15):
            for kind in ("open", "sealed"):
                shutil.copy(self.file("0.open"), os.path.join(self.path, f"{name}.{kind}"))
        again = self.journal(run=2)
        self.assertEqual((contents(again), again.end), (b"output", 6))
        again.append(b"more")
        self.assertEqual(contents(self.journal(run=3)), b"outputmore")


class HeaderTests(Case):
    """The header of the newest segment is damaged."""

    def check(self, damage: Callable[[bytearray], None], path: str) -> None:
        copy = self.mktemp()
        shutil.copytree(self.path, copy)
        name = os.path.join(copy, os.path.basename(path))
        with open(name, "r+b") as file:
            head = bytearray(file.read(64))
            damage(head)
            file.seek(0)
            file.write(head)
        journal = self.journal(run=2, path=copy)
        journal.append(b"next")
        self.assertIsNone(missing_bytes(journal, 0, journal.end))
        self.assertEqual(journal.boots()[0].number, 1)
        self.disk.seal_all()
        for each in (journal, self.journal(run=3, path=copy)):
            self.assertEqual(contents(each), b"before\nafter\nnext")

    def written(self) -> str:
        journal = self.journal()
        journal.booted("Started")
        journal.append(b"before\n")
        sync(journal)
        journal.append(b"after\n")
        return journal.open_files().path(0, "open")

    def test_bits(self) -> None:
        """With one bit changed, all of its output is there."""
        path = self.written()
        for bit in range(0, 60 * 8, soak.figure(self)):

            def damage(head: bytearray, bit: int = bit) -> None:
                head[bit // 8] ^= 1 << bit % 8

            self.check(damage, path)

    def test_overwritten(self) -> None:
        """As long as the CRC is there, so is the output."""

        def damage(head: bytearray) -> None:
            head[:56] = b"?" * 56

        self.check(damage, self.written())


class FullDiskTests(Case):
    """A disk that is full or read-only: the line continues, and writing resumes."""

    def check_start(self, error: int, output: list[bytes]) -> tuple[Journal, int]:
        """Start on a disk that fails; return the journal and the bytes that are lost."""
        before = self.journal()
        before.booted("Started")
        before.append(b"before\n" * 50_000)
        before.open_files().roll()
        self.disk.seal_all()
        before.append(b"newest\n")
        whole = contents(before)
        layer = FailingLayer()
        layer.error, layer.takes_changes = error, True
        journal = self.journal(layer, run=2)
        self.assertEqual((contents(journal), journal.epoch), (whole, before.epoch))
        self.assertEqual([each.number for each in journal.boots()], [1])
        begin = journal.end
        journal.booted("Started")
        for each in output:
            journal.append(each)
        self.assertTrue(self.disk.failures)
        self.assertIsNone(retry(journal))
        journal.rest()
        self.assertEqual(contents(journal)[: len(whole)], whole)
        layer.error = 0
        lost = retry(journal)
        journal.append(b"after\n")
        self.assertEqual([each.number for each in journal.boots()], [1, 2])
        again = self.journal(run=3)
        self.assertEqual(contents(again), contents(journal))
        self.assertEqual((again.end, again.epoch), (journal.end, before.epoch))
        printed = b"".join(output) + b"after\n"
        self.assertEqual(contents(again), whole + printed[lost or 0 :])
        self.assertEqual(again.end - begin, len(printed))
        self.assertEqual(lost, again.next_available(begin) - begin)
        return again, lost or 0

    def test_full_at_the_start(self) -> None:
        """A start on a full disk shows what was printed before; all is written later."""
        journal, lost = self.check_start(errno.ENOSPC, [b"during\n"])
        self.assertEqual((lost, missing_bytes(journal, 0, journal.end)), (0, 0))

    def test_full_for_long(self) -> None:
        """What memory had to drop becomes a gap with its size."""
        journal, lost = self.check_start(
            errno.ENOSPC, [b"%03d" % each * 300 for each in range(999)]
        )
        self.assertGreater(lost, 500_000)
        self.assertEqual(missing_bytes(journal, 0, journal.end), lost)

    def test_read_only_at_the_start(self) -> None:
        """The same with a read-only disk, after a gap of unknown size: nothing notes the offsets."""
        self.now = 1_800_000_000 * SECOND
        journal, lost = self.check_start(errno.EROFS, [b"%03d" % each * 300 for each in range(999)])
        self.assertGreater(lost, 500_000)
        self.assertIsNone(missing_bytes(journal, 0, journal.end))

    def test_no_offset_twice(self) -> None:
        """Runs that end while the disk fails leave their offsets to nobody."""
        self.now = 1_800_000_000 * SECOND
        for error in (errno.ENOSPC, errno.EROFS):
            self.path = self.mktemp()
            self.journal().append(b"first\n")
            used = [(0, 6)]
            for run in range(2, 6):
                self.now += 90 * SECOND
                layer = FailingLayer()
                layer.error, layer.takes_changes = error if run < 5 else 0, True
                journal = self.journal(layer, run=run)
                begin = journal.end
                journal.append(b"run %d" % run * 10_000)
                used.append((begin, journal.end))
            ordered = sorted(used)
            for (_, end), (begin, _) in itertools.pairwise(ordered):
                self.assertLessEqual(end, begin)

    def test_read_only_and_quiet(self) -> None:
        """A quiet journal is read from a disk that became read-only."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"line\n" * 20_000)
        journal.rest()
        layer.error = errno.EROFS
        self.assertEqual((journal.failure, len(contents(journal))), ("", 100_000))
        self.assertEqual(journal.last_lines(2), 99_990)
        self.assertRaises(OSError, journal.drop, 0)
        self.assertEqual(len(contents(journal)), 100_000)

    def test_unreadable_and_quiet(self) -> None:
        """A reader of a disk that is gone gets a gap at once."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"line\n" * 20_000)
        journal.rest()
        layer.unreadable = errno.EIO
        self.assertEqual((journal.read(0, 9), journal.next_available(0)), (b"", 100_000))
        self.assertEqual(missing_bytes(journal, 0, 100_000), 100_000)
        journal.rest()
        layer.unreadable = 0
        self.assertEqual(len(contents(journal)), 100_000)

    def test_short(self) -> None:
        """What memory still has is written later; nothing is missing."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"before\n")
        layer.error = errno.ENOSPC
        journal.booted("Started")
        journal.append(b"during\n")
        self.assertEqual(self.disk.failures, ["No space left on device"])
        self.assertIsNone(retry(journal))
        self.assertEqual(contents(journal), b"before\nduring\n")
        layer.error = 0
        self.assertEqual(retry(journal), 0)
        journal.append(b"after\n")
        again = self.journal(run=2)
        self.assertEqual(contents(again), b"before\nduring\nafter\n")
        self.assertEqual([each.offset for each in again.boots()], [7])

    def test_long(self) -> None:
        """What memory had to drop becomes a gap with its size."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"before\n")
        layer.error = errno.EROFS
        for number in range(1000):
            self.now += SECOND
            journal.append(b"%04d" % number * 250)
        self.assertEqual(journal.read(0, 99), b"before\n")
        at = journal.next_available(7)
        self.assertEqual(missing_bytes(journal, 0, at), at - 7)
        self.assertEqual(journal.last_lines(9), 0)
        layer.error = 0
        lost = retry(journal)
        self.assertEqual(lost, at - 7)
        self.assertGreater(journal.end - at, 190_000)
        again = self.journal(run=2)
        self.assertEqual((again.end, again.next_available(7)), (1_000_007, at))
        self.assertEqual(missing_bytes(again, 0, again.end), lost)
        self.assertEqual(contents(again)[-1000:], b"0999" * 250)
        self.assertEqual(again.time_at(again.end - 1), journal.time_at(again.end - 1))

    def test_killed(self) -> None:
        """A process that dies meanwhile leaves a gap; offsets that were shown do not repeat."""
        layer = FailingLayer()
        journal = self.journal(layer)
        journal.append(b"before\n")
        layer.error = errno.ENOSPC
        # In place, a full disk can be written.
        layer_pwrite, layer.error = os.pwrite, errno.ENOSPC
        journal.append(b"x" * 1000)
        journal.open_files().place.layer.error = 0
        journal._reserve()
        self.assertTrue(layer_pwrite)
        again = self.journal(run=2)
        self.assertGreaterEqual(again.end, journal.end)
        self.assertIsNone(missing_bytes(again, 0, again.end))

    def test_from_the_start(self) -> None:
        """A journal that could not be created appears on the disk later."""
        layer = FailingLayer()
        layer.error = errno.ENOSPC
        journal = self.journal(layer)
        journal.append(b"early\n")
        epoch = journal.epoch
        layer.error = 0
        self.assertEqual(retry(journal), 0)
        journal.append(b"late\n")
        again = self.journal(run=2)
        self.assertEqual((contents(again), again.epoch), (b"early\nlate\n", epoch))


_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.sampled_from([b"a", b"\n", b"bc\r\n", b"x" * 9_000, b"y\n" * 40_000]),
        ),
        st.tuples(
            st.just("wait"), st.sampled_from([MILLISECOND, SECOND, 86_400 * SECOND, -SECOND])
        ),
        st.tuples(st.sampled_from(["boot", "roll", "seal", "rest", "sync", "restart"]), st.none()),
    ),
    max_size=40,
)


class OracleTests(Case):
    """A journal on disk answers as one that has everything in memory."""

    @settings(
        max_examples=soak.figure_of("journal.test_files.OracleTests.test_oracle"), deadline=None
    )
    @given(_STEPS, st.data())
    def test_oracle(self, steps: list[tuple[str, Any]], data: st.DataObject) -> None:
        """Whatever is appended, sealed, restarted: bytes, lines, times and boots are right."""
        self.path, self.now = self.mktemp(), 1_000 * SECOND
        journal, run = self.journal(), 1
        self.assertEqual(journal.end, 0)
        last = self.now
        whole, times, boots = bytearray(), [], []
        for step, value in steps:
            if step == "append":
                journal.append(value)
                whole += value
                last = max(self.now, last)
                times += [last] * len(value)
            elif step == "wait":
                self.now += value
            elif step == "boot":
                journal.booted("Started")
                boots.append(len(whole))
                last = max(self.now, last)
            elif step == "roll":
                journal.open_files().roll()
            elif step == "seal":
                self.disk.seal_all()
            elif step == "rest":
                journal.rest()
            elif step == "sync":
                sync(journal)
            else:
                run += 1
                journal = self.journal(run=run)
        self.assertEqual((journal.start, journal.end), (0, len(whole)))
        self.assertEqual(contents(journal), whole)
        self.assertEqual([each.offset for each in journal.boots()], boots)
        self.assertEqual([each.number for each in journal.boots()], list(range(1, len(boots) + 1)))
        kinds = [each.kind for each in journal.events(0, journal.end)]
        self.assertEqual(kinds, [EventKind.BOOT] * len(boots))
        lines = whole.split(b"\n")
        ended = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        for count in (0, 1, 2, 7, 50_000, 10**12):
            last = b"".join(ended[-count:]) if count else b""
            self.assertEqual(journal.last_lines(count), len(whole) - len(last))
        end = data.draw(st.integers(0, len(whole)))
        before = re.findall(rb"[^\n]*\n|[^\n]+", whole[:end])
        for count in (1, 3):
            last = b"".join(before[-count:])
            self.assertEqual(journal.last_lines(count, end), end - len(last))
        if not whole:
            return
        for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
            self.assertEqual(journal.line_start(at), whole.rfind(b"\n", 0, at) + 1)
            # Output within 10 ms shares a time; in memory, output within one line and one second.
            self.assertLessEqual(abs(journal.time_at(at) - times[at]), SECOND)
        for moment in data.draw(st.lists(st.sampled_from(times), max_size=4)):
            for exact in (moment + 1, moment + 3600 * SECOND):
                first = bisect_left(times, exact)
                expected = whole.rfind(b"\n", 0, first) + 1 if first < len(times) else len(whole)
                found = journal.printed_since(exact)
                resolution = SECOND + 10 * MILLISECOND
                if found > expected:  # all that is missing was printed right after the moment
                    self.assertLessEqual(times[found - 1] - exact, resolution)
                elif found < expected:  # the line that is too many ended right before the moment
                    ended = whole.find(b"\n", found) % len(whole)
                    self.assertLessEqual(exact - times[ended], resolution)


_DAMAGE = st.sampled_from(["delete", "cut", "flip", "copy", "link", "fifo", "directory"])
_FAULTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([1, 700, 9_000, 60_000, 250_000])),
        st.tuples(st.just("disk"), st.sampled_from([0, errno.ENOSPC, errno.EROFS])),
        st.tuples(st.sampled_from(["roll", "seal", "rest", "sync", "retry", "restart"]), st.none()),
        st.tuples(_DAMAGE, st.tuples(st.integers(0, 9), st.integers(0, 1 << 20))),
    ),
    max_size=40,
)


class TortureTests(Case):
    """A disk that is full, read-only or damaged: each byte is read, or in a gap."""

    def damage(self, kind: str, number: int, position: int) -> bool:
        """
        Damage the segment that is the ``number``-th newest.

        :return: whether there was one.
        """
        names = sorted(os.listdir(self.path)) if os.path.isdir(self.path) else []
        names = [each for each in names if each.endswith((".open", ".sealed"))]
        sizes = {each: os.lstat(os.path.join(self.path, each)) for each in names}
        names = [each for each in names if S_ISREG(sizes[each].st_mode) and sizes[each].st_size]
        if not names:
            return False
        path = os.path.join(self.path, names[-1 - number % len(names)])
        size = os.path.getsize(path)
        if kind == "flip":
            with open(path, "r+b") as file:
                file.seek(position % size)
                byte = file.read(1)
                file.seek(position % size)
                file.write(bytes([byte[0] ^ 1 << number % 8]))
        elif kind == "cut":
            os.truncate(path, 0 if number % 2 else position % size)
        elif kind == "copy":
            first, _, suffix = os.path.basename(path).partition(".")
            copy = os.path.join(self.path, f"{int(first, 16) + position + 1:016x}.{suffix}")
            if not os.path.lexists(copy):
                shutil.copy(path, copy)
        else:
            os.unlink(path)
            make = {"link": partial(os.symlink, "/dev/zero"), "fifo": os.mkfifo}
            make |= {"directory": os.mkdir, "delete": lambda name: None}
            make[kind](path)
        return True

    @settings(
        max_examples=soak.figure_of("journal.test_files.TortureTests.test_every_byte"),
        deadline=None,
    )
    @given(_FAULTS)
    def test_every_byte(self, steps: list[tuple[str, Any]]) -> None:
        """Whatever happens to the disk, and whenever the process is killed."""
        self.path, self.now = self.mktemp(), 1_800_000_000 * SECOND
        layer = FailingLayer()
        layer.takes_changes = True
        journal, run = self.journal(layer), 1
        shown: dict[str, list[tuple[int, bytes]]] = {}
        unnoted = 0
        for number, (step, value) in enumerate([*steps, ("restart", None), ("append", 9)]):
            self.now += 61 * SECOND
            if step == "append":
                text = (b"%d " % number) * (value // 3 + 1)
                begin = journal.epoch, journal.end
                journal.append(text)
                begin = journal.epoch, journal.end - len(text)
                shown.setdefault(begin[0], []).append((begin[1], text))
                unnoted += bool(journal.failure) and layer.error == errno.EROFS
            elif step == "disk":
                layer.error = value
            elif step == "seal":
                if not layer.error and not journal.failure:
                    self.disk.seal_all()
            elif step == "sync":
                if not layer.error and not journal.failure and journal.open_files() is not None:
                    sync(journal)
            elif step == "roll":
                if not layer.error and not journal.failure and journal.open_files() is not None:
                    journal.open_files().roll()
            elif step == "rest":
                journal.rest()
            elif step == "retry":
                if journal.failure and (retry(journal) is not None or layer.error != errno.EROFS):
                    unnoted = 0
            else:
                if journal.failure and layer.error != errno.EROFS:
                    retry(journal)
                    unnoted = 0
                if unnoted:
                    continue  # nothing can note what viewers saw of a disk that became read-only
                if journal.open_files() is not None and not journal.failure:
                    error, layer.error = layer.error, 0
                    sync(journal)
                    layer.error = error
                if step != "restart":
                    journal.rest()
                    self.damage(step, *value)
                run += 1
                journal = self.journal(layer, run=run)
                check(self, journal, shown)
        check(self, journal, shown)

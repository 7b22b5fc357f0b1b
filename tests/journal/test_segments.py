"""
Tests for :mod:`twisted_exec.journal.segments`: what is left after kills, power cuts and damage.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from functools import partial

from tests import soak
from tests.journal.support import (
    SECOND,
    FailingLayer,
    JournalTestCase,
    Killed,
    ManualDisk,
    contents,
    retry,
    seal_one,
    sync,
)
from twisted_exec.journal.files import UNSYNCED_BYTES
from twisted_exec.journal.interfaces import EventKind, missing_bytes
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.records import HEADER_BYTES


class KillTests(JournalTestCase):
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


class PowerCutTests(JournalTestCase):
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


class SealTests(JournalTestCase):
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


class DamageTests(JournalTestCase):
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


class HeaderTests(JournalTestCase):
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


class UnreadableTests(JournalTestCase):
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

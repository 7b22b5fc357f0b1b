"""
Tests for :mod:`twisted_exec.journal.files`: files that are missing, damaged, or not ours.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from stat import S_ISREG
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import soak
from tests.journal.support import (
    SECOND,
    FailingLayer,
    JournalTestCase,
    check,
    contents,
    retry,
    sync,
)
from twisted_exec.journal.interfaces import EventKind, missing_bytes
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.records import FIRST_RECORD


class RefusedTests(JournalTestCase):
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


class MissingTests(JournalTestCase):
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


class StrangeNamesTests(JournalTestCase):
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


class TortureTests(JournalTestCase):
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

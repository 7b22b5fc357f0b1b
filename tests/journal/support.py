"""
Disks for journals without a store, and system calls that fail.
"""

from __future__ import annotations

import errno
import itertools
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.journal.files import JournalFiles, JournalPlace
from twisted_exec.journal.front import Unwritten
from twisted_exec.journal.interfaces import Boot, Event, EventKind
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.segments import seal
from twisted_exec.program.disk_thread import AtOnce, Unanswered

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
    :ivar takes_names: a full disk can have new files, which stay empty.
    :ivar unreadable: the number of the error of each opening of a file; 0 for none.
    :ivar bad_at: reading at this position of a file fails.
    :ivar called: called before each call.
    """

    def __init__(self) -> None:
        self.calls, self.kill_at, self.error = 0, -1, 0
        self.unreadable, self.bad_at = 0, -1
        self.takes_changes = self.takes_names = False
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
                name == "open" and args[1] & os.O_CREAT and not self.takes_names
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


def close_segments() -> None:
    """
    Close the segments that a test left open, as the end of a process does.

    Journals are dropped without being closed to simulate that a program was killed.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}").removesuffix(" (deleted)")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        if target.endswith((".open", ".sealed")):
            os.close(int(name))


class ManualDisk:
    """
    The place of one journal; the test seals and forces output to the disk when it wants.

    Output is written to the files at once.

    :ivar full: files with a segment that can be sealed.
    :ivar failures: the reasons that the journal reported.
    """

    def __init__(self, path: str, layer: Any = os, run: int = 1, cut: int = 0) -> None:
        self.place = JournalPlace(layer, path, run, cut)
        self.thread, self.most_bytes = AtOnce(), 192 << 10
        self.full: list[JournalFiles] = []
        self.files: JournalFiles | None = None
        self.failures: list[str] = []

    def open(self, journal: Journal) -> JournalFiles:
        self.files = JournalFiles(self.place, journal.now(), self.full.append, journal.memory_epoch)
        return self.files

    def left(self, files: JournalFiles) -> Sequence[Unwritten]:
        return ()

    def printed(self, epoch: bytes, offset: int, time_ns: int, data: bytes) -> None:
        """Nothing: it is written at once."""

    def happened(self, epoch: bytes, event: Event) -> None:
        """Nothing: it is written at once."""

    def behind(self, journal: Journal) -> None:
        write(journal)

    def settle(self, journal: Journal) -> bool:
        return write(journal) is not None

    def try_again(self, journal: Journal) -> None:
        retry(journal)

    def refused(self, journal: Journal) -> None:
        """Nothing: this disk always answers."""

    def changed(self, journal: Journal) -> None:
        """Nothing: the test calls :func:`sync`."""

    def failed(self, journal: Journal, reason: str) -> None:
        self.failures.append(reason)

    def seal_all(self) -> None:
        """Seal every full segment."""
        if self.files is not None:
            self.files.tell_full()
        for files in self.full:
            for first in list(files.pending):
                seal_one(files, first)
        self.full.clear()


class JournalTestCase(SynchronousTestCase):
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


class SlowDisk(ManualDisk, AtOnce):
    """
    A disk that does not answer some calls in time; readers are told later when it has.

    :param late: takes the number of a call, from 1, and returns whether it is late.
    """

    def __init__(self, path: str, clock: IReactorTime, late: Callable[[int], bool]) -> None:
        super().__init__(path)
        self.thread = self
        self._clock, self._late = clock, late
        self.calls = 0
        self.refusals = 0

    def call(self, function: Callable[[], Any], *, is_long: bool = False) -> Any:
        self.calls += not is_long
        if not is_long and self._late(self.calls):
            self.refusals += 1
            function()  # as the thread does, after its caller has gone on
            raise Unanswered
        return function()

    def refused(self, journal: Journal) -> None:
        self._clock.callLater(0.1, journal.became_readable)


class LateJournal(Journal):
    """
    A journal whose disk may not answer.

    :ivar is_late: it does not answer at present.
    :ivar lacks_boots: it does not answer at present, and has all boots; the output is in memory.
    """

    is_late = lacks_boots = False

    def boots(self) -> Sequence[Boot]:
        if self.lacks_boots:
            raise Unanswered
        return super().boots()

    def read(self, offset: int, limit: int) -> bytes:
        return b"" if self.is_late else super().read(offset, limit)

    def cursor(self, name: str) -> Any:
        if self.is_late:
            raise Unanswered
        return super().cursor(name)


def write(journal: Journal, *, is_again: bool = False) -> int | None:
    """
    Write what the files of a journal lack, as the store does.

    :param is_again: the disk has failed.
    :return: the number of lost bytes; ``None`` if that failed.
    """
    lost = 0
    while (batch := journal.next_batch(is_again=is_again)) is not None:
        is_again = False
        batch.run()
        journal.wrote(batch)
        if batch.error is not None:
            return None
        lost += batch.lost
    journal.still_behind()
    return lost


def retry(journal: Journal) -> int | None:
    """
    Write to a disk that has failed, as the store does.

    :return: the number of lost bytes; ``None`` if it still fails.
    """
    lost = write(journal, is_again=True) if journal.open_again() else None
    if lost is not None:
        journal.works_again()
    return lost


def seal_one(files: JournalFiles, first: int) -> None:
    """Seal one segment, as the store does in a thread."""
    place = files.place
    seal(place.layer, files.path(first, "open"), files.path(first, "sealed"), first, files.epoch)
    path = files.sealed(first)
    if path is not None:
        place.layer.unlink(path)


def sync(journal: Journal) -> None:
    """Force the output of a journal to the disk."""
    files = journal.open_files()
    assert files is not None
    checkpoint = files.open.checkpoint()
    files.open.sync(checkpoint)
    files.open.synchronized(checkpoint)
    journal.is_dirty = False


def contents(journal: Journal) -> bytes:
    """Everything that can be read, without gaps."""
    read = bytearray()
    offset = journal.start
    while (offset := journal.next_available(offset)) < journal.end:
        data = journal.read(offset, 100_000)
        if data:
            read += data
            offset += len(data)
    return bytes(read)


def check(
    case: SynchronousTestCase, journal: Journal, shown: dict[str, list[tuple[int, bytes]]]
) -> None:
    """Each byte that is read is what was shown at its offset; the others are in gaps."""
    printed = sorted(shown.get(journal.epoch, []))
    for (first, data), (second, _) in itertools.pairwise(printed):
        case.assertLessEqual(first + len(data), second, "an offset was used twice")
    offset = journal.start
    gaps = []
    while offset < journal.end:
        available = journal.next_available(offset)
        case.assertLessEqual(offset, available)
        if available > offset:
            gaps.append((offset, available))
            offset = available
            continue
        data = journal.read(offset, 1 << 20)
        case.assertTrue(data, "neither output nor a gap")
        at = bisect_right(printed, (offset, b"\xff" * 9)) - 1
        first, text = printed[at]
        data = data[: first + len(text) - offset]
        case.assertEqual(data, text[offset - first : offset - first + len(data)])
        case.assertTrue(data)
        offset += len(data)
    events = [each for each in journal.events(0, journal.end) if each.kind == EventKind.GAP]
    for begin, end in gaps:
        covered = begin
        for each in events:
            if each.offset <= covered:
                covered = max(covered, each.data["end"])
        case.assertGreaterEqual(covered, end, "output is missing without a notice")

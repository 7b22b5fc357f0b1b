"""
What readers see where a journal has lost output: :mod:`twisted_exec.console.output` and :mod:`twisted_exec.console.log`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk, SlowDisk, close_segments
from twisted_exec.api.logs import LogOptions
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.journal.journal import Journal
from twisted_exec.streaming.interfaces import Position
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import At

from .doubles import MemoryConsole, MemoryStream
from .support import log_reader
from .test_log import rest

NOTICE = b"[twisted-exec: output is missing here]"


class LostOutputTests(SynchronousTestCase):
    """A console whose runtime was killed while it read the terminal."""

    def setUp(self) -> None:
        self.addCleanup(close_segments)
        self.path = self.mktemp()
        self.journal = Journal(lambda: 1, ManualDisk(self.path))
        self.journal.append(b"one\r\n")

    def console(self, journal: Journal) -> tuple[SharedConsole, MemoryConsole]:
        line = MemoryConsole(paced=False)
        shared = SharedConsole(line, Clock(), journal=journal)
        shared.open()
        return shared, line

    def after_kill(self) -> Journal:
        """Return the journal in the next process."""
        journal = Journal(lambda: 1, ManualDisk(self.path, run=2))
        journal.lost()
        return journal

    def test_log(self) -> None:
        """A log has a notice there."""
        journal = self.after_kill()
        journal.append(b"two\r\n")
        reader = log_reader(journal, LogOptions())
        self.assertEqual(rest(reader), b"one\r\n" + NOTICE + b"\r\ntwo\r\n")

    def test_followed_log(self) -> None:
        """A log that is followed from where it has ended has the notice, too."""
        journal = self.after_kill()
        options = LogOptions(follow=True, from_offset=5, epoch=journal.epoch)
        reader = log_reader(journal, options)
        text = rest(reader)
        journal.append(b"two\r\n")
        self.assertEqual((text + rest(reader)).strip(), NOTICE + b"\r\ntwo")

    def test_new_viewer(self) -> None:
        """A new viewer has a notice between the output before and after it."""
        shared, line = self.console(self.after_kill())
        line.says(b"two")
        stream = MemoryStream(shared.viewer())
        before, notice, after = bytes(stream.got).partition(NOTICE)
        self.assertEqual((before.strip(), notice, after.strip()), (b"one", NOTICE, b"two"))

    def test_power_cut(self) -> None:
        """A new viewer gets the output from before a power cut, too, although the offsets have jumped."""
        shared, line = self.console(Journal(lambda: 1, ManualDisk(self.path, run=2, cut=1)))
        line.says(b"two")
        stream = MemoryStream(shared.viewer())
        before, notice, after = bytes(stream.got).partition(NOTICE)
        self.assertEqual((before.strip(), notice, after.strip()), (b"one", NOTICE, b"two"))

    def test_late_disk(self) -> None:
        """A viewer that begins while the disk is late learns of no size that nobody knows."""
        clock, is_late = Clock(), False
        disk = SlowDisk(self.path, clock, lambda call: is_late)
        disk.place = replace(disk.place, run=2, cut=1)
        shared, line = self.console(Journal(lambda: 1, disk))
        line.says(b"two")
        is_late = True
        stream = MarkStream()
        shared.viewer().attached(stream)
        self.assertEqual(stream.output, b"")
        is_late = False
        clock.advance(1)
        *_, last = [each for each in stream.sent if isinstance(each, At)]
        self.assertEqual(last, At(Position(shared.journal.epoch, 128 << 20), exact=False))
        self.assertEqual(stream.output, b"two")

    def test_resumed(self) -> None:
        """A user who had everything before learns that output is missing, of unknown size."""
        shared, line = self.console(self.after_kill())
        viewer, stream = shared.viewer(), MarkStream()
        viewer.attached(stream)
        viewer.away()
        stream = MarkStream(session="s2")
        viewer.resumed(stream, Position(shared.journal.epoch, 5))
        line.says(b"two")
        at = Position(shared.journal.epoch, 6)
        self.assertIn(At(at, exact=False, end=6), stream.sent)
        self.assertEqual(stream.output, b"two")

    def test_present(self) -> None:
        """A viewer that is attached meanwhile learns it at once."""
        shared, line = self.console(self.journal)
        stream = MemoryStream(shared.viewer())
        shared.journal.lost()
        line.says(b"two")
        self.assertEqual(bytes(stream.got).count(NOTICE), 1)
        self.assertTrue(stream.got.endswith(b"two"))

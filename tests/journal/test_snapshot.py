"""
Tests for :mod:`twisted_exec.journal.snapshot`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk, close_segments
from twisted_exec.journal.interfaces import Event
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.snapshot import NotAJournal, PrintedOutput, Snapshot

SECOND = 10**9
SEGMENT = 1 << 20


class SnapshotTests(SynchronousTestCase):
    """Tests for :class:`Snapshot`."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())
        self.now = 1_700_000_000 * SECOND
        self.disk = ManualDisk(self.path)
        self.journal = Journal(lambda: self.now, self.disk)
        self.addCleanup(close_segments)

    def entries(self) -> list[PrintedOutput | Event]:
        return list(Snapshot(self.path).entries())

    def output(self) -> bytes:
        return b"".join(each.data for each in self.entries() if isinstance(each, PrintedOutput))

    def kinds(self) -> list[str]:
        return [str(each.kind) for each in self.entries() if isinstance(each, Event)]

    def fill(self) -> bytes:
        """Print more than two segments, with events between."""
        printed = bytearray()
        for number in range(40):
            self.now += SECOND
            data = b"%06d " % number * 9000
            self.journal.append(data)
            printed += data
            if number % 10 == 5:
                self.journal.resized(24 + number, 80)
        return bytes(printed)

    def test_output_and_events(self) -> None:
        """Output has its time and offset, and events are at their place."""
        self.journal.booted("Started")
        self.journal.append(b"one")
        self.now += SECOND
        self.journal.resized(30, 100)
        self.journal.append(b"two")
        boot, one, size, two = self.entries()
        assert isinstance(boot, Event) and isinstance(size, Event)
        self.assertEqual((boot.kind, size.kind, size.offset), ("boot", "size", 3))
        self.assertEqual(one, PrintedOutput(0, self.now - SECOND, b"one"))
        self.assertEqual(two, PrintedOutput(3, self.now, b"two"))

    def test_sealed_segments(self) -> None:
        """Sealed segments have the same output and events as open ones."""
        printed = self.fill()
        before = self.output(), self.kinds()
        self.assertEqual(before, (printed, ["size"] * 4))
        self.disk.seal_all()
        self.assertTrue(any(name.endswith(".sealed") for name in os.listdir(self.path)))
        self.assertEqual((self.output(), self.kinds()), before)
        offsets = [each.offset for each in self.entries()]
        self.assertEqual(offsets, sorted(offsets))

    def test_nothing_is_changed(self) -> None:
        """A record that the runtime is just writing is left out, and left alone."""
        self.journal.append(b"whole")
        self.journal.append(b"torn")
        path = os.path.join(self.path, f"{0:016x}.open")
        with open(path, "rb+") as file:
            file.truncate(os.path.getsize(path) - 2)
        before = os.path.getsize(path)
        self.assertEqual(self.output(), b"whole")
        self.assertEqual(os.path.getsize(path), before)

    def test_damage(self) -> None:
        """Output that cannot be read is a gap, and the rest follows."""
        printed = self.fill()
        self.disk.seal_all()
        sealed = min(name for name in os.listdir(self.path) if name.endswith(".sealed"))
        with open(os.path.join(self.path, sealed), "rb+") as file:
            file.seek(200)
            file.write(b"damage")
        gap = next(each for each in self.entries() if isinstance(each, PrintedOutput))
        self.assertEqual(gap.offset, 65536)
        self.assertEqual(self.output(), printed[65536:])

    def test_strange_entries(self) -> None:
        """A damaged header costs nothing; what is not a file is a gap."""
        printed = self.fill()
        names = sorted(name for name in os.listdir(self.path) if name.endswith(".open"))
        with open(os.path.join(self.path, names[0]), "rb+") as file:
            file.seek(32)
            file.write(b"damage")
        self.assertEqual(self.output(), printed)
        last = os.path.join(self.path, names[-1])
        os.unlink(last)
        os.mkfifo(last)
        self.assertEqual(self.output(), printed[: int(names[-1].partition(".")[0], 16)])

    def test_removed_segment(self) -> None:
        """Offsets between two segments that nothing explains are a gap."""
        self.fill()
        names = sorted(name for name in os.listdir(self.path) if name.endswith(".open"))
        os.unlink(os.path.join(self.path, names[1]))
        gaps = [each for each in self.entries() if isinstance(each, Event) and each.kind == "gap"]
        first, last = (int(name.partition(".")[0], 16) for name in names[1:3])
        self.assertEqual(
            [(each.offset, dict(each.data)) for each in gaps],
            [(first, {"bytes": last - first, "end": last})],
        )

    def test_not_a_journal(self) -> None:
        """Another directory is refused, with the name of a right one."""
        for path in (os.path.dirname(self.path), self.path, __file__):
            error = self.assertRaises(NotAJournal, Snapshot, path)
            self.assertIn("consoles/UID", str(error))

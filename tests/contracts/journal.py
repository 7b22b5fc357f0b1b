"""
Contract of every :class:`~twisted_exec.journal.interfaces.IJournal`.
"""

from __future__ import annotations

from typing import Any

from zope.interface.verify import verifyObject

from tests import soak
from twisted_exec.journal.interfaces import Boot, EventKind, IJournal, missing_bytes

SECOND = 1_000_000_000


class JournalContract:
    """
    Mix into a ``TestCase`` that makes an empty journal.

    :ivar now: the time of the journal, in nanoseconds.
    """

    now = 1_000 * SECOND

    def make_journal(self: Any) -> IJournal:
        """An empty journal whose clock is :attr:`now`."""
        raise NotImplementedError

    def at(self: Any, seconds: float, journal: IJournal, data: bytes) -> None:
        """Append output at a time."""
        self.now = int(seconds * SECOND)
        journal.append(data)

    def whole(self: Any, journal: IJournal) -> bytes:
        """Everything that is retained, without gaps."""
        read = bytearray()
        offset = journal.start
        while (offset := journal.next_available(offset)) < journal.end:
            data = journal.read(offset, 1000)
            read += data
            offset += len(data)
        return bytes(read)

    def test_interface(self: Any) -> None:
        """The journal provides the interface; its epoch is a label of its own."""
        journal = self.make_journal()
        verifyObject(IJournal, journal)
        self.assertRegex(journal.epoch, "^[0-9a-f]{16}$")
        self.assertEqual((journal.start, journal.end, journal.closed), (0, 0, False))
        self.assertEqual((journal.time_at(0), journal.printed_since(0)), (0, 0))
        self.assertEqual((journal.boots(), list(journal.events(0, 0))), ((), []))

    def test_read(self: Any) -> None:
        """The same bytes come from every offset, also of a large output."""
        journal = self.make_journal()
        output = b"".join(b"line %d\r\n" % number for number in range(20_000))
        for at in range(0, len(output), 7_001):
            journal.append(output[at : at + 7_001])
        self.assertEqual((journal.start, journal.end), (0, len(output)))
        self.assertEqual(self.whole(journal), output)
        for offset in (0, 1, 65_535, 65_536, len(output) - 1):
            data = journal.read(offset, 100)
            self.assertTrue(data)
            self.assertTrue(output[offset:].startswith(data))
        self.assertEqual(journal.read(len(output), 1), b"")
        for offset in (-1, len(output) + 1):
            with self.assertRaises(ValueError):
                journal.read(offset, 1)

    def test_next_available(self: Any) -> None:
        """Offsets outside of the journal lead to its ends."""
        journal = self.make_journal()
        journal.append(b"abc")
        found = [journal.next_available(offset) for offset in (-5, 0, 2, 3, 99)]
        self.assertEqual(found, [0, 0, 2, 3, 3])

    def test_watchers(self: Any) -> None:
        """Watchers are called after each output and at the end, until they unsubscribe."""
        journal, calls = self.make_journal(), []

        def changed() -> None:
            calls.append((journal.end, journal.closed))

        journal.watch(changed)
        journal.append(b"abc")
        journal.close()
        journal.close()
        journal.unwatch(changed)
        journal.unwatch(changed)
        self.assertEqual(calls, [(3, False), (3, True)])
        journal.append(b"of a dying process")
        self.assertEqual(journal.end, 3)

    def test_lines(self: Any) -> None:
        """Lines are counted from the end; text after the last newline is a line."""
        journal = self.make_journal()
        lines = soak.figure(self)
        for number in range(lines):
            journal.append(b"%05d\n" % number)
        journal.append(b"login: ")
        end = 6 * lines
        self.assertEqual(journal.last_lines(0), journal.end)
        self.assertEqual(journal.last_lines(1), end)
        self.assertEqual(journal.last_lines(3), end - 12)
        self.assertEqual(journal.last_lines(lines - 9_999), 60_000)
        self.assertEqual(journal.last_lines(10**15), 0)
        ends = [journal.last_lines(2, end) for end in (0, 6, 7, 12, 60_000, journal.end)]
        self.assertEqual(ends, [0, 0, 0, 0, 59_988, end - 6])
        starts = [journal.line_start(offset) for offset in (0, 5, 6, 7, 65_540, journal.end)]
        self.assertEqual(starts, [0, 0, 6, 6, 65_538, end])

    def test_times(self: Any) -> None:
        """Lines have the time of their first byte; a line counts as printed while any of it was."""
        journal = self.make_journal()
        self.at(10, journal, b"one\r\ntwo\r\n")
        self.at(20, journal, b"th")
        self.at(50, journal, b"ree\r\n")
        times = [journal.time_at(offset) // SECOND for offset in (0, 5, 10)]
        self.assertEqual(times, [10, 10, 20])
        since = [journal.printed_since(each * SECOND) for each in (0, 10, 15, 25, 51)]
        self.assertEqual(since, [0, 0, 10, 10, journal.end])

    def test_clock_set_back(self: Any) -> None:
        """Times never decrease, however the clock changes."""
        journal = self.make_journal()
        self.at(10**9, journal, b"one\n")
        self.at(1, journal, b"two\n")
        journal.booted("Started")
        self.at(10**9 + 60, journal, b"three\n")
        times = [journal.time_at(offset) // SECOND for offset in (0, 4, 8)]
        self.assertEqual(times, [10**9, 10**9, 10**9 + 60])
        self.assertEqual(journal.boots()[0].time_ns, 10**9 * SECOND)

    def test_boots(self: Any) -> None:
        """Boots are numbered, and no read contains bytes of two."""
        journal = self.make_journal()
        for number in (1, 2, 3):
            self.now = number * SECOND
            journal.booted("Started")
            journal.append(b"boot %d\n" % number)
        expected = tuple(Boot(number, 7 * (number - 1), number * SECOND) for number in (1, 2, 3))
        self.assertEqual(tuple(journal.boots()), expected)
        self.assertEqual(journal.read(3, 100), b"t 1\n")
        self.assertEqual(journal.read(7, 100), b"boot 2\n")
        self.assertEqual(self.whole(journal), b"boot 1\nboot 2\nboot 3\n")

    def test_boot_resets_terminal(self: Any) -> None:
        """A boot leaves the screen of the editor that was open, and says how many bytes do this."""
        journal = self.make_journal()
        journal.booted("Started")
        journal.append(b"$ vi\r\n\x1b[?1049h\x1b[?25l~")
        undo = b"\x1b[?25h\x1b[?1049l"
        for _ in range(2):  # the second boot has nothing to reset
            journal.booted("Reset")
        journal.append(b"boot\r\n")
        _, second, third = journal.boots()
        self.assertEqual(journal.read(second.offset, 100), undo)
        self.assertEqual(journal.read(third.offset, 100), b"boot\r\n")
        events = journal.events(0, journal.end, EventKind.BOOT)
        resets = [each.data.get("reset_bytes") for each in events]
        self.assertEqual(resets, [None, len(undo), None])

    def test_events_of_a_kind(self: Any) -> None:
        """A reader may ask for the events of one kind."""
        journal = self.make_journal()
        for number in range(3):
            journal.resized(24 + number, 80)
            journal.joined(f"s-{number}", "ada", "observer")
            journal.missed()
            journal.append(b"abc")
        for kind in EventKind:
            events = [each for each in journal.events(0, 6) if each.kind == kind]
            self.assertEqual(list(journal.events(0, 6, kind)), events)
            self.assertEqual(bool(events), kind in (EventKind.SIZE, EventKind.JOIN, EventKind.GAP))

    def test_events(self: Any) -> None:
        """Events are between the bytes before and after which they happened."""
        journal = self.make_journal()
        journal.booted("Started")
        journal.append(b"abc")
        journal.resized(24, 80)
        journal.joined("s-1", "ada", "observer")
        journal.append(b"def")
        journal.role_changed("s-1", "ada", "writer")
        journal.left("s-1", "ada")
        events = [(each.offset, each.kind, dict(each.data)) for each in journal.events(0, 6)]
        expected = [
            (0, EventKind.BOOT, {"number": 1, "reason": "Started"}),
            (3, EventKind.SIZE, {"rows": 24, "columns": 80}),
            (3, EventKind.JOIN, {"session": "s-1", "user": "ada", "role": "observer"}),
            (6, EventKind.ROLE, {"session": "s-1", "user": "ada", "role": "writer"}),
            (6, EventKind.LEAVE, {"session": "s-1", "user": "ada"}),
        ]
        self.assertEqual(events, expected)
        kinds = [each.kind for each in journal.events(1, 5)]
        self.assertEqual(kinds, [EventKind.SIZE, EventKind.JOIN])

    def test_missed(self: Any) -> None:
        """Output that was never seen leaves a mark, and no offset."""
        journal = self.make_journal()
        journal.append(b"one")
        journal.missed()
        journal.append(b"two")
        self.assertEqual(self.whole(journal), b"onetwo")
        gaps = [(each.offset, dict(each.data)) for each in journal.events(0, 6)]
        self.assertEqual(gaps, [(3, {"bytes": None, "end": 3})])
        self.assertIsNone(missing_bytes(journal, 0, 6))
        self.assertEqual(missing_bytes(journal, 4, 6), 0)

    def test_lost(self: Any) -> None:
        """Each reader sees that output was lost; twice at one place is once."""
        journal = self.make_journal()
        journal.append(b"one")
        journal.lost()
        journal.lost()
        behind = journal.end
        journal.append(b"two")
        self.assertIn(behind, (3, 4))
        self.assertEqual(journal.read(0, 100)[:3], b"one")
        self.assertEqual(journal.read(behind, 100), b"two")
        gaps = [(each.offset, dict(each.data)) for each in journal.events(0, journal.end)]
        self.assertEqual(gaps, [(3, {"bytes": None, "end": behind})])
        self.assertIsNone(missing_bytes(journal, 3, behind))
        self.assertEqual(missing_bytes(journal, behind + 1, journal.end), 0)
        journal.lost()
        self.assertEqual(len(list(journal.events(0, journal.end))), 2)

    def test_lost_at_the_beginning(self: Any) -> None:
        """Lost output before all other output is a mark there."""
        journal = self.make_journal()
        journal.lost()
        journal.append(b"one")
        self.assertEqual(self.whole(journal), b"one")
        self.assertIsNone(missing_bytes(journal, 0, 0))

    def test_cursors(self: Any) -> None:
        """Each reader has its own cursor; a name is not a path."""
        journal = self.make_journal()
        cursor = journal.cursor("syslog-1")
        self.assertIsNone(cursor.load())
        cursor.save(17)
        self.assertEqual(journal.cursor("syslog-1").load(), 17)
        cursor.save(5)
        self.assertEqual(journal.cursor("syslog-1").load(), 5)
        self.assertIsNone(journal.cursor("otlp").load())
        for name in ("", "../x", "A", "a" * 64, "a\n"):
            with self.assertRaises(ValueError):
                journal.cursor(name)

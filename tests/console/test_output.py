"""
Tests for :mod:`twisted_exec.console.output`: what the user has is what the machine printed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from twisted_exec.console.output import HarmlessOutput, ViewerOutput
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.console.viewer import Viewer
from twisted_exec.journal.interfaces import IReadableJournal
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.tail import Tail
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Ending, Position, Role, TerminalSize
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.escape_sequences import QueryFilter
from twisted_exec.wire.marks import At, Notice
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

from ..journal.support import ManualDisk, close_segments
from .doubles import MemoryConsole, MemoryStream, OpenConsoleCase

KIB = 1 << 10
SEGMENT_BYTES, MOST_BYTES = KIB // 2, 6 * KIB
LIMITS = ConsoleLimits(scrollback_bytes=4 * KIB, lag_bytes=24 * KIB, pace_bytes=8 * KIB)
PRINTED = random.Random(0).randbytes(1 << 20)
_PIECES = [
    *(
        b"\x1b[6n",
        b"\x1b[c",
        b"\x1b]11;?\x07",
        b"\x1bP$qm\x1b\\",
        b"\x1bZ",
        b"\x05",
        b"\xc2\x9b18t",
    ),
    *(b"\x1b[31m", b"\x1b]0;title\x07", b"6n;?", "Gr\u00fc\u00dfe \u265b".encode(), b"text\r\n"),
]
ASKED = b"".join(random.Random(0).choices(_PIECES, k=1 << 18))[: 1 << 20]
HARMLESS = QueryFilter().feed(ASKED)
DELETED = Ending(MACHINE_DELETED)


class Terminal:
    """
    The user's end of one session; it gets any prefix of what was sent.

    :ivar offset: of the next byte.
    :ivar missing: the gaps, as begin and end.
    """

    def __init__(
        self, case: SynchronousTestCase, stream: MarkStream, printed: bytes, history: bytes
    ) -> None:
        self._printed, self._history = printed, history
        self._live_from = 0
        self.missing: list[tuple[int, int]] = []
        self._case = case
        self.connect(stream)
        (first,) = stream.sent
        assert isinstance(first, At)
        self.offset = first.position.offset

    def connect(self, stream: MarkStream) -> None:
        """Read another stream; what was on the way is lost."""
        self._stream = stream
        self._marked = False

    def read(self, limit: int) -> None:
        """Read so many bytes, and the marks before them and between them."""
        sent = self._stream.sent
        while sent:
            item = sent[0]
            if isinstance(item, bytes):
                if not limit:
                    return
                self._case.assertTrue(self._marked, "output before the position")
                part, rest = item[:limit], item[limit:]
                self._compare(part)
                self.offset += len(part)
                limit -= len(part)
                if rest:
                    sent[0] = rest
                    return
            elif isinstance(item, At):
                self._move(item.position.offset)
                self._live_from = self._live_from if item.end is None else item.end
            del sent[0]

    def _compare(self, part: bytes) -> None:
        """Output from before the connection has no queries, and everything else is as it was printed."""
        first, last = self.offset, self.offset + len(part)
        live_from = min(max(first, self._live_from), last)
        expected = self._history[first:live_from] + self._printed[live_from:last]
        self._case.assertTrue(part == expected, f"other bytes at {first}")

    def _move(self, offset: int) -> None:
        self._marked = True
        self._case.assertGreaterEqual(offset, self.offset, "the same output again")
        if offset > self.offset:
            self.missing.append((self.offset, offset))
            self.offset = offset


class World:
    """
    One console, one user whose connections are lost, and perhaps another user, who reads everything.

    :ivar complete: nothing has happened that may make the user miss output.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        journal: IReadableJournal,
        *,
        paced: bool,
        has_company: bool,
        options: StreamOptions | None = None,
    ) -> None:
        self.case, self.journal = case, journal
        self.options = options
        self.printed = PRINTED if options is None else ASKED
        self.on_disk = isinstance(journal, Journal) and journal.open_files() is not None
        self.line = MemoryConsole(paced=paced)
        self.clock = Clock()
        self.shared = SharedConsole(self.line, self.clock, journal=journal, limits=LIMITS)
        self.shared.open()
        self.viewer = self.shared.viewer()
        self.stream = MarkStream(capacity=KIB, options=options)
        self.viewer.attached(self.stream)
        if has_company:
            MemoryStream(self.shared.viewer(), user="bob")
        history = PRINTED if options is None else HARMLESS
        self.terminal = Terminal(case, self.stream, self.printed, history)
        self.terminal.read(0)
        self.is_away = False
        self.is_catching_up = False
        self.complete = True
        self.ended = False

    def prints(self, size: int) -> None:
        """The machine prints, unless its line waits."""
        end = self.journal.end
        if not size or self.ended or (self.line.paced and self.line.transport.paused):
            return
        self.line.says(self.printed[end : end + size])
        retained = self.journal.end - self.journal.start
        if not self.on_disk:
            self.case.assertLessEqual(retained, LIMITS.lag_bytes + 2 * MOST_BYTES)
        if self.is_away or self.is_catching_up:
            self._check_reach()
        elif self.viewer.output.skipped or self._is_freed(self.viewer.output.offset):
            self.complete = False  # a slow reader
        self._follow()

    def _check_reach(self) -> None:
        """Note whether a journal in memory may have freed what the user lacks."""
        if self._is_freed(self.terminal.offset):
            self.complete = False

    def _is_freed(self, offset: int) -> bool:
        """Return whether a journal in memory may have freed the output from an offset on."""
        return self.journal.end - offset > LIMITS.lag_bytes and not self.on_disk

    def _follow(self) -> None:
        output = self.viewer.output
        if not self.is_away and output.offset == self.journal.end and not output.skipped:
            self.is_catching_up = False

    def floods(self, size: int) -> None:
        """The machine prints much."""
        for _ in range(6):
            self.prints(size)

    def notices(self, number: int) -> None:
        self.line.line.notice_received(b"\r\n[twisted-exec: %d]\r\n" % number)

    def reads(self, size: int) -> None:
        """The user reads, and the stream takes as much."""
        self.terminal.read(size)
        self.stream.take(size)
        self._follow()

    def loses(self, received: int) -> None:
        """The connection is lost; so much of what was on the way arrives."""
        self.terminal.read(received)
        self._lose()
        if not self.is_away:
            self.is_away = True
            self.viewer.away()

    def _lose(self) -> None:
        on_the_way = sum(len(each) for each in self.stream.sent if isinstance(each, bytes))
        if on_the_way > LIMITS.scrollback_bytes and not self.on_disk:
            self.complete = False
        self._check_reach()
        self.stream.sent.clear()

    def resumes(self, capacity: int) -> None:
        """The user is back, perhaps before the loss was noticed."""
        self._lose()
        position = Position(self.journal.epoch, self.terminal.offset)
        self.viewer.check(position)
        self.stream = MarkStream(capacity=capacity, options=self.options)
        self.terminal.connect(self.stream)
        self.is_away, self.is_catching_up = False, True
        self.viewer.resumed(self.stream, position)
        self.terminal.read(0)
        self._follow()

    def ends(self) -> None:
        self.ended = True
        self.shared.end(DELETED)

    def check(self) -> None:
        """Let the user read everything, and compare."""
        if self.is_away:
            self.resumes(1 << 30)
        self.stream.take()
        self.clock.pump([0] * 99)  # old output is written in turns
        self.terminal.read(1 << 30)
        self.case.assertEqual(self.terminal.offset, self.journal.end)
        self.case.assertEqual(self.stream.ending, DELETED if self.ended else None)
        if self.complete:
            self.case.assertEqual(self.terminal.missing, [])


Step = tuple[Callable[[World, int], None], int]


def steps() -> st.SearchStrategy[list[Step]]:
    """Draw what happens, in any order."""
    size = st.sampled_from([0, 1, 100, KIB, 3 * KIB, MOST_BYTES])
    act = st.sampled_from(
        [
            World.prints,
            World.prints,
            World.floods,
            World.reads,
            World.reads,
            World.loses,
            World.resumes,
            World.notices,
        ]
    )
    return st.lists(st.tuples(act, size), min_size=10, max_size=60)


class ExactnessTests(SynchronousTestCase):
    """Any order of output, losses and resumes."""

    @settings(max_examples=soak.figure_of("console.test_output.ExactnessTests.test_memory"))
    @given(steps(), steps(), st.booleans(), st.booleans())
    def test_memory(
        self, before: list[Step], after: list[Step], paced: bool, has_company: bool
    ) -> None:
        """Within its limits a journal in memory misses nothing, and each gap has its exact size."""
        journal = Journal()
        journal._tail = Tail(segment_bytes=SEGMENT_BYTES)
        play(World(self, journal, paced=paced, has_company=has_company), before, after)

    @settings(max_examples=soak.figure_of("console.test_output.ExactnessTests.test_disk"))
    @given(steps(), steps(), st.booleans(), st.booleans())
    def test_disk(
        self, before: list[Step], after: list[Step], paced: bool, has_company: bool
    ) -> None:
        """A journal on disk misses nothing while a user is away, or reads what came meanwhile."""
        try:
            journal = Journal(disk=ManualDisk(self.mktemp()))
            play(World(self, journal, paced=paced, has_company=has_company), before, after)
        finally:
            close_segments()

    @settings(max_examples=soak.figure_of("console.test_output.ExactnessTests.test_terminal"))
    @given(steps(), steps(), st.booleans(), st.booleans())
    def test_terminal(
        self, before: list[Step], after: list[Step], paced: bool, has_company: bool
    ) -> None:
        """A terminal misses nothing either, and what was printed before a connection has no queries."""
        try:
            journal = Journal(disk=ManualDisk(self.mktemp()))
            world = World(self, journal, paced=paced, has_company=has_company, options=CONSOLE)
            play(world, before, after)
        finally:
            close_segments()


def play(world: World, before: list[Step], after: list[Step]) -> None:
    """Take all steps, perhaps with the end of the console between them, and check."""
    for act, size in before:
        act(world, size)
    if len(after) % 2:
        world.ends()
    for act, size in after:
        act(world, size)
    world.check()


class HistoryTests(OpenConsoleCase):
    """What a machine printed before, and the terminals of users who come later."""

    def join(self, options: StreamOptions = CONSOLE, **more: Any) -> MarkStream:
        """Open a session."""
        stream = MarkStream(options=options, **more)
        self.shared.viewer().attached(stream)
        return stream

    def resume(self, offset: int) -> MarkStream:
        """Come back with the terminal that has everything before an offset."""
        viewer, stream = self.shared.viewer(), MarkStream(options=CONSOLE)
        viewer.attached(stream)
        viewer.away()
        stream = MarkStream(options=CONSOLE)
        viewer.resumed(stream, Position(self.shared.journal.epoch, offset))
        return stream

    def test_history(self) -> None:
        """No client at a terminal gets a query that was printed before, with or without marks."""
        self.console.says(b"a\x1b[6nb\x1b[c\x05")
        harmless = b"a\x1b[6_b\x1b[_\x00"
        self.assertEqual(self.join().output, harmless)
        stream = MemoryStream(self.shared.viewer(), options=CONSOLE)
        self.assertEqual(stream.since(), harmless)

    def test_scroll_region(self) -> None:
        """
        A terminal without marks scrolls as a whole again behind what a program that is gone has left,
        and already at the message before the prompt; a program that draws keeps its region.
        """
        editor, left, reset = b"\x1b[?1049h\x1b[1;24rvi", b"\x1b[?1049l\r\n", b"\x1b7\x1b[r\x1b8"
        self.console.says(editor)
        stream = MemoryStream(self.shared.viewer(), options=CONSOLE)
        self.assertEqual(stream.since(), editor)
        self.console.says(left + b"$ ")
        self.assertEqual(stream.since(), left + b"$ " + reset)
        marks = self.join()
        self.assertEqual(marks.output, editor + left + b"$ ")
        plain = MemoryStream(self.shared.viewer(), options=StreamOptions())
        self.assertEqual(plain.since(), editor + left + b"$ ")
        stream = MemoryStream(self.shared.viewer(), options=CONSOLE)
        end, line = left[:-2], left[-2:]
        self.assertEqual(stream.since(), editor + end + reset + line + b"$ ")
        self.console.says(editor + left + b"$ ")
        self.assertEqual(stream.since(), editor + left + b"$ ")
        stream = MemoryStream(self.shared.viewer(["ask ops"]), options=CONSOLE)
        before, banner, after = stream.since().partition(b"\r\n[twisted-exec: banner: ask ops]\r\n")
        self.assertTrue(banner)
        shown = editor + end + reset + line
        self.assertEqual(before, shown + b"$ " + shown)
        self.assertEqual(after, b"$ ")

    def test_scroll_region_of_live_editor(self) -> None:
        """An observer's terminal scrolls as a whole again when the writer's editor ends; the writer's is the editor's."""
        editor, left, reset = b"\x1b[?1049h\x1b[1;24rvi", b"\x1b[?1049l\r\n", b"\x1b7\x1b[r\x1b8"
        self.console.says(b"$ ")
        writer, observer, script = (
            MemoryStream(self.shared.viewer(), options=options, user=user)
            for options, user in ((CONSOLE, "ann"), (CONSOLE, "bob"), (StreamOptions(), "eve"))
        )
        for each in (writer, observer, script):
            each.since()
        for each in (writer, observer):
            each.viewer.window_changed(TerminalSize(80, 24))
        for end in range(len(left)):  # in each place of the sequence a read may end
            for piece in (editor, left[:end], left[end:]):
                self.console.says(piece)
            self.assertEqual(writer.since(), editor + left)
            self.assertEqual(script.since(), editor + left)
            seen = observer.since()
            self.assertEqual(seen.replace(reset, b""), editor + left)
            self.assertEqual(seen.count(reset), 1)

    def test_smaller_terminal(self) -> None:
        """
        A terminal without marks reads once that a program draws for a larger window, if the program runs at the
        beginning; the first size of ``kubectl attach`` is larger than its window.
        """
        ann = MemoryStream(self.shared.viewer(), options=CONSOLE)
        ann.viewer.window_changed(TerminalSize(100, 28))

        def reads(*sizes: tuple[int, int]) -> bytes:
            bob = MemoryStream(self.shared.viewer(), options=CONSOLE, user="bob")
            bob.since()
            for columns, rows in sizes:
                bob.viewer.window_changed(TerminalSize(columns, rows))
            bob.viewer.detached("")
            return bob.since()

        self.assertEqual(reads((71, 21), (70, 20)), b"")
        self.console.says(b"\x1b[?1049hvi")
        for equal in ((101, 29), (100, 28)), ((200, 28),):
            self.assertEqual(reads(*equal), b"")
        for smaller in ((71, 21), (70, 20)), ((100, 28), (99, 27)), ((200, 27),):
            told = reads(*smaller)
            self.assertEqual(
                told.count(b"[twisted-exec: a program draws for a window of 100x28, and yours"), 1
            )
        self.console.says(b"\x1b[?1049l$ ")
        self.assertEqual(reads((70, 20)), b"")
        self.assertEqual(self.shared.size, TerminalSize(100, 28))

    def test_preceding_notices(self) -> None:
        """Notices precede the first byte and the prompt, although the stream accepts everything at once."""
        self.console.says(b"booted\r\nlogin: ")
        output = ViewerOutput(
            self.shared.journal, 0, lambda: None, partial(self.clock.callLater, 0)
        )
        stream = MarkStream(options=CONSOLE)
        output.use(stream)
        output.start(0)
        output.precede(Notice("first"), output.offset)
        output.precede(Notice("second"), output.prompt_start)
        self.assertEqual(len(stream.sent), 1)
        output.pump()
        expected = [Notice("first"), b"booted\r\n", Notice("second"), b"login: "]
        self.assertEqual(stream.sent[1:], expected)

    def test_live(self) -> None:
        """The writer's terminal answers what is printed now."""
        stream = self.join()
        self.console.says(b"a\x1b[6n")
        self.assertEqual(stream.output, b"a\x1b[6n")

    def test_half_a_query(self) -> None:
        """The rest of a query comes later, and nothing waits for it: the terminal gets no whole one."""
        self.console.says(b"a\x1b")
        stream = self.join()
        self.assertEqual(stream.output, b"a\x1b")

    def test_without_terminal(self) -> None:
        """A client without a terminal gets every byte."""
        self.console.says(b"a\x1b[6nb")
        self.assertEqual(self.join(StreamOptions()).output, b"a\x1b[6nb")

    def test_resumed_inside_a_query(self) -> None:
        """The terminal has the first half of a query; the second half is none any more."""
        query = b"a\x1b]11;?\x07b\x1b[18tc"
        harmless = b"a\x1b]11;-\x07b\x1b[18_c"
        self.console.says(query)
        for offset in range(len(query)):
            self.assertEqual(self.resume(offset).output, harmless[offset:])

    def test_many_pieces(self) -> None:
        """Queries are found across the pieces in which a journal is read and a stream accepts output."""
        journal = self.shared.journal
        assert isinstance(journal, Journal)
        journal._tail = Tail(segment_bytes=7)
        self.console.says(b"text \x1b[0;0;6n" * 20)
        self.assertEqual(self.join().output, b"text \x1b[0;0;6_" * 20)

    def test_turns(self) -> None:
        """Much old output is searched in several turns; a session that leaves before takes no more."""
        for _ in range(8):
            self.console.says((b"\x1b_G" + b",i=" * 11_000)[: 32 << 10])
        stream = self.join()
        self.assertEqual(len(stream.output), 32 << 10)
        self.clock.advance(0)
        self.assertEqual(len(stream.output), 256 << 10)
        self.assertNotIn(b"=", stream.output)
        viewer, stream = self.shared.viewer(), MarkStream(options=CONSOLE)
        viewer.attached(stream)
        viewer.away()
        self.clock.advance(0)
        self.assertEqual(len(stream.output), 32 << 10)

    def test_another_boot(self) -> None:
        """A boot may end within a query, and the next one begin with the rest."""
        self.console.says(b"\x1b[")
        self.shared.journal.booted("Started")
        self.console.says(b"6n")
        self.assertEqual(self.join().output, b"\x1b[6_")


class LiveTests(OpenConsoleCase):
    """What a machine prints now: one terminal answers."""

    ASKED, HARMLESS = b"a\x1b[6nb\x05", b"a\x1b[6_b\x00"

    def join(self, user: str, *, size: bool = True, **options: bool) -> tuple[Viewer, MarkStream]:
        """Open a session, at a terminal."""
        viewer = self.shared.viewer()
        stream = MarkStream(user=user, options=replace(CONSOLE, **options))
        viewer.attached(stream)
        if size:
            viewer.window_changed(TerminalSize(80, 24))
        return viewer, stream

    def got(self, *streams: MarkStream) -> list[bool]:
        """Let the machine ask; return which of the streams have the query."""
        before = [len(stream.output) for stream in streams]
        self.console.says(self.ASKED)
        outputs = [stream.output[size:] for stream, size in zip(streams, before, strict=True)]
        for output in outputs:
            self.assertIn(output, (self.ASKED, self.HARMLESS))
        return [output == self.ASKED for output in outputs]

    def test_writer(self) -> None:
        """Of three terminals the writer's gets a query."""
        streams = [self.join(user)[1] for user in ("ann", "bob", "eve")]
        self.assertEqual(self.got(*streams), [True, False, False])

    def test_floor(self) -> None:
        """Queries follow the floor; without a writer no terminal gets them."""
        (_, first), (bob, second) = self.join("ann"), self.join("bob")
        bob.wished(Role.WRITER)
        self.assertEqual(self.got(first, second), [False, True])
        bob.wished(Role.OBSERVER)
        self.assertEqual(self.got(first, second), [False, False])

    def test_two_terminals(self) -> None:
        """Of a user's two terminals the newest answers, and the other one when that is gone."""
        (_, first), (newest, second) = self.join("ann"), self.join("ann")
        self.assertEqual(self.got(first, second), [False, True])
        newest.away()
        self.assertEqual(self.got(first), [True])

    def test_script(self) -> None:
        """A script beside the terminal of its user gets every byte, and does not take the queries."""
        (_, terminal), (_, script) = self.join("ann"), self.join("ann", size=False, tty=False)
        self.assertEqual(self.got(terminal, script), [True, True])

    def test_read_only(self) -> None:
        """A user who only watches gets no query; the stream does not pass the size of the terminal on."""
        _, stream = self.join("ann", size=False, read_only=True)
        self.assertEqual(self.got(stream), [False])

    def test_may_only_watch(self) -> None:
        """A user without the right to drive gets no query either."""
        viewer, stream = (
            self.shared.viewer(),
            MarkStream(options=CONSOLE, terms=Terms(right=Right.OBSERVE)),
        )
        viewer.attached(stream)
        self.assertEqual(self.got(stream), [False])

    def test_floor_taken_inside_a_query(self) -> None:
        """The terminal of a former writer has the first half of a query, and gets the second one changed."""
        (_, first), (bob, second) = self.join("ann"), self.join("bob")
        self.console.says(b"\x1b")
        self.console.says(b"[18")
        bob.wished(Role.WRITER)
        self.console.says(b"t")
        self.assertEqual((first.output, second.output), (b"\x1b[18_", b"\x1b[18t"))

    def test_at_once(self) -> None:
        """A lone ESC reaches all viewers at once."""
        (_, first), (_, second) = self.join("ann"), self.join("bob")
        self.console.says(b"\x1b")
        self.assertEqual((first.output, second.output), (b"\x1b", b"\x1b"))

    def test_once(self) -> None:
        """What several terminals read at the same time is searched once."""
        self.console.says(self.ASKED)
        harmless = HarmlessOutput(self.shared.journal)
        self.assertEqual(harmless.of(0, self.ASKED), self.HARMLESS)
        self.assertIs(harmless.of(0, self.ASKED), harmless.of(0, self.ASKED))

    def test_journal(self) -> None:
        """The journal has every byte."""
        self.join("ann", read_only=True)
        self.console.says(self.ASKED)
        self.assertEqual(self.shared.journal.read(0, 100), self.ASKED)


class NoticeTests(SynchronousTestCase):
    """Notices of any number and length."""

    @given(st.lists(st.text(max_size=2000), max_size=40))
    def test_any_text(self, texts: list[str]) -> None:
        """A mark has one line; only the newest notices wait."""
        console = MemoryConsole()
        shared = SharedConsole(console, Clock())
        shared.open()
        viewer, stream = shared.viewer(), MarkStream()
        viewer.attached(stream)
        viewer.away()
        for text in texts:
            console.line.notice_received(text.encode())
        stream = MarkStream()
        viewer.resumed(stream, Position(shared.journal.epoch, 0))
        marks = [each for each in stream.sent if isinstance(each, Notice)]
        self.assertLessEqual(len(marks), 16)
        for mark in marks:
            self.assertNotIn("\n", mark.text)
            self.assertNotIn("\r", mark.text)

"""
Tests for :mod:`twisted_exec.console.answers`: a machine asks, and no user could answer.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.wire.terminal_model import answered
from twisted_exec.console.answers import MOST_PER_SECOND, SESSION, SIZE, Answers
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.streaming.interfaces import Role, TerminalSize
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.stream_options import CONSOLE

from .doubles import MemoryConsole

# What systemd 257 and 258 print at the start of a serial console.
BY_CURSOR = b"\x1b7\x1b[32766;32766H\x1b[6n\x1b8"
BY_SIZE = b"\x1b[18t"


class AnswersTests(SynchronousTestCase):
    """The forms, and their number."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sent: list[bytes] = []
        self.size: TerminalSize | None = None
        self.answers = Answers(self.clock, lambda: self.size, self.sent.append)

    def test_forms(self) -> None:
        """Size, cursor and kind of terminal; nothing else is answered."""
        self.answers.printed(BY_CURSOR + BY_SIZE + b"\x1b[c\x1b[0c")
        expected = [b"\x1b[24;80R", b"\x1b[8;24;80t", b"\x1b[?6c", b"\x1b[?6c"]
        self.assertEqual(self.sent, expected)
        self.answers.printed(b"\x1b[>c\x1b[5n\x1b[14t\x1b]11;?\x07\x1bP$qm\x1b\\\x05\x1bZ text\r\n")
        self.assertEqual(self.sent, expected)

    def test_size(self) -> None:
        """The size is that of the last terminal."""
        self.size = TerminalSize(132, 43)
        self.answers.printed(BY_SIZE + BY_CURSOR)
        self.assertEqual(self.sent, [b"\x1b[8;43;132t", b"\x1b[43;132R"])

    def test_harmless(self) -> None:
        """An answer is one escape sequence of a fixed form, ends no line, and is no query itself."""
        self.answers.printed(BY_SIZE + BY_CURSOR + b"\x1b[c")
        for each in self.sent:
            self.assertRegex(each, rb"\A\x1b\[\??[0-9;]+[Rtc]\Z")
            self.assertEqual(answered(each), [])
            self.answers.printed(each)  # the machine echoes it
        self.assertEqual(len(self.sent), 3)

    def test_split(self) -> None:
        """A query may arrive byte by byte."""
        for byte in BY_CURSOR:
            self.answers.printed(bytes((byte,)))
        self.assertEqual(self.sent, [b"\x1b[24;80R"])

    def test_rate(self) -> None:
        """A machine that asks without end gets some answers per second."""
        for _ in range(3):
            self.answers.printed(BY_SIZE * 10_000)
            self.clock.advance(0.3)
        self.assertEqual(len(self.sent), MOST_PER_SECOND)
        self.clock.advance(0.2)
        self.answers.printed(BY_SIZE)
        self.assertEqual(len(self.sent), MOST_PER_SECOND + 1)


class Recorder:
    """
    A recorder whose disk may be full.

    :ivar typed_by: sessions and their input.
    """

    recordings = ()

    def __init__(self) -> None:
        self.is_full = False
        self.typed_by: list[tuple[str, bytes]] = []

    def require(self, recording: str) -> None:
        pass

    def problem(self, recording: str) -> str:
        return ""

    def typed(self, session: str, data: bytes) -> bool:
        self.typed_by.append((session, data))
        return not self.is_full


class ConsoleTests(SynchronousTestCase):
    """A console that answers."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.console, self.recorder = MemoryConsole(), Recorder()
        self.shared = self.open(self.console, is_new_boot=True)

    def open(
        self, console: MemoryConsole, *, is_new_boot: bool, answers_queries: bool = True
    ) -> SharedConsole:
        shared = SharedConsole(
            console, self.clock, recorder=self.recorder, answers_queries=answers_queries
        )
        shared.is_new_boot = is_new_boot
        self.successResultOf(shared.open())
        return shared

    def test_without_viewers(self) -> None:
        """The machine gets an answer, which is recorded as input of this program."""
        self.console.says(b"systemd\r\n" + BY_SIZE)
        self.assertEqual(self.console.heard(), b"\x1b[8;24;80t")
        self.assertEqual(self.recorder.typed_by, [(SESSION, b"\x1b[8;24;80t")])
        self.assertEqual(SIZE, TerminalSize(80, 24))

    def test_floor(self) -> None:
        """While a user has the floor, this program never answers, also if the user is away."""
        viewer = self.shared.viewer()
        viewer.attached(MarkStream(options=CONSOLE))
        viewer.window_changed(TerminalSize(132, 43))
        self.console.says(BY_SIZE)
        viewer.away()
        self.console.says(BY_SIZE)
        self.assertEqual(self.console.heard(), b"")
        viewer.resumed(MarkStream(options=CONSOLE), viewer.oldest)
        viewer.wished(Role.OBSERVER)
        self.console.says(BY_SIZE)
        self.assertEqual(self.console.heard(), b"\x1b[8;43;132t")

    def test_one_answer(self) -> None:
        """A user without the floor does not get the query that this program answers."""
        viewer, stream = self.shared.viewer(), MarkStream(options=CONSOLE)
        viewer.attached(stream)
        viewer.window_changed(TerminalSize(80, 24))
        viewer.wished(Role.OBSERVER)
        self.console.says(BY_SIZE)
        self.assertEqual(self.console.heard(), b"\x1b[8;24;80t")
        self.assertEqual(stream.output, b"\x1b[18_")

    def test_floor_taken_inside_a_query(self) -> None:
        """The second half of a query is for the terminal of the new writer alone."""
        self.console.says(b"\x1b[1")
        viewer = self.shared.viewer()
        viewer.attached(MarkStream(options=CONSOLE))
        self.console.says(b"8t")
        viewer.wished(Role.OBSERVER)
        self.console.says(b"8t")
        self.assertEqual(self.console.heard(), b"")

    def test_old_output(self) -> None:
        """A line that was open before may first bring output of which nobody waits for the answer."""
        console = MemoryConsole()
        self.open(console, is_new_boot=False)
        console.says(BY_SIZE)
        self.clock.advance(9.9)
        console.says(BY_SIZE)
        self.assertEqual(console.heard(), b"")
        self.clock.advance(0.2)
        console.says(BY_SIZE)
        self.assertEqual(console.heard(), b"\x1b[8;24;80t")

    def test_not_recorded(self) -> None:
        """Input that cannot be recorded is not sent."""
        self.recorder.is_full = True
        self.console.says(BY_SIZE)
        self.assertEqual(self.console.heard(), b"")

    def test_line_accepts_nothing(self) -> None:
        """An answer is not sent later."""
        self.console.line.pauseProducing()
        self.console.says(BY_SIZE)
        self.console.line.resumeProducing()
        self.assertEqual(self.console.heard(), b"")

    def test_off(self) -> None:
        """Without the option nothing is answered."""
        console = MemoryConsole()
        self.open(console, is_new_boot=True, answers_queries=False)
        console.says(BY_SIZE + BY_CURSOR)
        self.assertEqual(console.heard(), b"")

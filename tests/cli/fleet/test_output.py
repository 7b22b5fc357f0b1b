"""Tests for :mod:`twisted_exec.cli.fleet.output`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.fleet.output import (
    BUFFER_BYTES,
    SLICE_BYTES,
    FairOutput,
    Lane,
)
from twisted_exec.cli.fleet.positions import Positions
from twisted_exec.cli.fleet.prefixed_lines import PrefixedLines
from twisted_exec.wire.resume import Position

EPOCH = "0123456789abcdef"


class Sink:
    """A descriptor that takes everything while ``unsent`` is 0."""

    def __init__(self) -> None:
        self.written = b""
        self.unsent = 0
        self.producer: Any = None

    def write(self, data: bytes) -> None:
        self.written += data

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None


class Source:
    """A log that can be paused."""

    is_paused = False

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


class OutputCase(SynchronousTestCase):
    is_terminal = False

    def setUp(self) -> None:
        self.clock, self.sink = Clock(), Sink()
        self.output = FairOutput(self.sink, self.clock, is_terminal=self.is_terminal)

    def lane(self, name: str) -> Lane:
        lane = self.output.lane(PrefixedLines(name))
        lane.opened(Source())
        return lane

    def printed(self) -> bytes:
        """Return what is printed without a pause."""
        self.clock.advance(0)
        written, self.sink.written = self.sink.written, b""
        return written


class PipeTests(OutputCase):
    """A pipe gets everything."""

    def test_turns(self) -> None:
        """A machine that prints without end delays the line of another one by one turn."""
        flood, other = self.lane("flood"), self.lane("other")
        flood.feed(b"x" * 99 + b"\n" + b"y" * 99 + b"\n" * 3 * SLICE_BYTES)
        other.feed(b"hello\n")
        text = self.printed()
        self.assertLess(text.index(b"other | hello\n"), 20 * SLICE_BYTES)

    def test_nothing_is_dropped(self) -> None:
        """A full buffer pauses the log of its machine, and of no other, until there is room."""
        flood, other = self.lane("flood"), self.lane("other")
        data = (b"z" * 63 + b"\n") * (2 * BUFFER_BYTES // 64)
        flood.feed(data)
        other.feed(b"hello\n")
        self.assertEqual((flood.source.is_paused, other.source.is_paused), (True, False))
        text = b""
        while piece := self.printed():
            text += piece
        self.assertFalse(flood.source.is_paused)
        self.assertEqual(text.replace(b"other | hello\n", b"").replace(b"flood | ", b""), data)

    def test_paused_when_opened(self) -> None:
        """A log that is opened again while the buffer is full is paused as well."""
        flood = self.lane("flood")
        flood.feed((b"z" * 63 + b"\n") * (2 * BUFFER_BYTES // 64))
        source = Source()
        flood.opened(source)
        self.assertTrue(source.is_paused)

    def test_slow_reader(self) -> None:
        """Nothing is written while the reader takes no more."""
        lane = self.lane("a")
        self.sink.producer.pauseProducing()
        lane.feed(b"one\n")
        self.assertEqual(self.printed(), b"")
        self.sink.producer.resumeProducing()
        self.assertEqual(self.printed(), b"a | one\n")

    def test_prompt(self) -> None:
        """A line without an end is printed when the machine is quiet."""
        lane = self.lane("a")
        lane.feed(b"login: ")
        self.assertEqual(self.printed(), b"")
        self.clock.advance(1)
        self.assertEqual(self.printed(), b"a | login: \n")
        lane.feed(b"ada\n")
        self.assertEqual(self.printed(), b"a + ada\n")

    def test_slow_line(self) -> None:
        """A line that arrives in pieces without a pause is one line."""
        lane = self.lane("a")
        for each in (b"1", b"2", b"3"):
            lane.feed(each)
            self.clock.advance(0.7)
        lane.feed(b"\n")
        self.assertEqual(self.printed(), b"a | 123\n")

    def test_remark(self) -> None:
        """A remark follows the output before it."""
        lane = self.lane("a")
        lane.feed(b"one\ntw")
        lane.remark("gone")
        self.assertEqual(self.printed(), b"a | one\na | tw\na | [kubectl console: gone]\n")

    def test_finish(self) -> None:
        """At the end everything is printed, also a line without an end."""
        lane, done = self.lane("a"), []
        lane.feed(b"one\ntwo")
        self.output.finish(lambda: done.append(self.sink.written))
        for _ in range(5):
            self.clock.advance(0)
        self.assertEqual(done, [b"a | one\na | two\n"])

    def test_sent(self) -> None:
        """A call waits until what was printed is written, and nothing is printed before it."""
        lane, seen = self.lane("a"), []
        lane.feed(b"one\n")
        self.clock.advance(0)
        self.sink.unsent = 8
        self.output.when_sent(lambda: seen.append(self.sink.written))
        lane.feed(b"two\n")
        self.clock.pump([0.01] * 5)
        self.assertEqual((seen, self.sink.written), ([], b"a | one\n"))
        self.sink.unsent = 0
        self.clock.pump([0.01] * 5)
        self.assertEqual((seen, self.sink.written), ([b"a | one\n"], b"a | one\na | two\n"))

    def test_position(self) -> None:
        """The position is that behind the printed output."""
        lane = self.lane("a")
        lane.positions = Positions(Position(EPOCH, 100))
        lane.feed(b"one\ntw", Position(EPOCH, 106))
        self.assertEqual(lane.settle_position(), Position(EPOCH, 100))
        self.printed()
        self.assertEqual(lane.settle_position(), Position(EPOCH, 104))
        self.clock.advance(1)
        self.printed()
        self.assertEqual(
            (lane.settle_position(), lane.is_inside_line), (Position(EPOCH, 106), True)
        )

    def test_closed(self) -> None:
        """Nothing is printed after the end."""
        lane = self.lane("a")
        lane.feed(b"one")
        self.output.close()
        lane.feed(b"two\n")
        self.clock.advance(5)
        self.assertEqual((self.sink.written, self.clock.getDelayedCalls()), (b"", []))


class TerminalTests(OutputCase):
    """A terminal shows the present."""

    is_terminal = True

    def test_dropped(self) -> None:
        """Of a flood the newest output is shown, and the number of bytes that are not."""
        flood = self.lane("flood")
        line = b"z" * 63 + b"\n"
        flood.feed(line * (BUFFER_BYTES // 16))
        self.assertFalse(flood.source.is_paused)
        flood.feed(b"last\n")
        text = b""
        for _ in range(20):
            self.clock.advance(0.05)
            text += self.printed()
        dropped = 4 * BUFFER_BYTES - BUFFER_BYTES // 2
        self.assertTrue(
            text.startswith(b"flood | [kubectl console: %d bytes not shown]\n" % dropped), text[:80]
        )
        self.assertTrue(text.endswith(b"flood | last\n"))
        shown = text.count(b"flood | z")
        self.assertEqual(shown * 64 + dropped, 4 * BUFFER_BYTES)

    def test_rate(self) -> None:
        """A flood is printed in small parts, so that it does not use all time; others are prompt."""
        flood, other = self.lane("flood"), self.lane("other")
        for _ in range(10):
            flood.feed(b"z\n" * BUFFER_BYTES)
            self.assertLess(self.printed().count(b"flood"), SLICE_BYTES)
            self.clock.advance(0.01)
        other.feed(b"hello\n")
        self.clock.advance(0.05)
        self.assertIn(b"other | hello\n", self.printed())

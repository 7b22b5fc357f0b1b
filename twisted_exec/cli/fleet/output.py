"""
Output of many machines through one descriptor, in fair turns.

Each machine has a bounded buffer, and the machines with output take turns, so that endless output
of one machine does not hold up the others.  A pipe or a file gets everything: a log whose buffer is
full is paused.  A terminal shows the present: older output is dropped, and a line says how many
bytes these were.

The output of one machine becomes lines that begin with the machine's name (:class:`PrefixedLines`).
Nothing that a machine prints reaches other lines or the terminal's state: escape sequences and most
control characters are removed; colours may stay, and end with their line.  Characters that change
the direction of text are replaced, because they would reorder the name, too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.wire.escape_sequences import PlainLines
from twisted_exec.wire.resume import Position

BUFFER_BYTES = 64 << 10
"""Limit of the waiting output of one machine."""
SLICE_BYTES = 8 << 10
"""Most output of one machine in one turn."""
TURN_BYTES = 64 << 10
"""Output in one turn of all machines, after which others wait for the next turn."""
TERMINAL_TURN_SECONDS = 0.05
"""Pause between turns for a terminal: nobody reads faster, and it limits the work for a flood."""
QUIET_SECONDS = 1.0
"""A line without an end, such as a prompt, is printed after this silence."""

WHOLE, REST = b" | ", b" + "
"""Between the name and a line; and between the name and the rest of a line that was printed in part."""

LONGEST_LINE_BYTES = 8 << 10
"""A longer line is printed in parts."""

_COLOUR = re.compile(rb"(\x1b\[[0-9;:]{0,40}m)")
_RESET = b"\x1b[m"
_LATER_BYTES = re.compile(rb"[\x80-\xbf]{1,3}\Z")

_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_REPLACED = dict.fromkeys((*_DIRECTIONS, *_SEPARATORS), "\N{REPLACEMENT CHARACTER}")


class OutputSink(Protocol):
    """The descriptor."""

    @property
    def unsent(self) -> int:
        """Number of bytes that are not written yet."""

    def write(self, data: bytes) -> None: ...
    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...


class FleetSource(Protocol):
    """The log of a machine."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Lane:
    """
    The output of one machine on its way; :meth:`FairOutput.lane` creates it.

    :ivar source: the open log, if there is one.
    :ivar positions: set if the position of the output matters.
    """

    def __init__(self, lines: PrefixedLines, output: FairOutput) -> None:
        self.source: FleetSource | None = None
        self.positions: Positions | None = None
        self._lines, self._output = lines, output
        self._buffer = bytearray()
        self._remarks: list[str] = []
        self._dropped = 0
        self._fed_at = 0.0
        self._is_paused = False

    @property
    def position(self) -> Position | None:
        """Position behind the printed output."""
        if self.positions is None:
            return None
        return self.positions.printed(len(self._buffer) + self._lines.undecided)

    @property
    def is_inside_line(self) -> bool:
        """True if the last line was printed in part."""
        return self._lines.inside_line

    @property
    def is_empty(self) -> bool:
        """True if nothing waits."""
        return not (self._buffer or self._remarks or self._dropped)

    def opened(self, source: FleetSource) -> None:
        """The log is open."""
        self.source = source
        if self._is_paused:
            source.pause()

    def feed(self, data: bytes, position: Position | None = None) -> None:
        """
        Print output.

        :param position: the position behind it.
        """
        self._buffer += data
        if self.positions is not None and position is not None:
            self.positions.add(len(data), position)
        self._output.fed(self)

    def remark(self, text: str) -> None:
        """Print a line about the machine, behind its output."""
        self._remarks.append(text)
        self._output.fed(self)

    # For the output.

    def limit(self, *, drops: bool) -> None:
        """Keep the buffer bounded."""
        if len(self._buffer) <= BUFFER_BYTES:
            return
        if drops:
            # Half of it, so that this happens once for many pieces; then from the next line on.
            count = len(self._buffer) - BUFFER_BYTES // 2
            count = self._buffer.find(b"\n", count - 1, count + SLICE_BYTES) + 1 or count
            del self._buffer[:count]
            self._dropped += count
            if self.positions is not None:
                self.position  # forgets the pieces that are gone  # noqa: B018
        elif not self._is_paused:
            self._is_paused = True
            if self.source is not None:
                self.source.pause()

    def has_turn(self, now: float) -> bool:
        """Return whether a turn would print anything."""
        if self._remarks or self._dropped or cut(self._buffer, SLICE_BYTES):
            return True
        return bool(self._buffer) and now - self._fed_at >= QUIET_SECONDS

    def take(self, now: float) -> bytes:
        """Return the lines of one turn."""
        printed = b""
        if self._dropped:
            printed = self._lines.remark(f"{self._dropped} bytes not shown")
            self._dropped = 0
        end = cut(self._buffer, SLICE_BYTES)
        if not end and (self._remarks or now - self._fed_at >= QUIET_SECONDS):
            end = len(self._buffer)
        if end:
            printed += self._lines.feed(bytes(self._buffer[:end]))
            del self._buffer[:end]
        if self._remarks and not self._buffer:
            printed += b"".join(map(self._lines.remark, self._remarks))
            self._remarks = []
        if self._is_paused and len(self._buffer) < BUFFER_BYTES // 2:
            self._is_paused = False
            if self.source is not None:
                self.source.resume()
        return printed

    def touch(self, now: float) -> None:
        """Note the time of the last output."""
        self._fed_at = now


@implementer(IPushProducer)
class FairOutput:
    """
    Prints the output of all machines.

    :param is_terminal: drop what is too much, instead of pausing its machine.
    """

    def __init__(self, sink: OutputSink, clock: IReactorTime, *, is_terminal: bool) -> None:
        self._sink, self._clock, self._is_terminal = sink, clock, is_terminal
        self._waiting: dict[Lane, None] = {}
        self._quiet: dict[Lane, None] = {}
        self._turn: IDelayedCall | None = None
        self._next_turn = 0.0
        self._quiet_timer: IDelayedCall | None = None
        self._is_paused = self._is_over = False
        self._when_sent: list[Callable[[], None]] = []
        self._finished: Callable[[], None] | None = None
        sink.registerProducer(self, True)

    def lane(self, lines: PrefixedLines) -> Lane:
        """Create the lane of one machine."""
        return Lane(lines, self)

    def fed(self, lane: Lane) -> None:
        """A lane has output."""
        if self._is_over:
            return
        lane.limit(drops=self._is_terminal)
        now = self._clock.seconds()
        lane.touch(now)
        if lane.has_turn(now):
            self._queue(lane)
        elif not lane.is_empty:
            self._await_quiet(lane)

    def when_sent(self, call: Callable[[], None]) -> None:
        """Call when everything is written that was printed so far; nothing is printed before."""
        self._when_sent.append(call)
        self._schedule()

    def finish(self, call: Callable[[], None]) -> None:
        """Print everything that waits, also lines without an end; then call."""
        self._finished = call
        for lane in [*self._quiet, *self._waiting]:
            lane.touch(-QUIET_SECONDS)
            self._queue(lane)
        self._schedule()

    def close(self) -> None:
        """Print nothing more."""
        self._is_over = True
        for timer in (self._turn, self._quiet_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._turn = self._quiet_timer = None
        self._waiting.clear()
        self._sink.unregisterProducer()

    def _queue(self, lane: Lane) -> None:
        self._quiet.pop(lane, None)
        self._waiting[lane] = None
        self._schedule()

    def _schedule(self) -> None:
        if self._turn is None and not self._is_over:
            pause = max(0.0, self._next_turn - self._clock.seconds())
            self._turn = self._clock.callLater(pause, self._take_turns)

    def _take_turns(self) -> None:
        self._turn = None
        if self._when_sent:
            if self._sink.unsent:
                self._next_turn = self._clock.seconds() + 0.01
                self._schedule()
                return
            calls, self._when_sent = self._when_sent, []
            for call in calls:
                call()
        printed, now = 0, self._clock.seconds()
        parts: list[bytes] = []
        for lane in list(self._waiting):
            if self._is_paused or printed >= TURN_BYTES:
                break
            del self._waiting[lane]
            text = lane.take(now)
            printed += len(text)
            parts.append(text)
            if lane.has_turn(now):
                self._waiting[lane] = None  # behind the others
            elif not lane.is_empty:
                self._await_quiet(lane)
        if printed:
            self._sink.write(b"".join(parts))
        if self._is_terminal:
            self._next_turn = now + TERMINAL_TURN_SECONDS
        if self._waiting and not self._is_paused:
            self._schedule()
        elif not self._waiting and self._finished is not None:
            finished, self._finished = self._finished, None
            self.when_sent(finished)

    def _await_quiet(self, lane: Lane) -> None:
        self._quiet[lane] = None
        if self._quiet_timer is None:
            self._quiet_timer = self._clock.callLater(QUIET_SECONDS, self._look_for_quiet)

    def _look_for_quiet(self) -> None:
        self._quiet_timer = None
        now = self._clock.seconds()
        for lane in list(self._quiet):
            if lane.has_turn(now):
                self._queue(lane)
        if self._quiet:
            self._quiet_timer = self._clock.callLater(QUIET_SECONDS / 2, self._look_for_quiet)

    # The descriptor paces the output through these.

    def pauseProducing(self) -> None:
        """The reader takes no more for now."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """The reader takes more."""
        self._is_paused = False
        if self._waiting or self._when_sent:
            self._schedule()

    def stopProducing(self) -> None:
        """The reader is gone; the program hears of that otherwise."""
        self._is_paused = True


class PrefixedLines:
    """
    The lines of one machine.

    :param name: at the beginning of each line.
    :param keeps_colours: colours stay.
    :param for_terminal: bytes that are not UTF-8 are replaced; otherwise they stay.
    :param inside_line: the output continues a line that was printed in part.
    """

    def __init__(
        self,
        name: str,
        *,
        keeps_colours: bool = False,
        for_terminal: bool = False,
        inside_line: bool = False,
    ) -> None:
        self._name = name.encode()
        self._keeps_colours = keeps_colours
        self._errors = "replace" if for_terminal else "surrogateescape"
        self._plain = PlainLines(mid_line=inside_line)
        self.inside_line = inside_line

    @property
    def undecided(self) -> int:
        """
        Return the number of bytes at the end of the output that may become a part of something
        longer.
        """
        return self._plain.undecided + self._plain.returned

    def feed(self, data: bytes) -> bytes:
        """
        Return the lines of some output, also of a last one without an end.

        :param data: ends with a line, or where no more output is expected soon.
        """
        if self._keeps_colours and b"\x1b[" in data:
            parts = _COLOUR.split(data)
            parts[::2] = map(self._plain.feed, parts[::2])
            text = b"".join(parts)
        else:
            text = self._plain.feed(data)
        return self._prefixed(text)

    def rename(self, name: str) -> None:
        """Print another name from the next line on."""
        self._name = name.encode()

    def remark(self, text: str) -> bytes:
        """Return a line about the machine, which it did not print."""
        # The line before stays as it is; its rest, if it comes, is marked as such.
        return self._name + WHOLE + f"[kubectl console: {text}]\n".encode()

    def _prefixed(self, text: bytes) -> bytes:
        if not text:
            return b""
        if not text.isascii():
            characters = text.decode("utf-8", self._errors).translate(_REPLACED)
            text = characters.encode("utf-8", self._errors)
        start = REST if self.inside_line else WHOLE
        if self.inside_line and text.startswith(b"\n"):  # the end of a line that is printed already
            text, start = text[1:], WHOLE
            self.inside_line = False
            if not text:
                return b""
        self.inside_line = not text.endswith(b"\n")
        body = text if self.inside_line else text[:-1]
        if self._keeps_colours and b"\x1b" in body:
            lines = body.split(b"\n")
            body = b"\n".join(line + _RESET if b"\x1b" in line else line for line in lines)
        return self._name + start + body.replace(b"\n", b"\n" + self._name + WHOLE) + b"\n"


def cut(data: bytes | bytearray, limit: int) -> int:
    """
    Return where to cut output, at the end of a line if possible.

    :return: 0 if a line is not complete yet, and not too long.
    """
    end = data.rfind(b"\n", 0, limit) + 1
    if end or len(data) < min(limit, LONGEST_LINE_BYTES):
        return end
    end = min(len(data), limit)
    # Not within a character.
    later = _LATER_BYTES.search(bytes(data[end - 4 : end]))
    first = end - len(later[0] if later is not None else b"") - 1
    return first if first > 0 and data[first] >= 0xC0 else end


class _Piece(NamedTuple):
    size: int
    before: Position
    after: Position

    @property
    def is_whole(self) -> bool:
        is_same = self.before.epoch == self.after.epoch
        return is_same and self.after.offset - self.before.offset == self.size


class Positions:
    """
    Remembers where the pieces of a machine's output begin.

    Output is printed in order, so the number of bytes that are not printed yet determines where the
    log has to continue.

    :param start: where the output begins.
    """

    def __init__(self, start: Position) -> None:
        self._last = start
        self._pieces: deque[_Piece] = deque()

    def add(self, size: int, after: Position) -> None:
        """Append a piece of output."""
        self._pieces.append(_Piece(size, self._last, after))
        self._last = after

    def printed(self, waiting: int) -> Position:
        """
        Return where the log has to continue.

        If a piece with a notice of a gap is printed only in part, the log continues before that
        piece: some output is printed again, and none is lost.

        :param waiting: number of bytes that are not printed yet, never more than added.
        """
        left = waiting
        position = self._last
        for index in range(len(self._pieces) - 1, -1, -1):
            piece = self._pieces[index]
            if not left:
                self._forget(index + 1)
                return position
            position = piece.before
            if left < piece.size:
                if piece.is_whole:
                    position = Position(piece.after.epoch, piece.after.offset - left)
                self._forget(index)
                return position
            left -= piece.size
        return position

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._pieces.popleft()

"""
Output of many machines through one descriptor, in fair turns.

Each machine has a bounded buffer, and the machines with output take turns, so that endless output
of one machine does not hold up the others.  A pipe or a file gets everything: a log whose buffer is
full is paused.  A terminal shows the present: older output is dropped, and a line says how many
bytes these were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.cli.fleet.positions import Positions
from twisted_exec.cli.fleet.prefixed_lines import PrefixedLines, cut
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

    def settle_position(self) -> Position | None:
        """Forget the positions of printed output, and return the one behind it."""
        if self.positions is None:
            return None
        return self.positions.settle(len(self._buffer) + self._lines.undecided)

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
            self.settle_position()
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

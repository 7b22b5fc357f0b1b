"""
Screens from journals: the selection of the output for the emulator, and the limit of the whole request.

A request fails after :data:`SECONDS`. An emulator begins at the nearest key frame, or at most :data:`LOOK_BACK` bytes before the screen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.screens import ScreenOptions
from twisted_exec.api.status import BadRequest, ServiceUnavailable
from twisted_exec.api.times import stamp
from twisted_exec.journal.interfaces import Event, EventKind, IReadableJournal
from twisted_exec.journal.when_answered import when_answered
from twisted_exec.program.disk_thread import Unanswered
from twisted_exec.program.turns import ShortTurns
from twisted_exec.screens.interfaces import CannotRender, IRenderer, Job, Rendered, Resize

LOOK_BACK = 2 << 20
SECONDS = 8.0
"""For one screen, with the wait for the disk and for others: less than a poollet waits."""
COLUMNS, ROWS = 80, 24
"""The size of a terminal that nobody has set."""

_READ_BYTES = 32 << 10
_SIZE_STEP, _SIZE_STEPS = 1 << 20, 16
"""How far to look for the terminal's size."""
_CANCEL = b"\x18"
"""Ends an incomplete escape sequence."""


MAX_BYTES = 8 << 20
_ENTRY_BYTES = 512
"""Memory of a key frame beside its content."""


@dataclass(frozen=True)
class KeyFrame:
    """
    The state of a screen.

    :param offset: of the first byte that is not in the state.
    :param content: see :meth:`.AvtScreen.key_frame`; in UTF-8: an emoji in a ``str`` makes each character four bytes.
    """

    offset: int
    columns: int
    rows: int
    content: bytes


class KeyFrames:
    """Key frames of all journals; the least recently used ones are discarded."""

    def __init__(self, limit_bytes: int = MAX_BYTES) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._frames: OrderedDict[tuple[str, int], KeyFrame] = OrderedDict()

    def add(self, epoch: str, frame: KeyFrame) -> None:
        old = self._frames.pop((epoch, frame.offset), None)
        self._frames[epoch, frame.offset] = frame
        self._bytes += _size(frame) - (_size(old) if old is not None else 0)
        while self._bytes > self._limit_bytes:
            _, oldest = self._frames.popitem(last=False)
            self._bytes -= _size(oldest)

    def discard(self, epoch: str, offset: int) -> None:
        if frame := self._frames.pop((epoch, offset), None):
            self._bytes -= _size(frame)

    def nearest(self, epoch: str, first: int, last: int) -> KeyFrame | None:
        """Return the last key frame of a journal at an offset from ``first`` to ``last``."""
        offsets = [
            offset
            for frame_epoch, offset in self._frames
            if frame_epoch == epoch and first <= offset <= last
        ]
        if not offsets:
            return None
        key = epoch, max(offsets)
        self._frames.move_to_end(key)
        return self._frames[key]


def _size(frame: KeyFrame) -> int:
    return _ENTRY_BYTES + len(frame.content)


class Screens:
    """Renders the screens of journals."""

    def __init__(self, renderer: IRenderer, clock: IReactorTime) -> None:
        self._renderer, self._clock = renderer, clock
        self._key_frames = KeyFrames()

    async def render(self, journal: IReadableJournal, options: ScreenOptions, key: str) -> bytes:
        """
        Render the screen of a console.

        :raises BadRequest: there is no such output.
        :raises ServiceUnavailable: the disk cannot be read, or the screen is not rendered within
            :data:`SECONDS`.
        :raises APIError: as of :meth:`IRenderer.render`.
        """
        until = self._clock.seconds() + SECONDS
        begin, end, job = await when_answered(
            journal, self._clock, partial(self._read, journal, options)
        )
        rendering: Deferred[Rendered] = self._renderer.render(job, key)
        try:
            rendered = await rendering.addTimeout(until - self._clock.seconds(), self._clock)
        except TimeoutError:
            raise ServiceUnavailable(
                f"the screen was not rendered within {SECONDS:g} s; try again",
                retry_after_seconds=1,
            ) from None
        except CannotRender:
            self._key_frames.discard(journal.epoch, begin)
            raise
        offset = end - rendered.pending
        content = rendered.key_frame.encode()
        new = KeyFrame(offset, rendered.columns, rendered.rows, content)
        self._key_frames.add(journal.epoch, new)
        return rendered.body

    async def _read(
        self, journal: IReadableJournal, options: ScreenOptions
    ) -> tuple[int, int, Job]:
        turns = ShortTurns(self._clock)
        end = await _end(journal, options, turns)
        begin = journal.last_bytes(LOOK_BACK, end)
        frame = self._key_frames.nearest(journal.epoch, begin, end)
        if frame is None:
            if begin > journal.start:
                begin = min(end, _behind_newline(journal, begin))
            rows, columns = await _size_at(journal, begin, turns)
            frame = KeyFrame(begin, columns, rows, b"")
        history = _History(journal, frame.offset, end)
        await history.read(turns)
        facts: dict[str, object] = {"epoch": journal.epoch, "offset": end}
        if moment := journal.time_at(max(end - 1, journal.start)) if end else 0:
            facts["time"] = stamp(moment)
        return (
            frame.offset,
            end,
            Job(
                frame.columns,
                frame.rows,
                frame.content.decode(),
                bytes(history.output),
                history.resizes(),
                options.form,
                facts,
                options.size,
            ),
        )


async def _end(journal: IReadableJournal, options: ScreenOptions, turns: ShortTurns) -> int:
    offset = options.at_offset
    if offset is not None:
        if not journal.start <= offset <= journal.end:
            raise BadRequest(
                f"the console has no output at offset {offset}: it retains the offsets "
                f"{journal.start} to {journal.end}"
            )
        return offset
    moment = options.at_nanoseconds
    if moment is None:
        return int(journal.end)
    if journal.start and journal.time_at(journal.start) > moment:
        oldest = stamp(journal.time_at(journal.start))
        raise BadRequest(
            f"the console has no output of {stamp(moment)} any more: the oldest is of {oldest}"
        )
    first, last = journal.start, journal.end
    while first < last:
        await turns.breathe()
        middle = max((first + last) // 2, journal.start)
        if journal.time_at(middle) > moment:
            last = middle
        else:
            first = middle + 1
    return int(first)


def _behind_newline(journal: IReadableJournal, offset: int) -> int:
    """Return where the next line begins, if it is near: an emulator must not begin in a sequence."""
    return offset + journal.read(offset, _READ_BYTES).find(b"\n") + 1


async def _size_at(journal: IReadableJournal, offset: int, turns: ShortTurns) -> tuple[int, int]:
    last = offset
    for _ in range(_SIZE_STEPS):
        await turns.breathe()
        first = max(journal.start, last - _SIZE_STEP)
        if sizes := _sizes(journal, first, last):
            return sizes[-1].data["rows"], sizes[-1].data["columns"]
        if first >= last:
            break
        last = first
    return ROWS, COLUMNS


def _sizes(journal: IReadableJournal, first: int, last: int) -> list[Event]:
    return list(journal.events(first, last, EventKind.SIZE))


@dataclass(frozen=True)
class _Piece:
    offset: int
    position: int


class _History:
    def __init__(self, journal: IReadableJournal, begin: int, end: int) -> None:
        self._journal, self._begin, self._end = journal, begin, end
        self._pieces: list[_Piece] = []
        self.output = bytearray()

    async def read(self, turns: ShortTurns) -> None:
        offset = self._begin
        while offset < self._end:
            await turns.breathe()
            available = min(self._end, self._journal.next_available(offset))
            if available > offset:
                self.output += _CANCEL
                offset = available
                continue
            data = self._journal.read(offset, min(_READ_BYTES, self._end - offset))
            if not data:
                raise Unanswered  # the journal has this output, but the disk does not answer
            self._pieces.append(_Piece(offset, len(self.output)))
            self.output += data
            offset += len(data)

    def resizes(self) -> Sequence[Resize]:
        events: Any = _sizes(self._journal, self._begin, self._end)
        return [
            Resize(self._position(event.offset), event.data["columns"], event.data["rows"])
            for event in events
        ]

    def _position(self, offset: int) -> int:
        number = bisect_right(self._pieces, offset, key=lambda piece: piece.offset) - 1
        if number < 0:
            return 0
        piece = self._pieces[number]
        following = self._pieces[number + 1 :]
        limit = following[0].position if following else len(self.output)
        return min(limit, piece.position + offset - piece.offset)

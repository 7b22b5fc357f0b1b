"""
The log of a console: what its journal has retained, as lines of text.

Bytes are passed on unchanged, except as plain text
(:class:`~twisted_exec.wire.escape_sequences.PlainLines`). The timestamp of a line is that of its end:
a prompt may wait for hours, and the line with what a user typed then is not from before. A line
that has no end yet, or is long, has the time of its first byte. The console never waits for readers of its log: a reader that is too slow gets a line
about the missing output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from twisted.logger import Logger

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import BadRequest
from twisted_exec.api.times import stamp
from twisted_exec.journal.interfaces import Boot, IReadableJournal, missing_bytes
from twisted_exec.journal.when_answered import when_answered
from twisted_exec.program.disk_thread import Unanswered
from twisted_exec.program.turns import ShortTurns
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, MACHINE_DELETED, Ending
from twisted_exec.streaming.text.stream import PacedResponse
from twisted_exec.wire.escape_sequences import LINES, PlainLines, line_starts
from twisted_exec.wire.log_frames import MID_LINE, RETURNED, Framing, LogFrame

_READ_BYTES = 32 << 10
# With its timestamp, a line of 1 byte becomes 32 bytes.
_STAMPED_BYTES = 4 << 10
# Each of them may be a line of its own, which takes about 2 us.
_PLAIN_STAMPED_BYTES = 1 << 10
_NEWLINE = b"\n"
_END_OF_LINE = re.compile(rb"\n")
_END_OF_PLAIN_LINE = re.compile(rb"\r*\n|\r+")
_LONG_BYTES = _STAMPED_BYTES
"""The end of a line is looked for in about as many bytes, a few at a time."""
_AHEAD_BYTES = 256
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")
_MISSING = b"[twisted-exec: output is missing here]"


class JournalLogReader:
    """
    One reader's position in a journal, and the format of what it reads.

    :param selected: see :func:`selected_range`.
    :raises OSError: the journal cannot be read at present.
    """

    def __init__(
        self, journal: IReadableJournal, options: LogOptions, selected: tuple[int, int | None]
    ) -> None:
        self._journal, self._options = journal, options
        state = options.state or 0
        self._begins_line = not state & MID_LINE
        self._plain: PlainLines | None = None
        if options.plain:
            self._plain = PlainLines(not self._begins_line, bool(state & RETURNED))
        self._notice = b""
        if options.epoch not in (None, journal.epoch):
            self._notice = b"[twisted-exec: the log began anew; what was printed before is missing]"
        self._offset, self._end = selected
        is_begin = options.from_offset is None and self._offset == journal.start
        if is_begin and missing_bytes(journal, self._offset, self._offset) is None:
            self._notice = self._notice or _MISSING
        self.framing = Framing(journal.epoch, self._offset, self._end)
        self._remaining = options.limit_bytes
        self._stamp = (0, b"")

    @property
    def over(self) -> bool:
        if self._remaining == 0:
            return True
        if self._notice or (self._end is None and not self._journal.closed):
            return False
        end: int = self._journal.end if self._end is None else self._end
        return self._offset >= end

    def read(self) -> bytes | None:
        """
        Return the next piece, at most about 128 KiB.

        :return: empty if the journal's next piece has no plain text; ``None`` if there is nothing
            to read yet, or the log is :attr:`over`.
        :raises OSError: the journal cannot be read at present; call again later.
        """
        if self.over:
            return None
        text = self._skip()
        if not text:
            data = self._next()
            if not data:
                return None
            text = self._text(data)
            self._offset += len(data)
        if text:
            self._begins_line = text.endswith(_NEWLINE)
        if self._remaining is not None:
            text = text[: self._remaining]
            self._remaining -= len(text)
        return text

    def frame(self, text: bytes) -> LogFrame:
        """Return the frame of the piece that was just read."""
        state = 0 if self._begins_line else MID_LINE
        offset = self._offset
        if self._plain is not None:
            offset -= self._plain.undecided
            if self._plain.returned:
                state |= RETURNED
        return LogFrame(text, offset, self._journal.time_at(max(offset - 1, 0)), state)

    def _skip(self) -> bytes:
        journal, first = self._journal, self._offset
        start = journal.next_available(first)
        if self._end is not None:
            start = min(start, self._end)
        if start > first:
            # The journal has no event for bytes that it discarded.
            missed = (
                start - first if first < journal.start else missing_bytes(journal, first, start)
            )
            self._offset = start
            if missed is None:
                self._notice = _MISSING
            elif missed:
                self._notice = b"[twisted-exec: %d bytes skipped]" % missed
        line = self._line(self._notice) if self._notice else b""
        self._notice = b""
        return line

    def _line(self, notice: bytes) -> bytes:
        end_of_line = b"\r\n"
        if self._plain is not None:
            end_of_line, self._plain = _NEWLINE, PlainLines()
        before = b"" if self._begins_line else end_of_line
        return before + (self._time() if self._options.timestamps else b"") + notice + end_of_line

    def _next(self) -> bytes:
        limit = _READ_BYTES
        if self._options.timestamps:
            limit = _STAMPED_BYTES if self._plain is None else _PLAIN_STAMPED_BYTES
        if self._end is not None:
            limit = min(limit, self._end - self._offset)
        data: bytes = self._journal.read(self._offset, limit) if limit > 0 else b""
        if self._plain is not None and self._offset + len(data) < self._journal.end:
            # With the line's end, its text is final; later output edits a line of which a part was given.
            data = data[: data.rfind(_NEWLINE) + 1] or data
        return data

    def _text(self, data: bytes) -> bytes:
        if self._options.timestamps:
            return b"".join(self._stamped(data))
        return data if self._plain is None else self._plain.feed(data)

    def _stamped(self, data: bytes) -> Iterator[bytes]:
        begins_line, at = self._begins_line, 0
        lines = _LINES if self._plain is None else LINES
        for piece in lines.findall(data):
            text = piece if self._plain is None else self._plain.feed(piece)
            for line in _LINES.findall(text):
                if begins_line:
                    yield self._time(self._end_of_line(data, at))
                yield line
                begins_line = line.endswith(_NEWLINE)
            at += len(piece)

    def _end_of_line(self, data: bytes, start: int) -> int:
        """
        Return the place of a line's end, from the present offset; of its first byte if unknown.

        Returns alone redraw the line, maybe much later, so the line ends before them.

        :param data: from the present offset on; the line begins at ``start``.
        """
        mark = _END_OF_LINE if self._plain is None else _END_OF_PLAIN_LINE
        first = start
        while True:
            if end := mark.search(data, first):
                first = end.start()
                behind = first + len(end[0])
                if end[0].endswith(_NEWLINE):
                    return behind - 1
                if behind < len(data):
                    return max(start, first - 1)
            else:
                first = len(data)
            at = self._offset + len(data)
            if len(data) - start >= _LONG_BYTES or at >= self._journal.end:
                return start
            more = self._journal.read(at, _AHEAD_BYTES)
            if not more:  # a gap, or the disk does not answer
                return start
            data += more

    def _time(self, ahead: int = 0) -> bytes:
        moment = self._journal.time_at(self._offset + ahead)
        if self._stamp[0] != moment or not self._stamp[1]:
            self._stamp = moment, stamp(moment).encode("ascii") + b" "
        return self._stamp[1]


async def selected_range(
    journal: IReadableJournal, options: LogOptions, machine: str, turns: ShortTurns
) -> tuple[int, int | None]:
    """
    Return the first offset of a log, and its end; ``None`` for the end of a log that is followed.

    The tail is that of the whole range, and ``since`` applies to it, as in the kubelet
    (``pkg/kubelet/kuberuntime/logs``).

    :raises BadRequest: the journal does not have the requested boot or offsets.
    :raises OSError: the journal cannot be read at present.
    """
    first, last = journal.start, None if options.follow else journal.end
    boot = -1 if options.previous else options.boot
    if boot is not None:
        first, behind = _range_of_boot(journal, boot, machine)
        last = last if behind is None else behind
    elif options.epoch in (None, journal.epoch):
        first, last = _range_of_offsets(journal, options, machine, last)
    elif options.to_offset is not None:
        first = last = journal.start  # these bytes are gone
    if options.until_nanoseconds is not None and last is not None:
        last = max(first, min(last, journal.printed_since(options.until_nanoseconds)))
    lowest = first
    if options.tail_lines is not None:
        end = journal.end if last is None else max(first, last)
        lowest = await _last_lines(journal, options.tail_lines, first, end, turns)
    since = options.since(journal.now())
    if since is not None:
        lowest = max(lowest, journal.printed_since(since))
    return (lowest, last) if last is None else (min(lowest, last), last)


async def _last_lines(
    journal: IReadableJournal, count: int, first: int, end: int, turns: ShortTurns
) -> int:
    """Return where the last ``count`` lines (:data:`LINES`) between two offsets begin."""
    lowest: int = max(first, journal.last_lines(count, end))
    last = end
    while last > lowest:
        await turns.breathe()
        begin, output = _before(journal, lowest, last)
        if begin > lowest and (line := LINES.match(output)) and line.end() < len(output):
            # Not from within a line, because a sequence may begin before.
            begin, output = begin + line.end(), output[line.end() :]
        starts = [begin + each for each in line_starts(output) if begin + each < end]
        if len(starts) >= count:
            return starts[-count]
        count -= len(starts)
        last = begin
    return lowest


def _before(journal: IReadableJournal, first: int, last: int) -> tuple[int, bytes]:
    """Return the last output between two offsets that is in one piece, and where it begins."""
    begin = at = max(first, last - _READ_BYTES)
    output = bytearray()
    while (available := journal.next_available(at)) < last:
        if available > at:
            begin = at = available
            output.clear()
        data = journal.read(at, last - at)
        if not data:
            raise Unanswered  # the journal has this output, but the disk does not answer
        output += data
        at += len(data)
    return begin, bytes(output)


def _range_of_offsets(
    journal: IReadableJournal, options: LogOptions, machine: str, last: int | None
) -> tuple[int, int | None]:
    first = journal.start if options.from_offset is None else options.from_offset
    for name, offset in (("fromOffset", options.from_offset), ("toOffset", options.to_offset)):
        if offset is not None and offset > journal.end:
            raise BadRequest(
                f'{name}={offset} is beyond the log of machine "{machine}", which ends at '
                f"{journal.end}"
            )
    return first, last if options.to_offset is None else options.to_offset


def _range_of_boot(journal: IReadableJournal, boot: int, machine: str) -> tuple[int, int | None]:
    boots = journal.boots()
    if boot == 0 and not boots:
        return journal.start, None
    at = len(boots) - 1 + boot
    if boot > 0:
        at = next((at for at, each in enumerate(boots) if each.number == boot), -1)
    end = boots[at + 1].offset if 0 <= at < len(boots) - 1 else None
    if at < 0 or (end is not None and boots[at].offset < end <= journal.start):
        missing = "previous boot" if boot == -1 else f"boot {boot}"
        raise BadRequest(f'the log of machine "{machine}" has no {missing}; it has {_known(boots)}')
    return max(journal.start, boots[at].offset), end


def _known(boots: Sequence[Boot]) -> str:
    newest = ", ".join(str(each.number) for each in boots[-9:])
    if len(boots) < 2:
        return f"only boot {newest}" if boots else "no boots yet"
    return f"{len(boots)} boots, the newest: {newest}" if len(boots) > 9 else f"boots {newest}"


class LogStream(PacedResponse):
    most_pieces: ClassVar[int] = 8
    _log = Logger()
    _reader: JournalLogReader

    def __init__(
        self, request: Request, journal: IReadableJournal, options: LogOptions, machine: str = ""
    ) -> None:
        super().__init__(request)
        self._journal, self._options, self._machine = journal, options, machine
        self._unframed: bytes | None = None

    async def _begin(self) -> None:
        self._reader = await when_answered(self._journal, self._clock, self._find)

    async def _find(self) -> JournalLogReader:
        journal, options = self._journal, self._options
        selected = await selected_range(journal, options, self._machine, ShortTurns(self._clock))
        return JournalLogReader(journal, options, selected)

    def _headers(self) -> Sequence[tuple[bytes, bytes]]:
        return [self._reader.framing.header()] if self._options.frames else ()

    async def _open(self) -> None:
        self._journal.watch(self._pump)
        self._pump()

    def _close(self) -> None:
        self._journal.unwatch(self._pump)
        super()._close()

    def _write_piece(self) -> bool:
        try:
            text = self._read()
        except Unanswered:
            return False  # the journal calls when the disk answers
        if text is None:
            return False
        if text:
            self._text.write(text)
        return True

    def _read(self) -> bytes | None:
        if not self._options.frames:
            return self._reader.read()
        if self._unframed is None:
            self._unframed = self._reader.read()
        if self._unframed is None:
            return None
        frame = self._reader.frame(self._unframed)
        self._unframed = None
        return frame.encode()

    def _reason_of_end(self) -> str:
        if self._unframed is not None or not self._reader.over:
            return ""
        return MACHINE_DELETED if self._journal.closed else COMPLETED

    def _failed(self, problem: Exception) -> None:
        # The journal calls the response, and must not fail with its readers.
        self._log.failure("a journal cannot be read")
        self.end(Ending(INTERNAL, "the journal cannot be read"))

    def end(self, ending: Ending) -> None:
        # A reader of frames continues elsewhere, or reads the reason when it tries.
        self._text.break_off(ending.reason, None if self._options.frames else ending)

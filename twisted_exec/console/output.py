"""
The output of a console on its way to one user.

A stream that provides :class:`~twisted_exec.streaming.interfaces.IMarkTransport` gets positions and
notices as marks beside the machine's output. Any other stream has notices, also those of gaps, in
its output.

A terminal gets old output without the queries in it, because its answers would be typed into
whatever reads input now.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from twisted.internet.interfaces import IDelayedCall

from twisted_exec.journal.interfaces import IReadableJournal, missing_bytes
from twisted_exec.streaming.interfaces import IAttachmentTransport, IMarkTransport, Position
from twisted_exec.wire.escape_sequences import LOOKBACK_BYTES, QueryFilter
from twisted_exec.wire.marks import At, Attendance, Notice, NoticeKind
from twisted_exec.wire.notices import encode_gap, wrapped_notice
from twisted_exec.wire.terminal_modes import (
    LEAVING,
    LEAVING_BYTES,
    WHOLE_SCREEN,
    Modes,
    behind_programs,
)

_WRITE_BYTES = 32 << 10
_FILTERED_BYTES = 32 << 10
"""
Output without queries that is written in one turn: up to 2 ms of work, and up to 13 ms for old output at
a terminal without marks, whose modes are followed.
"""
_MOST_NOTICES = 16
_LONGEST_PROMPT = 512
_MOVES = re.compile(rb"\x1b\[[\d;]*[A-Hfd]")


class HarmlessOutput:
    """Output without queries, for the terminals of one console."""

    def __init__(self, journal: IReadableJournal) -> None:
        self._journal = journal
        self.forget()

    def forget(self) -> None:
        self._filter, self._offset, self._newest = QueryFilter(), -1, b""

    def of(self, offset: int, data: bytes) -> bytes:
        """Return output of the same length in which a terminal finds nothing to answer."""
        if offset == self._offset and len(data) == len(self._newest):
            return self._newest
        if offset != self._offset + len(self._newest):
            # The terminal may have the first half of a query.
            self._filter = QueryFilter()
            self._filter.feed(self.before(offset))
        self._offset, self._newest = offset, self._filter.feed(data)
        return self._newest

    def before(self, offset: int) -> bytes:
        """Return some output before an offset, as far as it is retained."""
        journal = self._journal
        first, pieces = max(offset - LOOKBACK_BYTES, journal.start), []
        while (first := journal.next_available(first)) < offset:
            if not (data := journal.read(first, offset - first)):
                break  # damaged
            pieces.append(data)
            first += len(data)
        return b"".join(pieces)


class ViewerOutput:
    """
    Copies from the journal to a stream whenever the stream accepts more.

    :param drained: called when everything before ``last`` was written, maybe more than once.
    :param answers: returns whether queries that the machine prints now are for this user's
        terminal.
    :param later: calls its argument in another turn of the reactor.
    :param readable: called when output may be read that the disk has not given before; by default
        :meth:`pump`.
    :ivar skipped: bytes that were skipped, and of which the user does not know yet.
    :ivar last: where the output ends; ``None`` while it goes on.
    """

    __slots__ = (
        "_answers",
        "_attendance",
        "_catching_up",
        "_drained",
        "_filtered",
        "_harmless",
        "_history_modes",
        "_is_in_old_program",
        "_is_refused",
        "_is_terminal",
        "_journal",
        "_later",
        "_live_from",
        "_marks",
        "_notices",
        "_paused",
        "_pumping",
        "_readable",
        "_resting",
        "_stream",
        "_written",
        "last",
        "offset",
        "oldest",
        "skipped",
    )

    def __init__(
        self,
        journal: IReadableJournal,
        oldest: int,
        drained: Callable[[], None],
        later: Callable[[Callable[[], None]], IDelayedCall],
        answers: Callable[[], bool] = lambda: True,
        harmless: HarmlessOutput | None = None,
        readable: Callable[[], None] | None = None,
    ) -> None:
        self.offset = self.oldest = oldest
        self.skipped = 0
        self.last: int | None = None
        self._journal, self._drained, self._answers = journal, drained, answers
        self._stream: IAttachmentTransport | None = None
        self._marks: IMarkTransport | None = None
        self._paused = True
        self._later = later
        self._filtered = 0  # bytes since the last rest
        self._resting: IDelayedCall | None = None
        self._pumping = False
        self._catching_up = False
        self._attendance: Attendance | None = None  # not sent yet
        self._notices: dict[Notice, int] = {}  # to the journal offset after which each is sent
        self._is_terminal = False
        # Of a terminal without marks, to the end of history.
        self._history_modes: Modes | None = None
        # A full-screen program goes on that began in history.
        self._is_in_old_program = False
        # The last bytes, in which the end of a full-screen program may have begun.
        self._written = b""
        self._live_from = 0  # output before this offset is history for the present stream
        self._harmless = HarmlessOutput(journal) if harmless is None else harmless
        self._readable = self.pump if readable is None else readable
        self._is_refused = False  # watches the journal, because a read failed

    # The stream.

    def use(self, stream: IAttachmentTransport) -> None:
        """Set the stream; :meth:`start` or :meth:`resume` follows."""
        self._stream, self._paused, self._attendance = stream, False, None
        self._marks = stream if IMarkTransport.providedBy(stream) else None
        self._is_terminal = stream.options.tty

    def start(self, offset: int) -> None:
        is_oldest = offset == self._journal.start
        exact = True
        # A slow disk, which knows whether earlier output is missing, does not delay a session.
        with suppress(OSError):
            exact = not is_oldest or missing_bytes(self._journal, offset, offset) is not None
        self._start(offset, exact=exact)
        if not exact and self._marks is None:
            self._write_gap(None)

    def resume(self, position: Position, newcomer: int) -> None:
        """Begin at the position of a user who had another stream."""
        journal = self._journal
        self._catching_up = True
        if position.epoch != journal.epoch:
            self.oldest = newcomer
            self._start(newcomer if self.last is None else min(newcomer, self.last), exact=False)
            return
        first = max(position.offset, self.oldest)
        offset = journal.next_available(first)
        exact = offset <= first or self._is_size_known(first, offset)
        self._start(offset if self.last is None else min(offset, self.last), exact=exact)

    def _is_size_known(self, first: int, last: int) -> bool:
        try:
            return missing_bytes(self._journal, first, last) is not None
        except OSError:
            return False

    def _start(self, offset: int, *, exact: bool) -> None:
        self.offset, self.skipped = offset, 0
        self._live_from = self._journal.end
        self._history_modes = Modes() if self._is_terminal and self._marks is None else None
        self._is_in_old_program, self._written = False, b""
        if self._marks is not None:
            end = self._journal.end if self.last is None else self.last
            self._marks.send_mark(At(Position(self._journal.epoch, offset), exact, end))

    def await_stream(self) -> None:
        """Stop writing until there is another stream."""
        self.stop()
        self._catching_up = True

    def stop(self) -> None:
        self._stream = self._marks = None
        self._paused = True
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._stop_waiting()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = self._stream is None
        self.pump()

    # Output and notices.

    def fell_behind(self) -> None:
        """
        Skip to the newest output, unless the user has lost a stream and reads what came meanwhile.
        """
        if not self._catching_up:
            self._skip_to(self._journal.end)

    def _skip_to(self, offset: int) -> None:
        self.skipped += offset - self.offset
        self.offset = offset

    @property
    def shows_old_program(self) -> bool:
        """True for a terminal without marks in which a full-screen program goes on that began before the stream."""
        return self._is_in_old_program

    @property
    def prompt_start(self) -> int:
        """The offset of the prompt at the end of the output so far; that end if there is no prompt."""
        end: int = self._journal.end
        line = LEAVING.split(self._harmless.before(end).rpartition(b"\n")[2])[-1]
        if len(line) > _LONGEST_PROMPT or _MOVES.search(line):
            line = b""
        return max(self.offset, end - len(line))

    def precede(self, notice: Notice, at: int) -> None:
        """
        Queue a notice that precedes output which is not sent yet; it is sent with this output.

        :param at: an offset, not before that of an earlier call.
        """
        self._notices[notice] = at

    def tell(self, notice: Notice, at: int | None = None) -> None:
        """
        Queue a notice, and send what the stream accepts.

        :param at: the offset that it precedes; by default it follows the output so far.
        """
        self._notices.pop(notice, None)  # a stalled client gets a repeated notice once
        self._notices[notice] = self._end if at is None else at
        if len(self._notices) > _MOST_NOTICES:
            # Messages of other users must not push out what the server has to say.
            said = (each for each in self._notices if each.kind is NoticeKind.SAID)
            del self._notices[next(said, next(iter(self._notices)))]
        self.pump()

    def tell_attendance(self, attendance: Attendance) -> None:
        """
        Send an attendance, if the stream has marks; a newer attendance replaces one that waits.
        """
        if self._marks is not None:
            self._attendance = attendance
            self.pump()

    def pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True  # a write may pause and resume synchronously
        try:
            while not self._paused and self._resting is None and self._write_some():
                pass
        finally:
            self._pumping = False
        if self.last is not None and self.offset >= self.last and not self._pending:
            self._drained()

    @property
    def _end(self) -> int:
        """Where the output for this stream ends at present."""
        end: int = self._journal.end
        return end if self.last is None else min(end, self.last)

    @property
    def _pending(self) -> bool:
        return bool(self.skipped or self._notices)

    @property
    def _awaits_role(self) -> bool:
        """Whether a notice about the role waits for output: clients know their role by the next attendance."""
        return any(each.role is not None for each in self._notices)

    def _write_some(self) -> bool:
        assert self._stream is not None
        if self._marks is not None and self._attendance is not None and not self._awaits_role:
            attendance, self._attendance = self._attendance, None
            self._marks.send_mark(attendance)
            return True
        if self.skipped:
            self._report_gap()
            return True
        limit = _WRITE_BYTES
        if self._is_terminal and self.offset < self._live_from:
            limit = min(limit, self._live_from - self.offset)
        if self._notices:
            notice, at = next(iter(self._notices.items()))
            if at <= self.offset:
                del self._notices[notice]
                self._write_notice(notice)
                return True
            limit = min(limit, at - self.offset)
        end = self._end
        if self.offset >= end:
            self._catching_up = False
            return False
        try:
            data = self._journal.read(self.offset, min(limit, end - self.offset))
        except (ValueError, OSError):
            data = b""  # older than everything that is retained, or the disk does not answer
        if not data:
            return self._skip_gap(end)
        # The answer to an old query would be typed into whatever reads input now.  Of new output
        # one terminal gets the queries, and answers them.
        if self._is_terminal and (self.offset < self._live_from or not self._answers()):
            data = self._harmless.of(self.offset, data)
            self._filtered += len(data)
            if self._filtered >= _FILTERED_BYTES:
                self._resting = self._later(self._rested)
        self.offset += len(data)
        if self._is_terminal and self._marks is None:
            self._write_followed(data)
        else:
            self._stream.write(data)
        return True

    def _write_followed(self, data: bytes) -> None:
        """
        Let the whole screen scroll where a program is gone that has drawn for the size of another terminal.

        Programs draw for the terminal that answers.  A client that reads marks does this itself.
        """
        assert self._stream is not None
        window = self._written + data
        left = LEAVING.search(window)
        self._written = window[-LEAVING_BYTES + 1 :] if left is None else b""
        modes = self._history_modes
        if modes is None:
            self._stream.write(data)
            if left is not None and (self._is_in_old_program or not self._answers()):
                self._is_in_old_program = False
                self._stream.write(WHOLE_SCREEN)
            return
        self._stream.write(self._history(data, modes))
        if self.offset >= self._live_from:
            self._scroll_all()
            self._history_modes, self._is_in_old_program = None, modes.full_screen

    @staticmethod
    def _history(data: bytes, modes: Modes) -> bytes:
        """Return old output; behind each full-screen program in it the whole screen scrolls."""
        *ended, rest = behind_programs(data)
        shown = []
        for piece in ended:
            modes.feed(piece)
            shown.append(piece)
            if modes.margins and not modes.full_screen:
                modes.feed(WHOLE_SCREEN)
                shown.append(WHOLE_SCREEN)
        modes.feed(rest)
        shown.append(rest)
        return b"".join(shown)

    def _scroll_all(self) -> None:
        """
        Reset the scroll region of a program that is gone: it is for the size of another terminal.

        A client that reads marks does this itself.
        """
        modes = self._history_modes
        if modes is not None and modes.margins and not modes.full_screen:
            assert self._stream is not None
            self._stream.write(WHOLE_SCREEN)
            modes.feed(WHOLE_SCREEN)

    def _rested(self) -> None:
        self._resting, self._filtered = None, 0
        self._readable()  # a paced machine may wait for this viewer

    def _skip_gap(self, end: int) -> bool:
        journal = self._journal
        first, last = self.offset, min(end, journal.next_available(self.offset))
        missing = None
        try:
            missing = missing_bytes(journal, first, last) if last > first else 0
        except OSError:
            last = first
        if last <= first:
            if not self._is_refused:
                self._is_refused = True
                journal.watch(self._answered)
            return False
        if missing is not None:
            self._skip_to(last)
        else:
            self.offset = last
            if self._marks is not None:
                self._send_position(self._marks, exact=False)
            else:
                self._write_gap(None)
        return True

    def _answered(self) -> None:
        self._stop_waiting()
        self._readable()

    def _stop_waiting(self) -> None:
        if self._is_refused:
            self._is_refused = False
            self._journal.unwatch(self._answered)

    def _report_gap(self) -> None:
        skipped, self.skipped = self.skipped, 0
        if self._marks is not None:
            self._send_position(self._marks, exact=True)
        else:
            self._write_gap(skipped)

    def _write_gap(self, skipped: int | None) -> None:
        assert self._stream is not None
        self._stream.write(encode_gap(skipped))

    def _write_notice(self, notice: Notice) -> None:
        assert self._stream is not None
        if self._marks is not None:
            self._marks.send_mark(notice)
        else:
            self._scroll_all()  # below the margins nothing scrolls
            data = notice.output
            self._stream.write(wrapped_notice(data) if self._is_terminal else data)

    def _send_position(self, marks: IMarkTransport, exact: bool) -> None:
        marks.send_mark(At(Position(self._journal.epoch, self.offset), exact))

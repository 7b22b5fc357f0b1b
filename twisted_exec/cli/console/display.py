"""
The display of a console: the machine's output, and notices and messages between it.

A message begins a line of its own, and the machine's last line is usually drawn again behind it.
On a screen that a program draws it covers the last rows until the next key, and is drawn again
after output of the program.  So does a dialog, which covers them until its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from twisted_exec.cli.explanations import explain_withdrawal
from twisted_exec.cli.messages import rows
from twisted_exec.console.notices import RoleNotices, notice_text, understood
from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole
from twisted_exec.wire.notices import (
    decode_notice,
    encode_gap,
    is_gap,
    wrapped_and_cut,
)
from twisted_exec.wire.resize import TerminalSize
from twisted_exec.wire.terminal_modes import WHOLE_SCREEN, behind_programs

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Sink
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream

_MOST_DRAWN_AGAIN = 10
"""Times that a message is drawn for a user who presses no key, such as at a monitor on a wall."""


@dataclass(frozen=True, kw_only=True)
class UserTerminal:
    """
    The user's terminal, as a session uses it.

    :param size: its size now, ``None`` without a terminal.
    :param say: prints messages of this program; the last line has no newline.
    :param report: prints notices; ``None`` if they are shown in the output.
    :param draw: writes what is neither output nor a message; ``None`` without a terminal.
    :param attached: called when the stream is attached.
    :param greeting: returns the greeting, which ``--quiet`` does not suppress.
    :param farewell: returns the line for a user who leaves; empty for none.
    :param place: returns the machine and where it is, for the status.
    :param watch: receives the output that is written.
    :param full_screen: whether the output has switched to the other screen.
    :param margins: those of the scroll region, as :attr:`.Modes.margins`.
    :param suspend: stops this program, as job control does; returns whether it was stopped.
    :param redraw: has the screen drawn again, if the server can render it; with ``True``, of a
        full-screen program only its picture, so that messages stay on the screen behind it.
        Returns whether the server was asked; :meth:`.ConsoleSession.show` gets its answer.
    :param power_on: returns the command that powers the machine on; empty if it is not known.
    :param withdrawn: returns the message of a session whose user lost a right, with the remedy.
    :param text_of: returns the text of a notice for this user.
    :param moves_cursor: messages go to a terminal that can move its cursor.
    :param shows_more: show more than the output, such as the machine's last line again.
    """

    size: Callable[[], TerminalSize | None] = lambda: None
    say: Callable[[str], None] = lambda _: None
    report: Callable[[Notice], None] | None = None
    draw: Callable[[bytes], None] | None = None
    attached: Callable[[], None] = lambda: None
    greeting: Callable[[], str] = lambda: ""
    farewell: Callable[[], str] = lambda: ""
    place: Callable[[], str] = lambda: ""
    watch: Callable[[bytes], None] = lambda _: None
    full_screen: Callable[[], bool] = lambda: False
    margins: Callable[[], bytes] = lambda: b""
    suspend: Callable[[], bool] = lambda: False
    redraw: Callable[[bool], bool] = lambda _: False
    power_on: Callable[[], str] = lambda: ""
    withdrawn: Callable[[str], str] = explain_withdrawal
    text_of: Callable[[Notice], str] = lambda notice: notice.for_terminal
    moves_cursor: bool = False
    shows_more: bool = False


NO_TERMINAL = UserTerminal()


class SessionScript:
    """
    A script that drives a session and reads its messages.

    The methods of this class do nothing: input from a pipe handles no messages.
    """

    def noticed(self, notice: Notice) -> None:
        """Handle a message for the user of the session."""

    def skipped(self, text: str) -> None:
        """Handle a gap in the output."""

    def outage(self) -> None:
        """Wait without a limit: the connection is lost."""

    def resumed(self) -> None:
        """Go on: the connection is back."""

    def failed(self, line: str) -> None:
        """Do nothing any more: the session fails with this message."""


def framed(lines: str, size: TerminalSize | None, *, mid_line: bool) -> bytes:
    """
    Return what prints a message of this program between the machine's output.

    :param lines: see :func:`.messages.rows`; the last one has no newline.
    :param size: of the terminal; ``None`` without one.
    :param mid_line: the cursor is inside a line.
    """
    shown = _broken(lines, size, rows)
    return "\r\n".join([*[""] * mid_line, *shown, ""]).encode("utf-8", "replace")


def _broken(
    lines: str, size: TerminalSize | None, rows_of: Callable[[str, int], list[str]]
) -> list[str]:
    if size is None:
        return lines.split("\n")
    return [row for line in lines.split("\n") for row in rows_of(line, size.columns)]


def _covering_rows(text: str, size: TerminalSize) -> list[str]:
    """Return the rows of a message; long words are cut, which would scroll the screen at its end."""
    return _broken(text, size, wrapped_and_cut)


class _Count(Enum):
    """The row of a message that counts, on a screen of lines."""

    NONE = "there is none, or output of the machine is behind it"
    ABOVE = "it is above the row of the cursor"
    COVERED = "a message of this program is behind it"


@implementer(IPushProducer)
class Display:
    """
    Writes into the user's output, which paces the stream.

    :param script: gets the notices; ``None`` if the user reads them.
    :param quiet: leave out messages about the connection, and notices that the user is the writer.
    :param wrote: called before each write.
    :param last_line: returns the line that the machine has not ended yet.
    :param draws_rows: whether a program draws on a screen of so many lines.
    :param when_quiet: calls its argument once the machine has printed nothing for a moment, which
        begins now.
    :ivar sink: the user's output, between start and end.
    :ivar notices: the user's role and that of others, as far as notices name them.
    :ivar is_paused: the user's output takes no more for now.
    """

    def __init__(
        self,
        *,
        script: SessionScript | None,
        terminal: UserTerminal,
        quiet: bool,
        wrote: Callable[[], None],
        last_line: Callable[[], bytes],
        draws_rows: Callable[[int], bool],
        when_quiet: Callable[[Callable[[], None]], None],
    ) -> None:
        self.sink: Sink | None = None
        self.notices = RoleNotices()
        self.is_paused = False
        self._script, self._wrote, self._last_line = script, wrote, last_line
        self._draws_rows, self._when_quiet = draws_rows, when_quiet
        self._terminal, self._is_quiet = terminal, quiet
        self._stream: Any = None
        self._has_marks = False
        self._last_byte = b""
        self._held: list[Callable[[], None]] | None = None
        self._line = b""  # the machine's last line, when a dialog began
        self._covering: list[str] = []  # rows of messages over a program's screen
        self._passing = 0  # of them, the last ones, which the next message replaces
        self._drawn_again = 0  # since the last of them
        self._count = _Count.NONE

    @property
    def mid_line(self) -> bool:
        """True if the last output left the cursor inside a line."""
        return self._last_byte not in (b"", b"\n")

    def open(self, stream: ConsoleStream) -> None:
        """Show the output of this stream; a resumable one has its notices beside the output."""
        self._stream = stream
        self._has_marks = stream.is_resumable
        if self.sink is not None:
            self.sink.registerProducer(self, True)

    def hold(self) -> None:
        """Write nothing until :meth:`release`: a dialog has the terminal."""
        self._held, self._line = [], self._last_line()
        self._cover_count()
        if self._stream is not None:
            self._stream.pause_output()

    def release(self, *, begins_line: bool) -> None:
        """
        Write what was held.

        :param begins_line: the dialog left the cursor at the beginning of a line.
        """
        held, self._held = self._held or [], None
        if begins_line and not self.covers and self._stream is not None:
            self._between("", lambda: None, self._line)
        elif begins_line:
            self._last_byte = b"\n"
        for write in held:
            write()
        self._cover_again()
        if not self.is_paused:
            self.resumeProducing()

    def close(self) -> None:
        """Flush and close the output; the stream is not paused any more."""
        self.uncover()
        self._stream = None
        if self.sink is not None:
            self.sink.unregisterProducer()
            self.sink.loseConnection()

    # From the machine's side.

    def output(self, data: bytes) -> None:
        """Show output of the machine, with the server's notices in it unless they come as marks."""
        if not self._has_marks:
            self.notices.feed(data)
            if text := notice_text(data):
                if is_gap(text):
                    self._show_gap(data)
                else:
                    self._show_notice(understood(text), data)
                return
        *ended, rest = behind_programs(data)
        for piece in ended:
            self._show(piece, ends_program=True)
        if rest:
            self._show(rest)
        self._count = _Count.NONE
        if self._terminal.margins() and not self._terminal.full_screen() and self._ends_history:
            self._scroll_all()
        if self._covering:
            self._when_quiet(self._cover_again)

    def _show(self, piece: bytes, *, ends_program: bool = False) -> None:
        was_full_screen = self._terminal.full_screen()
        self._terminal.watch(piece)
        self._write(piece)
        if self._terminal.full_screen() or not self._terminal.margins():
            return
        if (ends_program or was_full_screen) and (self.notices.is_observer or self._is_history):
            # They are for the size of another terminal, such as that of an editor's user.
            self._scroll_all()

    def _scroll_all(self) -> None:
        self._terminal.watch(WHOLE_SCREEN)
        self._write_in_place(WHOLE_SCREEN)

    @property
    def _is_history(self) -> bool:
        """True in the output from before the session, if a resumable stream says where that is."""
        stream = self._stream
        is_placed = self._has_marks and not stream.resumes
        return is_placed and stream.position.offset <= stream.live_from

    @property
    def _ends_history(self) -> bool:
        return self._is_history and self._stream.position.offset == self._stream.live_from

    def notice(self, notice: Notice) -> None:
        """Show a message of the server for the user, which is not part of the output."""
        self.notices.read(notice)
        self._show_notice(notice, notice.output)

    def skipped(self, count: int | None) -> None:
        """Show that so many bytes of the output are missing; ``None`` for an unknown number."""
        self._show_gap(encode_gap(count))

    def _show_gap(self, gap: bytes) -> None:
        if self._script is not None:
            self._script.skipped(decode_notice(gap))
        else:
            self._write(gap)

    def _show_notice(self, notice: Notice, data: bytes) -> None:
        if self._is_quiet and notice.role is NoticeRole.WRITER:
            return
        is_banner = notice.kind is NoticeKind.BANNER
        if self._terminal.shows_more:
            text = notice.text if is_banner else f"[twisted-exec: {self._terminal.text_of(notice)}]"
            self._between(
                text,
                lambda: self._write(framed(text, self._terminal.size(), mid_line=self.mid_line)),
                self._last_line(),
            )
        elif is_banner:
            pass
        elif self._script is not None:
            self._script.noticed(notice)
        elif (report := self._terminal.report) is not None:
            self._between(notice.text, lambda: report(notice), b"")
        else:
            self._write(data)

    def _between(self, text: str, show: Callable[[], None], line: bytes) -> None:
        """
        Show a message between the output.

        :param show: prints the message on a screen of lines.
        :param line: the machine's last line, such as a prompt, which is drawn again behind the message.
        """
        self._cover_count()
        if self._held is not None:
            self._held.append(lambda: self._between(text, show, line))
            return
        size, shows_more = self._terminal.size(), self._terminal.shows_more
        if self.covers:
            self.cover(text)
            return
        if not (shows_more and self.mid_line):
            line = b""
        if line and size is not None and len(line) < size.columns:
            self._write(b"\r%*s\r" % (len(line), b""))  # the line moves below the message
            self._last_byte = b"\n"
        if shows_more and self._terminal.margins():
            # Below the margins nothing scrolls, neither a message nor what follows it.
            self._scroll_all()
        show()
        self._last_byte = b"\n"
        if line:
            self._write(line)

    @property
    def is_drawn(self) -> bool:
        """True if the screen is what a program has drawn, and not lines."""
        if self._terminal.full_screen():
            return True
        size = self._terminal.size()
        return size is not None and self._draws_rows(size.rows)

    @property
    def covers(self) -> bool:
        """True if messages cover a part of the screen, which a program has drawn."""
        return self._terminal.shows_more and self.is_drawn

    def overflows(self, text: str) -> bool:
        """Return whether a message would cover a program's screen, and has more rows than that."""
        size = self._terminal.size()
        return self.covers and size is not None and len(_covering_rows(text, size)) > size.rows

    def cover(self, text: str, *, passes: bool = False) -> None:
        """
        Draw a message over the last rows of a program's screen, below earlier messages.

        Rows that are covered stay so until :meth:`uncover`: nothing else draws them again.

        :param text: may be empty.
        :param passes: the next message replaces it, such as a question without its answer yet.
        """
        if (size := self._terminal.size()) is None:
            return
        count = len(self._covering)
        earlier = self._covering[: max(0, count - self._passing)]
        while earlier and not earlier[0]:
            del earlier[0]
        new = _covering_rows(text, size) if text else []
        most = max(count, len(new), size.rows // 2)
        if self._held is not None:
            most = size.rows  # the program waits for the dialog
        kept = earlier[max(0, len(earlier) + len(new) - most) :]
        if len(kept) < len(earlier):
            while kept and kept[0].startswith(" "):
                del kept[0]  # the rest of a message without its beginning
        rows = [*kept, *new][-most:]
        self._covering = [""] * (count - len(rows)) + rows
        self._passing = min(len(new), most) if passes else 0
        self._drawn_again = 0
        self._draw_covering(size)

    def _cover_again(self) -> None:
        """Draw the messages again, unless the program has left or they have been there for long."""
        size = self._terminal.size()
        if self._held is not None:
            return  # a dialog draws them itself, or has a view over them
        if not self.covers:
            self._covering, self._passing = [], 0
        elif self._covering and size is not None and self._drawn_again < _MOST_DRAWN_AGAIN:
            self._drawn_again += 1
            self._draw_covering(size)

    def _draw_covering(self, size: TerminalSize) -> None:
        self._covering = self._covering[-size.rows :]
        first = size.rows - len(self._covering) + 1
        rows = (
            # Behind the last column, EL would erase the last character.
            f"\x1b[{first + at};1H{row}" + "\x1b[K" * (len(row) < size.columns)
            for at, row in enumerate(self._covering)
        )
        drawn = f"\x1b7\x1b(B\x1b[m\x1b[7m{''.join(rows)}\x1b8".encode("utf-8", "replace")
        if self._held is None:
            self._write_in_place(drawn)
        elif self._terminal.draw is not None:
            self._terminal.draw(drawn)

    def uncover(self) -> bool:
        """Erase the messages over a program's screen; return whether there were any."""
        covering, self._covering, self._passing = self._covering, [], 0
        size = self._terminal.size()
        if covering and size is not None and self.covers and self._held is None:
            # At once, because nothing draws these rows again for a user who leaves.
            rows = range(size.rows - len(covering) + 1, size.rows + 1)
            erased = "".join(f"\x1b[{row};1H\x1b[K" for row in rows)
            self._write_in_place(f"\x1b7\x1b[m{erased}\x1b8".encode())
        return bool(covering)

    def retract(self, text: str) -> bool:
        """Erase one message over a program's screen; return whether it was there."""
        size = self._terminal.size()
        rows = _covering_rows(text, size) if size is not None else []
        covering = self._covering
        for first in range(len(covering) - len(rows) + 1):
            if rows and covering[first : first + len(rows)] == rows:
                self.uncover()
                if others := [*covering[:first], *covering[first + len(rows) :]]:
                    self.cover("\n".join(others))
                return True
        return False

    def resized(self) -> None:
        """The terminal may have moved its rows."""
        self._cover_count()

    def _cover_count(self) -> None:
        if self._count is _Count.ABOVE:
            self._count = _Count.COVERED

    def _write_in_place(self, data: bytes) -> None:
        """Write what leaves the cursor where it is."""
        last_byte = self._last_byte
        self._write(data)
        self._last_byte = last_byte

    def _write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(lambda: self._write(data))
            if self._stream is not None:
                self._stream.pause_output()  # another part of the program may have resumed it
            return
        self._last_byte = data[-1:]
        self._cover_count()
        self._wrote()
        if self.sink is not None:
            self.sink.write(data)

    # From this program.

    def tell(self, lines: str) -> None:
        """Print a message that the user has asked for, or needs."""
        self._between(lines, lambda: self._terminal.say(lines), self._last_line())

    def inform(self, line: str) -> None:
        """Print a message about the connection, unless ``--quiet`` forbids it."""
        if not self._is_quiet:
            self.tell(line)

    def begin_count(self, lines: str) -> None:
        """Print a message about the connection; :meth:`count` may change the figure of its last line."""
        if self.covers:
            self.count(lines)
            return
        last_line, size = self._last_line(), self._terminal.size()
        self.inform(lines)
        line = lines.rpartition("\n")[2]
        counts = (
            not self._is_quiet
            and self._held is None
            and self._terminal.moves_cursor
            and size is not None
            # One row for the message, and one at most behind it.
            and max(len(line), len(last_line.expandtabs())) < size.columns
        )
        self._count = _Count.ABOVE if counts else _Count.NONE

    def count(self, lines: str) -> None:
        """
        Write over the last line of :meth:`begin_count`, unless the machine has printed behind it.

        Behind a message of this program that line begins again. Over a program's screen a key has
        perhaps erased the message: it returns.
        """
        size = self._terminal.size()
        if self.covers:
            if self._held is None and not self._is_quiet:
                self.cover(lines, passes=True)
            return
        line = lines.rpartition("\n")[2]
        if size is not None:
            line = line[: size.columns - 1]  # the row below could not be erased
        if self._count is _Count.COVERED and self._held is None:
            self.begin_count(line)
        elif self._count is _Count.ABOVE:
            self._draw_above(line)

    def end_count(self, line: str) -> None:
        """Print a message about the connection over the line that counts, or behind what followed that line."""
        size = self._terminal.size()
        if self._count is _Count.ABOVE and size is not None and len(line) < size.columns:
            self._count = _Count.NONE
            self._draw_above(line)
        else:
            self.inform(line)

    def _draw_above(self, line: str) -> None:
        if self._terminal.draw is not None:
            self._terminal.draw(f"\x1b7\x1b[A\r\x1b(B\x1b[m{line}\x1b[K\x1b8".encode())

    # The user's output paces the stream through these.

    def pauseProducing(self) -> None:
        """The user's output takes no more for now."""
        self.is_paused = True
        if self._stream is not None:
            self._stream.pause_output()

    def resumeProducing(self) -> None:
        """The user's output takes more."""
        self.is_paused = False
        if self._stream is not None and self._held is None:
            self._stream.resume_output()

    def stopProducing(self) -> None:
        """The output is gone; the session hears of that otherwise."""

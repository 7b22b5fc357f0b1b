"""
One console session at the user's end: keys to the machine, output to the user.

**End of input.** With ``linger_seconds`` the session leaves after that time without output.
Otherwise it sends a half-close, and *the machine's side* ends the session when the output stops or
the process exits.  Without half-close (v4) this side leaves after :data:`QUIET_SECONDS`.  A machine
may never be quiet, so without ``--timeout`` a script's session ends :data:`SCRIPT_SECONDS` and the
linger time after the end of input.

**Lost connections.** A stream that can resume reports a loss with :meth:`ConsoleSession.outage`,
and keeps what is typed meanwhile.  A loss neither ends a script nor counts as silence of the
machine.  If the last input may not have reached the machine, a user at a terminal reads how many
keys are uncertain, and a script fails.
"""

from __future__ import annotations

import random
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater

from twisted_exec.api.status import APIError
from twisted_exec.cli.console.display import NO_TERMINAL, Display, UserTerminal
from twisted_exec.cli.console.escape import DIALOGS, EscapeCommand, Escapes, SysRq, Typed
from twisted_exec.cli.console.type_ahead import TypeAhead
from twisted_exec.cli.messages import explain, one_line
from twisted_exec.console.floor import NOBODY, understood
from twisted_exec.kube.console import RecordingNews
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.control_messages import (
    MESSAGE_CHARACTERS,
    SHUTTING_DOWN,
    Break,
    Ending,
    Message,
    Role,
    dropped_keys,
    keys_discarded,
    message_line,
)
from twisted_exec.wire.resume import NoticeKind, NoticeRole
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from twisted_exec.cli.console.dialog import Dialog
    from twisted_exec.cli.console.interfaces import NextSession, SessionScript, Sink, Source
    from twisted_exec.cli.console.people import Company, Person
    from twisted_exec.cli.console.scrollback import Scrollback
    from twisted_exec.cli.console.status import Outage
    from twisted_exec.wire.resume import Attendance, Notice

    Act = Callable[[EscapeCommand, Dialog, Scrollback], Coroutine[Any, Any, NextSession | None]]

QUIET_SECONDS = 1.0
NO_ANSWER_SECONDS = 4.0
"""A ping that waits longer is worth a line."""

SCRIPT_SECONDS = 60.0
"""Time for a machine to become quiet after the end of input; ``--timeout`` replaces this limit."""

TIMED_OUT_CODE = 124
"""The exit code of ``timeout(1)``."""
TIMED_OUT = "timed out, as --timeout says"
NEVER_QUIET = (
    f"timed out: the machine was not quiet within {SCRIPT_SECONDS:.0f} s after the end of input; "
    "--timeout sets another limit, and --timeout 0 none"
)

NOT_SENT = "the input was not sent"
"""Start of a script's error message about discarded input."""

WHEN_BACK = "open the console again when the server is back"

NO_BREAK = "this console has no BREAK; nothing was sent"
WHICH_KEY = "SysRq: a letter or digit sends it (h lists them); any other key cancels"
NO_JOB_CONTROL = "The shell has no job control: this program was not suspended."
NOTHING_TO_ASK = "This session is read-only; open another without --read-only."
NO_MESSAGES = (
    "The machine runtime of this console passes no messages on: it is of an earlier release."
)
NO_MARKS = "A session that cannot be resumed sends no messages."
NOT_LISTED = "names are for users who may list consolesessions"

RECEIPT_SECONDS = 5.0
"""Time for the runtime to say who gets a message."""
NAMES_SECONDS = 1.0
"""Time for the names of the viewers in the status."""
_MOST_MESSAGES = 5
"""Messages of other users that the status repeats."""

_INTERRUPT = b"\x03"

_WISHES: dict[EscapeCommand, Break | Role] = {
    EscapeCommand.BREAK: Break(),
    EscapeCommand.TAKE_OVER: Role.WRITER,
    EscapeCommand.RELEASE: Role.OBSERVER,
}

PATIENCE_SECONDS = 60.0
"""How long ``Retry-After`` is obeyed."""

_BUSY = (429, 503)

_DRAWN_SECONDS = 0.1
"""Silence after which a program of the machine has drawn its screen."""

# Time limit for the last bytes after the user has left.
_FAREWELL_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """
    The result of a session, for the shell.

    :param line: message for stderr, without newline; may be empty.
    :param signal: the signal to die of, instead of ``exit_code``.
    :param next: the session that the user has chosen to follow.
    """

    exit_code: int = 0
    line: str = ""
    signal: int = 0
    next: NextSession | None = None


class ConsoleSession(ConsoleUser):
    """
    Joins the user's input and output to the stream.

    :param interactive: the input is a terminal.
    :param read_only: nothing that is typed is sent, and the menu cannot change the role.
    :param act: carries out the commands of the escape menu that need a dialog; ``None`` for none.
    :param people: lists the sessions at the console, for the session with an id; ``None`` if nobody
        can.
    :param tells_company: tell the user at a terminal who joins and leaves.
    :param limited: end a script some time after the end of input if it has no other limit.
    :param quiet: leave out messages about the connection, and notices that the user is the writer.
    :param tell_recorded: gets messages about recordings, instead of the terminal.
    :param watch_network: calls its argument after each change of the network; returns a function
        that stops this.
    :ivar step: returns the step that the connection is at.
    :ivar finished: fires with the :class:`Outcome` after the output is flushed, or soon after the
        user decided to go.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        interactive: bool,
        terminal: UserTerminal = NO_TERMINAL,
        escapes: Escapes | None = None,
        read_only: bool = False,
        script: SessionScript | None = None,
        act: Act | None = None,
        people: Callable[[str], Awaitable[Sequence[Person]]] | None = None,
        tells_company: bool = False,
        linger_seconds: float | None = None,
        limited: bool = True,
        quiet: bool = False,
        tell_recorded: Callable[[str], None] | None = None,
        watch_network: Callable[[Callable[[], None]], Callable[[], None]] = lambda _: lambda: None,
    ) -> None:
        self.problem = ""
        self.step: Callable[[], str] = lambda: ""
        self.finished: Deferred[Outcome] = Deferred()
        self._clock = clock
        self._interactive = interactive
        self._terminal = terminal
        self._escapes = escapes if interactive else None
        self._read_only, self._takes_over = read_only, False
        self._discarded_since: float | None = None  # Ctrl-C, too
        self._is_discarded = False  # the machine's side says so
        self._linger_seconds, self._is_limited = linger_seconds, limited
        self._script, self._watch_network = script, watch_network
        self._tell_recorded = tell_recorded or self._inform_recorded
        self._timers = Timers(clock)
        self._display = Display(
            script=script,
            terminal=terminal,
            quiet=quiet,
            wrote=lambda: self._timers.restart("quiet"),
            last_line=self._last_line,
            when_quiet=lambda call: self._timers.after("drawn", _DRAWN_SECONDS, call, steady=True),
        )
        self._stream: ConsoleStream | None = None
        self._input: TypeAhead | None = None
        self._input_over = False
        self._connecting: Deferred[Any] | None = None
        self._attached_at: float | None = None
        self._outage: Outage | None = None
        self._is_silent = False  # the user knows that the server does not answer
        self._counts = False  # and no dialog came behind the line that says so
        self._was_paused = False  # at the last look
        self._outcome: Outcome | None = None
        self._recordings = RecordingNews()
        self._act = act if interactive and terminal.draw is not None else None
        self._scrollback: Scrollback | None = None
        self._dialog: Dialog | None = None
        self._acting: Deferred[None] | None = None
        self._people = people
        self._tells_company = tells_company and interactive and terminal.shows_more and not quiet
        self._company: Company | None = None
        self._looking: Deferred[None] | None = None  # for the names in the status
        self._messages: deque[tuple[float, str]] = deque(maxlen=_MOST_MESSAGES)

    def start(self, source: Source, sink: Sink, *, timeout_seconds: float | None = None) -> None:
        """
        Start, before the stream is attached; input that is not a terminal is read only after that.

        :param timeout_seconds: of the whole session, including connecting and lost connections.
        """
        self._input = TypeAhead(source, reads_on=self._interactive)
        if self._escapes is not None:
            self._escapes.begin_line()
        self._display.sink = sink
        if timeout_seconds is not None:
            self._timers.after("timeout", timeout_seconds, self.timed_out, steady=True)
        if self._interactive:
            source.resumeProducing()

    def connecting(self, attempt: Deferred[Any]) -> None:
        """
        Take note of the attempt to open the session, which the session's end cancels.

        The attempt may then end what the server has opened meanwhile; the session waits for that.
        """
        self._connecting = attempt

        def done(result: Any) -> Any:
            if self._connecting is attempt:
                self._connecting = None
                self._finish_if_done()
            return result

        attempt.addBoth(done)

    def discard_input(self, *, interrupts: bool = False) -> None:
        """
        Drop all input until the stream is attached.

        :param interrupts: also Ctrl-C, which otherwise ends the program.
        """
        assert self._input is not None
        if interrupts:
            self._discarded_since = self._clock.seconds()
        self._input.discard()

    def _last_line(self) -> bytes:
        """Return the machine's last line; empty while the machine is off."""
        if self._scrollback is None or self._display.notices.is_off:
            return b""
        return self._scrollback.last_line()

    @property
    def discarded_keys(self) -> int:
        return self._input.discarded if self._input is not None else 0

    @property
    def mid_line(self) -> bool:
        return self._display.mid_line

    @property
    def viewers(self) -> int:
        """Number of sessions at the console, with this session; 0 if unknown."""
        attendance = self._facts.attendance
        return 0 if attendance is None else int(attendance.viewers)

    @property
    def is_observer(self) -> bool:
        """True if the machine gets nothing of what the user types, as far as notices say so."""
        return self._read_only or self._display.notices.is_observer

    # The stream's events.

    def attached(self, stream: ConsoleStream, *, greets: bool = True) -> None:
        """
        Handle the attached stream.

        :param greets: greet the user now; otherwise :meth:`greet` does it later.
        """
        if self._outcome is not None or self._input is None:
            stream.abort()
            return
        self._stream, self._connecting = stream, None
        self._attached_at = self._clock.seconds()
        self._terminal.attached()
        if self._act is not None:
            # Imported here, because its patterns take a while and the connection is open by now.
            from twisted_exec.cli.console.scrollback import Scrollback

            self._scrollback = Scrollback()
        if greets:
            self.greet()
        self._display.open(stream)
        self.window_changed()
        if self._input.discards and self._escapes is not None:
            self._escapes.begin_line()  # the machine has nothing of the line
        self._input.open(stream)
        if self._interactive:
            self._listen()

    @property
    def _facts(self) -> ConsoleStream:
        """The stream, or a stream that knows nothing."""
        return ConsoleStream() if self._stream is None else self._stream

    def greet(self) -> None:
        """Say that the session is open, how to leave it, and about recording."""
        if self._outcome is not None:
            return
        if greeting := self._terminal.greeting():
            self._display.tell(greeting)
        if news := self._recordings.begun(self._facts.recorded):
            self._tell_recorded(news)

    def _listen(self) -> None:
        seconds = self._facts.overdue_seconds
        was_paused, self._was_paused = self._was_paused, seconds is None
        if seconds is None or was_paused:
            pass  # answers that came meanwhile are read until the next look
        elif seconds >= NO_ANSWER_SECONDS:
            line = f"no answer for {seconds:.0f} s"
            if self._is_silent and self._counts:
                self._display.count(line)
            else:
                leaves = f"; {self._how_to_leave}" if self._how_to_leave else ""
                first = "" if self._is_silent else f"the server does not answer{leaves}\n"
                self._display.begin_count(f"{first}{line}")
            self._is_silent = self._counts = True
        elif self._is_silent and not seconds:
            self._is_silent = False
            self._display.inform("the server answers again")
        self._timers.after("listen", 1, self._listen)

    def data_received(self, data: bytes) -> None:
        if self._outcome is None:
            self._is_discarded = False  # the notice that input arrives again may be missing
            self.remember(data)
            self._display.output(data)

    def remember(self, data: bytes) -> None:
        """Keep output for the escape menu, whether or not it is shown."""
        if self._scrollback is not None:
            self._scrollback.add(data)

    def show(self, data: bytes) -> None:
        """Show a screen in place of output."""
        if self._outcome is None:
            self._display.output(data)

    def notice(self, notice: Notice) -> None:
        if self._outcome is not None:
            return
        self._display.notice(notice)
        if self._company is not None:
            self._company.heard(notice.text)
        if notice.kind is NoticeKind.SAID:
            self._messages.append((self._clock.seconds(), notice.text))
        elif notice.kind is NoticeKind.RECEIPT:
            self._timers.cancel("receipt")
        self._is_discarded = understood(notice).kind is NoticeKind.DISCARDED
        if self._takes_over and notice.kind is NoticeKind.ROLE:
            self._takes_over = False
            if notice.role is not NoticeRole.WRITER and not notice.hint and self._dialog is None:
                self._open_dialog(EscapeCommand.TAKE_OVER, asks=False)

    def attendance_changed(self, attendance: Attendance) -> None:
        """
        Keep the writer, and tell the user about recordings that have begun or ended.

        An observer at a terminal also reads who the new writer is: the floor does not tell
        observers.
        """
        notices = self._display.notices
        writer = notices.attended(attendance)
        news = self._recordings.changed(attendance.recordings)
        if self._outcome is not None:
            return
        if writer and self.is_observer and self._interactive and self._terminal.shows_more:
            self._display.inform(f"[twisted-exec: {writer}]")
        if news:
            self._tell_recorded(news)
        if self._tells_company and self._people is not None:
            if self._company is None:
                # Imported here, because it asks the server, which a short session does not need.
                from twisted_exec.cli.console.people import Company

                self._company = Company(self._clock, self._look, self._tell_company)
            self._company.changed(attendance)

    async def _look(self) -> Sequence[Person]:
        assert self._people is not None
        return await self._people(self._facts.session)

    def _tell_company(self, line: str) -> None:
        self._display.inform(f"[twisted-exec: {line}]")

    def _inform_recorded(self, news: str) -> None:
        self._display.inform(f"This console is {news}.")

    def skipped(self, count: int | None) -> None:
        """Handle a gap of so many bytes; ``None`` for an unknown number."""
        if self._outcome is None:
            self._display.skipped(count)

    def outage(self, reason: str) -> None:
        """Handle the loss of the connection; the stream keeps the input, and reconnects."""
        if self._outcome is not None or self._outage is not None:
            return
        # Imported here, because the program starts faster without it.
        from twisted_exec.cli.console.status import Outage

        self._timers.pause()
        self._is_silent = False
        if self._script is not None:
            self._script.outage()
        leaves = self._how_to_leave + ", not Ctrl-C" * (self._escapes is not None)
        display = self._display
        self._outage = Outage(self._clock, reason, display.begin_count, display.count, leaves)
        if self._stream is not None:
            self._outage.watch(self._watch_network, self._stream.network_changed)

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        """Handle the new connection."""
        outage, self._outage = self._outage, None
        if outage is not None:
            outage.stop()
        if self._outcome is not None:
            return
        keys = dropped_keys(uncertain, unsent) if uncertain else ""
        if keys and not self._interactive:
            line = f"the connection was lost, and {keys}"
            if self._script is not None:
                self._script.failed(line)
            self._end(Outcome(1, line))
            return
        self._timers.resume()
        if self._script is not None:
            self._script.resumed()
        if outage is None:
            return
        line = outage.end_line(seconds, self._facts.missed_bytes)
        if keys:
            if self._escapes is not None:
                self._escapes.begin_line()  # the machine has not all of the line
            self._display.tell(f"{line}; {keys}")
        elif outage.was_told:
            self._display.inform(line)

    @property
    def _how_to_leave(self) -> str:
        if not self._interactive:
            return "Ctrl-C leaves"
        return self._escapes.how_to_leave if self._escapes is not None else ""

    def ended(self, ending: Ending) -> None:
        line = "" if self._input_over and ending.ok else f"session ended: {_told(ending)}"
        following = None
        if ending.reason == SHUTTING_DOWN:
            following = self._terminal.again(_told(ending))
            line += f"; {WHEN_BACK}"
        self._end(Outcome(_exit_code(ending), line, next=following), in_haste=False)

    def failed(self, line: str) -> None:
        self._end(Outcome(1, line), in_haste=False)

    def detached(self, reason: str) -> None:
        """Handle the end of the stream; ``reason`` matters only without an earlier end."""
        self._stream = None
        self.failed(reason)
        self._finish_if_done()

    # The user's events.

    def typed(self, data: bytes) -> None:
        if self._display.uncover():
            self._redraw()
        if self._dialog is not None:
            leave = self._escapes.leave if self._escapes is not None else None
            data, leaves = leave.feed(data) if leave is not None else (data, False)
            self._type_into(self._dialog, data)
            if leaves:
                self._leave()
            return
        if self._escapes is None:
            pieces: list[Typed] = [data]
        else:
            pieces = self._escapes.feed(data, is_sent=self._is_sent)
        for piece in pieces:
            if self._outcome is not None:
                return
            if self._dialog is not None and isinstance(piece, bytes):
                self._type_into(self._dialog, piece)
            else:
                self._do(piece)

    @property
    def _is_sent(self) -> bool:
        """False if the machine gets nothing of what is typed now, as far as it is known."""
        attendance = self._facts.attendance
        return not (
            (self._input is not None and self._input.discards)
            or self._display.notices.is_off
            or self.is_observer
            or self._is_discarded
            or (attendance is not None and attendance.withheld)
        )

    def _do(self, typed: Typed) -> None:
        if isinstance(typed, bytes):
            ends = self._interactive and self._discarded_since is None and _INTERRUPT in typed
            if ends and self._stream is None:
                self.interrupted(signal.SIGINT)  # there is no machine yet to receive Ctrl-C
            else:
                self._send(typed)
        elif isinstance(typed, SysRq):
            if not typed.key and not self._read_only:
                self._display.tell(WHICH_KEY)
            elif self._wish(Break()):
                self._send(typed.key)
                self._tell_sent(f"BREAK and {typed.key.decode()} sent")
        elif typed is EscapeCommand.LEAVE:
            self._leave()
        elif typed is EscapeCommand.HELP:
            assert self._escapes is not None
            self._tell_about(self._escapes.help())
        elif typed is EscapeCommand.STATUS:
            self._tell_status()
        elif typed is EscapeCommand.SUSPEND:
            self._suspend()
        elif typed in DIALOGS:
            self._open_dialog(typed)
        elif typed is EscapeCommand.TAKE_OVER and self._asks_first:
            self._open_dialog(typed, self._confirm_takeover)
        elif self._wish(_WISHES[typed]) and typed is EscapeCommand.BREAK:
            self._tell_sent("BREAK sent")

    def _leave(self) -> None:
        self._end(Outcome(line=self._terminal.farewell()))

    def _suspend(self) -> None:
        if self._terminal.suspend():
            self.continued()
        else:
            self._display.tell(NO_JOB_CONTROL)

    def continued(self) -> None:
        if not self._interactive or self._outcome is not None:
            return
        if self._terminal.full_screen():
            self._redraw()
        self._display.tell(f"The console of {self._terminal.place()} goes on.")

    def _tell_sent(self, line: str) -> None:
        if not self.is_observer and self._stream is not None and self._outage is None:
            self._display.tell(line)

    def _tell_about(self, lines: list[str]) -> None:
        place = self._terminal.place()
        self._display.tell("\n".join([place] * bool(place) + lines))

    @property
    def _asks_first(self) -> bool:
        """Whether a takeover takes the console from a user, and there is a terminal to ask at."""
        notices = self._display.notices
        is_ready = self._scrollback is not None and not self._read_only
        return is_ready and notices.may_take_over and notices.writer not in ("", NOBODY)

    async def _confirm_takeover(
        self, _command: EscapeCommand, dialog: Dialog, _scrollback: Scrollback
    ) -> None:
        """Ask as the web console does, and take over."""
        writer = self._display.notices.writer
        dialog.tell(f"{writer} types at this console. If you take it over, {writer} only observes.")
        if await dialog.key("y takes over; any other key cancels: ") == "y":
            self._wish(Role.WRITER)

    def _open_dialog(
        self, command: EscapeCommand, act: Act | None = None, *, asks: bool = True
    ) -> None:
        act = act or self._act
        if act is None or self._terminal.draw is None:
            return
        if self._read_only and command in (EscapeCommand.POWER, EscapeCommand.MESSAGE):
            self._display.tell(NOTHING_TO_ASK)
            return
        if self._scrollback is None:
            if self._input is not None and self._input.discards:
                self._display.tell(
                    "this command needs the server; it works when the console is open"
                )
                return
            # The keys that follow are for the command, not for the machine.
            self.discard_input()
            self._display.tell("not connected yet; until then no further key is sent")
            return
        # Imported here, because most sessions have no dialog.
        from twisted_exec.cli.console.dialog import Dialog

        self._display.hold()
        dialog = self._dialog = Dialog(
            self._clock,
            self._terminal.draw,
            self._terminal.size,
            moves_cursor=self._terminal.moves_cursor,
            mid_line=self.mid_line,
            full_screen=self._terminal.full_screen(),
            asks=asks,
        )
        writer = self._display.notices.writer
        if command is EscapeCommand.POWER and self.is_observer and writer:
            dialog.tell(f"You are an observer; {writer} is the writer.")
        if command is EscapeCommand.MESSAGE:
            act = self._write_message
        acting = Deferred.fromCoroutine(self._carry_out(act, command, dialog, self._scrollback))
        self._acting = acting.addCallbacks(self.go_to, self._cancelled)
        acting.addBoth(lambda _: self._close_dialog(dialog))

    async def _carry_out(
        self, act: Act, command: EscapeCommand, dialog: Dialog, scrollback: Scrollback
    ) -> NextSession | None:
        following = None
        try:
            following = await act(command, dialog, scrollback)
        except CancelledError:
            raise
        except Exception as problem:
            if self._outcome is not None:
                return None
            dialog.tell(one_line(explain(problem)))
        if following is None and command in DIALOGS and not dialog.has_asked:
            # The user may have typed the answers already: they must not reach the machine.
            await dialog.line("Enter goes on: ")
        return following

    def _cancelled(self, failure: Failure) -> None:
        failure.trap(CancelledError)

    async def _write_message(
        self, _command: EscapeCommand, dialog: Dialog, _scrollback: Scrollback
    ) -> None:
        attendance, longest = self._facts.attendance, MESSAGE_CHARACTERS
        if attendance is not None:  # it follows the beginning of a session
            longest = int(attendance.message_characters)
        is_resumable = self._facts.is_resumable
        if not (longest and is_resumable):
            dialog.tell(NO_MESSAGES if is_resumable else NO_MARKS)
            return
        if self._display.notices.is_denied:
            dialog.tell(f"your message was not sent: {MAY_ONLY_OBSERVE}")
            return
        text = await dialog.line("Message to all viewers: ", longest=longest)
        line = message_line(text or "")
        if not line:
            dialog.tell("Nothing was sent.")
        elif self._stream is None or self._outage is not None:
            dialog.tell("your message was not sent: the connection is lost")
        else:
            self._timers.after("receipt", RECEIPT_SECONDS, self._has_no_receipt, steady=True)
            self._stream.say(Message(line))

    def _has_no_receipt(self) -> None:
        self._display.tell("your message may not have been sent: the server has not confirmed it")

    def _type_into(self, dialog: Dialog, data: bytes) -> None:
        if not dialog.typed(data) and _INTERRUPT in data and self._acting is not None:
            self._acting.cancel()  # a request to the server, for which the user does not wait

    def go_to(self, following: NextSession | None) -> None:
        """End, so that another session follows; ``None`` does nothing."""
        if following is not None:
            self._end(Outcome(next=following))

    def _close_dialog(self, dialog: Dialog) -> None:
        self._dialog = self._acting = None
        self._counts, self._was_paused = False, True
        if self._outcome is None and (count := dialog.unread_keys):
            dialog.tell(keys_discarded(count, "typed meanwhile"))
        self._display.release(begins_line=not dialog.mid_line)
        if self._terminal.full_screen():
            self._redraw()
        if self._outcome is None and dialog.held:
            self.typed(dialog.held)

    def _redraw(self) -> None:
        """
        Have the screen drawn again by the server, and by the machine's program, which does so when
        the size changes.
        """
        self._terminal.redraw()
        size = self._terminal.size()
        if self._stream is not None and size is not None:
            self._stream.resize(replace(size, rows=max(1, size.rows - 1)))
            self._stream.resize(size)

    def _wish(self, wish: Break | Role) -> bool:
        if self._read_only:
            assert self._escapes is not None
            self._escapes.begin_line()  # a SysRq needs no key
            self._display.tell(NOTHING_TO_ASK)
            return False
        attendance = self._facts.attendance
        if isinstance(wish, Break) and attendance is not None and not attendance.has_break:
            self._display.tell(NO_BREAK)
            return False
        self._send(wish)
        self._takes_over = wish is Role.WRITER
        return True

    def _tell_status(self) -> None:
        """Show the status, with the names of the viewers if the server lists them soon."""
        attendance = self._facts.attendance
        if self._people is None or attendance is None or self._outage is not None:
            self._tell_about(self._status())
            return
        # Imported here, because the program starts faster without it.
        from twisted_exec.cli.console.people import names_of

        def tell(names: str) -> None:
            if self._outcome is None:
                self._tell_about(self._status(names))

        def unnamed(failure: Failure) -> str:
            error = failure.value
            return NOT_LISTED if isinstance(error, APIError) and error.code == 403 else ""

        looking = Deferred.fromCoroutine(self._look()).addTimeout(NAMES_SECONDS, self._clock)
        self._looking = looking.addCallbacks(names_of, unnamed).addCallback(tell)

    def _status(self, names: str = "") -> list[str]:
        # Imported here, because the program starts faster without it.
        from twisted_exec.cli.console.status import duration, status

        now, since = self._clock.seconds(), self._attached_at
        outage = self._outage.status() if self._outage is not None else ""
        if self._discarded_since is not None and since is None:
            outage = f"not connected for {duration(now - self._discarded_since)}"
        return status(
            self._stream,
            seconds=now - since if since is not None else None,
            outage=outage,
            problem=self.problem,
            notices=self._display.notices,
            read_only=self._read_only,
            names=names,
            messages=[f"{duration(now - at)} ago: {text}" for at, text in self._messages],
        )

    def input_ended(self) -> None:
        self._input_over = True
        if self._interactive:
            self._end(Outcome(1))  # the terminal's window was closed
            return
        if "timeout" not in self._timers and self._is_limited:
            seconds = SCRIPT_SECONDS + (self._linger_seconds or 0)
            self._timers.after("limit", seconds, lambda: self.timed_out(NEVER_QUIET))
        if (
            self._linger_seconds is None
            and self._stream is not None
            and self._stream.can_half_close
        ):
            self._stream.end_input()
        else:
            self._await_quiet()

    def window_changed(self) -> None:
        self._display.resized()
        size = self._terminal.size()
        if self._stream is not None and size is not None:
            self._stream.resize(size)
        if self._dialog is not None:
            self._dialog.resized()

    def output_lost(self, error: OSError | None) -> None:
        """The output is flushed and closed, or cannot be written."""
        self._display.sink = None
        outcome = Outcome()
        if error is not None:
            outcome = Outcome(1, f"cannot write output: {error.strerror}")
            if self._script is not None:
                self._script.failed(outcome.line)
            if self._outcome is not None and not (self._outcome.line or self._outcome.signal):
                self._outcome = outcome  # it was the last output
        self._end(outcome)
        self._finish_if_done()

    def conclude(self, outcome: Outcome) -> None:
        """Leave when the output is written; a script is done, or has failed."""
        self._end(outcome, in_haste=False)

    def interrupted(self, number: int) -> None:
        """Handle a deadly signal; after the session's end it stops writing the last output."""
        if self._outcome is None:
            self._end(Outcome(signal=number))
        else:
            self._finish(Outcome(signal=number))

    def _send(self, what: bytes | Break | Role) -> None:
        if self._input is not None:
            self._input.send(what)

    # The end.

    def _await_quiet(self) -> None:
        seconds = QUIET_SECONDS if self._linger_seconds is None else self._linger_seconds
        self._timers.after("quiet", seconds, self._fell_quiet)

    def _fell_quiet(self) -> None:
        is_stuck = self._input is not None and self._input.is_stuck
        if is_stuck or self._display.is_paused:  # the silence may be due to our own pause
            self._await_quiet()
        elif why := self._display.notices.not_sent:
            self._end(Outcome(1, f"{NOT_SENT}: {why}"))
        elif why := self._display.notices.interruption:
            self._end(Outcome(1, f"the machine ended: {why}"))
        else:
            self._end(Outcome(), in_haste=False)

    def timed_out(self, line: str = TIMED_OUT) -> None:
        if self._outcome is None and (why := self._hindrance()):
            line = f"{line}: {why}"
        outcome = Outcome(TIMED_OUT_CODE, line)
        if self._outcome is None:
            self._end(outcome)
        else:
            self._finish(outcome)

    def _hindrance(self) -> str:
        """Return why the machine sends nothing, if that is known; or an empty string."""
        # Without seconds, because a fleet prints equal messages once.
        if self._outage is not None:
            return "the connection is lost"
        if self._stream is None:
            return self.problem or self.step()
        is_silent = (self._facts.overdue_seconds or 0.0) >= 1
        return "the server does not answer" * is_silent

    def _end(self, outcome: Outcome, *, in_haste: bool = True) -> None:
        """
        Set the outcome, once, and end both sides.

        :param in_haste: the user left: do not wait long.
        """
        if self._outcome is not None:
            return
        self._outcome = outcome
        for work in (self._acting, self._looking):
            if work is not None:
                work.cancel()
        if self._company is not None:
            self._company.stop()
        attempt = self._connecting
        if attempt is not None:
            attempt.cancel()
        if in_haste or self._connecting is not None:
            # A server that is known to be silent does not take the last bytes either.
            seconds = 0 if self._is_silent else _FAREWELL_SECONDS
            self._timers.after("farewell", seconds, lambda: self._finish(outcome), steady=True)
        if self._input is not None:
            self._input.close()
        if self._stream is not None:
            self._stream.leave()
        self._display.close()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        is_gone = self._stream is None and self._connecting is None
        if self._outcome is not None and is_gone and self._display.sink is None:
            self._finish(self._outcome)

    def _finish(self, outcome: Outcome) -> None:
        self._timers.cancel_all()
        if self._outage is not None:
            self._outage.stop()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
        attempt, self._connecting = self._connecting, None
        if attempt is not None:
            attempt.cancel()  # once more: it does not wait any longer
        if not self.finished.called:
            self.finished.callback(outcome)


def _told(ending: Ending) -> str:
    return f"{ending.reason}: {ending.message}" if ending.message else ending.reason


def _exit_code(ending: Ending) -> int:
    if ending.exit_code is not None:
        return ending.exit_code
    return 0 if ending.ok else 1


@dataclass
class _Timer:
    seconds: float
    call: Callable[[], None]
    is_steady: bool
    pending: IDelayedCall | None = None


class Timers:
    """
    Timers with names.

    While the connection is lost, most of what they wait for cannot happen.  So :meth:`pause` stops
    all but the steady ones, and :meth:`resume` starts them anew with their full time.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._timers: dict[str, _Timer] = {}
        self._is_paused = False

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def after(
        self, name: str, seconds: float, call: Callable[[], None], *, steady: bool = False
    ) -> None:
        """
        Call later, instead of the earlier call of that name.

        :param steady: the time goes on during a pause.
        """
        self.cancel(name)
        timer = self._timers[name] = _Timer(seconds, call, steady)
        if steady or not self._is_paused:
            self._start(name, timer)

    def restart(self, name: str) -> None:
        timer = self._timers.get(name)
        if timer is not None and timer.pending is not None:
            timer.pending.reset(timer.seconds)

    def cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None and timer.pending is not None:
            timer.pending.cancel()

    def cancel_all(self) -> None:
        for name in list(self._timers):
            self.cancel(name)

    def pause(self) -> None:
        """Stop all timers that are not steady."""
        self._is_paused = True
        for timer in self._timers.values():
            if timer.pending is not None and not timer.is_steady:
                timer.pending.cancel()
                timer.pending = None

    def resume(self) -> None:
        self._is_paused = False
        for name, timer in self._timers.items():
            if timer.pending is None:
                self._start(name, timer)

    def _start(self, name: str, timer: _Timer) -> None:
        timer.pending = self._clock.callLater(timer.seconds, self._due, name)

    def _due(self, name: str) -> None:
        self._timers.pop(name).call()


def patiently(
    attempt: Callable[[], Deferred[ConsoleStream]], clock: Any, say: Callable[[str], None]
) -> Deferred[ConsoleStream]:
    """
    Open the console, again for as long as a busy server names a time to come again.

    :return: fails with any other error, and when the waits exceed :data:`PATIENCE_SECONDS`;
        cancelling ends the wait.
    """

    async def opened() -> ConsoleStream:
        left = PATIENCE_SECONDS
        while True:
            try:
                return await attempt()
            except APIError as error:
                seconds = error.retry_after_seconds or 0
                if error.code not in _BUSY or not 0 < seconds <= left:
                    raise
                say(f"{one_line(error.message)}; trying again in {seconds} s")
            # Not all at the same time, or the server would refuse the same number again.
            pause = seconds + random.uniform(0, 1)
            left -= pause
            await deferLater(clock, pause)

    return Deferred.fromCoroutine(opened())

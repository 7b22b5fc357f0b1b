"""
One console session at the user's end: keys to the machine, output to the user.

**Lost connections.** A stream that can resume reports a loss with :meth:`ConsoleSession.outage`,
and keeps what is typed meanwhile.  A loss neither ends a script nor counts as silence of the
machine.  If the last input may not have reached the machine, a user at a terminal reads how many
keys are uncertain, and a script fails.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.cli.console.display import NO_TERMINAL, Display, SessionScript, UserTerminal
from twisted_exec.cli.console.escape import DIALOGS, EscapeCommand, Escapes, SysRq, Typed
from twisted_exec.cli.console.menu_command import Conversation, write_message
from twisted_exec.cli.console.outage import Outage, Silence
from twisted_exec.cli.console.pausable_timers import PausableTimers
from twisted_exec.cli.console.people import People
from twisted_exec.cli.console.status import status
from twisted_exec.cli.console.takeover import Takeover
from twisted_exec.cli.console.type_ahead import (
    SCRIPT_SECONDS,
    Discards,
    EndOfInput,
    TypeAhead,
)
from twisted_exec.cli.console.window import Window
from twisted_exec.cli.messages import age, one_line
from twisted_exec.console.notices import NOBODY, with_kind
from twisted_exec.kube.recording_news import RecordingNews
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.endings import POOL_DELETED, POWERED_OFF, REVOKED, Ending
from twisted_exec.wire.marks import NoticeKind
from twisted_exec.wire.resize import Break, Message, Role
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE
from twisted_exec.wire.typed_keys import dropped_keys, unconfirmed_keys

if TYPE_CHECKING:
    from twisted_exec.cli.console.dialog import Dialog
    from twisted_exec.cli.console.interfaces import NextSession, Sink, Source
    from twisted_exec.cli.console.menu_command import Talk
    from twisted_exec.cli.console.people import Person
    from twisted_exec.cli.console.scrollback import Scrollback
    from twisted_exec.wire.marks import Attendance, Notice

    Act = Callable[[EscapeCommand, Dialog, Scrollback], Coroutine[Any, Any, NextSession | None]]

TIMED_OUT_CODE = 124
"""The exit code of ``timeout(1)``."""
TIMED_OUT = "timed out, as --timeout says"
NEVER_QUIET = (
    f"timed out: the machine was not quiet within {SCRIPT_SECONDS:.0f} s after the end of input; "
    "--timeout sets another limit, and --timeout 0 none"
)

NOT_SENT = "the input was not sent"
"""Start of a script's error message about discarded input."""

WHEN_POOL_BACK = (
    "a poollet that starts creates its pool again; open the console again when the pool is back"
)

NO_BREAK = "this console has no BREAK; nothing was sent"
WHICH_KEY = "SysRq: a letter or digit sends it (h lists them); any other key cancels"
NO_JOB_CONTROL = "The shell has no job control: this program was not suspended."
NO_SCREEN = "this command asks or shows something on a terminal: do not redirect both outputs"
NOTHING_TO_ASK = "This session is read-only; open another without --read-only."

RECEIPT_SECONDS = 5.0
"""Time for the runtime to say who gets a message."""
_MOST_MESSAGES = 5
"""
Messages of other users, and about dropped keys, that the status repeats.

With its age, none is old news; so nothing has to guess which of them a user has read.
"""

_INTERRUPT = b"\x03"

_WISHES: dict[EscapeCommand, Break | Role] = {
    EscapeCommand.BREAK: Break(),
    EscapeCommand.RELEASE: Role.OBSERVER,
}


_DRAWN_SECONDS = 0.1
"""Silence after which a program of the machine has drawn its screen."""

# Time limit for the last bytes after the user has left.
_FAREWELL_SECONDS = 1.0

_CONFIRM_SECONDS = 2.0
"""
Time for a server that answers to confirm input, besides the round trip.

It confirms keys up to a second after the machine has got them.
"""


@dataclass(frozen=True)
class Outcome:
    """
    The result of a session, for the shell.

    :param line: message for stderr, without newline; may be empty.
    :param signal: the signal to die of, instead of ``exit_code``.
    :param next: the session that the user has chosen to follow.
    :param ending: the server's end of the session; ``None`` if this side ended it, or it was lost.
    """

    exit_code: int = 0
    line: str = ""
    signal: int = 0
    next: NextSession | None = None
    ending: Ending | None = None


class Life(Enum):
    """The phases of a session's life; :data:`TRANSITIONS` has their order."""

    NEW = "new"
    """It has no input and output yet."""
    CONNECTING = "connecting"
    """It has no stream yet."""
    CARRIED = "carried"
    """Its stream is up."""
    WAITING = "waiting"
    """The connection is lost, and the stream makes another."""
    ENDING = "ending"
    """Its outcome is known; the last output is written, and the stream ends."""
    OVER = "over"
    """:attr:`ConsoleSession.finished` has fired."""


TRANSITIONS: Mapping[Life, frozenset[Life]] = {
    Life.NEW: frozenset({Life.CONNECTING, Life.ENDING}),
    Life.CONNECTING: frozenset({Life.CARRIED, Life.ENDING}),
    Life.CARRIED: frozenset({Life.WAITING, Life.ENDING}),
    Life.WAITING: frozenset({Life.CARRIED, Life.ENDING}),
    Life.ENDING: frozenset({Life.OVER}),
    Life.OVER: frozenset(),
}
"""What may follow each phase of a session's life."""


class ConsoleSession(ConsoleUser, Living[Life]):
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
    :ivar life: where the session is in its life.
    :ivar step: returns the step that the connection is at.
    :ivar finished: fires with the :class:`Outcome` after the output is flushed, or soon after the
        user decided to go.
    """

    transitions = TRANSITIONS

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
    ) -> None:
        self.life = Life.NEW
        self.step: Callable[[], str] = lambda: ""
        self.finished: Deferred[Outcome] = Deferred()
        self._clock = clock
        self._interactive = interactive
        self._terminal = terminal
        self._escapes = escapes if interactive else None
        self._read_only = read_only
        self._describe_wait = _no_wait
        self._machine_discards = False  # as its last notice says
        self._script = script or SessionScript()
        self._tell_recorded = tell_recorded or self._inform_recorded
        self._timers = PausableTimers(clock)
        self._display = Display(
            script=script,
            terminal=terminal,
            quiet=quiet,
            wrote=lambda: self._end_of_input.put_off(),
            last_line=self._last_line,
            draws_rows=self._draws_rows,
            when_quiet=lambda call: self._timers.after("drawn", _DRAWN_SECONDS, call, steady=True),
        )
        self._stream: ConsoleStream | None = None
        self._input: TypeAhead | None = None
        self._end_of_input = EndOfInput(
            self._timers,
            linger_seconds,
            limited=limited,
            is_held_up=self._is_held_up,
            quiet=self._fell_quiet,
            late=lambda: self.timed_out(NEVER_QUIET),
        )
        self._connecting: Deferred[Any] | None = None
        self._attached_at = 0.0
        self._outage: Outage | None = None  # the present one
        self._silence: Silence | None = None  # looks whether the server answers
        self._dropped = self._unsent = 0  # keys of which the user is still to read
        self._farewell: str | None = None  # to a user who has left
        self._outcome = Outcome()  # from the phase ``ENDING`` on
        self._recordings = RecordingNews()
        self._act = act if interactive and terminal.draw is not None else None
        self._window = Window(self, clock, self._timers, terminal, self._display)
        tells_company = tells_company and interactive and terminal.shows_more and not quiet
        self._people = People(self, clock, people, tells=tells_company)
        self._takeover = Takeover(
            self, self._timers, self._display, self._escapes, self._people.soon
        )
        self._scrollback: Scrollback | None = None
        self._conversation: Conversation | None = None
        self._messages: deque[tuple[float, str]] = deque(maxlen=_MOST_MESSAGES)

    @property
    def _is_live(self) -> bool:
        return self.life is not Life.ENDING and self.life is not Life.OVER

    def start(self, source: Source, sink: Sink, *, timeout_seconds: float | None = None) -> None:
        """
        Start, before the stream is attached; input that is not a terminal is read only after that.

        :param timeout_seconds: of the whole session, including connecting and lost connections.
        """
        self._become(Life.CONNECTING)
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

    def await_approval(self, describe: Callable[[], str]) -> None:
        """
        Drop a user's keys, also those typed before, until :meth:`approved`; a script's input is kept.

        :param describe: returns what users read of the wait.
        """
        self._describe_wait = describe
        if self._interactive and self._input is not None and self.life is Life.CONNECTING:
            self._input.drop(self._takeover.forget())
            self._input.begin_wait()

    def approved(self) -> None:
        self._describe_wait = _no_wait
        if self._interactive and self._input is not None and self.life is Life.CONNECTING:
            self._input.end_wait()
            if self._escapes is not None:
                self._escapes.begin_line()  # the machine gets nothing of what was typed before

    @property
    def _discards(self) -> bool:
        return self._input is not None and self._input.discards is not Discards.NONE

    def _last_line(self) -> bytes:
        """Return the machine's last line; empty while the machine is off."""
        if self._scrollback is None or self._display.notices.is_off:
            return b""
        return self._scrollback.last_line()

    def _draws_rows(self, rows: int) -> bool:
        attendance = self.facts.attendance
        if attendance is not None and attendance.size is not None:
            rows = max(rows, attendance.size.rows)  # the program draws for the writer's window
        return self._scrollback is not None and self._scrollback.draws_rows(rows)

    @property
    def discarded_keys(self) -> int:
        return self._input.discarded if self._input is not None else 0

    @property
    def mid_line(self) -> bool:
        return self._display.mid_line

    @property
    def viewers(self) -> int:
        """Number of sessions at the console, with this session; 0 if unknown."""
        attendance = self.facts.attendance
        return 0 if attendance is None else int(attendance.viewers)

    @property
    def waiting_keys(self) -> int:
        """Number of keys and requests that the server has not confirmed."""
        return self.facts.waiting_keys

    @property
    def may_wish(self) -> bool:
        """Whether a wish for a role is sent, now or when the stream is attached."""
        return not self._read_only and not self._discards

    @property
    def is_carried(self) -> bool:
        """True while the connection is up."""
        return self.life is Life.CARRIED

    @property
    def is_talking(self) -> bool:
        """True while a conversation has the terminal."""
        return self._conversation is not None

    @property
    def is_attached(self) -> bool:
        """True if the session has a stream, also while its connection is lost."""
        return self._stream is not None

    @property
    def has_dialogs(self) -> bool:
        """True if a command that needs a dialog can have it, once the stream is attached."""
        return self._act is not None

    @property
    def is_writer(self) -> bool:
        """True if the session has the floor, as far as the server says so."""
        attendance = self.facts.attendance
        return not self.is_observer and attendance is not None and bool(attendance.writer)

    @property
    def is_observer(self) -> bool:
        """True if the machine gets nothing of what the user types, as far as notices say so."""
        return self._read_only or self._display.notices.is_observer

    @property
    def sends_late(self) -> bool:
        return not self._interactive

    # The stream's events.

    def attached(self, stream: ConsoleStream, *, greets: bool = True) -> None:
        """
        Handle the attached stream.

        :param greets: greet the user now; otherwise :meth:`greet` does it later.
        """
        if self.life is not Life.CONNECTING:
            stream.abort()
            return
        assert self._input is not None
        self._become(Life.CARRIED)
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
        if self._discards and self._escapes is not None:
            self._escapes.begin_line()  # the machine has nothing of the line
        self._input.open(stream)
        self._takeover.attached()
        if self._interactive:
            self._silence = Silence(self._display, self._how_to_leave)
            self._listen(self._silence)

    @property
    def facts(self) -> ConsoleStream:
        """The stream, for what it knows; until there is one, a stream that knows nothing."""
        return ConsoleStream() if self._stream is None else self._stream

    def greet(self) -> None:
        """Say that the session is open, how to leave it, and about recording."""
        if not self._is_live:
            return
        if greeting := self._terminal.greeting():
            self._display.tell(greeting)
        if news := self._recordings.begun(self.facts.recorded_input):
            self._tell_recorded(news)

    def _listen(self, silence: Silence) -> None:
        overdue_seconds = self.facts.overdue_seconds
        silence.look(overdue_seconds)
        if overdue_seconds == 0:
            self._window.answered()
        self._timers.after("listen", 1, partial(self._listen, silence))

    def data_received(self, data: bytes) -> None:
        if self._is_live:
            self._machine_discards = False  # the notice that input arrives again may be missing
            self.remember(data)
            self._display.output(data)
            self._window.compare(has_drawn=True)

    def remember(self, data: bytes) -> None:
        """Keep output for the escape menu, whether or not it is shown."""
        if self._scrollback is not None:
            self._scrollback.add(data)

    def show(self, data: bytes) -> None:
        """Show a screen in place of output."""
        if self._is_live:
            self._display.output(data)
            self._window.shown()

    def notice(self, notice: Notice) -> None:
        if not self._is_live:
            return
        notice = with_kind(notice)
        self._display.notice(notice)
        self._people.heard(notice.text)
        if notice.kind is NoticeKind.SAID:
            self._messages.append((self._clock.seconds(), notice.text))
        elif notice.kind is NoticeKind.RECEIPT:
            self._timers.cancel("receipt")
        self._machine_discards = notice.kind is NoticeKind.DISCARDED
        if notice.kind is NoticeKind.RESTARTED and self._escapes is not None:
            self._escapes.begin_line()  # the machine has nothing of what was typed before
        if notice.kind is NoticeKind.ROLE:
            self._takeover.noticed(notice)

    def attendance_changed(self, attendance: Attendance) -> None:
        """
        Keep the writer, and tell the user about recordings that have begun or ended.

        An observer at a terminal also reads who the new writer is: the floor does not tell
        observers.
        """
        notices = self._display.notices
        writer = notices.attended(attendance)
        news = self._recordings.changed(attendance.recordings)
        if not self._is_live:
            return
        if writer and self.is_observer and self._interactive and self._terminal.shows_more:
            self.inform(writer)
        if news:
            self._tell_recorded(news)
        self._window.compare()
        self._people.changed(attendance)
        self._takeover.go_on()  # the role precedes it

    def inform(self, line: str) -> None:
        self._display.inform(f"[twisted-exec: {line}]")

    def _inform_recorded(self, news: str) -> None:
        self._display.inform(f"This console is {news}.")

    def skipped(self, count: int | None) -> None:
        """Handle a gap of so many bytes; ``None`` for an unknown number."""
        if self._is_live:
            self._display.skipped(count)

    def outage(self, reason: str) -> None:
        """Handle the loss of the connection; the stream keeps the input, and reconnects."""
        if self.life is not Life.CARRIED:
            return
        self._become(Life.WAITING)
        self._machine_discards = False  # the server says it again where that still holds
        self._timers.pause()
        if self._silence is not None:
            self._silence.lost()
        self._script.outage()
        self._outage = Outage(
            self._clock,
            reason,
            self._display,
            self._how_to_leave + ", not Ctrl-C" * (self._escapes is not None),
            lambda: self.facts.waiting_keys if self._is_sent else 0,
            lambda: self.facts.drops_keys,
        )

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        """Handle the new connection."""
        if self.life is not Life.WAITING:
            return
        keys = self.dropped(uncertain, unsent) if uncertain else ""
        line = f"the connection was lost, and {keys}"
        if keys and not self._interactive:
            self._script.failed(line)
            self._end(Outcome(1, line))
            return
        self._become(Life.CARRIED)
        outage = self._end_outage()
        self._timers.resume()
        self._script.resumed()
        if outage is not None:
            outage.resumed(seconds, self.facts.missed_bytes)
        if keys:
            self._dropped += uncertain
            self._unsent += unsent
            self._messages.append((self._clock.seconds(), line))
            if self._escapes is not None:
                self._escapes.begin_line()  # the machine has not all of the line

    def caught_up(self) -> None:
        """Tell the user of dropped keys: before the output of the loss, it would scroll away."""
        dropped, self._dropped = self._dropped, 0
        unsent, self._unsent = self._unsent, 0
        if dropped and self._is_live:
            self._display.tell(f"the connection was lost, and {dropped_keys(dropped, unsent)}")

    def dropped(self, dropped: int, unsent: int) -> str:
        if self._interactive and not (self._is_sent or self._takeover.is_wished):
            return ""  # the user knows that the machine gets nothing
        return dropped_keys(dropped, unsent)

    def _end_outage(self) -> Outage | None:
        outage, self._outage = self._outage, None
        if outage is not None:
            outage.stop()
        return outage

    @property
    def _how_to_leave(self) -> str:
        if not self._interactive:
            return "Ctrl-C leaves"
        return self._escapes.how_to_leave if self._escapes is not None else ""

    def ended(self, ending: Ending) -> None:
        line = (
            ""
            if self._end_of_input.has_come and ending.is_success
            else f"session ended: {_reason_and_message(ending)}"
        )
        if ending.reason == POWERED_OFF and (command := self._terminal.power_on()):
            line += f"; to power it on, run {command}"
        elif ending.reason == POOL_DELETED:
            line += f"; {WHEN_POOL_BACK}"
        elif ending.reason == REVOKED:
            line = f"session ended: {ending.reason}: {self._terminal.withdrawn(ending.message)}"
        outcome = Outcome(_exit_code(ending), line, ending=ending)
        self._end(outcome, in_haste=False)

    def failed(self, line: str) -> None:
        self._end(Outcome(1, line), in_haste=False)

    def detached(self, reason: str) -> None:
        """Handle the end of the stream; ``reason`` matters only without an earlier end."""
        self._stream = None
        if self._display.notices.is_off and (command := self._terminal.power_on()):
            reason += f"; if the machine is still off, to power it on, run {command}"
        self.failed(reason)
        self._finish_if_done()

    # The user's events.

    def typed(self, data: bytes) -> None:
        if self._conversation is None and self._display.uncover():
            self._window.redraw(is_picture=True)
        if self._conversation is not None:
            leave = self._escapes.leave if self._escapes is not None else None
            data, leaves = leave.feed(data) if leave is not None else (data, False)
            self._conversation.typed(data)
            if leaves:
                self._leave()
            return
        if self._escapes is None:
            pieces: list[Typed] = [data]
        else:
            pieces = self._escapes.feed(data, is_sent=self._is_sent)
        self.handle(pieces)

    def handle(self, pieces: Sequence[Typed]) -> None:
        """Carry out commands, and send keys to the machine."""
        for piece in pieces:
            if not self._is_live:
                return
            if self._takeover.hold_back(piece):
                continue
            if self._conversation is not None and piece is not EscapeCommand.LEAVE:
                assert self._escapes is not None
                self._conversation.typed(self._escapes.keys_of(piece))
                self._escapes.begin_line()  # the machine has nothing of it
            else:
                self._do(piece)

    @property
    def _is_sent(self) -> bool:
        """False if the machine gets nothing of what is typed now, as far as it is known."""
        attendance = self.facts.attendance
        return not (
            self._discards
            or self._display.notices.is_off
            or self.is_observer
            or self._machine_discards
            or (attendance is not None and attendance.withheld)
        )

    def _do(self, typed: Typed) -> None:
        if isinstance(typed, bytes):
            if self.interrupts(typed):
                self.interrupted(signal.SIGINT)  # there is no machine yet to receive Ctrl-C
            else:
                self._send(typed)
        elif isinstance(typed, SysRq):
            if not typed.key and not self._refusal(Break()):
                self._display.tell(WHICH_KEY)
            elif self.wish(Break()):
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
        elif typed is EscapeCommand.TAKE_OVER:
            self._takeover.begin()
        elif self.wish(_WISHES[typed]) and typed is EscapeCommand.BREAK:
            self._tell_sent("BREAK sent")

    def interrupts(self, typed: bytes) -> bool:
        """Return whether keys end the program with Ctrl-C."""
        ends = self._interactive and _INTERRUPT in typed
        return ends and self.life is Life.CONNECTING

    def _leave(self) -> None:
        if self._is_live:
            self._farewell = self._terminal.farewell()
            self._end(Outcome(line=self._with_keys(self._farewell, *self._doubtful_keys())))

    def _doubtful_keys(self) -> tuple[int, int]:
        """
        Return how many keys and requests may not have reached the machine, and how many were not sent.

        While the connection is up, what waits is sent before the session ends; so keys are doubtful
        only if the server has not confirmed any for longer than a server that answers takes.  If it
        does not answer the end of the session either, :meth:`_unanswered` counts all.
        """
        if self._interactive and not (self._is_sent or self._takeover.is_wished):
            return 0, 0  # the user knows that the machine gets nothing
        if self._stream is None:
            return 0, self._input.waiting if self._input is not None else 0
        if self.life is Life.CARRIED:
            usual_seconds = _CONFIRM_SECONDS + (self._stream.round_trip_seconds or 0.0)
            if self._stream.owed_seconds <= usual_seconds:
                return 0, 0
        return self._stream.unconfirmed

    def _with_keys(self, farewell: str, sent: int, unsent: int) -> str:
        keys = unconfirmed_keys(sent, unsent)
        if not keys or not farewell:
            return keys or farewell
        return f"{farewell.removesuffix('.')}; {keys}."

    def _unanswered(self, outcome: Outcome) -> None:
        """Finish without waiting any longer: the server has not answered the end of the session."""
        if self._farewell is not None and self._stream is not None and not outcome.signal:
            line = self._with_keys(self._farewell, *self._stream.unconfirmed)
            outcome = replace(outcome, line=line)
        self._finish(outcome)

    def _suspend(self) -> None:
        if self._terminal.suspend():
            self.continued()
        else:
            self._display.tell(NO_JOB_CONTROL)

    def continued(self) -> None:
        if not self._interactive or not self._is_live:
            return
        if self._display.is_drawn:
            self._window.redraw()
        self._display.tell(f"The console of {self._terminal.place()} goes on.")

    def _tell_sent(self, line: str) -> None:
        if self.life is Life.CARRIED:
            self._display.tell(line)

    def _tell_about(self, lines: list[str]) -> None:
        place = self._terminal.place()
        lines = [place] * bool(place) + lines
        text = "\n".join(lines)
        can_page = self._act is not None and self.is_attached and not self.is_talking
        if can_page and self._display.overflows(text):
            # Imported here, because most sessions have no dialog.
            from twisted_exec.cli.console.menu import page_through

            self.converse(lambda dialog: page_through(dialog, lines))
        else:
            self._display.tell(text)

    def explain(self, command: EscapeCommand) -> None:
        """Say why a command had no effect, unless a conversation has the terminal."""
        act, scrollback = self._act, self._scrollback
        if act is not None and scrollback is not None and self._conversation is None:
            self.converse(lambda dialog: act(command, dialog, scrollback), asks=False)

    def _open_dialog(self, command: EscapeCommand) -> None:
        act, scrollback, notices = self._act, self._scrollback, self._display.notices
        if act is None:
            self._display.tell(NO_SCREEN)
        elif self._read_only and command is EscapeCommand.POWER:
            self._display.tell(NOTHING_TO_ASK)
        elif scrollback is None:
            self._wait_for_server()
        elif command is EscapeCommand.MESSAGE:
            say = partial(write_message, stream=self.facts, notices=notices, say=self._say)
            self.converse(say, pauses=True)
        else:
            is_warned = command is EscapeCommand.POWER and self.is_observer and notices.writer
            warning = f"You are an observer; {notices.writer} is the writer." if is_warned else ""
            self.converse(lambda dialog: act(command, dialog, scrollback), warning, pauses=True)

    def _wait_for_server(self) -> None:
        """Say that a command needs the server, and why there is no answer of the server yet."""
        why = (self._describe_wait() or self.step()).partition("; ")[0]  # without the remedy
        line = f"this command works when the console is open{why and f'; still waiting: {why}'}"
        if self._input is not None and self._input.discards is not Discards.ALL:
            # The keys that follow are for the command, not for the machine.
            self._input.discard()
            line += "; no further key is sent until then"
        self._display.tell(line)

    def converse(
        self, talk: Talk, first_line: str = "", *, pauses: bool = False, asks: bool = True
    ) -> None:
        """
        Let a conversation have the terminal until its end.

        :param pauses: see :meth:`.Conversation.begin`.
        :param asks: see :class:`.Dialog`.
        """
        assert self._terminal.draw is not None
        conversation = self._conversation = Conversation(
            self._clock, self._terminal, self._terminal.draw, self._display, asks=asks
        )
        if first_line:
            conversation.tell(first_line)
        conversation.begin(talk, pauses=pauses).addCallback(self._conversed, conversation)

    def _conversed(self, following: NextSession | None, conversation: Conversation) -> None:
        self._conversation = None
        self.go_to(following)
        if self._silence is not None:
            self._silence.paused()
        conversation.close(tells=self._is_live)
        if self._display.is_drawn:
            self._window.redraw(is_picture=True)
        if self._is_live and conversation.held:
            self.typed(conversation.held)

    def _say(self, line: str) -> bool:
        """Send a message to the other users; return whether the connection is up."""
        if self.life is not Life.CARRIED or self._stream is None:
            return False
        self._timers.after("receipt", RECEIPT_SECONDS, self._receipt_timed_out, steady=True)
        self._stream.say(Message(line))
        return True

    def _receipt_timed_out(self) -> None:
        self._display.tell("your message may not have been sent: the server has not confirmed it")

    def go_to(self, following: NextSession | None) -> None:
        """End, so that another session follows; ``None`` does nothing."""
        if following is not None:
            self._end(Outcome(next=following))

    def wish(self, wish: Break | Role) -> bool:
        """Send a wish, unless it cannot come true at present; return whether it was sent."""
        if why := self._refusal(wish):
            if self._escapes is not None:
                self._escapes.begin_line()  # a SysRq needs no key
            self._display.tell(why)
            return False
        if self._discards:
            self._wait_for_server()
            return False
        self._send(wish)
        self._takeover.wished(wish)
        self.tell_waits()
        return True

    def tell_waits(self) -> None:
        """Say that a command waits; while the connection is up, it does not wait for long."""
        if self.life is not Life.CARRIED:
            until = "the connection is back" if self.life is Life.WAITING else "the console is open"
            self._display.tell(f"this command waits until {until}")

    def _refusal(self, wish: Break | Role) -> str:
        """Return why a wish cannot come true, if that is known; or an empty string."""
        if self._read_only:
            return NOTHING_TO_ASK
        if not isinstance(wish, Break):
            return ""
        if self.is_observer:
            return self._no_break_of_observer()
        attendance = self.facts.attendance
        return "" if attendance is None or attendance.has_break else NO_BREAK

    def _no_break_of_observer(self) -> str:
        notices = self._display.notices
        if notices.is_denied:
            return f"nothing was sent: {MAY_ONLY_OBSERVE}"
        writer = "" if notices.writer in ("", NOBODY) else f"; {notices.writer} is the writer"
        return f"nothing was sent: you are an observer{writer}"

    def _tell_status(self) -> None:
        """Show the status, with the names of the viewers if the server lists them soon."""

        def tell(names: str) -> None:
            if self._is_live:
                self._tell_about(self._status(names))

        self._people.name(tell)

    def _status(self, names: str = "") -> list[str]:
        now, is_attached = self._clock.seconds(), self._stream is not None
        outage = ""
        if self._outage is not None:
            outage = self._outage.status(one_line(self.facts.hindrance))
        return status(
            self._stream,
            seconds=now - self._attached_at if is_attached else None,
            outage=outage,
            problem=self._describe_wait(),
            notices=self._display.notices,
            read_only=self._read_only,
            names=names,
            size=self._window.status(),
            messages=[f"{age(now - at)} ago: {text}" for at, text in self._messages],
        )

    def input_ended(self) -> None:
        if self._interactive:
            self._end(Outcome(1))  # the terminal's window was closed
        else:
            self._end_of_input.begin(self.facts)

    def window_changed(self) -> None:
        self._display.resized()
        self._window.resized()
        if self._conversation is not None:
            self._conversation.resized()

    def output_lost(self, error: OSError | None) -> None:
        """The output is flushed and closed, or cannot be written."""
        self._display.sink = None
        outcome = Outcome()
        if error is not None:
            outcome = Outcome(1, f"cannot write output: {error.strerror}")
            self._script.failed(outcome.line)
            if self.life is Life.ENDING and not (self._outcome.line or self._outcome.signal):
                self._outcome = outcome  # it was the last output
        self._end(outcome)
        self._finish_if_done()

    def conclude(self, outcome: Outcome) -> None:
        """Leave when the output is written; a script is done, or has failed."""
        self._end(outcome, in_haste=False)

    def interrupted(self, number: int) -> None:
        """Handle a deadly signal; after the session's end it stops writing the last output."""
        if self._is_live:
            self._end(Outcome(signal=number))
        elif number != signal.SIGHUP or "farewell" not in self._timers:
            # Otherwise the end of input has told of the closed window, and the session is ending.
            self._finish(Outcome(signal=number))

    def _send(self, what: bytes | Break | Role) -> None:
        if self._input is not None:
            self._input.send(what)

    # The end.

    def _is_held_up(self) -> bool:
        """Whether the machine may be silent only because this side takes or sends nothing."""
        return self._display.is_paused or (self._input is not None and self._input.is_stuck)

    def _fell_quiet(self) -> None:
        if why := self._display.notices.not_sent:
            self._end(Outcome(1, f"{NOT_SENT}: {why}"))
        elif why := self._display.notices.interruption:
            self._end(Outcome(1, f"the machine ended: {why}"))
        else:
            self._end(Outcome(), in_haste=False)

    def timed_out(self, line: str = TIMED_OUT) -> None:
        if self._is_live and (why := self._hindrance()):
            line = f"{line}: {why}"
        outcome = Outcome(TIMED_OUT_CODE, line)
        if self._is_live:
            self._end(outcome)
        else:
            self._finish(outcome)

    def _hindrance(self) -> str:
        """Return why the machine sends nothing, if that is known; or an empty string."""
        # Without seconds, because a fleet prints equal messages once.
        if self.life is Life.WAITING:
            return "the connection is lost"
        if self.life is not Life.CARRIED:
            return self._describe_wait() or self.step()
        is_silent = (self.facts.overdue_seconds or 0.0) >= 1
        return "the server does not answer" * is_silent

    def _end(self, outcome: Outcome, *, in_haste: bool = True) -> None:
        """
        Set the outcome, once, and end both sides.

        :param in_haste: the user left: do not wait long.
        """
        if not self._is_live:
            return
        self.caught_up()  # nothing more comes
        self._become(Life.ENDING)
        self._outcome = outcome
        self._end_outage()
        if self._conversation is not None:
            self._conversation.stop()
        self._people.stop()
        attempt = self._connecting
        if attempt is not None:
            attempt.cancel()
        if in_haste or self._connecting is not None:
            # A server that is known to be silent does not take the last bytes either.
            is_silent = self._silence is not None and self._silence.is_told
            seconds = 0 if is_silent else _FAREWELL_SECONDS
            self._timers.after("farewell", seconds, lambda: self._unanswered(outcome), steady=True)
        if self._input is not None:
            self._input.close()
        if self._stream is not None:
            self._stream.leave()
        self._display.close()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        is_gone = self._stream is None and self._connecting is None
        if self.life is Life.ENDING and is_gone and self._display.sink is None:
            self._finish(self._outcome)

    def _finish(self, outcome: Outcome) -> None:
        if self.life is Life.OVER:
            return
        self._become(Life.OVER)
        self._timers.cancel_all()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
        attempt, self._connecting = self._connecting, None
        if attempt is not None:
            attempt.cancel()  # once more: it does not wait any longer
        self.finished.callback(outcome)


def _reason_and_message(ending: Ending) -> str:
    return f"{ending.reason}: {ending.message}" if ending.message else ending.reason


def _exit_code(ending: Ending) -> int:
    if ending.exit_code is not None:
        return ending.exit_code
    return 0 if ending.is_success else 1


def _no_wait() -> str:
    return ""

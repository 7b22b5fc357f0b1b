"""
One user's session at a console: its stream, role and ending.

A viewer may lose its stream and get another (:class:`.IResumableAttachment`). While it is away it
keeps its role and its place in the console, but it does not count as a person. A viewer that has
ended has left the console; a new stream gets the rest of its output and its ending again.

:attr:`Viewer.session` is the id of the newest stream, by which the user's hops know the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

from twisted_exec.api.agents import is_person
from twisted_exec.api.display import display_name
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, BadRequest, TooManyRequests
from twisted_exec.console import acts
from twisted_exec.console.acts import ActReports
from twisted_exec.console.discarded_input import DiscardedInput, InputConsole
from twisted_exec.console.echo_time import EchoUser
from twisted_exec.console.interfaces import IConsoleRecorder
from twisted_exec.console.output import HarmlessOutput, ViewerOutput
from twisted_exec.console.rate_limit import RateLimit
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.journal.interfaces import IReadableJournal
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    INPUT_DENIED,
    LINE_LOST,
    Break,
    Ending,
    IAttachmentTransport,
    IEchoTransport,
    IMarkTransport,
    IMessaging,
    IOperable,
    IResumableAttachment,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import NO_BREAK
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, not_sent
from twisted_exec.wire.session_terms import FULL, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.typed_keys import is_typed

_NOT_WRITTEN = "the console cannot be recorded: its input cannot be written"
_BREAK = b"\0"  # counts as a key
_STALLED_SECONDS = 10.0
_MOST_REFUSALS = 5
"""Refused messages of which a session is told in a second: more than its user can type."""


class ViewedConsole(InputConsole, Protocol):
    """What a viewer needs of its console."""

    limits: ConsoleLimits
    recorder: IConsoleRecorder
    reports: ActReports
    last_output_at: float

    @property
    def input_rate(self) -> RateLimit: ...
    @property
    def missing_people(self) -> str: ...
    @property
    def journal(self) -> IReadableJournal: ...
    @property
    def scrollback_start(self) -> int: ...
    @property
    def size(self) -> TerminalSize | None: ...
    def window_changed(self, size: TerminalSize) -> None: ...
    def send_break(self, signal: Break) -> bool: ...
    def typed(self, data: bytes, viewer: EchoUser) -> None: ...
    def pace(self) -> None: ...


class ConsoleViewers(Protocol):
    """What a viewer needs of the viewers of its console, of which it is one."""

    harmless_output: HarmlessOutput

    def answers(self, viewer: Viewer) -> bool: ...
    def attendance_changed(self) -> None: ...
    def came_back(self, viewer: Viewer) -> None: ...
    def join(self, viewer: Viewer, position: Position | None = None) -> None: ...
    def leave(self, viewer: Viewer) -> None: ...
    def missing_place(self, terms: Terms) -> str: ...
    def role_changed(self, viewer: Viewer) -> None: ...
    def say(self, sender: Viewer, text: str) -> None: ...
    def update_input_of(self, viewer: Viewer) -> None: ...
    def went_away(self) -> None: ...


@implementer(IMessaging, IOperable, IResumableAttachment, IPushProducer)
class Viewer:
    """
    The attachment of one user's session to a console; :meth:`SharedConsole.viewer` creates it.

    :ivar is_away: the stream is lost, and the user may come back.
    :ivar joined_as: the session's id in the journal: that of its first stream.
    :ivar has_plain_client: the client reads no marks.
    :ivar bytes_to_machine: input that the machine got, for audit.
    """

    def __init__(
        self, console: ViewedConsole, viewers: ConsoleViewers, banner: Sequence[str] = ()
    ) -> None:
        self._console, self._viewers, self._banner = console, viewers, banner
        self._transport: IAttachmentTransport | None = None
        self._options: StreamOptions | None = None  # until there is a stream
        self._user = self._session = self.joined_as = ""
        self.terms = FULL
        self.is_away = self.has_plain_client = False
        self._is_unrecorded = False  # what the terms require could not begin
        self.output = ViewerOutput(
            console.journal,
            console.scrollback_start,
            self._end,
            partial(console.clock.callLater, 0),
            partial(viewers.answers, self),
            viewers.harmless_output,
            self._read_on,
        )
        self.input = DiscardedInput(self, console)
        self.bytes_to_machine = 0
        self._told_rate = 0  # the limit of the input's rate that the user knows
        self._input_ended_at: float | None = None
        self._quiet: IDelayedCall | None = None
        self._ending: Ending | None = None
        self._ended = False
        self._stall: IDelayedCall | None = None
        self._size: TerminalSize | None = None
        self._knows_drawn_size = False
        self._is_role_doubtful = False  # the user may not have the notice about the role
        self._told_wait_seconds = self._told_refusals = 0
        self._role = self._role_at_start = Role.OBSERVER

    @property
    def user(self) -> str:
        """The user's name from the stream; empty before :meth:`attached`."""
        return self._user

    @property
    def session(self) -> str:
        """The id of the newest stream; empty before :meth:`attached`."""
        return self._session

    @property
    def size(self) -> TerminalSize | None:
        return self._size

    @property
    def has_terminal(self) -> bool:
        """True if the user has a terminal, as far as it is known."""
        if self._options is None or not self._options.tty:
            return False
        return self._size is not None or not self.may_write

    @property
    def banner(self) -> Sequence[str]:
        """Lines to read at the beginning; none for a client that asked for no terminal."""
        return self._banner if self._options is not None and self._options.tty else ()

    @property
    def oldest(self) -> Position:
        return Position(self._console.journal.epoch, self.output.oldest)

    @oldest.setter
    def oldest(self, position: Position) -> None:
        if position.epoch == self._console.journal.epoch:
            self.output.oldest = min(position.offset, self.output.oldest)

    @property
    def _asked_for_input(self) -> bool:
        return self._options is not None and self._options.takes_input

    @property
    def may_write(self) -> bool:
        return self._asked_for_input and self.terms.right >= Right.DRIVE

    @property
    def is_denied(self) -> bool:
        return self._asked_for_input and not self.may_write

    @property
    def may_take_over(self) -> bool:
        return self.terms.right >= Right.TAKEOVER

    @property
    def is_person(self) -> bool:
        return is_person(self._user)

    @property
    def yields(self) -> bool:
        return self.terms.yields

    @property
    def forces(self) -> bool:
        return self._options is not None and self._options.force

    @property
    def observes(self) -> bool:
        return self._options is not None and self._options.observe

    @property
    def reads_marks(self) -> bool:
        return IMarkTransport.providedBy(self._transport)

    @property
    def may_wait(self) -> bool:
        """
        True if the session goes on when the machine starts again: a user watches it at a terminal.

        A script must not take the output of another boot for that of its own commands.
        """
        return self._options is not None and self._options.tty and self._input_ended_at is None

    @property
    def is_ending(self) -> bool:
        return self._ended or self._ending is not None

    @property
    def has_read_all(self) -> bool:
        """True if the stream has accepted everything that the machine has printed."""
        return self._transport is not None and self.output.offset >= self._console.journal.end

    def admit(self, terms: Terms) -> None:
        """
        Check whether there is a place for one more session, and begin the recording that it
        requires.

        :raises TooManyRequests: there is no place.
        :raises APIError: the console cannot be recorded.
        """
        if self._options is None and (why := self._viewers.missing_place(terms)):
            # Without a time to come again: the other sessions may last for hours.
            raise TooManyRequests(why, retry_after_seconds=None)
        if terms.recording:
            try:
                self._console.recorder.require(terms.recording)
            except APIError as refusal:
                raise because(Obstacle.CANNOT_BE_RECORDED, refusal) from None

    def check(self, position: Position) -> None:
        journal = self._console.journal
        last = journal.end if self.output.last is None else self.output.last
        if position.epoch == journal.epoch and position.offset > last:
            raise BadRequest(
                f"the output cannot continue at offset {position.offset}: it ends at {last};"
                " open a new session"
            )

    def attached(self, transport: IAttachmentTransport) -> None:
        self._use(transport)
        self.terms, self.joined_as = transport.terms, self._session
        self.has_plain_client = not self.reads_marks
        self._viewers.join(self)
        self._role_at_start = self._role

    def _use(self, transport: IAttachmentTransport) -> None:
        self._transport, self._options = transport, transport.options
        self._session, self._user = transport.session, transport.user
        self.output.use(transport)
        transport.registerProducer(self, True)

    def away(self) -> None:
        if self._transport is None:
            return
        self._leave_stream()
        if self._ending is not None:
            self._leave()  # a new stream gets the rest of the output and the ending
        else:
            self.is_away = True
            self.output.await_stream()
            self._viewers.went_away()

    def resumed(self, transport: IMarkTransport, position: Position) -> None:
        self.input.resumed()
        if self._options is None:  # a session of an earlier process
            self._use(transport)
            self.terms, self.joined_as = transport.terms, self._session
            self._viewers.join(self, position)
            self._role_at_start = self._role
            return
        if self._transport is not None:  # the user has noticed a loss before this process
            self._leave_stream()
        could_write = self.may_write
        self._use(transport)
        self.terms, self.is_away = transport.terms, False
        self.output.resume(position, self._console.scrollback_start)
        if self._ending is not None:
            self._ended = False
            self._send_ending()
        else:
            if self._is_role_doubtful:
                self._console.floor.remind(self)
            self._follow_rights(could_write)
            self.input.catch_up(position)
            self._viewers.came_back(self)
            self._is_role_doubtful, self._role_at_start = False, self._role

    def ask(self) -> bool:
        """
        Find out when all input of the client until now has arrived.

        :return: whether :meth:`answered` follows, maybe only from the next stream; false if the
            client cannot resume.
        """
        if self._transport is None:
            return True
        if not IMarkTransport.providedBy(self._transport):
            return False
        self._transport.ask()
        return True

    def answered(self) -> None:
        self.input.all_arrived()
        if self.input.is_behind and not self.input.is_interrupted:
            self.input.caught_up()
            self._viewers.update_input_of(self)

    def _leave_stream(self) -> None:
        assert self._transport is not None
        self._transport.unregisterProducer()  # a lost or superseded stream must not pause the next one
        self._transport = None
        self.output.stop()
        # A notice of a change while this stream was open may be lost with it.
        self._is_role_doubtful |= self._role is not self._role_at_start
        self._cancel_stall()

    def _cancel_stall(self) -> None:
        if self._stall is not None and self._stall.active():
            self._stall.cancel()

    # Input.

    def data_received(self, data: bytes) -> None:
        if not self._may_type(data):
            return
        if not self._console.recorder.typed(self.joined_as, data):
            self.input.discard(INPUT_DENIED, not_sent(_NOT_WRITTEN), data)
            return
        self.input.is_told = False
        self.bytes_to_machine += len(data)
        self._console.typed(data, self)
        if self.terms.input_rate:
            self._console.input_rate.charge(len(data) / self.terms.input_rate)
            self._tell_slowed()

    def _may_type(self, data: bytes, *, outage: bool = True) -> bool:
        """
        Decide whether input is passed on to the machine; discard it otherwise.

        The stream has discarded that of a user without the right to drive.

        :param outage: also discard it during an outage of the line.
        """
        if self._role is not Role.WRITER and is_typed(data) and not self.input.is_discarded:
            self.take_yielded_floor()
        if self._role is not Role.WRITER:
            self.input_refused(data)
        elif missing := self._console.missing_people or self.require_recording():
            self.input.discard(INPUT_DENIED, not_sent(missing), data)
        elif (outage or self.input.is_behind) and (why := self.input.outage):
            self.input.discard(LINE_LOST, not_sent(why), data)
        else:
            return True
        return False

    def input_refused(self, data: bytes = b"") -> None:
        reason = INPUT_DENIED if self.is_denied else CONSOLE_IN_USE
        self.input.discard(reason, self._console.floor.refusal(self), data)

    @property
    def is_slowed(self) -> bool:
        """True while input waits because its rate is limited."""
        is_limited = self._role is Role.WRITER and self.terms.input_rate
        return bool(is_limited and self._console.input_rate.is_paused)

    def _tell_slowed(self) -> None:
        terms = self.terms
        if self._told_rate != terms.input_rate and self._console.input_rate.is_paused:
            self._told_rate = terms.input_rate
            rule = terms.rule("allow", "input_rate")
            text = f"your input is slowed down: {rule} {terms.input_rate} bytes per second"
            self.tell(Notice(text))

    def input_ended(self) -> None:
        """
        End the session, but never the line, after a quiet period.

        A session whose input was discarded ends without the quiet period.
        """
        if self.input.ending is not None:
            self.finish(self.input.ending)
        elif self._input_ended_at is None:
            self._input_ended_at = self._console.clock.seconds()
            self._wait_for_quiet(self._console.limits.quiet_seconds)

    def _wait_for_quiet(self, seconds: float) -> None:
        self._quiet = self._console.clock.callLater(seconds, self._check_quiet)

    def _check_quiet(self) -> None:
        if self.is_ending:
            return
        now = self._console.clock.seconds()
        quiet_since = max(self._input_ended_at or 0.0, self._console.last_output_at)
        if not self.has_read_all:
            quiet_since = now
        remaining = quiet_since + self._console.limits.quiet_seconds - now
        if remaining > 0:
            self._wait_for_quiet(remaining)
        elif outage := self.input.outage:
            self.finish(Ending(LINE_LOST, outage))
        else:
            self.finish(Ending(COMPLETED, "the input ended and the console is quiet"))

    # Terms, sizes and wishes.

    def terms_changed(self, terms: Terms) -> None:
        could_write = self.may_write
        is_recorded_elsewhere = terms.recording != self.terms.recording
        self.terms = terms
        if is_recorded_elsewhere:
            self._is_unrecorded = bool(terms.recording)
            self.require_recording()
        self._follow_rights(could_write)

    def require_recording(self) -> str:
        """
        Require the recording of the session's terms, if it has not begun since they changed.

        :return: why the session is not recorded; empty if it is, or need not be.
        """
        recording, recorder = self.terms.recording, self._console.recorder
        if not recording:
            return ""
        if self._is_unrecorded:
            try:
                recorder.require(recording)
            except APIError as refusal:
                return refusal.message
            self._is_unrecorded = False
        return recorder.problem(recording)

    def _follow_rights(self, could_write: bool) -> None:
        if self.is_ending:
            return
        if self.may_write is not could_write:
            self.input.is_told = False
            self._console.floor.right_to_write_changed(self)
        self._viewers.attendance_changed()

    def window_changed(self, size: TerminalSize) -> None:
        """
        Resize the line, if this viewer is a writer; an observer's size applies when it becomes one.
        """
        self._size = size
        if self.role is Role.WRITER:
            self._console.window_changed(size)
        elif self.output.shows_old_program and not self._knows_drawn_size:
            self._compare(size)

    def _compare(self, own: TerminalSize) -> None:
        """
        Tell a terminal without marks once that a full-screen program draws for a larger window.

        ``kubectl attach`` first tells a size that is larger than its window, which is no smaller one.
        """
        drawn = self._console.size
        if drawn is not None and (own.columns < drawn.columns or own.rows < drawn.rows):
            self._knows_drawn_size = True
            sizes = f"a program draws for a window of {drawn.columns}x{drawn.rows}, and yours is smaller"
            self.tell(
                Notice(
                    f"{sizes}: enlarge it, or use kubectl console, which draws the picture for you"
                )
            )

    def wished(self, wish: Break | Role) -> None:
        if isinstance(wish, Role):
            self._console.floor.request_role(self, wish)
            self._viewers.attendance_changed()
        elif self._may_type(_BREAK, outage=False) and not self._console.send_break(wish):
            self.tell(NO_BREAK)

    def take_yielded_floor(self) -> None:
        """Take the floor with a key, if the writer yields it."""
        if self._console.floor.is_yielded_to(self):
            self._console.floor.request_role(self, Role.WRITER)
            self._viewers.attendance_changed()

    def said(self, text: str) -> None:
        self._viewers.say(self, text)

    def message_refused(self, most: int, seconds: int) -> None:
        """Tell the user about the limit of messages a minute, but not of each message of a flood."""
        if seconds != self._told_wait_seconds:
            self._told_wait_seconds, self._told_refusals = seconds, 0
        self._told_refusals += 1
        if self._told_refusals <= _MOST_REFUSALS:
            why = f"at most {most} messages a minute; try again in {seconds} s"
            self.tell(Notice(f"your message was not sent: {why}", NoticeKind.RECEIPT))

    @property
    def role(self) -> Role:
        return self._role

    @role.setter
    def role(self, role: Role) -> None:
        if role is not self._role:
            self._role = role
            self._viewers.role_changed(self)

    def took_over(self, previous: str) -> None:
        text = f"{display_name(self.user)} has taken over the console from {display_name(previous)}"
        self.report(acts.TAKEOVER, previous, text)

    def takeover_denied(self, writer: str) -> None:
        of = f" from {display_name(writer)}" if writer else ""
        text = f"{display_name(self.user)} may not take over the console{of}"
        self.report(acts.TAKEOVER_DENIED, writer, text)

    def report(self, kind: str, other: str, text: str) -> None:
        act = acts.Act(kind, self.session, self.user, other, text)
        self._console.reports.report(act)

    def echoed(self, seconds: float) -> None:
        if IEchoTransport.providedBy(self._transport):
            self._transport.echoed(seconds)

    def became_writer(self) -> None:
        self.input.became_writer()
        if self._size is not None:
            self._console.window_changed(self._size)

    def detached(self, reason: str) -> None:
        self._transport = None
        self._leave()

    def pauseProducing(self) -> None:
        self.output.pause_writing()

    def resumeProducing(self) -> None:
        if self._stall is not None and self._stall.active():
            self._stall.reset(_STALLED_SECONDS)
        self.output.resume_writing()
        self._console.pace()

    def _read_on(self) -> None:
        self.output.pump()
        self._console.pace()

    def stopProducing(self) -> None:
        self.output.pause_writing()

    def pause_input(self) -> None:
        if self._transport is not None:
            self._transport.pause_input()

    def resume_input(self) -> None:
        if self._transport is not None:
            self._transport.resume_input()

    def tell(self, notice: Notice) -> None:
        self.output.tell(notice)

    def tell_attendance(self, attendance: Attendance) -> None:
        self.output.tell_attendance(attendance)

    def finish(self, ending: Ending) -> None:
        """
        End with a status, after the output so far.

        A client that does not take the buffered output within 10 s loses the rest.
        """
        if self.is_ending:
            return
        self.input.session_ends()
        self._ending = ending
        self.output.last = self._console.journal.end
        if self._transport is None:
            self._leave()
        else:
            self._send_ending()
        self._viewers.attendance_changed()

    def _send_ending(self) -> None:
        self._stall = self._console.clock.callLater(_STALLED_SECONDS, self._end)
        self.output.pump()

    def _end(self) -> None:
        if self._ended or self._ending is None or self._transport is None:
            return
        transport = self._transport
        self._leave()
        transport.unregisterProducer()
        transport.end(self._ending)

    def _leave(self) -> None:
        self._ended = True
        if self._quiet is not None and self._quiet.active():
            self._quiet.cancel()
        self._cancel_stall()
        self.output.stop()
        self._viewers.leave(self)

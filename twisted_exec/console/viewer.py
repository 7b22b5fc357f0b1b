"""
One user's session at a console: role, input, output and ending.

A viewer may lose its stream and get another one (:class:`.IResumableAttachment`).  While it is away
it stays in the console: it keeps its role and its place, but it does not count as a person.  A
viewer that has ended is not in the console any more, and a new stream gets the rest of its output
and its ending again.

``session`` is the id of the newest stream, by which the user's hops know the session at present.
The journal names the session by the id of the stream with which it joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

from twisted_exec.api.status import BadRequest, TooManyRequests
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    INPUT_DENIED,
    LINE_LOST,
    Break,
    Ending,
    IAttachmentTransport,
    IMarkTransport,
    IOperable,
    IResumableAttachment,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import NO_BREAK
from twisted_exec.wire.resume import Attendance
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

from . import acts
from .floor import LINE_AGAIN, display_name, not_sent, notice
from .output import Output

if TYPE_CHECKING:
    from .shared_console import SharedConsole

_STALLED_SECONDS = 10.0
_RETURN_SECONDS = 10.0
"""From the change of the process until a session that has no stream yet counts as away."""


@implementer(IOperable, IResumableAttachment, IPushProducer)
class Viewer:
    """
    The attachment of one user's session to a console; :meth:`SharedConsole.viewer` creates it.

    :ivar output: what the user reads.
    :ivar terms: what the session is held to at present.
    :ivar is_away: the stream is lost, and the user may come back.
    :ivar is_interrupted: the line that the user saw has ended, and the next one is not open yet.
    :ivar is_behind: the user may have typed what arrives now before the machine started again.
    :ivar joined_as: the session's id in the journal: that of its first stream.
    :ivar bytes_to_machine: input that reached the line, for audit.
    """

    def __init__(self, console: SharedConsole) -> None:
        self._console = console
        self._transport: IAttachmentTransport | None = None
        self._options: StreamOptions | None = None  # until there is a stream
        self._user = self._session = self.joined_as = ""
        self.terms = FULL
        self.is_away = self.is_interrupted = self.is_behind = False
        self._restarted_at: int | None = None
        self.output = Output(console.journal, console.scrollback_start, self._end)
        self._ending: Ending | None = None
        self._ended = False
        self._stall: IDelayedCall | None = None
        self._quiet: IDelayedCall | None = None
        self._return: IDelayedCall | None = None
        self._input_ended_at: float | None = None
        self._size: TerminalSize | None = None
        self._unsent: Ending | None = None  # for a script whose input was discarded
        self._is_told = False  # the user has the notice about that
        self._is_role_doubtful = False  # the user may not have the notice about the role
        self._role = self._role_at_start = Role.OBSERVER
        self._missing_people = ""
        self.bytes_to_machine = 0

    @property
    def user(self) -> str:
        """The user's name from the stream; empty before :meth:`attached`."""
        return self._user

    @property
    def session(self) -> str:
        """The session's id from the newest stream; empty before :meth:`attached`."""
        return self._session

    @property
    def size(self) -> TerminalSize | None:
        """The last size of the user's terminal."""
        return self._size

    @property
    def bytes_to_user(self) -> int:
        """Output that was sent, without notices, for audit; repeated output counts again."""
        return self.output.bytes_to_user

    @property
    def oldest(self) -> Position:
        """
        The position of the oldest output that the session may have: where it began.

        It may be set to that of the same session in an earlier process, before :meth:`resumed`.
        """
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
        """True if the session asked for input, and its user has the right to drive."""
        return self._asked_for_input and self.terms.right >= Right.DRIVE

    @property
    def is_denied(self) -> bool:
        """True if the session asked for input, but its user has no right to drive."""
        return self._asked_for_input and not self.may_write

    @property
    def may_take_over(self) -> bool:
        """True if the user may take the floor from another user."""
        return self.terms.right >= Right.TAKEOVER

    @property
    def forces(self) -> bool:
        """True if the session asked to take over."""
        return self._options is not None and self._options.force

    @property
    def reads_marks(self) -> bool:
        """True if the stream has marks beside the output."""
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
        """True if the session has ended or is about to."""
        return self._ended or self._ending is not None

    def admit(self, terms: Terms) -> None:
        """
        Check whether there is a place for one more session; a session that resumes has one.

        :raises TooManyRequests: there is none.
        """
        if self._options is None and (why := self._console.missing_place(terms)):
            # Without a time to come again: the other sessions may last for hours.
            raise TooManyRequests(why, retry_after_seconds=None)

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
        self._console._joined(self)
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
            self.output.suspend()
            self._console._went_away(self)

    def resumed(self, transport: IMarkTransport, position: Position) -> None:
        if self._options is None:  # a session of an earlier process
            self._use(transport)
            self.terms, self.joined_as = transport.terms, self._session
            self._console._joined(self, position)
            self._role_at_start = self._role
            return
        if self._transport is not None:  # the user has noticed a loss before this process
            self._leave_stream()
        if self._return is not None and self._return.active():
            self._return.cancel()
        could_write = self.may_write
        self._use(transport)
        self.terms, self.is_away = transport.terms, False
        self._is_told = False  # the notice may be lost
        self.output.resume(position, self._console.scrollback_start)
        if self._ending is not None:
            self._ended = False
            self._send_ending()
        else:
            if self._is_role_doubtful:
                self._console.floor.remind(self)
            self._follow_rights(could_write)
            self.catch_up(position)
            self._console._returned(self)
            self._is_role_doubtful, self._role_at_start = False, self._role

    def heard(self) -> None:
        """Do nothing: the position of the user is known from the request that resumes."""

    def restarted(self, offset: int) -> None:
        """Take note that another boot of the machine begins at an offset."""
        self._restarted_at = offset

    def catch_up(self, position: Position) -> None:
        """
        Discard the input of an outage if the user has seen nothing of the machine's present boot.

        :param position: what the user has seen.
        """
        offset = self._restarted_at
        self.is_behind = offset is not None and position.offset <= offset
        if self.is_behind and not self.is_interrupted:
            self.output.tell(notice(LINE_AGAIN), offset)

    def answered(self) -> None:
        if self.is_behind:
            self.is_behind = self._is_told = False
            self._console._update_input_of(self)

    def suspend(self) -> None:
        """Let the stream rest, with the console; one that sends its ending goes on."""
        if self.is_ending:
            return
        self._cancel_timers()
        self.output.suspend()
        if self._transport is not None:
            self._transport.unregisterProducer()
            if IMarkTransport.providedBy(self._transport):
                self._transport.hold_acks(True)

    def unsuspend(self) -> None:
        """Go on after :meth:`suspend`."""
        if self.is_ending:
            return
        if self._transport is not None:
            self.output.use(self._transport)
            self._transport.registerProducer(self, True)
            if IMarkTransport.providedBy(self._transport):
                self._transport.hold_acks(False)
            self.output.pump()
        if self._input_ended_at is not None:
            self._wait_for_quiet(self._console.limits.quiet_seconds)

    def take_stream(self) -> IAttachmentTransport | None:
        """Leave the console, which is suspended; return the stream, of which the caller is the owner now."""
        transport, self._transport = self._transport, None
        self._leave()
        return transport

    def expect(self) -> None:
        """Wait for the stream of a session that goes on from an earlier process."""
        if self._input_ended_at is not None:
            self._wait_for_quiet(self._console.limits.quiet_seconds)
        if not self.is_away:
            # Other users notice nothing of the change of the process if this one is back soon.
            self._return = self._console.clock.callLater(_RETURN_SECONDS, self._not_back)

    def _not_back(self) -> None:
        self.is_away = True
        self._console._went_away(self)

    def _leave_stream(self) -> None:
        assert self._transport is not None
        self._transport.unregisterProducer()  # a lost or superseded stream must not pause the next one
        self._transport = None
        self.output.stop()
        # A notice of a change while this stream was open may be lost with it.
        self._is_role_doubtful |= self._role is not self._role_at_start
        if self._stall is not None and self._stall.active():
            self._stall.cancel()

    def data_received(self, data: bytes) -> None:
        if self._can_send():
            self.bytes_to_machine += len(data)
            self._console._typed(data)

    def input_refused(self) -> None:
        self._refuse()

    def terms_changed(self, terms: Terms) -> None:
        could_write = self.may_write
        self.terms = terms
        self._follow_rights(could_write)

    def _follow_rights(self, could_write: bool) -> None:
        if self.is_ending:
            return
        if self.may_write is not could_write:
            self._is_told = False
            self._console.floor.right_to_write_changed(self)
        self._console._attendance_changed()

    def window_changed(self, size: TerminalSize) -> None:
        """Resize the line, now if this viewer is a writer, else when it becomes one."""
        self._size = size
        if self.role is Role.WRITER:
            self._console.window_changed(size)

    def wished(self, wish: Break | Role) -> None:
        if isinstance(wish, Role):
            self._console.floor.request_role(self, wish)
            self._console._attendance_changed()
        elif self._can_send(outage=False) and not self._console.send_break(wish):
            self.tell(NO_BREAK)

    @property
    def role(self) -> Role:
        """Writer or observer; set by the :class:`~.floor.Floor`."""
        return self._role

    @role.setter
    def role(self, role: Role) -> None:
        if role is not self._role:
            self._role = role
            self._console._role_changed(self)

    def took_over(self, previous: str) -> None:
        """Report a take-over from another user."""
        text = f"{display_name(self.user)} has taken over the console from {display_name(previous)}"
        self._report(acts.TAKEOVER, previous, text)

    def takeover_denied(self, writer: str) -> None:
        """Report a take-over that the user's right does not allow."""
        of = f" from {display_name(writer)}" if writer else ""
        text = f"{display_name(self.user)} may not take over the console{of}"
        self._report(acts.TAKEOVER_DENIED, writer, text)

    def _report(self, kind: str, other: str, text: str) -> None:
        act = acts.Act(kind, self.session, self.user, other, text)
        self._console.reports.report(act)

    def became_writer(self) -> None:
        """Apply this viewer's size to the line."""
        self._unsent = None
        if self._size is not None:
            self._console.window_changed(self._size)

    @property
    def is_withheld(self) -> bool:
        """True if this viewer is a writer, but the machine gets no input until more people are here."""
        return bool(self._missing_people)

    def people_changed(self, missing: str) -> bool:
        """
        Tell a writer whether the machine gets input.

        :param missing: why it gets none; empty if it does, and for observers.
        :return: whether that has changed.
        """
        was_withheld, self._missing_people = self.is_withheld, missing
        if was_withheld is self.is_withheld:
            return False
        self._is_told = False
        if missing:
            self.tell(notice(f"the machine gets no input: {missing}"))
        elif self.role is Role.WRITER:
            self.tell(notice("the machine gets input now"))
        return True

    def _can_send(self, *, outage: bool = True) -> bool:
        """
        Return whether input reaches the machine now; otherwise tell the user why not.

        :param outage: check the line, too.
        """
        if self.role is not Role.WRITER:
            self._refuse()
        elif missing := self._console.missing_people:
            self._discard(INPUT_DENIED, missing, not_sent(missing))
        elif (outage or self.is_behind) and (why := self._console.outage_for(self)):
            self._discard(LINE_LOST, why, not_sent(why))
        else:
            return True
        return False

    def _refuse(self) -> None:
        """Discard the input of an observer."""
        floor = self._console.floor
        notice = floor.refusal(self)
        if self.is_denied:
            self._discard(INPUT_DENIED, MAY_ONLY_OBSERVE, notice)
        else:
            self._discard(CONSOLE_IN_USE, floor.status, notice)

    def _discard(self, reason: str, why: str, notice: bytes) -> None:
        """Tell the user that input is discarded: once, and again when the cause has changed."""
        if reason != LINE_LOST:
            writers = self._console.floor.writers
            other = writers[0].user if writers and writers[0].user != self.user else ""
            text = f"input of {display_name(self.user)} did not reach the machine: {why}"
            self._report(acts.INPUT_DENIED, other, text)
        ending = Ending(reason, f"the input was not sent: {why}")
        if self._unsent != ending or not self._is_told:
            self._unsent, self._is_told = ending, True
            self.tell(notice)

    def input_ended(self) -> None:
        """
        End this attachment, but never the line, after a quiet period.

        A session whose input was discarded is a script that failed: it ends at once.
        """
        if self._unsent is not None:
            self.finish(self._unsent)
        elif self._input_ended_at is None:
            self._input_ended_at = self._console.clock.seconds()
            self._wait_for_quiet(self._console.limits.quiet_seconds)

    def detached(self, reason: str) -> None:
        self._transport = None
        self._leave()

    def pauseProducing(self) -> None:
        self.output.pause_writing()

    def resumeProducing(self) -> None:
        if self._stall is not None and self._stall.active():
            self._stall.reset(_STALLED_SECONDS)
        self.output.resume_writing()
        self._console._pace()

    def stopProducing(self) -> None:
        """The transport is dying; :meth:`detached` or :meth:`away` follows."""
        self.output.pause_writing()

    def pause_input(self) -> None:
        if self._transport is not None:
            self._transport.pause_input()

    def resume_input(self) -> None:
        if self._transport is not None:
            self._transport.resume_input()

    def tell(self, notice: bytes) -> None:
        """Queue a notice; it follows everything that the machine has printed until now."""
        self.output.tell(notice)

    def tell_attendance(self, attendance: Attendance) -> None:
        """Send the number of sessions and the writer, if the stream has marks."""
        self.output.tell_attendance(attendance)

    def finish(self, ending: Ending) -> None:
        """
        End with a status, after the output so far.

        A client that reads nothing for 10 s loses the rest.
        """
        if self.is_ending:
            return
        self._ending = ending
        self.output.last = self._console.journal.end
        if self._transport is None:
            self._leave()
        else:
            self._send_ending()
        self._console._attendance_changed()

    def _send_ending(self) -> None:
        self._stall = self._console.clock.callLater(_STALLED_SECONDS, self._end)
        self.output.pump()

    def _end(self) -> None:
        """Send the status, when the output is drained or the client has stalled."""
        if self._ended or self._ending is None or self._transport is None:
            return
        transport = self._transport
        self._leave()
        transport.unregisterProducer()
        transport.end(self._ending)

    def _leave(self) -> None:
        """Leave the console; this no longer holds back the journal or paces the line."""
        self._ended = True
        self._cancel_timers()
        self.output.stop()
        self._console._left(self)

    def _wait_for_quiet(self, seconds: float) -> None:
        self._quiet = self._console.clock.callLater(seconds, self._check_quiet)

    def _check_quiet(self) -> None:
        if self._ended:
            return
        quiet_since = max(self._input_ended_at or 0.0, self._console.last_output_at)
        if self._transport is None or self.output.offset < self._console.journal.end:
            quiet_since = self._console.clock.seconds()
        quiet_until = quiet_since + self._console.limits.quiet_seconds
        remaining = quiet_until - self._console.clock.seconds()
        if remaining > 0:
            self._wait_for_quiet(remaining)
        elif outage := self._console.outage_for(self):
            self.finish(Ending(LINE_LOST, outage))
        else:
            self.finish(Ending(COMPLETED, "the input ended and the console is quiet"))

    def _cancel_timers(self) -> None:
        for timer in (self._stall, self._quiet, self._return):
            if timer is not None and timer.active():
                timer.cancel()

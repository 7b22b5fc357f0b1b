"""
One user's end of a console: position in the journal, role, and ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

from twisted_exec.api.status import TooManyRequests
from twisted_exec.journal.interfaces import missing_bytes
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    INPUT_DENIED,
    LINE_LOST,
    Break,
    Ending,
    IAttachmentTransport,
    IOperable,
    ITermsAttachment,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import NO_BREAK
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms

from . import acts
from .floor import display_name, not_sent, notice

if TYPE_CHECKING:
    from .shared_console import SharedConsole

_WRITE_BYTES = 32 << 10
_MOST_NOTICES = 16
_STALLED_SECONDS = 10.0


def gap_mark(skipped_bytes: int) -> bytes:
    """Return the notice that replaces output that a slow viewer missed."""
    return b"\r\n[twisted-exec: %d bytes skipped]\r\n" % skipped_bytes


@implementer(IOperable, ITermsAttachment, IPushProducer)
class Viewer:
    """
    The attachment of one user's stream to a console; :meth:`SharedConsole.viewer` creates it.

    It copies from the journal to its transport whenever the transport accepts more.

    :ivar terms: what the session is held to at present.
    :ivar bytes_to_machine: input that reached the line, for audit.
    :ivar bytes_to_user: output that was sent, without notices, for audit.
    """

    def __init__(self, console: SharedConsole) -> None:
        self._console = console
        self._transport: IAttachmentTransport | None = None
        self._user = ""
        self.terms = FULL
        self._paused = False
        self._pumping = False
        self._ending: Ending | None = None
        self._ended = False
        self._stall: IDelayedCall | None = None
        self._quiet: IDelayedCall | None = None
        self._input_ended_at = 0.0
        self._notices: dict[bytes, int] = {}  # text to the journal offset after which it is sent
        self._size: TerminalSize | None = None
        self._unsent: Ending | None = None  # for a script whose input was discarded
        self._is_told = False  # the user has the notice about that
        self._role = Role.OBSERVER
        self._missing_people = ""
        self.offset = 0
        self.skipped = 0
        self.bytes_to_machine = 0
        self.bytes_to_user = 0

    @property
    def user(self) -> str:
        """The user's name from the stream; empty before :meth:`attached`."""
        return self._user

    @property
    def session(self) -> str:
        """The session's id from the stream; empty before :meth:`attached`."""
        return "" if self._transport is None else str(self._transport.session)

    @property
    def _asked_for_input(self) -> bool:
        return self._transport is not None and self._transport.options.takes_input

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
        return self._transport is not None and self._transport.options.force

    @property
    def is_ending(self) -> bool:
        """True if the session has ended or is about to."""
        return self._ended or self._ending is not None

    def admit(self, terms: Terms) -> None:
        """
        Check whether there is a place for one more session.

        :raises TooManyRequests: there is none.
        """
        if why := self._console.missing_place(terms):
            # Without a time to come again: the other sessions may last for hours.
            raise TooManyRequests(why, retry_after_seconds=None)

    def attached(self, transport: IAttachmentTransport) -> None:
        self._transport, self._user = transport, transport.user
        self.terms = transport.terms
        transport.registerProducer(self, True)
        self._console._joined(self)

    def data_received(self, data: bytes) -> None:
        if self._can_send():
            self.bytes_to_machine += len(data)
            self._console._typed(data)

    def input_refused(self) -> None:
        self._refuse()

    def terms_changed(self, terms: Terms) -> None:
        could_write = self.may_write
        self.terms = terms
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
        elif outage and (why := self._console.outage):
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
        elif self._quiet is None:
            self._input_ended_at = self._console.clock.seconds()
            self._wait_for_quiet(self._console.limits.quiet_seconds)

    def detached(self, reason: str) -> None:
        self._transport = None
        self._ended = True
        self._cancel_timers()
        self._console._left(self)

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        if self._stall is not None:
            self._stall.reset(_STALLED_SECONDS)
        self.pump()
        self._console._pace()

    def stopProducing(self) -> None:
        """The transport is dying; :meth:`detached` follows."""
        self._paused = True

    def pause_input(self) -> None:
        if self._transport is not None:
            self._transport.pause_input()

    def resume_input(self) -> None:
        if self._transport is not None:
            self._transport.resume_input()

    def skip_to(self, offset: int) -> None:
        """Skip output up to ``offset``; a notice with the count precedes the next output."""
        self.skipped += offset - self.offset
        self.offset = offset

    def tell(self, notice: bytes) -> None:
        """Queue a notice; it follows everything that the machine has printed until now."""
        self._notices.pop(notice, None)  # a stalled client gets a repeated notice once
        self._notices[notice] = self._console.journal.end
        if len(self._notices) > _MOST_NOTICES:
            del self._notices[next(iter(self._notices))]
        self.pump()

    def pump(self) -> None:
        """Write output and notices until the transport pauses this producer."""
        if self._pumping:
            return
        self._pumping = True  # a write may call pauseProducing and resumeProducing synchronously
        try:
            while not self._paused and not self._ended and self._write_some():
                pass
        finally:
            self._pumping = False
        self._end_if_drained()

    def _write_some(self) -> bool:
        """
        Write one notice or one piece of output.

        :return: whether anything was written.
        """
        assert self._transport is not None
        if self.skipped:
            mark, self.skipped = gap_mark(self.skipped), 0
            self._transport.write(mark)
            return True
        notice, at = next(iter(self._notices.items()), (b"", self.offset + _WRITE_BYTES))
        if notice and at <= self.offset:
            del self._notices[notice]
            self._transport.write(notice)
            return True
        data = self._console.journal.read(self.offset, min(_WRITE_BYTES, at - self.offset))
        if not data:
            return self._skip_gap()
        self.offset += len(data)
        self.bytes_to_user += len(data)
        self._transport.write(data)
        return True

    def _skip_gap(self) -> bool:
        """Skip a gap of the journal; return whether there was one."""
        assert self._transport is not None
        journal = self._console.journal
        first, last = self.offset, journal.next_available(self.offset)
        if last <= first:
            return False
        if missing_bytes(journal, first, last) is None:
            self.offset = last
            self._transport.write(notice("output is missing here"))
        else:
            self.skip_to(last)
        return True

    def finish(self, ending: Ending) -> None:
        """
        End with a status, after the output so far.

        A client that reads nothing for 10 s loses the rest.
        """
        if self.is_ending:
            return
        self._ending = ending
        self._stall = self._console.clock.callLater(_STALLED_SECONDS, self._end)
        self.pump()
        self._console._attendance_changed()

    def _end_if_drained(self) -> None:
        more = self.skipped or self._notices
        drained = self.offset == self._console.journal.end and not more
        if self._ending is not None and drained:
            self._end()

    def _end(self) -> None:
        if self._ended or self._ending is None or self._transport is None:
            return
        self._ended = True
        self._cancel_timers()
        self._console._left(self)  # no longer holds back the journal or paces the line
        self._transport.unregisterProducer()
        self._transport.end(self._ending)

    def _wait_for_quiet(self, seconds: float) -> None:
        self._quiet = self._console.clock.callLater(seconds, self._check_quiet)

    def _check_quiet(self) -> None:
        if self._ended:
            return
        quiet_since = max(self._input_ended_at, self._console.last_output_at)
        if self.offset < self._console.journal.end:
            quiet_since = self._console.clock.seconds()
        quiet_until = quiet_since + self._console.limits.quiet_seconds
        remaining = quiet_until - self._console.clock.seconds()
        if remaining > 0:
            self._wait_for_quiet(remaining)
        elif outage := self._console.outage:
            self.finish(Ending(LINE_LOST, outage))
        else:
            self.finish(Ending(COMPLETED, "the input ended and the console is quiet"))

    def _cancel_timers(self) -> None:
        for timer in (self._stall, self._quiet):
            if timer is not None and timer.active():
                timer.cancel()

"""Interfaces of streaming: consoles, and the streams that carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import Attribute, Interface

from twisted_exec.wire.channel import Channel
from twisted_exec.wire.endings import (
    COMPLETED,
    CONSOLE_IN_USE,
    IDLE,
    INPUT_DENIED,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    RESTARTING,
    RESUMED,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
    TIME_OVER,
    TOO_MANY_VIEWERS,
    USER_LEFT,
    Ending,
)
from twisted_exec.wire.marks import At, Attendance, Notice
from twisted_exec.wire.resize import Break, Role, TerminalSize
from twisted_exec.wire.resume import Position
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.upgrade import HeaderSet

if TYPE_CHECKING:
    from twisted_exec.streaming.evidence import SessionEvidence
    from twisted_exec.streaming.subject import Subject

__all__ = [
    "COMPLETED",
    "CONSOLE_IN_USE",
    "IDENTITY_HEADERS",
    "IDLE",
    "INPUT_DENIED",
    "INTERNAL",
    "LINE_LOST",
    "MACHINE_DELETED",
    "POOL_DELETED",
    "POWERED_OFF",
    "RESTARTING",
    "RESUMED",
    "REVOKED",
    "SESSION_DELETED",
    "SHUTTING_DOWN",
    "TIME_OVER",
    "TOO_MANY_VIEWERS",
    "UID_HEADER",
    "USER_HEADER",
    "USER_LEFT",
    "Break",
    "Ending",
    "IAttachment",
    "IAttachmentTransport",
    "IBreakable",
    "IConsole",
    "IMarkTransport",
    "IMessaging",
    "IOperable",
    "IResumableAttachment",
    "IRoundReviewer",
    "ISessionReviewer",
    "IStreamRecorder",
    "ITermsAttachment",
    "Position",
    "Role",
    "TerminalSize",
]


USER_HEADER = b"X-Twisted-Exec-User"
"""The user of a request from a poollet to a runtime; percent-encoded."""
UID_HEADER = b"X-Twisted-Exec-Machine-Uid"
"""
The UID of the machine that the previous hop means, because another machine may get its name;
percent-encoded.
"""

IDENTITY_HEADERS = HeaderSet.of(
    "Authorization",
    "Proxy-Authorization",
    "Cookie",
    "Cookie2",
    prefixes=("X-Remote-", "Impersonate-", "X-Twisted-Exec-"),
)
"""
Headers by which a user, or a hop for its user, says who is asking.  No hop passes them on.
Authenticators add their own
(:attr:`~twisted_exec.auth.interfaces.IAuthenticator.credential_headers`).
"""


class IStreamRecorder(Interface):
    """Records one stream of remote commands."""

    def begin() -> None:
        """
        Begin to record; called once, before the user is answered.

        :raises APIError: the stream cannot be recorded, and must not be opened.
        """

    def input(channel: Channel, data: bytes) -> Ending | None:
        """
        Record input or a terminal size.

        :return: why the session has to end instead; ``None`` to go on.
        """

    def output(channel: Channel, data: bytes) -> Ending | None:
        """Record output; see :meth:`input`."""

    def end(reason: str) -> None:
        """The stream has ended; called once after a successful :meth:`begin`."""


class ISessionReviewer(Interface):
    """Decides again whether a session may go on; :mod:`twisted_exec.streaming.sessions.guard` says when."""

    def review(subject: Subject, evidence: SessionEvidence) -> Deferred[Terms]:
        """
        Authenticate and authorize a session again.

        :param evidence: what the hop's own gate put into ``context.evidence``.
        :return: fires with the present terms when the session may go on.  Fails with
            :class:`~twisted_exec.api.status.Unauthorized` or
            :class:`~twisted_exec.api.status.Forbidden` when it may not.  After any other
            :class:`~twisted_exec.api.status.APIError` the session goes on until the next review.
        """


class IRoundReviewer(ISessionReviewer):
    """A reviewer for which many sessions raise the same few questions."""

    def for_round() -> ISessionReviewer:
        """Return a reviewer that may repeat its answers during one round of reviews."""


class IAttachment(Interface):
    """One user's end of a console, as the stream sees it."""

    def attached(transport: IAttachmentTransport) -> None:
        """The stream is up; called at most once, before any input."""

    def data_received(data: bytes) -> None:
        """
        The user typed.

        :param data: raw bytes, 1 or more, split anywhere.
        """

    def window_changed(size: TerminalSize) -> None:
        """The user's terminal has a new size."""

    def input_ended() -> None:
        """The user's input is at its end; output goes on."""

    def detached(reason: str) -> None:
        """The stream is gone; called once, even if it never came up."""


class IOperable(IAttachment):
    """An attachment whose user can send BREAK and change roles."""

    def wished(wish: Break | Role) -> None:
        """
        The user asks for a BREAK, or for another role; in order with what is typed.

        Not called for a session without input (``options.takes_input`` is false).
        """


class IMessaging(IAttachment):
    """An attachment that passes messages of its user on to the other users of the console."""

    def said(text: str) -> None:
        """
        The user, who has the right to drive, has a message for the other users.

        It is no input: it comes also while input is paused, and is not counted. The attachment
        limits the rate.

        :param text: one line of 1 to 200 printable characters.
        """


class ITermsAttachment(IAttachment):
    """
    An attachment that enforces the terms that concern all sessions of a console: their number, its
    people, who yields the floor, its recording, and the rate of input.  Of a limited rate the stream
    delivers input in parts, between which the attachment may pause it.

    The stream enforces the others, and refuses a session whose terms need this interface if the
    attachment lacks it.  :meth:`~IOperable.wished` also gets the requests of users without the
    right to drive, and answers them.
    """

    bytes_to_machine = Attribute("Input that the machine got so far (int), for audit.")

    def admit(terms: Terms) -> None:
        """
        Check before the stream is up whether the console accepts one more session.

        :raises APIError: the console does not accept one.
        """

    def input_refused() -> None:
        """Tell the user, who typed without the right to drive; the stream has dropped the input."""

    def terms_changed(terms: Terms) -> None:
        """The terms are others from now on; the first are :attr:`IAttachmentTransport.terms`."""


class IResumableAttachment(ITermsAttachment):
    """
    An attachment that can outlive its stream: its user may come back over another stream.

    The stream of a client that can resume provides :class:`IMarkTransport`: the attachment sends it
    the mark At before its first output and behind each gap, and notices as marks.  Another stream
    gets notices and gaps in its output.
    """

    oldest = Attribute(
        """
        The position of the oldest output that the session may have (:class:`Position`).

        Not every user with a right to consoles may read logs, so no session continues at an older
        position than that of its beginning.  A runtime that lets a session go on after a restart
        stores this with the session, and sets it in the new attachment before ``resumed``.
        """
    )

    def check(position: Position) -> None:
        """
        Check before the stream is up whether output can continue at a position.

        If the position is no longer retained, output continues at the oldest retained byte; in
        another epoch it begins as for a new user.

        :raises BadRequest: the position is beyond the end of the output.
        """

    def away() -> None:
        """The stream is lost; :meth:`resumed` or ``detached`` follows."""

    def resumed(transport: IMarkTransport, position: Position) -> None:
        """The user is back, over another stream; called instead of ``attached``."""

    def answered() -> None:
        """
        The client has sent what its user typed before :meth:`resumed` or the stream's last
        :meth:`IMarkTransport.ask`.

        If that is more than a connection takes, the rest comes later.
        """


class IAttachmentTransport(Interface):
    """
    The stream, as an attachment sees it.

    It pauses and resumes the producer that the attachment registers (an
    :class:`~twisted.internet.interfaces.IPushProducer`); both calls may repeat.
    """

    session = Attribute("The session's id (str).")
    user = Attribute("The user of the attachment (str).")
    options = Attribute(
        "The stream options of the request (:class:`~twisted_exec.wire.stream_options.StreamOptions`).  Input"
        " and terminal sizes of a read-only session do not reach the attachment."
    )

    terms = Attribute(
        "The present terms of the session (:class:`~twisted_exec.wire.session_terms.Terms`).  Input of"
        " a user without the right to drive does not reach the attachment."
    )

    def write(data: bytes) -> None:
        """
        Send output.

        :param data: at least 1 byte, of any length.
        """

    def end(ending: Ending) -> None:
        """
        Send what was written, then the status, then close in the protocol's order, waiting
        (bounded) for the peer.  Repeated calls do nothing.
        """

    def pause_input() -> None:
        """Stop delivering ``data_received`` (bounded buffer, then stop reading)."""

    def resume_input() -> None:
        """Deliver again."""

    def registerProducer(producer: object, streaming: bool) -> None:
        """As :class:`~twisted.internet.interfaces.IConsumer`; ``streaming`` is true."""

    def unregisterProducer() -> None:
        """As :class:`~twisted.internet.interfaces.IConsumer`."""


class IMarkTransport(IAttachmentTransport):
    """A stream whose client reads marks, see :mod:`twisted_exec.wire.marks`."""

    settled = Attribute(
        "Pieces of input since counting began that reached the attachment, or were discarded (int)."
    )

    def send_mark(mark: At | Attendance | Notice) -> None:
        """Send a mark, in order with the output."""

    def ask() -> None:
        """
        Ask the client for an answer; :meth:`IResumableAttachment.answered` follows when it arrives.
        """


class IEchoTransport(Interface):
    """A stream that wants to know how fast the machine answers input."""

    def echoed(seconds: float) -> None:
        """
        Take note of the time from input of this stream to the next output of the machine.

        :param seconds: at most 2; longer ones do not count.
        """


class IConsole(IStreamClientEndpoint):
    """
    A machine's console line.

    ``connect(factory)`` as any stream client endpoint: fires with the protocol when the line is
    open.  Its ``connectionLost`` reason tells how the line ended:
    :class:`~twisted.internet.error.ProcessDone` and
    :class:`~twisted.internet.error.ProcessTerminated` carry an exit code,
    :class:`~twisted_exec.console.line.LineEnded` any ending, anything else is a lost line.
    """

    paced = Attribute(
        """
        True when the line may be paused without harm (a pty): the session then
        paces it by its fastest viewer, and reads it slowly while there is
        none.  False for a machine's serial line, which is never paused.
        """
    )

    def window_changed(size: TerminalSize) -> None:
        """Give the line this size, if need be once it is open."""


class IBreakable(Interface):
    """A console that can send BREAK; provided by an :class:`IConsole` besides that."""

    def send_break(milliseconds: int) -> None:
        """
        Send BREAK on the line, if it is open; its length may be fixed.

        The caller neither writes into the line nor calls this again until that time has passed.

        :param milliseconds: 1 to 5000.
        """

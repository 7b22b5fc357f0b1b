"""
The machine's end of a console, over WebSocket or SPDY.

:func:`serve` connects an upgrade request to an attachment.  At the end it keeps the order of
Kubernetes' newest servers: all output, the status, the protocol's own end (Close 1000, or the end
of each stream), then wait for the client to leave.  A server that closes sooner resets the
connection and loses the tail of its output; one that closes without a status looks successful.

Input is buffered up to a limit while the attachment has paused it.  Beyond the limit the connection
is no longer read, since neither protocol can pause a single channel: sizes, pings and the client's
leaving then wait too, until the attachment resumes input.

A client that can come back after a loss gets a
:class:`~twisted_exec.streaming.remotecommand.resumable.ResumableServer`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.streaming.enduring import EnduringStream
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    REVOKED,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IEchoTransport,
    ITermsAttachment,
)
from twisted_exec.streaming.remotecommand.carrier import ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import DEFAULT_LIMITS, Limits, accept
from twisted_exec.streaming.remotecommand.negotiation import choose_protocol
from twisted_exec.streaming.remotecommand.notices import (
    MAY_OBSERVE,
    NO_BREAK,
    NO_ROLES,
    READ_ONLY,
)
from twisted_exec.streaming.remotecommand.user_input import UserInput
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.streaming.sessions.time_limits import TimeLimits
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.remotecommand.messages import encode_ending, encode_notice
from twisted_exec.wire.session_terms import FULL, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

if TYPE_CHECKING:
    from twisted_exec.streaming.enduring_streams import Offer
    from twisted_exec.streaming.remotecommand.resumable import Resumption

__all__ = [
    "MAY_OBSERVE",
    "NO_BREAK",
    "NO_ROLES",
    "READ_ONLY",
    "ConsoleServer",
    "serve",
]


_STATUS_SECONDS = 5.0
"""How long a session that has ended waits, if its connection is lost, for a user who lacks the status."""


def serve(
    request: Request,
    attachment: IAttachment,
    *,
    session: str,
    user: str,
    clock: IReactorTime,
    limits: Limits = DEFAULT_LIMITS,
    record: Session | None = None,
    terms: Terms = FULL,
    now: Callable[[], float] = time.time,
    resumption: Resumption | None = None,
    offer: Offer | None = None,
) -> ConsoleServer:
    """
    Answer a request with a console.

    Over a WebSocket this calls ``attachment.attached`` before it returns, and perhaps
    ``data_received``: a client may send right behind its request.  Over SPDY that waits for the
    client's streams; a client that opens none is never attached, but detached all the same.

    :param session: id of the session, sent to the client as ``Audit-Id``.
    :param record: the session in this hop's
        :class:`~twisted_exec.streaming.sessions.registry.Sessions`, if there is one: it can end the
        stream, and learns of the end.
    :param terms: what the session is held to.
    :param now: returns the time of day.
    :param resumption: for a client that can resume; the attachment is an
        :class:`~twisted_exec.streaming.interfaces.IResumableAttachment` then.
    :param offer: accepted from the hop before, which may rejoin the stream.
    :return: the attachment's transport.
    :raises APIError: the request is no valid handshake, or the attachment does not admit a session
        with these terms; nothing was sent.
    :raises ConnectionDone: the client has left.
    """
    protocol, options = choose_protocol(request), StreamOptions.of(request.args)
    if ITermsAttachment.providedBy(attachment):
        attachment.admit(terms)
    elif why := _unenforced(terms):
        raise NotImplementedByBackend(why)
    make: Callable[..., ConsoleServer] = ConsoleServer
    if resumption is not None:
        from twisted_exec.streaming.remotecommand.resumable import ResumableServer

        make = partial(ResumableServer, resumption)
        if resumption.credit:
            from twisted_exec.streaming.remotecommand.page_server import PageServer

            make = partial(PageServer, resumption)
    server = make(
        attachment,
        session=session,
        user=user,
        options=options,
        clock=clock,
        limits=limits,
        record=record,
        terms=terms,
        now=now,
    )
    accept(
        request,
        protocol,
        options,
        server,
        session=session,
        terms=terms,
        resumable=None if resumption is None else resumption.answer,
        offer=offer,
        clock=clock,
        limits=limits,
    )
    return server


def _unenforced(terms: Terms) -> str:
    """Return why an attachment that is no :class:`ITermsAttachment` cannot enforce terms."""
    if terms.people <= 1 and not terms.viewers:
        return ""
    return (
        f"{terms.rule('limit')} the users at a console, and this console does not know its users:"
        " select other machines in the policy"
    )


@implementer(IAttachmentTransport, IEchoTransport)
class ConsoleServer:
    """
    A session's stream at the machine's end; made by :func:`serve`.

    :ivar terms: what the session is held to at present.
    :ivar bytes_to_user: sent output, without framing.
    """

    _is_spent = False  # the client accepts no more output before its next report

    def __init__(
        self,
        attachment: IAttachment,
        *,
        session: str,
        user: str,
        options: StreamOptions,
        clock: IReactorTime,
        limits: Limits,
        record: Session | None,
        terms: Terms = FULL,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.session, self.user, self.options = session, user, options
        self.terms = terms
        self.bytes_to_user = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
        self._record = record
        self._time_limits = TimeLimits(clock, self._warn, self._end_by_hop, now=now)
        self._producer: Any = None
        self._enduring: EnduringStream | None = None  # the transport, if it can be rejoined
        self._input = UserInput(
            attachment,
            options,
            clock,
            takes_input=self.takes_input,
            tell=self._tell,
            used=self._time_limits.touch,
            limit_bytes=limits.input_bytes,
            set_full=self._pace_client,
        )
        self._ending = False  # the status was sent, or never will be
        self._is_open = False  # the attachment has been attached
        self._left = False  # the attachment is detached
        self._detached = False  # and the session is over
        self._why = ""
        self._pinged_at: float | None = None  # when the oldest ping without an answer was sent
        self._timer: IDelayedCall | None = None

    def use(self, carrier: ServerCarrier) -> None:
        """Set the carrier."""
        self._carrier = carrier
        carrier.on_flow(self._flow)

    @property
    def protocol(self) -> str:
        """Name of the protocol version; empty for a WebSocket without subprotocol."""
        return self._carrier.protocol

    @property
    def bytes_to_machine(self) -> int:
        """Received input, without framing."""
        return self._input.bytes_to_machine

    @property
    def takes_input(self) -> bool:
        """Return whether input passes: the request has stdin, and the user may drive."""
        return self.options.takes_input and self.terms.right >= Right.DRIVE

    @property
    def asked(self) -> StreamOptions:
        """Old name of :attr:`options`."""
        warnings.warn(
            "IAttachmentTransport.asked is called options now; the old name goes with the release"
            " after the next",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.options

    # IAttachmentTransport

    def write(self, data: bytes) -> None:
        if not self._ending:
            self.bytes_to_user += len(data)
            self._carrier.send(Channel.STDOUT, data)

    def write_error(self, data: bytes) -> None:
        """
        Send error output, as for a command without a terminal.

        Dropped if the client has opened no stream for it.
        """
        if not self._ending:
            self.bytes_to_user += len(data)
            self._carrier.send(Channel.STDERR, data)

    def end(self, ending: Ending) -> None:
        if self._ending:
            return
        self._finish(ending)
        self._carrier.close()

    def pause_input(self) -> None:
        self._input.pause()

    def resume_input(self) -> None:
        self._input.resume()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._producer is not None:
            raise RuntimeError("the attachment has registered a producer already")
        self._producer = producer
        if self._left:
            producer.stopProducing()
        elif self._carrier.blocked or self._is_spent:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def hold_to(self, terms: Terms) -> None:
        """Change the terms of the session; input that is not delivered yet is subject to the new ones."""
        if terms == self.terms:
            return
        self.terms = terms
        self._input.takes_input = self.takes_input
        if not self.takes_input:
            self._input.drop()
        if self._left:
            return
        if ITermsAttachment.providedBy(self._attachment):
            if self._is_open:
                self._attachment.terms_changed(terms)
        elif why := _unenforced(terms):
            self._end_by_hop(Ending(REVOKED, why))
        if self._is_open:
            self._time_limits.hold_to(terms)  # last, because it may end the session

    def cut(self) -> None:
        """Close without a status, when the time for one has passed."""
        self._carrier.abort()

    def echoed(self, seconds: float) -> None:
        if self._record is not None:
            self._record.echoed(seconds)

    # CarrierUser

    def connected(self) -> None:
        if self._record is not None:
            self._record.carry(
                self._end_by_hop,
                self.cut,
                hold_to=self.hold_to,
                transports=self._transports,
            )

    def _transports(self) -> tuple[object, object]:
        transport = self._carrier.transport
        if isinstance(transport, EnduringStream):
            transport = transport.connection_transport
        return transport, None

    def opened(self) -> None:
        if not self._ending:
            self._arm(self._limits.ping_seconds, self._ping)
            self._is_open = True
            transport = self._carrier.transport
            if isinstance(transport, EnduringStream):
                self._enduring = transport
                transport.ping = self._send_ping
                transport.on_wait = self._forget_ping
            self._attach()
            self._time_limits.hold_to(self.terms)
            if self.options.input_ended:
                self._input.ended()

    def received(self, channel: Channel, data: bytes) -> None:
        if self._ending:
            return
        if channel is Channel.STDIN:
            self._input.typed(data)
        elif channel is Channel.RESIZE:
            self._input.control_received(data)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN and not self._ending:
            self._input.ended()

    def pong_received(self) -> None:
        """TCP shows whether the peer is alive; the answer shows what has arrived."""
        pinged_at, self._pinged_at = self._pinged_at, None
        if pinged_at is not None and self._record is not None:
            self._record.pinged(self._clock.seconds() - pinged_at)
        if self._enduring is not None:
            self._enduring.answered()

    def failing(self, reason: str) -> None:
        if not self._ending:
            self._finish(Ending(INTERNAL, f"the client broke the protocol: {reason}"))
            self._why = f"protocol error: {reason}"
        self._detach(self._why)

    def close_received(self, code: int | None = None) -> None:
        if not self._ending:
            self._ending = True
            self._disarm()
            self._detach("client closed")

    def lost(self, reason: str) -> None:
        self._disarm()
        self._ending = True
        self._detach(reason, self._lose)

    # Input, output and notices

    def _attach(self) -> None:
        """Tell the attachment that the stream is up."""
        self._attachment.attached(self)

    def _lose(self, reason: str) -> None:
        """Tell the attachment that the connection is lost."""
        self._attachment.detached(reason)

    def _warn(self, text: str) -> None:
        self._tell(encode_notice(text))

    def _tell(self, notice: bytes) -> None:
        """Show a notice to the user."""
        self.write(notice)

    def _pace_client(self, full: bool) -> None:
        if full:
            # From here on pings stay unread too; there is no other way to stop this client.
            self._carrier.transport.pauseProducing()
        else:
            self._carrier.transport.resumeProducing()

    def _flow(self, full: bool) -> None:
        if self._producer is not None:
            if full or self._is_spent:
                self._producer.pauseProducing()
            else:
                self._producer.resumeProducing()
        if self._ending and self._timer is not None and not full:
            self._timer.reset(self._limits.close_seconds)  # it still reads: give it more time

    # The end

    def _end_by_hop(self, ending: Ending) -> None:
        """
        End the session for a reason that is not the console's.

        The user leaves the console now: a client that does not leave must neither keep the floor nor
        count as a person.
        """
        self.end(ending)
        self._leave(self._why or ending.reason)

    def _leave(self, reason: str, leave: Callable[[str], None] | None = None) -> None:
        if not self._left:
            self._left = True
            self._producer = None
            (leave or self._attachment.detached)(reason)

    def _finish(self, ending: Ending) -> None:
        """Send the status; the caller closes."""
        self._ending, self._why = True, ending.reason
        self._stop()
        self._carrier.send_status(encode_ending(ending, self.protocol))
        if self._enduring is not None:
            self._enduring.wait_at_most(_STATUS_SECONDS)
        # Discard further input, but keep reading to notice when the client leaves.
        self._carrier.transport.resumeProducing()
        self._arm(self._limits.close_seconds, self._carrier.hang_up)

    def _stop(self) -> None:
        """Deliver no more input, and send nothing more unasked."""
        self._time_limits.stop()
        self._input.close()

    def _detach(self, reason: str, leave: Callable[[str], None] | None = None) -> None:
        if self._detached:
            return
        self._detached = True
        self._stop()
        reason = self._why or reason
        self._producer = None
        if self._record is not None:
            sent = self.bytes_to_machine
            if ITermsAttachment.providedBy(self._attachment):
                sent = self._attachment.bytes_to_machine  # without the input that it has discarded
            self._record.over(
                reason,
                bytes_to_machine=sent,
                bytes_to_user=self.bytes_to_user,
            )
        self._leave(reason, leave)

    def _ping(self) -> None:
        self._timer = None
        if self._enduring is not None:
            self._enduring.keep_alive()
        else:
            self._send_ping()
        self._arm(self._limits.ping_seconds, self._ping)

    def _send_ping(self) -> bool:
        """Send a ping unless output is blocked; return whether it was sent."""
        if self._carrier.blocked:
            return False
        if self._pinged_at is None:
            self._pinged_at = self._clock.seconds()
        self._carrier.ping()
        return True

    def _forget_ping(self) -> None:
        """Measure nothing: the connection is lost, and the answer waits for the next one."""
        self._pinged_at = None

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, then)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

"""
The machine's end of a console, over WebSocket or SPDY.

:func:`serve` connects an upgrade request to an attachment.  At the end it keeps the order of
Kubernetes' newest servers: all output, the status, the protocol's own end (Close 1000, or the end
of each stream), then wait for the client to leave.  A server that closes sooner resets the
connection and loses the tail of its output; one that closes without a status looks successful.

Input is buffered up to a limit while the attachment has paused it.  Beyond the limit the connection
is no longer read, since neither protocol can pause a single channel: sizes, pings and the client's
leaving then wait too, until the attachment resumes input.

Of many sizes in one turn of the reactor the attachment gets the first and the last.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    REVOKED,
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IOperable,
    ITermsAttachment,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carrier import ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import DEFAULT_LIMITS, Limits, accept
from twisted_exec.streaming.remotecommand.input_queue import InputQueue, Item
from twisted_exec.streaming.remotecommand.negotiation import choose_protocol
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.time_limits import TimeLimits
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.remotecommand.messages import SizeDecoder, encode_ending
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

READ_ONLY = b"\r\n[twisted-exec: you are an observer; what you type is not sent]\r\n"
"""
Notice to the user of a ``readOnly=true`` session who types.

Observers that asked for input get :meth:`.Floor.refusal` instead, which names the writer and
``~f``: they may take over.  The streaming layer knows no floor, and a read-only session can never
take over.
"""

MAY_OBSERVE = f"\r\n[twisted-exec: what you type is not sent: {MAY_ONLY_OBSERVE}]\r\n".encode()
"""Notice to a user without the right to drive who types."""

NO_BREAK = b"\r\n[twisted-exec: this console has no BREAK]\r\n"
"""Notice for a BREAK that cannot be sent."""

NO_ROLES = b"\r\n[twisted-exec: this console has no roles: whoever is here may type]\r\n"
"""Notice for a role request on a console without roles."""


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
    server = ConsoleServer(
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


@implementer(IAttachmentTransport)
class ConsoleServer:
    """
    A session's stream at the machine's end; made by :func:`serve`.

    :ivar terms: what the session is held to at present.
    :ivar bytes_to_machine: received input, without framing.
    :ivar bytes_to_user: sent output, without framing.
    """

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
        self.bytes_to_machine = self.bytes_to_user = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
        self._record = record
        self._time_limits = TimeLimits(clock, self._warn, self._end_by_hop, now=now)
        self._sizes = SizeDecoder()
        self._producer: Any = None
        self._size: TerminalSize | None = None  # the newest, until the next turn
        self._next_size: IDelayedCall | None = None
        self._input = InputQueue(limits.input_bytes, self._deliver, self._pace_client)
        self._input_over = False
        self._refused: set[bytes] = set()  # notices that the user has had
        self._ending = False  # the status was sent, or never will be
        self._is_open = False  # the attachment has been attached
        self._left = False  # the attachment is detached
        self._detached = False  # and the session is over
        self._why = ""
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
        elif self._carrier.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def hold_to(self, terms: Terms) -> None:
        """Change the terms of the session; input that is not delivered yet is subject to the new ones."""
        if terms == self.terms:
            return
        self.terms = terms
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

    # CarrierUser

    def connected(self) -> None:
        if self._record is not None:
            self._record.carry(self._end_by_hop, self.cut, hold_to=self.hold_to)

    def opened(self) -> None:
        if not self._ending:
            self._arm(self._limits.ping_seconds, self._ping)
            self._is_open = True
            self._attachment.attached(self)
            self._time_limits.hold_to(self.terms)

    def received(self, channel: Channel, data: bytes) -> None:
        if self._ending:
            return
        if data:  # some clients keep connections open with empty input
            self._time_limits.touch()
        if channel is Channel.STDIN and not self._input_over:
            if self.takes_input:
                self._take(data)
            else:
                self._refuse()
        elif channel is Channel.RESIZE and not self.options.read_only:
            for event in self._sizes.feed(data):
                self._control_received(event)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN and not self._input_over and not self._ending:
            self._input_over = True
            self._take(None)

    def pong_received(self) -> None:
        """Ignored: TCP shows whether the peer is alive."""

    def failing(self, reason: str) -> None:
        if not self._ending:
            self._finish(Ending(INTERNAL, f"the client broke the protocol: {reason}"))
            self._why = f"protocol error: {reason}"
        self._detach(self._why)

    def close_received(self) -> None:
        if not self._ending:
            self._ending = True
            self._disarm()
            self._detach("client closed")

    def lost(self, reason: str) -> None:
        self._disarm()
        self._ending = True
        self._detach(reason)

    # Input

    def _refuse(self) -> None:
        """
        Drop input.

        As in Kubernetes, a client that did not request stdin and sends some gets no notice.
        """
        if self.options.read_only:
            self._tell_once(READ_ONLY)
        elif self.options.takes_input:
            if ITermsAttachment.providedBy(self._attachment):
                self._attachment.input_refused()
            else:
                self._tell_once(MAY_OBSERVE)

    def _warn(self, text: str) -> None:
        self.write(f"\r\n[twisted-exec: {text}]\r\n".encode())

    def _tell_once(self, notice: bytes) -> None:
        if notice not in self._refused:
            self._refused.add(notice)
            self.write(notice)

    def _control_received(self, event: TerminalSize | Break | Role) -> None:
        """Deliver a size at once, unless it is the second of this turn; queue other requests as input."""
        if isinstance(event, TerminalSize):
            self._size = event
            if self._next_size is None:
                self._resize()
        elif self.options.takes_input and not self._input_over:
            if self.takes_input or ITermsAttachment.providedBy(self._attachment):
                self._take(event)  # also of a user who may only observe: the attachment says so
            else:
                self._refuse()

    def _resize(self) -> None:
        """Deliver the newest size, and the next one not before the next turn."""
        self._next_size = self._clock.callLater(0, self._resize) if self._size is not None else None
        self._deliver_size()

    def _deliver_size(self) -> None:
        size, self._size = self._size, None
        if size is not None and not self._ending:
            self._attachment.window_changed(size)

    def _take(self, item: Item) -> None:
        self._deliver_size()  # it came before
        self._input.put(item)

    def _deliver(self, item: Item) -> None:
        if item is None:
            self._attachment.input_ended()
        elif isinstance(item, bytes):
            self.bytes_to_machine += len(item)
            self._attachment.data_received(item)
        elif IOperable.providedBy(self._attachment):
            self._attachment.wished(item)
        else:
            self._tell_once(NO_BREAK if isinstance(item, Break) else NO_ROLES)

    def _pace_client(self, full: bool) -> None:
        if full:
            # From here on pings stay unread too; there is no other way to stop this client.
            self._carrier.transport.pauseProducing()
        else:
            self._carrier.transport.resumeProducing()

    # Output

    def _flow(self, full: bool) -> None:
        if self._producer is not None:
            if full:
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

    def _leave(self, reason: str) -> None:
        if not self._left:
            self._left = True
            self._producer = None
            self._attachment.detached(reason)

    def _finish(self, ending: Ending) -> None:
        """Send the status; the caller closes."""
        self._ending, self._why = True, ending.reason
        self._time_limits.stop()
        self._carrier.send_status(encode_ending(ending, self.protocol))
        self._input.close()
        # Discard further input, but keep reading to notice when the client leaves.
        self._carrier.transport.resumeProducing()
        self._arm(self._limits.close_seconds, self._carrier.hang_up)

    def _detach(self, reason: str) -> None:
        if self._detached:
            return
        self._detached = True
        self._time_limits.stop()
        reason = self._why or reason
        self._producer = self._size = None
        if self._next_size is not None and self._next_size.active():
            self._next_size.cancel()
        self._input.close()
        if self._record is not None:
            sent = self.bytes_to_machine
            if ITermsAttachment.providedBy(self._attachment):
                sent = self._attachment.bytes_to_machine  # without the input that it has discarded
            self._record.over(
                reason,
                bytes_to_machine=sent,
                bytes_to_user=self.bytes_to_user,
            )
        self._leave(reason)

    def _ping(self) -> None:
        self._timer = None
        self._carrier.ping()
        self._arm(self._limits.ping_seconds, self._ping)

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, then)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

"""
The user's end of a console, over WebSocket or SPDY.

A session is over when the server ends the stream; the status before that says how.  Kubernetes' own
client takes an end without a status for success, and a lost connection for the last thing received;
here a session without a status counts as a lost connection, however politely it closed.

A server without version 5 (it picks another subprotocol, or sends an empty 403 as Go's WebSocket
server does) is tried again with version 4, which cannot signal the end of input, and then with
SPDY, which can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Typing

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IReactorTime,
    IStreamClientEndpoint,
)

from twisted_exec.api.status import BadGateway
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    upgrade,
)
from twisted_exec.streaming.interfaces import INTERNAL, Break, Ending, Role, TerminalSize
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier
from twisted_exec.streaming.remotecommand.carriers import over
from twisted_exec.streaming.remotecommand.negotiation import (
    OVER_SPDY,
    Attempt,
    OtherProtocol,
    of_the_protocol,
)
from twisted_exec.wire.channel import V4, V5, Channel
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand.messages import (
    STATUS_LIMIT_BYTES,
    decode_ending,
    encode_size,
    encode_wish,
)
from twisted_exec.wire.upgrade import values

ATTEMPTS = (V5, V4, OVER_SPDY)
"""Protocols to try, in order."""

PING_SECONDS = 5
PONG_SECONDS = 61
"""As kubectl: a ping every 5 s; a server that does not answer for 61 s is dead."""

LOST = "connection lost before the session's status"

LEAVE_SECONDS = 5.0
"""Time limit for the server to answer our Close."""


class ConsoleUser(Typing):
    """Callbacks of a :class:`ConsoleClient`."""

    def attached(self, stream: ConsoleClient) -> None:
        """The stream is open; called once, first of all."""

    def data_received(self, data: bytes) -> None:
        """Output of the machine, 1 byte or more."""

    def ended(self, ending: Ending) -> None:
        """The server ended the session with this status; :meth:`detached` follows."""

    def detached(self, reason: str) -> None:
        """
        The stream is closed; called exactly once, last of all.

        Without :meth:`ended` before, and unless this side left, the connection was lost before
        the session's status; ``reason`` then says so.
        """


def connect(
    endpoint: IStreamClientEndpoint,
    head: UpgradeRequest,
    user: ConsoleUser,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    protocols: Sequence[str] = ATTEMPTS,
) -> Deferred[ConsoleClient]:
    """
    Open a console.

    Open a console.

    :param head: the request with credentials, without the headers of the upgrade.
    :param user: receives everything, from ``attached`` on, before the Deferred fires.
    :param timeout_seconds: to connect, again for the response, and with SPDY again for its
        streams.
    :param protocols: tried in this order, on one connection each: of
        :data:`~twisted_exec.wire.channel.PROTOCOLS`, or
        :data:`~twisted_exec.streaming.remotecommand.negotiation.OVER_SPDY`.
    :return: fires with the attached stream; fails with an
        :class:`~twisted_exec.api.status.APIError`: the server's, or 502 and 504 if it cannot be
        reached or speaks none of ``protocols``.  Cancelling closes the connection.
    """

    async def open_console() -> ConsoleClient:
        refused: Exception = BadGateway("no subprotocol to offer")
        for protocol in protocols:
            attempt = Attempt.over(protocol)
            try:
                upgraded = await upgrade(
                    endpoint, attempt.head(head), clock=clock, timeout_seconds=timeout_seconds
                )
                chosen = attempt.chosen(upgraded)
            except UpgradeRefused as answer:
                refused = answer.as_api_error()
                if not of_the_protocol(answer):
                    raise refused from None
            except OtherProtocol as answer:
                refused = BadGateway(str(answer))
            else:
                return await _start(upgraded, user, protocol, chosen, clock, timeout_seconds)
        raise refused

    return Deferred.fromCoroutine(open_console())


def _start(
    upgraded: Upgraded,
    user: ConsoleUser,
    attempt: str,
    protocol: str,
    clock: IReactorTime,
    timeout_seconds: float,
) -> Deferred[ConsoleClient]:
    session = b"".join(values(upgraded.headers, b"audit-id")[-1:])
    client = ConsoleClient(user, session.decode("ascii", "replace"), clock)
    upgraded.hand_over(client.over(attempt, protocol, timeout_seconds))
    return client.opening


class ConsoleClient:
    """
    A session's stream at the user's end; made by :func:`connect`.

    :ivar session: id of the session on every hop, for support; may be empty.
    :ivar opening: fires with this object once attached; fails with 502.
    """

    carrier: ClientCarrier

    def __init__(self, user: ConsoleUser, session: str, clock: IReactorTime) -> None:
        self.session = session
        self.opening: Deferred[ConsoleClient] = Deferred(lambda _: self.abort())
        self._user, self._clock = user, clock
        self._size: TerminalSize | None = None
        self._producer: Any = None
        self._output: deque[bytes] = deque()
        self._paused = False
        self._attached = False
        self._status = b""
        self._status_ended = False  # the status is complete, even if it is empty
        self._over = False  # only the loss of the connection is still to come
        self._left = False
        self._ending_delivered = False  # ended() was called
        self._why = ""  # a reason known before the connection is lost
        self._gone: str | None = None  # reason of the loss of the connection
        self._detached = False
        self._unanswered_since: float | None = None
        self._timer: IDelayedCall | None = None

    def over(self, way: str, protocol: str, open_seconds: float) -> IProtocol:
        """
        The protocol for a connection; see
        :func:`~twisted_exec.streaming.remotecommand.carriers.over`.
        """
        self.carrier, holder = over(
            way,
            protocol,
            self,
            clock=self._clock,
            open_seconds=open_seconds,
            linger_seconds=LEAVE_SECONDS,
        )
        self.carrier.on_flow(self._flow)
        return holder

    @property
    def transport(self) -> Any:
        """The transport, for its addresses."""
        return self.carrier.transport

    @property
    def protocol(self) -> str:
        """Name of the protocol version."""
        return self.carrier.protocol

    @property
    def can_half_close(self) -> bool:
        """Return whether the end of input can be signalled (version 5, or SPDY)."""
        return self.carrier.can_half_close

    # For the user.

    def write(self, data: bytes) -> None:
        """Send input; dropped when the session is over."""
        self.carrier.send(Channel.STDIN, data)

    def end_input(self) -> None:
        """
        End the input; output continues.

        :raises LocalProtocolError: not :attr:`can_half_close`.
        """
        self.carrier.end(Channel.STDIN)

    def resize(self, size: TerminalSize) -> None:
        """Send the new size of the user's terminal."""
        self._size = size
        self.carrier.send(Channel.RESIZE, encode_size(size))

    def wish(self, wish: Break | Role) -> None:
        """
        Request a BREAK or another role, in order with the input.

        A machine's end of ours that lacks it prints a notice; others ignore the request.
        """
        self.carrier.send(Channel.RESIZE, encode_wish(wish, self._size))

    def pause_output(self) -> None:
        """Stop delivery; the machine's end is held back."""
        self._paused = True
        self.carrier.transport.pauseProducing()

    def resume_output(self) -> None:
        """Resume delivery."""
        self._paused = False
        if self._unanswered_since is not None:
            self._unanswered_since = self._clock.seconds()  # its pong may still be unread
        self._deliver()
        if not self._paused and self._gone is None:
            self.carrier.transport.resumeProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As :class:`~twisted.internet.interfaces.IConsumer`; ``streaming`` is true."""
        self._producer = producer
        if self.carrier.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        """As :class:`~twisted.internet.interfaces.IConsumer`."""
        self._producer = None

    def leave(self) -> None:
        """End the session from this side: send Close, and wait up to a limit for the server's."""
        if self._over or self._left:
            return
        self._left = True
        self.resume_output()  # the server's Close must be read
        self.carrier.close()
        self._arm(LEAVE_SECONDS, self.carrier.hang_up)

    def abort(self) -> None:
        """Reset the connection."""
        self._left = True
        if self._gone is None:
            self.carrier.abort()

    # CarrierUser

    def connected(self) -> None:
        """Ignored: only the opening of the channels counts."""

    def opened(self) -> None:
        self._attached = True
        self._arm(PING_SECONDS, self._ping)
        self._user.attached(self)
        self.opening.callback(self)

    def received(self, channel: Channel, data: bytes) -> None:
        self._unanswered_since = None
        if self._over:
            return
        if channel in (Channel.STDOUT, Channel.STDERR):
            self._output.append(data)
            self._deliver()
        elif channel is Channel.ERROR:
            self._status += data
            if len(self._status) > STATUS_LIMIT_BYTES:
                self.carrier.fail("the status is too large")

    def ended(self, channel: Channel) -> None:
        if channel is Channel.ERROR:
            self._status_ended = True

    def pong_received(self) -> None:
        self._unanswered_since = None

    def failing(self, reason: str) -> None:
        self._why = f"the server broke the protocol: {reason}"
        self._over = True
        self._arm(LEAVE_SECONDS, self.carrier.hang_up)

    def close_received(self) -> None:
        self._over = True
        self._disarm()
        self._deliver()

    def lost(self, reason: str) -> None:
        self._disarm()
        self._over = True
        self._gone = self._why or reason
        if self._attached:
            self._deliver()
        elif not self._left:
            self.opening.errback(BadGateway(self._gone))

    # Delivery: output, then the ending, then the end.

    def _deliver(self) -> None:
        while self._output and not self._paused:
            data = self._output.popleft()
            if not self._left:
                self._user.data_received(data)
        if self._output or not self._over:
            return
        self._tell_ending()
        if self._gone is not None and not self._detached:
            self._detached = True
            without_status = not (self._ending_delivered or self._left or self._why)
            self._user.detached(LOST if without_status else self._gone)

    def _tell_ending(self) -> None:
        if self._ending_delivered or self._left or not (self._status or self._status_ended):
            return
        self._ending_delivered = True
        try:
            ending = decode_ending(self._status, self.protocol)
        except RemoteProtocolError as problem:
            ending = Ending(INTERNAL, f"the server's status cannot be read: {problem}")
        self._user.ended(ending)

    # Flow and life

    def _flow(self, full: bool) -> None:
        if self._producer is not None:
            if full:
                self._producer.pauseProducing()
            else:
                self._producer.resumeProducing()

    def _ping(self) -> None:
        self._timer = None
        now, since = self._clock.seconds(), self._unanswered_since
        held_up = self._paused or self.carrier.blocked
        if since is not None and now - since >= PONG_SECONDS and not held_up:
            self._why = f"the server has not answered for {PONG_SECONDS} seconds"
            self.carrier.abort()
            return
        if not self.carrier.blocked:
            self.carrier.ping()
            if since is None:
                self._unanswered_since = now
        self._arm(PING_SECONDS, self._ping)

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, then)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

"""
The user's end of a console: ``channel.k8s.io`` messages over a WebSocket.

A session is over when the server closes the WebSocket; what it *was* says the
Status that came before.  Kubernetes' own client takes a Close without a Status
for success and a lost connection for whatever came last; here a session without
a Status is one whose connection was lost, however politely.

A server that does not speak version 5 (it answers with another subprotocol, or
as Go's WebSocket server does with an empty 403) is asked again for version 4,
which cannot tell the end of input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from typing import Protocol as Typing

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint

from twisted_exec.api.status import BadGateway
from twisted_exec.streaming.interfaces import INTERNAL, Ending, TerminalSize
from twisted_exec.streaming.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    upgrade,
)
from twisted_exec.streaming.websocket import ClientSocket, client_factory, new_key, start
from twisted_exec.wire.channel import (
    PROTOCOLS,
    V5,
    Channel,
    StreamData,
    decode,
    encode,
    encode_close,
    messages,
)
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand import STATUS_LIMIT_BYTES, decode_status, encode_size
from twisted_exec.wire.upgrade import accept_key, values

PING_SECONDS = 5
PONG_SECONDS = 61
"""As kubectl: a ping every 5 s, and a server that has not answered for 61 s is dead."""

MESSAGE_BYTES = 32 << 20
"""The largest message from a server; ours sends 32 KiB, Go servers at most this."""

LOST = "connection lost before the session's status"

LEAVE_SECONDS = 5.0
"""How long the server may take to answer our Close."""


class ConsoleUser(Typing):
    """Whom a :class:`ConsoleClient` tells."""

    def attached(self, stream: ConsoleClient) -> None:
        """The stream is up; called once, before anything else."""

    def data_received(self, data: bytes) -> None:
        """Output of the machine, 1 byte or more."""

    def ended(self, ending: Ending) -> None:
        """The other side ended the session, and why; :meth:`detached` follows."""

    def detached(self, reason: str) -> None:
        """
        The stream is gone; called exactly once, the last call.

        Without :meth:`ended` before, and unless this side left, the connection
        was lost before the session's status: then ``reason`` says so.
        """


@dataclass(frozen=True)
class _Attempt:
    head: UpgradeRequest
    key: bytes


def connect(
    endpoint: IStreamClientEndpoint,
    head: UpgradeRequest,
    user: ConsoleUser,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    protocols: Sequence[str] = PROTOCOLS,
) -> Deferred[ConsoleClient]:
    """
    Open a console.

    :param head: the request without the headers of the upgrade; credentials
        are among its headers.
    :param user: told of everything that comes, beginning with ``attached``,
        before the Deferred fires.
    :param timeout_seconds: for connecting, and again for the answer.
    :param protocols: tried in this order, one connection each.
    :return: fires with the stream once it is attached; fails with an
        :class:`~twisted_exec.api.status.APIError`: what the server said, or 502
        and 504 when it is not there, 400 when it speaks none of ``protocols``.
        Cancelling closes the connection.
    """

    async def open_console() -> ConsoleClient:
        refused: Exception = BadGateway("no subprotocol to offer")
        for protocol in protocols:
            attempt = _attempt(head, protocol)
            try:
                upgraded = await upgrade(
                    endpoint, attempt.head, clock=clock, timeout_seconds=timeout_seconds
                )
                _check(upgraded, attempt.key, protocol)
            except UpgradeRefused as answer:
                if answer.code != 403 or answer.body:
                    raise answer.as_api_error() from None
                refused = answer.as_api_error()
            except _OtherProtocol as answer:
                refused = BadGateway(str(answer))
            else:
                return _start(upgraded, user, protocol, clock)
        raise refused

    return Deferred.fromCoroutine(open_console())


class _OtherProtocol(Exception):
    """The server chose a subprotocol that was not offered, or none."""


def _attempt(head: UpgradeRequest, protocol: str) -> _Attempt:
    key = new_key()
    ours = [
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", key),
        (b"Sec-WebSocket-Protocol", protocol.encode("ascii")),
    ]
    return _Attempt(replace(head, method=b"GET", headers=[*head.headers, *ours]), key)


def _check(upgraded: Upgraded, key: bytes, protocol: str) -> None:
    """:raises BadGateway: the 101 is not an answer to this request."""
    try:
        if values(upgraded.headers, b"sec-websocket-accept") != [accept_key(key)]:
            raise BadGateway("the server's WebSocket handshake is wrong")
        if values(upgraded.headers, b"sec-websocket-extensions"):
            raise BadGateway("the server uses a WebSocket extension that was not offered")
        if values(upgraded.headers, b"sec-websocket-protocol") != [protocol.encode("ascii")]:
            raise _OtherProtocol(f"the server does not speak {protocol}")
    except Exception:
        upgraded.abort()
        raise


def _start(
    upgraded: Upgraded, user: ConsoleUser, protocol: str, clock: IReactorTime
) -> ConsoleClient:
    session = b"".join(values(upgraded.headers, b"audit-id")[-1:])
    client = ConsoleClient(user, protocol, session.decode("ascii", "replace"), clock)
    factory = client_factory(clock, MESSAGE_BYTES)
    upgraded.hand_over(start(client.socket, factory, client, clock, LEAVE_SECONDS))
    return client


class ConsoleClient:
    """
    A session's stream, from the user's side; :func:`connect` makes it.

    :ivar session: its id on every hop, for questions to operators; may be empty.
    :ivar can_half_close: the end of input can be told (version 5).
    """

    def __init__(self, user: ConsoleUser, protocol: str, session: str, clock: IReactorTime) -> None:
        self.session, self.protocol = session, protocol
        self.can_half_close = protocol == V5
        self.socket = ClientSocket()
        self._user, self._clock = user, clock
        self._producer: Any = None
        self._output: deque[bytes] = deque()
        self._paused = False
        self._status = b""
        self._over = False  # no more will come but the connection's end
        self._left = False
        self._told = False  # the ending was told
        self._why = ""  # what is known about the end before the connection tells
        self._gone: str | None = None  # the connection is lost, and why
        self._detached = False
        self._unanswered_since: float | None = None
        self._timer: IDelayedCall | None = None

    @property
    def transport(self) -> Any:
        """For addresses."""
        return self.socket.transport

    # For the user.

    def write(self, data: bytes) -> None:
        """Input for the machine; dropped when the session is over."""
        for message in messages(Channel.STDIN, data):
            self.socket.send(message)

    def end_input(self) -> None:
        """
        There is no more input; output goes on.

        :raises LocalProtocolError: not :attr:`can_half_close`.
        """
        self.socket.send(encode_close(Channel.STDIN, self.protocol))

    def resize(self, size: TerminalSize) -> None:
        """The user's terminal has a new size."""
        self.socket.send(encode(Channel.RESIZE, encode_size(size)))

    def pause_output(self) -> None:
        """Deliver no more for now; the machine's end is held back."""
        self._paused = True
        self.socket.transport.pauseProducing()

    def resume_output(self) -> None:
        """Deliver again."""
        self._paused = False
        if self._unanswered_since is not None:
            self._unanswered_since = self._clock.seconds()  # its pong may lie unread
        self._deliver()
        if not self._paused and self._gone is None:
            self.socket.transport.resumeProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As :class:`~twisted.internet.interfaces.IConsumer`; ``streaming`` is true."""
        self._producer = producer
        if self.socket.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        """As :class:`~twisted.internet.interfaces.IConsumer`."""
        self._producer = None

    def leave(self) -> None:
        """End the session from this side: Close, and a bounded wait for the server's."""
        if self._over or self._left:
            return
        self._left = True
        self.resume_output()  # the server's Close must be read
        self.socket.close()
        self._arm(LEAVE_SECONDS, self.socket.hang_up)

    def abort(self) -> None:
        """Reset the connection."""
        self._left = True
        if self._gone is None:
            self.socket.abort()

    # SocketUser

    def opened(self) -> None:
        self.socket.on_flow(self._flow)
        self._arm(PING_SECONDS, self._ping)
        self._user.attached(self)

    def message_received(self, message: bytes) -> None:
        self._unanswered_since = None
        try:
            event = decode(message, self.protocol)
        except RemoteProtocolError:
            return  # 255 is no message of a server's; kubectl passes over it as well
        if not isinstance(event, StreamData) or self._over:
            return
        if event.channel in (Channel.STDOUT, Channel.STDERR) and event.data:
            self._output.append(event.data)
            self._deliver()
        elif event.channel is Channel.ERROR:
            self._status += event.data
            if len(self._status) > STATUS_LIMIT_BYTES:
                self.socket.fail("the status is too large")

    def pong_received(self) -> None:
        self._unanswered_since = None

    def failing(self, reason: str) -> None:
        self._why = f"the server broke the protocol: {reason}"
        self._over = True
        self._arm(LEAVE_SECONDS, self.socket.hang_up)

    def close_received(self, code: int | None) -> None:
        self._over = True
        self._disarm()
        self._deliver()

    def lost(self, reason: str) -> None:
        self._disarm()
        self._over = True
        self._gone = self._why or reason
        self._deliver()

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
            without_status = not (self._told or self._left or self._why)
            self._user.detached(LOST if without_status else self._gone)

    def _tell_ending(self) -> None:
        if self._told or self._left or not self._status:
            return
        self._told = True
        try:
            ending = decode_status(self._status)
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
        held_up = self._paused or self.socket.blocked
        if since is not None and now - since >= PONG_SECONDS and not held_up:
            self._why = f"the server has not answered for {PONG_SECONDS} seconds"
            self.socket.abort()
            return
        if not self.socket.blocked:
            self.socket.ping()
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

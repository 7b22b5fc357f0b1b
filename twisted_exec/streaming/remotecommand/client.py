"""
The user's end of a console, over WebSocket or SPDY.

The status that the server sends last says how the session ended; a session without a status counts
as a lost connection.  A server without version 5 is tried again with older protocols.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol, IReactorTime, IStreamClientEndpoint

from twisted_exec.api.status import BadGateway, NotImplementedByBackend
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    upgrade,
)
from twisted_exec.streaming.interfaces import INTERNAL, Break, Ending, Role, TerminalSize
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier
from twisted_exec.streaming.remotecommand.carriers import (
    OVER_SPDY,
    Attempt,
    OtherProtocol,
    create_carrier,
    is_protocol_refusal,
    prepare,
)
from twisted_exec.streaming.remotecommand.pings import SILENCE_SECONDS, Pings
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser, MarkUser
from twisted_exec.wire.channel import V4, V5, Channel
from twisted_exec.wire.endings import STATUS_LIMIT_BYTES, decode_ending
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import Ack, Mark, MarkDecoder
from twisted_exec.wire.resize import Message, encode_message, encode_size, encode_wish
from twisted_exec.wire.resume import MARKS, RESTART_CODE, RESUME_HEADER, Resumable
from twisted_exec.wire.session_terms import RECORDED_HEADER, RECORDED_INPUT
from twisted_exec.wire.upgrade import Headers, last_value

Reopen = Callable[[str, MarkUser, str], "Deferred[ConsoleClient]"]
"""
Opens the next connection of a session.

Takes the value of the resume header, the connection's user and the protocol; fails with an
:class:`~twisted_exec.api.status.APIError`.
"""

ATTEMPTS = (V5, V4, OVER_SPDY)
_RESUMABLE = (V5, V4)

LOST = "connection lost before the session's status"

_RESTARTING = "the server is restarting"

LEAVE_SECONDS = 5.0
"""Time limit for the server to answer our Close."""


class Leaver(ConsoleUser):
    """
    A user who leaves as soon as the connection is open.

    :ivar gone: fires after the end of the connection.
    """

    def __init__(self) -> None:
        self.gone: Deferred[None] = Deferred()

    def attached(self, stream: ConsoleStream) -> None:
        stream.leave()

    def data_received(self, data: bytes) -> None:
        """Nothing is read any more."""

    def ended(self, ending: Ending) -> None:
        """See :meth:`data_received`."""

    def detached(self, reason: str) -> None:
        self.gone.callback(None)


def connect(
    endpoint: IStreamClientEndpoint,
    head: UpgradeRequest,
    user: ConsoleUser,
    *,
    clock: IReactorTime,
    timeout_seconds: float,
    protocols: Sequence[str] = ATTEMPTS,
    resume: str = "",
    silence_seconds: float = SILENCE_SECONDS,
    must_record: bool = False,
) -> Deferred[ConsoleClient]:
    """
    Open a console.

    :param head: the request with credentials, without the headers of the upgrade.
    :param user: gets ``attached`` before the Deferred fires.
    :param timeout_seconds: to connect, again for the response, and again for the streams of SPDY.
    :param protocols: tried in this order, on one connection each: of
        :data:`~twisted_exec.wire.channel.PROTOCOLS`, or
        :data:`~twisted_exec.streaming.remotecommand.carriers.OVER_SPDY`.
    :param resume: the header of a client that can resume sessions (the user is then a
        :class:`MarkUser`); otherwise empty.
    :return: fires with the attached stream; fails with an
        :class:`~twisted_exec.api.status.APIError`. Cancelling closes the connection. A new session
        that the server may have opened by then is ended first, or else the server would keep it for
        its user; cancelling once more does not wait for that.
    """

    async def open_console() -> ConsoleClient:
        refused: Exception = BadGateway("no subprotocol to offer")
        for protocol in protocols:
            attempt = Attempt.for_protocol(protocol)
            request = attempt.head(head)
            asks = bool(resume) and protocol in _RESUMABLE
            if asks:
                header = (RESUME_HEADER.encode("ascii"), resume.encode("ascii"))
                request = replace(request, headers=[*request.headers, header])
            try:
                upgraded = await upgrade(
                    endpoint,
                    request,
                    clock=clock,
                    timeout_seconds=timeout_seconds,
                    meanwhile=partial(prepare, protocol, clock),
                    left=partial(_leave, attempt, clock) if asks and resume == MARKS else None,
                )
                chosen = attempt.chosen(upgraded)
                answer = _answer(upgraded) if asks else None
                recorded = _recorded(upgraded.headers)
                if must_record and not recorded:
                    upgraded.abort()
                    raise NotImplementedByBackend(
                        "the server has opened the console without a recording: it is of another make"
                    )
            except UpgradeRefused as refusal:
                refused = refusal.as_api_error()
                if not is_protocol_refusal(refusal):
                    raise refused from None
            except OtherProtocol as problem:
                refused = BadGateway(str(problem))
            else:
                client = ConsoleClient(
                    user, _session(upgraded.headers), clock, answer, silence_seconds
                )
                client.recorded_input = recorded
                upgraded.hand_over(client.create_carrier(protocol, chosen, timeout_seconds))
                return await client.opening
        raise refused

    return Deferred.fromCoroutine(open_console())


async def _leave(attempt: Attempt, clock: IReactorTime, upgraded: Upgraded) -> None:
    """End the session that the server has opened for a user who left."""
    try:
        protocol = attempt.chosen(upgraded)
    except OtherProtocol:
        return
    leaver = Leaver()
    client = ConsoleClient(leaver, "", clock)
    upgraded.hand_over(client.create_carrier(protocol, protocol, LEAVE_SECONDS))
    try:
        await leaver.gone
    finally:
        client.abort()


def _session(headers: Headers) -> str:
    return last_value(headers, b"audit-id").decode("ascii", "replace")


def _recorded(headers: Headers) -> str:
    recorded = last_value(headers, RECORDED_HEADER.encode("ascii")).decode("ascii", "replace")
    return recorded if recorded in RECORDED_INPUT else ""


def _answer(upgraded: Upgraded) -> Resumable | None:
    answer = last_value(upgraded.headers, RESUME_HEADER.encode("ascii"))
    if not answer:
        return None
    try:
        return Resumable.parse(answer.decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        upgraded.abort()
        raise BadGateway(f"the server's answer is not valid: {problem}") from None


class ClientLife(Enum):
    """The phases of a connection's life at the user's end; :data:`CLIENT_TRANSITIONS` has their order."""

    OPENING = "opening"
    """The channels are not open yet."""
    CARRIED = "carried"
    """The user is attached."""
    LEAVING = "leaving"
    """This side has left: the user gets no more output, and no status."""
    CLOSING = "closing"
    """The server sends no more; the user may still have output and the status to take."""
    ENDED = "ended"
    """The user knows the status, and the connection is still to be lost."""
    LOST = "lost"
    """The connection is lost; the user may still have output and the status to take."""
    OVER = "over"
    """The user has taken everything, or does not wait for the opening any more."""


CLIENT_TRANSITIONS: Mapping[ClientLife, frozenset[ClientLife]] = {
    ClientLife.OPENING: frozenset({ClientLife.CARRIED, ClientLife.OVER}),
    ClientLife.CARRIED: frozenset({ClientLife.LEAVING, ClientLife.CLOSING, ClientLife.LOST}),
    ClientLife.LEAVING: frozenset({ClientLife.OVER}),
    ClientLife.CLOSING: frozenset({ClientLife.LEAVING, ClientLife.ENDED, ClientLife.LOST}),
    ClientLife.ENDED: frozenset({ClientLife.OVER}),
    ClientLife.LOST: frozenset({ClientLife.OVER}),
    ClientLife.OVER: frozenset(),
}
"""What may follow each phase of a connection's life."""

_WITHOUT_CONNECTION = (ClientLife.LOST, ClientLife.OVER)


class ConsoleClient(ConsoleStream, Living[ClientLife]):
    """
    A session's stream at the user's end; made by :func:`connect`.

    :ivar life: the phase of its life.
    :ivar session: the session's id, for support; may be empty.
    :ivar broke_protocol: the server made a mistake, which it would make again.
    :ivar is_exact: the last Ack counts all input that the machine has got over this connection.
    :ivar opening: fires with this object once attached.
    """

    transitions = CLIENT_TRANSITIONS

    carrier: ClientCarrier
    session = ""

    def __init__(
        self,
        user: ConsoleUser,
        session: str,
        clock: IReactorTime,
        resumable: Resumable | None = None,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.life = ClientLife.OPENING
        self.session, self.resumable = session, resumable
        self.broke_protocol = self.is_exact = False
        silence_limit = None if resumable is None else silence_seconds
        self._pings = Pings(clock, silence_limit, self._silent)
        self._marks = MarkDecoder()
        self.opening: Deferred[ConsoleClient] = Deferred(lambda _: self.abort())
        self._user, self._clock = user, clock
        self._size: TerminalSize | None = None
        self._producer: Any = None
        self._output: deque[bytes | Mark] = deque()
        self._paused = self._holds_answers = False
        self._status: bytes | None = None  # so far; ``None`` before its beginning
        self._why = ""  # a reason known before the connection is lost
        self._reason = ""  # why the connection was lost
        self._timer: IDelayedCall | None = None

    def create_carrier(self, way: str, protocol: str, open_seconds: float) -> IProtocol:
        """Set :attr:`carrier`, and return the protocol for its connection."""
        self.carrier, holder = create_carrier(
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
        return self.carrier.transport

    @property
    def protocol(self) -> str:
        return self.carrier.protocol

    @property
    def can_half_close(self) -> bool:
        return self.carrier.can_half_close

    @property
    def round_trip_seconds(self) -> float | None:
        return self._pings.round_trip_seconds

    @property
    def overdue_seconds(self) -> float | None:
        return self._pings.overdue_seconds

    def hand_over(self, user: ConsoleUser) -> None:
        self._user = user

    def hold_answers(self, held: bool) -> None:
        """Answer no pings while ``held``, nor while output is paused; then answer the latest."""
        self._holds_answers = held
        self.carrier.hold_answers(held or self._paused)

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
        self._size = size
        self.carrier.send(Channel.RESIZE, encode_size(size))

    def wish(self, wish: Break | Role) -> None:
        self.carrier.send(Channel.RESIZE, encode_wish(wish, self._size))

    def say(self, message: Message) -> None:
        """
        Send a message to the other users of the console, which may be lost with the connection.

        Only a server whose :class:`.Attendance` has a limit for it passes it on.
        """
        self.carrier.send(Channel.RESIZE, encode_message(message, self._size))

    def pause_output(self) -> None:
        """Stop delivery; the machine's end is held back."""
        self._paused = True
        self._pings.pause()
        self.hold_answers(self._holds_answers)  # the output before a ping is not delivered yet
        self.carrier.transport.pauseProducing()

    def resume_output(self) -> None:
        self._paused = False
        self._pings.resume()
        self._deliver()
        self.hold_answers(self._holds_answers)
        if not self._paused and self.life not in _WITHOUT_CONNECTION:
            self.carrier.transport.resumeProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer
        if self.carrier.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def leave(self) -> None:
        """End the session from this side; the server's Close has a time limit."""
        if self.life is not ClientLife.CARRIED:
            return
        self._become(ClientLife.LEAVING)
        self._output.clear()
        self.resume_output()  # the server's Close must be read
        self.carrier.close()
        self._hang_up_later()

    def abort(self) -> None:
        self._output.clear()
        if self.life in _WITHOUT_CONNECTION:
            self._status = None
            return
        if self.life is ClientLife.OPENING:
            self._become(ClientLife.OVER)
        elif self.life in (ClientLife.CARRIED, ClientLife.CLOSING):
            self._become(ClientLife.LEAVING)
        self.carrier.abort()

    # CarrierUser

    def connected(self) -> None:
        """Ignored: only the opening of the channels counts."""

    def opened(self) -> None:
        if self.life is ClientLife.OVER:
            return
        self._become(ClientLife.CARRIED)
        self._pings.start(self.carrier)
        self._user.attached(self)
        self.opening.callback(self)

    def received(self, channel: Channel, data: bytes) -> None:
        self._pings.heard()
        if self.life is not ClientLife.CARRIED:
            return
        if channel in (Channel.STDOUT, Channel.STDERR):
            self._output.append(data)
            self._deliver()
        elif channel is Channel.RESIZE and self.resumable is not None:
            self._take_marks(data)
        elif channel is Channel.ERROR:
            self._status = (self._status or b"") + data
            if len(self._status) > STATUS_LIMIT_BYTES:
                self.carrier.fail("the status is too large")

    def ended(self, channel: Channel) -> None:
        if channel is Channel.ERROR:
            self._status = self._status or b""

    def pong_received(self) -> None:
        self._pings.answered()

    def failing(self, reason: str) -> None:
        self.broke_protocol = True
        self._why = f"the server broke the protocol: {reason}"
        self._close()
        self._hang_up_later()

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        if code == RESTART_CODE and self.resumable is not None:
            self.is_exact = True
            self._why = _printable(reason) or _RESTARTING
        self._close()
        self._disarm()
        self._deliver()

    def lost(self, reason: str) -> None:
        self._disarm()
        if self.resumable is not None and not (self._status or self.broke_protocol):
            self._drop_output()  # the next stream begins behind what the user has got
        self._reason = self._why or reason
        if self.life is ClientLife.OPENING:
            self._become(ClientLife.OVER)
            self.opening.errback(BadGateway(self._reason))
        elif self.life in (ClientLife.LEAVING, ClientLife.ENDED):
            self._become(ClientLife.OVER)
            self._user.detached(self._reason)
        elif self.life is not ClientLife.OVER:
            self._become(ClientLife.LOST)
            self._deliver()

    def _drop_output(self) -> None:
        dropped, self._output = self._output, deque()
        for item in dropped:
            if isinstance(item, Ack):  # it tells what not to send again
                self._user.mark_received(item)  # type: ignore[attr-defined]  # a MarkUser

    def _close(self) -> None:
        if self.life is ClientLife.CARRIED:
            self._become(ClientLife.CLOSING)

    def _take_marks(self, data: bytes) -> None:
        try:
            self._output += self._marks.feed(data)
        except RemoteProtocolError as problem:
            self.carrier.fail(str(problem))
            return
        self._deliver()

    # Delivery: output, then the ending, then the end.

    def _deliver(self) -> None:
        while self._output and not self._paused:
            item = self._output.popleft()
            if isinstance(item, bytes):
                self._user.data_received(item)
            else:
                self._user.mark_received(item)  # type: ignore[attr-defined]  # a MarkUser
        if self._output:
            return
        if self.life is ClientLife.CLOSING and self._status is not None:
            self._become(ClientLife.ENDED)
            self._tell_ending(self._status)
        elif self.life is ClientLife.LOST:
            self._become(ClientLife.OVER)
            # Kubernetes' own client takes an end without a status for success, and a lost
            # connection for the last thing received.
            is_explained = self._status is not None or self._why
            if self._status is not None:
                self._tell_ending(self._status)
            self._user.detached(self._reason if is_explained else LOST)

    def _tell_ending(self, status: bytes) -> None:
        try:
            ending = decode_ending(status, self.protocol)
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

    def _silent(self, reason: str) -> None:
        self._why = reason
        self.carrier.abort()

    def _hang_up_later(self) -> None:
        self._disarm()
        self._timer = self._clock.callLater(LEAVE_SECONDS, self.carrier.hang_up)

    def _disarm(self) -> None:
        self._pings.stop()
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())

"""
Translation between a frontend and a backend connection, which may speak different protocols.

A hop decodes a stream to record it, or when the next hop refuses the client's protocol. It works like kube-apiserver's ``StreamTranslator``
(``k8s.io/apiserver/pkg/util/proxy/streamtranslator.go``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.interfaces import INTERNAL, Ending, IStreamRecorder
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier, ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import (
    DEFAULT_LIMITS,
    OVER_SPDY,
    Attempt,
    OtherProtocol,
    StreamLimits,
    accept,
    choose_protocol,
    create_carrier,
    is_protocol_refusal,
)
from twisted_exec.streaming.remotecommand.server import READ_ONLY, ToldNotices
from twisted_exec.wire.channel import TERMINAL, V4, V5, Channel
from twisted_exec.wire.endings import STATUS_LIMIT_BYTES, decode_ending, encode_ending, has_status
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.typed_keys import is_typed
from twisted_exec.wire.upgrade import SPDY

BEAT_SECONDS = 10.0
"""Interval of pings to both sides: third-party runtimes drop connections idle for 30 s."""

_OTHER_WAYS = {SPDY: (V5, V4), b"websocket": (OVER_SPDY, V4)}
"""SPDY before version 4 over WebSocket: it can signal the end of input."""

_ALL_WAYS = (V5, OVER_SPDY, V4)


async def translate(
    request: Request,
    options: StreamOptions,
    ask: Callable[[Attempt], Awaitable[Upgraded]],
    translation: Translation,
    *,
    open_seconds: float,
    streams: Collection[Channel] | None = None,
    confirm: Callable[[], Awaitable[None]],
) -> bool:
    """
    Open a stream at a next hop that refused its protocol, or that is recorded.

    :param ask: sends an offer to that hop on a new connection; raises
        :class:`~twisted_exec.streaming.http.upgrade_client.UpgradeRefused`.
    :param streams: streams for which the next hop waits; by default those of the request, or a
        terminal's.
    :return: whether it succeeded; if not, nothing was answered.
    :raises UpgradeRefused: the next hop refuses the request itself.
    :raises APIError: the stream cannot be opened or recorded, or the session must not be opened.
    :raises ConnectionDone: the client has left.
    """
    try:
        protocol = choose_protocol(request)
    except APIError:
        return False  # not a console request, as far as we know
    channels = streams or requested_channels(options)
    ways = _OTHER_WAYS[requested_protocol(request)] if translation.recorder is None else _ALL_WAYS
    for way in ways:
        attempt = Attempt.for_protocol(way)
        try:
            upgraded = await ask(attempt)
            chosen = attempt.chosen(upgraded)
        except UpgradeRefused as refused:
            if not is_protocol_refusal(refused):
                raise
        except OtherProtocol:
            continue
        else:
            await translation.begin(upgraded, way, chosen, channels, open_seconds)
            await translation.confirmed(confirm)
            translation.take(request, protocol, options)
            return True
    return False


def requested_channels(options: StreamOptions) -> frozenset[Channel]:
    """Return the streams that a server awaits if it goes by the request."""
    if options.channels is None:
        return TERMINAL
    return options.channels | ({Channel.RESIZE} if options.tty else set())


class Translation:
    """
    Two connections that may speak different protocols: each is decoded, and encoded for the other.

    :param on_end: called once, when both connections are closed, with the reason for audit; never
        if the client was not answered.
    """

    def __init__(
        self,
        clock: IReactorTime,
        on_end: Callable[[str], None],
        *,
        session: str,
        limits: StreamLimits = DEFAULT_LIMITS,
        terms: Callable[[], Terms] = lambda: FULL,
        recorder: IStreamRecorder | None = None,
    ) -> None:
        self.recorder = recorder
        self._recording: IStreamRecorder | None = None  # once it has begun
        self.clock, self._limits, self._terms = clock, limits, terms
        self._on_end, self._session = on_end, session
        self.bytes_to_machine = self.bytes_to_user = 0
        self._user, self._machine = FrontendConnection(self), BackendConnection(self)
        self._buffered: deque[tuple[Channel, bytes]] = deque()  # output that waits for the user
        self._pumping = False
        self._status_sent = False  # the user got the status, or never will
        self._asked = StreamOptions()
        self._told = ToldNotices(clock)
        self._withheld: list[tuple[Channel, bytes | None]] | None = None  # input of a paused user
        self._unsent = 0  # bytes of input since the machine's buffer was full
        self._reason = ""
        self._beat: IDelayedCall | None = None
        self._patience: IDelayedCall | None = None  # time limit for the user to leave

    # Start

    async def begin(
        self,
        upgraded: Upgraded,
        way: str,
        protocol: str,
        streams: Collection[Channel],
        open_seconds: float,
    ) -> None:
        """
        Open the machine's streams.

        :raises BadGateway: the streams cannot be opened.
        """
        machine = self._machine
        machine.carrier, holder = create_carrier(
            way,
            protocol,
            machine,
            clock=self.clock,
            open_seconds=open_seconds,
            linger_seconds=LEAVE_SECONDS,
            channels=streams,
        )
        machine.carrier.on_flow(self._machine_flow)
        upgraded.hand_over(holder)
        await machine.opening

    async def confirmed(self, confirm: Callable[[], Awaitable[None]]) -> None:
        """
        Let the hop decide for the last time; if it refuses, close the machine's connection.

        :raises APIError: the session must not be opened.
        """
        try:
            await confirm()
        except BaseException:
            self._machine.carrier.abort()
            raise

    def take(self, request: Request, protocol: str, options: StreamOptions) -> None:
        """
        Answer the client; if that fails, close the machine's connection.

        :raises APIError: the stream cannot be recorded.
        :raises ConnectionDone: the client has left.
        """
        clock, limits = self.clock, self._limits
        self._asked = options
        session = self._session
        try:
            if self.recorder is not None:
                self.recorder.begin()
                self._recording = self.recorder
            accept(
                request,
                protocol,
                options,
                self._user,
                session=session,
                terms=self._terms(),
                clock=clock,
                limits=limits,
            )
        except BaseException:
            self._machine.carrier.abort()
            self._recorded("the client was not answered")
            raise
        if not self._status_sent:
            self._beat = clock.callLater(BEAT_SECONDS, self._ping)

    # Called by the hop

    def end(self, ending: Ending) -> None:
        self._tell(ending, ending.reason)
        self._close()

    def cut(self) -> None:
        self._status_sent, self._reason = True, self._reason or "cut"
        for end in (self._user, self._machine):
            if not end.gone:
                end.carrier.abort()

    # From the user to the machine

    def pause_user(self) -> None:
        if self._withheld is None and not self._status_sent:
            self._withheld = []
            if self._user.open and not self._user.gone:
                self._user.carrier.transport.pauseProducing()

    def resume_user(self) -> None:
        withheld, self._withheld = self._withheld, None
        for channel, data in withheld or ():
            if data is None:
                self.input_over()
            else:
                self.input(channel, data)
        if self._user.open and not self._user.gone and self._unsent < self._limits.input_bytes:
            self._user.carrier.transport.resumeProducing()

    def _withhold(self, channel: Channel, data: bytes | None) -> bool:
        if self._withheld is None:
            return False
        self._withheld.append((channel, data))
        self._user.carrier.transport.pauseProducing()  # not yet, if it was paused before it came
        return True

    def input(self, channel: Channel, data: bytes) -> None:
        if self._status_sent or self._machine.over or self._withhold(channel, data):
            return
        if not self._asked.takes_input and (channel is Channel.STDIN or self._asked.read_only):
            self._refuse(channel, data)
            return
        ending = self._recording.input(channel, data) if self._recording is not None else None
        if ending is not None:
            self.end(ending)
            return
        machine = self._machine.carrier
        if channel is Channel.STDIN:
            self.bytes_to_machine += len(data)
        machine.send(channel, data)
        if machine.blocked:
            self._unsent += len(data)
            if self._unsent >= self._limits.input_bytes:
                # Pings stay unread too from here on; nothing else stops this client.
                self._user.carrier.transport.pauseProducing()

    def _refuse(self, channel: Channel, data: bytes) -> None:
        is_key = channel is Channel.STDIN and is_typed(data)
        if is_key and self._asked.read_only and self._told.allow(READ_ONLY):
            self.output(Channel.STDOUT, READ_ONLY.output)

    def input_over(self) -> None:
        """Signal the end of input, if the machine's protocol can."""
        if self._status_sent or self._machine.over or self._withhold(Channel.STDIN, None):
            return
        if self._machine.carrier.can_half_close:
            self._machine.carrier.end(Channel.STDIN)

    def _machine_flow(self, full: bool) -> None:
        if full:
            return
        was_full, self._unsent = self._unsent >= self._limits.input_bytes, 0
        if was_full and not self._user.gone and self._withheld is None:
            self._user.carrier.transport.resumeProducing()

    # From the machine to the user

    def output(self, channel: Channel, data: bytes) -> None:
        if self._status_sent:
            return
        ending = self._recording.output(channel, data) if self._recording is not None else None
        if ending is not None:
            self.end(ending)
        else:
            self._buffered.append((channel, data))
            self.pump()

    def machine_over(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.pump()

    def user_flow(self, full: bool) -> None:
        if self._patience is not None and self._patience.active() and not full:
            self._patience.reset(self._limits.close_seconds)  # it still reads: give it more time
        self.pump()

    def pump(self) -> None:
        """Send buffered output as far as the user accepts it, then the status."""
        if self._pumping or self._status_sent:
            return
        self._pumping = True  # a write may pause and resume us recursively
        while self._buffered and self._user.takes:
            self._send(*self._buffered.popleft())
        self._pumping = False
        if not self._machine.over:
            self._machine.hear(self._user.takes)
        elif self._user.takes:
            self._tell(self._machine.ending(), self._reason)
            self._close()
        elif self._user.open:
            self._be_patient()

    def _send(self, channel: Channel, data: bytes) -> None:
        self.bytes_to_user += len(data)
        self._user.carrier.send(channel, data)

    # End

    def _tell(self, ending: Ending | bytes, reason: str) -> None:
        if self._status_sent or self._user.gone:
            return
        # All output precedes the status, whether the buffer is full or not.
        while self._buffered and self._user.open:
            self._send(*self._buffered.popleft())
        self._status_sent, self._reason, self._withheld = True, reason, None
        carrier = self._user.carrier
        carrier.send_status(_encode_status(carrier.protocol, ending))
        carrier.transport.resumeProducing()  # to notice when it leaves
        self._be_patient()
        self._machine.leave()

    def _close(self) -> None:
        if not self._user.gone:
            self._user.carrier.close()

    def _be_patient(self) -> None:
        cancel(self._patience)
        hang_up = self._user.carrier.hang_up
        self._patience = self.clock.callLater(self._limits.close_seconds, hang_up)

    def user_broke(self, reason: str) -> None:
        message = f"the client broke the protocol: {reason}"
        self._tell(Ending(INTERNAL, message), f"protocol error: {reason}")

    def user_left(self, reason: str) -> None:
        if not self._status_sent:
            self._status_sent, self._reason = True, self._reason or reason
            self._machine.leave()

    def gone(self) -> None:
        if self._user.gone:
            cancel(self._patience)
        if self._user.gone and self._machine.gone:
            cancel(self._beat)
            self._recorded(self._reason)
            self._on_end(self._reason)
            # Break reference cycles: OpenSSL's memory does not count towards the garbage
            # collector's thresholds, and would pile up.
            del self._user, self._machine, self._on_end

    def _recorded(self, reason: str) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.end(reason)

    # Pings

    def _ping(self) -> None:
        self._beat = None
        if self._status_sent or self._machine.over:
            return
        if self._machine.silent:
            self._machine.give_up()
        else:
            self._machine.carrier.ping()
            self._user.carrier.ping()
            self._beat = self.clock.callLater(BEAT_SECONDS, self._ping)


def _encode_status(protocol: str, ending: Ending | bytes) -> bytes:
    """Encode an ending; a Status of the backend passes unchanged to protocols that carry one."""
    if isinstance(ending, bytes):
        if has_status(protocol):
            return ending
        ending = decode_ending(ending, V4)
    return encode_ending(ending, protocol)


LOST = "connection to the machine lost before the session's status"

SILENT_SECONDS = 61.0
"""A next hop that answers no ping for this long is dead."""

LEAVE_SECONDS = 5.0


def cancel(timer: IDelayedCall | None) -> None:
    """Stop a timer, if it is set and active."""
    if timer is not None and timer.active():
        timer.cancel()


class FrontendConnection:
    """The user's side."""

    carrier: ServerCarrier
    open = False
    gone = False

    def __init__(self, translation: Translation) -> None:
        self._translation = translation

    def use(self, carrier: ServerCarrier) -> None:
        self.carrier = carrier
        carrier.on_flow(self._translation.user_flow)

    @property
    def takes(self) -> bool:
        return self.open and not self.gone and not self.carrier.blocked

    # CarrierUser

    def connected(self) -> None:
        """Ignored: only the opening of the channels counts."""

    def opened(self) -> None:
        self.open = True
        self._translation.pump()

    def received(self, channel: Channel, data: bytes) -> None:
        if channel in (Channel.STDIN, Channel.RESIZE):
            self._translation.input(channel, data)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN:
            self._translation.input_over()

    def pong_received(self) -> None:
        """Ignored: TCP shows whether the peer is alive."""

    def failing(self, reason: str) -> None:
        self._translation.user_broke(reason)

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        self._translation.user_left("client closed")

    def lost(self, reason: str) -> None:
        self.gone = True
        self._translation.user_left(reason.replace("connection", "client", 1))
        self._translation.gone()


class BackendConnection:
    """
    The machine's side.

    :ivar opening: fires when the streams are open; fails with 502.
    :ivar over: what still arrives is ignored.
    """

    carrier: ClientCarrier
    over = False
    gone = False

    def __init__(self, translation: Translation) -> None:
        self._translation, self._clock = translation, translation.clock
        self.opening: Deferred[None] = Deferred(self._abandon)
        self._abandoned = False
        self._hearing = True
        self._heard_at = 0.0
        self._status = b""
        self._status_ended = False
        self._why = ""
        self._leaving: IDelayedCall | None = None

    def _abandon(self, opening: Deferred[None]) -> None:
        self._abandoned = True
        self.carrier.abort()

    def hear(self, hearing: bool) -> None:
        if hearing is not self._hearing and not self.gone:
            self._hearing, self._heard_at = hearing, self._clock.seconds()
            if hearing:
                self.carrier.transport.resumeProducing()
            else:
                self.carrier.transport.pauseProducing()

    def leave(self) -> None:
        if self.gone or self._leaving is not None:
            return
        self.hear(True)  # to notice its end
        self.over = True
        self._leaving = self._clock.callLater(LEAVE_SECONDS, self.carrier.hang_up)
        self.carrier.close()

    @property
    def silent(self) -> bool:
        quiet_seconds = self._clock.seconds() - self._heard_at
        held_up = self.carrier.blocked or not self._hearing
        return quiet_seconds >= SILENT_SECONDS and not held_up

    def give_up(self) -> None:
        self._why = f"the machine's end has not answered for {SILENT_SECONDS:g} seconds"
        self.carrier.abort()

    def ending(self) -> Ending | bytes:
        """Return the ending: the Status as received, if there was one."""
        if not (self._status or self._status_ended):
            return Ending(INTERNAL, self._why or LOST)
        try:
            ending = decode_ending(self._status, self.carrier.protocol)
        except RemoteProtocolError as problem:
            return Ending(INTERNAL, f"the machine's status cannot be read: {problem}")
        verbatim = self._status and has_status(self.carrier.protocol)
        return self._status if verbatim else ending

    # CarrierUser

    def connected(self) -> None:
        """Ignored: only the opening of the channels counts."""

    def opened(self) -> None:
        self.hear(False)  # until the client is answered
        self._heard_at = self._clock.seconds()
        self.opening.callback(None)

    def received(self, channel: Channel, data: bytes) -> None:
        self._heard_at = self._clock.seconds()
        if self.over:
            return
        if channel is Channel.ERROR:
            self._status += data
            if len(self._status) > STATUS_LIMIT_BYTES:
                self.carrier.fail("the status is too large")
        elif channel in (Channel.STDOUT, Channel.STDERR):
            self._translation.output(channel, data)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.ERROR:
            self._status_ended = True

    def pong_received(self) -> None:
        self._heard_at = self._clock.seconds()

    def failing(self, reason: str) -> None:
        self._status, self._status_ended = b"", False
        self._why = f"the machine's end broke the protocol: {reason}"
        self.close_received()

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        if not self.over:
            self.over = True
            self._translation.machine_over("backend closed")

    def lost(self, reason: str) -> None:
        self.gone = True
        cancel(self._leaving)
        if not self.opening.called:
            if not self._abandoned:
                self.opening.errback(BadGateway(self._why or reason))
            return
        if not self.over:
            self.over = True
            self._translation.machine_over(reason.replace("connection", "backend", 1))
        self._translation.gone()

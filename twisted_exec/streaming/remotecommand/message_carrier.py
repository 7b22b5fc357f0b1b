"""Carriers over the messages of a WebSocket, one for each end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.streaming.remotecommand.carrier import CarrierUser
from twisted_exec.wire.channel import (
    V5,
    Channel,
    StreamData,
    decode,
    encode,
    encode_close,
    is_text,
    messages,
)
from twisted_exec.wire.endings import has_status
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resume import RESTART_CODE

if TYPE_CHECKING:
    from twisted_exec.streaming.http.websocket import MessageSocket, ServerSocket


class MessageCarrier:
    """Common part of both ends."""

    def __init__(self, socket: MessageSocket, protocol: str, user: CarrierUser) -> None:
        self.socket, self.protocol = socket, protocol
        self._user, self._text = user, is_text(protocol)

    # Carrier

    @property
    def transport(self) -> Any:
        return self.socket.transport

    @property
    def blocked(self) -> bool:
        return self.socket.blocked

    def send(self, channel: Channel, data: bytes) -> None:
        for message in messages(channel, data, self.protocol):
            self.socket.send(message, self._text)

    def ping(self) -> None:
        self.socket.ping()

    def close(self) -> None:
        self.socket.close()

    def hang_up(self) -> None:
        self.socket.hang_up()

    def abort(self) -> None:
        self.socket.abort()

    def fail(self, reason: str) -> None:
        self.socket.fail(reason)

    def on_flow(self, changed: Callable[[bool], None]) -> None:
        self.socket.on_flow(changed)

    # SocketUser

    def opened(self) -> None:
        self._user.connected()
        self._user.opened()

    def message_received(self, message: bytes) -> None:
        event = decode(message, self.protocol)
        if isinstance(event, StreamData):
            if event.data:
                self._user.received(event.channel, event.data)
        elif event is not None:
            self._user.ended(event.channel)

    def pong_received(self) -> None:
        self._user.pong_received()

    def failing(self, reason: str) -> None:
        self._user.failing(reason)

    def close_received(self, code: int | None, reason: str) -> None:
        self._user.close_received(code, reason)

    def lost(self, reason: str) -> None:
        self._user.lost(reason)
        del self._user  # which refers to this carrier


class ServerMessages(MessageCarrier):
    """
    The machine's end.

    Before Kubernetes 1.35 kubectl drops early messages.  Output to it is held back until it sends
    something, the session ends, or a moment has passed.
    """

    socket: ServerSocket

    def __init__(
        self,
        socket: ServerSocket,
        protocol: str,
        user: CarrierUser,
        clock: IReactorTime,
        hold_seconds: float = 0.0,
    ) -> None:
        super().__init__(socket, protocol, user)
        self._clock, self._hold_seconds = clock, hold_seconds
        self._hold: IDelayedCall | None = None
        self._changed: Callable[[bool], None] | None = None

    @property
    def blocked(self) -> bool:
        return self._hold is not None or super().blocked

    def on_flow(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed
        super().on_flow(self._flow)

    def _flow(self, full: bool) -> None:
        if self._hold is None and self._changed is not None:
            self._changed(full)

    def _let_go(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            if hold.active():
                hold.cancel()
            if self._changed is not None:
                self._begin()
            self._flow(super().blocked)

    def send_status(self, document: bytes) -> None:
        self._let_go()  # nothing may follow the status
        self.send(Channel.ERROR, document)

    def restart(self, reason: str) -> None:
        self.socket.close(RESTART_CODE, reason)
        self.socket.hang_up()

    def opened(self) -> None:
        if self._hold_seconds:
            self._hold = self._clock.callLater(self._hold_seconds, self._let_go)
        else:
            self._begin()
        super().opened()

    def _begin(self) -> None:
        # Clients of fabric8 and Java wait for it; Kubernetes' servers send it, too.
        self.socket.send(encode(Channel.STDOUT, b"", self.protocol), self._text)

    def message_received(self, message: bytes) -> None:
        self._let_go()
        try:
            super().message_received(message)
        except RemoteProtocolError as problem:
            self.socket.fail(str(problem))

    def lost(self, reason: str) -> None:
        self._changed = None  # first: releasing output must not report room on a lost connection
        self._let_go()
        super().lost(reason)


class ClientMessages(MessageCarrier):
    """The user's end."""

    @property
    def can_half_close(self) -> bool:
        return self.protocol == V5

    def hold_answers(self, held: bool) -> None:
        self.socket.hold_answers(held)

    def end(self, channel: Channel) -> None:
        self.socket.send(encode_close(channel, self.protocol))

    def message_received(self, message: bytes) -> None:
        try:
            super().message_received(message)
        except RemoteProtocolError:
            pass  # servers do not send 255; kubectl ignores it too

    def close_received(self, code: int | None, reason: str) -> None:
        from twisted_exec.streaming.http.websocket import NORMAL

        # Version 1 has no status for success; the Close means success.
        if code == NORMAL and not has_status(self.protocol):
            self._user.ended(Channel.ERROR)
        super().close_received(code, reason)

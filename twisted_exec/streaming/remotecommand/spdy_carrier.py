"""
Carriers over a SPDY connection, one for each end.

Kubernetes' SPDY has no flow control: a stream is held back by not reading the connection.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.paced_connection import PacedConnection
from twisted_exec.streaming.remotecommand.carrier import CarrierUser
from twisted_exec.tls.turns import IFramed
from twisted_exec.wire.channel import TERMINAL, Channel, StreamClosed, StreamData
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.spdy_connection import PingReceived
from twisted_exec.wire.spdy_console import (
    ClientStreams,
    ConsoleEvent,
    PeerDone,
    Ready,
    ServerStreams,
)

UNREAD_BYTES = 64 << 10
"""Limit for answers to a peer that reads nothing."""


@implementer(IFramed)
class _SPDYCarrier(PacedConnection, Protocol):
    transport: Any
    streams: ServerStreams | ClientStreams
    _over = False  # input is no longer read
    _unread = 0  # bytes of answers since the transport's buffer was full
    _patience: IDelayedCall | None = None
    _why = ""

    def __init__(
        self,
        *,
        user: CarrierUser,
        clock: IReactorTime,
        open_seconds: float,
        linger_seconds: float,
    ) -> None:
        self.clock, self.linger_seconds = clock, linger_seconds
        self._user, self._open_seconds = user, open_seconds

    # Carrier

    @property
    def protocol(self) -> str:
        return self.streams.protocol

    def send(self, channel: Channel, data: bytes) -> None:
        self.streams.send(channel, data)
        self._flush()

    def ping(self) -> None:
        if not self.blocked:
            self.streams.ping()
            self._flush()

    def fail(self, reason: str) -> None:
        self._over = True
        self._user.failing(reason)
        self.streams.go_away(broken=True)
        self._flush()
        self.hang_up()

    def hang_up(self) -> None:
        if not self._hung_up:
            self._over = True
            self.streams.leave()
            self._flush()
            super().hang_up()

    # Methods that Twisted calls.

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)
        self._patience = self.clock.callLater(self._open_seconds, self._late)
        self._user.connected()
        self.streams.start()
        self._flush()

    def frame_rest(self, size: int) -> int:
        return self.streams.rest_bytes

    def dataReceived(self, data: bytes) -> None:
        if self._over:
            return
        self.streams.feed(data)
        try:
            while not self._over and (event := self.streams.next_event()) is not None:
                self._flush_answers()
                self._tell(event)
        except RemoteProtocolError as problem:
            self.fail(str(problem))
        self._flush_answers()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        cause = self.connection_lost(reason)
        self._over = True
        self._be_patient_no_more()
        self._user.lost(self._why or cause)
        del self._user  # which refers to this carrier

    # Received data.

    def _tell(self, event: ConsoleEvent) -> None:
        if isinstance(event, StreamData):
            self._user.received(event.channel, event.data)
        elif isinstance(event, StreamClosed):
            self._user.ended(event.channel)
        elif isinstance(event, Ready):
            self._be_patient_no_more()
            self._user.opened()
        elif isinstance(event, PingReceived):
            self.ping_received(event)
        elif isinstance(event, PeerDone):
            self._user.close_received()
            self.hang_up()
        else:
            self._user.pong_received()

    def answer(self, question: PingReceived) -> None:
        self.streams.answer(question)
        self._flush()

    def resumeProducing(self) -> None:
        self._unread = 0
        super().resumeProducing()

    def _late(self) -> None:
        self._patience = None
        if self.streams.settle():
            # The start is an event of the codec, followed by the events that waited for it.
            self.dataReceived(b"")
        else:
            self._why = f"the streams were not opened within {self._open_seconds:g} s"
            self.abort()

    def _be_patient_no_more(self) -> None:
        patience, self._patience = self._patience, None
        if patience is not None and patience.active():
            patience.cancel()

    # Sent data.

    def _flush(self) -> None:
        data = self.streams.data_to_send()
        if data:
            self.transport.write(data)

    def _flush_answers(self) -> None:
        data = self.streams.data_to_send()
        if not data:
            return
        self.transport.write(data)
        if self.blocked:
            self._unread += len(data)
            if self._unread > UNREAD_BYTES and not self._over:
                self._over = True
                self._why = "the peer reads no answers"
                self.abort()


class ServerSPDY(_SPDYCarrier):
    """
    The machine's end.

    :param expected: the channels that the request announces, if it does.
    """

    streams: ServerStreams

    def __init__(self, protocol: str, expected: frozenset[Channel] | None, **more: Any) -> None:
        super().__init__(**more)
        self.streams = ServerStreams(protocol, expected)

    def send_status(self, document: bytes) -> None:
        self.streams.finish(document)
        self._flush()

    def restart(self, reason: str) -> None:
        """Do nothing: no client resumes a session over SPDY."""

    def close(self) -> None:
        """Do nothing: the status ended the streams, and the client leaves."""


class ClientSPDY(_SPDYCarrier):
    """The user's end."""

    streams: ClientStreams
    can_half_close = True

    def __init__(
        self, protocol: str, channels: Collection[Channel] = TERMINAL, **more: Any
    ) -> None:
        super().__init__(**more)
        self.streams = ClientStreams(protocol, channels)

    def end(self, channel: Channel) -> None:
        self.streams.end(channel)
        self._flush()

    def close(self) -> None:
        self.streams.leave()
        self._flush()

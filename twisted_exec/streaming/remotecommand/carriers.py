"""
Create carriers, for an accepted request and for an established connection.

Used by both ends of a console, and by bridges between protocols.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Protocol as Typing

from twisted.internet.interfaces import IProtocol, IReactorTime

from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.http.websocket import (
    ClientSocket,
    ServerSocket,
    client_factory,
    server_factory,
    start,
)
from twisted_exec.streaming.remotecommand.carrier import CarrierUser, ClientCarrier, ServerCarrier
from twisted_exec.streaming.remotecommand.negotiation import OVER_SPDY, STREAM_PROTOCOL
from twisted_exec.streaming.remotecommand.websocket_carrier import ClientMessages, ServerMessages
from twisted_exec.wire.channel import TERMINAL, Channel
from twisted_exec.wire.resume import RESUME_HEADER, Resumable
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.upgrade import SPDY, switching_protocols, values

if TYPE_CHECKING:
    from twisted_exec.streaming.enduring_streams import Offer
    from twisted_exec.streaming.http.request import Request

# SPDY is imported where it is used: clients use it only with servers that have no WebSockets.  Clients
# never use the header of hops that rejoin a stream.

MESSAGE_BYTES = 32 << 20
"""Largest message from a server: ours sends 32 KiB, Go servers at most this."""


@dataclass(frozen=True)
class Limits:
    """
    Limits of one session.

    :param message_bytes: largest WebSocket message from the client, at least 64 KiB; larger ones
        end the session with Close 1009.
    :param input_bytes: input buffered while the machine accepts none; beyond it the client is not
        read.
    :param hold_seconds: how long output is held back for clients that lose early output (kubectl).
    :param open_seconds: time limit for a SPDY client to open its streams.
    :param close_seconds: time limit for the client to leave, from the last progress of the output.
    :param ping_seconds: interval of pings to the client, which keep connections through load
        balancers alive.  No pong is required: a user whose terminal is stopped must not lose the
        session.
    """

    message_bytes: int = 1 << 20
    input_bytes: int = 256 << 10
    hold_seconds: float = 0.1
    open_seconds: float = 30
    close_seconds: float = 15
    ping_seconds: float = 30


DEFAULT_LIMITS = Limits()


class ServerUser(CarrierUser, Typing):
    """Callbacks of a client's carrier, which this end writes to."""

    def use(self, carrier: ServerCarrier) -> None:
        """Set the carrier; called once, first of all."""


def accept(
    request: Request,
    protocol: str,
    options: StreamOptions,
    user: ServerUser,
    *,
    session: str,
    terms: Terms = FULL,
    resumable: Resumable | None = None,
    offer: Offer | None = None,
    clock: IReactorTime,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """
    Answer an upgrade request with a 101, and start its carrier.

    ``user.connected`` is called before this returns, and over a WebSocket also the callbacks for
    everything that the client sent right behind its request.

    :param protocol: as chosen by
        :func:`~twisted_exec.streaming.remotecommand.negotiation.choose_protocol`.
    :param options: the stream options of the request.
    :param session: id of the session, sent to the client as ``Audit-Id``.
    :param terms: terms that ``user`` enforces, repeated to the hop that sent them.
    :param resumable: the answer to a client that can resume; ``None`` for other clients.
    :param offer: accepted from the hop before, which may rejoin the stream.
    :raises ConnectionDone: the client has left.
    """
    headers = {"Audit-Id": session}
    if text := terms.text():
        headers[TERMS_HEADER] = text
    if resumable is not None:
        headers[RESUME_HEADER] = resumable.text()
    if offer is not None:
        from twisted_exec.wire.rejoin import REJOIN_HEADER

        headers[REJOIN_HEADER] = offer.answer.text()
    take = _accept_spdy if is_upgrade(request) == SPDY else _accept_websocket
    take(request, protocol, options, user, headers, clock, limits, offer)


def _accept_websocket(
    request: Request,
    protocol: str,
    options: StreamOptions,
    user: ServerUser,
    headers: dict[str, str],
    clock: IReactorTime,
    limits: Limits,
    offer: Offer | None,
) -> None:
    (key,) = values(header_pairs(request.requestHeaders), b"sec-websocket-key")
    socket = ServerSocket(key.decode("ascii"), protocol, headers)
    hold_seconds = limits.hold_seconds if _may_be_deaf(request) else 0.0
    carrier = ServerMessages(socket, protocol, user, clock, hold_seconds)
    user.use(carrier)
    factory = server_factory(clock, limits.message_bytes)
    connection = start(socket, factory, carrier, clock, limits.close_seconds)
    if offer is not None:
        connection = offer.connection(connection, has_head=True)
    take_over(request, connection)


def _may_be_deaf(request: Request) -> bool:
    """Return whether the client may lose early output; see ``streaming.channels``."""
    agent = request.requestHeaders.getRawHeaders(b"user-agent", [b""])[-1]
    return b" kubernetes/" in agent  # client-go's User-Agent, whatever the program


def _accept_spdy(
    request: Request,
    protocol: str,
    options: StreamOptions,
    user: ServerUser,
    headers: dict[str, str],
    clock: IReactorTime,
    limits: Limits,
    offer: Offer | None,
) -> None:
    from twisted_exec.streaming.remotecommand.spdy_carrier import ServerSPDY

    carrier = ServerSPDY(
        protocol,
        options.channels,
        user=user,
        clock=clock,
        open_seconds=limits.open_seconds,
        linger_seconds=limits.close_seconds,
    )
    user.use(carrier)
    ours = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    head = [(STREAM_PROTOCOL, protocol.encode("ascii")), *ours]
    connection = carrier if offer is None else offer.connection(carrier, has_head=False)
    take_over(request, connection, switching_protocols(SPDY, head))


def over(
    way: str,
    protocol: str,
    user: CarrierUser,
    *,
    clock: IReactorTime,
    open_seconds: float,
    linger_seconds: float,
    channels: Collection[Channel] = TERMINAL,
) -> tuple[ClientCarrier, IProtocol]:
    """
    Create a carrier to a server, and the protocol for its connection.

    :param way: the requested protocol: a WebSocket subprotocol, or
        :data:`~twisted_exec.streaming.remotecommand.negotiation.OVER_SPDY`.
    :param protocol: the server's choice.
    :param open_seconds: time limit to open the streams, with SPDY.
    :param linger_seconds: time limit to close, from the last byte on.
    :param channels: streams to open; a WebSocket always has all.
    """
    if way == OVER_SPDY:
        from twisted_exec.streaming.remotecommand.spdy_carrier import ClientSPDY

        streams = ClientSPDY(
            protocol,
            channels,
            user=user,
            clock=clock,
            open_seconds=open_seconds,
            linger_seconds=linger_seconds,
        )
        return streams, streams
    socket = ClientSocket()
    carrier = ClientMessages(socket, protocol, user)
    factory = client_factory(clock, MESSAGE_BYTES)
    return carrier, start(socket, factory, carrier, clock, linger_seconds)

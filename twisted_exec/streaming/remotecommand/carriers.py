"""
Negotiation and creation of carriers, over WebSocket messages or SPDY.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from typing import Protocol as Typing

from twisted.internet.interfaces import IProtocol, IReactorTime

from twisted_exec.api.status import BadGateway, BadRequest, Forbidden, MethodNotAllowed
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.streaming.remotecommand.carrier import CarrierUser, ClientCarrier, ServerCarrier
from twisted_exec.streaming.remotecommand.message_carrier import ClientMessages, ServerMessages
from twisted_exec.wire.channel import (
    PROTOCOLS,
    SPDY_PROTOCOLS,
    TERMINAL,
    UNNAMED,
    V1,
    Channel,
)
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resume import RESUME_HEADER, Resumable
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.upgrade import (
    FORWARDED_UPGRADES,
    SPDY,
    WEBSOCKET,
    accept_key,
    check_websocket,
    negotiate,
    new_key,
    switching_protocols,
    tokens,
    values,
)

if TYPE_CHECKING:
    from twisted.web.iweb import IRequest

    from twisted_exec.streaming.http.site import Request
    from twisted_exec.streaming.rejoinable_transport import Offer
    from twisted_exec.streaming.remotecommand.spdy_carrier import ServerSPDY


# WebSockets and SPDY are imported where they are used.  Clients import autobahn while the server opens the
# console (:func:`prepare`), servers at their start, with their pages.  Clients use SPDY only with servers that have no
# WebSockets, and never the header of hops that rejoin a stream.

MESSAGE_BYTES = 32 << 20
"""Largest message that is accepted from a server; Go servers send at most this."""

OVER_SPDY = "SPDY/3.1"
"""Offers all SPDY versions; the server picks one."""

UPGRADE_REQUIRED = "Upgrade request required"
"""Kubernetes' message for a stream request without an upgrade."""

UPGRADE_CAUSE = "UpgradeRequired"
"""
Reason of the cause in the error of :func:`upgrade_required`: nothing else is wrong with the
request.
"""

STREAM_PROTOCOL = b"X-Stream-Protocol-Version"
_ACCEPTED = b"X-Accepted-Stream-Protocol-Versions"


@dataclass(frozen=True)
class StreamLimits:
    """
    Limits of one session.

    :param message_bytes: largest WebSocket message from the client, else Close 1009.
    :param input_bytes: input buffered while the machine accepts none; then the client is not read.
    :param hold_seconds: how long output is held back for clients that lose early output (kubectl).
    :param close_seconds: for the client to leave, from the last progress of the output.
    :param ping_seconds: interval of pings, which keep connections through load balancers alive.  No
        pong is required: a stopped terminal must not lose the session.
    """

    message_bytes: int = 1 << 20
    input_bytes: int = 256 << 10
    hold_seconds: float = 0.1
    open_seconds: float = 30
    close_seconds: float = 15
    ping_seconds: float = 30


DEFAULT_LIMITS = StreamLimits()


class ServerUser(CarrierUser, Typing):
    """Callbacks of a :class:`ServerCarrier`, which the user gets to write to."""

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
    limits: StreamLimits = DEFAULT_LIMITS,
) -> None:
    """
    Answer an upgrade request with a 101, and start its carrier.

    ``user`` may be called before this returns.

    :param terms: enforced by ``user``, and repeated to the hop that sent them.
    :param offer: of the previous hop, to rejoin the stream.
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
    take = _accept_spdy if requested_protocol(request) == SPDY else _accept_websocket
    take(request, protocol, options, user, headers, clock, limits, offer)


def _accept_websocket(
    request: Request,
    protocol: str,
    options: StreamOptions,
    user: ServerUser,
    headers: dict[str, str],
    clock: IReactorTime,
    limits: StreamLimits,
    offer: Offer | None,
) -> None:
    from twisted_exec.streaming.http.websocket import ServerSocket, server_factory, start

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
    agent = request.requestHeaders.getRawHeaders(b"user-agent", [b""])[-1]
    return b" kubernetes/" in agent  # client-go's User-Agent, whatever the program


def _accept_spdy(
    request: Request,
    protocol: str,
    options: StreamOptions,
    user: ServerUser,
    headers: dict[str, str],
    clock: IReactorTime,
    limits: StreamLimits,
    offer: Offer | None,
) -> None:
    carrier = _spdy(protocol, options, user, clock, limits)
    user.use(carrier)
    ours = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    head = [(STREAM_PROTOCOL, protocol.encode("ascii")), *ours]
    connection = carrier if offer is None else offer.connection(carrier, has_head=False)
    take_over(request, connection, switching_protocols(SPDY, head))


def _spdy(
    protocol: str,
    options: StreamOptions,
    user: ServerUser,
    clock: IReactorTime,
    limits: StreamLimits,
) -> ServerSPDY:
    from twisted_exec.streaming.remotecommand.spdy_carrier import ServerSPDY

    return ServerSPDY(
        protocol,
        options.channels,
        user=user,
        clock=clock,
        open_seconds=limits.open_seconds,
        linger_seconds=limits.close_seconds,
    )


def prepare(way: str, clock: IReactorTime) -> None:
    """Import what :func:`create_carrier` needs for a WebSocket, before it is needed."""
    if way != OVER_SPDY:
        from twisted_exec.streaming.http.websocket import client_factory

        client_factory(clock, MESSAGE_BYTES)


def create_carrier(
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

    :param way: the requested protocol: a WebSocket subprotocol, or :data:`OVER_SPDY`.
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
    from twisted_exec.streaming.http.websocket import ClientSocket, client_factory, start

    socket = ClientSocket()
    carrier = ClientMessages(socket, protocol, user)
    factory = client_factory(clock, MESSAGE_BYTES)
    return carrier, start(socket, factory, carrier, clock, linger_seconds)


def upgrade_required() -> BadRequest:
    """Return the error for a stream request without an upgrade."""
    cause = {"reason": UPGRADE_CAUSE, "message": UPGRADE_REQUIRED}
    return BadRequest(UPGRADE_REQUIRED, details={"causes": [cause]})


def require_upgrade(request: IRequest) -> bytes:
    """
    Return the protocol of an upgrade request: ``websocket`` or ``SPDY/3.1``.

    :raises BadRequest: the request asks for no such upgrade, or has a body.
    """
    upgrade = requested_protocol(request)
    if not upgrade:
        raise upgrade_required()
    if upgrade not in FORWARDED_UPGRADES:
        name = upgrade[:64].decode("ascii", "replace")
        raise BadRequest(f"cannot upgrade to {name!r}: only websocket and SPDY/3.1 pass here")
    if request.content.read(1):
        raise BadRequest("an upgrade request has no body")
    return upgrade


def choose_protocol(request: Request) -> str:
    """
    Check that a request is a complete handshake for a console; call this before consuming a
    one-time token.

    :return: the version of WebSocket or SPDY; empty for a WebSocket without subprotocol.
    :raises APIError: the handshake is refused.
    """
    requested = requested_protocol(request)
    if not requested:
        raise upgrade_required()
    if requested == SPDY:
        return _choose_spdy(request)
    headers = header_pairs(request.requestHeaders)
    if requested == WEBSOCKET and request.method != b"GET":
        request.setHeader(b"Allow", b"GET")
        raise MethodNotAllowed("a WebSocket is opened with GET")
    try:
        check_websocket(request.method, headers)
    except RemoteProtocolError as problem:
        if values(headers, b"sec-websocket-version") != [b"13"]:
            request.setHeader(b"Sec-WebSocket-Version", b"13")  # RFC 6455 section 4.4
        raise BadRequest(str(problem)) from None
    offered = values(headers, b"sec-websocket-protocol")
    if not tokens(offered):
        return UNNAMED
    # Go servers that adopt the client's list can be made to promise protocols that they do not
    # speak.
    chosen = negotiate(offered, PROTOCOLS)
    if chosen is None:
        # Go's servers answer 403, too, but without a body.
        raise Forbidden(f"no subprotocol in common; this server speaks {_listed(PROTOCOLS)}")
    return chosen


def _choose_spdy(request: Request) -> str:
    offered = values(header_pairs(request.requestHeaders), STREAM_PROTOCOL)
    ours = f"this server speaks {_listed(SPDY_PROTOCOLS)}"
    if not tokens(offered):
        # 400 and 403 as in Kubernetes (httpstream.go, Handshake).
        raise BadRequest(f"the request has no {STREAM_PROTOCOL.decode()} header; {ours}")
    chosen = negotiate(offered, SPDY_PROTOCOLS)
    if chosen is None:
        request.responseHeaders.setRawHeaders(_ACCEPTED, list(SPDY_PROTOCOLS))
        raise Forbidden(f"no stream protocol in common; {ours}")
    return chosen


def _listed(protocols: Sequence[str]) -> str:
    return f"{', '.join(protocols[:-1])} and {protocols[-1]}"


class OtherProtocol(Exception):
    """The server chose a protocol that was not offered, or none."""


@dataclass(frozen=True)
class Attempt:
    """An offer of a protocol."""

    method: bytes
    headers: Sequence[tuple[bytes, bytes]]
    check: Callable[[Upgraded], str]

    @classmethod
    def for_protocol(cls, protocol: str) -> Attempt:
        """Make the offer for a WebSocket subprotocol, or :data:`OVER_SPDY`."""
        return _ask_for_spdy() if protocol == OVER_SPDY else _ask_for_websocket(protocol)

    def head(self, head: UpgradeRequest) -> UpgradeRequest:
        return replace(head, method=self.method, headers=[*head.headers, *self.headers])

    def chosen(self, upgraded: Upgraded) -> str:
        """
        Return the version that the server chose; on failure the connection is closed.

        :raises BadGateway: the 101 is not valid for this request.
        :raises OtherProtocol: the server chose none of the offered protocols.
        """
        try:
            return self.check(upgraded)
        except Exception:
            upgraded.abort()
            raise


def is_protocol_refusal(answer: UpgradeRefused) -> bool:
    """
    Return whether a refusal may concern only this offer, so that another may succeed.

    Go's WebSocket server sends a bare 403; a SPDY-only server sends 400 with text.
    """
    if answer.code == BadRequest.code:
        status = answer.status()
        return status is None or status.message.endswith(UPGRADE_REQUIRED)
    return answer.code == Forbidden.code and not answer.body


def _ask_for_spdy() -> Attempt:
    offers = [(STREAM_PROTOCOL, version.encode("ascii")) for version in SPDY_PROTOCOLS]
    # A POST has a length even without a body (RFC 9110, section 8.6).
    upgrade = [(b"Connection", b"Upgrade"), (b"Upgrade", SPDY), (b"Content-Length", b"0")]
    return Attempt(b"POST", [*upgrade, *offers], _chosen_by_spdy)


def _ask_for_websocket(protocol: str) -> Attempt:
    key = new_key()
    upgrade = [
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", key),
    ]
    if protocol:
        upgrade.append((b"Sec-WebSocket-Protocol", protocol.encode("ascii")))
    return Attempt(b"GET", upgrade, partial(_chosen_by_websocket, key, protocol))


def _chosen_by_websocket(key: bytes, protocol: str, upgraded: Upgraded) -> str:
    if values(upgraded.headers, b"sec-websocket-accept") != [accept_key(key)]:
        raise BadGateway("the server's WebSocket handshake is wrong")
    # RFC 6455 §4.1: a client must fail the connection then.
    if values(upgraded.headers, b"sec-websocket-extensions"):
        raise BadGateway("the server uses a WebSocket extension that was not offered")
    # Go's server sends an empty header line when the request names none.
    answered = tokens(values(upgraded.headers, b"sec-websocket-protocol"))
    if answered != ([protocol.encode("ascii")] if protocol else []):
        raise OtherProtocol(f"the server does not speak {protocol or 'unnamed subprotocols'}")
    return protocol


def _chosen_by_spdy(upgraded: Upgraded) -> str:
    # Servers of version 1 do not send the header.
    versions = values(upgraded.headers, STREAM_PROTOCOL)[-1:] or [V1.encode("ascii")]
    chosen = negotiate(versions, SPDY_PROTOCOLS)
    if chosen is None:
        raise OtherProtocol("the server speaks a version over SPDY that was not offered")
    return chosen

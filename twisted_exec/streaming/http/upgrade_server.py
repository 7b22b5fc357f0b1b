"""
Upgrades on the server: the protocol that a request asks for, and the take-over of its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol

from twisted_exec.streaming.transports import swap_protocol, unread
from twisted_exec.wire.upgrade import SESSIONS_HEADER, requested_upgrade

if TYPE_CHECKING:  # a client of consoles imports this module, and starts faster without twisted.web
    from twisted.web.http_headers import Headers
    from twisted.web.iweb import IRequest

    from twisted_exec.streaming.http.site import Request


def header_pairs(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Convert twisted.web's headers for :mod:`twisted_exec.wire.upgrade`."""
    return [(name, value) for name, values in headers.getAllRawHeaders() for value in values]


def requested_protocol(request: IRequest) -> bytes:
    """Return the protocol that a request upgrades to, such as ``b"websocket"``; empty if none."""
    if getattr(request, "clientproto", b"HTTP/1.1") != b"HTTP/1.1":
        return b""
    if request.requestHeaders.hasHeader(b"transfer-encoding"):
        return b""  # twisted.web does not say where the body ends, and early bytes begin
    return requested_upgrade(header_pairs(request.requestHeaders))


def take_over(request: Request, protocol: IProtocol, response: bytes = b"") -> None:
    """
    Give a request's connection to ``protocol``, and the bytes behind the request.

    The request must not be answered any more, and its ``notifyFinish`` does not fire.

    :param response: written first, such as the head of a 101; empty if the protocol writes its own.
    :raises ConnectionDone: the client has left.
    """
    if request.gone:
        raise ConnectionDone("the client left before the upgrade")
    channel = request.channel
    transport, site = channel.transport, channel.site
    channel.leave()  # ends its deadline, and it counts no longer
    transport.unregisterProducer()  # the channel itself, since connectionMade
    early = channel.clear_early()
    channel.requests.remove(request)
    # Nothing may answer or be notified through the request any more; this also breaks the
    # reference cycle of request, channel and transport.
    request.gone = True
    request.notifications.clear()
    del request.channel
    swap_protocol(transport, protocol)
    transport.resumeProducing()  # twisted.web pauses it beyond 16 KiB of early bytes
    is_session = response.startswith(b"HTTP/1.1 101 ") and not early
    accepted = site.accepts(request, transport) if is_session else b""
    if accepted:
        first, end, rest = response.partition(b"\r\n")
        response = first + end + b"%s: %s\r\n" % (SESSIONS_HEADER, accepted) + rest
    if response:
        transport.write(response)
    if accepted:
        site.carry(transport)
    protocol.makeConnection(transport)
    if early:
        unread(transport, protocol, early)

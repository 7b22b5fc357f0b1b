"""
Taking a connection over from twisted.web, after an upgrade.

This is the most delicate joint of the house.  What must hold:

* Bytes that came early are not lost: a client may send its first frames right
  behind the request.  They lie in the channel's line buffer when the request
  is answered at once, and in its ``_dataBuffer`` when it is answered later.
* The channel is the transport's producer since ``connectionMade``; it must let
  go, or the new protocol cannot register its own and has no back-pressure.
* The channel's deadlines end, and it no longer counts as a connection.
* twisted.web pauses the socket beyond 16 KiB of early bytes; somebody has to
  resume it.

One private name of twisted.web is used, ``HTTPChannel._dataBuffer``;
``tests/streaming/http/test_upgrade_server.py`` is its canary.
"""

from __future__ import annotations

from collections.abc import Collection

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol
from twisted.web.http_headers import Headers
from twisted.web.iweb import IRequest

from twisted_exec.api.status import Forbidden
from twisted_exec.streaming.flow import swap_protocol
from twisted_exec.streaming.http.site import Request
from twisted_exec.wire.upgrade import is_cross_site, requested_upgrade


def header_pairs(headers: Headers) -> list[tuple[bytes, bytes]]:
    """twisted.web's headers in the form that :mod:`twisted_exec.wire.upgrade` reads."""
    return [(name, value) for name, values in headers.getAllRawHeaders() for value in values]


def is_upgrade(request: IRequest) -> bytes:
    """
    What the request asks to be upgraded to, such as ``b"websocket"``.

    Empty when it is no upgrade request; HTTP/1.0 has none.
    """
    if getattr(request, "clientproto", b"HTTP/1.1") != b"HTTP/1.1":
        return b""
    return requested_upgrade(header_pairs(request.requestHeaders))


def refuse_other_sites(
    request: IRequest, allowed: Collection[bytes] = (), *, sent_unasked: bool = True
) -> None:
    """
    Refuse a request that a browser may have sent for a page of another site.

    :param allowed: sites besides this server's own, see
        :func:`~twisted_exec.wire.upgrade.read_origin`.
    :param sent_unasked: the user may be known by something that a browser adds to the requests of
        any page, such as a client certificate.
    :raises Forbidden: a page of another site may have sent the request.
    """
    if not request.requestHeaders.hasHeader(b"origin"):
        return
    if is_cross_site(
        header_pairs(request.requestHeaders),
        shows_certificate=sent_unasked,
        secure=request.isSecure(),
        allowed=allowed,
    ):
        raise Forbidden(
            "a page of another site may not use your browser's credentials here"
            " (--allowed-origin names sites that may)"
        )


def take_over(request: Request, protocol: IProtocol, response: bytes = b"") -> None:
    """
    Give a request's connection to ``protocol``.

    ``protocol.makeConnection`` gets the transport; what the client already sent
    behind the request follows as ``dataReceived``, even if the protocol pauses
    the transport first.  The request must not be answered any more, and its
    ``notifyFinish`` does not fire.

    :param response: written before, such as the head of a 101; empty when the
        protocol answers by itself.
    :raises ConnectionDone: the client has left meanwhile.
    """
    if request.gone:
        raise ConnectionDone("the client left before the upgrade")
    channel = request.channel
    transport = channel.transport
    channel.leave()
    transport.unregisterProducer()
    early = b"".join(channel._dataBuffer) + channel.clearLineBuffer()
    channel._dataBuffer = []
    channel.requests.remove(request)
    # Nobody may answer or be told through the request any more; this also cuts
    # the cycle between it, the channel and the transport.
    request.gone = True
    request.notifications.clear()
    del request.channel
    swap_protocol(transport, protocol)
    transport.resumeProducing()
    if response:
        transport.write(response)
    protocol.makeConnection(transport)
    if early:
        protocol.dataReceived(early)

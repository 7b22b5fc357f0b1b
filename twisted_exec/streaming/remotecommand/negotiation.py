"""
Negotiation of the protocol between both ends of a console.

The server (:func:`choose_protocol`) picks the first of the client's protocols that is on *our*
list; Go servers that adopt the client's list can be made to promise protocols that they do not
speak. Refusals are a JSON Status: kubectl shows its message, and cannot show plain text.

The client (:class:`Attempt`) makes one offer per request, and checks the response to that offer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from twisted_exec.api.status import BadGateway, BadRequest, Forbidden, MethodNotAllowed
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade
from twisted_exec.streaming.http.websocket import new_key
from twisted_exec.wire.channel import PROTOCOLS, SPDY_PROTOCOLS, UNNAMED, V1
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import (
    SPDY,
    WEBSOCKET,
    accept_key,
    check_websocket,
    negotiate,
    tokens,
    values,
)

if TYPE_CHECKING:  # a client starts faster without twisted.web
    from twisted_exec.streaming.http.request import Request

OVER_SPDY = "SPDY/3.1"
"""An offer of all SPDY versions; the server picks one."""

UPGRADE_REQUIRED = "Upgrade request required"
"""Kubernetes' message for a stream request without an upgrade."""

UPGRADE_CAUSE = "UpgradeRequired"
"""
Reason of the cause in that error, which a kubelet does not send.

A page in a browser learns nothing about a WebSocket that cannot be opened.  It repeats the request without
the upgrade: this cause means that nothing else was wrong with it.
"""

STREAM_PROTOCOL = b"X-Stream-Protocol-Version"
_ACCEPTED = b"X-Accepted-Stream-Protocol-Versions"


def upgrade_required() -> BadRequest:
    """Return the error for a stream request without an upgrade."""
    cause = {"reason": UPGRADE_CAUSE, "message": UPGRADE_REQUIRED}
    return BadRequest(UPGRADE_REQUIRED, details={"causes": [cause]})


def choose_protocol(request: Request) -> str:
    """
    Check that a request is a complete handshake for a console.

    Call this before consuming a one-time token for the session.

    :return: the version of WebSocket or SPDY, depending on the request; empty for a WebSocket
        without subprotocol.
    :raises APIError: 400, 403 or 405, with the reason.
    """
    requested = is_upgrade(request)
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
    chosen = negotiate(offered, PROTOCOLS)
    if chosen is None:
        raise Forbidden(f"no subprotocol in common; this server speaks {_listed(PROTOCOLS)}")
    return chosen


def _choose_spdy(request: Request) -> str:
    offered = values(header_pairs(request.requestHeaders), STREAM_PROTOCOL)
    ours = f"this server speaks {_listed(SPDY_PROTOCOLS)}"
    if not tokens(offered):
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
    """
    One offer of a protocol.

    :param headers: headers of the upgrade.
    :param check: checks the 101: see :meth:`chosen`.
    """

    method: bytes
    headers: Sequence[tuple[bytes, bytes]]
    check: Callable[[Upgraded], str]

    @classmethod
    def over(cls, protocol: str) -> Attempt:
        """
        Make the offer for ``protocol``.

        :param protocol: a WebSocket subprotocol, or :data:`OVER_SPDY`.
        """
        return _ask_for_spdy() if protocol == OVER_SPDY else _ask_for_websocket(protocol)

    def head(self, head: UpgradeRequest) -> UpgradeRequest:
        """Add the offer to a request."""
        return replace(head, method=self.method, headers=[*head.headers, *self.headers])

    def chosen(self, upgraded: Upgraded) -> str:
        """
        Return the version that the server chose; on failure the connection is closed.

        :raises BadGateway: the 101 does not belong to this request.
        :raises OtherProtocol: it is for another protocol.
        """
        try:
            return self.check(upgraded)
        except Exception:
            upgraded.abort()
            raise


def of_the_protocol(answer: UpgradeRefused) -> bool:
    """
    Return whether a refusal may concern only this offer, so that another may succeed.

    Go's WebSocket server sends a bare 403; a SPDY-only server sends 400 with text.  A Status
    concerns the request itself, except one that reports a missing upgrade: a proxy that knows only
    WebSockets has removed the SPDY headers.
    """
    if answer.code == BadRequest.code:
        status = answer.status()
        return status is None or status.message.endswith(UPGRADE_REQUIRED)
    return answer.code == Forbidden.code and not answer.body


def _ask_for_spdy() -> Attempt:
    offers = [(STREAM_PROTOCOL, version.encode("ascii")) for version in SPDY_PROTOCOLS]
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

"""
Which protocol the two ends of a console speak.

The server (:func:`choose_protocol`) takes the client's first choice that is on *our*
list; Go servers that make the client's list their own can be brought to promise what
they do not speak.  Whoever is refused gets a JSON Status: kubectl shows its message,
where it can make nothing of a text.

The client (:class:`Attempt`) offers what one way of asking has, and reads the answer
to just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twisted_exec.api.status import BadGateway, BadRequest, Forbidden, MethodNotAllowed
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade
from twisted_exec.streaming.http.websocket import new_key
from twisted_exec.wire.channel import PROTOCOLS, UNNAMED, V1
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand.spdy_streams import SPDY_PROTOCOLS
from twisted_exec.wire.upgrade import (
    SPDY,
    WEBSOCKET,
    Headers,
    accept_key,
    check_websocket,
    negotiate,
    tokens,
    values,
)

OVER_SPDY = "SPDY/3.1"
"""A way to ask: whichever of SPDY's versions the server likes best."""

UPGRADE_REQUIRED = "Upgrade request required"
"""What a server of Kubernetes says to a request for a stream that is no upgrade."""

STREAM_PROTOCOL = b"X-Stream-Protocol-Version"
_ACCEPTED = b"X-Accepted-Stream-Protocol-Versions"


def choose_protocol(request: Request) -> str:
    """
    Check that a request is a complete handshake for a console.

    Whoever consumes a token for a session asks this before.

    :return: the version: of WebSocket's or SPDY's, whichever the request is for; empty
        for a WebSocket that names none.
    :raises APIError: 400, 403 or 405, saying what is missing.
    """
    wanted = is_upgrade(request)
    if not wanted:
        raise BadRequest(UPGRADE_REQUIRED)
    if wanted == SPDY:
        return _choose_spdy(request)
    headers = header_pairs(request.requestHeaders)
    if wanted == WEBSOCKET and request.method != b"GET":
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
    One way to ask for a console.

    :param headers: those of the upgrade.
    :param check: reads the 101: see :meth:`chosen`.
    """

    method: bytes
    headers: Sequence[tuple[bytes, bytes]]
    check: Callable[[Upgraded], str]

    @classmethod
    def over(cls, protocol: str) -> Attempt:
        """
        The way for ``protocol``.

        :param protocol: one for WebSockets, or :data:`OVER_SPDY`.
        """
        return _ask_for_spdy() if protocol == OVER_SPDY else _ask_for_websocket(protocol)

    def head(self, head: UpgradeRequest) -> UpgradeRequest:
        """The whole request."""
        return replace(head, method=self.method, headers=[*head.headers, *self.headers])

    def chosen(self, upgraded: Upgraded) -> str:
        """
        The version that the server chose; the connection is closed when that is no answer.

        :raises BadGateway: the 101 is not an answer to this request.
        :raises OtherProtocol: it is, but for another protocol.
        """
        try:
            return self.check(upgraded)
        except Exception:
            upgraded.abort()
            raise


def of_the_protocol(answer: UpgradeRefused) -> bool:
    """
    Whether a refusal may be of this way to ask alone, so that another may do.

    Go's WebSocket server says 403 and nothing else; a server that knows only SPDY
    says 400, with a text.  What comes in a Status is about the request, but for one that missed the
    upgrade: something in between, which knows only WebSockets, has taken it out.
    """
    if answer.code == BadRequest.code:
        status = answer.status()
        return status is None or status.message.endswith(UPGRADE_REQUIRED)
    return answer.code == Forbidden.code and not answer.body


def is_answer(answered: Headers, offered: Headers) -> bool:
    """
    Whether a 101 names a subprotocol that the request offered, if it offered any.

    Servers that know none of them may accept without one; clients hang up on that.
    """
    wanted = tokens(values(offered, b"sec-websocket-protocol"))
    chosen = tokens(values(answered, b"sec-websocket-protocol"))
    return not wanted or (len(chosen) == 1 and chosen[0] in wanted)


def _ask_for_spdy() -> Attempt:
    offers = [(STREAM_PROTOCOL, one.encode("ascii")) for one in SPDY_PROTOCOLS]
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
    # Go's server answers a request that names none with an empty line.
    answered = tokens(values(upgraded.headers, b"sec-websocket-protocol"))
    if answered != ([protocol.encode("ascii")] if protocol else []):
        raise OtherProtocol(f"the server does not speak {protocol or 'unnamed subprotocols'}")
    return protocol


def _chosen_by_spdy(upgraded: Upgraded) -> str:
    # Servers of version 1 do not know the header.
    told = values(upgraded.headers, STREAM_PROTOCOL)[-1:] or [V1.encode("ascii")]
    chosen = negotiate(told, SPDY_PROTOCOLS)
    if chosen is None:
        raise OtherProtocol("the server speaks a version over SPDY that was not offered")
    return chosen

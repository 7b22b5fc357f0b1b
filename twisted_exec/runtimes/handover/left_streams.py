"""
Streams that a predecessor of this process serves, and that the hop before rejoins.

A poollet that is replaced cuts the connections of stock clients' streams, and the API server rejoins
them (:mod:`twisted_exec.wire.rejoin`).  The request comes to the newest process of the runtime, which
passes it and then the bytes on to the process that serves the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from twisted_exec.api.status import BadRequest, NotFound
from twisted_exec.runtimes.handover.bridged import Bridged
from twisted_exec.runtimes.serving.rejoining import response_head
from twisted_exec.runtimes.serving.server_routes import SocketRoutes, header_text
from twisted_exec.streaming.enduring_streams import Owner
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.streaming.http.upgrade_server import is_upgrade, take_over
from twisted_exec.streaming.interfaces import UID_HEADER, USER_HEADER
from twisted_exec.streaming.sessions.hop_messages import forwarded_session_id
from twisted_exec.streaming.sessions.resuming import REJOIN, rejoin_headers, requested_rejoin
from twisted_exec.streaming.splice import Splice
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER
from twisted_exec.wire.upgrade import switching_protocols

if TYPE_CHECKING:
    from twisted_exec.runtimes.serving.server import TokenServer

_PATH = b"/streams"
_TIMEOUT_SECONDS = 60.0
"""
Longest wait for the process that serves the stream.  The hop before waits longer at each attempt, and
leaves first: a shorter limit here would fail all attempts while this host is busy.
"""
_DRAIN_SECONDS = 1.0
_PASSED = frozenset({b"connection", b"upgrade", b"x-stream-protocol-version", REJOIN.lower()})
_WEBSOCKET = b"sec-websocket-"
_MADE_HERE = frozenset({b"connection", b"upgrade", TERMS_HEADER.lower().encode("ascii")})


async def pass_on(
    request: Request, bridged: Bridged, endpoint: IStreamClientEndpoint, clock: IReactorTime
) -> None:
    """
    Pass a request that rejoins a stream on to the process that serves it.

    :param endpoint: leads to that process.
    :raises APIError: it refuses, or cannot be reached.
    :raises ConnectionDone: the hop has left.
    """
    subject = bridged.subject
    headers = [
        (name, value)
        for name, values in request.requestHeaders.getAllRawHeaders()
        if name.lower() in _PASSED or name.lower().startswith(_WEBSOCKET)
        for value in values
    ]
    headers += [
        (USER_HEADER, quote(subject.user, safe="").encode("ascii")),
        (UID_HEADER, quote(subject.uid, safe="").encode("ascii")),
        (b"Audit-Id", subject.session.encode("ascii")),
    ]
    head = UpgradeRequest(request.method, _PATH, b"localhost", headers)
    try:
        upgraded = await upgrade(endpoint, head, clock=clock, timeout_seconds=_TIMEOUT_SECONDS)
    except UpgradeRefused as refusal:
        raise refusal.as_api_error() from None
    answer = [each for each in upgraded.headers if each[0].lower() not in _MADE_HERE]
    if text := bridged.terms.text():
        answer.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
    splice = Splice(clock, lambda _: None, drain_seconds=_DRAIN_SECONDS)
    try:
        take_over(request, splice.user, switching_protocols(is_upgrade(request), answer))
    except ConnectionDone:
        upgraded.abort()
        raise
    upgraded.hand_over(splice.machine)


class LeftStreamRoutes(SocketRoutes):
    """The routes of a socket for successors of this process, which serves streams."""

    serves_while_frozen = True

    def __init__(self, server: TokenServer) -> None:
        super().__init__(server)
        self._routes.add(["GET", "POST"], _PATH.decode("ascii"), self._rejoin)

    async def _rejoin(self, request: Request, names: Mapping[str, str]) -> None:
        _, rejoin = requested_rejoin(rejoin_headers(request))
        if rejoin is None:
            raise BadRequest("a successor rejoins a stream")
        session: Any = forwarded_session_id(request)
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        stream = self._server.streams.find(Owner(session, user, uid), rejoin)
        if not self._server.sessions.has(session):
            raise NotFound("exec", "", message="there is no stream to rejoin: its session is over")
        response = response_head(request, session, stream.received, FULL)
        take_over(request, stream.rejoin(rejoin.received), response)

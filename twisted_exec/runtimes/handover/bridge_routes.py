"""
Requests of predecessors of this process for the sessions whose streams they serve.

The socket is in the private directory of the runtime, so only processes of the same account reach it.
A request names a session, and has the key that resumes it (:mod:`twisted_exec.wire.resume`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted_exec.api.status import BadRequest, NotFound
from twisted_exec.runtimes.serving.resuming import resumption_of
from twisted_exec.runtimes.serving.server_routes import SocketRoutes, header_text
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.interfaces import UID_HEADER, USER_HEADER
from twisted_exec.streaming.remotecommand.negotiation import choose_protocol

if TYPE_CHECKING:
    from twisted_exec.runtimes.serving.server import StreamServer


class BridgeRoutes(SocketRoutes):
    """
    The routes of the socket for predecessors.

    A frozen process refuses them: it has handed the sessions over, and the next process has them.
    """

    _server: StreamServer

    def __init__(self, server: StreamServer) -> None:
        super().__init__(server)
        self._routes.add(["GET"], "/sessions/{session}", self._resume)

    async def _resume(self, request: Request, names: Mapping[str, str]) -> None:
        protocol = choose_protocol(request)
        resumption = resumption_of(request, protocol)
        if resumption is None or resumption.resume is None:
            raise BadRequest("a predecessor resumes a session")
        user, bound = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        session = self._server.kept_sessions.find(resumption.resume, user, bound)
        bridged = None if session is None else session.bridged
        if session is None or bridged is None:
            raise NotFound("exec", "", message="the session is over")
        session.attachment.check(resumption.resume.position)
        request.subject = bridged.subject
        live = self._server.sessions.open(bridged.subject, ceiling=bridged.terms)
        connection: Any
        connection, beginning = session.connect(
            bridged.subject.session, live, partial(bridged.closed, live), resumption.resume
        )
        if self._serve(request, connection, live, beginning):
            bridged.opened(live)

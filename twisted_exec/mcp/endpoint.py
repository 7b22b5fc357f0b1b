"""
MCP over Streamable HTTP.

A POST has one message.  The response to a call is a stream of server-sent events, with comments while the call waits,
so that no proxy takes it for dead; all others are JSON.  There is no stream for GET, because this server begins nothing
by itself, and none is resumed: a client that leaves cancels its call.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from twisted_exec.api.status import (
    BadRequest,
    Forbidden,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
)
from twisted_exec.cli.mcp.messages import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Call,
    RPCError,
    decode,
    encode_result,
)
from twisted_exec.cli.mcp.protocol import METHODS, VERSIONS, failure
from twisted_exec.cli.mcp.table import BY_NAME
from twisted_exec.mcp.sessions import Bound, Sessions
from twisted_exec.mcp.turns import WAITING_SECONDS, WORKING_SECONDS, CallTurns
from twisted_exec.mcp.users import Caller, Users
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_json
from twisted_exec.streaming.http.routes import WrongMethod, not_found
from twisted_exec.streaming.http.site import Request
from twisted_exec.wire.cross_site import read_origin

METADATA = "/.well-known/oauth-protected-resource"
SESSION, VERSION = b"Mcp-Session-Id", b"Mcp-Protocol-Version"
ALIVE_SECONDS = 15.0
"""How often a stream that waits has a comment."""

_LONGEST_SECONDS = 3600.0
"""More than any call takes."""
_EXPIRED = "your token for this server has expired during the call, so the call has ended: get another token, and call again"
_EVENTS = b"text/event-stream"
_COMMENT = b": waiting\n\n"


class Endpoint(Dispatcher):
    """
    The resource of the door.

    :param url: of this resource, as clients know it.
    :param issuers: URLs of the identity providers.
    :param allowed: origins of pages that may use it, besides its own; see :func:`.read_origin`.
    """

    def __init__(
        self,
        url: str,
        issuers: Sequence[str],
        users: Users,
        sessions: Sessions,
        clock: IReactorTime,
        allowed: Collection[bytes] = (),
    ) -> None:
        super().__init__()
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path.encode()
        self._metadata_url = f"{origin}{METADATA}{parts.path}"
        self._metadata = {
            "resource": url,
            "authorization_servers": list(issuers),
            "bearer_methods_supported": ["header"],
            "resource_name": "Consoles of machines",
        }
        self._allowed = {read_origin(origin), *allowed}
        self._users, self._sessions, self._clock = users, sessions, clock
        self._turns = CallTurns(clock)

    async def dispatch(self, request: Request) -> None:
        path = request.path
        self._check_origin(request)
        if path in (METADATA.encode(), METADATA.encode() + self._path):
            if request.method not in (b"GET", b"HEAD"):
                raise WrongMethod(request.method, [b"GET"])
            respond_json(request, 200, self._metadata)
            return
        if path != self._path:
            raise not_found()
        try:
            caller = await self._users.caller(request)
        except Unauthorized as refused:
            self._challenge(request, refused)
            return
        request.learn(user=caller.name)
        if request.method == b"DELETE":
            self._sessions.end(self._found(request, caller))
            request.setResponseCode(204)
            request.finish()
        elif request.method == b"POST":
            await self._post(request, caller)
        else:
            request.setHeader(b"Allow", b"DELETE, POST")
            raise WrongMethod(request.method, [b"DELETE", b"POST"])

    def _check_origin(self, request: Request) -> None:
        """
        Refuse pages of other sites, also those whose name leads to this host (DNS rebinding).

        :raises Forbidden: a browser has sent the request for a page of another origin.
        """
        for line in request.requestHeaders.getRawHeaders(b"origin", []):
            try:
                origin = read_origin(line.decode("ascii", "replace"))
            except ValueError:
                origin = b""
            if origin not in self._allowed:
                raise Forbidden("a page of another site may not use this server (--allowed-origin)")

    def _challenge(self, request: Request, refused: Unauthorized) -> None:
        header = f'Bearer resource_metadata="{self._metadata_url}"'
        if request.requestHeaders.hasHeader(b"authorization"):
            header = f'Bearer error="invalid_token", resource_metadata="{self._metadata_url}"'
        request.setHeader(b"WWW-Authenticate", header.encode())
        respond_json(request, refused.code, refused.to_status())

    def _found(self, request: Request, caller: Caller) -> Bound:
        ids = request.requestHeaders.getRawHeaders(SESSION, [])
        if len(ids) != 1:
            raise BadRequest(
                "the request needs one header Mcp-Session-Id, of initialize's response"
            )
        bound = self._sessions.find(ids[0].decode("latin-1"), caller)
        versions = request.requestHeaders.getRawHeaders(VERSION, [])
        if any(each.decode("latin-1") not in VERSIONS for each in versions):
            raise BadRequest(f"Mcp-Protocol-Version is none of {', '.join(VERSIONS)}")
        return bound

    async def _post(self, request: Request, caller: Caller) -> None:
        media = (request.getHeader(b"content-type") or b"").partition(b";")[0].strip().lower()
        if media != b"application/json":
            raise UnsupportedMediaType("the message must be application/json")
        raw = request.content.read()
        try:
            message = decode(raw)
        except RPCError as error:
            respond(request, 400, error.encode(), "application/json")
            return
        if isinstance(message, Call) and message.id is not None:
            await self._request(request, caller, message, raw)
            return
        await self._found(request, caller).session.received(raw)
        request.setResponseCode(202)
        request.setHeader(b"Content-Length", b"0")
        request.finish()

    async def _request(self, request: Request, caller: Caller, call: Call, raw: bytes) -> None:
        if call.method == "initialize":
            await self._initialize(request, caller, raw)
            return
        if not request.requestHeaders.hasHeader(SESSION):
            is_known = call.method in METHODS
            code, text = METHOD_NOT_FOUND, "there is no such method here"
            if is_known:
                code, text = INVALID_REQUEST, "a session begins with initialize"
            respond(request, 400, RPCError(code, text, call.id).encode(), "application/json")
            return
        bound = self._found(request, caller)
        most = self._sessions.limits.calls_per_user
        if self._sessions.requests_of(caller) >= most:
            raise TooManyRequests(
                f"you have {most} requests under way here: wait for one of them",
                retry_after_seconds=1,
            )
        with self._sessions.used(bound):
            if call.method == "tools/call":
                await self._call(request, bound, caller, call, raw)
            else:
                response = await bound.session.received(raw)
                respond(request, 200, response, "application/json")

    async def _initialize(self, request: Request, caller: Caller, raw: bytes) -> None:
        bound = self._sessions.begin(caller)
        response = await bound.session.received(raw)
        if bound.session.version:
            request.setHeader(SESSION, bound.id.encode())
        else:  # it was refused
            self._sessions.end(bound)
        respond(request, 200, response, "application/json")

    async def _call(
        self, request: Request, bound: Bound, caller: Caller, call: Call, raw: bytes
    ) -> None:
        assert call.id is not None  # it is no notification
        events = _Events(request, self._clock)
        try:
            calling = Deferred.fromCoroutine(self._in_turn(bound, call, raw))
            left = max(0.0, caller.expires - time.time())
            expired = encode_result(call.id, failure(_EXPIRED))
            calling.addTimeout(min(left, _LONGEST_SECONDS), self._clock, lambda *_: expired)
            response = await calling
        finally:
            events.stop()
        events.send(response)

    async def _in_turn(self, bound: Bound, call: Call, raw: bytes) -> bytes:
        tool = BY_NAME.get(str(call.params.get("name")))
        seconds = WAITING_SECONDS if tool is not None and tool.waits else WORKING_SECONDS
        turn = await self._turns.next(bound.caller.person, seconds)
        try:
            return await bound.session.received(raw)
        finally:
            turn.end()


class _Events:
    """The response to a call, as server-sent events, from the first comment on."""

    def __init__(self, request: Request, clock: IReactorTime) -> None:
        self._request = request
        accepted = request.getHeader(b"accept") or b""
        self._is_stream = _EVENTS in accepted or b"*/*" in accepted
        self._alive = LoopingCall(self._comment)
        self._alive.clock = clock
        self._alive.start(ALIVE_SECONDS, now=False)

    def _comment(self) -> None:
        if self._request.gone or not self._is_stream:
            return
        self._begin()
        self._request.write(_COMMENT)

    def _begin(self) -> None:
        request = self._request
        if not request.startedWriting:
            request.setHeader(b"Content-Type", _EVENTS)
            request.setHeader(b"Cache-Control", b"no-cache, no-transform")
            request.setHeader(b"X-Accel-Buffering", b"no")

    def stop(self) -> None:
        """Send no further comments."""
        if self._alive.running:
            self._alive.stop()

    def send(self, response: bytes) -> None:
        """Send the response, and end; empty for a call that was cancelled."""
        request = self._request
        if request.gone or request.finished:
            return
        if not request.startedWriting and response:
            respond(request, 200, response, "application/json")
            return
        self._begin()
        if response:
            request.write(b"event: message\ndata: " + response + b"\n\n")
        else:
            request.write(_COMMENT)
        request.finish()

"""
A machine's end as a real ironcore runtime or a kubelet serves it.

It speaks SPDY in version 4 and before, and WebSockets up to version 4; it refuses other
protocols as Go's servers do, and any request with a token uses that token up.
The streams themselves are our own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from twisted_exec.streaming.http.responses import Dispatcher, respond_text
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.remotecommand.carriers import DEFAULT_LIMITS, StreamLimits
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.upgrade import tokens

OLD = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io")

TERMINAL = {b"stdin": [b"true"], b"stdout": [b"true"], b"tty": [b"true"]}
"""What a machine runtime waits for, whatever its request says."""


class Foreign(Dispatcher):
    """
    :param speaks: its WebSocket protocols; none at all speaks SPDY only.
    :param spdy: whether it speaks SPDY.
    :ivar tokens: the paths that may be requested, each once.
    :ivar asked: what every request asked to be upgraded to, in order.
    :ivar queries: the query of each that was accepted.
    :ivar refusal: code and text of the answer to correct requests.
    """

    def __init__(
        self,
        clock: Any,
        *,
        speaks: Collection[str] = OLD,
        spdy: bool = True,
        query: dict[bytes, list[bytes]] | None = TERMINAL,
    ) -> None:
        super().__init__()
        self.clock, self.speaks, self.spdy, self.query = clock, speaks, spdy, query
        self.tokens: set[bytes] = set()
        self.asked: list[bytes] = []
        self.queries: list[dict[bytes, list[bytes]]] = []
        self.heads: list[dict[bytes, list[bytes]]] = []
        self.attachments: list[RecordingAttachment] = []
        self.servers: list[Any] = []
        self.make: Any = RecordingAttachment
        self.limits: StreamLimits = DEFAULT_LIMITS
        self.refusal: tuple[int, str] | None = None

    @property
    def carrier(self) -> Any:
        """The first stream's messages, to send what our servers never send."""
        return self.servers[0]._carrier

    async def dispatch(self, request: Request) -> None:
        headers = request.requestHeaders
        upgrade = headers.getRawHeaders(b"upgrade", [b""])[0]
        self.asked.append(upgrade)
        self.heads.append(dict(headers.getAllRawHeaders()))
        if request.path not in self.tokens:
            respond_text(request, 404, "404 page not found\n")
            return
        self.tokens.discard(request.path)
        offered = tokens(headers.getRawHeaders(b"sec-websocket-protocol", []))
        if (upgrade == b"SPDY/3.1" and self.spdy) or (
            upgrade == b"websocket" and {each.decode() for each in offered} & set(self.speaks)
        ):
            self._serve(request)
        elif upgrade == b"websocket" and self.speaks:
            # Go's WebSocket server: no headers, no body, and that is all.
            request.channel.transport.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            request.channel.transport.loseConnection()
        else:
            told = f"unable to upgrade: missing upgrade headers in request: {headers}"
            respond_text(request, 400, told)

    def _serve(self, request: Request) -> None:
        if self.refusal is not None:
            respond_text(request, *self.refusal)
            return
        self.queries.append(request.args)
        if self.query is not None:
            request.args = self.query
        self.attachments.append(self.make())
        self.servers.append(
            serve(
                request,
                self.attachments[-1],
                session="theirs",
                user="",
                clock=self.clock,
                limits=self.limits,
            )
        )

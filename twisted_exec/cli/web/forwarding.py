"""
Requests of the page, other than WebSockets, on their way to the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer, IStreamClientEndpoint
from twisted.web import http
from zope.interface import implementer

from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout
from twisted_exec.cli.web.headers import request_headers, set_answer_headers
from twisted_exec.kube import transport
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import Incoming
from twisted_exec.streaming.http.site import Request

AGENT = "twisted-exec-web"
_CONNECT_SECONDS = 10.0
HEAD_SECONDS = 60.0
"""Longest wait for the head of an answer, as a kube-apiserver's own limit for short requests."""

_LONG = (b"follow", b"watch")
"""Parameters of requests that may be answered only when something happens."""

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE")


class Forwarder:
    """
    Forwards plain requests to the API server with the credentials of a kubeconfig.

    A redirect would carry them elsewhere, so none is followed or passed on.
    """

    def __init__(
        self,
        config: Callable[[], ClientConfig],
        reactor: Any,
        timeout_seconds: float | None = None,
        server: IStreamClientEndpoint | None = None,
    ) -> None:
        self._head_seconds = timeout_seconds or HEAD_SECONDS
        self._http = transport.HTTPTransport(
            config(),
            reactor,
            connect_seconds=timeout_seconds or _CONNECT_SECONDS,
            server=server,
            renew=config,
            agent=AGENT,
        )

    async def forward(self, request: Request) -> None:
        """
        Answer a request with the answer of the API server.

        :raises APIError: the request cannot be passed on, or has no answer to pass.
        """
        is_long = any(name in request.args for name in _LONG)
        try:
            incoming = await self._http.open(
                _outgoing(request), head_seconds=None if is_long else self._head_seconds
            )
        except (BadGateway, GatewayTimeout) as problem:
            raise with_remedy(problem) from None
        if 300 <= incoming.code < 400 and incoming.code != http.NOT_MODIFIED:
            incoming.abort()
            raise BadGateway(
                f"the API server answered {incoming.code}; redirects are not followed: "
                "check the server in the kubeconfig"
            )
        answer = _Answer(request, incoming)
        await answer.done

    def close(self) -> Deferred[None]:
        return self._http.close()


def with_remedy(problem: APIError) -> APIError:
    """Say what to do about a server that cannot be reached."""
    message = f"{problem.message}; check the network and the kubeconfig"
    return APIError(message, code=problem.code, reason=problem.reason)


def _outgoing(request: Request) -> transport.Request:
    headers: dict[str, list[str]] = {}
    for name, value in request_headers(request):
        headers.setdefault(name.decode("ascii").lower(), []).append(value.decode("ascii"))
    # Without it the client would not say that it understands compressed answers, but some servers
    # compress what was not asked for.
    headers.setdefault("accept-encoding", ["identity"])
    content_type = ", ".join(headers.pop("content-type", ["application/json"]))
    method = request.method.decode("ascii")
    return transport.Request(
        method,
        request.uri.decode("ascii"),
        request.content.read(),
        content_type,
        repeatable=method in ("GET", "HEAD"),
        headers=[(name, ", ".join(values)) for name, values in headers.items()],
    )


@implementer(IPushProducer)
class _Answer:
    """
    An answer on its way to the page.

    :ivar done: fires at its end, or when the page has left; cancelling ends the answer.
    """

    def __init__(self, request: Request, incoming: Incoming) -> None:
        self._request, self._incoming = request, incoming
        self.done: Deferred[None] = Deferred(lambda _: incoming.abort())
        request.setResponseCode(incoming.code)
        set_answer_headers(request, incoming.headers)
        if incoming.length is not None and request.method != b"HEAD":
            request.setHeader(b"Content-Length", b"%d" % incoming.length)
        request.registerProducer(self, True)
        request.write(b"")  # a watch may have no event for a long time
        incoming.deliver(self._received, self._ended)

    def _received(self, data: bytes) -> None:
        if not self._request.gone:
            self._request.write(data)

    def _ended(self, complete: bool) -> None:
        request = self._request
        if not request.gone:
            request.unregisterProducer()
            if complete:
                request.finish()
            else:  # an incomplete answer must not end as if it were complete
                request.channel.transport.abortConnection()
        if not self.done.called:
            self.done.callback(None)

    def pauseProducing(self) -> None:
        self._incoming.pause()

    def resumeProducing(self) -> None:
        self._incoming.resume()

    def stopProducing(self) -> None:
        self._incoming.abort()

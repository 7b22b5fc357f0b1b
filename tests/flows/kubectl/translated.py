"""
A Pod whose streams pass through our proxy to another implementation's server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ServerEndpoint
from zope.interface import implementer

from tests.audits import AuditList
from tests.streaming.foreign import Foreign
from tests.streaming.passing import carry
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.interfaces import IAttachment
from twisted_exec.streaming.location import IStreamAdmission, Location, Renewal, Upstream
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.tls.endpoints import client_endpoint

from .pods import Pods


class _NewURL(Upstream):
    def __init__(self, url: Callable[[Request], Deferred[bytes]], request: Request) -> None:
        super().__init__()
        self._url, self._request = url, request

    async def renew(self, location: Location, reason: Renewal) -> Location:
        return replace(location, path=await self._url(self._request))


@implementer(IStreamAdmission)
class Runtime:
    """
    Locates single-use exec URLs of another server.

    :param url: returns the path and query for a request.
    """

    def __init__(self, port: int, url: Callable[[Request], Deferred[bytes]]) -> None:
        self.endpoint = client_endpoint(reactor, "127.0.0.1", port, None)
        self.port, self.url = port, url

    def admit(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._admit(context))

    async def _admit(self, context: RequestContext) -> Location:
        context.learn(user="ann", machine="p1")
        return Location(
            [("the runtime", self.endpoint)],
            await self.url(context.request),
            b"127.0.0.1:%d" % self.port,
            upstream=_NewURL(self.url, context.request),
        )


class ProxiedPods(Pods):
    """The Pod's streams pass through a proxy."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(lambda: None)  # type: ignore[arg-type, return-value]
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "poollet", reactor))  # type: ignore[arg-type]
        self.proxy = Proxy(runtime, ProxySettings("poollet"), sessions=self.sessions, clock=reactor)  # type: ignore[arg-type]

    async def stream(self, request: Request) -> None:
        await carry(self.proxy, request)


class Served:
    """Sites on loopback ports."""

    def __init__(self) -> None:
        self._open: list[tuple[Site, Any]] = []

    async def serve(self, dispatcher: Any) -> int:
        """Serve a site; return its port."""
        site = Site(dispatcher, reactor)  # type: ignore[arg-type]
        port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(site)
        self._open.append((site, port))
        return int(port.getHost().port)

    async def stop(self) -> None:
        for site, port in self._open:
            site.drain()
            await maybeDeferred(port.stopListening)


async def foreign_pods(
    served: Served, attach: Callable[[], IAttachment], **more: Any
) -> tuple[Foreign, ProxiedPods, str]:
    """Start a foreign server and a proxy before it; return both and the proxy's URL."""
    foreign = Foreign(reactor, query=None, **more)
    foreign.make = attach
    count = 0

    def url(request: Request) -> Deferred[bytes]:
        nonlocal count
        count += 1
        path = b"/exec/%d" % count
        foreign.tokens.add(path)
        return succeed(path)

    pods = ProxiedPods(Runtime(await served.serve(foreign), url))
    return foreign, pods, f"http://127.0.0.1:{await served.serve(pods)}"

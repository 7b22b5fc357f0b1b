"""
Probe endpoints on a port of their own: without TLS, credentials and secrets.

The streaming ports require credentials, which a kubelet's probes do not have, and some programs
have no other port.  While a program stops it reports not ready, so that traffic moves elsewhere,
and continues to serve.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from twisted.internet.address import UNIXAddress

from twisted_exec.observe.health import Health
from twisted_exec.observe.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_text
from twisted_exec.streaming.http.routes import Routes
from twisted_exec.wire.upgrade import FORWARDED


def is_local(request: Request) -> bool:
    """
    Return whether a client on this host sent a request: by a UNIX socket or a loopback address, and
    not through a proxy, which may have forwarded the request of another host.
    """
    headers = request.requestHeaders
    if headers.hasHeader(b"via") or any(
        name in FORWARDED for name, _ in headers.getAllRawHeaders()
    ):
        return False
    peer = request.getClientAddress()
    if isinstance(peer, UNIXAddress):
        return True
    try:
        address = ipaddress.ip_address(getattr(peer, "host", ""))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def respond_ready(request: Request, health: Health) -> None:
    """Answer ``/readyz``; clients on this host get the reasons of failed probes."""
    ready, listing = await health.ready(with_reasons=is_local(request))
    respond_text(request, 200 if ready else 503, listing)


class ProbeRoutes(Dispatcher):
    """
    ``/healthz``, ``/livez`` and ``/readyz``.

    :param registry: metrics to serve at ``/metrics``; ``None`` if another port serves them.
    """

    def __init__(self, health: Health, registry: MetricsRegistry | None = None) -> None:
        super().__init__()
        self._health, self._registry = health, registry
        self._routes = Routes()
        for path in ("/healthz", "/livez"):
            self._routes.add(["GET"], path, self._alive)
        self._routes.add(["GET"], "/readyz", self._ready)
        if registry is not None:
            self._routes.add(["GET"], "/metrics", self._metrics)

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`."""
        await self._routes.dispatch(request)

    async def _alive(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _ready(self, request: Request, names: Mapping[str, str]) -> None:
        await respond_ready(request, self._health)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        assert self._registry is not None
        respond(request, 200, await self._registry.scrape(), CONTENT_TYPE)

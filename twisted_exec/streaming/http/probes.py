"""
Probe endpoints on a port of their own: without TLS, credentials and secrets.

The streaming ports require credentials, which a kubelet's probes do not have, and some programs
have no other port.  While a program stops it reports not ready, so that traffic moves elsewhere,
and continues to serve.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from twisted_exec.observe.health import Health
from twisted_exec.observe.metrics import CONTENT_TYPE, metrics_text
from twisted_exec.streaming.http.routes import Routes
from twisted_exec.streaming.http.site import Dispatcher, Request, respond, respond_text


class ProbeRoutes(Dispatcher):
    """
    ``/healthz``, ``/livez`` and ``/readyz``.

    :param registry: metrics to serve at ``/metrics``; ``None`` if another port serves them.
    """

    def __init__(self, health: Health, registry: CollectorRegistry | None = None) -> None:
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
        ready, listing = await self._health.ready()
        respond_text(request, 200 if ready else 503, listing)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        assert self._registry is not None
        respond(request, 200, metrics_text(self._registry), CONTENT_TYPE)

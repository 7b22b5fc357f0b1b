"""
Probes of a program, on a port of their own: without TLS, without credentials, without secrets.

A port of streams answers nobody whom it does not know, and whoever restarts programs knows
nobody; and some programs have no other port.  While a program stops it is not ready, so that others are
sent elsewhere, and still answers.
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

    :param registry: its figures are at ``/metrics``, of a program that has no other port.
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

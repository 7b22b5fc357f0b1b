"""
Probes of the program itself, on a port of their own: without TLS, without credentials, without secrets.

The port of streams answers nobody whom it does not know, and whoever restarts programs knows
nobody.  While the server stops it is not ready, so that others are sent elsewhere, and still answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted_exec.observe.health import Health
from twisted_exec.streaming.routes import Routes
from twisted_exec.streaming.site import Dispatcher, Request, respond_text


class HealthRoutes(Dispatcher):
    """``/healthz``, ``/livez`` and ``/readyz``."""

    def __init__(self, health: Health) -> None:
        super().__init__()
        self._health = health
        self._routes = Routes()
        for path in ("/healthz", "/livez"):
            self._routes.add(["GET"], path, self._alive)
        self._routes.add(["GET"], "/readyz", self._ready)

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`."""
        await self._routes.dispatch(request)

    async def _alive(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _ready(self, request: Request, names: Mapping[str, str]) -> None:
        ready, listing = await self._health.ready()
        respond_text(request, 200 if ready else 503, listing)

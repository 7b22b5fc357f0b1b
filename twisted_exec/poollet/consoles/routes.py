"""
What a poollet serves: consoles, their logs, probes and figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry

from twisted_exec.auth.interfaces import Attributes
from twisted_exec.observe.health import Health
from twisted_exec.observe.metrics import CONTENT_TYPE, metrics_text
from twisted_exec.poollet.consoles.exec_route import Gate
from twisted_exec.streaming.http.routes import Routes
from twisted_exec.streaming.http.site import Dispatcher, Request, respond, respond_text
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay


class PoolletRoutes(Dispatcher):
    """
    The resource of a poollet.

    Probes may be asked by anyone; figures by users who may ``get`` the path ``/metrics``.
    """

    def __init__(
        self,
        gate: Gate,
        proxy: Proxy,
        relay: Relay,
        health: Health,
        registry: CollectorRegistry,
    ) -> None:
        super().__init__()
        self._gate, self._proxy, self._relay = gate, proxy, relay
        self._health, self._registry = health, registry
        self._routes = Routes()
        dialect = gate.dialect
        machine = (
            f"/apis/{dialect.group}/namespaces/{{namespace}}/{dialect.workload.plural}/{{name}}"
        )
        self._routes.add(["GET", "POST", "DELETE"], f"{machine}/exec", self._console)
        self._routes.add(["GET"], f"{machine}/log", self._read)
        self._routes.add(["GET"], "/healthz", self._healthz)
        self._routes.add(["GET"], "/livez", self._healthz)
        self._routes.add(["GET"], "/readyz", self._readyz)
        self._routes.add(["GET"], "/metrics", self._metrics)

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`."""
        await self._routes.dispatch(request)

    async def _console(self, request: Request, names: Mapping[str, str]) -> None:
        self._name(request, names, "exec")
        await self._proxy.handle(request)

    async def _read(self, request: Request, names: Mapping[str, str]) -> None:
        self._name(request, names, "log")
        await self._relay.handle(request)

    def _name(self, request: Request, names: Mapping[str, str], subresource: str) -> None:
        request.subject = replace(
            request.subject,
            namespace=names["namespace"],
            machine=names["name"],
            subresource=subresource,
            pool=self._gate.pool,
        )

    async def _healthz(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _readyz(self, request: Request, names: Mapping[str, str]) -> None:
        ready, listing = await self._health.ready()
        respond_text(request, 200 if ready else 503, listing)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        asking = await self._gate.who(request)
        await self._gate.require(Attributes(asking.user, "get", path="/metrics"))
        respond(request, 200, metrics_text(self._registry), CONTENT_TYPE)

"""
The HTTP resource of a poollet: consoles, logs, screens, recordings, probes and metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from twisted_exec.api.kinds import CONSOLERECORDINGS, DELETEDCONSOLES
from twisted_exec.api.kinds.deleted_consoles import log_path
from twisted_exec.api.kinds.policies.consolerecordings import CONTENT, content_path
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import Attributes
from twisted_exec.observe.health import Health
from twisted_exec.observe.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.poollet.consoles.exec_route import PoolAccess
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.probes import respond_ready
from twisted_exec.streaming.http.responses import respond, respond_text
from twisted_exec.streaming.http.routes import Match
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay


class PoolletRoutes(GatedDispatcher):
    """
    The resource of a poollet.

    Probes are open to all clients.  Metrics need permission to ``get`` the path ``/metrics``.
    """

    def __init__(
        self,
        gate: Gate,
        access: PoolAccess,
        proxy: Proxy,
        logs: Relay,
        screens: Relay,
        deleted_logs: Relay,
        recordings: Relay,
        health: Health,
        registry: MetricsRegistry,
    ) -> None:
        routes = GatedRoutes()
        super().__init__(gate, routes, proxy.sessions)
        self._access, self._health, self._registry = access, health, registry
        dialect = access.dialect
        machine = (
            f"/apis/{dialect.group}/namespaces/{{namespace}}/{dialect.workload.plural}/{{name}}"
        )
        for subresource, methods, handler in (
            ("exec", ("GET", "POST"), proxy.handle),
            ("log", ("GET",), logs.handle),
            ("screen", ("GET",), screens.handle),
        ):
            facts = partial(self._facts, subresource)
            path = f"{machine}/{subresource}"
            routes.add_session(methods, path, handler, target=_values, session=facts)
        routes.add_session(
            ["GET"],
            log_path("{namespace}", "{name}"),
            deleted_logs.handle,
            target=_values,
            session=self._deleted_facts,
        )
        routes.add_session(
            ["GET"],
            content_path("{namespace}", "{name}"),
            recordings.handle,
            target=_values,
            session=self._recording_facts,
        )
        routes.add(["DELETE"], f"{machine}/exec", proxy.end, is_open=True)
        routes.add(["PATCH"], f"{machine}/exec", proxy.limit, is_open=True)
        routes.add(["GET"], "/healthz", self._healthz, is_open=True)
        routes.add(["GET"], "/livez", self._healthz, is_open=True)
        routes.add(["GET"], "/readyz", self._readyz, is_open=True)
        routes.add(["GET"], "/metrics", self._metrics)

    def _facts(self, subresource: str, values: Mapping[str, str]) -> dict[str, str]:
        return {
            "namespace": values["namespace"],
            "machine": values["name"],
            "subresource": subresource,
            "resource": self._access.dialect.workload.qualified,
            "noun": self._access.dialect.noun,
            "pool": self._access.pool,
        }

    def _deleted_facts(self, values: Mapping[str, str]) -> dict[str, str]:
        return {
            **self._facts("log", values),
            "resource": DELETEDCONSOLES.resource.qualified,
            "noun": DELETEDCONSOLES.singular,
        }

    def _recording_facts(self, values: Mapping[str, str]) -> dict[str, str]:
        return {
            **self._facts(CONTENT, values),
            "resource": CONSOLERECORDINGS.resource.qualified,
            "noun": CONSOLERECORDINGS.singular,
        }

    async def _healthz(self, context: RequestContext) -> None:
        respond_text(context.request, 200, "ok")

    async def _readyz(self, context: RequestContext) -> None:
        await respond_ready(context.request, self._health)

    async def _metrics(self, context: RequestContext) -> None:
        await self._gate.authorize(Attributes(context.user, "get", path="/metrics"))
        respond(context.request, 200, await self._registry.scrape(), CONTENT_TYPE)


def _values(match: Match[Any]) -> Mapping[str, str]:
    return match.values

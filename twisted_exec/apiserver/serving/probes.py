"""
Health endpoints: liveness and readiness of the server.

They tell anyone whether the checks passed, and list the checks for authenticated users only.  Their
form is that of kube-apiserver: ``k8s.io/apiserver/pkg/server/healthz``.
"""

from __future__ import annotations

from functools import partial

from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.health import Health, ProbeResult, Results, listing
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_text
from twisted_exec.streaming.http.routes import not_found
from twisted_exec.streaming.http.site import Request

PING = "ping"
"""The check that passes if the server answers at all."""
SHUTDOWN = "shutdown"
"""The check that fails once the server stops."""

_CHECK_SECONDS = 1.0
_READY = "readyz"
_ENDPOINTS = (_READY, "healthz", "livez")


class Probes:
    """Serves the server's health endpoints."""

    def __init__(self, gate: Gate, health: Health) -> None:
        self._gate, self.health = gate, health
        self._results: Results = []
        self._checked_until = 0.0
        self._stopping: str | None = None

    def shutting_down(self) -> None:
        """Report not ready from now on."""
        self._stopping = "the server is shutting down"

    @property
    def paths(self) -> list[str]:
        """Return every path that is served."""
        paths = []
        for endpoint in _ENDPOINTS:
            names = [PING, *(self._ready_names if endpoint == _READY else ())]
            paths += [f"/{endpoint}", *(f"/{endpoint}/{name}" for name in names)]
        return sorted(paths)

    @property
    def _ready_names(self) -> list[str]:
        return [*self.health.names, SHUTDOWN]

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the routes; single checks need authorization, and lists a known user."""
        for endpoint in _ENDPOINTS:
            routes.add(["GET"], f"/{endpoint}", partial(self._all, endpoint), is_open=True)
            routes.add(["GET"], f"/{endpoint}/{{name}}", partial(self._one, endpoint))

    async def _one(self, endpoint: str, context: RequestContext) -> None:
        request, name = context.request, context.values["name"]
        await self._gate.authorize(Attributes(context.user, "get", path=f"/{endpoint}/{name}"))
        results = {each.name: each for each in await self._checked(request, endpoint)}
        if name not in results:
            raise not_found()
        failed = results[name].error is not None
        respond_text(request, 503 if failed else 200, f"{name} check failed" if failed else "ok")

    async def _all(self, endpoint: str, context: RequestContext) -> None:
        request = context.request
        excluded = [name.decode("utf-8", "replace") for name in request.args.get(b"exclude", [])]
        results = await self._checked(request, endpoint)
        passed = all(each.error is None for each in results if each.name not in excluded)
        text = "ok" if passed else f"{endpoint} check failed"
        # twisted.web drops parameters without an equals sign from ``args``.
        query = request.uri.partition(b"?")[2].split(b"&")
        verbose = any(item.partition(b"=")[0] == b"verbose" for item in query)
        if verbose and await self._known(context):
            text = listing(results, endpoint, excluded)
        respond_text(request, 200 if passed else 503, text)

    async def _checked(self, request: Request, endpoint: str) -> Results:
        """Return results, which are kept for a moment: anyone may ask, and each check costs a write."""
        if endpoint != _READY:
            return [ProbeResult(PING)]
        now = request.channel.site.reactor.seconds()
        if now >= self._checked_until and self._stopping is None:
            self._results = await self.health.check()
            self._checked_until = now + _CHECK_SECONDS
        return [ProbeResult(PING), *self._results, ProbeResult(SHUTDOWN, self._stopping)]

    async def _known(self, context: RequestContext) -> bool:
        try:
            await self._gate.identify(context)
        except Unauthorized:
            return False
        return True

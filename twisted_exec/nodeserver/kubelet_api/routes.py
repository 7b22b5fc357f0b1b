"""
The paths of a kubelet, and the order in which a request is checked.

Authentication comes first, for every path and method, known or unknown, upgrade or not: a client
without credentials learns nothing else.  Then the route is looked up.  The route itself does the
rest (Pod, permission, existence), because only it knows the object of the request.

A root's API server turns answers into messages for its user: it expects a ``Status`` in the refusal
of a stream, and plain text elsewhere.  So streams are refused in JSON, and all else in plain text,
as by a kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedEndpoint, GatedRoutes, Handler
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.nodeserver.kubelet_api.query import KubeletTarget
from twisted_exec.observe.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.responses import respond, respond_status, respond_text
from twisted_exec.streaming.http.routes import Match

RESOURCE = "pods"
NOUN = "pod"


@dataclass(frozen=True)
class Route:
    """
    One path of a kubelet.

    :param methods: upper case; others get 405.
    :param pattern: as in :meth:`RouteTable.add_endpoint`.  ``{namespace}`` and ``{pod}`` become the
        subject's.
    :param handler: answers a request that is authenticated but not authorized.
    :param subresource: of the Pod, for the subject; empty for a request that concerns no Pod.
    :param plain: errors are plain text, not a ``Status``.
    """

    methods: Sequence[str]
    pattern: str
    handler: Handler
    subresource: str = ""
    plain: bool = True


def of_pod(
    word: str,
    handler: Handler,
    methods: Sequence[str],
    subresource: str,
    *,
    container: bool = True,
    plain: bool = False,
) -> Iterable[Route]:
    """
    Return the two routes of a path about a Pod: ``/WORD/NAMESPACE/POD[/UID][/CONTAINER]``.

    :param container: the path ends with a container (all but ``portForward`` do).
    """
    last = "/{container}" if container else ""
    for uid in ("", "/{uid}"):
        pattern = f"/{word}/{{namespace}}/{{pod}}{uid}{last}"
        yield Route(methods, pattern, handler, subresource, plain)


@dataclass(frozen=True)
class _PodEndpoint(GatedEndpoint):
    """:param plain: errors are plain text."""

    plain: bool = True


class NodeRoutes(GatedDispatcher):
    """
    The resource of a node server.

    :param routes: of the kubelet API; those of the server itself are added here.
    """

    names_unknown = False

    def __init__(self, hop: Hop, registry: MetricsRegistry, routes: Iterable[Route]) -> None:
        table = GatedRoutes()
        super().__init__(hop.access.gate, table, hop.sessions)
        self._hop, self._registry = hop, registry
        for route in (
            *routes,
            Route(["GET"], "/healthz", self._healthz),
            Route(["GET"], "/metrics", self._metrics),
        ):
            self._add(table, route)

    def _add(self, table: GatedRoutes, route: Route) -> None:
        if not route.subresource:
            table.add(route.methods, route.pattern, route.handler)
            return
        facts = partial(_facts, route.subresource)
        endpoint = _PodEndpoint(route.handler, _target, facts, plain=route.plain)
        table.add_endpoint(route.methods, route.pattern, endpoint)

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`; errors are plain text."""
        try:
            await super().dispatch(request)
        except APIError as error:
            _refuse(request, error)

    async def answer(self, match: Match[GatedEndpoint], request: Request) -> None:
        """As :meth:`GatedDispatcher.answer`; errors of streams are a ``Status``."""
        try:
            await super().answer(match, request)
        except APIError as error:
            endpoint = match.endpoint
            is_plain = not isinstance(endpoint, _PodEndpoint) or endpoint.plain
            if is_plain or isinstance(error, Unauthorized):
                raise
            respond_status(request, error)

    def path_of(self, request: Request) -> bytes:
        """Return the path without a trailing slash: a kubelet's own path is ``/runningpods/``."""
        path = request.path
        return path[:-1] if len(path) > 1 and path.endswith(b"/") else path

    async def _healthz(self, context: RequestContext) -> None:
        await self._hop.admit(context)
        respond_text(context.request, 200, "ok")

    async def _metrics(self, context: RequestContext) -> None:
        await self._hop.admit(context)
        respond(context.request, 200, await self._registry.scrape(), CONTENT_TYPE)


def _target(match: Match[Any]) -> KubeletTarget:
    return KubeletTarget.of(match.segments)


def _facts(subresource: str, target: KubeletTarget) -> dict[str, str]:
    return {
        "namespace": target.namespace,
        "machine": target.pod,
        "resource": RESOURCE,
        "noun": NOUN,
        "subresource": subresource,
    }


def _refuse(request: Request, error: APIError) -> None:
    """
    Refuse in plain text.

    If the answer has already begun, only closing the connection shows the error.
    """
    if request.gone or request.finished:
        return
    if request.startedWriting:
        request.channel.transport.abortConnection()
        return
    if error.retry_after_seconds is not None:
        request.setHeader(b"Retry-After", b"%d" % error.retry_after_seconds)
    respond_text(request, error.code, error.message)

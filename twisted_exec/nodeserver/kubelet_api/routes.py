"""
The paths of a kubelet, and in which order a request is looked at.

Who asks comes first, for every path and every method, known or not, upgrade or not: whoever shows no
credentials learns nothing else.  Then comes the route; all else (which Pod, may they, is it there)
is the route's own, for it alone knows what is asked about.

A root's API server makes a message for its user of what it gets: of the body of a stream's refusal
it reads a ``Status``, of anything else's it takes the text.  So streams are refused in JSON,
and whatever is read in plain text, as by a kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedEndpoint, GatedRoutes, Handler
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.nodeserver.kubelet_api.query import Wanted
from twisted_exec.observe.metrics import CONTENT_TYPE, metrics_text
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import Match
from twisted_exec.streaming.http.site import (
    Request,
    respond,
    respond_status,
    respond_text,
)

RESOURCE = "pods"
NOUN = "pod"


@dataclass(frozen=True)
class Route:
    """
    One path of a kubelet.

    :param methods: upper case; the others get 405.
    :param pattern: as in :meth:`RouteTable.add_endpoint`.  ``{namespace}`` and ``{pod}`` become the
        subject's.
    :param handler: answers a request whose user is known, but not what they may.
    :param subresource: of the Pod, for the subject; empty for a request that is about no Pod.
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
    The two forms of a path about a Pod: ``/WORD/NAMESPACE/POD[/UID][/CONTAINER]``.

    :param container: the path ends with one (all but ``portForward`` do).
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

    :param routes: besides the paths that are about the server itself, which are here.
    """

    names_unknown = False

    def __init__(self, hop: Hop, registry: CollectorRegistry, routes: Iterable[Route]) -> None:
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
        """Without a last slash: ``/runningpods/`` is what a kubelet calls one of its paths."""
        path = request.path
        return path[:-1] if len(path) > 1 and path.endswith(b"/") else path

    async def _healthz(self, context: RequestContext) -> None:
        await self._hop.admit(context)
        respond_text(context.request, 200, "ok")

    async def _metrics(self, context: RequestContext) -> None:
        await self._hop.admit(context)
        respond(context.request, 200, metrics_text(self._registry), CONTENT_TYPE)


def _target(match: Match[Any]) -> Wanted:
    return Wanted.of(match.segments)


def _facts(subresource: str, target: Wanted) -> dict[str, str]:
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

    When the answer has already begun, only closing tells the client.
    """
    if request.gone or request.finished:
        return
    if request.startedWriting:
        request.channel.transport.abortConnection()
        return
    if error.retry_after_seconds is not None:
        request.setHeader(b"Retry-After", b"%d" % error.retry_after_seconds)
    respond_text(request, error.code, error.message)

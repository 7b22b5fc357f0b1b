"""
Reads of a kubelet's own paths, by ``nodes/NAME/proxy``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import NODES
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.node_pods.kubelets import Kubelets
from twisted_exec.apiserver.node_pods.streams import session_facts, to
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.text.relay import Relay

PROXY = "proxy"
PROXY_PATHS = (
    "healthz",
    "healthz/{check}",
    "metrics",
    "metrics/{part}",
    "stats/summary",
    "pods",
    "runningpods",
    "configz",
)
"""Paths of a kubelet that are proxied."""


@implementer(IStreamAdmission)
class NodeProxyAdmission:
    """
    Admits users to ``.../nodes/NAME/proxy/PATH``.

    Only the paths in :data:`PROXY_PATHS` are proxied, and only reads: otherwise the right to
    ``get`` would include running commands.
    """

    def __init__(
        self, gate: Gate, storage: IStorage, kubelets: Kubelets, reactor: Any, limits: RequestLimits
    ) -> None:
        self._gate, self._storage, self._kubelets = gate, storage, kubelets
        self._reactor, self._limits = reactor, limits

    def admit(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._admit(context))

    async def _admit(self, context: RequestContext) -> Location:
        target, request = context.target, context.request
        context.learn(pool=target.name)
        with self._limits.short(context.user):
            permission = attributes_of(context.user, "get", target)
            await self._gate.authorize_session(context, permission)
            if requested_protocol(request):
                raise BadRequest("a node's proxy opens no streams: ask for those of a pod")
            kubelet = await self._kubelets.of(target.name, self._storage, self._reactor)
        _, mark, query = request.uri.partition(b"?")
        nodes = list(context.segments).index(NODES.resource.plural)
        below = context.segments[nodes + 3 :]
        path_below = "".join(f"/{quote(segment, safe='')}" for segment in below).encode("ascii")
        return to(kubelet, path_below + mark + query)


def add_node_proxy(routes: GatedRoutes, relay: Relay) -> None:
    """Add the routes."""

    def target(match: RouteMatch[Any]) -> RequestTarget:
        return RequestTarget(NODES, "", match.values["name"], PROXY)

    for path in PROXY_PATHS:
        pattern = f"{root_of(NODES)}/nodes/{{name}}/{PROXY}/{path}"
        routes.add_session(["GET"], pattern, relay.handle, target=target, session=session_facts)

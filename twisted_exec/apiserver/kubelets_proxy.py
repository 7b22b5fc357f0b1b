"""
``nodes/NAME/proxy/PATH``: what a kubelet tells of itself, through this server.

That is whether it is well, its figures, and which Pods it knows; ``kubectl get --raw`` and those who
look after Nodes ask so.  In Kubernetes a kubelet's every path can be had in this way, with it commands by
a right to ``get`` (k8s#136550).  Here only these are passed, to be read: whoever wants a stream asks
for that of a Pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.kinds import NODES
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.filters import APIRequest, Gate, Limits
from twisted_exec.apiserver.kubelets import Kubelets
from twisted_exec.apiserver.node_pods_streams import to
from twisted_exec.apiserver.rest import root_of
from twisted_exec.apiserver.verbs import Target
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.relay import Relay
from twisted_exec.streaming.routes import Routes, split_path
from twisted_exec.streaming.site import Request
from twisted_exec.streaming.upgrade_server import is_upgrade

PROXY = "proxy"
PATHS = (
    "healthz",
    "healthz/{check}",
    "metrics",
    "metrics/{part}",
    "stats/summary",
    "pods",
    "runningpods",
    "configz",
)
"""Of a kubelet, that are passed."""


@implementer(IStreamLocator)
class NodeProxyLocator:
    """Finds the kubelet behind ``.../nodes/NAME/proxy/PATH``."""

    def __init__(
        self, gate: Gate, storage: IStorage, kubelets: Kubelets, reactor: Any, limits: Limits
    ) -> None:
        self._gate, self._storage, self._kubelets = gate, storage, kubelets
        self._reactor, self._limits = reactor, limits

    def locate(self, request: IRequest) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`."""
        assert isinstance(request, APIRequest)
        return Deferred.fromCoroutine(self._locate(request))

    async def _locate(self, request: APIRequest) -> Location:
        segments = split_path(request.path)
        at = segments.index(NODES.resource.plural)
        name, path = segments[at + 1], segments[at + 3 :]
        request.subject = replace(
            request.subject, machine=name, resource="nodes", noun="node", subresource=PROXY
        )
        user = request.requester = await self._gate.authenticate(request)
        request.subject = replace(request.subject, user=user.name, pool=name)
        with self._limits.short(user):
            await self._gate.authorize_target(user, "get", Target(NODES, "", name, PROXY))
            if is_upgrade(request):
                raise BadRequest("a node's proxy opens no streams: ask for those of a pod")
            kubelet = await self._kubelets.of(name, self._storage, self._reactor)
        _, mark, query = request.uri.partition(b"?")
        asked = "".join(f"/{quote(each, safe='')}" for each in path).encode("ascii")
        return to(kubelet, request, asked + mark + query)


def add_node_proxy(routes: Routes, relay: Relay) -> None:
    """
    The routes.

    :param relay: with a :class:`NodeProxyLocator`.
    """

    async def handle(request: Request, values: Mapping[str, str]) -> None:
        await relay.handle(request)

    for path in PATHS:
        routes.add(["GET"], f"{root_of(NODES)}/nodes/{{name}}/{PROXY}/{path}", handle)

"""
Requests to a kubelet: paths, checks, and the Pod in the leaf that they reach.

Authentication comes first: a client without credentials learns nothing else.

A client's permission for the Node is checked before any answer tells whether the Pod exists
(:func:`find`).

Source: ``pkg/kubelet/server/server.go`` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IRequest

from twisted_exec.api.declared_reasons import REASON_HEADER
from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
    one_line,
)
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedEndpoint, GatedRoutes, Handler
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.upstream import CONNECT_SECONDS, ServerUpstream
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods, LeafPod
from twisted_exec.nodeserver.kubelet_api.gate import NodeAccess, subresources_of, verb_of
from twisted_exec.nodeserver.recordings.service import PodRecordings
from twisted_exec.program.metrics import CONTENT_TYPE, MetricsRegistry
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond, respond_status, respond_text
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.location import Location
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.wire.channel import Channel

RESOURCE = "pods"
NOUN = "pod"

HOP = "nodeserver"
"""Name of this hop in audit records and logs."""

_COMMANDS = ("exec", "attach", "run")
"""Subresources that need a reason."""

_ABOUT_US = re.compile(r'\bUser "[^"]*" cannot \w+ ')
"""
Matches the refusal of an authorizer, but not of an admission plugin (``ForbiddenMessage`` of
``k8s.io/apiserver/pkg/endpoints/handlers/responsewriters``).
"""

_RULES = (
    "it needs get on pods and pods/log, and create and get on pods/exec, pods/attach and"
    " pods/portforward there"
)

_log = Logger()


@dataclass(frozen=True)
class Route:
    """
    One path of a kubelet.

    :param handler: answers a request that is authenticated but not authorized.
    :param subresource: of the Pod; empty for a request that concerns no Pod.
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
    """Return the two routes of a path about a Pod: ``/WORD/NAMESPACE/POD[/UID][/CONTAINER]``."""
    last = "/{container}" if container else ""
    for uid in ("", "/{uid}"):
        pattern = f"/{word}/{{namespace}}/{{pod}}{uid}{last}"
        yield Route(methods, pattern, handler, subresource, plain)


@dataclass(frozen=True)
class _PodEndpoint(GatedEndpoint):
    plain: bool = True


class NodeRoutes(GatedDispatcher):
    """The resource of a node server."""

    names_object_to_unknown = False

    def __init__(
        self,
        collaborators: KubeletCollaborators,
        registry: MetricsRegistry,
        routes: Iterable[Route],
    ) -> None:
        table = GatedRoutes()
        super().__init__(collaborators.access.gate, table, collaborators.sessions)
        self._collaborators, self._registry = collaborators, registry
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
        try:
            await super().dispatch(request)
        except APIError as error:
            _refuse(request, error)

    async def answer(self, match: RouteMatch[GatedEndpoint], request: Request) -> None:
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
        await self._collaborators.admit(context)
        respond_text(context.request, 200, "ok")

    async def _metrics(self, context: RequestContext) -> None:
        await self._collaborators.admit(context)
        respond(context.request, 200, await self._registry.scrape(), CONTENT_TYPE)


def _target(match: RouteMatch[Any]) -> KubeletTarget:
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
    if request.gone or request.finished:
        return
    if request.startedWriting:
        request.channel.transport.abortConnection()
        return
    if error.retry_after_seconds is not None:
        request.setHeader(b"Retry-After", b"%d" % error.retry_after_seconds)
    respond_text(request, error.code, error.message)


@dataclass(frozen=True)
class KubeletCollaborators:
    """The collaborators of routes and admissions."""

    access: NodeAccess
    root_pods: IRootPods
    leaves: ILeaves
    sessions: Sessions
    clock: IReactorTime
    connect_seconds: float = CONNECT_SECONDS
    requires_reason: bool = False
    recordings: PodRecordings | None = None

    async def admit(self, context: RequestContext, node: str | None = None) -> str:
        """
        Authorize a request that concerns no single Pod.

        :param node: the requested Node; by default that of ``Host``.
        :return: the Node, or empty for all of ours.
        :raises APIError: the user has no permission, or it cannot be checked.
        """
        request = context.request
        if node is None:
            node = asked_node(request, self.leaves.nodes())
        verb = verb_of(request.method, "")
        await self.access.authorize(context.user, node, subresources_of(request.path), verb)
        return node

    def check_reason(self, context: RequestContext) -> None:
        """
        Check that a command has a declared reason, if reasons are required.

        :raises Forbidden: it has none.
        """
        subject = context.subject
        if self.requires_reason and subject.subresource in _COMMANDS and not subject.reason:
            name = subject.machine
            raise Forbidden(
                f'pod "{name}": this node server requires a reason: for the console of a machine use '
                f"kubectl exec -it {name} -- console --reason TEXT; for other Pods the client must send "
                f"the header {REASON_HEADER.decode()}, which kubectl cannot"
            )


def asked_node(request: IRequest, nodes: Collection[str]) -> str:
    """
    Return the name of the Node of a request without a Pod; empty for all Nodes.

    If each Node has a host name, such as ``NODE.nodes.example.com``, then ``Host`` selects the
    Node.
    """
    if len(nodes) == 1:
        return next(iter(nodes))
    host = request.getRequestHostname().decode("ascii", "replace").lower()
    fitting = [node for node in nodes if host == node or host.startswith(f"{node}.")]
    return max(fitting, key=len, default="")


async def find(
    collaborators: KubeletCollaborators, context: RequestContext
) -> tuple[KubeletTarget, LeafPod]:
    """
    Find the Pod of a request in its leaf, and authorize the user for its Node.

    :raises Forbidden: the user has no permission for that Node.
    :raises NotFound: the root or the leaf has no such Pod or container, or its Node is not ours.
    :raises APIError: the root or the leaf refuses, or does not answer.
    """
    target: KubeletTarget = context.target
    root = await _root_pod(collaborators, target)
    node = str(root["spec"].get("nodeName", "")) if root else ""
    uid = str(root["metadata"]["uid"]) if root else ""
    context.learn(pool=node, uid=uid)
    was_seen = collaborators.root_pods.by_uid(uid) is not None
    await collaborators.access.authorize_session(context, node)
    if root is None or (target.uid and target.uid != uid):
        raise NotFound("pods", target.pod)
    leaf = collaborators.leaves.of_node(node)
    _check_container(root, target)
    try:
        leaf_pod = await leaf.pod(root)
    except APIError as error:
        raise explained(error, leaf) from None
    is_gone = was_seen and collaborators.root_pods.by_uid(uid) is None
    if is_gone or collaborators.leaves.of_node(node) is not leaf:
        # The Pod was deleted meanwhile, when there was no session yet to end.
        raise NotFound("pods", target.pod)
    return target, leaf_pod


async def to_leaf(
    collaborators: KubeletCollaborators,
    pod: LeafPod,
    subresource: str,
    query: bytes,
    streams: Collection[Channel] | None = None,
) -> Location:
    """Return the location of a subresource of a leaf's Pod, with our current credentials."""
    leaf, at = pod.leaf, path(pod.namespace, pod.name, subresource)
    upstream = LeafUpstream(leaf, collaborators.clock, at, query=query, streams=streams)
    try:
        location = await upstream.locate()
    except KubeConfigError as error:
        _log.warn("no credentials for leaf {leaf}: {why}", leaf=leaf.name, why=str(error))
        raise ServiceUnavailable(
            f'the credentials for leaf "{leaf.name}" cannot be used; the node server\'s log says why'
        ) from None
    # An upstream does not know which requests for streams its server understands.
    return replace(location, whole=True, ends_here=True)


class LeafUpstream(ServerUpstream):
    """The API server of a leaf as the next hop."""

    def __init__(self, leaf: ILeaf, reactor: Any, path: str, **request: Any) -> None:
        super().__init__(leaf.config, f'leaf "{leaf.name}"', reactor, path, **request)
        self._leaf = leaf

    def error_of(self, refused: UpgradeRefused) -> APIError:
        return explained(refused.as_api_error(), self._leaf)


def explained(error: APIError, leaf: ILeaf) -> APIError:
    """
    Translate a leaf's refusal for the client, if it is about our credentials.

    A 401 would tell the root's API server that its own credentials are bad.
    """
    if error.code == Unauthorized.code:
        _log.warn(
            "leaf {leaf} does not accept the node server's credentials{whose}",
            leaf=leaf.name,
            whose=_whose(leaf),
        )
        return BadGateway(
            f'leaf "{leaf.name}" does not accept this node server\'s credentials: renew those that it'
            " is registered with; the node server's log says where they are from"
        )
    if error.code == Forbidden.code and _ABOUT_US.search(error.message):
        reason = one_line(error.message)
        return BadGateway(
            f'leaf "{leaf.name}" does not let this node server in: {reason}; {_RULES}'
        )
    return error


def _whose(leaf: ILeaf) -> str:
    """
    Return the origin of the credentials, for the log only: paths on this host do not concern the
    root's users.
    """
    try:
        return f" ({leaf.config().source})"
    except APIError:
        return ""


async def _root_pod(collaborators: KubeletCollaborators, target: KubeletTarget) -> Object | None:
    for uid in dict.fromkeys((target.uid, "")):
        try:
            return await collaborators.root_pods.get(target.namespace, target.pod, uid)
        except NotFound:
            continue
    return None


def _check_container(root: Object, target: KubeletTarget) -> None:
    """
    :raises NotFound: the Pod has no such container.
    """
    if not target.container:
        return
    containers = [
        container["name"] for kind in CONTAINER_LISTS for container in root["spec"].get(kind) or ()
    ]
    if target.container not in containers:
        raise NotFound(
            "pods", target.pod, message=f'container not found ("{one_line(target.container)}")'
        )


@dataclass(frozen=True)
class KubeletTarget:
    """
    The target of a request.

    :param what: first segment of the path, such as ``exec`` or ``portForward``.
    :param uid: of the Pod in the root; empty if the path has none.
    """

    what: str
    namespace: str
    pod: str
    container: str = ""
    uid: str = ""

    @classmethod
    def of(cls, segments: Sequence[str]) -> KubeletTarget:
        """Parse a path that matched one of the kubelet's routes."""
        what, namespace, pod, *rest = segments
        if rest and not rest[-1]:
            del rest[-1]  # or it would name an empty container, which means any to the leaf
        container = rest.pop() if what != "portForward" else ""
        return cls(what, namespace, pod, container, rest[0] if rest else "")


def path(namespace: str, name: str, subresource: str) -> str:
    """Return the path of a Pod's subresource on an API server."""
    where = f"{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"/api/v1/namespaces/{where}/{subresource}"

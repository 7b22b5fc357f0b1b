"""
Streams and logs of Pods of Nodes, from their kubelets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import NODE_PODS, Object
from twisted_exec.api.kinds.pods.node_pods import containers_of, node_of
from twisted_exec.api.logs import parse_of_pod
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.node_pods.kubelets import KubeletClient, Kubelets
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.requests import query_of
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.dispatcher import GatedRoutes, Handler
from twisted_exec.auth.gate import Gate
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_WORDS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
"""Stream options: the API server's name and the kubelet's, which accepts only ``1`` for true."""


@implementer(IStreamAdmission)
class NodePodAdmission:
    """Admits users to ``.../pods/NAME/SUBRESOURCE``."""

    def __init__(
        self,
        gate: Gate,
        storage: IStorage,
        kubelets: Kubelets,
        reactor: Any,
        limits: RequestLimits,
    ) -> None:
        self._gate, self._storage = gate, storage
        self._kubelets, self._reactor = kubelets, reactor
        self._limits = limits

    def admit(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._admit(context))

    async def _admit(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            return await self._locate_target(context, context.target)

    async def _locate_target(self, context: RequestContext, target: RequestTarget) -> Location:
        verb, path_of = _SUBRESOURCES[target.subresource]
        await self._gate.authorize_session(context, attributes_of(context.user, verb, target))
        if query_of(context).texts("dryRun"):
            raise BadRequest(f"dryRun is not supported for {target.subresource}")
        pod = await self._storage.get(NODE_PODS.resource, target.namespace, target.name)
        path = path_of(pod, context)
        if not (node := node_of(pod)):
            raise BadRequest(f"pod {target.name} does not have a host assigned")
        context.learn(uid=pod["metadata"]["uid"], pool=node)
        kubelet = await self._kubelets.of(node, self._storage, self._reactor)
        return to(kubelet, path)


def _stream_path(pod: Object, context: RequestContext) -> bytes:
    request, target, query = context.request, context.target, query_of(context)
    if b";" in request.uri:
        # Some parsers split at semicolons; a command cut short there would be another command.
        raise BadRequest("invalid semicolon separator in query")
    container = container_of(pod, query.text("container"))
    suffix = kubelet_query(request.args.get(b"command", []), query)
    return _at(target.subresource, target, container) + suffix


def _port_path(pod: Object, context: RequestContext) -> bytes:
    ports = [
        text for entry in query_of(context).texts("ports") for text in entry.split(",") if text
    ]
    for port in ports:
        if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
            raise BadRequest(f"strconv.ParseUint: parsing {port[:16]!r}: invalid port")
    suffix = "?port=" + quote(",".join(ports)) if ports else ""
    return _at("portForward", context.target) + suffix.encode("ascii")


def _log_path(pod: Object, context: RequestContext) -> bytes:
    target = context.target
    options = parse_of_pod(context.request.args, target.name)
    container = container_of(pod, query_of(context).text("container"))
    suffix = options.query()
    return _at("containerLogs", target, container) + (b"?" + suffix if suffix else b"")


_SUBRESOURCES: dict[str, tuple[str, Callable[[Object, RequestContext], bytes]]] = {
    "attach": ("create", _stream_path),
    "exec": ("create", _stream_path),
    "portforward": ("create", _port_path),
    "log": ("get", _log_path),
}
"""
By name: the verb that users need, and a function that returns path and query of the kubelet's request.

The function raises :class:`~twisted_exec.api.status.APIError` if the request is malformed, or does not suit
the Pod.
"""


def to(kubelet: KubeletClient, path: bytes) -> Location:
    """The next hop, for a request that is complete with its path and query."""
    return Location(
        endpoints=[(kubelet.label, kubelet.endpoint)],
        path=path,
        host=kubelet.host,
        whole=True,
        ends_here=True,
    )


def container_of(pod: Object, requested: str) -> str:
    """
    Return the container's name.

    :param requested: empty selects the only container, or the Pod's default.
    :raises BadRequest: no such container, or several without a default.
    """
    name = pod["metadata"]["name"]
    names = [container["name"] for _, container in containers_of(pod)]
    if requested:
        if requested not in names:
            raise BadRequest(f"container {requested[:253]} is not valid for pod {name}")
        return requested
    spec = pod["spec"]
    first = [container["name"] for container in spec["containers"]]
    if len(first) == 1:
        return str(first[0])
    default = pod["metadata"].get("annotations", {}).get(DEFAULT_CONTAINER, "")
    if default in names:
        return str(default)
    message = (
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(first)}]"
    )
    if inits := [container["name"] for container in spec.get("initContainers", [])]:
        message += f" or one of the init containers: [{' '.join(inits)}]"
    raise BadRequest(message)


def _at(what: str, target: RequestTarget, container: str = "") -> bytes:
    parts = [what, target.namespace, target.name, *([container] if container else [])]
    return "".join(f"/{quote(part, safe='')}" for part in parts).encode("ascii")


def kubelet_query(command: Sequence[bytes], query: Query) -> bytes:
    """Return the query of a kubelet's request for a stream."""
    parameters = [("command", part) for part in command]
    parameters += [(theirs, b"1") for ours, theirs in _WORDS if query.flag(ours)]
    parameters.sort(key=lambda pair: pair[0])
    pairs = [f"{name}={quote_plus(value)}" for name, value in parameters]
    return ("?" + "&".join(pairs) if pairs else "").encode("ascii")


def add_node_pods(
    routes: GatedRoutes,
    streams: Proxy,
    logs: Relay,
) -> None:
    """``pods/exec``, ``attach``, ``portforward`` and ``log``."""

    def add(methods: list[str], subresource: str, handler: Handler) -> None:
        def target(match: RouteMatch[Any]) -> RequestTarget:
            values = match.values
            return RequestTarget(NODE_PODS, values["namespace"], values["name"], subresource)

        base = f"{root_of(NODE_PODS)}/namespaces/{{namespace}}/{NODE_PODS.resource.plural}"
        path = f"{base}/{{name}}/{subresource}"
        routes.add_session(methods, path, handler, target=target, session=session_facts)

    for subresource in ("attach", "exec", "portforward"):
        add(["GET", "POST"], subresource, streams.handle)
    add(["GET"], "log", logs.handle)


def session_facts(target: RequestTarget) -> dict[str, str]:
    """Return the facts of a session that its log lines and metrics have."""
    return {
        "namespace": target.namespace,
        "machine": target.name,
        "resource": target.kind.resource.qualified,
        "noun": target.kind.resource.kind.lower(),
        "subresource": target.subresource,
    }

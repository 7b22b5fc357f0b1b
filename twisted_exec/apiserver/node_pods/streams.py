"""
Streams and logs of stored Pods: proxied to the kubelet of the Pod's Node.

As in kube-apiserver, the kubelet learns the command and the container but not the user: this server
authorizes the user, and the kubelet authorizes this server.  Opening a stream is a ``create``
whatever the HTTP method.  The stream itself is not decoded; the container is resolved beforehand.

Source: ``pkg/registry/core/pod/strategy.go`` (``streamLocation``, ``LogLocation``,
``validateContainer``) of Kubernetes, ``k8s.io/api/core/v1`` for the query parameters of kubelets.

``nodes/NAME/proxy/PATH``: read-only endpoints of a kubelet.

These are health, metrics and the list of Pods, as used by ``kubectl get --raw`` and by monitoring.
In Kubernetes this proxies every path of a kubelet, so that the right to ``get`` it includes running
commands (k8s#136550).  This server proxies only the paths below, and only reads; streams go through
the Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.api.kinds.pods.node_pods import containers_of, node_of
from twisted_exec.api.logs import parse_of_pod
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.node_pods.kubelets import Kubelet, Kubelets
from twisted_exec.apiserver.serving.filters import Limits, attributes_of, query_of
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.dispatcher import GatedRoutes, Handler
from twisted_exec.auth.gate import Gate
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import Match
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_WORDS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
"""Stream options: the API server's name and the kubelet's, which accepts only ``1`` for true."""


@implementer(IStreamLocator)
class NodePodLocator:
    """
    Locates the kubelet for ``.../pods/NAME/SUBRESOURCE``.

    :param limits: locating counts as a short request.
    :cvar verb: the verb that the subresource needs.
    """

    verb: ClassVar[str] = "create"

    def __init__(
        self,
        gate: Gate,
        storage: IStorage,
        kubelets: Kubelets,
        reactor: Any,
        limits: Limits,
    ) -> None:
        self._gate, self._storage = gate, storage
        self._kubelets, self._reactor = kubelets, reactor
        self._limits = limits

    def locate(self, context: RequestContext) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`; the target is the Pod."""
        return Deferred.fromCoroutine(self._locate(context))

    async def _locate(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            return await self._locate_target(context, context.target)

    async def _locate_target(self, context: RequestContext, target: Target) -> Location:
        permission = attributes_of(context.user, self.verb, target)
        await self._gate.authorize_session(context, permission)
        if query_of(context).texts("dryRun"):
            raise BadRequest(f"dryRun is not supported for {target.subresource}")
        pod = await self._storage.get(NODE_PODS.resource, target.namespace, target.name)
        path = self._path(pod, context)
        if not (node := node_of(pod)):
            raise BadRequest(f"pod {target.name} does not have a host assigned")
        context.learn(uid=pod["metadata"]["uid"], pool=node)
        kubelet = await self._kubelets.of(node, self._storage, self._reactor)
        return to(kubelet, context, path)

    def _path(self, pod: Object, context: RequestContext) -> bytes:
        """
        Return path and query of the kubelet's request.

        :raises APIError: the request is malformed, or does not suit this Pod.
        """
        request, target, query = context.request, context.target, query_of(context)
        if b";" in request.uri:
            # Some parsers split at semicolons; a command cut short there would be another command.
            raise BadRequest("invalid semicolon separator in query")
        container = container_of(pod, query.text("container"))
        suffix = kubelet_query(request.args.get(b"command", []), query)
        return _at(target.subresource, target, container) + suffix


class NodePortLocator(NodePodLocator):
    """Locates the kubelet for ``.../pods/NAME/portforward``."""

    def _path(self, pod: Object, context: RequestContext) -> bytes:
        ports = [
            text for entry in query_of(context).texts("ports") for text in entry.split(",") if text
        ]
        for port in ports:
            if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
                raise BadRequest(f"strconv.ParseUint: parsing {port[:16]!r}: invalid port")
        suffix = "?port=" + quote(",".join(ports)) if ports else ""
        return _at("portForward", context.target) + suffix.encode("ascii")


class NodeLogLocator(NodePodLocator):
    """Locates the kubelet for ``.../pods/NAME/log``."""

    verb: ClassVar[str] = "get"

    def _path(self, pod: Object, context: RequestContext) -> bytes:
        target = context.target
        options = parse_of_pod(context.request.args, target.name)
        container = container_of(pod, query_of(context).text("container"))
        suffix = options.query()
        return _at("containerLogs", target, container) + (b"?" + suffix if suffix else b"")


def to(kubelet: Kubelet, context: RequestContext, path: bytes) -> Location:
    """The next hop, for a request that is complete with its path and query."""
    return Location(
        subject=context.subject,
        endpoints=[(kubelet.label, kubelet.endpoint)],
        path=path,
        host=kubelet.host,
        whole=True,
        ends_here=True,
    )


def container_of(pod: Object, requested: str) -> str:
    """
    Return the container's name.

    :param wanted: the requested name; empty selects the only container, or the Pod's default.
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


def _at(what: str, target: Target, container: str = "") -> bytes:
    parts = [what, target.namespace, target.name, *([container] if container else [])]
    return "".join(f"/{quote(part, safe='')}" for part in parts).encode("ascii")


def kubelet_query(command: Sequence[bytes], query: Query) -> bytes:
    """
    Return the query of a kubelet's request for a stream.

    Parameters are sorted by name, as Go encodes them; the parts of a command keep their order and
    may contain any bytes.

    :return: with its question mark; empty without parameters.
    """
    parameters = [("command", part) for part in command]
    parameters += [(theirs, b"1") for ours, theirs in _WORDS if query.flag(ours)]
    parameters.sort(key=lambda pair: pair[0])
    pairs = [f"{name}={quote_plus(value)}" for name, value in parameters]
    return ("?" + "&".join(pairs) if pairs else "").encode("ascii")


def add_node_pods(
    routes: GatedRoutes,
    proxies: Callable[[IStreamLocator], Proxy],
    relay: Callable[[IStreamLocator], Relay],
    places: tuple[Any, ...],
) -> None:
    """
    ``pods/exec``, ``attach``, ``portforward`` and ``log``.

    :param proxies: makes a proxy from a locator.
    :param relay: makes a relay from a locator.
    :param places: arguments of the locators.
    """
    streams, ports = proxies(NodePodLocator(*places)), proxies(NodePortLocator(*places))
    logs = relay(NodeLogLocator(*places))

    def add(methods: list[str], subresource: str, handler: Handler) -> None:
        def target(match: Match[Any]) -> Target:
            values = match.values
            return Target(NODE_PODS, values["namespace"], values["name"], subresource)

        base = f"{root_of(NODE_PODS)}/namespaces/{{namespace}}/{NODE_PODS.resource.plural}"
        path = f"{base}/{{name}}/{subresource}"
        routes.add_session(methods, path, handler, target=target, session=_facts)

    for subresource, proxy in (("attach", streams), ("exec", streams), ("portforward", ports)):
        add(["GET", "POST"], subresource, proxy.handle)
    add(["GET"], "log", logs.handle)


def _facts(target: Target) -> dict[str, str]:
    """The facts of a session of a Pod, or of a Node."""
    return {
        "namespace": target.namespace,
        "machine": target.name,
        "resource": target.kind.resource.qualified,
        "noun": target.kind.resource.kind.lower(),
        "subresource": target.subresource,
    }


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
"""Paths of a kubelet that are proxied."""


@implementer(IStreamLocator)
class NodeProxyLocator:
    """Locates the kubelet for ``.../nodes/NAME/proxy/PATH``."""

    def __init__(
        self, gate: Gate, storage: IStorage, kubelets: Kubelets, reactor: Any, limits: Limits
    ) -> None:
        self._gate, self._storage, self._kubelets = gate, storage, kubelets
        self._reactor, self._limits = reactor, limits

    def locate(self, context: RequestContext) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`; the target is the Node."""
        return Deferred.fromCoroutine(self._locate(context))

    async def _locate(self, context: RequestContext) -> Location:
        target, request = context.target, context.request
        context.learn(pool=target.name)
        with self._limits.short(context.user):
            permission = attributes_of(context.user, "get", target)
            await self._gate.authorize_session(context, permission)
            if is_upgrade(request):
                raise BadRequest("a node's proxy opens no streams: ask for those of a pod")
            kubelet = await self._kubelets.of(target.name, self._storage, self._reactor)
        _, mark, query = request.uri.partition(b"?")
        nodes = list(context.segments).index(NODES.resource.plural)
        below = context.segments[nodes + 3 :]
        path_below = "".join(f"/{quote(each, safe='')}" for each in below).encode("ascii")
        return to(kubelet, context, path_below + mark + query)


def add_node_proxy(routes: GatedRoutes, relay: Relay) -> None:
    """
    Add the routes.

    :param relay: a relay with a :class:`NodeProxyLocator`.
    """

    def target(match: Match[Any]) -> Target:
        return Target(NODES, "", match.values["name"], PROXY)

    for path in PATHS:
        pattern = f"{root_of(NODES)}/nodes/{{name}}/{PROXY}/{path}"
        routes.add_session(["GET"], pattern, relay.handle, target=target, session=_facts)

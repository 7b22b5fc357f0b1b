"""
Streams and logs of stored Pods: proxied to the kubelet of the Pod's Node.

As in kube-apiserver, the kubelet learns the command and the container but not the user: this server
authorizes the user, and the kubelet authorizes this server.  Opening a stream is a ``create``
whatever the HTTP method.  The stream itself is not decoded; the container is resolved beforehand.

Source: ``pkg/registry/core/pod/strategy.go`` (``streamLocation``, ``LogLocation``,
``validateContainer``) of Kubernetes, ``k8s.io/api/core/v1`` for the query parameters of kubelets.
``validateContainer``) of Kubernetes, ``k8s.io/api/core/v1`` for the words of kubelets' queries.

``nodes/NAME/proxy/PATH``: read-only endpoints of a kubelet.

These are health, metrics and the list of Pods, as used by ``kubectl get --raw`` and by monitoring.
In Kubernetes this proxies every path of a kubelet, so that the right to ``get`` it includes running
commands (k8s#136550).  This server proxies only the paths below, and only reads; streams go through
the Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.api.kinds.pods.node_pods import containers_of, node_of
from twisted_exec.api.logs import parse_of_pod
from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.consoles.session_reviewer import SessionEvidence
from twisted_exec.apiserver.node_pods.kubelets import Kubelet, Kubelets
from twisted_exec.apiserver.serving.filters import APIRequest, Gate, Limits
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.http.routes import Routes, split_path
from twisted_exec.streaming.http.site import Request
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

    def locate(self, request: IRequest) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`."""
        assert isinstance(request, APIRequest)
        *_, namespace, _plural, name, subresource = split_path(request.path)
        target = Target(NODE_PODS, namespace, name, subresource)
        return Deferred.fromCoroutine(self._locate(request, target))

    async def _locate(self, request: APIRequest, target: Target) -> Location:
        request.subject = replace(
            request.subject,
            namespace=target.namespace,
            machine=target.name,
            resource=NODE_PODS.resource.qualified,
            noun="pod",
            subresource=target.subresource,
        )
        sender = await self._gate.sender(request)
        request.subject = replace(request.subject, user=sender.name)
        user = request.requester = await self._gate.acting(request, sender)
        if user is not sender:  # under impersonation the audit record names both
            request.subject = replace(request.subject, user=user.name, caller=sender.name)
        with self._limits.short(user):
            return await self._found(request, target)

    async def _found(self, request: APIRequest, target: Target) -> Location:
        """As :meth:`locate`, for an authorized request."""
        allowed = await self._gate.authorize_target(request.requester, self.verb, target)
        query = Query(request.args)
        if query.texts("dryRun"):
            raise BadRequest(f"dryRun is not supported for {target.subresource}")
        pod = await self._storage.get(NODE_PODS.resource, target.namespace, target.name)
        path = self._path(pod, target, query, request)
        if not (node := node_of(pod)):
            raise BadRequest(f"pod {target.name} does not have a host assigned")
        uid = pod["metadata"]["uid"]
        request.subject = replace(request.subject, uid=uid, pool=node)
        kubelet = await self._kubelets.of(node, self._storage, self._reactor)
        request.evidence = SessionEvidence(request.credentials, request.sender, allowed)
        return to(kubelet, request, path)

    def _path(self, pod: Object, target: Target, query: Query, request: APIRequest) -> bytes:
        """
        Return path and query of the kubelet's request.

        :raises APIError: the request is malformed, or does not suit this Pod.
        """
        if b";" in request.uri:
            # Some parsers split at semicolons; a command cut short there would be another command.
            raise BadRequest("invalid semicolon separator in query")
        container = container_of(pod, query.text("container"))
        suffix = kubelet_query(request.args.get(b"command", []), query)
        return _at(target.subresource, target, container) + suffix


class NodePortLocator(NodePodLocator):
    """Locates the kubelet for ``.../pods/NAME/portforward``."""

    def _path(self, pod: Object, target: Target, query: Query, request: APIRequest) -> bytes:
        ports = [text for suffix in query.texts("ports") for text in suffix.split(",") if text]
        for port in ports:
            if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
                raise BadRequest(f"strconv.ParseUint: parsing {port[:16]!r}: invalid port")
        suffix = "?port=" + quote(",".join(ports)) if ports else ""
        return _at("portForward", target) + suffix.encode("ascii")


class NodeLogLocator(NodePodLocator):
    """Locates the kubelet for ``.../pods/NAME/log``."""

    verb: ClassVar[str] = "get"

    def _path(self, pod: Object, target: Target, query: Query, request: APIRequest) -> bytes:
        options = parse_of_pod(request.args, target.name)
        container = container_of(pod, query.text("container"))
        suffix = options.query()
        return _at("containerLogs", target, container) + (b"?" + suffix if suffix else b"")


def to(kubelet: Kubelet, request: Request, path: bytes) -> Location:
    """The next hop, for a request that is complete with its path and query."""
    return Location(
        subject=request.subject,
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
    routes: Routes,
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

    def handled(by: Proxy | Relay) -> Callable[..., Any]:
        async def handle(request: Request, values: Mapping[str, str]) -> None:
            await by.handle(request)

        return handle

    base = f"{root_of(NODE_PODS)}/namespaces/{{namespace}}/{NODE_PODS.resource.plural}/{{name}}"
    for subresource, proxy in (("attach", streams), ("exec", streams), ("portforward", ports)):
        routes.add(["GET", "POST"], f"{base}/{subresource}", handled(proxy))
    routes.add(["GET"], f"{base}/log", handled(logs))


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
        path_below = "".join(f"/{quote(each, safe='')}" for each in path).encode("ascii")
        return to(kubelet, request, path_below + mark + query)


def add_node_proxy(routes: Routes, relay: Relay) -> None:
    """
    Add the routes.

    :param relay: a relay with a :class:`NodeProxyLocator`.
    """

    async def handle(request: Request, values: Mapping[str, str]) -> None:
        await relay.handle(request)

    for path in PATHS:
        routes.add(["GET"], f"{root_of(NODES)}/nodes/{{name}}/{PROXY}/{path}", handle)

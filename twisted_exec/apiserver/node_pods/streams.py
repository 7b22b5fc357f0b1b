"""
Where the streams and logs of a Pod go from here: to the kubelet of its Node.

As kube-apiserver has it, the kubelet is told what to run in which container and nothing of who asks:
whether they may is decided here, and the kubelet decides about this server alone.  Opening a stream is
a ``create`` whatever the HTTP method.  What passes is not read; which container is meant, and whether
there is such a one, is found out before.

Source: ``pkg/registry/core/pod/strategy.go`` (``streamLocation``, ``LogLocation``,
``validateContainer``) of Kubernetes, ``k8s.io/api/core/v1`` for the words of kubelets' queries.

``nodes/NAME/proxy/PATH``: what a kubelet tells of itself, through this server.

That is whether it is well, its figures, and which Pods it knows; ``kubectl get --raw`` and those who
look after Nodes ask so.  In Kubernetes a kubelet's every path can be had in this way, with it commands by
a right to ``get`` (k8s#136550).  Here only these are passed, to be read: whoever wants a stream asks
for that of a Pod.
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
"""Of a stream's options: the API server's, and the kubelet's, which takes only ``1`` for true."""


@implementer(IStreamLocator)
class NodePodLocator:
    """
    Finds the kubelet behind ``.../pods/NAME/SUBRESOURCE``.

    :param limits: looking for it is a short request.
    :cvar verb: what reaching it needs.
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
        if user is not sender:  # on record are both
            request.subject = replace(request.subject, user=user.name, caller=sender.name)
        with self._limits.short(user):
            return await self._found(request, target)

    async def _found(self, request: APIRequest, target: Target) -> Location:
        """As :meth:`locate`, for whoever it is that asks."""
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
        Path and query of the kubelet's request.

        :raises APIError: what is asked for makes no sense, or not of this Pod.
        """
        if b";" in request.uri:
            # Some take it for an ampersand, and a command that lost its end is another one.
            raise BadRequest("invalid semicolon separator in query")
        container = container_of(pod, query.text("container"))
        told = kubelet_query(request.args.get(b"command", []), query)
        return _at(target.subresource, target, container) + told


class NodePortLocator(NodePodLocator):
    """Finds it behind ``.../pods/NAME/portforward``."""

    def _path(self, pod: Object, target: Target, query: Query, request: APIRequest) -> bytes:
        ports = [text for told in query.texts("ports") for text in told.split(",") if text]
        for port in ports:
            if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
                raise BadRequest(f"strconv.ParseUint: parsing {port[:16]!r}: invalid port")
        told = "?port=" + quote(",".join(ports)) if ports else ""
        return _at("portForward", target) + told.encode("ascii")


class NodeLogLocator(NodePodLocator):
    """Finds it behind ``.../pods/NAME/log``."""

    verb: ClassVar[str] = "get"

    def _path(self, pod: Object, target: Target, query: Query, request: APIRequest) -> bytes:
        options = parse_of_pod(request.args, target.name)
        container = container_of(pod, query.text("container"))
        told = options.query()
        return _at("containerLogs", target, container) + (b"?" + told if told else b"")


def to(kubelet: Kubelet, request: Request, path: bytes) -> Location:
    """The next hop, of a request that says everything in its path and query."""
    return Location(
        subject=request.subject,
        endpoints=[(kubelet.label, kubelet.endpoint)],
        path=path,
        host=kubelet.host,
        whole=True,
        ends_here=True,
    )


def container_of(pod: Object, wanted: str) -> str:
    """
    The container that is meant.

    :param wanted: its name; empty: the only one, or the one that the Pod calls its default.
    :raises BadRequest: there is none of that name, or it must be said which.
    """
    name = pod["metadata"]["name"]
    known = [container["name"] for _, container in containers_of(pod)]
    if wanted:
        if wanted not in known:
            raise BadRequest(f"container {wanted[:253]} is not valid for pod {name}")
        return wanted
    spec = pod["spec"]
    first = [container["name"] for container in spec["containers"]]
    if len(first) == 1:
        return str(first[0])
    default = pod["metadata"].get("annotations", {}).get(DEFAULT_CONTAINER, "")
    if default in known:
        return str(default)
    told = f"a container name must be specified for pod {name}, choose one of: [{' '.join(first)}]"
    if inits := [container["name"] for container in spec.get("initContainers", [])]:
        told += f" or one of the init containers: [{' '.join(inits)}]"
    raise BadRequest(told)


def _at(what: str, target: Target, container: str = "") -> bytes:
    parts = [what, target.namespace, target.name, *([container] if container else [])]
    return "".join(f"/{quote(part, safe='')}" for part in parts).encode("ascii")


def kubelet_query(command: Sequence[bytes], query: Query) -> bytes:
    """
    What a stream is asked for, in a kubelet's words.

    Names are in the order in which Go writes them; a command's parts in their own, and of any bytes.

    :return: with its question mark; empty when nothing is asked for.
    """
    told = [("command", one) for one in command]
    told += [(theirs, b"1") for ours, theirs in _WORDS if query.flag(ours)]
    told.sort(key=lambda pair: pair[0])
    pairs = [f"{name}={quote_plus(value)}" for name, value in told]
    return ("?" + "&".join(pairs) if pairs else "").encode("ascii")


def add_node_pods(
    routes: Routes,
    proxies: Callable[[IStreamLocator], Proxy],
    relay: Callable[[IStreamLocator], Relay],
    places: tuple[Any, ...],
) -> None:
    """
    ``pods/exec``, ``attach``, ``portforward`` and ``log``.

    :param proxies: makes one of a locator.
    :param relay: likewise.
    :param places: what locators are made of.
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

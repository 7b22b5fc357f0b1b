"""
Pods of the server's own Nodes: their verbs, and streams, logs and proxies to their kubelets.

The kubelet does not learn the user: this server authorizes the user, and the kubelet authorizes
this server.

Source: ``pkg/registry/core/pod/strategy.go`` of Kubernetes, ``k8s.io/api/core/v1`` for the query
parameters of kubelets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, quote_plus

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api import fields, strategy, times
from twisted_exec.api.kinds import ADDRESS_TYPES, BINDINGS, NODE_PODS, NODES, Kind, Object
from twisted_exec.api.kinds.pods.node_pods import containers_of, is_over, node_of
from twisted_exec.api.kinds.pods.schema import LONGEST_GRACE_SECONDS
from twisted_exec.api.logs import parse_of_pod
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.status import BadRequest, Conflict, Invalid, ServiceUnavailable
from twisted_exec.apiserver.consoles.poollets import no_address, usable_addresses
from twisted_exec.apiserver.interfaces import UPDATE
from twisted_exec.apiserver.serving.bodies import read_body, work_of
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.filters import RequestLimits, attributes_of, query_of
from twisted_exec.apiserver.serving.query import Query, WriteOptions, write_options
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs, change_of
from twisted_exec.auth.gate import Gate, GatedRoutes, Handler
from twisted_exec.auth.interfaces import User
from twisted_exec.program.options import OPTION, ProgramOption
from twisted_exec.program.options import seconds as read_seconds
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.location import IStreamLocator, Location
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import TLSConfigError

_ATTEMPTS = 5
_BOUND = {"type": "PodScheduled", "status": "True"}
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class NodePodVerbs(Verbs):
    """
    Verbs on Pods of Nodes.

    Deleting a Pod that is bound to a Node usually marks it, with a deadline; the object goes when a
    client, such as its kubelet, deletes it with a grace period of 0.

    Source: ``pkg/registry/core/pod/{strategy,storage/storage}.go`` and
    ``k8s.io/apiserver/pkg/registry/rest/delete.go`` of Kubernetes.
    """

    async def remove(
        self, user: User, kind: Kind, old: Object, options: WriteOptions
    ) -> tuple[Object, bool]:
        seconds = grace_seconds(old, options)
        before = old["metadata"].get("deletionGracePeriodSeconds")
        if before is not None and seconds >= before:
            return old, False  # its deletion is already under way
        if seconds == 0 and not old["metadata"].get("finalizers"):
            if options.dry_run:
                return old, True
            return await self._storage.delete(kind.resource, old), True
        marked = self._ending(old, seconds)
        if options.dry_run:
            return marked, False
        return await self._storage.update(kind.resource, marked), False

    def _ending(self, old: Object, seconds: int) -> Object:
        metadata = {
            **old["metadata"],
            "deletionTimestamp": times.timestamp(self._now() + seconds),
            "deletionGracePeriodSeconds": seconds,
        }
        return {**old, "metadata": metadata}

    async def bind(
        self, user: User, target: RequestTarget, node: str, metadata: Object, options: WriteOptions
    ) -> None:
        """
        Bind a Pod to a Node.

        :param metadata: its labels and annotations are added to the Pod.
        :raises Conflict: the Pod cannot be bound.
        :raises APIError: another refusal.
        """

        for attempt in range(_ATTEMPTS):
            old = await self.get(target)
            new = self._bound(old, node, metadata)
            binding = replace(target, subresource="binding")
            change = change_of(user, UPDATE, binding, new, old, options)
            await self._admission.admit(change)
            if options.dry_run:
                return
            try:
                await self._storage.update(target.kind.resource, new)
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _bound(self, old: Object, node: str, metadata: Object) -> Object:
        if reason := _unbindable(old):
            raise _conflict(old["metadata"]["name"], reason)
        new = {**old, "metadata": {**old["metadata"]}, "spec": {**old["spec"], "nodeName": node}}
        for key in ("annotations", "labels"):
            if metadata.get(key):
                new["metadata"][key] = {**new["metadata"].get(key, {}), **metadata[key]}
        new["status"] = self._scheduled(new.get("status", {}))
        return new

    def _scheduled(self, status: Object) -> Object:
        others = [each for each in status.get("conditions", []) if each["type"] != _BOUND["type"]]
        now = times.timestamp(self._now())
        return {**status, "conditions": [*others, {**_BOUND, "lastTransitionTime": now}]}


def grace_seconds(pod: Object, options: WriteOptions) -> int:
    """
    The grace period of a Pod that is deleted with these options.

    :raises BadRequest: the period does not fit a timestamp.
    """
    if not node_of(pod) or is_over(pod):
        return 0
    seconds = options.submitted.get("gracePeriodSeconds")
    if seconds is None:
        seconds = pod["spec"].get("terminationGracePeriodSeconds", 0)
    if seconds > LONGEST_GRACE_SECONDS:
        raise BadRequest(f"gracePeriodSeconds {seconds} is more than {LONGEST_GRACE_SECONDS}")
    return 1 if seconds < 0 else int(seconds)


def _unbindable(pod: Object) -> str:
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if bound := node_of(pod):
        return f'pod {name} is already assigned to node "{bound}"'
    return ""


def _conflict(name: str, reason: str) -> Conflict:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {reason}'
    return Conflict(message, details={"name": name, "kind": "pods/binding"})


class Bindings:
    """Answers ``pods/binding``."""

    def __init__(
        self, gate: Gate, verbs: NodePodVerbs, limits: RequestLimits, queue: FairQueue
    ) -> None:
        self._gate, self._verbs, self._limits, self._queue = gate, verbs, limits, queue

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the route."""
        item = "namespaces/{namespace}/pods/{name}/binding"
        routes.add(["POST"], f"{root_of(NODE_PODS)}/{item}", self._create)

    async def _create(self, context: RequestContext) -> None:
        request, user, values = context.request, context.user, context.values
        target = RequestTarget(NODE_PODS, values["namespace"], values["name"], "binding")
        with self._limits.short(user):
            await self._gate.authorize(attributes_of(user, "create", target))
            options = write_options(query_of(context), "CreateOptions")
            body = await read_body(request, BINDINGS, options, work_of(context, self._queue))
            binding = strategy.shaped(BINDINGS, body)
            node = _node(binding, target)
            await self._verbs.bind(user, target, node, binding["metadata"], options)
        respond_json(request, 201, _SUCCESS)


def _node(binding: Object, target: RequestTarget) -> str:
    strategy.check_namespace(binding["metadata"], target.namespace)
    strategy.completed(BINDINGS, binding)
    target_reference, causes = binding["target"], []
    if binding["metadata"].get("name", target.name) != target.name:
        name = binding["metadata"]["name"]
        causes.append(fields.invalid("metadata.name", name, "must match the name in the URL"))
    if target_reference.get("kind", "") not in ("", "Node"):
        causes.append(
            fields.not_supported("target.kind", target_reference["kind"], ["Node", "<empty>"])
        )
    if not target_reference.get("name"):
        causes.append(fields.required("target.name"))
    else:
        wrong = dns_subdomain(target_reference["name"])
        causes += [fields.invalid("target.name", target_reference["name"], each) for each in wrong]
    if causes:
        raise Invalid("Binding", target.name, causes, "")
    return str(target_reference["name"])


KUBELET_PORT = 10250
"""Port of a kubelet whose Node reports none."""
_LARGEST_PORT = 65535


@dataclass(frozen=True)
class KubeletAccess:
    """Files and settings for connections to kubelets; paths of PEM files."""

    certificate: str = field(
        metadata={
            OPTION: ProgramOption(
                "kubelet-client-certificate",
                "Client certificate for kubelets (PEM); with it, Pods are stored objects on Nodes "
                "instead of the view of machines.",
                default="",
                is_path=True,
            )
        }
    )
    key: str = field(
        metadata={
            OPTION: ProgramOption(
                "kubelet-client-key",
                "Private key of that certificate (PEM).",
                default="",
                is_path=True,
            )
        }
    )
    ca: str = field(
        metadata={
            OPTION: ProgramOption(
                "kubelet-certificate-authority",
                "CA of kubelets' certificates (PEM).",
                default="",
                is_path=True,
            )
        }
    )
    address_types: Sequence[str] = field(
        default=ADDRESS_TYPES,
        metadata={
            OPTION: ProgramOption(
                "kubelet-preferred-address-types",
                "Types of Nodes' addresses, separated by commas: only the first match is dialled.",
                default=",".join(ADDRESS_TYPES),
                convert=lambda types: tuple(each.strip() for each in types.split(",")),
            )
        },
    )
    seconds: float = field(
        default=5.0,
        metadata={
            OPTION: ProgramOption(
                "kubelet-timeout",
                "Time limit to connect to a kubelet, and for its response.",
                read_seconds,
            )
        },
    )

    def kubelets(self, clock: IReactorTime) -> Kubelets:
        """Return access to the kubelets, without reading files."""
        credentials = ClientCredentials(
            ca=self.ca, certificate=self.certificate, key=self.key, clock=clock
        )
        return Kubelets(credentials, self.address_types, self.seconds)


@dataclass(frozen=True)
class KubeletClient:
    """
    One kubelet.

    :param host: value of the ``Host`` header.
    """

    label: str
    endpoint: IStreamClientEndpoint
    host: bytes


@dataclass(frozen=True)
class Kubelets:
    """
    Finds kubelets of Nodes.

    A kubelet is dialled with our client certificate; its certificate is always verified. Source:
    ``pkg/kubelet/client/kubelet_client.go`` and ``pkg/util/node/node.go`` of Kubernetes.

    :param seconds: time limit to connect, TLS included, and again for the response, except for
        logs.
    """

    credentials: ClientCredentials
    address_types: Sequence[str] = ADDRESS_TYPES
    seconds: float = 5.0

    async def of(self, node: str, storage: IStorage, reactor: Any) -> KubeletClient:
        """
        Return the kubelet of a Node.

        :raises NotFound: there is no such Node.
        :raises ServiceUnavailable: it cannot be reached.
        """
        obj = await storage.get(NODES.resource, "", node)
        addresses = usable_addresses(obj, self.address_types)
        if not addresses:
            raise no_address(obj, self.address_types, "node")
        host, port = addresses[0], port_of(obj)
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        label = f'kubelet of node "{node}" at {at}'
        try:
            tls = self.credentials.to(host)
        except TLSConfigError as error:
            raise ServiceUnavailable(f"{label} cannot be reached: {error}") from None
        endpoint = client_endpoint(reactor, host, port, tls, timeout_seconds=None)
        return KubeletClient(label, endpoint, at.encode("ascii" if at.isascii() else "idna"))


def port_of(node: Object) -> int:
    """The port that the Node reports for its kubelet, or the default."""
    endpoints = node.get("status", {}).get("daemonEndpoints", {})
    port = endpoints.get("kubeletEndpoint", {}).get("Port", 0)
    return port if 0 < port <= _LARGEST_PORT else KUBELET_PORT


DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_WORDS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
"""Stream options: the API server's name and the kubelet's, which accepts only ``1`` for true."""


@implementer(IStreamLocator)
class NodePodLocator:
    """Locates the kubelet for ``.../pods/NAME/SUBRESOURCE``."""

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

    def locate(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._locate(context))

    async def _locate(self, context: RequestContext) -> Location:
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
        routes.add_session(methods, path, handler, target=target, session=_facts)

    for subresource in ("attach", "exec", "portforward"):
        add(["GET", "POST"], subresource, streams.handle)
    add(["GET"], "log", logs.handle)


def _facts(target: RequestTarget) -> dict[str, str]:
    return {
        "namespace": target.namespace,
        "machine": target.name,
        "resource": target.kind.resource.qualified,
        "noun": target.kind.resource.kind.lower(),
        "subresource": target.subresource,
    }


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


@implementer(IStreamLocator)
class NodeProxyLocator:
    """
    Locates the kubelet for ``.../nodes/NAME/proxy/PATH``.

    Only the paths in :data:`PROXY_PATHS` are proxied, and only reads: otherwise the right to
    ``get`` would include running commands.
    """

    def __init__(
        self, gate: Gate, storage: IStorage, kubelets: Kubelets, reactor: Any, limits: RequestLimits
    ) -> None:
        self._gate, self._storage, self._kubelets = gate, storage, kubelets
        self._reactor, self._limits = reactor, limits

    def locate(self, context: RequestContext) -> Deferred[Location]:
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
        return to(kubelet, path_below + mark + query)


def add_node_proxy(routes: GatedRoutes, relay: Relay) -> None:
    """Add the routes."""

    def target(match: RouteMatch[Any]) -> RequestTarget:
        return RequestTarget(NODES, "", match.values["name"], PROXY)

    for path in PROXY_PATHS:
        pattern = f"{root_of(NODES)}/nodes/{{name}}/{PROXY}/{path}"
        routes.add_session(["GET"], pattern, relay.handle, target=target, session=_facts)

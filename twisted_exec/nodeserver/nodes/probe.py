"""
Probes: whether a console could be opened now, without opening one.

From the root to the node server: we request a page of ours through the root's own
``nodes/NAME/proxy``; if the root refuses that, we dial the address ourselves and report the weaker
result.

From the node server to the leaf: ``/readyz``, ``/version``, and an exec upgrade for a Pod whose
name is impossible. The API server authenticates and authorizes before it looks for the Pod, so its
404 shows that a stream would be permitted.

Sources: ``pkg/registry/core/node/strategy.go`` (``ResourceLocation``),
``pkg/registry/core/pod/rest/subresources.go``, ``apiserver/pkg/endpoints/installer.go`` of
Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.status import APIError, NotFound, from_status, one_line
from twisted_exec.control.loop import PokedLoop
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.credentials import settled
from twisted_exec.kube.kubeconfig.headers import host_header, identity_headers
from twisted_exec.kube.transport import Answer, HTTPTransport, Request
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import ILeaf
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route
from twisted_exec.nodeserver.nodes.addresses import Address
from twisted_exec.nodeserver.nodes.conditions import UNPROBED
from twisted_exec.nodeserver.nodes.status import trim_node
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http import responses
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade

PAGE = "/healthz/nodeserver"
"""Page that identifies a node server: ``ok`` and the name of its set of replicas."""
SECONDS = 8.0
"""Timeout of each request; a probe sends three at most."""
_LIMIT_BYTES = 64 << 10

_NOT_ALLOWED = "address not allowed"
"""
A kube-apiserver's message for loopback and link-local addresses, which it refuses to proxy to.

Its code and reason, BadRequest without details, are also those of a host name that does not resolve.
"""

# No object's name may contain capitals, so such a Pod cannot exist.
_NO_POD = "NODESERVER_PROBE"
_COMMAND = b"?command=true&stdout=true&stderr=true"
_UPGRADE = [
    (b"Connection", b"Upgrade"),
    (b"Upgrade", b"SPDY/3.1"),
    (b"X-Stream-Protocol-Version", b"v4.channel.k8s.io"),
    (b"Content-Length", b"0"),
    (b"User-Agent", PROGRAM.encode()),
]

PROBE_SECONDS = 30.0

AT_ONCE = 8
"""Limit of concurrent probes."""


def page(keeper: str) -> str:
    """Return the text of :data:`PAGE`."""
    return f"ok {keeper}"


def probe_routes(keeper: str) -> Callable[[KubeletCollaborators], list[Route]]:
    """Return a function that creates the route of :data:`PAGE`."""

    def make(collaborators: KubeletCollaborators) -> list[Route]:
        async def answer(context: RequestContext) -> None:
            await collaborators.admit(context)
            responses.respond_text(context.request, 200, page(keeper))

        return [Route(["GET"], PAGE, answer)]

    return make


class RootProbe:
    """
    Probes the path from the root to us.

    :param keeper: the set of replicas that :data:`PAGE` must name.
    """

    def __init__(self, config: Callable[[], ClientConfig], reactor: Any, keeper: str) -> None:
        self._config, self._reactor, self._keeper = config, reactor, keeper

    async def look(self, node: str, own: Address | None, port: int) -> ConditionValue:
        """
        Return the condition; problems are part of it.

        :param own: our address, dialled directly if the root refuses the probe.
        """
        target = f"/api/v1/nodes/{quote(node, safe='')}/proxy{PAGE}"
        try:
            code, _, body = await fetch(self._config(), target, self._reactor, "the root")
        except (APIError, KubeConfigError) as error:
            return ("Unknown", "RootNotAsked", _line(error))
        verdict = root_verdict(code, body, page(self._keeper))
        if verdict[0] != "Unknown" or own is None:
            return verdict
        return await self._dial_directly(verdict, own, port)

    async def _dial_directly(
        self, verdict: ConditionValue, own: Address, port: int
    ) -> ConditionValue:
        """Dial the address ourselves, which proves less: the root may take another route."""
        host = f"[{own[1]}]" if ":" in own[1] else own[1]
        config = ClientConfig(f"https://{host}:{port}", insecure_skip_tls_verify=True)
        try:
            await fetch(config, PAGE, self._reactor, "the published address")
        except (APIError, KubeConfigError) as error:
            return ("False", "AddressUnreachable", f"{verdict[2]}; {_line(error)}")
        return ("Unknown", verdict[1], f"{verdict[2]}; seen from here, {own[1]}:{port} answers")


def root_verdict(code: int, body: bytes, expected: str) -> ConditionValue:
    """Return the condition for an answer of the root's proxy."""
    text = one_line(body.decode("utf-8", "replace"))[:300]
    status = _status(code, body)
    if code == 200:
        if text == expected:
            return ("True", "RootReachesUs", "")
        return (
            "False",
            "AnotherAnswers",
            f'not this node server answered, but one that says "{text}"',
        )
    if status is None:
        # The proxied server itself refused, so the root can reach it.
        if code in (401, 403):
            return (
                "False",
                "RootRefused",
                f"the node server refuses the root's API server: {text}",
            )
        return ("False", "AnotherAnswers", f"whoever answers at the address says {code} {text}")
    if code == 403:
        return (
            "Unknown",
            "NotPermitted",
            f"the root does not let the node server try: {status.message}",
        )
    if code in (401, 404, 405, 429) or _NOT_ALLOWED in status.message:
        return ("Unknown", "RootNotAsked", f"the root does not try: {status.message}")
    return ("False", "RootCannotReachUs", status.message)


class LeafProbe:
    """Probes the path from us to one leaf."""

    def __init__(self, leaf: ILeaf, reactor: Any) -> None:
        self._leaf, self._reactor = leaf, reactor
        self.version = ""

    async def look(self) -> tuple[ConditionValue, ConditionValue]:
        """Return two conditions: the leaf is ready, and we may open streams there."""
        try:
            config = self._leaf.config()
        except (APIError, KubeConfigError) as error:
            return _unreachable("CredentialsUnusable", _line(error))
        try:
            code, _, body = await fetch(config, "/readyz", self._reactor, "the leaf")
        except (APIError, KubeConfigError) as error:
            return _unreachable("LeafUnreachable", _line(error))
        ready = leaf_verdict(code, body)
        if ready[0] != "True":
            return _unreachable(*ready[1:])
        await self._ask_version(config)
        return ready, await self._may_exec(config)

    async def _ask_version(self, config: ClientConfig) -> None:
        try:
            code, _, body = await fetch(config, "/version", self._reactor, "the leaf")
            version = json.loads(body)["gitVersion"] if code == 200 else ""
        except (APIError, KubeConfigError, ValueError, KeyError, TypeError, RecursionError):
            return
        if isinstance(version, str) and version.isprintable():
            self.version = version[:64] or self.version

    async def _may_exec(self, config: ClientConfig) -> ConditionValue:
        try:
            settled_config = await settled(config, self._reactor)
            where = PODS.resource.path(self._namespace(), _NO_POD, "exec")
            path = (settled_config.url.path.rstrip("/") + where).encode("ascii") + _COMMAND
            headers = [*_UPGRADE, *identity_headers(settled_config)]
            upgraded = await upgrade(
                endpoint(settled_config, self._reactor, timeout_seconds=SECONDS),
                UpgradeRequest(b"POST", path, host_header(settled_config), headers),
                clock=self._reactor,
                timeout_seconds=SECONDS,
            )
        except UpgradeRefused as refused:
            return exec_verdict(refused.code, refused.body)
        except (APIError, KubeConfigError) as error:
            return ("False", "LeafUnreachable", _line(error))
        upgraded.abort()
        return ("False", "NoAPIServer", "what answers opens a stream of a Pod that cannot be")

    def _namespace(self) -> str:
        """
        Return a namespace in which streams are likely, because permissions may be limited to
        namespaces.
        """
        ours = next(iter(self._leaf.pods()), None)
        if ours is not None:
            return ours.namespace
        try:
            return str(self._leaf.namespace("default"))
        except NotFound:  # another namespace of the root maps to it; any will do for the probe
            return "default"


def _unreachable(reason: str, message: str) -> tuple[ConditionValue, ConditionValue]:
    return ("False", reason, message), ("Unknown", reason, message)


def leaf_verdict(code: int, body: bytes) -> ConditionValue:
    """Return the condition for an answer of ``/readyz``."""
    message = _message(code, body)
    if code == 401:
        return (
            "False",
            "CredentialsRefused",
            f"the leaf does not accept the credentials: {message}",
        )
    if code >= 500 or code == 429:
        return ("False", "LeafNotReady", f"the leaf answers {code}: {message}")
    if 300 <= code < 400:
        return ("False", "NoAPIServer", f"the leaf answers {code}, which no API server does")
    if code == 403:
        return (
            "True",
            "LeafAnswers",
            "the leaf answers, and the node server may not see whether it is ready",
        )
    return ("True", "LeafAnswers", "")


def exec_verdict(code: int, body: bytes) -> ConditionValue:
    """Return the condition for the refusal of exec in an impossible Pod."""
    message, status = _message(code, body), _status(code, body)
    if code == 404 and status is not None and _is_of_the_pod(status.details):
        return ("True", "ExecAllowed", "")
    if code == 401:
        return (
            "False",
            "CredentialsRefused",
            f"the leaf does not accept the credentials: {message}",
        )
    if code == 403:
        return (
            "False",
            "ExecForbidden",
            f"the leaf does not let the node server open streams: {message}",
        )
    if status is None:
        return ("False", "NoAPIServer", f"no API server answers an upgrade with {code}: {message}")
    return ("False", "ExecRefused", f"the leaf answers {code}: {message}")


def _is_of_the_pod(details: Mapping[str, Any]) -> bool:
    return details.get("kind") == PODS.resource.plural or details.get("name") == _NO_POD


async def fetch(config: ClientConfig, target: str, reactor: Any, peer: str) -> Answer:
    """
    Send one GET on a new connection, because an old one proves nothing about the path now.

    :raises APIError: there is no answer, or the credentials cannot be used.
    """
    transport = HTTPTransport(config, reactor, connect_seconds=SECONDS, agent=PROGRAM, peer=peer)
    try:
        return await transport.collect(
            Request("GET", target), timeout_seconds=SECONDS, limit_bytes=_LIMIT_BYTES
        )
    finally:
        transport.close()  # it is idle: no need to wait for its end


def _status(code: int, body: bytes) -> APIError | None:
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return None
    return from_status(status, code)


def _message(code: int, body: bytes) -> str:
    status = _status(code, body)
    text = status.message if status is not None else body.decode("utf-8", "replace")
    return one_line(text)[:300] or str(code)


def _line(error: Exception) -> str:
    return one_line(error.message if isinstance(error, APIError) else str(error))


def probe_loop(
    look: Callable[[], Awaitable[None]],
    clock: IReactorTime,
    slots: DeferredSemaphore,
    seconds: float = PROBE_SECONDS,
) -> PokedLoop:
    """Return a loop that repeats a probe when one of the slots is free."""

    async def once() -> None:
        await look()

    async def in_slot() -> None:
        await slots.run(lambda: Deferred.fromCoroutine(once()))

    return PokedLoop(in_slot, clock, seconds)


class LeafProbeResult:
    """The last results of probing one leaf."""

    def __init__(self, probe: LeafProbe, clock: IReactorTime, changed: Callable[[], None]) -> None:
        self._probe, self._clock, self._changed = probe, clock, changed
        self.ready: ConditionValue = UNPROBED
        self.allowed: ConditionValue = UNPROBED
        self._answered = clock.seconds()

    @property
    def version(self) -> str:
        return self._probe.version

    @property
    def silent_seconds(self) -> float:
        """Seconds since the leaf was last ready; 0 while it is."""
        return 0.0 if self.ready[0] == "True" else self._clock.seconds() - self._answered

    async def look(self) -> None:
        self.ready, self.allowed = await self._probe.look()
        if self.ready[0] == "True":
            self._answered = self._clock.seconds()
        self._changed()


ProbeOf = Callable[[ILeaf, Any], LeafProbe]


class LeafWatch:
    """
    Watches the nodes of one leaf and probes it.

    :param changed: called when a node has changed, and after each probe.
    """

    def __init__(
        self,
        leaf: ILeaf,
        clock: IReactorTime,
        slots: DeferredSemaphore,
        changed: Callable[[], None],
        probe_of: ProbeOf = LeafProbe,
    ) -> None:
        self.leaf, self.machines = leaf, leaf.machines
        self.nodes = Reflector(
            leaf.client,
            NODES.resource,
            clock,
            of=f'leaf cluster "{leaf.name}"',
            trim=trim_node,
            on_change=lambda before, after: changed(),
        )
        self.result = LeafProbeResult(probe_of(leaf, clock), clock, changed)
        self._looking = probe_loop(self.result.look, clock, slots)

    def start(self) -> None:
        # A leaf of machines has no nodes that we may read; asking would be refused and logged.
        if not self.machines:
            self.nodes.start()
        self._looking.start()

    @as_deferred
    async def stop(self) -> None:
        """Stop; fires when nothing is under way."""
        for ending in (self._looking.stop(), self.nodes.stop()):
            await ending

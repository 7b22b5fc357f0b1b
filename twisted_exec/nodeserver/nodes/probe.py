"""
Probes: whether a console could be opened now, without opening one.

Root to node server: we request a page of ours through the root's own ``nodes/NAME/proxy``.  The
root then dials the address that the Node publishes, with the credentials that it uses for exec, and
the page tells which node server answered.  A root refuses that to users without ``get nodes/proxy``
and for addresses that are not global; then we dial the address ourselves and report the weaker
result.

Node server to leaf: ``/readyz``, and an exec upgrade for a Pod whose name is impossible.  The API
server authenticates and authorizes before it looks for the Pod, so its 404 shows that a stream
would be permitted.

Sources: ``pkg/registry/core/node/strategy.go`` (``ResourceLocation``),
``pkg/registry/core/pod/rest/ subresources.go``, ``apiserver/pkg/endpoints/installer.go`` of
Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.status import APIError, NotFound, from_status, one_line
from twisted_exec.kube.credentials.cache import settled
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.transport.connection import endpoint, host_header, identity_headers
from twisted_exec.kube.transport.http import Answer, HTTPTransport, Request
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import ILeaf
from twisted_exec.nodeserver.kubelet_api.hop import Hop
from twisted_exec.nodeserver.kubelet_api.routes import Route
from twisted_exec.nodeserver.nodes.addresses import Address
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http import responses
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade

PAGE = "/healthz/nodeserver"
"""Page that identifies a node server: ``ok`` and the name of its set of replicas."""
SECONDS = 8.0
"""Timeout of each request; a probe sends three at most."""
_LIMIT_BYTES = 64 << 10

_NOT_ALLOWED = "address not allowed"
"""A kube-apiserver's message for loopback and link-local addresses, which it refuses to proxy to."""

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


def page(keeper: str) -> str:
    """Return the text of :data:`PAGE`."""
    return f"ok {keeper}"


def probe_routes(keeper: str) -> Callable[[Hop], list[Route]]:
    """
    Return a function that creates the route of :data:`PAGE`; it requires the same permission as
    /healthz.
    """

    def make(hop: Hop) -> list[Route]:
        async def answer(context: RequestContext) -> None:
            await hop.admit(context)
            responses.respond_text(context.request, 200, page(keeper))

        return [Route(["GET"], PAGE, answer)]

    return make


class RootProbe:
    """
    Probes the path from the root to us.

    :param config: returns the current configuration of the root's API server.
    :param keeper: the expected content of :data:`PAGE`.
    """

    def __init__(self, config: Callable[[], ClientConfig], reactor: Any, keeper: str) -> None:
        self._config, self._reactor, self._keeper = config, reactor, keeper

    async def look(self, node: str, own: Address | None, port: int) -> ConditionValue:
        """
        Return the condition; never raise.

        :param own: our address, dialled directly if the root refuses the probe.
        :param port: the published port.
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
        """
        Dial the address ourselves.  This proves less: the root may take another route, and would
        require a certificate.
        """
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
        """Version of the leaf's API server, such as ``v1.33.1``; empty until known."""

    async def look(self) -> tuple[ConditionValue, ConditionValue]:
        """Return whether the leaf is ready, and whether we may open streams there; never raise."""
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
        """Return a namespace in which streams are likely: permissions may be limited to namespaces."""
        ours = next(iter(self._leaf.pods()), None)
        if ours is not None:
            return ours.namespace
        try:
            return str(self._leaf.namespace("default"))
        except NotFound:  # another namespace of the root maps to it; any will do for the probe
            return "default"


def _unreachable(reason: str, message: str) -> tuple[ConditionValue, ConditionValue]:
    """Return the conditions of an unreachable leaf: what it would permit is unknown."""
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
    """Return whether the missing object is the Pod; a machine shown as Pod has another kind in its leaf."""
    return details.get("kind") == PODS.resource.plural or details.get("name") == _NO_POD


async def fetch(config: ClientConfig, target: str, reactor: Any, peer: str) -> Answer:
    """
    Send one GET on a new connection: an old connection proves nothing about the path now.

    :raises APIError: no answer (502, 504).
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

"""
Whether a console could be opened now: found out by going the way, as far as that disturbs nobody.

From the root to us: the root is asked for a page of ours by its own ``nodes/NAME/proxy``.  It
dials then what the Node publishes, with the credentials that it dials for exec with, and the page says
which node server answered.  A root does that neither for whoever may not ``get nodes/proxy`` nor for
addresses that are no global ones; then our own look at the address is told, as less than an answer.

From us to a leaf: ``/readyz``, and an upgrade for exec of a Pod whose name no Pod can have.
The API server decides first who asks and what they may, then looks for the Pod: its 404 says
that a stream would have been let through.

Sources: ``pkg/registry/core/node/strategy.go`` (``ResourceLocation``), ``pkg/registry/core/pod/rest/
subresources.go``, ``apiserver/pkg/endpoints/installer.go`` of Kubernetes.
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
from twisted_exec.streaming.http import site
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade

PAGE = "/healthz/nodeserver"
"""Who gets this page has reached a node server; it holds its keeper's name (and ``ok``)."""
SECONDS = 8.0
"""For each request; a probe has three at most."""
_LIMIT_BYTES = 64 << 10

_NOT_ALLOWED = "address not allowed"
"""A kube-apiserver's word for loopback and link-local addresses: it proxies there not at all."""

# Letters and digits that no object's name has: nobody can make such a Pod.
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
    """The text of :data:`PAGE`."""
    return f"ok {keeper}"


def probe_routes(keeper: str) -> Callable[[Hop], list[Route]]:
    """The route of :data:`PAGE`, for whoever may see whether this Node is well."""

    def make(hop: Hop) -> list[Route]:
        async def answer(request: site.Request, names: Mapping[str, str]) -> None:
            await hop.admit(request)
            site.respond_text(request, 200, page(keeper))

        return [Route(["GET"], PAGE, answer)]

    return make


class RootProbe:
    """
    The way from the root to us.

    :param config: the root's API server and who we are there, as of now.
    :param keeper: what :data:`PAGE` is to say.
    """

    def __init__(self, config: Callable[[], ClientConfig], reactor: Any, keeper: str) -> None:
        self._config, self._reactor, self._keeper = config, reactor, keeper

    async def look(self, node: str, own: Address | None, port: int) -> ConditionValue:
        """
        :param own: an address of ours, to be dialled when the root must not be asked.
        :param port: that the Node publishes.
        :return: the condition; never raises.
        """
        target = f"/api/v1/nodes/{quote(node, safe='')}/proxy{PAGE}"
        try:
            code, _, body = await fetch(self._config(), target, self._reactor, "the root")
        except (APIError, KubeConfigError) as error:
            return ("Unknown", "RootNotAsked", _line(error))
        verdict = root_verdict(code, body, page(self._keeper))
        if verdict[0] != "Unknown" or own is None:
            return verdict
        return await self._fallen_back(verdict, own, port)

    async def _fallen_back(
        self, verdict: ConditionValue, own: Address, port: int
    ) -> ConditionValue:
        """Less than the root's word: it may come another way, and would ask for a certificate."""
        host = f"[{own[1]}]" if ":" in own[1] else own[1]
        config = ClientConfig(f"https://{host}:{port}", insecure_skip_tls_verify=True)
        try:
            await fetch(config, PAGE, self._reactor, "the published address")
        except (APIError, KubeConfigError) as error:
            return ("False", "AddressUnreachable", f"{verdict[2]}; {_line(error)}")
        return ("Unknown", verdict[1], f"{verdict[2]}; seen from here, {own[1]}:{port} answers")


def root_verdict(code: int, body: bytes, expected: str) -> ConditionValue:
    """What an answer of the root's proxy means."""
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
        # What the other end of the proxy said: it is there.
        if code in (401, 403):
            return ("False", "RootRefused", f"we do not let the root's API server in: {text}")
        return ("False", "AnotherAnswers", f"whoever answers at the address says {code} {text}")
    if code == 403:
        return ("Unknown", "NotPermitted", f"the root does not let us try: {status.message}")
    if code in (401, 404, 405, 429) or _NOT_ALLOWED in status.message:
        return ("Unknown", "RootNotAsked", f"the root does not try: {status.message}")
    return ("False", "RootCannotReachUs", status.message)


class LeafProbe:
    """The way from us to one leaf."""

    def __init__(self, leaf: ILeaf, reactor: Any) -> None:
        self._leaf, self._reactor = leaf, reactor
        self.version = ""
        """Of the leaf's API server, as ``v1.33.1``; empty until it was told."""

    async def look(self) -> tuple[ConditionValue, ConditionValue]:
        """
        :return: whether the leaf is ready, and whether it lets us open streams; never raises.
        """
        try:
            config = self._leaf.config()
        except (APIError, KubeConfigError) as error:
            return _away("CredentialsUnusable", _line(error))
        try:
            code, _, body = await fetch(config, "/readyz", self._reactor, "the leaf")
        except (APIError, KubeConfigError) as error:
            return _away("LeafUnreachable", _line(error))
        ready = leaf_verdict(code, body)
        if ready[0] != "True":
            return _away(*ready[1:])
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
        """One where a stream is likely to be asked for: permissions may be a namespace's."""
        ours = next(iter(self._leaf.pods()), None)
        if ours is not None:
            return ours.namespace
        try:
            return str(self._leaf.namespace("default"))
        except NotFound:  # the leaf's is another's of the root; it will do to ask about
            return "default"


def _away(reason: str, message: str) -> tuple[ConditionValue, ConditionValue]:
    """What a leaf that does not answer would allow nobody knows."""
    return ("False", reason, message), ("Unknown", reason, message)


def leaf_verdict(code: int, body: bytes) -> ConditionValue:
    """What an answer of ``/readyz`` means."""
    message = _told(code, body)
    if code == 401:
        return ("False", "CredentialsRefused", f"the leaf does not know us: {message}")
    if code >= 500 or code == 429:
        return ("False", "LeafNotReady", f"the leaf answers {code}: {message}")
    if 300 <= code < 400:
        return ("False", "NoAPIServer", f"the leaf answers {code}, which no API server does")
    if code == 403:
        return ("True", "LeafAnswers", "the leaf answers; we may not see whether it is ready")
    return ("True", "LeafAnswers", "")


def exec_verdict(code: int, body: bytes) -> ConditionValue:
    """What a refusal of exec of a Pod that cannot be means."""
    message, status = _told(code, body), _status(code, body)
    if code == 404 and status is not None and _is_of_the_pod(status.details):
        return ("True", "ExecAllowed", "")
    if code == 401:
        return ("False", "CredentialsRefused", f"the leaf does not know us: {message}")
    if code == 403:
        return ("False", "ExecForbidden", f"the leaf does not let us open streams: {message}")
    if status is None:
        return ("False", "NoAPIServer", f"no API server answers an upgrade with {code}: {message}")
    return ("False", "ExecRefused", f"the leaf answers {code}: {message}")


def _is_of_the_pod(details: Mapping[str, Any]) -> bool:
    """It is the Pod that is not there; what is shown as one may be called otherwise in its leaf."""
    return details.get("kind") == PODS.resource.plural or details.get("name") == _NO_POD


async def fetch(config: ClientConfig, target: str, reactor: Any, peer: str) -> Answer:
    """
    One GET on a connection of its own: a way is not known to be open because it was.

    :raises APIError: no answer (502, 504).
    """
    transport = HTTPTransport(config, reactor, connect_seconds=SECONDS, agent=PROGRAM, peer=peer)
    try:
        return await transport.collect(
            Request("GET", target), timeout_seconds=SECONDS, limit_bytes=_LIMIT_BYTES
        )
    finally:
        transport.close()  # nobody has to wait for a connection that is idle


def _status(code: int, body: bytes) -> APIError | None:
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return None
    return from_status(status, code)


def _told(code: int, body: bytes) -> str:
    status = _status(code, body)
    text = status.message if status is not None else body.decode("utf-8", "replace")
    return one_line(text)[:300] or str(code)


def _line(error: Exception) -> str:
    return one_line(error.message if isinstance(error, APIError) else str(error))

"""
What the API server of a cluster of kind says of itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.kinds import NAMESPACES, NODES
from twisted_exec.api.spaces import MANAGER, OWNER
from twisted_exec.api.status import BadGateway
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport.http import HTTPTransport, Request

PROBE_SECONDS = 5.0
_MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class Identity:
    """
    :param uid: of the namespace ``kube-system``: no two clusters have the same.
    :param owner: the mark that its nodes bear, or empty.
    """

    uid: str
    owner: str


class Server:
    """One API server, over connections that are kept."""

    def __init__(self, config: ClientConfig, reactor: Any) -> None:
        self._http = HTTPTransport(config, reactor, connect_seconds=PROBE_SECONDS, agent=MANAGER)

    async def ready(self) -> None:
        """
        Ask ``/readyz``: kubeconfigs of kind can be had long before their clusters can be used.

        :raises APIError: it cannot be reached, or says that it is not.
        """
        await self._body("/readyz")

    async def identity(self) -> Identity:
        """
        :raises APIError: that cannot be had just now.
        """
        system = await self._object(NAMESPACES.resource.path(name="kube-system"))
        nodes = (await self._object(NODES.resource.path())).get("items")
        uid = (system.get("metadata") or {}).get("uid")
        found = {_mark(node) for node in nodes} if isinstance(nodes, list) else set()
        if not uid or not isinstance(uid, str) or not found:
            raise BadGateway("the API server knows no Nodes yet")
        # All of its nodes bear it, or it is not ours: nodes may be joined by anybody.
        return Identity(uid, found.pop() if len(found) == 1 else "")

    def close(self) -> Deferred[None]:
        """Let go of its connections; fires when they are closed."""
        return self._http.close()

    async def _object(self, target: str) -> dict[str, Any]:
        try:
            told = json.loads(await self._body(target))
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise BadGateway(f"the API server answers {target} with no object")
        return told

    async def _body(self, target: str) -> bytes:
        code, _headers, body = await self._http.collect(
            Request("GET", target, repeatable=True),
            timeout_seconds=PROBE_SECONDS,
            limit_bytes=_MAX_BYTES,
        )
        if code != 200:
            raise BadGateway(f"the API server answers {target} with {code}")
        return body


def _mark(node: Any) -> str:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return str(labels.get(OWNER) or "") if isinstance(labels, dict) else ""

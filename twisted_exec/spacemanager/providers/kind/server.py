"""The API server of a cluster: a probe of it, and the owner that a label of its nodes names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.kinds import NAMESPACES, NODES
from twisted_exec.api.spaces import MANAGER, OWNER
from twisted_exec.api.status import BadGateway
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import HTTPTransport, Request

PROBE_SECONDS = 5.0
_MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class ClusterIdentity:
    """
    Identity of a cluster.

    :param uid: UID of the namespace ``kube-system``.
    """

    uid: str
    owner: str


class ClusterServer:
    """One API server, with persistent connections."""

    def __init__(self, config: ClientConfig, reactor: Any) -> None:
        self._http = HTTPTransport(config, reactor, connect_seconds=PROBE_SECONDS, agent=MANAGER)

    async def ready(self) -> None:
        """Check ``/readyz``: kind returns kubeconfigs long before clusters are usable."""
        await self._body("/readyz")

    async def identity(self) -> ClusterIdentity:
        system = await self._object(NAMESPACES.resource.path(name="kube-system"))
        nodes = (await self._object(NODES.resource.path())).get("items")
        uid = (system.get("metadata") or {}).get("uid")
        owners = {_mark(node) for node in nodes} if isinstance(nodes, list) else set()
        if not uid or not isinstance(uid, str) or not owners:
            raise BadGateway("the API server knows no Nodes yet")
        # All nodes must have the label, because anyone may join nodes to a cluster.
        return ClusterIdentity(uid, owners.pop() if len(owners) == 1 else "")

    def close(self) -> Deferred[None]:
        """Close the connections; fires when they are closed."""
        return self._http.close()

    async def _object(self, target: str) -> dict[str, Any]:
        try:
            obj = json.loads(await self._body(target))
        except (ValueError, RecursionError):
            obj = None
        if not isinstance(obj, dict):
            raise BadGateway(f"the API server answers {target} with no object")
        return obj

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

"""
Kubelets of Nodes: their addresses, and our credentials for them.

A kubelet is dialled with our client certificate; its certificate is always verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.kinds import ADDRESS_TYPES, NODES, Object
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.consoles.poollets import no_address, usable_addresses
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import TLSConfigError

KUBELET_PORT = 10250
"""Port of a kubelet whose Node reports none."""
_LARGEST_PORT = 65535


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

"""
Connections to kubelets, and to servers that present themselves as one.

As in kube-apiserver: the first address of a preferred type only, the reported port, and our client
certificate, which is all that the kubelet learns about the client.  Unlike there, the kubelet's
certificate is always verified, by the name or address that was dialled.

Source: ``pkg/kubelet/client/kubelet_client.go`` and ``pkg/util/node/node.go`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

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
class KubeletAccess:
    """
    Files and settings for connections to kubelets; paths of PEM files.

    :param certificate: client certificate for kubelets.
    :param ca: CA of kubelets' serving certificates.
    """

    certificate: str
    key: str
    ca: str
    address_types: Sequence[str] = ADDRESS_TYPES
    seconds: float = 5.0

    def kubelets(self, clock: IReactorTime) -> Kubelets:
        """Nothing is read before :meth:`ClientCredentials.load`."""
        credentials = ClientCredentials(
            ca=self.ca, certificate=self.certificate, key=self.key, clock=clock
        )
        return Kubelets(credentials, self.address_types, self.seconds)


@dataclass(frozen=True)
class Kubelet:
    """
    One kubelet.

    :param label: its name in messages.
    :param host: value of the ``Host`` header.
    """

    label: str
    endpoint: IStreamClientEndpoint
    host: bytes


@dataclass(frozen=True)
class Kubelets:
    """
    Finds kubelets of Nodes.

    :param credentials: our client certificate, and the CA of kubelets.
    :param seconds: time limit to connect, TLS included, and again for the response.
    """

    credentials: ClientCredentials
    address_types: Sequence[str] = ADDRESS_TYPES
    seconds: float = 5.0

    async def of(self, node: str, storage: IStorage, reactor: Any) -> Kubelet:
        """
        Return the kubelet of a Node.

        :param node: the Node's name.
        :raises NotFound: there is no such Node.
        :raises ServiceUnavailable: it reports no usable address.
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
        return Kubelet(label, endpoint, at.encode("ascii" if at.isascii() else "idna"))


def port_of(node: Object) -> int:
    """The port that the Node reports for its kubelet, or the default."""
    endpoints = node.get("status", {}).get("daemonEndpoints", {})
    port = endpoints.get("kubeletEndpoint", {}).get("Port", 0)
    return port if 0 < port <= _LARGEST_PORT else KUBELET_PORT

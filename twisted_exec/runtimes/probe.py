"""
The readiness probe of the address of the machine runtime interface.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from twisted_exec.iri.target import Target
from twisted_exec.tls.endpoints import unix_client_endpoint


async def probe_iri(target: Target, reactor: Any) -> object:
    """
    Connect to the address where this program serves the runtime interface.

    :raises Exception: the connection failed.
    """
    if target.is_unix:
        endpoint: Any = unix_client_endpoint(reactor, target.path)
    else:
        endpoint = HostnameEndpoint(reactor, _reachable(target.host), target.port)
    connection: Any = await connectProtocol(endpoint, Protocol())
    connection.transport.abortConnection()
    return None


def _reachable(host: str) -> str:
    """Translate the wildcard address of a listener into one to connect to."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)

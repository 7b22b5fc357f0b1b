"""
A probe of the door that every program with a runtime in front has.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from twisted_exec.iri.target import Target
from twisted_exec.tls.endpoints import unix_client_endpoint


async def probe_iri(target: Target, reactor: Any) -> object:
    """:raises Exception: nobody can connect to where the runtime interface is served."""
    if target.is_unix:
        endpoint: Any = unix_client_endpoint(reactor, target.path)
    else:
        endpoint = HostnameEndpoint(reactor, _reachable(target.host), target.port)
    connection: Any = await connectProtocol(endpoint, Protocol())
    connection.transport.abortConnection()
    return None


def _reachable(host: str) -> str:
    """An address to connect to where one listens on ``host``, which may be all of them."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)

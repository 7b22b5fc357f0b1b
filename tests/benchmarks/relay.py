"""
One hop of ours, alone: TLS in, splice, TLS out.  What a middle hop is after the
101, with nothing else around it.

``python -m tests.benchmarks.relay DIRECTORY BACKEND_PORT [stock]`` prints its
port.  With ``stock`` the same splice runs over Twisted's own TLS endpoints.
"""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    wrapClientTLS,
    wrapServerTLS,
)
from twisted.internet.interfaces import IStreamClientEndpoint, IStreamServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from twisted_exec.streaming.splice import Splice
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint
from twisted_exec.tls.server import ServerTLS


class Relay(Factory):
    """Joins every connection to one of its own to the backend."""

    noisy = False

    def __init__(self, backend: IStreamClientEndpoint) -> None:
        self._backend = backend

    def buildProtocol(self, address: object) -> Protocol:
        splice = Splice(reactor, lambda reason: None)
        connecting = self._backend.connect(Factory.forProtocol(lambda: splice.machine))

        def refused(reason: Failure) -> None:
            splice.cut("no backend")

        connecting.addErrback(refused)
        return splice.user


def endpoints(
    directory: Path, backend_port: int, stock: bool
) -> tuple[IStreamServerEndpoint, IStreamClientEndpoint]:
    """Return the endpoints to listen and to connect: ours, or Twisted's own if ``stock``."""
    server = ServerTLS(str(directory / "server.crt"), str(directory / "server.key"), clock=reactor)
    client = ClientTLS("localhost", ca_pem=(directory / "ca.crt").read_bytes())
    if stock:
        server.load()
        return (
            wrapServerTLS(server, TCP4ServerEndpoint(reactor, 0, 1024, "127.0.0.1")),
            wrapClientTLS(client, TCP4ClientEndpoint(reactor, "127.0.0.1", backend_port)),
        )
    return (
        server_endpoint(reactor, "tcp:0:interface=127.0.0.1:backlog=1024", server),
        client_endpoint(reactor, "127.0.0.1", backend_port, client),
    )


async def main(directory: Path, backend_port: int, stock: bool) -> None:
    listen, connect = endpoints(directory, backend_port, stock)
    port = await listen.listen(Relay(connect))
    print(port.getHost().port, flush=True)


if __name__ == "__main__":
    Deferred.fromCoroutine(
        main(Path(sys.argv[1]), int(sys.argv[2]), "stock" in sys.argv[3:])
    ).addErrback(lambda reason: reason.printTraceback())
    reactor.run()

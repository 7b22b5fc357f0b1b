"""
One hop of ours, alone: TLS in, splice, TLS out.  What a middle hop is after the
101, with nothing else around it.

``python -m tests.benchmarks.relay DIRECTORY BACKEND_PORT [stock]`` prints its
port.  With ``stock`` the same splice runs over Twisted's own TLS endpoints.
It starts as all programs do, so it has their loop and collection of garbage.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    wrapClientTLS,
    wrapServerTLS,
)
from twisted.internet.interfaces import IStreamClientEndpoint, IStreamServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from twisted_exec.program.service import AsyncService
from twisted_exec.program.start import make_service
from twisted_exec.streaming.splice import Splice
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint
from twisted_exec.tls.server import ServerTLS

reactor: Any = _reactor


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


class RelayService(AsyncService):
    """The relay as a program's service, which prints its port."""

    label = "relay"

    def __init__(self, directory: Path, backend_port: int, stock: bool) -> None:
        super().__init__()
        self._listen, connect = endpoints(directory, backend_port, stock)
        self._relay = Relay(connect)

    async def start(self) -> None:
        """Listen."""
        port: Any = await self._listen.listen(self._relay)
        print(port.getHost().port, flush=True)


def main(directory: Path, backend_port: int, stock: bool) -> None:
    service = make_service("relay", lambda _: RelayService(directory, backend_port, stock))
    reactor.callWhenRunning(service.startService)
    reactor.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "stock" in sys.argv[3:])

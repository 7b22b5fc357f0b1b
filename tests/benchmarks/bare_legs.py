"""
Bare TLS legs: what an idle TLS connection costs without anything above it.

``python -m tests.benchmarks.bare_legs server PKI`` accepts, and prints its port; ``... client PKI
PORT COUNT`` connects that often, and prints ``ready`` before and after it does.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from twisted_exec.tls.client import ClientCredentials
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint
from twisted_exec.tls.pki.directory import PKI
from twisted_exec.tls.server import ServerTLS

WARM = 20


class _Silent(Protocol):
    """Reads and writes nothing, except one byte each way: a handshake has more than one flight."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(b"x")


async def _serve(pki: PKI) -> None:
    pair = pki.pair("apiserver")
    tls = ServerTLS(pair.certificate, pair.key, client_cas=[pki.forwarding_ca], clock=reactor)
    endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1:backlog=4096", tls)
    port: Any = await endpoint.listen(Factory.forProtocol(_Silent))
    print(port.getHost().port, flush=True)


async def _connect(pki: PKI, port: int, count: int) -> None:
    pair = pki.pair("apiserver-forwarding")
    credentials = ClientCredentials(
        ca=pki.serving_ca, certificate=pair.certificate, key=pair.key, clock=reactor
    )
    opened = []
    for number in range(count + WARM):
        if number == WARM:
            print("ready", flush=True)
            await deferred_line()
        endpoint = client_endpoint(
            reactor, "127.0.0.1", port, credentials.to("127.0.0.1"), timeout_seconds=30
        )
        opened.append(await endpoint.connect(Factory.forProtocol(_Silent)))
    print("ready", flush=True)


def deferred_line() -> Deferred[None]:
    """Fires when a line has come on standard input."""
    from twisted.internet.threads import deferToThread

    return deferToThread(sys.stdin.readline).addCallback(lambda _: None)  # type: ignore[no-any-return]


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    role, pki, *rest = sys.argv[1:]
    work = _serve(PKI(pki)) if role == "server" else _connect(PKI(pki), *map(int, rest))

    def failed(failure: Failure) -> None:
        failure.printTraceback()
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(work).addErrback(failed))
    reactor.run()


if __name__ == "__main__":
    main()

"""
Real listening places for tests: TCP, UNIX and TLS on loopback, chosen by name.
"""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.trial.unittest import TestCase

from tests.chain import PATIENCE_SECONDS
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint, unix_client_endpoint
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import ServerTLS

KINDS = ("tcp", "unix", "tls")


@lru_cache(maxsize=1)
def pki() -> tuple[bytes, bytes, bytes]:
    """Return the CA, and a server's certificate and key."""
    authority = Authority.create("streaming tests")
    issued = authority.issue_server(["localhost", "127.0.0.1"], common_name="localhost")
    return authority.certificate_pem, issued.certificate_pem, issued.key_pem


class PlacesTestCase(TestCase):
    """A test on real sockets; it closes what it opened."""

    async def listen(self, kind: str, factory: IProtocolFactory) -> IStreamClientEndpoint:
        """Listen; the endpoint connects there, as our programs do."""
        tls = self.server_tls() if kind == "tls" else None
        directory = self.directory() if kind == "unix" else ""
        path = os.path.join(directory, "s")
        where = f"unix:{path}" if kind == "unix" else "tcp:0:interface=127.0.0.1"
        port: Any = await server_endpoint(reactor, where, tls).listen(factory)
        self.addCleanup(port.stopListening)
        if kind == "unix":
            return unix_client_endpoint(reactor, path, timeout_seconds=PATIENCE_SECONDS)
        self.port = port.getHost().port
        client_tls = ClientTLS("localhost", ca_pem=pki()[0]) if tls else None
        return client_endpoint(
            reactor, "127.0.0.1", self.port, client_tls, timeout_seconds=PATIENCE_SECONDS
        )

    def server_tls(self, *, resumable: bool = False) -> ServerTLS:
        """Return the settings of a server on this host."""
        directory = self.directory()
        paths = []
        for name, content in zip(("crt", "key"), pki()[1:], strict=True):
            paths.append(os.path.join(directory, name))
            with open(paths[-1], "wb") as file:
                file.write(content)
        return ServerTLS(paths[0], paths[1], resumable=resumable, clock=reactor)

    def directory(self) -> str:
        """Return an empty directory, with a short path."""
        directory = tempfile.TemporaryDirectory(prefix="te")
        self.addCleanup(directory.cleanup)
        return directory.name

    async def until(self, condition: Any) -> None:
        """Turn the reactor until ``condition()``; the test's timeout bounds it."""
        while not condition():
            await turn()


def turn() -> Deferred[None]:
    """One turn of the reactor."""
    done: Deferred[None] = Deferred()
    reactor.callLater(0, done.callback, None)  # type: ignore[attr-defined]
    return done

"""
A small identity provider: a peer for tests, and for trying things by hand.
"""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from tests.auth import forge
from tests.tls.support import authority, server_identity, write
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS

DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/keys"


class _Site(Site):
    """Tracks its connections, so that a test can wait until they are closed."""

    noisy = False

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.lost: list[Deferred[None]] = []

    def buildProtocol(self, addr: Any) -> Any:
        channel: Any = super().buildProtocol(addr)
        lost, connection_lost = Deferred[None](), channel.connectionLost

        def gone(reason: Any) -> None:
            connection_lost(reason)
            lost.callback(None)

        channel.connectionLost = gone
        self.lost.append(lost)
        return channel


class Provider(Resource):
    """
    OpenID Connect provider that serves :attr:`answers`; by default its key is ``k1``.

    :ivar url: of the issuer, once it listens.
    :ivar asked: the paths of all requests.
    :ivar answers: by path, the answer that replaces the default: a code, headers, a body.
    :ivar silent: paths that get no answer.
    """

    isLeaf = True
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[dict[str, Any]] = [forge.jwk(forge.rsa_key())]
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.silent: set[str] = set()
        self._port: IListeningPort | None = None

    async def listen(self, reactor: Any, directory: str, port: int = 0) -> None:
        """Listen on loopback, as ``localhost`` of the authority ``serving``."""
        os.makedirs(directory, exist_ok=True)
        shown = server_identity("localhost")
        tls = ServerTLS(
            write(directory, "idp.crt", shown.certificate_pem),
            write(directory, "idp.key", shown.key_pem),
            client_cas=[],
            clock=reactor,
        )
        endpoint = server_endpoint(reactor, f"tcp:{port}:interface=127.0.0.1", tls)
        self._site = _Site(self)
        self._port = await endpoint.listen(self._site)
        host: Any = self._port.getHost()
        self.url = self.url or f"https://localhost:{host.port}"

    async def stop(self) -> None:
        """Stop listening, and wait until all connections are closed."""
        if self._port is not None:
            port, self._port = self._port, None
            stopped: Any = port.stopListening()
            if isinstance(stopped, Deferred):
                await stopped
            for lost in self._site.lost:
                await lost

    @property
    def ca_pem(self) -> bytes:
        """PEM of the CA that signed its certificate."""
        return authority("serving").certificate_pem

    def token(self, **claims: Any) -> bytes:
        """Return a token of this issuer."""
        return forge.token({"iss": self.url, **claims})

    def render_GET(self, request: Request) -> Any:
        """Record the path and answer it."""
        path = request.path.decode()
        self.asked.append(path)
        if path in self.silent:
            return NOT_DONE_YET
        told = {
            DISCOVERY: {"issuer": self.url, "jwks_uri": f"{self.url}{KEYS}"},
            KEYS: {"keys": self.keys},
        }.get(path)
        default = (200 if told else 404, {}, json.dumps(told).encode())
        code, headers, body = self.answers.get(path, default)
        request.setResponseCode(code)
        for name, value in headers.items():
            request.setHeader(name.encode(), value.encode())
        return body

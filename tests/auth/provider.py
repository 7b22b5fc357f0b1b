"""
A small identity provider: a peer for tests, and for trying things by hand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import Any
from urllib.parse import urlencode

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
AUTHORIZATION, TOKEN = "/authorize", "/token"


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
    :ivar claims: of the user who logs in at the authorization endpoint, which asks for nothing.
    """

    isLeaf = True
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[dict[str, Any]] = [forge.jwk(forge.rsa_key())]
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.silent: set[str] = set()
        self.claims: dict[str, Any] = {"sub": "jane"}
        self._codes: dict[str, dict[str, str]] = {}
        self._last_code = 0
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
        if path == AUTHORIZATION and path not in self.answers:
            return self._authorize(request)
        told = {
            DISCOVERY: {
                "issuer": self.url,
                "jwks_uri": f"{self.url}{KEYS}",
                "authorization_endpoint": f"{self.url}{AUTHORIZATION}",
                "token_endpoint": f"{self.url}{TOKEN}",
            },
            KEYS: {"keys": self.keys},
        }.get(path)
        default = (200 if told else 404, {}, json.dumps(told).encode())
        code, headers, body = self.answers.get(path, default)
        request.setResponseCode(code)
        for name, value in headers.items():
            request.setHeader(name.encode(), value.encode())
        return body

    def _authorize(self, request: Request) -> bytes:
        """Log the user in, and send their browser back with a code."""
        query = _texts(request)
        back = urlencode({"code": self.code(query), "state": query["state"]})
        request.redirect(f"{query['redirect_uri']}?{back}".encode())
        return b""

    def code(self, query: dict[str, str]) -> str:
        """Return a code for the user, who was sent to the authorization endpoint with this query."""
        self._last_code += 1
        code = f"code-{self._last_code}"
        self._codes[code] = query
        return code

    def render_POST(self, request: Request) -> bytes:
        """The token endpoint: exchange a code, once, for its verifier."""
        path = request.path.decode()
        self.asked.append(path)
        if path in self.answers:
            code, _, body = self.answers[path]
            request.setResponseCode(code)
            return body
        form = _texts(request)
        begun = self._codes.pop(form.get("code", ""), {})
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        same = ("client_id", "redirect_uri")
        if (
            form.get("grant_type") != "authorization_code"
            or begun.get("code_challenge_method") != "S256"
            or begun.get("code_challenge") != challenge
            or any(begun.get(name) != form.get(name) for name in same)
        ):
            request.setResponseCode(400)
            return b'{"error": "invalid_grant", "error_description": "unknown code"}'
        now = int(time.time())
        claims = {"aud": form["client_id"], "iat": now, "exp": now + 600, **self.claims}
        if "nonce" in begun:
            claims["nonce"] = begun["nonce"]
        return json.dumps({"id_token": self.token(**claims).decode()}).encode()


def _texts(request: Request) -> dict[str, str]:
    args: Any = request.args
    return {name.decode(): values[0].decode() for name, values in args.items()}

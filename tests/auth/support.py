"""
Requests with credentials, over a real handshake that needs no socket.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from OpenSSL import SSL
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from tests.tls.support import authority, server_identity, write
from twisted_exec.auth.credentials import presented
from twisted_exec.auth.interfaces import PresentedCredentials
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.server import ServerTLS
from twisted_exec.wire.upgrade import HeaderSet

DECLARED = IDENTITY_HEADERS


class _Transport:
    def __init__(self, handle: SSL.Connection | None) -> None:
        self.getHandle = lambda: handle


class _Channel:
    def __init__(self, transport: _Transport) -> None:
        self.transport = transport


def credentials(headers: Mapping[str, Sequence[str]]) -> PresentedCredentials:
    """The credentials of a request without TLS."""
    return presented(FakeRequest(headers, None), DECLARED)  # type: ignore[arg-type]


class FakeRequest:
    """The parts of a request that carry credentials: headers, and the connection's handle."""

    credentials = None
    is_forwarded = False
    client_host = "127.0.0.1"

    def __init__(self, headers: Mapping[str, Sequence[str]], handle: SSL.Connection | None) -> None:
        self.requestHeaders = Headers(
            {
                name.encode("latin-1"): [each.encode("utf-8", "surrogateescape") for each in lines]
                for name, lines in headers.items()
            }
        )
        self.channel = _Channel(_Transport(handle))
        self.subject = Subject("s-0")

    def learn(self, **facts: str) -> None:
        """As that of a request."""
        self.subject = replace(self.subject, **facts)


class CredentialsCase(SynchronousTestCase):
    """A server that asks for certificates of ``users`` and ``forwarding``."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.clock = Clock()
        shown = server_identity("localhost")
        self.users_ca = self.write("users.crt", authority("users").certificate_pem)
        self.forwarding_ca = self.write("forwarding.crt", authority("forwarding").certificate_pem)
        self._server = ServerTLS(
            self.write("tls.crt", shown.certificate_pem),
            self.write("tls.key", shown.key_pem),
            client_cas=[self.users_ca, self.forwarding_ca],
            clock=self.clock,
        )

    def write(self, name: str, content: bytes) -> str:
        """A file of the test's own."""
        return write(self.directory, name, content)

    def request(
        self, headers: Mapping[str, Sequence[str]] | None = None, shown: Issued | None = None
    ) -> Any:
        """
        A request.

        :param shown: the client certificate of its connection; without, the
            connection has TLS and no client certificate.
        """
        return FakeRequest(headers or {}, self._handshaken(shown))

    def credentials(
        self,
        headers: Mapping[str, Sequence[str]] | None = None,
        shown: Issued | None = None,
        *,
        declared: HeaderSet = DECLARED,
    ) -> PresentedCredentials:
        """The credentials of :meth:`request`, with the headers that authenticators declare."""
        return presented(self.request(headers, shown), declared)

    def plain_request(self, headers: Mapping[str, Sequence[str]] | None = None) -> Any:
        """A request over a connection without TLS."""
        return FakeRequest(headers or {}, None)

    def _handshaken(self, shown: Issued | None) -> SSL.Connection:
        certificate, key = (shown.certificate_pem, shown.key_pem) if shown else (b"", b"")
        tls = ClientTLS(
            "localhost",
            ca_pem=authority("serving").certificate_pem,
            certificate_pem=certificate,
            key_pem=key,
        )
        protocol: Any = type("Protocol", (), {})()
        client = tls.clientConnectionForTLS(protocol)
        server = self._server.serverConnectionForTLS(protocol)
        client.set_connect_state()
        server.set_accept_state()
        for _ in range(4):
            for end, other in ((client, server), (server, client)):
                try:
                    end.do_handshake()
                except SSL.WantReadError:
                    pass
                _pump(end, other)
        return server


def _pump(source: SSL.Connection, target: SSL.Connection) -> None:
    try:
        while True:
            target.bio_write(source.bio_read(1 << 16))
    except SSL.WantReadError:
        pass

"""
TLS as a server: certificate files that reload, optional client certificates.

A context cannot change after its first connection, so a reload builds a new
context; open connections keep theirs.  With client CAs the server requests a
client certificate, but only *records* it during the handshake.  As in kube-apiserver,
a bad certificate identifies no user, and another authenticator (a token, say)
may still accept the request.  Nothing may trust the certificate before
:func:`twisted_exec.tls.peer.verify` has accepted it for the right CA.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IReactorTime
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading

HTTP_1_1 = b"http/1.1"
_DEEPEST_CHAIN = 4


@implementer(IOpenSSLServerConnectionCreator)
class ServerTLS:
    """
    A server's identity, from PEM files.

    The files are opened by :meth:`load` (a listening endpoint calls it) or by
    the first connection, and read again when they change.

    :param certificate: path of the certificate, followed by its intermediates.
    :param key: path of its private key, without a passphrase.
    :param client_cas: paths of the CAs of client certificates.  Without any, no client certificate
        is requested.
    :param published_cas: returns further CAs as PEM, which may change between calls.
    :param clock: times the checks for changed files.
    """

    def __init__(
        self,
        certificate: str,
        key: str,
        *,
        client_cas: Sequence[str] = (),
        published_cas: Callable[[], bytes] | None = None,
        clock: IReactorTime,
    ) -> None:
        self._certificate, self._key, self._client_cas = certificate, key, tuple(client_cas)
        self._told_cas, self._told = published_cas, b""
        self._context = Reloading((certificate, key, *client_cas), self._build, clock)

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: they cannot be used.
        """
        self._context.load()

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Return the OpenSSL connection of one protocol, with the newest valid context."""
        return SSL.Connection(self._current(), None)

    def server_engine(self, plug: socket.socket) -> SSL.Connection:
        """Likewise, on an accepted socket."""
        engine = SSL.Connection(self._current(), plug)
        engine.set_accept_state()
        return engine

    def _current(self) -> SSL.Context:
        context = self._context.get()
        if self._told_cas is None or self._told == self._told_cas():
            return context
        try:
            return self._context.load()
        except TLSConfigError:
            return context  # the file is being replaced; the next parse reports errors

    def _build(self, certificate: bytes, key: bytes, *client_cas: bytes) -> SSL.Context:
        context = pem.new_context(SSL.TLS_SERVER_METHOD)
        pem.present(
            context,
            certificate,
            key,
            f"certificate {self._certificate!r}",
            f"private key {self._key!r}",
        )
        # Clients choose their certificate by these names (Go sends none that
        # is not listed), so the names of all CAs go out.
        for path, content in zip(self._client_cas, client_cas, strict=True):
            for authority in pem.certificates(content, f"client CA {path!r}"):
                context.add_client_ca(authority)
        if self._told_cas is not None:
            self._told = self._told_cas()
            for authority in pem.certificates(self._told, "what client CAs there are"):
                context.add_client_ca(authority)
        if client_cas or self._told_cas is not None:
            context.set_session_id(os.urandom(16))
            # The signatures of an unknown peer's chain are verified during the handshake, so their
            # number is limited.
            context.set_verify_depth(_DEEPEST_CHAIN)
            context.set_verify(SSL.VERIFY_PEER, _record_only)
        context.set_alpn_select_callback(_select_http_1_1)
        return context


def _record_only(
    connection: SSL.Connection, certificate: X509, code: int, depth: int, ok: int
) -> bool:
    # The verdict against the right CA comes later, in peer.verify().
    return True


def _select_http_1_1(connection: SSL.Connection, offered: list[bytes]) -> Any:
    return HTTP_1_1 if HTTP_1_1 in offered else SSL.NO_OVERLAPPING_PROTOCOLS

"""
TLS as a server: certificate files that reload, and the certificates of clients.

With client CAs the server requests a client certificate, but only *records* it during the
handshake.  Code must not trust the certificate before :func:`verify` has accepted it, against the
CA that fits the purpose: users and forwarding proxies have different CAs.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import SSL
from OpenSSL.crypto import (
    X509,
    X509Store,
    X509StoreContext,
    X509StoreContextError,
    X509StoreFlags,
)
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IReactorTime
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from twisted_exec.tls import pem
from twisted_exec.tls.errors import (
    VALIDITY_CODES,
    OutsideValidity,
    TLSConfigError,
    VerificationError,
)
from twisted_exec.tls.files import Reloading

HTTP_1_1 = b"http/1.1"
_DEEPEST_CHAIN = 4
_LONGEST_CHAIN = 8
_KNOWN = 128
_peers: WeakKeyDictionary[SSL.Connection, PeerCertificate] = WeakKeyDictionary()
"""Our contexts refuse renegotiation, so the certificate of a connection does not change."""

_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


@implementer(IOpenSSLServerConnectionCreator)
class ServerTLS:
    """
    A server's identity, from PEM files.

    :param certificate: path of the certificate, followed by its intermediates.
    :param key: path of its private key, without a passphrase.
    :param client_cas: paths of the CAs of client certificates. Without any, and without
        ``published_cas``, no client certificate is requested.
    :param published_cas: returns further CAs as PEM, which may change; empty while they are not
        known.
    :param resumable: clients may resume sessions until the files or the CAs change. A resumed
        session has the client's certificate, but no intermediates.
    :param clock: times the checks for changed files.
    """

    def __init__(
        self,
        certificate: str,
        key: str,
        *,
        client_cas: Sequence[str] = (),
        published_cas: Callable[[], bytes] | None = None,
        resumable: bool = False,
        clock: IReactorTime,
    ) -> None:
        self._resumable = resumable
        self._certificate, self._key, self._client_cas = certificate, key, tuple(client_cas)
        self._published_cas, self._published_pem = published_cas, b""
        self._context = Reloading((certificate, key, *client_cas), self._build, clock)

    def load(self) -> None:
        """
        Read the certificate files now.

        :raises TLSConfigError: they cannot be used.
        """
        self._context.load()

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Return the OpenSSL connection of one protocol."""
        return SSL.Connection(self.context(), None)

    def server_engine(self, plug: socket.socket) -> SSL.Connection:
        """Return the OpenSSL connection on an accepted socket."""
        engine = SSL.Connection(self.context(), plug)
        engine.set_accept_state()
        return engine

    def context(self) -> SSL.Context:
        """Return the OpenSSL context of a new connection."""
        context = self._context.get()
        if self._published_cas is None or self._published_pem == self._published_cas():
            return context
        try:
            return self._context.load()
        except TLSConfigError:
            return context  # the file is being replaced; the next parse reports errors

    def is_current(self, transport: object) -> bool:
        """Return whether a new connection would have the certificate and CAs of this one."""
        handle = getattr(transport, "getHandle", lambda: None)()
        return isinstance(handle, SSL.Connection) and handle.get_context() is self.context()

    def _build(self, certificate: bytes, key: bytes, *client_cas: bytes) -> SSL.Context:
        context = pem.new_context(SSL.TLS_SERVER_METHOD, tickets=self._resumable)
        pem.use_certificate(
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
        if self._published_cas is not None:
            self._published_pem = self._published_cas()
            if self._published_pem:
                for authority in pem.certificates(self._published_pem, "what client CAs there are"):
                    context.add_client_ca(authority)
        if client_cas or self._published_cas is not None:
            # A server that verifies clients resumes no session without it
            # (SSL_CTX_set_session_id_context(3)). A random one ends resumption with this context.
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
    # The verdict against the right CA comes later, in verify().  As in kube-apiserver, a bad
    # certificate identifies no user, and another authenticator (a token, say) may still accept the
    # request.
    return True


def _select_http_1_1(connection: SSL.Connection, offered: list[bytes]) -> Any:
    # Only HTTP/1.1 has the upgrades of consoles.  A client that offers other protocols is not
    # refused: pyOpenSSL goes on without ALPN.
    return HTTP_1_1 if HTTP_1_1 in offered else SSL.NO_OVERLAPPING_PROTOCOLS


@dataclass(frozen=True)
class PeerCertificate:
    """
    The certificate that a peer presented. The peer holds its key; nothing else is verified.

    :param chain: the intermediates that the peer sent, without the leaf.
    """

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate's DER, lower-case hexadecimal."""
        return self.leaf.fingerprint(hashes.SHA256()).hex()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the leaf and its chain, 32 bytes."""
        summary = hashlib.sha256(bytes.fromhex(self.fingerprint))
        for each in self.chain:
            summary.update(each.fingerprint(hashes.SHA256()))
        return summary.digest()

    @cached_property
    def common_name(self) -> str:
        """The subject's only common name; empty when it has none or more than one."""
        names = self._subject(NameOID.COMMON_NAME)
        return names[0] if len(names) == 1 else ""

    @cached_property
    def organizations(self) -> tuple[str, ...]:
        """The subject's organizations, in their order."""
        return self._subject(NameOID.ORGANIZATION_NAME)

    @cached_property
    def authority(self) -> str:
        """
        Common name of the issuer of the last certificate that the peer sent, or its whole name.
        """
        issuer = (self.leaf, *self.chain)[-1].issuer
        names = issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(names[0].value) if len(names) == 1 else issuer.rfc4514_string()

    def _subject(self, kind: x509.ObjectIdentifier) -> tuple[str, ...]:
        attributes = self.leaf.subject.get_attributes_for_oid(kind)
        return tuple(each.value for each in attributes if isinstance(each.value, str))


def peer_certificate(transport: object) -> PeerCertificate | None:
    """
    Return the certificate that a connection's peer presented.

    :return: ``None`` without a readable certificate.
    """
    handle = getattr(transport, "getHandle", lambda: None)()
    if not isinstance(handle, SSL.Connection):
        return None
    peer = _peers.get(handle)
    if peer is None:
        peer = _read_peer(handle)
        if peer is not None:
            _peers[handle] = peer
    return peer


def _read_peer(handle: SSL.Connection) -> PeerCertificate | None:
    try:
        leaf = pem.peer_leaf(handle)
        # One more than verify() accepts, so that it can refuse; an unknown peer may send a hundred.
        sent = (handle.get_peer_cert_chain() or [])[: _LONGEST_CHAIN + 2]
        chain = [each.to_cryptography() for each in sent]
        if leaf is None:
            return None
        # On the client's side OpenSSL's chain contains the leaf (SSL_get_peer_cert_chain(3)).
        return _known(leaf, tuple(each for each in chain if each != leaf))
    except pem.UNREADABLE:
        return None  # OpenSSL accepts encodings that cryptography's parser refuses


@lru_cache(maxsize=_KNOWN)
def _known(leaf: x509.Certificate, chain: tuple[x509.Certificate, ...]) -> PeerCertificate:
    for each in (leaf, *chain):
        hash((each.subject, each.issuer))  # raises if they are malformed
    return PeerCertificate(leaf, chain)


def verify(
    peer: PeerCertificate, ca_pem: bytes, now: datetime | None = None
) -> tuple[x509.Certificate, ...]:
    """
    Verify a *client* certificate against some CAs.

    The leaf must have the extended key usage ``clientAuth`` or ``anyExtendedKeyUsage``, and must
    not be a CA.  A CA with extended key usages must have one of these too, as in Go's
    ``crypto/x509``.  The leaf's names must not contain control characters.

    :param ca_pem: the only CAs to trust.
    :param now: time of the verification, timezone-aware; by default the present.
    :return: the leaf and the CAs that vouch for it.
    :raises VerificationError: the certificate is not accepted.
    :raises TLSConfigError: ``ca_pem`` cannot be used.
    """
    if len(peer.chain) > _LONGEST_CHAIN:
        raise VerificationError("the client certificate's chain is too long")
    _verify_usage(peer.leaf)
    store = X509Store()
    pem.trust(store, ca_pem, "the client CA")
    # As in Go: a trusted CA needs no issuer, even if it is not self-signed.
    store.set_flags(X509StoreFlags.PARTIAL_CHAIN)
    store.set_time((now or datetime.now(UTC)).astimezone(UTC))
    chain = [X509.from_cryptography(each) for each in peer.chain]
    try:
        context = X509StoreContext(store, X509.from_cryptography(peer.leaf), chain)
        # The first is the leaf.
        vouching = [each.to_cryptography() for each in context.get_verified_chain()[1:]]
    except X509StoreContextError as problem:
        message = f"the client certificate is refused: {problem}"
        kind = OutsideValidity if problem.errors[0] in VALIDITY_CODES else VerificationError
        raise kind(message) from None
    for authority in vouching:
        if not (_usages(authority) or _FOR_CLIENTS) & _FOR_CLIENTS:
            raise VerificationError("a CA of the client certificate is not meant for clients")
    if any(map(pem.has_controls, pem.names_of(peer.leaf))):
        raise VerificationError("a name in the client certificate contains control characters")
    return (peer.leaf, *vouching)


def _verify_usage(leaf: x509.Certificate) -> None:
    if not _usages(leaf) & _FOR_CLIENTS:
        raise VerificationError("the client certificate is not meant for clients")
    if _is_ca(leaf.extensions):
        raise VerificationError("the client certificate is a CA's own")


def _usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return set()
    except pem.UNREADABLE:
        raise VerificationError("the client certificate's extensions cannot be read") from None


def _is_ca(extensions: x509.Extensions) -> bool:
    try:
        return extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False

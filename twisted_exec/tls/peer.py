"""
Who is at the other end of a TLS connection, and whether a CA vouches for them.

A server records a client's certificate during the handshake without judging
it (:mod:`twisted_exec.tls.server`); :func:`verify` is the judgement, against
the one CA that is right for the question asked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache

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

from twisted_exec.tls import pem
from twisted_exec.tls.errors import OutsideValidity, VerificationError

_OF_TIME = (
    SSL.X509VerificationCodes.ERR_CERT_NOT_YET_VALID,
    SSL.X509VerificationCodes.ERR_CERT_HAS_EXPIRED,
)
_LONGEST_CHAIN = 8
_KNOWN = 128
"""Certificates that are remembered; strangers' too, so that it may not be many."""
_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


@dataclass(frozen=True)
class PeerCertificate:
    """
    What a peer presented.  Its key is proven, nothing else is.

    :param leaf: the peer's own certificate.
    :param chain: the intermediates that came along, without the leaf.
    """

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate's DER, lower-case hexadecimal."""
        return self.leaf.fingerprint(hashes.SHA256()).hex()

    @cached_property
    def digest(self) -> bytes:
        """Stands for the leaf and its chain, 32 bytes."""
        summary = hashlib.sha256(bytes.fromhex(self.fingerprint))
        for each in self.chain:
            summary.update(each.fingerprint(hashes.SHA256()))
        return summary.digest()

    @cached_property
    def common_name(self) -> str:
        """The subject's one common name; empty when there is none or more than one."""
        names = self._subject(NameOID.COMMON_NAME)
        return names[0] if len(names) == 1 else ""

    @cached_property
    def organizations(self) -> tuple[str, ...]:
        """The subject's organizations, in their order."""
        return self._subject(NameOID.ORGANIZATION_NAME)

    def _subject(self, kind: x509.ObjectIdentifier) -> tuple[str, ...]:
        attributes = self.leaf.subject.get_attributes_for_oid(kind)
        return tuple(each.value for each in attributes if isinstance(each.value, str))


def peer_certificate(transport: object) -> PeerCertificate | None:
    """
    The certificate that a connection's peer presented and proved.

    :param transport: a stream transport, TLS or not.
    :return: ``None`` without TLS, without a certificate, or with one that
        cannot be read.
    """
    handle = getattr(transport, "getHandle", lambda: None)()
    if not isinstance(handle, SSL.Connection):
        return None
    try:
        leaf = handle.get_peer_certificate(as_cryptography=True)
        # One more than verify() accepts: a stranger's hundred are not worth parsing.
        sent = (handle.get_peer_cert_chain() or [])[: _LONGEST_CHAIN + 2]
        chain = [each.to_cryptography() for each in sent]
    except ValueError:
        return None  # OpenSSL is laxer than cryptography's parser
    if leaf is None:
        return None
    return _known(leaf, tuple(each for each in chain if each != leaf))


@lru_cache(maxsize=_KNOWN)
def _known(leaf: x509.Certificate, chain: tuple[x509.Certificate, ...]) -> PeerCertificate:
    """One for the same bytes: what is asked of it with each request is found out once."""
    return PeerCertificate(leaf, chain)


def verify(peer: PeerCertificate, ca_pem: bytes, now: datetime | None = None) -> None:
    """
    Check that one of some CAs vouches for a *client* certificate.

    The chain is verified by OpenSSL; the leaf must carry the extended key
    usage ``clientAuth`` (or any) and must not be a CA itself.  A CA that says what it
    signs for must say clients, as Go's ``crypto/x509`` has it.

    :param ca_pem: the CAs to trust, and no others.
    :param now: the time to judge by, aware; the present when ``None``.
    :raises VerificationError: why not.
    :raises TLSConfigError: ``ca_pem`` holds no certificate.
    """
    if len(peer.chain) > _LONGEST_CHAIN:
        raise VerificationError("the client certificate's chain is too long")
    _verify_usage(peer.leaf)
    store = X509Store()
    pem.trust(store, ca_pem, "the client CA")
    # As in Go: a CA that is trusted needs nobody above it, and may be one that another has signed.
    store.set_flags(X509StoreFlags.PARTIAL_CHAIN)
    store.set_time((now or datetime.now(UTC)).astimezone(UTC))
    chain = [X509.from_cryptography(each) for each in peer.chain]
    try:
        context = X509StoreContext(store, X509.from_cryptography(peer.leaf), chain)
        vouching = [each.to_cryptography() for each in context.get_verified_chain()[1:]]
    except X509StoreContextError as problem:
        message = f"the client certificate is refused: {problem}"
        # Only what a CA of ours has signed comes as far as that.
        kind = OutsideValidity if problem.errors[0] in _OF_TIME else VerificationError
        raise kind(message) from None
    for authority in vouching:
        if not (_usages(authority) or _FOR_CLIENTS) & _FOR_CLIENTS:
            raise VerificationError("a CA of the client certificate is not meant for clients")


def _verify_usage(leaf: x509.Certificate) -> None:
    if not _usages(leaf) & _FOR_CLIENTS:
        raise VerificationError("the client certificate is not meant for clients")
    if _is_ca(leaf.extensions):
        raise VerificationError("the client certificate is a CA's own")


def _usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    """
    What a certificate says that it is for; empty when it does not say.

    :raises VerificationError: nobody can tell.
    """
    try:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return set()
    except (ValueError, x509.DuplicateExtension):
        raise VerificationError("the client certificate's extensions cannot be read") from None


def _is_ca(extensions: x509.Extensions) -> bool:
    try:
        return extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False

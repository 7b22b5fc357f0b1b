"""
Errors of certificates, handshakes and configured files, each with a one-line message.

Messages do not hold key material.
"""

from __future__ import annotations

import json
from typing import ClassVar

from cryptography import x509
from OpenSSL import SSL
from twisted.internet import error
from twisted.internet.defer import CancelledError

from twisted_exec.api.obstacles import Obstacle

VALIDITY_CODES = (9, 10)
"""OpenSSL's codes of a certificate that is not yet valid, or has expired."""


class TLSError(Exception):
    """
    Base of the errors of this module.

    :ivar reason: the message without the peer's address.
    :cvar obstacle: the reason for programs, if the error is about a peer.
    """

    obstacle: ClassVar[Obstacle | None] = None
    osError = None  # Twisted's own connection errors have one; ours come before any system call

    def __init__(self, message: str, reason: str = "") -> None:
        # Not super(): Twisted's errors, which some of ours also are, keep no message.
        Exception.__init__(self, message)
        self.message, self.reason = message, reason or message

    def __str__(self) -> str:
        return self.message


class TLSConfigError(TLSError):
    """A configured file, name or directory cannot be used."""


class DirectoryError(TLSConfigError):
    """A directory for private files cannot be created, or is not private."""


class HandshakeError(TLSError):
    """The TLS handshake with a peer failed."""

    obstacle = Obstacle.HANDSHAKE_FAILED


class NoTLS(HandshakeError):
    """The peer does not speak TLS."""

    obstacle = Obstacle.NO_TLS


class VerificationError(HandshakeError):
    """The peer's certificate is not trusted."""

    obstacle = Obstacle.CERTIFICATE_REFUSED


class Untrusted(VerificationError):
    """No trusted CA has signed the peer's certificate."""

    obstacle = Obstacle.CERTIFICATE_UNTRUSTED


class OtherName(VerificationError):
    """The peer's certificate does not name the peer."""

    obstacle = Obstacle.CERTIFICATE_OF_OTHER


class OutsideValidity(VerificationError):
    """The peer's certificate is trusted, but it or a CA of it has expired or is not yet valid."""

    obstacle = Obstacle.CERTIFICATE_OUTSIDE_VALIDITY


class ConnectTimeout(TLSError, error.TimeoutError):
    """The peer did not answer in time."""

    obstacle = Obstacle.CONNECT_TIMEOUT


class HandshakeTimeout(ConnectTimeout):
    """The peer's host accepted the connection, and the peer's program did not answer in TLS."""

    obstacle = Obstacle.NO_ANSWER


def unanswered_handshake(seconds: float) -> str:
    """Return the words for a peer that accepts connections, as the kernel also does for a stopped program."""
    return f"its program does not answer: no TLS handshake within {seconds:g} s"


class HandshakeCancelled(CancelledError):
    """A caller has given up an attempt that waited for the peer's answer in TLS."""


_Codes = SSL.X509VerificationCodes
_PROBLEMS = {
    _Codes.ERR_UNABLE_TO_GET_ISSUER_CERT: "its issuer is not known",
    _Codes.ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "it is not signed by a trusted CA",
    _Codes.ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: "it is not signed by a trusted CA",
    _Codes.ERR_DEPTH_ZERO_SELF_SIGNED_CERT: "it is self-signed and not trusted",
    _Codes.ERR_SELF_SIGNED_CERT_IN_CHAIN: "its CA is not trusted",
    _Codes.ERR_CERT_SIGNATURE_FAILURE: "its signature is wrong (another CA of the same name?)",
    _Codes.ERR_CERT_NOT_YET_VALID: "it is not valid yet (is the clock right?)",
    _Codes.ERR_CERT_HAS_EXPIRED: "it has expired",
    _Codes.ERR_INVALID_PURPOSE: "it is not meant for servers",
}
_KINDS: dict[int, type[VerificationError]] = {
    **dict.fromkeys(VALIDITY_CODES, OutsideValidity),
    _Codes.ERR_UNABLE_TO_GET_ISSUER_CERT: Untrusted,
    _Codes.ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY: Untrusted,
    _Codes.ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: Untrusted,
    _Codes.ERR_DEPTH_ZERO_SELF_SIGNED_CERT: Untrusted,
    _Codes.ERR_SELF_SIGNED_CERT_IN_CHAIN: Untrusted,
    _Codes.ERR_CERT_SIGNATURE_FAILURE: Untrusted,
}


def refused_chain(certificate: x509.Certificate, code: int) -> VerificationError:
    """
    Return the error for a server's chain that OpenSSL refuses.

    :param certificate: of the chain, which the code is about.
    :param code: OpenSSL's verification error.
    """
    why = _PROBLEMS.get(code, f"OpenSSL verification error {code}")
    subject = json.dumps(certificate.subject.rfc4514_string())  # it may have control characters
    kind = _KINDS.get(code, VerificationError)
    return kind(f"the server's certificate {subject} is refused: {why}")

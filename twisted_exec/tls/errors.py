"""
Errors of certificates and handshakes, each with a one-line message.

Messages do not hold key material.
"""

from __future__ import annotations

from typing import ClassVar

from twisted.internet import error

from twisted_exec.api.obstacles import Obstacle

OF_TIME = (9, 10)
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

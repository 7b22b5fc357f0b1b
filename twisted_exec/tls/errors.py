"""
What can go wrong with certificates and handshakes, each in one line.

The text of every error is written for the person who has to act on it; none
holds key material.
"""

from __future__ import annotations

from twisted.internet import error


class TLSError(Exception):
    """Base of this room's errors.  ``str()`` is one line."""

    osError = None  # Twisted's own connection errors have one; ours come before any system call

    def __init__(self, message: str) -> None:
        # Not super(): Twisted's errors, which some of ours also are, keep no message.
        Exception.__init__(self, message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class TLSConfigError(TLSError):
    """A file, name or directory that we were given cannot be used.  Says which and what to do."""


class HandshakeError(TLSError):
    """The TLS handshake with a peer failed."""


class VerificationError(HandshakeError):
    """The peer's certificate is not one that we may trust."""


class OutsideValidity(VerificationError):
    """The peer's certificate is one that we trust, and its time is over or has not come."""


class ConnectTimeout(TLSError, error.TimeoutError):
    """The peer did not answer in time: no TCP connection, or no TLS over it."""

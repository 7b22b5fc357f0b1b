"""
Properties of Twisted's transports that streams depend on.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IProtocol,
    ISSLTransport,
    ITransport,
)
from twisted.protocols.policies import ProtocolWrapper


def is_tls(transport: ITransport) -> bool:
    """Return whether the transport encrypts."""
    return ISSLTransport.providedBy(transport)


def can_half_close(transport: ITransport) -> bool:
    """
    Return whether ``loseWriteConnection`` works.

    TLS transports have the method from their socket, but calling it breaks the TLS session: the end
    of a stream is signalled in-band instead.
    """
    return IHalfCloseableDescriptor.providedBy(transport) and not is_tls(transport)


def close_behind(transport: Any) -> None:
    """
    Close behind everything written, without discarding it.

    Closing a socket that holds unread input sends a reset, which overtakes what was sent.  So where
    there is a half-close only our direction is closed; the caller discards further input, and
    limits the time.  TLS waits for its peer by itself.
    """
    if can_half_close(transport):
        transport.loseWriteConnection()
    else:
        transport.loseConnection()


def swap_protocol(transport: Any, protocol: IProtocol) -> None:
    """
    Make a connected transport deliver to ``protocol`` from now on.

    The caller calls ``protocol.makeConnection``.  This replaces the protocol rather than relaying,
    so ``IHalfCloseableProtocol`` works and reads cost no extra call.
    """
    if isinstance(transport, ProtocolWrapper):
        transport.wrappedProtocol = protocol
    else:
        transport.protocol = protocol

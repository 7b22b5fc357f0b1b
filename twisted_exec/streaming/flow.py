"""
What the joints of a stream need to know about Twisted's transports.
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
    """Whether a transport encrypts."""
    return ISSLTransport.providedBy(transport)


def can_half_close(transport: ITransport) -> bool:
    """
    Whether ``loseWriteConnection`` means anything.

    TLS copies the method from its socket, but calling it there tears the
    session: the end of a stream travels in-band instead.
    """
    return IHalfCloseableDescriptor.providedBy(transport) and not is_tls(transport)


def swap_protocol(transport: Any, protocol: IProtocol) -> None:
    """
    Make a connected transport deliver to ``protocol`` from now on.

    ``protocol.makeConnection`` is left to the caller.  A real swap, not a
    relay: so ``IHalfCloseableProtocol`` works and no call is added per read.
    """
    if isinstance(transport, ProtocolWrapper):
        transport.wrappedProtocol = protocol
    else:
        transport.protocol = protocol

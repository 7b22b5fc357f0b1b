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


def close_behind(transport: Any) -> None:
    """
    Close behind what was written, without discarding it.

    Closing a socket that holds unread input resets it, and the reset overtakes
    what was sent.  So where there is a half-close only our direction is closed;
    the caller throws away what still comes, and limits the time.  TLS waits for
    its peer by itself.
    """
    if can_half_close(transport):
        transport.loseWriteConnection()
    else:
        transport.loseConnection()


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

"""
Properties of Twisted's transports, and the bytes in their buffers.
"""

from __future__ import annotations

import select
import sys
from typing import Any

from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IProtocol,
    ISSLTransport,
    ITransport,
)
from twisted.internet.main import CONNECTION_LOST
from twisted.protocols.policies import ProtocolWrapper

from twisted_exec.tls.fast.transport import socket_transport
from twisted_exec.tls.turns import TurnTaking


def is_tls(transport: ITransport) -> bool:
    return ISSLTransport.providedBy(transport)


def can_half_close(transport: ITransport) -> bool:
    """
    Return whether ``loseWriteConnection`` works: TLS transports have it, but it breaks their
    session.
    """
    return IHalfCloseableDescriptor.providedBy(transport) and not is_tls(transport)


def close_behind(transport: Any) -> None:
    """
    Close behind everything written, without discarding it.

    Closing a socket that holds unread input sends a reset, which overtakes what was sent.  So only
    our direction is closed, if the transport can do that: the caller discards further input, and
    limits the time.
    """
    if can_half_close(transport):
        transport.loseWriteConnection()
    else:
        transport.loseConnection()


def swap_protocol(transport: Any, protocol: IProtocol) -> None:
    """
    Make a connected transport deliver to ``protocol``, of a stream; the caller calls
    ``protocol.makeConnection``.
    """
    if isinstance(transport, TurnTaking):
        transport.is_stream = True
    if isinstance(transport, ProtocolWrapper):
        transport.wrappedProtocol = protocol
    else:
        transport.protocol = protocol


def unwritten(transport: Any) -> bytes:
    """
    Return what a ``FileDescriptor`` of Twisted has not written yet.

    ``doWrite`` offers it to ``writeSomeData``, which takes nothing of it here.
    """
    offered: list[bytes] = []

    def take_nothing(data: bytes) -> Exception:
        offered.append(bytes(data))
        return CONNECTION_LOST

    transport.SEND_LIMIT, transport.writeSomeData = sys.maxsize, take_nothing
    try:
        transport.doWrite()
    finally:
        del transport.SEND_LIMIT, transport.writeSomeData
    return b"".join(offered)


def unread(transport: Any, protocol: IProtocol, data: bytes, *, later: bool = False) -> None:
    """
    Deliver bytes to the transport's protocol again, before others that were received.

    Transports that are not ours deliver at once.

    :param later: not in this turn of the reactor.
    """
    if isinstance(transport, TurnTaking):
        transport.unread(data, later=later)
    else:
        protocol.dataReceived(data)


def has_unread(transport: object) -> bool:
    """Return whether something has arrived that the transport has not read yet."""
    plug = getattr(socket_transport(transport), "socket", None)
    if plug is None or plug.fileno() < 0:
        return False
    arrived = select.poll()
    arrived.register(plug, select.POLLIN)
    return bool(arrived.poll(0))

"""
Properties of Twisted's transports, and the kernel's figures about them.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any

from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IProtocol,
    ISSLTransport,
    ITransport,
)
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
    Make a connected transport deliver to ``protocol``; the caller calls
    ``protocol.makeConnection``.
    """
    if isinstance(transport, ProtocolWrapper):
        transport.wrappedProtocol = protocol
    else:
        transport.protocol = protocol


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


_ROUND_TRIP = struct.Struct("=68xI")
"""``struct tcp_info`` of linux/tcp.h, for ``tcpi_rtt`` (microseconds)."""

_LONGEST_BYTES = 72


def tcp_info(transport: object) -> bytes:
    """Return the beginning of a ``struct tcp_info``, or nothing."""
    plug = getattr(socket_transport(transport), "socket", None)
    if sys.platform != "linux" or not isinstance(plug, socket.socket):
        return b""
    try:
        return plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LONGEST_BYTES)
    except OSError:  # a UNIX socket, or a closed one
        return b""


def round_trip_seconds(transport: object) -> float | None:
    """Return the kernel's smoothed round-trip time of TCP; ``None`` if unknown."""
    info = tcp_info(transport)
    if len(info) < _ROUND_TRIP.size:
        return None
    (microseconds,) = _ROUND_TRIP.unpack(info[: _ROUND_TRIP.size])
    return microseconds / 1_000_000 if microseconds else None

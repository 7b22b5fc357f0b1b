"""
Properties of Twisted's transports, and the kernel's figures about them.
"""

from __future__ import annotations

import select
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


_ROUND_TRIP = struct.Struct("=68xI")
_SHORTEST = struct.Struct("=148xI")
"""``struct tcp_info`` of linux/tcp.h, for ``tcpi_rtt`` and ``tcpi_min_rtt`` (microseconds)."""

_UNKNOWN = 0xFFFFFFFF
_LONGEST_BYTES = 152


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
    return _seconds(transport, _ROUND_TRIP)


def shortest_round_trip_seconds(transport: object) -> float | None:
    """
    Return the shortest round-trip time of TCP in the last minutes; ``None`` if unknown.

    Unlike the smoothed one it has no acknowledgements that the peer delays, by up to 40 ms: an answer of the peer is
    never faster.
    """
    return _seconds(transport, _SHORTEST)


def _seconds(transport: object, field: struct.Struct) -> float | None:
    info = tcp_info(transport)
    if len(info) < field.size:
        return None
    (microseconds,) = field.unpack(info[: field.size])
    return microseconds / 1_000_000 if microseconds not in (0, _UNKNOWN) else None


def has_unread(transport: object) -> bool:
    """Return whether something has arrived that the transport has not read yet."""
    plug = getattr(socket_transport(transport), "socket", None)
    if plug is None or plug.fileno() < 0:
        return False
    arrived = select.poll()
    arrived.register(plug, select.POLLIN)
    return bool(arrived.poll(0))

"""
The kernel's figures about a TCP connection.
"""

from __future__ import annotations

import socket
import struct
import sys

from twisted_exec.tls.fast.transport import socket_transport

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

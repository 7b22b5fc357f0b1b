"""
The kernel's figures about a TCP connection (tcp(7), ``TCP_INFO``), on Linux.
"""

from __future__ import annotations

import socket
import struct
import sys

from twisted_exec.tls.transport import socket_transport

_ROUND_TRIP = struct.Struct("=68xI")
"""``struct tcp_info`` of linux/tcp.h, for ``tcpi_rtt`` (microseconds)."""

_LONGEST_BYTES = 72


def tcp_info(transport: object) -> bytes:
    """Return the beginning of a ``struct tcp_info``; empty for a transport that is no TCP connection."""
    plug = getattr(socket_transport(transport), "socket", None)
    if sys.platform != "linux" or not isinstance(plug, socket.socket):
        return b""
    try:
        return plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LONGEST_BYTES)
    except OSError:  # a UNIX socket, or a closed one
        return b""


def round_trip_seconds(transport: object) -> float | None:
    """
    Return the smoothed time of a packet to the other kernel and of its answer back.

    :return: ``None`` if it is unknown, or if the transport is no TCP connection.
    """
    info = tcp_info(transport)
    if len(info) < _ROUND_TRIP.size:
        return None
    (microseconds,) = _ROUND_TRIP.unpack(info[: _ROUND_TRIP.size])
    return microseconds / 1_000_000 if microseconds else None

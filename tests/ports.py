"""
Ports that stay a test's own while a program that listens there is started again.

A port that was free, or that a program has just left, may be another program's a moment later: the
tests run in several processes, and each asks Linux for free ports all the time.
"""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase


class ReservedPorts:
    """
    Ports that Linux gives to nobody else before :meth:`release`.

    Each one is bound to a socket that does not listen.  Linux then neither gives the port to a
    program that asks for a free one nor connects from it, but lets a program listen there that
    names it and sets ``SO_REUSEADDR``, as Twisted does (``inet_csk_get_port`` in
    ``net/ipv4/inet_connection_sock.c``).
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def add(self, host: str = "127.0.0.1") -> int:
        """Reserve a port of an address of this host, and return it."""
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        self._sockets.append(holder)
        return int(holder.getsockname()[1])

    def release(self) -> None:
        """Give all ports back."""
        sockets, self._sockets = self._sockets, []
        for holder in sockets:
            holder.close()


def reserved_port(case: SynchronousTestCase) -> int:
    """Reserve a port of 127.0.0.1 until the end of a test, and return it."""
    ports = ReservedPorts()
    case.addCleanup(ports.release)
    return ports.add()

"""
Interface between listening endpoints and the listening sockets of a process.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from zope.interface import Interface

BACKLOG = 1024
"""
Connections that may wait to be accepted; the kernel's ``net.core.somaxconn`` limits the number,
too.
"""

Address = tuple[str, int] | str
"""Host and port, or the path of a UNIX socket."""


class IListeningSockets(Interface):
    """The listening sockets of a process, some of which may be inherited."""

    def adopt(
        reactor: Any,
        description: str,
        factory: IProtocolFactory,
        address: Address | None = None,
    ) -> IListeningPort | None:
        """
        Listen with an inherited socket.

        :param address: finds sockets of systemd, which have no description.
        :return: ``None`` if there is no usable socket of this description.
        """

    def opened(description: str, port: IListeningPort) -> None:
        """Take note of a port that was not adopted."""

"""
Interface between listening endpoints and the listening sockets of a process.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from zope.interface import Interface

BACKLOG = 1024
"""
Connections that wait for the reactor's next turn; the kernel's ``net.core.somaxconn`` limits it,
too.

Beyond it TCP clients repeat their SYN after a second, and UNIX clients that do not block get
EAGAIN.  Twisted's default is 50, fewer than the users of one machine room.
"""

Address = tuple[str, int] | str
"""Host and port, or the path of a UNIX socket."""


class IListeningSockets(Interface):
    """The listening sockets of a process, some of which another process may have opened."""

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

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
    """Listening sockets that this process has from another, such as systemd."""

    def adopt(reactor: Any, factory: IProtocolFactory, address: Address) -> IListeningPort | None:
        """
        Listen with a socket that exists already.

        :return: ``None`` if there is no usable socket of this address.
        """

"""
The listening sockets that systemd has opened for this process.

A program takes them instead of opening its own, and leaves them to systemd at its end: clients wait in the backlog
until the next start.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterable
from functools import partial
from typing import Any

from twisted.internet import tcp, unix
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.tls.listening import BACKLOG, Address, IListeningSockets

_END = "connectionLost"


@implementer(IListeningSockets)
class ListeningSockets:
    """See :class:`~twisted_exec.tls.listening.IListeningSockets`."""

    _log = Logger()

    def __init__(self) -> None:
        self._inherited: list[socket.socket] = []

    def inherit(self, sockets: Iterable[socket.socket]) -> None:
        """Take sockets of systemd, and own them."""
        self._inherited += sockets

    def has(self, address: Address) -> bool:
        """Return whether :meth:`adopt` has a socket for an address."""
        return any(_is_at(each, address) for each in self._inherited)

    def adopt(
        self, reactor: Any, factory: IProtocolFactory, address: Address
    ) -> IListeningPort | None:
        match = next((each for each in self._inherited if _is_at(each, address)), None)
        if match is None:
            return None
        self._inherited.remove(match)
        with match:
            try:
                port: IListeningPort = _port(reactor, match, factory)
            except OSError as problem:
                self._log.warn(
                    "the socket of systemd at {address} cannot be used: {why}",
                    address=address,
                    why=problem.strerror,
                )
                return None
        _leave_to_systemd(port)
        return port

    def close_unused(self) -> None:
        """Close sockets that nothing has adopted."""
        unused, self._inherited = self._inherited, []
        for each in unused:
            each.close()


LISTENING = ListeningSockets()
"""Those of this process."""


def listen_unix(reactor: Any, path: str, factory: IProtocolFactory, mode: int) -> IListeningPort:
    """
    Listen at a path, which must not exist unless systemd has opened its socket.

    :raises CannotListenError: the path is in use, or not usable.
    """
    adopted = LISTENING.adopt(reactor, factory, path)
    if adopted is not None:
        return adopted
    port: IListeningPort = reactor.listenUNIX(path, factory, backlog=BACKLOG, mode=mode)
    return port


def is_inherited(path: str) -> bool:
    """Return whether systemd has opened the UNIX socket of a path."""
    return LISTENING.has(path)


async def stop_unix_port(port: Any) -> None:
    """Stop listening at a UNIX socket, even if its file was removed."""
    if _END not in vars(port):
        path = os.fsdecode(port.getHost().name)
        with contextlib.suppress(OSError):
            # Twisted unlinks the file first; if it is missing, it would not close the port.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    await port.stopListening()


def _port(reactor: Any, inherited: socket.socket, factory: IProtocolFactory) -> Any:
    # Twisted duplicates the descriptor, but not whether it blocks.
    inherited.setblocking(False)
    if inherited.family != socket.AF_UNIX:
        return reactor.adoptStreamPort(inherited.fileno(), inherited.family, factory)
    # adoptStreamPort() would let every user connect to an adopted UNIX socket, and shorten its backlog.
    path = os.fsdecode(inherited.getsockname())
    mode = stat.S_IMODE(os.stat(path).st_mode)
    port = _InheritedPort(path, factory, BACKLOG, mode, reactor, inherited)
    port.startListening()
    return port


class _InheritedPort(unix.Port):
    def __init__(
        self,
        path: str,
        factory: IProtocolFactory,
        backlog: int,
        mode: int,
        reactor: Any,
        inherited: socket.socket,
    ) -> None:
        super().__init__(os.fsencode(path), factory, backlog, mode, reactor)
        self._inherited = inherited

    def createInternetSocket(self) -> socket.socket:
        return _BoundSocket(fileno=self._inherited.detach())


class _BoundSocket(socket.socket):
    def bind(self, address: object, /) -> None:
        """Do nothing: systemd has bound the socket."""


class _SharedSocket(socket.socket):
    def shutdown(self, how: int, /) -> None:
        """Do nothing: it would end the socket of all processes."""


def _leave_to_systemd(port: Any) -> None:
    """Make the end of a port leave its socket and its path to systemd."""
    # The number of the descriptor, by which the reactor knows the port, stays the same.
    port.socket = _SharedSocket(fileno=port.socket.detach())
    port.fileno = port.socket.fileno
    if isinstance(port, unix.Port):
        if port.lockFile is not None:
            port.lockFile.unlock()
        setattr(port, _END, partial(tcp.Port.connectionLost, port))


def _is_at(listening: socket.socket, address: Address) -> bool:
    name = listening.getsockname()
    if isinstance(address, str):
        return listening.family == socket.AF_UNIX and os.fsdecode(name) == address
    if listening.family not in (socket.AF_INET, socket.AF_INET6) or name[1] != address[1]:
        return False
    try:
        expected = ipaddress.ip_address(address[0] or "0.0.0.0")
    except ValueError:
        return False
    actual = ipaddress.ip_address(name[0].partition("%")[0])
    return actual == expected or (actual.is_unspecified and expected.is_unspecified)

"""
The listening sockets of this process, which another process can continue.

A process that begins with sockets of its predecessor or of systemd takes them instead of opening
its own: connections wait in the backlog meanwhile.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet import tcp, unix
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.program.tasks import each_alone
from twisted_exec.tls.listening import BACKLOG, Address, IListeningSockets

_END = "connectionLost"


@dataclass(frozen=True)
class ListeningSocket:
    """
    A socket that listens.

    :param description: empty if only its address is known.
    :param is_shared: another process, such as systemd, keeps it for the time after this process.
    """

    description: str
    socket: socket.socket
    is_shared: bool = False


@implementer(IListeningSockets)
class ListeningSockets:
    """See :class:`~twisted_exec.tls.listening.IListeningSockets`."""

    _log = Logger()

    def __init__(self) -> None:
        self._inherited: list[ListeningSocket] = []
        self._ports: list[tuple[str, Any, bool]] = []
        self._is_held = False

    def inherit(self, sockets: Iterable[ListeningSocket], *, is_held: bool = False) -> None:
        """
        Take sockets from another process.

        :param is_held: they accept connections only after :meth:`accept`.
        """
        self._inherited += sockets
        self._is_held = self._is_held or is_held

    def has(self, description: str, address: Address | None = None) -> bool:
        """Return whether :meth:`adopt` has a socket for a description or an address."""
        return self._find(description, address) is not None

    def adopt(
        self,
        reactor: Any,
        description: str,
        factory: IProtocolFactory,
        address: Address | None = None,
    ) -> IListeningPort | None:
        match = self._find(description, address)
        if match is None:
            return None
        self._inherited.remove(match)
        try:
            port = _port(reactor, match.socket, factory)
        except OSError as problem:
            self._log.warn(
                "the inherited socket of {description} cannot be used: {why}",
                description=description,
                why=problem.strerror,
            )
            return None
        finally:
            match.socket.close()
        if match.is_shared:
            _share(port)
        if self._is_held:
            port.stopReading()
        self._ports.append((description, port, match.is_shared))
        adopted: IListeningPort = port
        return adopted

    def _find(self, description: str, address: Address | None) -> ListeningSocket | None:
        for each in self._inherited:
            if each.description == description:
                return each
        for each in self._inherited if address is not None else ():
            if address is not None and _is_at(each.socket, address):
                return each
        return None

    def opened(self, description: str, port: IListeningPort) -> None:
        self._ports = [each for each in self._ports if each[1].connected]
        if isinstance(port, tcp.Port):
            self._ports.append((description, port, False))

    def sockets(self) -> Sequence[ListeningSocket]:
        """Return the sockets of the open ports, for a successor."""
        return [
            ListeningSocket(description, port.socket, is_shared)
            for description, port, is_shared in self._ports
            if port.connected
        ]

    def pause(self) -> None:
        """Accept no connections; they wait."""
        for _, port, _ in self._ports:
            if port.connected:
                port.stopReading()

    def accept(self) -> None:
        """Accept connections, also at sockets that were held or paused."""
        self._is_held = False
        for _, port, _ in self._ports:
            if port.connected:
                port.startReading()

    def close_unused(self) -> None:
        """Close inherited sockets that nothing has adopted."""
        unused, self._inherited = self._inherited, []
        for each in unused:
            each.socket.close()

    def share(self) -> None:
        """Leave the sockets and their paths to another process whenever the ports are closed."""
        each_alone([port for _, port, _ in self._ports if port.connected], _share, self._failed)

    def release(self) -> None:
        """Close the ports, and leave the sockets and their paths to another process."""
        self.share()
        ports = [port for _, port, _ in self._ports if port.connected]
        self._ports = []
        each_alone(ports, lambda port: port.stopListening(), self._failed)

    def _failed(self, port: Any) -> None:
        self._log.failure("{port} was not left to another process", port=port)


LISTENING = ListeningSockets()
"""The listening sockets of this process."""


def listen_unix(reactor: Any, path: str, factory: IProtocolFactory, mode: int) -> IListeningPort:
    """
    Listen at a path, which must not exist unless its socket was inherited.

    :raises CannotListenError: the path is in use, or not usable.
    """
    description = f"unix:{path}"
    adopted = LISTENING.adopt(reactor, description, factory, path)
    if adopted is not None:
        return adopted
    port: IListeningPort = reactor.listenUNIX(path, factory, backlog=BACKLOG, mode=mode)
    LISTENING.opened(description, port)
    return port


def is_inherited(path: str) -> bool:
    """Return whether this process has inherited the UNIX socket of a path."""
    return LISTENING.has(f"unix:{path}", path)


async def stop_unix_port(port: Any) -> None:
    """Stop listening at a UNIX socket, even if its file was removed."""
    if not port.connected:
        return  # a successor has the socket
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
        """Do nothing: the other process has bound the socket."""


class _SharedSocket(socket.socket):
    def shutdown(self, how: int, /) -> None:
        """Do nothing: it would end the socket of all processes."""


def _share(port: Any) -> None:
    """Make the end of a port leave its socket and its path to other processes."""
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

"""
Changes of this host's network: a link that comes up, an address that appears.

Linux announces them on netlink sockets (``rtnetlink(7)``), also to users without rights; other
systems announce nothing.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

COALESCE_SECONDS = 0.1
"""One call for all changes within this time."""

# linux/netlink.h, linux/rtnetlink.h, linux/if.h
_NETLINK_ROUTE = 0
_LINK_AND_ADDRESSES = 0x1 | 0x10 | 0x100
_NEW_LINK, _NEW_ADDRESS = 16, 20
_RUNNING = 0x40
_HEADER = struct.Struct("=IHHII")
_LINK_FLAGS = struct.Struct("=BxHiI")

_READ_BYTES = 64 << 10
_MOST_READS = 16


def watch_network(changed: Callable[[], None], reactor: Any) -> Callable[[], None]:
    """
    Call ``changed`` soon after changes that may make a server reachable.

    :return: ends that; may be called several times.
    """
    try:
        sock = _netlink_socket()
    except (OSError, AttributeError) as error:
        _log.debug("cannot watch the network: {error}", error=error)
        return lambda: None
    watcher = NetworkChanges(sock, changed, reactor)
    watcher.startReading()
    return watcher.stop


def _netlink_socket() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    sock = socket.socket(socket.AF_NETLINK, kind, _NETLINK_ROUTE)
    try:
        sock.bind((0, _LINK_AND_ADDRESSES))
    except BaseException:
        sock.close()
        raise
    return sock


class NetworkChanges(FileDescriptor):
    """
    Reads a netlink socket.

    :param sock: does not block; closed by :meth:`stop`, and after an error.
    """

    def __init__(self, sock: socket.socket, changed: Callable[[], None], reactor: Any) -> None:
        super().__init__(reactor)
        self._sock, self._changed, self._clock = sock, changed, reactor
        self._timer: IDelayedCall | None = None
        self.connected = 1

    def fileno(self) -> int:
        return self._sock.fileno()

    def doRead(self) -> Exception | None:
        for _ in range(_MOST_READS):
            try:
                data = self._sock.recv(_READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    return error
                self._notify()  # the system has dropped messages; one of them may have mattered
                continue
            if not data:
                return EOFError()
            if has_appeared(data):
                self._notify()
        return None

    def connectionLost(self, reason: Failure) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopReading()
        self._sock.close()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _notify(self) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(COALESCE_SECONDS, self._due)

    def _due(self) -> None:
        self._timer = None
        self._changed()


def has_appeared(data: bytes) -> bool:
    """Return whether netlink messages announce an address, or a link that works."""
    for kind, body in _messages(data):
        if kind == _NEW_ADDRESS:
            return True
        if kind == _NEW_LINK and len(body) >= _LINK_FLAGS.size:
            *_, flags = _LINK_FLAGS.unpack_from(body)
            if flags & _RUNNING:
                return True
    return False


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        size, kind, *_ = _HEADER.unpack_from(data)
        if size < _HEADER.size:
            return
        yield kind, data[_HEADER.size : size]
        data = data[(size + 3) & ~3 :]


_log = Logger()

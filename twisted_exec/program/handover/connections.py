"""
Connections between a process and its successor, for which nothing listens.

Each process has one end of a socket pair, which moved with the state of a hand-over.  The
predecessor makes a socket pair for each connection, and sends one end of that (SCM_RIGHTS).  So
only the process that was replaced can connect; another process of the same user cannot.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import (
    IProtocol,
    IProtocolFactory,
    IReadDescriptor,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

_CONNECTION = b"c"
"""The byte that a connection travels with."""


@implementer(IReadDescriptor)
class _End:
    """
    One end of the socket pair.

    The reactor does not own it: it would shut the socket down, of which another process may have a
    copy.
    """

    def __init__(self, reactor: Any, end: socket.socket) -> None:
        self._reactor, self._end = reactor, end
        end.setblocking(False)

    def fileno(self) -> int:
        return self._end.fileno()

    def logPrefix(self) -> str:
        return type(self).__name__

    def start(self) -> None:
        """Read from now on, unless the other process has ended."""
        if self._end.fileno() >= 0:
            self._reactor.addReader(self)

    def pause(self) -> None:
        """Leave further connections in the socket."""
        self._reactor.removeReader(self)

    def close(self) -> None:
        """Close this process's copy."""
        if self._end.fileno() >= 0:
            self.pause()
            self._end.close()

    def connectionLost(self, reason: Failure) -> None:
        self.close()

    def doRead(self) -> None:
        raise NotImplementedError


class PassedConnections(_End):
    """
    The end of a successor: serves the connections of its predecessor.

    :param factory: of their protocols.
    """

    def __init__(self, reactor: Any, end: socket.socket, factory: IProtocolFactory) -> None:
        super().__init__(reactor, end)
        self._factory = factory

    def doRead(self) -> None:
        try:
            # One byte, and so one connection: a stream keeps descriptors with their bytes.
            data, descriptors, _, _ = socket.recv_fds(
                self._end, len(_CONNECTION), 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for each in descriptors:
            with socket.socket(fileno=each) as connection:
                _adopt(self._reactor, connection, self._factory)
        if not data:  # the predecessor has ended
            self.close()


@implementer(IStreamClientEndpoint)
class SuccessorEndpoint(_End):
    """
    The end of a predecessor: connects to its successor.

    A connection waits while no successor reads, as between two of them.

    :ivar lost: fires when no process has the other end any more.
    """

    def __init__(self, reactor: Any, end: socket.socket) -> None:
        super().__init__(reactor, end)
        self.lost: Deferred[None] = Deferred()

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            try:
                socket.send_fds(self._end, [_CONNECTION], [theirs.fileno()])
            except OSError as problem:
                return defer.fail(ConnectError(problem.errno, problem.strerror))
            factory = _RememberingFactory(protocolFactory)
            _adopt(self._reactor, ours, factory)
        if factory.made is None:
            return defer.fail(ConnectError(string="the connection is not wanted any more"))
        return defer.succeed(factory.made)

    def doRead(self) -> None:
        try:
            if self._end.recv(1):
                return  # a successor sends nothing
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close()
        self.lost.callback(None)


class _RememberingFactory(Factory):
    noisy = False

    def __init__(self, factory: IProtocolFactory) -> None:
        self._factory = factory
        self.made: IProtocol | None = None

    def buildProtocol(self, addr: Any) -> Any:
        self.made = self._factory.buildProtocol(addr)
        return self.made


def _adopt(reactor: Any, connection: socket.socket, factory: IProtocolFactory) -> None:
    connection.setblocking(False)
    # The reactor makes a duplicate (IReactorSocket.adoptStreamConnection).
    reactor.adoptStreamConnection(connection.fileno(), socket.AF_UNIX, factory)

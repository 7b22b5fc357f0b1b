"""Acceptance of TLS connections at a listening port, in turns with other work."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IReactorTime,
)
from twisted.logger import Logger

from twisted_exec.tls.fast.descriptor import ServerEngines, TLSServer
from twisted_exec.tls.turns import origin_of, turns_of

_AT_ONCE = 4
"""
Connections that a port accepts in one turn.  With more, a flood of handshakes delays the keys of
other users.
"""
_MOST_ACCEPTED = 256
"""Connections without transport, of one port: further ones stay in the kernel's queue."""


def accept_tls(
    port: IListeningPort, tls: ServerEngines, clock: IReactorTime, handshake_seconds: float | None
) -> None:
    """Make a listening TCP port's *later* connections speak TLS."""

    def accepted(plug: socket.socket, *rest: Any) -> TLSServer:
        transport = TLSServer(plug, *rest)
        transport.begin(tls.server_engine(plug), clock, handshake_seconds)
        return transport

    _Accepting(port, accepted)


class _Accepting:
    """
    Accepts the connections of a port in the place of its factory, so that Twisted's own code still
    handles errors, such as the lack of descriptors.
    """

    def __init__(self, port: Any, accepted: Callable[..., TLSServer]) -> None:
        self.port, self.transport = port, accepted
        self.waiting = 0
        port.transport, port.doRead = _Accepted, self.accept

    def accept(self) -> None:
        port = self.port
        port.numberAccepts = min(_AT_ONCE, _MOST_ACCEPTED - self.waiting)
        self.factory, port.factory = port.factory, self
        try:
            type(port).doRead(port)
        finally:
            port.factory = self.factory

    def buildProtocol(self, where: IAddress) -> _Arrival:
        return _Arrival(self, where)


class _Arrival:
    def __init__(self, accepting: _Accepting, where: IAddress) -> None:
        self.accepting, self.where = accepting, where

    def makeConnection(self, connection: _Accepted) -> None:
        turns, origin = turns_of(self.accepting.port.reactor), origin_of(self.where)
        self.accepting.waiting += 1
        if turns.admits_handshake(origin):
            connection.take_turn()
        else:
            turns.wait_for_handshake(connection, origin)


class _Accepted:
    _log = Logger()
    busy_turn = -2

    def __init__(self, plug: socket.socket, arrival: _Arrival, address: Any, *rest: Any) -> None:
        self._plug, self._arrival, self._address, self._rest = plug, arrival, address, rest

    def take_turn(self) -> None:
        accepting, where = self._arrival.accepting, self._arrival.where
        accepting.waiting -= 1
        turns = turns_of(accepting.port.reactor)
        turns.shakes(origin_of(where))
        began = turns.cpu()
        try:
            protocol = accepting.factory.buildProtocol(where)
            if protocol is None:
                self._plug.close()
                return
            protocol.makeConnection(
                accepting.transport(self._plug, protocol, self._address, *self._rest)
            )
        except Exception:
            self._log.failure("a connection cannot be accepted")
            self._plug.close()
        finally:
            turns.used(self, turns.cpu() - began)

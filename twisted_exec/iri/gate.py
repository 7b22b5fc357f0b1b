"""
A UNIX socket that lets only some users through to a private one.

grpcio shows nobody the peer of a UNIX socket.  So its own socket lies in a
directory that only this process's user may enter, and this gate in front asks the kernel who
connects (``SO_PEERCRED``) before a byte passes.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Collection
from typing import Any, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.interfaces import IAddress, IListeningPort, IPushProducer, IReactorUNIX
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.unix import peer_uid, private_directory

from .target import TargetError, check_directory

_MAX_CONNECTIONS = 256


def prepare_directory(path: str, *, shared: bool) -> None:
    """
    Make the directory of a socket if it is missing, and make sure who may enter.

    :param shared: others may enter, because some of them are let through by
        uid.  Otherwise the directory must be this user's alone (0700).
    :raises TargetError: it is somebody else's, or open to others.
    """
    try:
        if shared:
            os.makedirs(path, mode=0o711, exist_ok=True)
        else:
            private_directory(path)
    except TLSConfigError as error:
        raise TargetError(str(error)) from None
    except OSError as error:
        raise TargetError(f"cannot make directory {path}: {error.strerror}") from None
    check_directory(path, {os.getuid()}, sticky=False)


def remove_stale(path: str) -> None:
    """
    Remove a socket that its owner left behind.

    :raises TargetError: somebody listens there, or it is no socket.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise TargetError(f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        refused = probe.connect_ex(path) in (errno.ECONNREFUSED, errno.ENOENT)
    if not refused:
        raise TargetError(f"{path} is in use by another process")
    os.unlink(path)


@implementer(IPushProducer)
class _End(Protocol):
    """One end of a connection through the gate."""

    transport: Any
    peer: _End | None = None
    gone = False

    def dataReceived(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.gone = True
        peer, self.peer = self.peer, None
        if peer is not None and not peer.gone:
            peer.transport.unregisterProducer()
            peer.transport.resumeProducing()
            peer.transport.loseConnection()

    def pauseProducing(self) -> None:
        if not self.gone:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        if not self.gone:
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """A dying transport says so; the other end's ``connectionLost`` does what is needed."""


class _Gatekeeper(_End):
    """The outer end: nothing is read before the inner end is connected."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def connectionMade(self) -> None:
        self.transport.pauseProducing()
        self._gate.arrived(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self._gate.open.discard(self)


class Gate(Factory):
    """
    Connects users that may pass to the inner socket.

    :param allowed_uids: who may pass.
    :param inner: path of the private socket.
    """

    noisy = False
    _log = Logger()

    def __init__(self, reactor: IReactorUNIX, inner: str, allowed_uids: Collection[int]) -> None:
        self._inner = UNIXClientEndpoint(reactor, inner)
        self._allowed = frozenset(allowed_uids)
        self.open: set[_Gatekeeper] = set()

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        return None if len(self.open) >= _MAX_CONNECTIONS else _Gatekeeper(self)

    def arrived(self, outer: _Gatekeeper) -> None:
        self.open.add(outer)
        uid = peer_uid(outer.transport)
        if uid not in self._allowed:
            self._log.warn("user {uid} is not allowed to use the runtime", uid=uid)
            outer.transport.abortConnection()
            return
        connecting = self._inner.connect(Factory.forProtocol(_End))
        connecting.addCallbacks(self._join, self._no_inner, (outer,), None, (outer,), None)

    def _join(self, inner: _End, outer: _Gatekeeper) -> None:
        if outer.gone:
            inner.transport.abortConnection()
            return
        inner.peer, outer.peer = outer, inner
        inner.transport.registerProducer(outer, True)
        outer.transport.registerProducer(inner, True)
        outer.transport.resumeProducing()

    def _no_inner(self, failure: Failure, outer: _Gatekeeper) -> None:
        self._log.error("the runtime's inner socket: {why}", why=failure.getErrorMessage())
        outer.transport.abortConnection()

    def close(self) -> None:
        """Cut what is connected."""
        for outer in list(self.open):
            outer.transport.abortConnection()


def listen_gate(
    reactor: IReactorUNIX, path: str, inner: str, allowed_uids: Collection[int]
) -> tuple[IListeningPort, Gate]:
    """
    Listen at ``path``, where nothing is, for ``allowed_uids``.

    :raises CannotListenError: the path is in use.
    """
    gate = Gate(reactor, inner, allowed_uids)
    shared = set(allowed_uids) - {0, os.getuid()}
    port = reactor.listenUNIX(path, gate, mode=0o666 if shared else 0o600)
    return port, gate


async def stop_gate(port: IListeningPort, gate: Gate) -> None:
    """Done when the path is free again."""
    gate.close()
    await maybeDeferred(cast("Callable[[], Deferred[None]]", port.stopListening))

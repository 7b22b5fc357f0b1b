"""
A UNIX socket that forwards only some users to a private one.

grpcio gives no access to the credentials of a UNIX socket's peer. So its own socket is in a private
directory, and this gate in front of it checks the user of each connection (``SO_PEERCRED``) before
it forwards any byte.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Collection
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort, IReactorUNIX
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.iri.target import TargetError, check_directory
from twisted_exec.program.listening import is_inherited, listen_unix, stop_unix_port
from twisted_exec.streaming.splice import Splice
from twisted_exec.streaming.transports import swap_protocol
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.tls.errors import DirectoryError
from twisted_exec.tls.fast.transport import accept_unbuffered
from twisted_exec.tls.private_directories import private_directory
from twisted_exec.tls.unix import peer_uid

MOST_CONNECTIONS = 256
"""Connections to one socket that may be open at once."""
_DRAIN_SECONDS = 1.0


def prepare_directory(path: str, *, shared: bool) -> None:
    """
    Create the directory of a socket if it is missing, and check its permissions.

    :param shared: other users may enter the directory, because the gate checks them. Otherwise it
        must be private (0700).
    :raises TargetError: it cannot be created, is open to others, or others could replace it.
    """
    try:
        if shared:
            os.makedirs(path, mode=0o711, exist_ok=True)
        else:
            private_directory(path)
    except DirectoryError as error:
        raise TargetError(str(error)) from None
    except OSError as error:
        raise TargetError(f"cannot make directory {path}: {error.strerror}") from None
    check_directory(path, {os.getuid()}, sticky=False)


def remove_stale(path: str) -> None:
    """
    Remove a socket that an earlier process left behind, unless this process has inherited it.

    :raises CannotListenError: another process listens there.
    :raises TargetError: it is not a socket.
    """
    if is_inherited(path):
        return
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise TargetError(f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        # A listener whose backlog is full answers EAGAIN (connect(2)), and is in use.
        refused = probe.connect_ex(path) in (errno.ECONNREFUSED, errno.ENOENT)
    if not refused:
        raise CannotListenError(None, path, "it is in use by another process")
    os.unlink(path)


class _Door(Protocol):
    """Placeholder of the splice's end until the peer's user is checked."""

    transport: Any

    def __init__(self, gate: UnixGate) -> None:
        self._gate = gate

    def connectionMade(self) -> None:
        self._gate.arrived(self.transport)


class UnixGate(Factory):
    """
    Forwards connections of allowed users to the inner socket.

    :param most_connections: that are open at once; further ones are closed.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        inner: str,
        allowed_uids: Collection[int],
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._reactor, self._most_connections = reactor, most_connections
        self._inner = unix_client_endpoint(reactor, inner)
        self._allowed = frozenset(allowed_uids)
        self._closed: list[Deferred[None]] = []
        self.open: set[Splice] = set()

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        return None if len(self.open) >= self._most_connections else _Door(self)

    def arrived(self, outer: Any) -> None:
        uid = peer_uid(outer)
        if uid not in self._allowed:
            self._log.warn("user {uid} is not allowed to use the runtime", uid=uid)
            outer.abortConnection()
            return
        splice = Splice(self._reactor, lambda _: self._gone(splice), drain_seconds=_DRAIN_SECONDS)
        self.open.add(splice)
        swap_protocol(outer, splice.user)
        splice.user.makeConnection(outer)
        factory = Factory.forProtocol(lambda: splice.machine)
        factory.noisy = False
        connecting = self._inner.connect(factory)
        connecting.addErrback(self._no_inner, splice)

    def _no_inner(self, failure: Failure, splice: Splice) -> None:
        self._log.error("the runtime's inner socket: {why}", why=failure.getErrorMessage())
        splice.user.transport.abortConnection()
        self._gone(splice)

    def _gone(self, splice: Splice) -> None:
        self.open.discard(splice)
        if not self.open:
            closed, self._closed = self._closed, []
            for waiter in closed:
                waiter.callback(None)

    def close(self) -> Deferred[None]:
        """Close all connections; fires when they are closed."""
        closed: Deferred[None] = Deferred()
        self._closed.append(closed)
        for splice in list(self.open):
            splice.user.transport.abortConnection()
        if not self.open:
            self._closed.remove(closed)
            closed.callback(None)
        return closed


def listen_gate(
    reactor: IReactorUNIX,
    path: str,
    inner: str,
    allowed_uids: Collection[int],
    most_connections: int = MOST_CONNECTIONS,
) -> tuple[IListeningPort, UnixGate]:
    """
    Listen at ``path`` for ``allowed_uids``; it must not exist unless its socket was inherited.

    :raises CannotListenError: the path is in use, or cannot be created.
    """
    gate = UnixGate(reactor, inner, allowed_uids, most_connections)
    shared = set(allowed_uids) - {0, os.getuid()}
    port = listen_unix(reactor, path, gate, 0o666 if shared else 0o600)
    accept_unbuffered(port)
    return port, gate


async def stop_gate(port: IListeningPort, gate: UnixGate) -> None:
    """Stop a gate and its connections; then another gate may listen."""
    await stop_unix_port(port)
    await gate.close()

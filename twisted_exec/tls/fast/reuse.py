"""
Reuse of a TLS connection for one console session after another.

A session here is that of a console, or another upgraded stream; it is no TLS session.  It passes in
blocks (:mod:`twisted_exec.wire.blocks`).  When both sides have ended it, another transport takes the
connection over, so that nothing that still refers to the session's transport can reach what comes
after it.  A session that does not end in order ends the connection.

Both ends agree in the head of the upgrade: the client offers it, and the server accepts.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import IProtocol, ISSLTransport
from twisted.internet.protocol import Protocol
from zope.interface import implementer

from twisted_exec.tls.fast.descriptor import RECORD_BYTES, TLSOnDescriptor
from twisted_exec.tls.fast.transport import AtOnce, socket_transport
from twisted_exec.wire.blocks import HEAD_BYTES, LONGEST, BlockReader, Mark, behind, head

OLDEST_SECONDS = 600.0
"""The age at which a connection carries no further session."""

_LABEL = b"EXPORTER-twisted-exec-sessions"
_PROOF_BYTES = 16

Following = Callable[[TLSOnDescriptor, Mark], IProtocol | None]
"""
Returns the protocol of a connection after its session, or ``None`` to close it.

The arguments are the connection's transport and the peer's mark.
"""


def offer(transport: object) -> bytes:
    """
    Return the value with which a client offers to reuse the connection; empty if it cannot.

    A proxy that ends the TLS connection cannot pass it on: only both ends of one connection know it.
    """
    return _proofs(transport)[0]


def acceptance(transport: object) -> bytes:
    """Return the value with which a server accepts; empty if the transport cannot."""
    return _proofs(transport)[1]


def _proofs(transport: object) -> tuple[bytes, bytes]:
    if not isinstance(transport, TLSOnDescriptor):
        return b"", b""
    # They are the same for each session, and OpenSSL takes 25 us for each of them.
    if transport.proofs is None:
        transport.proofs = _proof(transport, b"client"), _proof(transport, b"server")
    return transport.proofs


def _proof(transport: TLSOnDescriptor, side: bytes) -> bytes:
    return transport.exported(_LABEL, _PROOF_BYTES, side).hex().encode("ascii")


def is_quiet(transport: object) -> bool:
    """Return whether a connection is open, and nothing has arrived that is not read yet."""
    connected = getattr(socket_transport(transport), "socket", None)
    if not isinstance(connected, socket.socket):
        return False  # the connection is lost, or another transport has it
    try:
        connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


class CarriedStream:
    """One console session, see :class:`~twisted_exec.tls.fast.descriptor.Carried`."""

    __slots__ = ("_following", "_is_server", "_mark", "_next", "blocks")

    short_bytes = RECORD_BYTES - HEAD_BYTES
    plain = Mark.PLAIN.value
    head, behind = staticmethod(head), staticmethod(behind)

    def __init__(self, following: Following, *, is_server: bool) -> None:
        self.blocks = BlockReader()
        self._following, self._is_server = following, is_server
        self._mark: Mark | None = None
        self._next: IProtocol | None = None

    def divided(self, data: bytes) -> Iterator[tuple[bytes, memoryview]]:
        whole, size = memoryview(data), self.short_bytes
        for start in range(0, len(data), LONGEST):
            block = whole[start : start + LONGEST]
            # One record, as without blocks: a head of its own would cost another, and a send.
            yield head(len(block)) + block[:size], block[size:]

    def may_end_with(self, mark: Mark, *, ours_sent: bool) -> bool:
        return mark is Mark.END or (ours_sent and not self._is_server)

    def our_mark(self, transport: TLSOnDescriptor, *, peer_ended: bool) -> Mark:
        # OpenSSL sends what it was given first, however often it has to try.
        if self._mark is None:
            self._mark = Mark.END
            if self._is_server and peer_ended and is_quiet(transport):
                self._next = self._following(transport, Mark.END)
                if self._next is not None:
                    self._mark = Mark.READY
        return self._mark

    def detach(self, transport: TLSOnDescriptor) -> Callable[[], None]:
        reused = ReusedTLS(transport)
        return lambda: self._pass_on(reused)

    def _pass_on(self, reused: ReusedTLS) -> None:
        mark = self.blocks.mark
        assert mark is not None
        if self._mark is Mark.READY:
            reused.give_to(self._next)
            return
        # What a client sends before the server is ready belongs to nothing.
        is_in_order = is_quiet(reused) or not self._is_server
        following = self._following(reused, mark) if is_in_order else None
        if self._is_server and following is not None:
            reused.write(Mark.READY.value)
        reused.give_to(following)


class _Detached:
    """Takes the place of a socket that another transport has."""

    def shutdown(self, how: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@implementer(ISSLTransport)
class ReusedTLS(TLSOnDescriptor, AtOnce, tcp.Connection):
    """
    The connection of a session that is over.

    :param before: the transport of the session.
    """

    def __init__(self, before: Any) -> None:
        super().__init__(before.socket, Protocol(), before.reactor)
        before.socket = _Detached()
        self.logstr, self._peer = before.logstr, before.getPeer()
        self._engine, self._openssl = before._engine, before._openssl
        self._clock, self.made, self.proofs = before._clock, before.made, before.proofs
        self._handshaken = self._is_ready = True
        self.connected = 1

    def getPeer(self) -> Any:
        return self._peer

    def getHost(self) -> Any:
        return type(self._peer)("TCP", *self.socket.getsockname()[:2])

    def give_to(self, protocol: IProtocol | None) -> None:
        """Give the connection to a protocol, or close it."""
        if protocol is None:
            self.loseConnection()
            return
        self.protocol = protocol
        self.startReading()
        protocol.makeConnection(self)

"""
TLS on the socket's own descriptor.

OpenSSL reads and writes the descriptor itself, and the transport *is* the connection.

close_notify ends the stream; ``loseConnection`` sends it after the queue, and waits for the peer's.
A socket that ends without it was cut. There is no half-close.
"""

from __future__ import annotations

import socket
import time
from array import array
from collections.abc import Callable, Iterator
from fcntl import ioctl
from termios import FIONREAD
from typing import TYPE_CHECKING, Any
from typing import Protocol as Typing

from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet import main, tcp
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IProtocol,
    IReactorTime,
    ISSLTransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.tls.deadlines import Deadline
from twisted_exec.tls.fast import openssl
from twisted_exec.tls.fast.names import is_usable
from twisted_exec.tls.fast.transport import (
    Connecting,
    TCPClient,
    TCPConnector,
    TCPServer,
    sends_at_once,
)
from twisted_exec.tls.turns import Turns, TurnTaking, origin_of
from twisted_exec.wire.errors import RemoteProtocolError

LINGER_SECONDS = 30.0
"""Time limit for the end of a stream: for a peer that sent close_notify to read the rest of our data, and
for one that received ours to send its own."""

RECORD_BYTES = 1 << 14
"""The largest plaintext of one TLS record (RFC 8446, section 5.1)."""

_TURN_BYTES = 1 << 17
"""Approximate limit of one turn's reading from one connection: the size of one ``write``."""

_TURN_RECORDS = 1 << 6
"""Limit of records per turn, however small."""

_AROUND_BYTES = 22
"""Approximate overhead of a record: RFC 8446, section 5.2, with a tag of 16 bytes."""

_LONE_BYTES = 1 << 10
"""A shorter record that came alone is probably a key; see :meth:`TLSOnDescriptor._is_alone`."""

_LONE_READS = 7
"""
After so many lone records in succession, only one read in so many asks the kernel whether more is
there.  Not an even number: of records that come in pairs, such a read would always get the second.
"""

PLAIN_BYTES = 1 << 20
"""A side of a session that has sent so much goes on without blocks: they cost more than another
connection for the session after it."""

_count = array("i", [0])
"""Result of ``FIONREAD``.  With an immutable buffer ``ioctl`` raises and drops an error first."""

# pyOpenSSL's recv and send put half a dozen calls, a buffer and a copy around one call of OpenSSL,
# even for a four-byte frame header.  Here pyOpenSSL only translates failures.
_ffi, _lib = openssl.ffi, openssl.lib
_ssl_read: Any = getattr(_lib, "SSL_read", None)
_ssl_write: Any = getattr(_lib, "SSL_write", None)

# Shared by all connections: a process has one reactor, which reads one connection at a time, and data is
# copied out before it is delivered.  A buffer each would be memory that every idle session holds.
_plain: Any = _ffi and _ffi.new("char[]", _TURN_BYTES + RECORD_BYTES)

_queue = FileDescriptor.write


def speaks_tls() -> bool:
    """Return whether the transports here can be used."""
    return sends_at_once() and is_usable("descriptor", openssl.owners())


class ClientEngines(Typing):
    """Makes OpenSSL connections of a client; see :class:`~twisted_exec.tls.client.ClientTLS`."""

    def client_engine(self, transport: Any, plug: socket.socket) -> SSL.Connection:
        """Return the OpenSSL connection on a connected socket."""


class ServerEngines(Typing):
    """Makes OpenSSL connections of a server; see :class:`~twisted_exec.tls.server.ServerTLS`."""

    def server_engine(self, plug: socket.socket) -> SSL.Connection:
        """Return the OpenSSL connection on an accepted socket."""


class SessionKeeper(Typing):
    """See :class:`~twisted_exec.tls.fast.resumption.TLSResumption`."""

    def keep(self, connection: SSL.Connection) -> None:
        """Keep the session of a connection that ends."""


if TYPE_CHECKING:  # a client of consoles starts faster without it
    from twisted_exec.wire.blocks import BlockReader, Mark

    class _Socket(TurnTaking, tcp.Connection):
        reactor: Any

        def _may_send_now(self) -> bool: ...

        _is_aborted: bool

else:
    _Socket = object


class Carried(Typing):
    """
    A console session that ends without its connection; see
    :class:`~twisted_exec.tls.fast.reuse.CarriedStream`.

    :ivar blocks: reads what the peer sends.
    :ivar short_bytes: the most bytes that fill one record with the length before them.
    :ivar plain: announces that no block follows.
    """

    blocks: BlockReader
    short_bytes: int
    plain: bytes

    def head(self, length: int) -> bytes:
        """Return what comes before the bytes of a block, :attr:`short_bytes` at most."""

    def divided(self, data: bytes) -> Iterator[tuple[bytes, memoryview]]:
        """Return the blocks of longer data: the first record of each, and what follows it."""

    def behind(self, expected: int, record: Any) -> int:
        """See :func:`twisted_exec.wire.blocks.behind`."""

    def may_end_with(self, mark: Mark, *, ours_sent: bool) -> bool:
        """Return whether the peer may send this mark now."""

    def our_mark(self, transport: TLSOnDescriptor, *, peer_ended: bool) -> Mark:
        """Return the mark that ends our side, the same one at each call."""

    def detach(self, transport: TLSOnDescriptor) -> Callable[[], None]:
        """
        Take the connection away from a transport that is about to report its end.

        :return: a function to call after that.
        """


class TLSOnDescriptor(_Socket):
    """Mixed in before one of our socket transports; ``protocol`` is the protocol above TLS."""

    _engine: SSL.Connection | None = None
    _openssl: Any = None  # of the engine
    _lone_reads = 0  # in succession
    _handshaken = _is_ready = False
    _is_queued = False  # there is something to write after the handshake
    _read_wants_write = False
    _peer_ended = False
    _our_end_sent = False
    _ended: SSL.Error | None = None  # follows the bytes that wait for their turn
    _refusal: Failure | None = None
    _broken: BaseException | None = None
    _deadline: IDelayedCall | Deadline | None = None
    # One session, which blocks what this side sends and reads; ``None`` for a side without blocks.
    _sends: Carried | None = None
    _reads: Carried | None = None
    _sent_bytes = 0  # in blocks
    made = 0.0  # by the monotonic clock, which nobody sets back
    proofs: tuple[bytes, bytes] | None = None  # see twisted_exec.tls.fast.reuse

    def begin(self, engine: SSL.Connection, clock: IReactorTime, seconds: float | None) -> None:
        self._engine, self._clock, self.made = engine, clock, time.monotonic()
        self._openssl = engine._ssl
        # With this mode a read goes on after a record without application data: a peer that sends
        # KeyUpdates without end would block the reactor.  pyOpenSSL sets the mode for each connection
        # and has no function to clear it.
        _lib.SSL_clear_mode(self._openssl, _lib.SSL_MODE_AUTO_RETRY)
        if seconds is not None:
            self._deadline = Deadline(clock, seconds, lambda _: self._too_slow())

    @property
    def is_shaking(self) -> bool:
        return not self._handshaken

    # Methods that TLS adds to a transport.

    def getPeerCertificate(self) -> X509 | None:
        return self._engine.get_peer_certificate() if self._engine is not None else None

    def getHandle(self) -> Any:
        return self._engine if self._engine is not None else super().getHandle()

    @property
    def negotiatedProtocol(self) -> bytes | None:
        if self._engine is None:
            return None
        return self._engine.get_alpn_proto_negotiated() or None

    @property
    def wrappedProtocol(self) -> IProtocol:
        return self.protocol

    @wrappedProtocol.setter
    def wrappedProtocol(self, protocol: IProtocol) -> None:
        self.protocol = protocol

    def failVerification(self, reason: Failure) -> None:
        self._refusal = reason

    # Console sessions, one after the other: twisted_exec.tls.fast.reuse.

    @property
    def age_seconds(self) -> float:
        """Return the time since the connection was made."""
        return time.monotonic() - self.made

    def exported(self, label: bytes, size: int, context: bytes) -> bytes:
        """Return bytes that only both ends of this connection know, or nothing after its end."""
        engine = self._engine
        return b"" if engine is None else engine.export_keying_material(label, size, context)

    def carry(self, session: Carried, early: bytes = b"") -> bytes:
        """
        Carry a console session from now on.

        To the protocol this transport is a connection that is closed with the session, and lost with the
        connection.

        :param early: received bytes that are the session's.
        :return: the protocol's bytes among them.
        """
        self._sends = self._reads = session
        self._sent_bytes = 0
        if self._backlog:
            self.abortConnection()  # a client that has offered this waits for the answer
        data = self._from_blocks(session, early)
        if session.blocks.mark is not None:
            self._clock.callLater(0, self._end_early)
        return data

    def _from_blocks(self, session: Carried, data: Any) -> bytes:
        try:
            data = session.blocks.read(data)
        except RemoteProtocolError:
            self.abortConnection()
            return b""
        if session.blocks.is_plain:
            self._reads = None
            if self._sends is not None and not self.disconnecting and not self._our_end_sent:
                self._send_no_more_blocks()
        return data  # type: ignore[no-any-return]

    def _send_no_more_blocks(self) -> None:
        assert self._sends is not None
        mark = self._sends.plain
        if not self._may_send_now() or not self._send(mark):
            _queue(self, mark)
        self._sends = None

    def _end_early(self) -> None:
        if self._backlog is None and self.connected:
            why = self._finish(None)
            if why is not None:
                self.connectionLost(Failure(why))

    # Reading.

    def doRead(self) -> BaseException | None:  # type: ignore[override]
        return self._receive() if self._handshaken else self._shake_in_turn()

    def _shake_in_turn(self) -> BaseException | None:
        turns, origin = self.turns(), origin_of(self.getPeer())
        if not turns.admits_handshake(origin):
            self.stopReading()
            self._is_waiting = True
            if isinstance(self._deadline, Deadline):
                self._deadline.pause()
            turns.wait_for_handshake(self, origin)
            return None
        return self._shake_now(turns, origin)

    def _shake_now(self, turns: Turns, origin: str) -> BaseException | None:
        turns.shakes(origin)
        began = turns.cpu()
        try:
            why = self._shake()
        finally:
            turns.used(self, turns.cpu() - began)
        # A client sends its request right behind the handshake.
        if why is None and self._may_receive() and self._waiting():
            return self._receive()
        return why

    def _may_receive(self) -> bool:
        is_closing = self.disconnecting or self._is_aborted or not self.connected
        return self._handshaken and not is_closing and not self._paused

    def take_turn(self) -> None:
        if self._handshaken or not self.connected or self._is_aborted:
            super().take_turn()
            return
        self._is_waiting = False
        if isinstance(self._deadline, Deadline):
            self._deadline.go_on()
        self.startReading()
        why = self._shake_now(self.turns(), origin_of(self.getPeer()))
        if why is not None:
            self.connectionLost(Failure(why))

    def _shake(self) -> BaseException | None:
        if self._broken is not None:
            return self._broken
        assert self._engine is not None
        try:
            self._engine.do_handshake()
        except SSL.WantReadError:
            super().stopWriting()
            return None
        except SSL.WantWriteError:
            super().startWriting()
            return None
        except SSL.Error as problem:
            return self._why(problem)
        self._handshake_ended()
        return None

    def _handshake_ended(self) -> None:
        self._handshaken = self._is_ready = True
        self._end_deadline()
        if self._is_queued or (self.producer is not None and not self.streamingProducer):
            super().startWriting()  # until then, no write would send at once
        else:
            super().stopWriting()
        if self._paused:
            self.stopReading()
        if IHandshakeListener.providedBy(self.protocol):
            self.protocol.handshakeCompleted()

    def _receive(self) -> BaseException | None:
        # Space for a whole record, so OpenSSL holds back nothing of it.
        got = _ssl_read(self._openssl, _plain, RECORD_BYTES)
        if 0 < got < _LONE_BYTES and self._is_alone():
            if self._reads is None:
                self.deliver(_ffi.buffer(_plain, got)[:])
                return None
            return self._receive_blocks(self._reads, got, None)
        return self._receive_more(got)

    def _is_alone(self) -> bool:
        """Return whether no other record is there."""
        # OpenSSL holds nothing back: the read had space for the whole record, and pyOpenSSL reads no
        # record ahead.
        lone = self._lone_reads = self._lone_reads + 1
        if lone > _LONE_READS and lone % _LONE_READS:
            return True
        if self._waiting():
            self._lone_reads = 0
            return False
        return True

    def _receive_more(self, got: int) -> BaseException | None:
        assert self._engine is not None
        ssl, size, waiting = self._openssl, 0, 0
        session = self._reads
        expected = 0 if session is None else session.blocks.expected
        ended: SSL.Error | None = None
        # A Go peer writes the fields of a frame one by one, each as a record.  With one turn per
        # record, each would leave as a record of its own, on this hop and all later ones.
        for index in range(_TURN_RECORDS):
            if index:
                got = _ssl_read(ssl, _plain + size, RECORD_BYTES)
            if got <= 0:
                ended = self._why_nothing(got)
                break
            size += got
            if got <= expected:
                expected -= got
            elif session is not None:
                expected = session.behind(expected, _ffi.buffer(_plain + size - got, got))
                if expected < 0:
                    break  # the rest is for the next turn
            waiting -= got + _AROUND_BYTES
            # No event announces the bytes that OpenSSL holds.  FIONREAD comes before another read,
            # since an empty read is an exception, which costs ten times as much; the number of bytes
            # bounds how many records follow.
            if waiting <= 0 and not self._engine.pending():
                waiting = self._waiting()
                if not waiting:
                    break
            if size >= _TURN_BYTES:
                break
        if session is not None:
            return self._receive_blocks(session, size, ended)
        if size:
            self.deliver(_ffi.buffer(_plain, size)[:])
        return self._received(ended)

    def _receive_blocks(
        self, session: Carried, size: int, ended: SSL.Error | None
    ) -> BaseException | None:
        if size and (data := self._from_blocks(session, _ffi.buffer(_plain, size))):
            self.deliver(data)
        if ended is None and session.blocks.mark is None:
            return None  # as after each key
        return self._received(ended)

    def _received(self, ended: SSL.Error | None) -> BaseException | None:
        if self._backlog is not None:
            self._ended = self._ended or ended
            return None
        return self._finish(ended)

    def _finish(self, ended: SSL.Error | None) -> BaseException | None:
        if self._is_aborted or self.disconnected:
            return None
        session = self._reads
        if session is not None and session.blocks.mark is not None:
            may_end = session.may_end_with(session.blocks.mark, ours_sent=self._our_end_sent)
            return self._end_received() if may_end else main.CONNECTION_LOST
        return None if ended is None else self._end_of_stream(ended)

    def read_on(self) -> None:
        ended, self._ended = self._ended, None
        why = self._finish(ended)
        if why is not None:
            self.connectionLost(Failure(why))
        elif not self._paused:
            self.resumeProducing()

    def _why_nothing(self, got: int) -> SSL.Error | None:
        assert self._engine is not None
        try:
            self._engine._raise_ssl_error(self._openssl, got)
        except SSL.WantReadError:
            pass
        except SSL.WantWriteError:
            # The answer to a KeyUpdate waits for the kernel's buffer.  Writing never has to read:
            # renegotiation is off, and TLS 1.3 has none.
            self._read_wants_write = True
            super().startWriting()
        except SSL.Error as problem:
            # Its traceback would hold this frame, and so the connection, until the
            # garbage collector comes by.
            return problem.with_traceback(None)
        return None

    def _waiting(self) -> int:
        ioctl(self.fileno(), FIONREAD, _count)
        return _count[0]

    def _end_of_stream(self, ended: SSL.Error) -> BaseException | None:
        if not isinstance(ended, SSL.ZeroReturnError):
            return self._why(ended)
        if self._reads is not None:
            return main.CONNECTION_LOST  # in the middle of a session
        return self._end_received()

    def _end_received(self) -> BaseException | None:
        if self._peer_ended:
            return None
        self._peer_ended = True
        self.stopReading()
        if self._our_end_sent:
            return main.CONNECTION_DONE
        # A producer that waits would never let the queue run out, and what it made now
        # would be for nobody.
        self.unregisterProducer()
        self._deadline = self._clock.callLater(LINGER_SECONDS, self._too_slow)
        self.loseConnection()
        return None

    def _why(self, problem: SSL.Error) -> BaseException:
        """Return the reason for the end of the connection, which OpenSSL reports only once."""
        if self._broken is None:
            self._is_ready = False
            if self._refusal is not None and self._refusal.value is not None:
                self._broken = self._refusal.value
            elif isinstance(problem, SSL.SysCallError):  # cut, or reset
                self._broken = main.CONNECTION_LOST
            else:
                self._broken = problem.with_traceback(None)
        return self._broken

    # Writing.

    def startWriting(self) -> None:
        """During the handshake only take note: OpenSSL knows when it has to write."""
        if self._handshaken or self._engine is None:
            super().startWriting()
        else:
            self._is_queued = True

    def _send(self, data: bytes | memoryview) -> int:
        sent = self._encrypt(data)
        return sent if isinstance(sent, int) else 0

    def write(self, data: bytes) -> None:
        if self._peer_ended or self._our_end_sent:
            return
        size = len(data)
        session = self._sends
        if session is not None and size:
            self._sent_bytes += size
            if self._sent_bytes > PLAIN_BYTES:
                self._send_no_more_blocks()
            elif size > session.short_bytes:
                self._write_long(session, data)
                return
            else:
                data = session.head(size) + data
                size = len(data)
        if type(data) is bytes and 0 < size <= RECORD_BYTES and self._may_send_now():
            took = _ssl_write(self._openssl, data, size)
            if took == size:
                return
            self._why_unsent(took)  # kept for doWrite, a turn later
            _queue(self, data)
        else:
            super().write(data)

    def _write_long(self, session: Carried, data: bytes) -> None:
        for first, rest in session.divided(data):
            if self._may_send_now() and self._send(first):
                sent = self._send(rest)
            else:
                _queue(self, first)
                sent = 0
            if sent < len(rest):
                _queue(self, bytes(rest[sent:]))

    def writeSomeData(self, data: bytes) -> Any:
        return self._encrypt(data)

    def _encrypt(self, data: bytes | memoryview) -> int | BaseException:
        if self._broken is not None:
            return self._broken
        ssl, sent = self._openssl, 0
        with _ffi.from_buffer(data) as start:
            whole = min(len(start), self.SEND_LIMIT)
            while sent < whole:
                took = _ssl_write(ssl, start + sent, min(RECORD_BYTES, whole - sent))
                if took <= 0:
                    # OpenSSL wants the unsent bytes again, the same and no fewer (SSL_write(3)):
                    # they stay at the head of the queue.
                    problem = self._why_unsent(took)
                    return sent if problem is None else problem
                sent += took
        return sent

    def _why_unsent(self, took: int) -> BaseException | None:
        assert self._engine is not None
        try:
            self._engine._raise_ssl_error(self._openssl, took)
        except (SSL.WantWriteError, SSL.WantReadError):
            pass
        except SSL.Error as problem:
            return self._why(problem)
        return None

    def doWrite(self) -> Any:
        if not self._handshaken:
            return self._shake()
        if self._read_wants_write:
            self._read_wants_write = False
            why = self._receive()
            if why is not None or self._read_wants_write or self.disconnected:
                return why
        why = super().doWrite()
        if why is main.CONNECTION_DONE and self.disconnecting:  # the queue is empty
            return self._send_our_end()
        return why

    # Pausing.

    def pauseProducing(self) -> None:
        self._paused = True
        if self._handshaken:
            self.stopReading()

    def resumeProducing(self) -> None:
        self._paused = False
        if self.connected and not self._is_aborted and not self._peer_ended:
            self.startReading()
        self.resume_rest()

    # Ending.

    def loseConnection(self, *arguments: Any) -> None:
        if self._engine is not None and not self._handshaken and not self._is_queued:
            # Without a finished handshake there is no stream to send close_notify in.
            self.abortConnection()
            return
        super().loseConnection(*arguments)
        if self.connected and not self._peer_ended and not (self._paused and self._handshaken):
            self.startReading()  # the peer's end is yet to come

    def loseWriteConnection(self) -> None:
        """Do nothing: there is no half-close here."""

    def _send_our_end(self) -> BaseException | None:
        assert self._engine is not None
        if self._sends is not None:
            return self._send_mark(self._sends)
        try:
            both = self._engine.shutdown()
        except SSL.WantWriteError:
            super().startWriting()
            return None
        except SSL.Error:
            return main.CONNECTION_LOST
        return self._end_sent(both)

    def _end_sent(self, both: bool) -> BaseException | None:
        self._our_end_sent = True
        if both or self._peer_ended:
            return main.CONNECTION_DONE
        if self._deadline is None:
            self._deadline = self._clock.callLater(LINGER_SECONDS, self._unanswered)
        return None

    def _send_mark(self, session: Carried) -> BaseException | None:
        # A peer that has ended without blocks takes no other session.
        peer_ended = self._peer_ended and self._reads is not None
        sent = self._encrypt(session.our_mark(self, peer_ended=peer_ended).value)
        if not isinstance(sent, int):
            return main.CONNECTION_LOST
        if not sent:
            super().startWriting()
            return None
        return self._end_sent(False)

    def readConnectionLost(self, reason: Failure) -> None:
        self.connectionLost(reason)

    def connectionLost(self, reason: Failure) -> None:
        self._end_deadline()
        session = self._sends if self._reads is not None else None
        self._sends = self._reads = pass_on = None
        if session is not None and self._is_over_in_order(reason):
            pass_on = session.detach(self)
        engine, self._engine, self._handshaken = self._engine, None, True
        self._openssl = self.proofs = None
        if self._refusal is not None:
            reason = self._refusal
        try:
            super().connectionLost(reason)
        finally:
            if engine is not None:
                engine.set_app_data(None)
            if pass_on is not None:
                pass_on()

    def _is_over_in_order(self, reason: Failure) -> bool:
        is_over = self._peer_ended and self._our_end_sent and not self._is_aborted
        return is_over and self._engine is not None and reason.check(ConnectionDone) is not None

    def _end_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if isinstance(deadline, Deadline) or (deadline is not None and deadline.active()):
            deadline.cancel()

    def _unanswered(self) -> None:
        """Close without a reset, so that a slow peer can still read what the kernel has taken."""
        self._deadline = None
        self.connectionLost(Failure(main.CONNECTION_LOST))

    def _too_slow(self) -> None:
        self._deadline = None
        self.abortConnection()


@implementer(ISSLTransport)
class TLSServer(TLSOnDescriptor, TCPServer):
    """An accepted TLS connection."""


@implementer(ISSLTransport)
class TLSClient(TLSOnDescriptor, TCPClient):
    """An outgoing TLS connection."""

    tls: ClientEngines
    resumption: SessionKeeper | None = None

    def connectionLost(self, reason: Failure) -> None:
        resumption, self.resumption = self.resumption, None
        if resumption is not None and self._engine is not None:
            resumption.keep(self._engine)
        super().connectionLost(reason)

    def _connectDone(self) -> None:
        self.begin(self.tls.client_engine(self, self.socket), self.reactor, None)
        super()._connectDone()
        if self.disconnecting or self._is_aborted:
            return
        why = self._shake()  # a client sends the first message
        if why is not None:
            self.reactor.callLater(0, self.connectionLost, Failure(why))


class _TLSConnector(TCPConnector):
    tls: ClientEngines

    def _makeTransport(self) -> TLSClient:
        endpoint = TLSClient(self.host, self.port, self.bindAddress, self, self.reactor)
        endpoint.tls = self.tls
        return endpoint


class TLSConnecting(Connecting):
    """A reactor whose outgoing TCP connections speak TLS."""

    def __init__(self, reactor: Any, tls: ClientEngines) -> None:
        super().__init__(reactor)
        self._tls = tls

    def tcp_connector(self, *where: Any) -> TCPConnector:
        connector = _TLSConnector(*where)
        connector.tls = self._tls
        return connector

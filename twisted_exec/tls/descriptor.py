"""
TLS on the socket's own descriptor.

Twisted's TLS is a protocol above a socket transport: what the socket brought is copied into
OpenSSL's memory, read out until OpenSSL has no more, which is an exception each time, and
what OpenSSL made is copied out again and queued.  Here OpenSSL reads and writes the
descriptor itself, and the transport *is* the connection: one turn for a key that comes, one
``send`` for a key that goes, nothing between.

What that asks for, and where each is met:

* **OpenSSL may hold what no event will tell of.**  A record is read whole (:data:`RECORD_BYTES`
  is the largest), so nothing is left in it but when ``pending`` says so, which is asked.
* **A message that is no data ends a read.**  OpenSSL would go on to the next record as long as the
  kernel has any: a peer that changes its keys without end would have the reactor to itself.
* **Behind a record there is often another**: a peer in Go writes the fields of a frame one by one, each a
  record.  Whoever took a turn for each would make a record of each again, and so would every hop behind.
  But there is an end to it (:data:`_TURN_RECORDS`): a byte in each would hold all others up.
* **Before OpenSSL is asked for more, the kernel is**: that OpenSSL finds nothing is an exception, which
  costs ten times what the kernel's answer does.  The answer is a number of bytes, and good for as many
  records as those may be.
* **A record costs one call.**  pyOpenSSL's ``recv`` and ``send`` put half a dozen calls around OpenSSL's one, a
  buffer and a copy; a peer's heads of four bytes have records as well.  So OpenSSL is called directly, and reads
  one record behind the other into one buffer; what a failure means is pyOpenSSL's to say.
* **Reading may have to write** (a KeyUpdate wants an answer) when the kernel takes nothing: the write
  event is awaited, and reading goes on behind it.  Writing never has to read: renegotiation is
  off, and TLS 1.3 has none.
* **What OpenSSL could not send it wants to be given again**, from the same byte and no shorter.  So it
  stays at the head of Twisted's queue, and nobody writes past a queue.
* **The end is a message.**  ``loseConnection`` sends it behind the queue and waits for the peer's; a
  peer's is answered behind the queue.  A socket that ends without one was cut.
* **There is no half-close**: the end of a stream travels inside it.

The queue, its producer and its limits are those of Twisted's ``FileDescriptor``.
"""

from __future__ import annotations

import socket
import sys
from fcntl import ioctl
from termios import FIONREAD
from typing import TYPE_CHECKING, Any

from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet import main, tcp
from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IListeningPort,
    IProtocol,
    IReactorTime,
    ISSLTransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.server import ServerTLS
from twisted_exec.tls.transport import Connecting, TCPClient, TCPConnector, TCPServer

LINGER_SECONDS = 30.0
"""How long a peer may take for the end: that has ended the stream, to read what is left for it; that reads
our end, to say its own."""

RECORD_BYTES = 1 << 14
"""The most plain bytes that one TLS record carries."""

_TURN_BYTES = 1 << 17
"""What one turn of the reactor reads of one connection, about: what one ``write`` takes at once."""

_TURN_RECORDS = 1 << 6
"""No more of them, however small: then others have their turn."""

_AROUND_BYTES = 22
"""What a record adds to what it carries, about: RFC 8446, section 5.2, with a tag of 16 bytes."""

_NOTHING = bytes(4)
"""Room for what the kernel answers to ``FIONREAD``: an ``int``."""

_ffi: Any = SSL._ffi  # type: ignore[attr-defined]
_ssl_read: Any = SSL._lib.SSL_read  # type: ignore[attr-defined]
_ssl_write: Any = SSL._lib.SSL_write  # type: ignore[attr-defined]

# One for all connections: a process has one reactor, which reads one at a time, and what was read is
# copied out before anyone is told.  An idle connection has none.
_plain = _ffi.new("char[]", _TURN_BYTES + RECORD_BYTES)

if TYPE_CHECKING:

    class _Socket(tcp.Connection):
        """With the clock that every reactor is."""

        reactor: Any

else:
    _Socket = object


class _TLSOnDescriptor(_Socket):
    """
    Mixed in before one of our socket transports.

    ``protocol`` is the protocol above TLS.  A protocol that provides
    :class:`~twisted.internet.interfaces.IHandshakeListener` is told when the handshake is over.
    """

    _engine: SSL.Connection | None = None
    _handshaken = False
    _read_wants_write = False
    _peer_ended = False
    _our_end_sent = False
    _paused = False
    _refusal: Failure | None = None
    _broken: BaseException | None = None
    _deadline: IDelayedCall | None = None

    def begin(self, engine: SSL.Connection, clock: IReactorTime, seconds: float | None) -> None:
        """
        The socket is connected; the handshake begins with the reactor's next turn.

        :param engine: on the socket.
        :param seconds: after which a handshake that is not over is cut, or ``None``.
        """
        self._engine, self._clock = engine, clock
        # pyOpenSSL sets this for each connection, and has no name for the reverse.
        SSL._lib.SSL_clear_mode(engine._ssl, SSL._lib.SSL_MODE_AUTO_RETRY)  # type: ignore[attr-defined]
        if seconds is not None:
            self._deadline = clock.callLater(seconds, self._too_slow)

    # What TLS adds to a transport.

    def getPeerCertificate(self) -> X509 | None:
        """As :meth:`ISSLTransport.getPeerCertificate`."""
        return self._engine.get_peer_certificate() if self._engine is not None else None

    def getHandle(self) -> Any:
        """OpenSSL's part of the connection, as of Twisted's TLS."""
        return self._engine if self._engine is not None else super().getHandle()

    @property
    def negotiatedProtocol(self) -> bytes | None:
        """As :meth:`INegotiated.negotiatedProtocol`."""
        if self._engine is None:
            return None
        return self._engine.get_alpn_proto_negotiated() or None

    @property
    def wrappedProtocol(self) -> IProtocol:
        """The protocol above TLS, under the name that it has in Twisted's."""
        return self.protocol

    @wrappedProtocol.setter
    def wrappedProtocol(self, protocol: IProtocol) -> None:
        self.protocol = protocol

    def failVerification(self, reason: Failure) -> None:
        """The peer is not believed: called while OpenSSL is in the middle of the handshake."""
        self._refusal = reason

    # Reading.

    def doRead(self) -> BaseException | None:  # type: ignore[override]
        """Called by the reactor; what it returns ends the connection."""
        return self._receive() if self._handshaken else self._shake()

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
        self._handshake_is_over()
        return None

    def _handshake_is_over(self) -> None:
        self._handshaken = True
        self._end_deadline()
        if self._is_queued() or self.producer is not None:
            super().startWriting()
        else:
            super().stopWriting()
        if self._paused:
            self.stopReading()
        if IHandshakeListener.providedBy(self.protocol):
            self.protocol.handshakeCompleted()

    def _receive(self) -> BaseException | None:
        """What one turn may read, delivered in one piece."""
        assert self._engine is not None
        ssl, size, waiting = self._engine._ssl, 0, 0
        ended: SSL.Error | None = None
        for _ in range(_TURN_RECORDS):
            got = _ssl_read(ssl, _plain + size, RECORD_BYTES)
            if got <= 0:
                ended = self._why_nothing(got)
                break
            size += got
            waiting -= got + _AROUND_BYTES
            if waiting <= 0 and not self._engine.pending():
                waiting = self._waiting()
                if not waiting:
                    break
            if size >= _TURN_BYTES:
                break
        if size:
            self.protocol.dataReceived(_ffi.buffer(_plain, size)[:])
        if ended is None or self._aborting or self.disconnected:
            return None
        return self._end_of_stream(ended)

    def _why_nothing(self, got: int) -> SSL.Error | None:
        """
        What ends the stream, if it is that.

        :param got: what OpenSSL returned instead of bytes.
        """
        assert self._engine is not None
        try:
            self._engine._raise_ssl_error(self._engine._ssl, got)
        except SSL.WantReadError:
            pass
        except SSL.WantWriteError:
            self._read_wants_write = True
            super().startWriting()
        except SSL.Error as problem:
            # Its traceback would hold this frame, and so the connection, until the
            # garbage collector comes by.
            return problem.with_traceback(None)
        return None

    def _waiting(self) -> int:
        """How many bytes the kernel has."""
        return int.from_bytes(ioctl(self.fileno(), FIONREAD, _NOTHING), sys.byteorder)

    def _end_of_stream(self, ended: SSL.Error) -> BaseException | None:
        if not isinstance(ended, SSL.ZeroReturnError):
            return self._why(ended)
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
        """
        The reason of an end that OpenSSL found; the first one counts.

        OpenSSL is asked again where one event tells of reading and of writing, and where a
        write of ours failed a turn ago: then it has no reason to tell.
        """
        if self._broken is None:
            if self._refusal is not None and self._refusal.value is not None:
                self._broken = self._refusal.value
            elif isinstance(problem, SSL.SysCallError):  # cut, or reset
                self._broken = main.CONNECTION_LOST
            else:
                self._broken = problem.with_traceback(None)
        return self._broken

    # Writing.

    def startWriting(self) -> None:
        """Before the handshake is over OpenSSL alone says when there is something to write."""
        if self._handshaken or self._engine is None:
            super().startWriting()

    def _may_send_now(self) -> bool:
        return self._handshaken and super()._may_send_now()  # type: ignore[misc]

    def _send(self, data: bytes) -> int:
        """Send what the kernel takes now; what ends the connection is found a turn later."""
        sent = self._encrypt(data)
        return sent if isinstance(sent, int) else 0

    def write(self, data: bytes) -> None:
        """As :meth:`ITransport.write`; after the end it is dropped."""
        if not (self._peer_ended or self._our_end_sent):
            super().write(data)

    def writeSomeData(self, data: bytes) -> Any:
        """Called by ``doWrite``: how much was sent, or what ends the connection."""
        return self._encrypt(data)

    def _encrypt(self, data: bytes) -> int | BaseException:
        if self._broken is not None:
            return self._broken
        assert self._engine is not None
        ssl, sent = self._engine._ssl, 0
        with _ffi.from_buffer(data) as start:
            whole = min(len(start), self.SEND_LIMIT)
            while sent < whole:
                took = _ssl_write(ssl, start + sent, min(RECORD_BYTES, whole - sent))
                if took <= 0:
                    problem = self._why_unsent(took)
                    return sent if problem is None else problem
                sent += took
        return sent

    def _why_unsent(self, took: int) -> BaseException | None:
        """
        What ends the connection, if the kernel is not merely full.

        :param took: what OpenSSL returned instead of a number of bytes.
        """
        assert self._engine is not None
        try:
            self._engine._raise_ssl_error(self._engine._ssl, took)
        except (SSL.WantWriteError, SSL.WantReadError):
            pass
        except SSL.Error as problem:
            return self._why(problem)
        return None

    def doWrite(self) -> Any:
        """Called by the reactor; what it returns ends the connection."""
        if not self._handshaken:
            return self._shake()
        if self._read_wants_write:
            self._read_wants_write = False
            why = self._receive()
            if why is not None or self._read_wants_write or self.disconnected:
                return why
        return super().doWrite()

    def _is_queued(self) -> bool:
        return bool(self.dataBuffer or self._tempDataBuffer)

    # Pausing.

    def pauseProducing(self) -> None:
        """As :meth:`IPushProducer.pauseProducing`; the handshake goes on."""
        self._paused = True
        if self._handshaken:
            self.stopReading()

    def resumeProducing(self) -> None:
        """As :meth:`IPushProducer.resumeProducing`; also while the peer's end is awaited."""
        self._paused = False
        if self.connected and not self._aborting and not self._peer_ended:
            self.startReading()

    # Ending.

    def loseConnection(self, *arguments: Any) -> None:
        """As :meth:`ITransport.loseConnection`."""
        if self._engine is not None and not self._handshaken and not self._is_queued():
            # There is no end to be said in a stream that has not begun.
            self.abortConnection()
            return
        super().loseConnection(*arguments)
        if self.connected and not self._peer_ended and not (self._paused and self._handshaken):
            self.startReading()  # the peer's end is yet to come

    def loseWriteConnection(self) -> None:
        """TLS has no half-close: nothing happens."""

    def _postLoseConnection(self) -> BaseException | None:
        """Called when everything is written: now the end is said."""
        assert self._engine is not None
        try:
            both = self._engine.shutdown()
        except SSL.WantWriteError:
            super().startWriting()
            return None
        except SSL.Error:
            return main.CONNECTION_LOST
        self._our_end_sent = True
        if both or self._peer_ended:
            return main.CONNECTION_DONE
        if self._deadline is None:
            self._deadline = self._clock.callLater(LINGER_SECONDS, self._unanswered)
        return None

    def readConnectionLost(self, reason: Failure) -> None:
        """Called by the reactor for what a plain socket would call a half-close."""
        self.connectionLost(reason)

    def connectionLost(self, reason: Failure) -> None:
        """Called by the reactor."""
        self._end_deadline()
        engine, self._engine, self._handshaken = self._engine, None, True
        if self._refusal is not None:
            reason = self._refusal
        super().connectionLost(reason)
        if engine is not None:
            engine.set_app_data(None)

    def _end_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None and deadline.active():
            deadline.cancel()

    def _unanswered(self) -> None:
        """Closed, and not cut: what the kernel has taken a slow peer may still want to read."""
        self._deadline = None
        self.connectionLost(Failure(main.CONNECTION_LOST))

    def _too_slow(self) -> None:
        self._deadline = None
        self.abortConnection()


@implementer(ISSLTransport)
class TLSServer(_TLSOnDescriptor, TCPServer):
    """An accepted TLS connection."""


@implementer(ISSLTransport)
class TLSClient(_TLSOnDescriptor, TCPClient):
    """An outgoing TLS connection."""

    tls: ClientTLS

    def _connectDone(self) -> None:
        self.begin(self.tls.client_engine(self, self.socket), self.reactor, None)
        super()._connectDone()
        if self.disconnecting or self._aborting:
            return
        why = self._shake()  # the first word is ours
        if why is not None:
            self.reactor.callLater(0, self.connectionLost, Failure(why))


class _TLSConnector(TCPConnector):
    tls: ClientTLS

    def _makeTransport(self) -> TLSClient:
        endpoint = TLSClient(self.host, self.port, self.bindAddress, self, self.reactor)
        endpoint.tls = self.tls
        return endpoint


class TLSConnecting(Connecting):
    """A reactor whose outgoing TCP connections speak TLS; all else is the reactor's."""

    def __init__(self, reactor: Any, tls: ClientTLS) -> None:
        super().__init__(reactor)
        self._tls = tls

    def tcp_connector(self, *where: Any) -> TCPConnector:
        connector = _TLSConnector(*where)
        connector.tls = self._tls
        return connector


def accept_tls(
    port: IListeningPort, tls: ServerTLS, clock: IReactorTime, handshake_seconds: float | None
) -> None:
    """Make a listening TCP port's *later* connections speak TLS."""

    def accepted(plug: socket.socket, *rest: Any) -> TLSServer:
        transport = TLSServer(plug, *rest)
        transport.begin(tls.server_engine(plug), clock, handshake_seconds)
        return transport

    port.transport = accepted  # type: ignore[attr-defined]

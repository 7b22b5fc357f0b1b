"""
TLS without write aggregation above any transport, such as a UNIX socket or a tunnel.

Records are made in memory, as Twisted does it; on TCP sockets OpenSSL uses the socket itself
(:mod:`twisted_exec.tls.fast.descriptor`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from OpenSSL.SSL import Error, WantReadError, ZeroReturnError
from twisted.internet.interfaces import (
    IDelayedCall,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    IReactorTime,
    ITransport,
)
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.tls.fast.names import is_usable
from twisted_exec.tls.turns import IFramed, Turns, TurnTaking, turns_of

_LINGER_SECONDS = 30.0

_RECORD_BYTES = 1 << 14
"""The largest plaintext of one TLS record (RFC 8446, section 5.1)."""


class LimitedTLS(TLSMemoryBIOProtocol):
    """
    Twisted's TLS, with time limits.

    A peer is cut if it has not finished the handshake after the factory's ``handshake_seconds``, or
    has not closed the connection half a minute after :meth:`loseConnection`.
    """

    factory: StreamTLSFactory
    is_shaking = True
    _is_aborted = False
    _deadline: IDelayedCall | None = None

    def makeConnection(self, transport: ITransport) -> None:
        super().makeConnection(transport)
        seconds = self.factory.handshake_seconds
        if seconds is not None and self.is_shaking and self.connected:
            self.limit(seconds)

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if self.is_shaking:
            self.look_at_handshake()

    def look_at_handshake(self) -> None:
        engine = self.getHandle()
        if engine is None or engine.get_finished() is None or engine.get_peer_finished() is None:
            return
        self.is_shaking = False
        if not self.disconnecting:  # the limit is not yet that of the end
            self.end_limit()

    def loseConnection(self) -> None:
        super().loseConnection()
        if self.connected and not self._is_aborted:
            self.limit(_LINGER_SECONDS)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        try:
            super().connectionLost(reason)
        finally:
            self.end_limit()

    def abortConnection(self) -> None:
        """
        As :meth:`ITCPTransport.abortConnection`; Twisted's raises if the connection is closed
        already.
        """
        self._is_aborted = True
        if self.getHandle() is not None:
            super().abortConnection()

    def getPeerCertificate(self) -> Any:
        """
        As :meth:`ISSLTransport.getPeerCertificate`; Twisted's raises if the connection is closed
        already.
        """
        return super().getPeerCertificate() if self.getHandle() is not None else None

    def limit(self, seconds: float) -> None:
        """Abort the connection after some time, instead of an earlier limit."""
        self.end_limit()
        self._deadline = self.factory.clock.callLater(seconds, self._too_slow)

    def end_limit(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _too_slow(self) -> None:
        self._deadline = None
        self.abortConnection()


@implementer(IFramed)
class StreamTLS(TurnTaking, LimitedTLS):
    """
    TLS for streams: no aggregation, and a time limit for the whole end.

    A peer that ended the stream but does not read the rest of our data is cut, too.
    """

    receiver = "wrappedProtocol"
    _is_over = False  # of TLS
    _ended: Error | None = None  # follows the bytes that wait for their turn

    def turns(self) -> Turns:
        return turns_of(self.factory.clock)

    def frame_rest(self, size: int) -> int | None:
        # The steps of a handshake take turns; what follows is divided above TLS.
        return _RECORD_BYTES if self.is_shaking else None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        try:
            if not self._is_over:
                self.getHandle().bio_shutdown()
                self._flushReceiveBIO()  # reads what is left, which may be the stream's end
            self._finish()
            self.deliver_rest(partial(super().connectionLost, reason))
        finally:
            self._is_over = True
            self.end_limit()

    def loseConnection(self) -> None:
        """
        As :meth:`ITransport.loseConnection`; the limit begins when the rest of our data is
        encrypted.
        """
        TLSMemoryBIOProtocol.loseConnection(self)

    def abortConnection(self) -> None:
        self.drop_rest()
        super().abortConnection()

    def pauseProducing(self) -> None:
        self._paused = True
        self.hold_reading()

    def resumeProducing(self) -> None:
        self._paused = False
        if not self._held:
            cast(Any, self.transport).resumeProducing()
        self.resume_rest()

    def hold_reading(self) -> None:
        cast(Any, self.transport).pauseProducing()

    def read_on(self) -> None:
        if self._ended is not None:
            self._finish()
            self._flushSendBIO()
        elif not self._paused:
            self.resumeProducing()

    def _flushReceiveBIO(self) -> None:
        received: list[bytes] = []
        ended: Error | None = None
        if self.is_shaking:
            self.look_at_handshake()
        while not self._is_over:
            try:
                received.append(self.getHandle().recv(_RECORD_BYTES))
            except WantReadError:  # once per read of the socket: keep it cheap
                break
            except Error as problem:
                # Its traceback would hold this frame, and so the whole connection,
                # until the garbage collector comes by.
                ended = problem.with_traceback(None)
                break
        if received and not self._is_aborted:
            self.deliver(received[0] if len(received) == 1 else b"".join(received))
        self._ended = self._ended or ended
        if self._backlog is None:
            self._finish()
        self._flushSendBIO()

    def _finish(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None and not self._is_over:
            self._end(ended)

    def _end(self, ended: Error) -> None:
        if isinstance(ended, ZeroReturnError):
            self._shutdownTLS()  # the peer's close_notify wants ours
            self._tlsShutdownFinished(None)
        else:
            self._tlsShutdownFinished(Failure(ended))

    def _shutdownTLS(self) -> None:
        super()._shutdownTLS()
        if self._deadline is None and not (self._is_over or self._is_aborted):
            # The peer has not sent its close_notify, and may never do so.
            self.limit(_LINGER_SECONDS)

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        self._is_over = True
        # A closing socket resumes a paused producer when its queue is empty, and waits for the
        # producer's data, which is dropped by now.
        self.unregisterProducer()
        # A peer that ended the stream but reads nothing gets a time limit, too.
        self.limit(_LINGER_SECONDS)
        super()._tlsShutdownFinished(reason)

    def _write(self, data: bytes) -> None:
        if len(data) > _RECORD_BYTES and not self._is_over:
            data = data[self._write_records(memoryview(data)) :]
        # One record or less, or data that OpenSSL did not take: Twisted handles both.
        super()._write(data)

    def _write_records(self, data: memoryview) -> int:
        records: list[bytes] = []
        sent_bytes = 0
        engine = self.getHandle()
        try:
            while sent_bytes < len(data):
                sent_bytes += engine.send(data[sent_bytes : sent_bytes + _RECORD_BYTES])
                # Emptied after each record: a BIO never shrinks from its largest size.
                records.append(engine.bio_read(2 * _RECORD_BYTES))
        except Error:
            pass
        cast(ITransport, self.transport).write(b"".join(records))
        return sent_bytes


class StreamTLSFactory(TLSMemoryBIOFactory):
    """
    Wraps a factory's protocols in :class:`StreamTLS` if possible, or in :class:`LimitedTLS`.

    :param handshake_seconds: time limit of the handshake; ``None`` if the caller has its own.
    """

    def __init__(
        self,
        tls: IOpenSSLServerConnectionCreator | IOpenSSLClientConnectionCreator,
        is_client: bool,
        factory: IProtocolFactory,
        clock: IReactorTime,
        *,
        handshake_seconds: float | None = None,
    ) -> None:
        super().__init__(tls, is_client, factory, clock)
        is_own = is_usable("records", {"TLSMemoryBIOProtocol": TLSMemoryBIOProtocol})
        self.protocol = StreamTLS if is_own else LimitedTLS
        self.clock = clock
        self.handshake_seconds = handshake_seconds

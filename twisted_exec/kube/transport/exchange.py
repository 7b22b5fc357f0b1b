"""
One request and its answer on a connection of :mod:`.http`: whose connection it is, and who gets the
body.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IConsumer, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import URI, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer

from twisted_exec.api.status import BadGateway
from twisted_exec.kube.transport.limits import Head

T = TypeVar("T")


class Misuse(Exception):
    """The receiver of a body raised ``cause``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Body(Protocol):
    """
    Gives a response's body to ``receive``.

    ``done`` fires at its end; cancelling it, or an exception of ``receive``,
    aborts the connection.
    """

    def __init__(self, receive: Callable[[bytes], None], abort: Callable[[], object]) -> None:
        self._receive = receive
        self._abort = abort
        self.done: Deferred[None] = Deferred(lambda _: self._give_up(Failure(CancelledError())))

    def dataReceived(self, data: bytes) -> None:
        if self.done.called:
            return
        try:
            self._receive(data)
        except Exception as cause:
            # Raised into the HTTP parser, it would become a broken response; the
            # caller must see the original.
            self._give_up(Failure(Misuse(cause)))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if reason.check(ResponseDone, PotentialDataLoss):
            self._settle(None)
        else:
            self._settle(reason)

    def _give_up(self, why: Failure) -> None:
        self._settle(why)  # before the abort, because connectionLost has a less specific reason
        self._abort()

    def _settle(self, outcome: Failure | None) -> None:
        if self.done.called:
            return
        if outcome is None:
            self.done.callback(None)
        else:
            self.done.errback(outcome)


class Gunzip:
    """
    Decompresses a body piece by piece.

    A megabyte of gzip may become a gigabyte.  So each piece of output is small, and the receiver
    counts it before the next one is made.

    :param receive: gets the pieces; an exception of it ends the decompression.
    """

    PIECE_BYTES = 64 << 10

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._has_begun = False

    def feed(self, data: bytes) -> None:
        """
        Decompress a part of the body.

        :raises BadGateway: it is not gzip.
        """
        self._has_begun = True
        while not self._inflate.eof:
            try:
                piece = self._inflate.decompress(data, self.PIECE_BYTES)
            except zlib.error:
                raise BadGateway("the server's answer is not the gzip that its head says") from None
            data = self._inflate.unconsumed_tail
            if piece:
                self._receive(piece)
            # A full piece may not be all that zlib holds.
            if not data and len(piece) < self.PIECE_BYTES:
                return

    def finish(self) -> None:
        """
        Note the end of the body.

        :raises BadGateway: the compressed data is incomplete.
        """
        if self._has_begun and not self._inflate.eof:
            raise BadGateway("the server's answer is incomplete")


class Incoming:
    """
    An answer whose head has arrived; its body is paused.

    :ivar headers: without those of the connection, such as ``Transfer-Encoding``.
    :ivar length: bytes of the body; ``None`` if the server has not said so.
    """

    def __init__(self, response: Any, use: Use) -> None:
        self._response, self._use = response, use
        self.code: int = response.code
        self.headers: Sequence[tuple[bytes, bytes]] = [
            (name, value)
            for name, values in response.headers.getAllRawHeaders()
            for value in values
        ]
        length = response.length
        self.length: int | None = length if isinstance(length, int) else None
        self._body: Body | None = None
        self._is_paused = False

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        """
        Start delivery.

        :param data: called with each piece of the body.
        :param ended: called once at the end, with whether the body is complete; not after
            :meth:`abort`.
        """
        body = self._body = Body(data, self._use.abort)
        body.done.addCallbacks(lambda _: ended(True), self._failed, errbackArgs=(ended,))
        self._response.deliverBody(body)
        if self._is_paused:  # during the first pieces: deliverBody resumes the connection
            self.pause()

    def _failed(self, failure: Failure, ended: Callable[[bool], None]) -> None:
        if not failure.check(CancelledError):
            ended(False)

    def pause(self) -> None:
        """Stop reading the connection; bytes already read are still delivered."""
        self._flow("pauseProducing", True)

    def resume(self) -> None:
        """Resume reading."""
        self._flow("resumeProducing", False)

    def _flow(self, call: str, is_paused: bool) -> None:
        self._is_paused = is_paused
        # Without a body there is no connection any more.
        if self._body is not None and self._body.transport is not None:
            getattr(self._body.transport, call)()

    def abort(self) -> None:
        """Discard the rest, and end the connection.  Repeated calls do nothing."""
        if self._body is None:
            self._use.abort()
        else:
            self._body.done.cancel()


class Use:
    """
    A pool for one exchange, which remembers the connection in order to abort it.

    It takes the place of the pool in Agent.
    """

    def __init__(self, pool: HTTPConnectionPool) -> None:
        self._pool = pool
        self.persistent = pool.persistent
        self._protocol: Any = None
        self._head: Head | None = None
        self.problem = ""

    def getConnection(self, key: object, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        connecting: Deferred[Any] = self._pool.getConnection(key, endpoint)
        return connecting.addCallback(self._connected)

    def _connected(self, protocol: Any) -> Any:
        self._protocol = protocol
        self._head = Head(protocol, self._refuse)
        protocol.dataReceived = self._head.received
        return protocol

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        self.abort()

    def answered(self, response: T) -> T:
        """Stop counting the head: it is complete."""
        head, self._head = self._head, None  # they refer to each other
        if head is not None:
            head.is_complete = True
            self._protocol.__dict__.pop("dataReceived", None)
        return response

    def abort(self) -> None:
        """End the connection now, without waiting for the peer."""
        if self._protocol is not None:
            transport = self._protocol.transport
            self._protocol.abort()
            # loseConnection would wait until the peer has sent everything.
            if transport is not None:
                transport.abortConnection()


@implementer(IAgentEndpointFactory)
class FixedServer:
    """An endpoint factory that returns the same server for every URL."""

    def __init__(self, server: IStreamClientEndpoint) -> None:
        self._server = server

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        return self._server


@implementer(IBodyProducer)
class BodyBytes:
    """A request body from memory, written at once, without a Cooperator."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Everything is written already."""

    def resumeProducing(self) -> None:
        """Everything is written already."""

    def stopProducing(self) -> None:
        """Everything is written already."""

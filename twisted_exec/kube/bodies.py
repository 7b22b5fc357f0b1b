"""Bodies of requests and of answers: delivery, decompression, and errors of the receiver."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

from twisted_exec.api.status import BadGateway


class Misuse(Exception):
    """The receiver of a body raised ``cause``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Body(Protocol):
    """Gives a response's body to ``receive``."""

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
    """Decompresses a body piece by piece."""

    PIECE_BYTES = 64 << 10

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        # 16: with the head of gzip (zlib.h, inflateInit2).
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


@implementer(IBodyProducer)
class BodyBytes:
    """A request body from memory, written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing to do."""

    def resumeProducing(self) -> None:
        """Nothing to do."""

    def stopProducing(self) -> None:
        """Nothing to do."""

"""
Long responses, written in pieces at the client's pace; slow pieces take turns, user by user.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from itertools import chain, islice

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.program.turns import SharedTurns
from twisted_exec.streaming.http.responses import respond
from twisted_exec.streaming.http.site import Request

_TURN_BYTES = 256 << 10
"""Written by one response in one turn of the reactor."""

_TURN_PIECES = 4
"""Most pieces that one response writes in one turn: small pieces take time to make, too."""

GZIP_BYTES = 128 << 10
"""Least size of a document that is compressed, as in kube-apiserver."""

_SLICE_BYTES = 32 << 10
"""Bytes that are compressed at once, in less than a millisecond."""

_GZIP_LEVEL = 1
_GZIP_WINDOW = 31  # zlib: the largest window, and the header of gzip
_GZIP_MEMORY = 256 << 10
"""Memory of a compressor, according to ``zconf.h``."""

STALLED_SECONDS = 30.0
"""Time limit for a client that reads nothing of a response."""

LONGEST_SECONDS = 600.0
"""Time limit for a whole response."""

# RFC 9110, section 12.4.2: a weight has at most three decimals.
_NEVER = (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")


def accepts_gzip(request: Request) -> bool:
    """Return whether a long response may be compressed."""
    lines = request.requestHeaders.getRawHeaders(b"accept-encoding", [])
    codings = (each.partition(b";") for each in b",".join(lines).split(b","))
    # As in kube-apiserver, only for GET.
    return request.method == b"GET" and any(
        coding.strip().lower() == b"gzip" and weight.replace(b" ", b"") not in _NEVER
        for coding, _, weight in codings
    )


@implementer(IPushProducer)
class Paced:
    """
    A response to one client, in pieces.

    :ivar done: fires at the end of the response, complete or cut.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.done: Deferred[None] = Deferred()
        self.paused = False
        self.gone = False
        self._clock = clock
        self._room: Deferred[None] | None = None
        self._turn: IDelayedCall | None = None
        self._written = 0

    def put(self, data: bytes) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Write now, with or without room."""
        self._written += len(data)
        self.put(data)

    def room(self) -> Deferred[None]:
        """
        Return a Deferred that fires when there is room for a piece, or at the end; for one waiter.
        """
        waiting: Deferred[None] = Deferred()
        self._room = waiting
        if self.done.called or not self.paused:
            self._make_room()
        return waiting

    def _make_room(self) -> None:
        if self._room is None:
            return
        if self._written >= _TURN_BYTES and not self.done.called:
            if self._turn is None:
                self._turn = self._clock.callLater(0, self._next_turn)
            return
        room, self._room = self._room, None
        if not room.called:  # its waiter may have cancelled it
            room.callback(None)

    def _next_turn(self) -> None:
        self._turn, self._written = None, 0
        if not self.paused:
            self._make_room()

    def finish(self) -> None:
        if not self.done.called:
            self.done.callback(None)
        self._make_room()

    def end(self) -> None:
        """Clean up; called once, after :attr:`done`."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def evict(self) -> None:
        self.gone = True
        self.abort()
        self.finish()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused, self._written = False, 0
        self._make_room()

    def stopProducing(self) -> None:
        self.gone = True
        self.finish()


class PacedAnswer(Paced):
    """The body of a response whose head is set."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.channel.site.reactor)
        self.request = request

    def begin(self, content_type: str = "application/json") -> None:
        self.request.setHeader(b"Content-Type", content_type.encode())
        if not self.request.responseHeaders.hasHeader(b"Cache-Control"):
            self.request.setHeader(b"Cache-Control", b"no-cache, private")
        self.request.registerProducer(self, True)
        self.request.write(b"")

    def put(self, data: bytes) -> None:
        self.request.write(data)

    def abort(self) -> None:
        if not self.request.gone:
            self.request.channel.transport.abortConnection()

    def end(self) -> None:
        """Finish the response, unless the connection is lost."""
        super().end()
        # A response that is being aborted must not end as if it were complete.
        if not self.gone and not self.request.gone and not self.request.finished:
            self.request.unregisterProducer()
            self.request.finish()
        self.request.producer = (
            None  # or both would wait for the garbage collector, with the connection
        )


class _Long(PacedAnswer):
    def __init__(self, request: Request, held: int = 0) -> None:
        super().__init__(request)
        self._held = held
        self._stalled: IDelayedCall | None = None
        self._latest = self._clock.callLater(LONGEST_SECONDS, self.evict)
        self._unread = request.channel.site.unread
        self._piece_bytes = 0

    def write(self, data: bytes) -> None:
        self._piece_bytes = len(data)
        super().write(data)
        self._written += max(0, _TURN_BYTES // _TURN_PIECES - len(data))

    def pauseProducing(self) -> None:
        super().pauseProducing()
        if self._stalled is None:
            self._stalled = self._clock.callLater(STALLED_SECONDS, self.evict)
            self.request.channel.stalled = True
            self._unread.keep(self, self._piece_bytes + self._held)

    def resumeProducing(self) -> None:
        self._go_on()
        super().resumeProducing()

    def _go_on(self) -> None:
        self._unread.release(self)
        stalled, self._stalled = self._stalled, None
        if stalled is not None and stalled.active():
            stalled.cancel()
        if not self.request.gone:
            self.request.channel.stalled = False

    def end(self) -> None:
        self._go_on()
        if self._latest.active():
            self._latest.cancel()
        if not self.gone and not self.request.gone:
            self.request.channel.answered(self._piece_bytes)
        super().end()


async def respond_pieces(
    request: Request,
    code: int,
    pieces: Iterator[bytes],
    content_type: str = "application/json",
    *,
    gzip: bool = False,
) -> None:
    """
    Send a document that is produced in pieces; return after the last write.

    :param gzip: compress a document of :data:`GZIP_BYTES` or more.
    """
    turns, user = request.channel.site.turns, request.subject.user
    began = turns.now
    start = [next(pieces)]
    began = await turns.rest(began, user)
    start += islice(pieces, 1)
    if gzip:
        if len(start) > 1:
            start += await _more(turns, user, pieces, GZIP_BYTES - sum(map(len, start)))
        gzip = sum(map(len, start)) >= GZIP_BYTES
    if len(start) == 1 and not gzip:
        respond(request, code, start[0], content_type)
        return
    request.setResponseCode(code)
    pieces = chain(start, pieces)
    if gzip:
        request.setHeader(b"Content-Encoding", b"gzip")
        request.responseHeaders.addRawHeader(b"Vary", b"Accept-Encoding")
        pieces = _compressed(pieces)
    answer = _Long(request, _GZIP_MEMORY if gzip else 0)
    answer.begin(content_type)
    try:
        await _write_all(answer, pieces, turns, user, began)
    except BaseException:
        answer.evict()  # a truncated body must not look complete
        raise
    finally:
        answer.finish()
        answer.end()


async def _more(turns: SharedTurns, user: str, pieces: Iterator[bytes], size: int) -> list[bytes]:
    more: list[bytes] = []
    while size > 0:
        await turns.rest(-math.inf, user)
        piece = next(pieces, None)
        if piece is None:
            break
        more.append(piece)
        size -= len(piece)
    return more


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    for piece in pieces:
        for start in range(0, len(piece), _SLICE_BYTES):
            yield compressor.compress(piece[start : start + _SLICE_BYTES])
    yield compressor.flush()


async def _write_all(
    answer: PacedAnswer, pieces: Iterator[bytes], turns: SharedTurns, user: str, began: float
) -> None:
    for piece in pieces:
        await answer.room()
        began = await turns.rest(began, user)
        if answer.gone:
            return
        answer.write(piece)

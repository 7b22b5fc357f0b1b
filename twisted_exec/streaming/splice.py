"""
A splice: two connections whose bytes are copied in both directions after the 101, and the message
when the connection behind this hop is lost.

Each transport pauses the *other's* reading while its buffer is full.  When one end is gone, the
other still receives what was sent to it, within a time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IDelayedCall,
    IHalfCloseableProtocol,
    IPushProducer,
    IReactorTime,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.transports import can_half_close
from twisted_exec.tls.turns import IFramed, TurnTaking
from twisted_exec.wire.endings import INTERNAL, Ending
from twisted_exec.wire.frame_boundaries import (
    LONGEST_CLOSE_BYTES,
    FrameBoundaries,
    ends_with_close,
)

DRAIN_SECONDS = 30.0

MAX_REMAINDER_BYTES = 1 << 20
"""Limit for the rest of the last message, which is read even if the user is slow."""

LOST = "the connection behind this hop was lost before the session's status"

_LOST = Ending(INTERNAL, LOST)


def _nothing(data: bytes) -> bytes:
    return b""


@implementer(IFramed, IHalfCloseableProtocol, IPushProducer)
class SpliceEnd(Protocol):
    """
    One end of a splice.

    :ivar passing: filter for passing bytes.
    :ivar last: the last bytes received from this end; ``None`` if they do not matter.
    """

    transport: Any
    peer: SpliceEnd
    received = 0
    passing: Callable[[bytes], bytes] | None = None
    last: bytes | None = None
    is_tracked = False  # the heads of its frames are tracked one by one
    joined = False  # both ends are connected: bytes pass
    eof = False  # this end sends no more
    gone = False  # this end's connection is lost
    _withheld = False  # the splice paused this end
    _full = False  # the other transport paused this end
    _half_closed = False
    _closed = False

    def __init__(self, splice: Splice, name: str) -> None:
        self._splice, self.name = splice, name
        self._early: list[bytes] = []  # received before the ends were joined, or while withheld

    # Called by this end's transport

    def connectionMade(self) -> None:
        if self.peer.transport is None or self._withheld:
            # Until the other end is connected too; TLS may still deliver what it has decrypted.
            self.transport.pauseProducing()
        self._splice.connected(self)

    def frame_rest(self, size: int) -> int | None:
        """See :meth:`IFramed.frame_rest`."""
        return 0 if self.is_tracked and self.joined else None

    def dataReceived(self, data: bytes) -> None:
        self.received += len(data)
        if self.last is not None:
            is_long = len(data) >= LONGEST_CLOSE_BYTES
            self.last = (data if is_long else self.last + data)[-LONGEST_CLOSE_BYTES:]
        # Decrypted bytes may arrive after a pause, and bytes may arrive before both ends are
        # connected.
        if self._withheld or not self.joined:
            if self.passing is not _nothing:
                self._early.append(data)
            return
        if self.passing is not None:
            data = self.passing(data)
        self.peer.transport.write(data)  # a lost or closing transport drops it

    def readConnectionLost(self) -> None:
        self.eof = True
        self._splice.half_closed(self)

    def writeConnectionLost(self) -> None:
        """Our half-close is complete; reading continues."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.gone:
            self.gone = self.eof = True
            self._splice.lost(self, reason)

    # Called by the other end's transport, for which this end is the producer

    def pauseProducing(self) -> None:
        self._full = True
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._full = False
        # While the hop has paused the user, the machine's transport must not resume the user, even
        # with room in its buffer.
        if not self._withheld:
            self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The other transport is dying; its ``connectionLost`` handles the rest."""

    # Called by the splice

    def join(self) -> None:
        self.joined = True
        # The producer is the other end, not its transport: a dying transport calls stopProducing,
        # and TLS would pass that to the raw socket, which gives the survivor a ragged end.
        self.transport.registerProducer(self.peer, True)
        if not self._withheld:
            self.transport.resumeProducing()

    def withhold(self) -> None:
        """Pause this end, and buffer the bytes that its transport still delivers."""
        if not self._can_pass:
            return
        self._withheld = True
        if self.transport is not None:
            self.transport.pauseProducing()

    def release(self) -> None:
        self._withheld = False
        if not self.joined or self.gone:
            return
        self.flush()
        if not self._full:
            self.transport.resumeProducing()

    def drop(self) -> None:
        was_withheld, self._withheld = self._withheld, False
        self._early.clear()
        self.passing = _nothing
        if was_withheld and self.joined and not self.gone:
            self.transport.resumeProducing()  # or its end would stay unnoticed

    def flush(self) -> None:
        if self._withheld:
            return
        early, self._early = b"".join(self._early), []
        if early and self.passing is not None:
            early = self.passing(early)
        if early:
            self.peer.transport.write(early)

    def shut_writing(self) -> None:
        """Half-close: the other end sends no more, this end may continue."""
        self._half_closed = True
        self.transport.unregisterProducer()
        self.transport.loseWriteConnection()

    def shut(self) -> None:
        """
        Shut down for writing.  A repeated call closes the connection if its peer sends no more.
        """
        # To close a socket that may hold unread input sends a reset, which discards the tail of
        # what was sent.  So only writing ends here, further input is discarded, and a time limit
        # closes the socket. TLS has no half-close.
        half = not self.eof and can_half_close(self.transport)
        if self._closed or (half and self._half_closed):
            return
        self._closed, self._half_closed = not half, True
        if self._withheld:  # there is no other end any more
            self.drop()
        if self.joined:
            # Before closing: a TLS transport with a producer never begins its shutdown, a TCP one with
            # a paused dead producer never closes.
            self.transport.unregisterProducer()
        self.transport.resumeProducing()  # or its end would stay unnoticed
        if half:
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    @property
    def _can_pass(self) -> bool:
        return not (
            self.gone or self.passing is _nothing or self.peer.gone or self.peer._half_closed
        )

    @property
    def is_shut(self) -> bool:
        return self.eof or self._half_closed

    def hold(self) -> None:
        """Buffer what this end still receives, until the other end is connected again."""
        self.joined = self._full = False
        self.transport.unregisterProducer()
        self.transport.pauseProducing()

    def replacement(self) -> SpliceEnd:
        """Return the end that replaces this end, whose connection is lost."""
        other = SpliceEnd(self._splice, self.name)
        other.received, other.passing, other.peer = self.received, self.passing, self.peer
        other.last = self.last
        self.peer.peer = other
        return other

    def retire(self) -> None:
        if not self.gone:
            self.gone = True
            self.transport.unregisterProducer()
            self.transport.abortConnection()
        self.let_go()

    def let_go(self) -> None:
        """Break reference cycles, which hold much memory of OpenSSL."""
        self.joined = False
        self.transport = self.passing = None
        del self._splice, self.peer


class Splice:
    """
    Splices two connections.

    Give :attr:`user` and :attr:`machine` to their transports, in any order.

    :param on_end: called once, when both connections are lost, with the reason for audit.
    :param drain_seconds: for the surviving connection to receive what was sent to it.
    :param leave_seconds: like ``drain_seconds``, after the user has left; ``None`` for
        ``drain_seconds``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        on_end: Callable[[str], None],
        *,
        drain_seconds: float = DRAIN_SECONDS,
        leave_seconds: float | None = None,
    ) -> None:
        self._clock, self._on_end, self._drain_seconds = clock, on_end, drain_seconds
        self._leave_seconds = drain_seconds if leave_seconds is None else leave_seconds
        self.user = SpliceEnd(self, "client")
        self.machine = SpliceEnd(self, "backend")
        self.user.peer, self.machine.peer = self.machine, self.user
        self._ends: tuple[SpliceEnd, ...] = (self.user, self.machine)
        self._reason = ""
        self._timer: IDelayedCall | None = None
        self._boundaries: FrameBoundaries | None = None
        self._words: bytes | None = None  # the last message, once it is due
        self._rest = 0  # bytes of the message before it

    def follow(self, boundaries: FrameBoundaries) -> None:
        """Track frames from now on, so that :meth:`say` can be used."""
        self._boundaries = boundaries
        # The machine's frames are tracked a number at a time.
        self.user.is_tracked = True
        self.user.passing, self.machine.passing = self._from_user, self._to_user

    def watch_close(self) -> None:
        """Take note of the machine's Close from now on; for a WebSocket."""
        self.machine.last = b""

    @property
    def machine_closed(self) -> bool:
        """Return whether the machine has ended the session in the protocol's order."""
        return self.machine.last is not None and ends_with_close(self.machine.last)

    @property
    def bytes_to_machine(self) -> int:
        return self.user.received

    @property
    def bytes_to_user(self) -> int:
        return self.machine.received

    def pause_user(self) -> None:
        """
        Pass no more bytes from the user to the machine, from this moment on.

        An end of the user's connection stays unnoticed, so the caller soon resumes or cuts.
        """
        self.user.withhold()

    def resume_user(self) -> None:
        self.user.release()

    def cut(self, reason: str) -> None:
        """End the session: close both connections behind what was sent."""
        self._reason = reason  # set first: the connections' own ends follow
        # A closing TCP transport still queues what is written to it.
        for end in self._ends:
            end.drop()
        for end in self._ends:
            if end.transport is not None and not end.gone:
                end.shut()
        self._drain()

    def sever(self, reason: str) -> None:
        """
        End the session although the machine's side does not: reset its connection.

        Input is dropped; the user still receives the output that was sent.
        """
        self.cut(reason)
        if self.machine.transport is not None and not self.machine.gone:
            self.machine.transport.abortConnection()

    def sever_with(self, ending: Ending) -> None:
        """As :meth:`sever`, but tell the user if that is possible."""
        boundaries, machine = self._boundaries, self.machine
        if boundaries is None or not boundaries.at_edge or not self.can_say:
            self.sever(ending.reason)
            return
        self.say(ending)
        if machine.transport is not None and not machine.gone:
            machine.transport.abortConnection()

    @property
    def can_say(self) -> bool:
        """Return whether :meth:`say` has an effect."""
        is_up = not (self.machine.gone or self.user.gone)
        return is_up and self._boundaries is not None and self._words is None

    def say(self, ending: Ending) -> None:
        """
        End the session with a last message, behind the message that is being passed.

        The caller limits the time for a message that never ends.
        """
        boundaries = self._boundaries
        if boundaries is None or not self.can_say:
            return
        self._reason = ending.reason
        self.user.drop()
        self._words = boundaries.last_words(ending)
        if boundaries.at_edge:
            self._speak()
        else:
            self.machine.transport.resumeProducing()  # to complete the current frame

    def _from_user(self, data: bytes) -> bytes:
        assert self._boundaries is not None
        if not self._boundaries.from_user(data):
            self.user.passing, self.user.is_tracked = None, False
        return data

    def _to_user(self, data: bytes) -> bytes:
        assert self._boundaries is not None
        if self._words is None:
            end = self._boundaries.to_user(data)
            return data if end == len(data) else self._put_back(self._boundaries, data, end)
        passed = self._tracked(self._boundaries, data)
        if self._boundaries.at_edge:
            # Written first: the last message goes behind it.
            self.user.transport.write(passed)
            self._speak()
            return b""
        self._rest += len(passed)
        if self._rest > MAX_REMAINDER_BYTES:
            self.user.transport.write(passed)
            self._hush()
            return b""
        return passed

    def _tracked(self, boundaries: FrameBoundaries, data: bytes) -> bytes:
        stop = self._words is not None
        end = boundaries.to_user(data, stop=stop)
        if end == len(data) or (stop and boundaries.at_edge):
            return data[:end]
        return self._put_back(boundaries, data, end)

    def _put_back(self, boundaries: FrameBoundaries, data: bytes, end: int) -> bytes:
        """Return data up to ``end``, and let the rest arrive again."""
        machine = self.machine
        if isinstance(machine.transport, TurnTaking):
            machine.received -= len(data) - end
            machine.transport.unread(data[end:], later=True)
            return data[:end]
        return data[:end] + self._tracked(boundaries, data[end:])

    def _hush(self) -> None:
        self.cut(self._reason)

    def _speak(self) -> None:
        self.user.transport.write(self._words or b"")
        self._hush()

    def _explain(self, ending: Ending = _LOST) -> None:
        boundaries = self._boundaries
        if boundaries is None or self._words is not None or self.user.is_shut:
            return
        if boundaries.owed and boundaries.at_edge:
            self._words = boundaries.last_words(ending)
            self.user.transport.write(self._words)

    def connected(self, end: SpliceEnd) -> None:
        if end.peer.transport is None:
            return
        # All producers first: a flush may fill a buffer, and must find an end to pause.
        for each in self._ends:
            each.join()
        self._send_again()
        for each in self._ends:
            each.flush()
        if end.peer.gone:
            end.shut()
            self._drain()

    def _send_again(self) -> None:
        """Called when both ends are connected, before anything passes; for subclasses."""

    def _survives(self, end: SpliceEnd) -> bool:
        """Return whether the splice goes on without the connection of this end; for subclasses."""
        return False

    def half_closed(self, end: SpliceEnd) -> None:
        """An end sends no more; it may still receive."""
        if self._survives(end):
            return
        peer = end.peer
        self._reason = self._reason or f"{end.name} closed"  # the first end is the reason
        if end is self.machine:
            self._explain()
        if peer.gone or peer.eof or not can_half_close(peer.transport):
            for each in self._ends:
                if not each.gone:
                    each.shut()
            self._drain()
        else:
            peer.shut_writing()

    def lost(self, end: SpliceEnd, reason: Failure) -> None:
        if self._survives(end):
            return
        clean = reason.check(ConnectionDone) is not None
        self._reason = self._reason or f"{end.name} {'closed' if clean else 'lost'}"
        if end.peer.gone:
            self._finish()
        elif end.peer.joined:
            if end is self.machine:
                self._explain()
            end.peer.shut()
            self._drain()
            if end is self.user and self._timer is not None:
                self._timer.reset(self._leave_seconds)

    def _drain(self) -> None:
        if self._timer is None and not (self.user.gone and self.machine.gone):
            self._timer = self._clock.callLater(self._drain_seconds, self._abort)

    def _abort(self) -> None:
        self._timer = None
        for end in self._ends:
            if not end.gone and end.transport is not None:
                end.transport.abortConnection()

    def _finish(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._on_end(self._reason)
        for end in self._ends:
            end.let_go()
        self._ends = ()
        self._boundaries = None
        del self._on_end

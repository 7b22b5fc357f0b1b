"""
Turns: connections share the reactor, however small the frames of one of them are.

A transport delivers a read in slices, and measures their CPU time.  When the connection has used up
its part of the reactor's turn, the rest waits for following turns; meanwhile the transport does not
read.

Slices follow the protocol's frames (:class:`IFramed`); protocols without frames get whole reads.

TLS handshakes take part in the same turns, by the peer's address: users behind one address wait for
each other.

The end of the connection follows the last slice.
"""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from typing import Protocol as Typing

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface

KEY_BYTES = 32
"""A read of so few bytes has few frames, and is delivered at once."""

SLICE_BYTES = 128
"""Bytes of many small frames that are delivered at once."""

CONNECTION_SECONDS = 0.0005
"""CPU time of one connection in one turn, after which the rest of its read waits."""

TURN_SECONDS = 0.002
"""CPU time of one turn after which busy connections wait for the next."""

HANDSHAKE_SECONDS = 0.001
"""Limit of the CPU time of handshakes that have waited, in one turn."""

BUSY_SECONDS = 0.00025
"""A connection that used more CPU time than this counts as busy in this turn and the next."""


class Working(Typing):
    """Work that is done in turns of the reactor."""

    busy_turn: int

    def take_turn(self) -> None:
        """Do a part of the work."""


class IFramed(Interface):
    """A protocol whose cost depends on its frames more than on its bytes."""

    def frame_rest(size: int) -> int | None:
        """
        Return how many of the next bytes cost little, such as those that complete a large frame.

        :param size: bytes that were read and not yet delivered.
        :return: ``None`` if the protocol takes all of them at once at present.
        """


class Turns:
    """
    The turns of one reactor.

    :param cpu: clock of CPU time, in seconds.
    """

    def __init__(self, clock: IReactorTime, cpu: Callable[[], float] = time.thread_time) -> None:
        self._clock, self.cpu = clock, cpu
        self._number = 0
        self._spent_seconds = 0.0  # by busy connections in this turn
        self._waiting: deque[TurnTaking] = deque()
        # The address whose turn is next comes first.
        self._handshakes: dict[str, deque[Working]] = {}
        self._shaken: set[str] = set()  # addresses that had a step in this turn
        self._next: IDelayedCall | None = None

    def admits(self, connection: TurnTaking, size: int) -> bool:
        """Return whether a connection may handle ``size`` bytes in this turn."""
        # A connection that did little in this turn and the one before never waits: a key is handled
        # when it is read, whatever others do.
        is_quiet = size <= SLICE_BYTES and self._number - connection.busy_turn > 1
        return is_quiet or self._spent_seconds < TURN_SECONDS

    def admits_handshake(self, origin: str) -> bool:
        """Return whether one more step of a TLS handshake may be made in this turn."""
        if origin in self._handshakes or origin in self._shaken:
            return not self._handshakes and self._spent_seconds < TURN_SECONDS
        return self._spent_seconds < 2 * TURN_SECONDS

    def used(self, connection: Working, seconds: float, size: int = SLICE_BYTES + 1) -> None:
        """Account for CPU time of a connection, for the work on ``size`` bytes."""
        is_busy = seconds > BUSY_SECONDS
        if is_busy:
            connection.busy_turn = self._number
        if is_busy or size > SLICE_BYTES:
            self._schedule()
        # Without a next turn to come, nothing would begin the count anew.
        if self._next is not None:
            self._spent_seconds += seconds

    def wait(self, connection: TurnTaking) -> None:
        """Call :meth:`TurnTaking.take_turn` in one of the next turns."""
        self._waiting.append(connection)
        self._schedule()

    def shakes(self, origin: str) -> None:
        self._shaken.add(origin)
        self._schedule()

    def wait_for_handshake(self, connection: Working, origin: str) -> None:
        """Call :meth:`Working.take_turn` for a step of a handshake."""
        self._handshakes.setdefault(origin, deque()).append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if self._next is None:
            self._next = self._clock.callLater(0, self._begin)

    def _begin(self) -> None:
        self._next, self._spent_seconds = None, 0.0
        self._shaken.clear()
        self._number += 1
        if self._waiting or self._handshakes:
            self._schedule()  # first, so that their CPU time counts
        waiting, shaking = len(self._waiting), 0.0
        while (waiting or self._handshakes) and self._spent_seconds < TURN_SECONDS:
            if waiting:
                waiting -= 1
                self._waiting.popleft().take_turn()
            if shaking < HANDSHAKE_SECONDS and self._handshakes:
                before = self._spent_seconds
                self._next_handshake().take_turn()
                shaking += self._spent_seconds - before
            elif not waiting:
                break

    def _next_handshake(self) -> Working:
        origin = next(iter(self._handshakes))
        connections = self._handshakes.pop(origin)
        connection = connections.popleft()
        if connections:
            self._handshakes[origin] = connections  # behind all others
        return connection


@lru_cache(maxsize=8)
def turns_of(reactor: IReactorTime) -> Turns:
    """Return the turns of a reactor."""
    return Turns(reactor)


@lru_cache(maxsize=1024)
def _network(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    # A socket for both families shows IPv4 clients as ::ffff:a.b.c.d.
    return str(address.ipv4_mapped or address.packed[:8].hex())


def origin_of(address: IAddress) -> str:
    """
    Return what counts as one client: an IPv4 address or a /64 of IPv6; empty for other addresses.
    """
    if isinstance(address, IPv6Address):
        return _network(address.host)
    return address.host if isinstance(address, IPv4Address) else ""


class _End(Protocol):
    """Takes the place of a protocol whose connection is lost while received bytes wait."""

    reason = Failure(connectionDone.value)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.reason = reason


if TYPE_CHECKING:

    class _Transport:
        def pauseProducing(self) -> None: ...
        def resumeProducing(self) -> None: ...
        def abortConnection(self) -> None: ...
else:
    _Transport = object


class TurnTaking(_Transport):
    """
    Mixed in before a transport: delivers received data in turns of the reactor.

    :cvar receiver: name of the attribute with the protocol.
    :ivar busy_turn: number of the last turn in which it used much CPU time.
    :ivar is_stream: the connection carries a stream, not requests: the reactor handles it first.
    """

    receiver = "protocol"
    busy_turn = -2
    is_stream = False
    _log = Logger()
    _backlog: deque[bytes] | None = None  # read, and not delivered
    _start = 0  # of the undelivered part of the first piece
    _paused = False  # by the protocol
    _held = False  # nothing is read while bytes wait
    _working = False
    _is_waiting = False  # for a turn
    _ends_turn = False
    _lost: Failure | None = None  # the connection was lost while bytes wait

    # For the transport

    def turns(self) -> Turns:
        """Return the turns of the transport's reactor."""
        raise NotImplementedError

    def hold_reading(self) -> None:
        """
        Stop reading until :meth:`read_on`, although the protocol has not paused the transport.
        """
        raise NotImplementedError

    def read_on(self) -> None:
        """Read again, unless the protocol has paused the transport."""
        raise NotImplementedError

    def deliver(self, data: bytes) -> None:
        """Pass what was read to the protocol, now or in later turns."""
        if self._backlog is not None:
            self._backlog.append(data)
            return
        protocol, size = getattr(self, self.receiver), len(data)
        rest = None
        if size > KEY_BYTES and IFramed.providedBy(protocol):
            rest = protocol.frame_rest(size)
        if rest is None:
            protocol.dataReceived(data)
            return
        self._backlog = deque((data,))
        self._work_or_wait(size + rest)  # a part of a large frame is no key

    def deliver_rest(self, lose: Callable[[], None]) -> None:
        """Lose the connection, and report it to the protocol after the bytes that wait."""
        if not self._backlog or self._lost is not None:
            lose()
            return
        protocol, end = getattr(self, self.receiver), _End()
        setattr(self, self.receiver, end)
        lose()
        setattr(self, self.receiver, protocol)
        self._lost = end.reason
        self._wait()

    def drop_rest(self) -> None:
        if self._backlog is not None:
            self._backlog.clear()
            self._start = 0

    def resume_rest(self) -> None:
        """Deliver the bytes that wait: the protocol has resumed the transport."""
        if self._backlog and not self._working:
            self._wait()

    # For protocols

    def unread(self, data: bytes, *, later: bool = False) -> None:
        """
        Deliver bytes again, before all others.

        :param later: not in this turn.
        """
        if self._backlog is None:
            self._backlog = deque()
        elif self._start:
            self._backlog[0], self._start = self._backlog[0][self._start :], 0
        self._backlog.appendleft(data)
        if self._working:
            self._ends_turn = self._ends_turn or later
        elif later:
            self._settle()
        elif not self._is_waiting:
            self._work_or_wait(len(data))

    # Turns

    def take_turn(self) -> None:
        self._is_waiting = False
        try:
            self._work()
        except Exception:  # the reactor would do the same for an error in a read
            self._log.failure("a protocol failed; its connection is aborted")
            self.abortConnection()
            self._settle()

    def _work_or_wait(self, size: int) -> None:
        if self.turns().admits(self, size):
            self._work(size)
        else:
            self._settle()

    def _work(self, size: int = SLICE_BYTES + 1) -> None:
        turns = self.turns()
        cpu = turns.cpu
        began = now = cpu()
        self._working = True
        try:
            while self._backlog and not self._ends_turn and now - began < CONNECTION_SECONDS:
                if self._paused and self._lost is None:
                    break
                self._deliver_slice(self._backlog)
                now = cpu()
        except BaseException:
            self.drop_rest()
            raise
        finally:
            self._working = self._ends_turn = False
            turns.used(self, now - began, size)
        self._settle()

    def _deliver_slice(self, backlog: deque[bytes]) -> None:
        protocol = getattr(self, self.receiver)
        start, piece = self._start, backlog[0]
        size = len(piece) - start
        rest = protocol.frame_rest(size) if IFramed.providedBy(protocol) else None
        end = len(piece) if rest is None else start + rest + SLICE_BYTES
        if end < len(piece):
            self._start = end
        else:
            backlog.popleft()
            self._start = 0
        protocol.dataReceived(piece[start:end])

    def _settle(self) -> None:
        if self._backlog:
            if not self._held and self._lost is None:
                self._held = True
                self.hold_reading()
            if not self._paused or self._lost is not None:
                self._wait()
            return
        self._backlog, self._start = None, 0
        if self._lost is not None:
            self._report_loss(self._lost)
        elif self._held:
            self._held = False
            self.read_on()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self.turns().wait(self)

    def _report_loss(self, reason: Failure) -> None:
        protocol: Any = getattr(self, self.receiver)
        setattr(self, self.receiver, None)
        protocol.connectionLost(reason)

"""
The user's end of a session that outlives its connections, and its messages when it cannot be resumed.

After a loss this end opens the next connection (:class:`.Retries`), names the position of the
next byte of output that its user lacks, and sends again the input that is not settled
(:mod:`.input_log`).  The user learns of lost output, and of input that may or may not have reached
the machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import APIError, BadGateway, NotFound, NotImplementedByBackend
from twisted_exec.control.retries import Retries
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    RESUMED,
    Break,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.remotecommand.client import LEAVE_SECONDS, ConsoleClient, Reopen
from twisted_exec.streaming.remotecommand.input_log import InputLog
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser, MarkUser
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.marks import Ack, At, Attendance, EchoTime, Mark, NoticeKind
from twisted_exec.wire.resize import Message
from twisted_exec.wire.resume import MARKS, Position, Resumable, Resume, RoundTrip
from twisted_exec.wire.typed_keys import is_typed

CANNOT_RESUME = "the server cannot resume this session"

ATTEMPT_SECONDS = 10.0
"""Time limit of an attempt to resume."""

PAUSE_SECONDS = 1.0
"""Of a person who types no more, and who has seen what the machine shows now."""


class ResumingLife(Enum):
    """The phases of a session's life at the user's end; :data:`RESUMING_TRANSITIONS` has their order."""

    OPENING = "opening"
    """It has no connection yet."""
    CARRIED = "carried"
    """It has a connection."""
    WAITING = "waiting"
    """The connection was lost; there is none, or one that has not sent its Ack."""
    RETURNING = "returning"
    """It has a connection again, and its user does not know that yet."""
    LEAVING = "leaving"
    """This side ends it, behind the input so far."""
    ENDED = "ended"
    """The server has sent the status, and its connection is still to be lost."""
    OVER = "over"
    """Its user knows of the end."""


RESUMING_TRANSITIONS: Mapping[ResumingLife, frozenset[ResumingLife]] = {
    ResumingLife.OPENING: frozenset({ResumingLife.CARRIED}),
    ResumingLife.CARRIED: frozenset(
        {ResumingLife.WAITING, ResumingLife.LEAVING, ResumingLife.ENDED, ResumingLife.OVER}
    ),
    ResumingLife.WAITING: frozenset(
        {ResumingLife.RETURNING, ResumingLife.ENDED, ResumingLife.OVER}
    ),
    ResumingLife.RETURNING: frozenset(
        {
            ResumingLife.CARRIED,
            ResumingLife.WAITING,
            ResumingLife.LEAVING,
            ResumingLife.ENDED,
            ResumingLife.OVER,
        }
    ),
    ResumingLife.LEAVING: frozenset({ResumingLife.OVER}),
    ResumingLife.ENDED: frozenset({ResumingLife.OVER}),
    ResumingLife.OVER: frozenset(),
}
"""What may follow each phase of a session's life."""

_UP = (ResumingLife.CARRIED, ResumingLife.RETURNING)
_READS = (*_UP, ResumingLife.ENDED)
_TAKES_INPUT = (*_UP, ResumingLife.WAITING)
_SENDS = (*_UP, ResumingLife.LEAVING)


@implementer(IPushProducer)
class ResumingClient(ConsoleStream, Living[ResumingLife]):
    """
    A session's stream at the user's end, over one connection after another.

    :ivar life: where the session is in its life.
    :ivar live_from: the offset at which the output ended when the present connection was made; 0 if
        unknown.
    """

    transitions = RESUMING_TRANSITIONS

    is_resumable = True
    session = protocol = ""
    transport: Any = None
    can_half_close = False

    def __init__(
        self,
        user: ConsoleUser,
        reopen: Reopen,
        clock: IReactorTime,
        *,
        limit_seconds: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._user, self._reopen, self._clock = user, reopen, clock
        self._retries = Retries(
            self._resume,
            lambda _: None,
            self._refused,
            clock,
            limit_seconds=limit_seconds,
            attempt_seconds=ATTEMPT_SECONDS,
            rng=rng,
        )
        self.life = ResumingLife.OPENING
        self._connection = SessionConnection(self)
        self._keys: list[tuple[Resumable, str]] = []  # of the newest and the previous connection
        self._position: Position | None = None
        self._catches_up = False  # output from the loss is still to come, or may be
        self._uncertain = 0  # dropped keys and requests that the user does not know of
        self._unsent = 0  # those of them that were never sent
        self._attendance: Attendance | None = None
        self._attendance_at = 0.0
        self._echo_seconds: float | None = None
        self.resumes = self.missed_bytes = self.live_from = 0
        self._input = InputLog()
        self._input_ended = False
        self._size: TerminalSize | None = None
        self._producer: Any = None
        self._producer_paused = False
        self._output_paused = False
        self._blocked = False
        self._sending = False
        self._lost_at = 0.0
        self._is_exact = (
            False  # all input of the lost connection is settled, or not with the machine
        )
        self._kept_seconds = 0  # how long the server keeps the session after the present loss
        self._owed_since = 0.0  # when the server last confirmed input, or owed nothing
        self._leave_timer: IDelayedCall | None = None
        self._typed_at = -math.inf
        self._answer_timer: IDelayedCall | None = None

    def start(self, stream: ConsoleClient) -> None:
        """Begin with a connection, and attach the user."""
        self._become(ResumingLife.CARRIED)
        stream.hand_over(self._connection)
        self._connection.attached(stream)
        stream.registerProducer(self, True)
        self._user.attached(self)

    # ConsoleStream

    @property
    def position(self) -> Position | None:
        """The position of the next byte of output; ``None`` before the first mark At."""
        return self._position

    @property
    def attendance(self) -> Attendance | None:
        """The sessions at the console; ``None`` if the server did not say."""
        last = self._attendance
        if last is None:
            return None
        passed = int(self._clock.seconds() - self._attendance_at)
        return replace(last, seconds=last.seconds + passed)

    @property
    def round_trip_seconds(self) -> float | None:
        stream = self._present
        return stream.round_trip_seconds if stream is not None else None

    @property
    def overdue_seconds(self) -> float | None:
        """See :attr:`.Pings.overdue_seconds`; 0 while the connection is lost."""
        stream = self._present
        return stream.overdue_seconds if stream is not None else 0.0

    @property
    def hindrance(self) -> str:
        """Why the lost connection could not be made again so far; empty if unknown."""
        return self._retries.problem

    @property
    def waiting_keys(self) -> int:
        """Number of keys and requests that the server has not confirmed: a new connection carries them again."""
        return self._input.keys

    @property
    def unconfirmed(self) -> tuple[int, int]:
        """The :attr:`waiting_keys`: those that were sent, and those that were not."""
        return self._input.unconfirmed

    @property
    def drops_keys(self) -> bool:
        """
        Whether the :attr:`waiting_keys` are dropped when the connection is back.

        A server that was down itself may still have the session long after the time that it has told.
        """
        if self.life is not ResumingLife.WAITING or self._user.sends_late:
            return False
        return 0 < self._kept_seconds < self._clock.seconds() - self._lost_at

    @property
    def owed_seconds(self) -> float:
        """For how long the server has confirmed none of the input that it got; 0 if it has all."""
        return self._clock.seconds() - self._owed_since if self._input.uncertain else 0.0

    @property
    def round_trips(self) -> tuple[RoundTrip, ...]:
        stream = self._present
        return () if stream is None or stream.resumable is None else stream.resumable.round_trips

    @property
    def echo_seconds(self) -> float | None:
        """The machine's last time from input to output; ``None`` if unknown."""
        return self._echo_seconds if self.life in _UP else None

    @property
    def _present(self) -> ConsoleClient | None:
        return self._connection.stream if self.life in _UP else None

    def write(self, data: bytes) -> None:
        if data:
            self._put(data)

    def wish(self, wish: Break | Role) -> None:
        self._put(wish)

    def say(self, message: Message) -> None:
        """Send a message to the other users of the console, unless the connection is lost."""
        if self.life in _UP:
            self._stream.say(message)

    def end_input(self) -> None:
        """
        End the input; output continues.

        :raises LocalProtocolError: not :attr:`can_half_close`.
        """
        if not self.can_half_close:
            raise LocalProtocolError(f"{self.protocol} cannot close one channel")
        self._put(None)
        self._input_ended = True

    def resize(self, size: TerminalSize) -> None:
        """Send the new size of the user's terminal, if need be after the outage."""
        self._size = size
        if self.life in _UP:
            self._stream.resize(size)

    def pause_output(self) -> None:
        self._output_paused = True
        if self.life in _READS:
            self._stream.pause_output()
        if self.life is ResumingLife.RETURNING:
            self._tell_resumed()  # the position is not read before the user goes on

    def resume_output(self) -> None:
        self._output_paused = False
        if self.life in _READS:
            self._stream.resume_output()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer, self._producer_paused = producer, False
        self._pace()

    def unregisterProducer(self) -> None:
        self._producer = None

    def leave(self) -> None:
        """End the session from this side, behind the input so far."""
        if self.life is ResumingLife.RETURNING:
            self._tell_resumed()  # it may know of lost input
        if self.life is ResumingLife.WAITING:
            self._finish("left while the connection was lost")
        elif self.life is ResumingLife.ENDED:
            self._stream.resume_output()  # for the server's Close
        elif self.life is ResumingLife.CARRIED:
            self._become(ResumingLife.LEAVING)
            self._stream.resume_output()  # for marks and the server's Close; output is dropped
            self._leave_behind_input()

    def abort(self) -> None:
        """Reset the connection, and do not come back."""
        if self.life is ResumingLife.WAITING:
            self._finish("aborted while the connection was lost")
        elif self.life is not ResumingLife.OVER:
            if self.life in _UP:
                self._become(ResumingLife.LEAVING)
            self._stream.abort()

    # IPushProducer, called by the connection

    def pauseProducing(self) -> None:
        self._blocked = True

    def resumeProducing(self) -> None:
        self._blocked = False
        self._send()

    def stopProducing(self) -> None:
        """The connection is lost; :meth:`connection_lost` follows."""

    # Events of the connection

    def adopted(self, stream: ConsoleClient) -> None:
        assert stream.resumable is not None
        self.session, self.recorded_input = stream.session, stream.recorded_input
        self._keys = [(stream.resumable, stream.session), *self._keys[:1]]
        self.transport, self.protocol = stream.transport, stream.protocol
        self.can_half_close = stream.can_half_close

    def output_received(self, connection: SessionConnection, data: bytes) -> None:
        if self._position is None or not connection.is_placed:
            self._broken(connection, "output without a position")
            return
        self._position = Position(self._position.epoch, self._position.offset + len(data))
        if self.life in _UP:
            self._user.data_received(data)
        self._tell_caught_up()

    def mark_received(self, connection: SessionConnection, mark: Mark) -> None:
        try:
            if isinstance(mark, Ack):
                self._settle(connection, mark.count)
            elif self.life is ResumingLife.WAITING:
                raise RemoteProtocolError("the first mark is not Ack")
            elif isinstance(mark, At):
                self._place(connection, mark)
            elif isinstance(mark, Attendance):
                self._attendance, self._attendance_at = mark, self._clock.seconds()
                self._user.attendance_changed(mark)
            elif isinstance(mark, EchoTime):
                self._echo_seconds = mark.microseconds / 1_000_000
            elif self.life in _UP:
                if mark.kind is NoticeKind.RESTARTED:
                    self._await_pause()
                self._user.notice(mark)
        except RemoteProtocolError as problem:
            self._broken(connection, str(problem))

    def ended(self, connection: SessionConnection, ending: Ending) -> None:
        """Handle the status, which ends the session also before the stream's Ack."""
        before = self.life
        if ending.reason == RESUMED and before in _UP and len(self._keys) > 1:
            return  # by an attempt of ours that was given up, and came late: resume once more
        if before is ResumingLife.LEAVING:
            return
        self._become(ResumingLife.ENDED)
        if before is ResumingLife.WAITING:
            self._retries.succeeded()
            connection.synced.callback(None)
        self._user.ended(ending)

    def connection_lost(self, connection: SessionConnection, reason: str) -> None:
        is_broken = connection.stream is not None and connection.stream.broke_protocol
        if self.life in (ResumingLife.ENDED, ResumingLife.LEAVING):
            self._finish(reason)
        elif self.life is ResumingLife.WAITING:
            kind = NotImplementedByBackend if is_broken else BadGateway
            connection.fail(kind(reason))
        elif is_broken:
            self._finish(reason)
        else:
            connection.client = None
            # A connection that is lost before its Ack has carried no input.
            self._is_exact = connection.stream is not None and connection.stream.is_exact
            self._become(ResumingLife.WAITING)
            self._stop_awaiting_pause()
            self._lost_at = self._clock.seconds()
            # A connection that is lost again before its Ack may tell another time.
            self._kept_seconds = self._keys[0][0].seconds
            self._blocked, self._echo_seconds = False, None
            self._user.outage(reason)
            self._reconnect()

    def _reconnect(self) -> None:
        if self.life is ResumingLife.WAITING:  # the user may have left
            self._retries.start()

    # Input

    @property
    def _stream(self) -> ConsoleClient:
        assert self._connection.stream is not None
        return self._connection.stream

    def _put(self, item: bytes | Break | Role | None) -> None:
        if self.life in _TAKES_INPUT and not self._input_ended:
            if not isinstance(item, bytes) or is_typed(item):
                self._typed_at = self._clock.seconds()
                if self._answer_timer is not None:
                    self._answer_timer.reset(PAUSE_SECONDS)
            self._input.put(item)
            self._send()
            self._pace()

    def _send(self) -> None:
        if self._sending or self.life not in _SENDS:
            return
        if self._uncertain:
            return  # the user does not know yet that there is a hole before this input
        self._sending = True  # sending may call pauseProducing and resumeProducing
        try:
            if not self._blocked:
                if not self._input.uncertain:
                    self._owed_since = self._clock.seconds()
                for item in self._input.sendable():
                    self._send_item(item)
                    if self._blocked:
                        break
        finally:
            self._sending = False
        if self.life is ResumingLife.LEAVING and not self._input.unsent:
            self._leave_now()

    def _await_pause(self) -> None:
        """
        Answer the server's pings again when a person has typed nothing for a moment.

        The machine has started again, or may have: the server discards and counts what arrives before
        the answer. A person who types blindly must not type the rest of a line into the new boot.
        """
        self._stop_awaiting_pause()
        rest_seconds = self._typed_at + PAUSE_SECONDS - self._clock.seconds()
        waits = rest_seconds > 0 and not self._user.sends_late
        self._stream.hold_answers(waits)
        if waits:
            self._answer_timer = self._clock.callLater(rest_seconds, self._paused)

    def _paused(self) -> None:
        self._answer_timer = None
        self._stream.hold_answers(False)

    def _stop_awaiting_pause(self) -> None:
        timer, self._answer_timer = self._answer_timer, None
        if timer is not None:
            timer.cancel()

    def _send_item(self, item: bytes | Break | Role | None) -> None:
        if isinstance(item, bytes):
            self._stream.write(item)
        elif item is None:
            self._stream.end_input()
        else:
            self._stream.wish(item)

    def _settle(self, connection: SessionConnection, count: int | None) -> None:
        if self.life is ResumingLife.WAITING:
            self._resumed(connection, count)
            return
        if count is None:
            raise RemoteProtocolError("an Ack without a number is not at the beginning")
        self._input.settle(count)
        self._owed_since = self._clock.seconds()
        self._send()
        self._pace()

    def _pace(self) -> None:
        producer = self._producer
        if producer is None:
            return
        if not self._producer_paused and self._input.is_full:
            self._producer_paused = True
            producer.pauseProducing()
        elif self._producer_paused and self._input.has_room:
            self._producer_paused = False
            producer.resumeProducing()

    # Output

    def _place(self, connection: SessionConnection, mark: At) -> None:
        before, self._position = self._position, (position := mark.position)
        if mark.end is not None or not connection.is_placed:
            self.live_from = mark.end or 0
        connection.is_placed = True
        if self.life is ResumingLife.RETURNING:
            self.missed_bytes = max(0, (mark.end or 0) - position.offset)
            self._tell_resumed()
        if self.life in _UP and before != position:
            self._user.placed(mark)
        if before is not None and before != position:
            self._skip(before, mark)
        self._tell_caught_up()

    def _skip(self, before: Position, mark: At) -> None:
        position = mark.position
        if before.epoch != position.epoch:
            missing = None
        elif before.offset < position.offset:
            missing = position.offset - before.offset if mark.exact else None
        else:
            raise RemoteProtocolError("the output goes back to an earlier position")
        if self.life in _UP:
            self._user.skipped(missing)

    def _tell_caught_up(self) -> None:
        if not (self._catches_up and self.life is ResumingLife.CARRIED):
            return
        position = self._position if self._connection.is_placed else None
        if position is not None and position.offset >= self.live_from:
            self._catches_up = False
            self._user.caught_up()

    # Outages

    @as_deferred
    async def _resume(self) -> None:
        connection = self._connection = SessionConnection(self)
        try:
            stream = await self._reopened(connection)
            if stream.resumable is None:
                raise NotImplementedByBackend(CANNOT_RESUME)
            await connection.synced
        except BaseException:
            connection.abandon()
            raise

    async def _reopened(self, connection: SessionConnection) -> ConsoleClient:
        if self._position is None:
            return await self._reopen(MARKS, connection, self.protocol)
        (newest, session), *before = self._keys
        try:
            request = Resume(newest.key, session, self._position, newest.machine)
            return await self._reopen(request.text(), connection, self.protocol)
        except APIError as refused:
            if refused.code != NotFound.code or not before:
                raise
        # The key before is valid until the server has heard this end on the newest connection.
        ((earlier, session),) = before
        request = Resume(earlier.key, session, self._position, earlier.machine)
        return await self._reopen(request.text(), connection, self.protocol)

    def _resumed(self, connection: SessionConnection, count: int | None) -> None:
        sent = unsent = 0
        if count is None or self._position is None:
            sent, unsent = self._input.begin_anew(is_exact=self._is_exact)
        else:
            self._input.settle(count)
        if self.drops_keys:
            more_sent, more_unsent = self._input.drop()
            sent, unsent = sent + more_sent, unsent + more_unsent
        self._input.send_again()
        self._become(ResumingLife.RETURNING)
        self._catches_up = True
        self._await_pause()
        self._retries.succeeded()
        connection.synced.callback(None)
        stream = self._stream
        stream.registerProducer(self, True)
        if self._size is not None:
            stream.resize(self._size)
        self._uncertain += sent + unsent
        self._unsent += unsent
        self.missed_bytes = 0
        self._send()
        self._pace()
        if self._output_paused:
            stream.pause_output()
        self.resumes += 1
        if self._output_paused and self.life is ResumingLife.RETURNING:  # no callback has paused it
            self._tell_resumed()  # the position is not read before the user goes on

    def _tell_resumed(self) -> None:
        self._become(ResumingLife.CARRIED)
        uncertain, self._uncertain = self._uncertain, 0
        unsent, self._unsent = self._unsent, 0
        if uncertain:
            more_sent, more_unsent = self._input.drop()
            uncertain += more_sent + more_unsent
            unsent += more_unsent
        seconds = self._clock.seconds() - self._lost_at
        self._user.resumed(seconds, uncertain, unsent)
        self._send()
        self._pace()

    def _refused(self, error: APIError) -> None:
        sent, unsent = self._input.drop()
        keys = self._user.dropped(sent + unsent, unsent) if sent or unsent else ""
        keys = keys and f"; {keys}"
        if deletion := _deletion(error):
            reason = f"{deletion}{keys}"
            self._finish(reason, Ending(MACHINE_DELETED, reason))
            return
        why = f"the session could not be resumed: {error.message}{self._limit_passed(error)}"
        self._finish(f"{why}; open the console again{keys}")

    def _limit_passed(self, refusal: APIError) -> str:
        """Return how long the server keeps a lost session, if that time is over; otherwise nothing."""
        if refusal.code != NotFound.code or obstacles_of(refusal) or self._position is None:
            return ""
        if self._clock.seconds() - self._lost_at < self._kept_seconds:
            return ""
        return f"; the server keeps a lost session for {self._kept_seconds} s"

    # The end

    def _broken(self, connection: SessionConnection, why: str) -> None:
        reason = f"the server broke the protocol: {why}"
        if self.life is ResumingLife.WAITING:
            connection.fail(NotImplementedByBackend(reason))
        else:
            self._finish(reason)

    def _leave_behind_input(self) -> None:
        if self.life is ResumingLife.LEAVING and self._input.unsent:
            self._leave_timer = self._clock.callLater(LEAVE_SECONDS, self._leave_now)
        self._send()

    def _leave_now(self) -> None:
        timer, self._leave_timer = self._leave_timer, None
        if timer is not None and timer.active():
            timer.cancel()
        self._stream.leave()

    def _finish(self, reason: str, ending: Ending | None = None) -> None:
        if self.life is ResumingLife.OVER:
            return
        self._become(ResumingLife.OVER)
        self._retries.stop()
        self._stop_awaiting_pause()
        timer, self._leave_timer = self._leave_timer, None
        if timer is not None and timer.active():
            timer.cancel()
        self._connection.abandon()
        self._producer = None
        if ending is not None:
            self._user.ended(ending)
        self._user.detached(reason)


def _deletion(refusal: APIError) -> str:
    """Return how a refusal says that the machine of a session is gone; empty for other refusals."""
    obstacles = obstacles_of(refusal)
    if Obstacle.BEING_DELETED in obstacles or Obstacle.RECREATED in obstacles:
        return refusal.message
    # A 404 may also be about the session, and that of a poollet about a machine of another pool.
    if refusal.code != NotFound.code or obstacles:
        return ""
    resource = refusal.details.get("kind"), refusal.details.get("group")
    workloads = ((each.noun, each.workload) for each in DIALECTS)
    nouns = (noun for noun, each in workloads if (each.plural, each.group) == resource)
    noun, name = next(nouns, ""), refusal.details.get("name")
    return f'{noun} "{name}" was deleted' if noun and name else ""


class ResumableSession(Protocol):
    """The session, which has one connection after another."""

    def adopted(self, stream: ConsoleClient) -> None:
        """The server has accepted the connection."""

    def output_received(self, connection: SessionConnection, data: bytes) -> None:
        """Output of the machine arrived."""

    def mark_received(self, connection: SessionConnection, mark: Mark) -> None:
        """A mark arrived, in order with the output."""

    def ended(self, connection: SessionConnection, ending: Ending) -> None:
        """The server has sent a status."""

    def connection_lost(self, connection: SessionConnection, reason: str) -> None:
        """The connection is lost, or closed by the server."""


class SessionConnection(MarkUser):
    """
    The user of one connection of a session.

    :ivar synced: fires with the first Ack, or a status.
    """

    stream: ConsoleClient | None = None
    is_placed = False

    def __init__(self, client: ResumableSession) -> None:
        self.client: ResumableSession | None = client
        self.synced: Deferred[None] = Deferred()

    def attached(self, stream: Any) -> None:
        self.stream = stream
        if self.client is not None and stream.resumable is not None:
            self.client.adopted(stream)

    def fail(self, problem: Exception) -> None:
        """Fail the attempt; ignore what still comes over the connection."""
        self.client = None
        self.synced.errback(problem)

    def abandon(self) -> None:
        """Close the connection; ignore what still comes over it."""
        self.client = None
        self.synced.addErrback(lambda _: None)
        if self.stream is not None:
            self.stream.abort()

    # ConsoleUser, MarkUser

    def data_received(self, data: bytes) -> None:
        if self._counts and self.client is not None:
            self.client.output_received(self, data)

    def mark_received(self, mark: Mark) -> None:
        if self._counts and self.client is not None:
            self.client.mark_received(self, mark)

    def ended(self, ending: Ending) -> None:
        if self._counts and self.client is not None:
            self.client.ended(self, ending)

    def detached(self, reason: str) -> None:
        if self.client is not None:
            self.client.connection_lost(self, reason)

    @property
    def _counts(self) -> bool:
        return self.stream is not None and self.stream.resumable is not None

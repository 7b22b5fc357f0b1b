"""Pings of the user's end, which notice a server that is silent for too long."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.streaming.remotecommand.carrier import ClientCarrier

PING_SECONDS = 5
PONG_SECONDS = 61
"""As kubectl: a ping every 5 s; a server that does not answer for 61 s is dead."""
SILENCE_SECONDS = 20.0
"""
A connection of a session that can be resumed counts as dead after this time without a sign of life.
"""
_TICK_SECONDS = 0.01
_OVERDUE_SECONDS = 1.0


class Pings:
    """
    Pings a server, and notices when it is silent for too long.

    :ivar round_trip_seconds: of the last ping; ``None`` if unknown.
    """

    def __init__(
        self, clock: IReactorTime, silence_seconds: float | None, silent: Callable[[str], None]
    ) -> None:
        self._clock, self._silence_seconds, self._silent = clock, silence_seconds, silent
        self._carrier: ClientCarrier | None = None  # while pings are sent
        self._is_paused = False
        self._unanswered_since: float | None = None
        self._heard_at = 0.0
        self._pinged_at: float | None = None  # the oldest ping without an answer
        self._is_measured = True  # the connection was read since then
        self._timer: IDelayedCall | None = None
        self._due_at = 0.0
        self.round_trip_seconds: float | None = None

    @property
    def interval_seconds(self) -> float:
        if self._silence_seconds is None:
            return PING_SECONDS
        return min(PING_SECONDS, self._silence_seconds / 4)

    @property
    def overdue_seconds(self) -> float | None:
        """
        The time for which the oldest ping has waited, if suspiciously long; otherwise 0.

        ``None`` while nothing is read.
        """
        if self._is_paused:
            return None
        if self._pinged_at is None or self._carrier is None:
            return 0.0
        waits_seconds = self._clock.seconds() - self._pinged_at
        usual_seconds = self.round_trip_seconds or 0.0
        return waits_seconds if waits_seconds > max(_OVERDUE_SECONDS, 2 * usual_seconds) else 0.0

    def start(self, carrier: ClientCarrier) -> None:
        self._carrier = carrier
        self._heard_at = self._clock.seconds()
        if self._silence_seconds is not None:
            self._ping()  # the user may want to know the round trip after an outage
        else:
            self._arm(self.interval_seconds)

    def stop(self) -> None:
        self._carrier = None
        self._disarm()

    def pause(self) -> None:
        """Expect no answers: the connection is not read."""
        self._is_paused, self._is_measured = True, False

    def resume(self) -> None:
        """Expect answers again: pongs of the time before may still be unread."""
        heard_at, self._is_paused = self._heard_at, False
        self._begin_listening()
        if self._silence_seconds is not None:
            # A server that answered meanwhile is heard at once.
            soon = self._heard_at + self.interval_seconds - self._silence_seconds
            self._heard_at = max(heard_at, soon)

    def heard(self) -> None:
        self._unanswered_since = None
        self._heard_at = self._clock.seconds()
        if not self._is_measured:
            self._pinged_at = None  # the pong may be behind what was unread

    def answered(self) -> None:
        self.heard()
        pinged_at, self._pinged_at = self._pinged_at, None
        if pinged_at is not None:
            self.round_trip_seconds = self._heard_at - pinged_at

    def _begin_listening(self) -> None:
        self._heard_at = self._clock.seconds()
        self._is_measured = False  # an answer would measure the pause
        if self._unanswered_since is not None:
            self._unanswered_since = self._heard_at

    def _ping(self) -> None:
        carrier = self._carrier
        assert carrier is not None
        if self._clock.seconds() - self._due_at > PING_SECONDS:
            self._begin_listening()  # this process was stopped
        now, since = self._clock.seconds(), self._unanswered_since
        if self._silence_seconds is not None:
            # The server reads all the time: the client sends a limited amount without an Ack.
            start, limit, held_up = self._heard_at, self._silence_seconds, self._is_paused
        else:
            start, limit = now if since is None else since, PONG_SECONDS
            held_up = self._is_paused or carrier.blocked
        rest_seconds = limit - (now - start)
        if since is not None and rest_seconds < _TICK_SECONDS and not held_up:
            self._silent(f"the server has not answered for {limit:g} seconds")
            return
        if not carrier.blocked:
            carrier.ping()
            if self._pinged_at is None:
                self._pinged_at, self._is_measured = now, not self._is_paused
        if since is None and not held_up:
            self._unanswered_since = now
        if _TICK_SECONDS <= rest_seconds < self.interval_seconds and not held_up:
            self._arm(rest_seconds)
        else:
            self._arm(self.interval_seconds)

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, self._ping)
        self._due_at = self._clock.seconds() + seconds

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

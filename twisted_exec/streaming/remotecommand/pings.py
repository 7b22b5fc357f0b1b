"""
Pings of a user's end, and the silence of its server.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.streaming.remotecommand.carrier import ClientCarrier

PING_SECONDS = 5
PONG_SECONDS = 61
"""As kubectl: a ping every 5 s; a server that does not answer for 61 s is dead."""

SILENCE_SECONDS = 20.0
"""The same for a session that can be resumed, counted from the last sign of life."""

_TICK_SECONDS = 0.01
_OVERDUE_SECONDS = 1.0


class Pings:
    """
    Pings a server, and notices when it is silent for too long.

    :param silence_seconds: for a session that can be resumed; ``None`` for another one.
    :param silent: called with the reason when the server has been silent for too long.
    :ivar round_trip_seconds: time of the last ping to the machine's end and back; ``None`` if unknown.
    """

    def __init__(
        self, clock: IReactorTime, silence_seconds: float | None, silent: Callable[[str], None]
    ) -> None:
        self._clock, self._silence_seconds, self._silent = clock, silence_seconds, silent
        self._carrier: ClientCarrier | None = None  # while pings are sent
        self._is_paused = False
        self._unanswered_since: float | None = None
        self._heard_at = 0.0
        self._pinged_at: float | None = None
        self._timer: IDelayedCall | None = None
        self._due_at = 0.0
        self.round_trip_seconds: float | None = None

    @property
    def interval_seconds(self) -> float:
        """Time between two pings."""
        if self._silence_seconds is None:
            return PING_SECONDS
        return min(PING_SECONDS, self._silence_seconds / 4)

    @property
    def overdue_seconds(self) -> float:
        """The time for which a ping has waited, if that is suspiciously long; otherwise 0."""
        if self._pinged_at is None or self._is_paused or self._carrier is None:
            return 0.0
        waits_seconds = self._clock.seconds() - self._pinged_at
        usual_seconds = self.round_trip_seconds or 0.0
        return waits_seconds if waits_seconds > max(_OVERDUE_SECONDS, 2 * usual_seconds) else 0.0

    def start(self, carrier: ClientCarrier) -> None:
        """Send pings from now on."""
        self._carrier = carrier
        self._heard_at = self._clock.seconds()
        if self._silence_seconds is not None:
            self._ping()  # the user may want to know the round trip after an outage
        else:
            self._arm(self.interval_seconds)

    def stop(self) -> None:
        """Send no more pings."""
        self._carrier = None
        self._disarm()

    def pause(self) -> None:
        """Expect no answers: the connection is not read."""
        self._is_paused = True

    def resume(self) -> None:
        """Count silence from now on: pongs of the time before may still be unread."""
        self._is_paused = False
        self._begin_listening()

    def heard(self) -> None:
        """Anything has arrived."""
        self._unanswered_since = None
        self._heard_at = self._clock.seconds()

    def answered(self) -> None:
        """The server has answered a ping."""
        self.heard()
        pinged_at, self._pinged_at = self._pinged_at, None
        if pinged_at is not None:
            self.round_trip_seconds = self._heard_at - pinged_at

    def probe(self, seconds: float) -> None:
        """Ping a server that may be out of reach; without a sign of life in time it is silent."""
        if self._silence_seconds is None or self._carrier is None or self._is_paused:
            return
        self._unanswered_since = self._clock.seconds()
        self._heard_at = self._unanswered_since + seconds - self._silence_seconds
        self._ping()

    def _begin_listening(self) -> None:
        self._heard_at = self._clock.seconds()
        self._pinged_at = None  # it would measure the pause
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
            if self._pinged_at is None and not self._is_paused:
                self._pinged_at = now
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

"""
Attempts to open a connection again.

The waits between them double up to a limit, with a random part: clients of a server that was
restarted must not return together.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, BadGateway, Forbidden, GatewayTimeout

FIRST_WAIT_SECONDS = 0.1
WAIT_SECONDS = 1.0
"""The longest wait in the first :data:`EAGER_SECONDS`."""
EAGER_SECONDS = 120.0
LATE_WAIT_SECONDS = 10.0
"""The longest wait after the first :data:`EAGER_SECONDS`."""
RETRY_AFTER_SECONDS = 30.0
"""The longest ``Retry-After`` that is obeyed."""
JITTER = 0.2
"""The longest random part of a wait, as a share of it."""

ATTEMPT_SECONDS = 10.0
"""Time limit of an attempt, until one was too slow."""
CONNECT_SECONDS = 8.0
"""
Time limit of the connection in each attempt: a kernel sends less and less the longer it tries.
"""
LATER_ATTEMPT_SECONDS = 20.0
"""
Time limit of the attempts after one that was too slow: a server to which many clients return at
once might otherwise finish none.
"""

STARTING_SECONDS = 10.0
"""
How long after a loss, and after a server was out of reach, a 403 is not final: a kube-apiserver
that is starting does not know the roles yet.
"""

_YOUNG_SECONDS = 1.0
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})

_log = Logger()


class Refused(Exception):
    """No further attempt can succeed; the message says why."""


class Reconnecting:
    """
    Makes one attempt after another.

    :param attempt: fires when it has succeeded, unless :meth:`succeeded` said so before; cancelling
        closes the connection.
    """

    def __init__(
        self,
        attempt: Callable[[], Deferred[None]],
        failed: Callable[[str], None],
        clock: IReactorTime,
        *,
        limit_seconds: float | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._attempt, self._failed, self._clock = attempt, failed, clock
        self._limit_seconds, self._jitter = limit_seconds, jitter
        self._wait_seconds, self._attempt_seconds = FIRST_WAIT_SECONDS, ATTEMPT_SECONDS
        self._started_at = self._attempted_at = self._unreached_at = 0.0
        self._running: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        self._started_at = self._unreached_at = self._clock.seconds()
        self._wait_seconds, self._attempt_seconds = FIRST_WAIT_SECONDS, ATTEMPT_SECONDS
        self._wait()

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    def succeeded(self) -> None:
        """Let go of the present attempt, which has succeeded."""
        self._running = None

    def network_changed(self) -> None:
        """Make an attempt now, unless one has just begun; waits are short again."""
        self._wait_seconds, self._attempt_seconds = FIRST_WAIT_SECONDS, ATTEMPT_SECONDS
        is_young = self._clock.seconds() - self._attempted_at < _YOUNG_SECONDS
        if self._timer is None and (self._running is None or is_young):
            return
        self.stop()
        self._try()

    def _wait(self, at_least_seconds: float = 0.0) -> None:
        is_eager = self._clock.seconds() - self._started_at < EAGER_SECONDS
        longest = WAIT_SECONDS if is_eager else LATE_WAIT_SECONDS
        seconds = min(self._wait_seconds, longest)
        self._wait_seconds = min(self._wait_seconds * 2, longest)
        seconds *= 1 + JITTER * self._jitter()
        obeyed = min(at_least_seconds, RETRY_AFTER_SECONDS)
        self._timer = self._clock.callLater(max(seconds, obeyed), self._try)

    def _try(self) -> None:
        self._timer = None
        self._attempted_at = self._clock.seconds()
        self._running = running = self._attempt()
        running.addTimeout(self._attempt_seconds, self._clock)
        running.addCallbacks(lambda _: self.succeeded(), self._retry, errbackArgs=(running,))
        running.addErrback(lambda failure: _log.failure("reconnecting", failure))

    def _retry(self, failure: Failure, running: Deferred[None]) -> None:
        if self._running is not running:  # stopped, or it has succeeded
            if not failure.check(TimeoutError, CancelledError, APIError, Refused):
                _log.failure("an attempt failed after its success or stop", failure)
            return
        self._running = None
        error: Any = failure.value
        if isinstance(error, TimeoutError | CancelledError):
            error = GatewayTimeout(f"no answer within {self._attempt_seconds:g} s")
            self._attempt_seconds = LATER_ATTEMPT_SECONDS
        if isinstance(error, BadGateway | GatewayTimeout):  # of this side, not of the server
            self._unreached_at = self._clock.seconds()
        if not isinstance(error, APIError):
            if not isinstance(error, Refused):
                _log.failure("reconnecting failed", failure)
            self._failed(str(error))
        elif error.code not in _RETRIED and not self._may_be_starting(error):
            self._failed(error.message)
        elif self._is_late():
            self._failed(f"not within {self._limit_seconds:g} s: {error.message}")
        else:
            self._wait(error.retry_after_seconds or 0.0)

    def _may_be_starting(self, refusal: APIError) -> bool:
        is_recent = self._clock.seconds() - self._unreached_at < STARTING_SECONDS
        return refusal.code == Forbidden.code and is_recent and not refusal.is_decided

    def _is_late(self) -> bool:
        passed = self._clock.seconds() - self._started_at
        return self._limit_seconds is not None and passed >= self._limit_seconds

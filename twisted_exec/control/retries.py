"""
Attempts to reach a lost server again: their pauses, and the time that each may take.

The pauses between them double up to 0.4 seconds, after three seconds up to a second, and after two minutes up to ten
seconds, with a random part: clients of a server that was restarted must not return together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, Forbidden, GatewayTimeout, InternalError
from twisted_exec.control.backoff import Backoff

FIRST_PAUSE_SECONDS = 0.1
RESTART_PAUSE_SECONDS = 0.4
"""The longest pause in the first :data:`RESTART_SECONDS`."""
RESTART_SECONDS = 3.0
"""Within this time a program that restarts is usually ready."""
PAUSE_SECONDS = 1.0
"""The longest pause after that, in the first :data:`EAGER_SECONDS`."""
EAGER_SECONDS = 120.0
LATE_PAUSE_SECONDS = 10.0
"""The longest pause after the first :data:`EAGER_SECONDS`."""
RETRY_AFTER_SECONDS = 30.0
"""The longest ``Retry-After`` that is obeyed."""

STARTING_SECONDS = 10.0
"""
How long after a loss, or after another refusal that may pass, a 403 is not final: a kube-apiserver
that is starting does not know the roles yet (:attr:`.APIError.is_decided`).
"""

RETRIED = frozenset({408, 429, 500, 502, 503, 504})
"""Codes of refusals after which another attempt may succeed."""

T = TypeVar("T")


class Pauses:
    """
    The pauses between the attempts of one outage.

    :ivar began_at: when the outage began.
    """

    def __init__(self, clock: IReactorTime, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LATE_PAUSE_SECONDS, rng)
        self.began_at = clock.seconds()

    def begin(self) -> None:
        """Begin another outage."""
        self.began_at = self._clock.seconds()
        self._backoff.reset()

    @property
    def passed_seconds(self) -> float:
        """How long the outage has lasted."""
        return self._clock.seconds() - self.began_at

    def next_seconds(self, refusal: APIError | None = None) -> float:
        """Return how long to wait now, which may be the ``Retry-After`` of the last refusal."""
        seconds = self._backoff.pause(self._longest_seconds())
        requested_seconds = 0.0 if refusal is None else refusal.retry_after_seconds or 0.0
        return max(seconds, min(requested_seconds, RETRY_AFTER_SECONDS))

    def _longest_seconds(self) -> float:
        if self.passed_seconds < RESTART_SECONDS:
            return RESTART_PAUSE_SECONDS
        return PAUSE_SECONDS if self.passed_seconds < EAGER_SECONDS else inf


class Retries(Generic[T]):
    """
    Makes one attempt after another during an outage.

    :param attempt: fires when it has succeeded; cancelling ends it.
    :param reached: called with the result of the attempt that has succeeded, unless
        :meth:`succeeded` was called before.
    :param failed: called with the reason after the last attempt, or if ``reached`` fails.
    :param limit_seconds: the longest outage; ``None`` for no limit.
    :param attempt_seconds: time limit of an attempt, multiplied by :attr:`patience`; ``None`` if
        attempts have their own.
    :param retried: codes of refusals after which another attempt may succeed.
    :ivar patience: 2 after an attempt that was too slow, else 1: a server to which many clients
        return at once might otherwise finish none.
    :ivar problem: why the last attempt of the outage failed; empty before that.
    """

    _log = Logger()

    def __init__(
        self,
        attempt: Callable[[], Deferred[T]],
        reached: Callable[[T], None],
        failed: Callable[[APIError], None],
        clock: IReactorTime,
        *,
        limit_seconds: float | None = None,
        attempt_seconds: float | None = None,
        retried: Collection[int] = RETRIED,
        rng: random.Random | None = None,
    ) -> None:
        self._attempt, self._reached, self._failed = attempt, reached, failed
        self._clock = clock
        self._limit_seconds = inf if limit_seconds is None else limit_seconds
        self._attempt_seconds = attempt_seconds
        self._retried = retried
        self._pauses = Pauses(clock, rng)
        self.patience = 1
        self.problem = ""
        self._attempted_at = self._may_pass_at = 0.0
        self._running: Deferred[T] | None = None
        self._timer: IDelayedCall | None = None

    def start(self, *, at_once: bool = False) -> None:
        """
        Begin an outage.

        :param at_once: make the first attempt without a pause.
        """
        self._pauses.begin()
        self.patience = 1
        self.problem = ""
        self._may_pass_at = self._clock.seconds()
        if at_once:
            self._try()
        else:
            self._pause()

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    def succeeded(self) -> None:
        """Let go of the present attempt, which has succeeded before it ends."""
        self._running = None

    def refused(self, error: APIError) -> None:
        """
        Make another attempt in this outage, after a pause, if it may succeed.

        Call it for a success that was lost again at once; attempts that fail do the same.
        """
        if error.code == GatewayTimeout.code:
            self.patience = 2
        self.problem = error.message
        if error.code in self._retried:
            self._may_pass_at = self._clock.seconds()
        elif error.code != Forbidden.code or not self._may_be_starting(error):
            self._failed(error)
            return
        if self._pauses.passed_seconds >= self._limit_seconds:
            message = f"no connection within {self._limit_seconds:g} s: {error.message}"
            self._failed(GatewayTimeout(message, details=error.details))
        else:
            self._pause(error)

    def _pause(self, refusal: APIError | None = None) -> None:
        seconds = self._pauses.next_seconds(refusal)
        # The last attempt is at the limit.
        seconds = min(seconds, max(0.0, self._limit_seconds - self._pauses.passed_seconds))
        self._timer = self._clock.callLater(seconds, self._try)

    def _try(self) -> None:
        self._timer = None
        self._attempted_at = self._clock.seconds()
        self._running = running = self._attempt()
        if self._attempt_seconds is not None:
            running.addTimeout(self._attempt_seconds * self.patience, self._clock)
        running.addCallbacks(partial(self._over, running), partial(self._broke, running))
        running.addErrback(lambda failure: self._log.failure("after an attempt", failure))

    def _over(self, running: Deferred[T], result: T) -> None:
        if self._running is running:
            self._running = None
            try:
                self._reached(result)
            except Exception:
                self._crashed(Failure())

    def _broke(self, running: Deferred[T], failure: Failure) -> None:
        error: Any = failure.value
        is_bug = not failure.check(APIError, TimeoutError, CancelledError)
        if self._running is not running:  # stopped, or it has succeeded
            if is_bug:
                self._log.failure("an attempt failed after its success or stop", failure)
            return
        self._running = None
        if is_bug:
            self._crashed(failure)
            return
        if not isinstance(error, APIError):
            seconds = self._clock.seconds() - self._attempted_at
            error = GatewayTimeout(f"no answer within {seconds:g} s")
        self.refused(error)

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("an attempt failed", failure)
        self._failed(InternalError("internal error"))

    def _may_be_starting(self, refusal: APIError) -> bool:
        is_recent = self._clock.seconds() - self._may_pass_at < STARTING_SECONDS
        return is_recent and not refusal.is_decided

"""Tests for :mod:`twisted_exec.control.retries`."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.clocks import pass_seconds
from tests.control.support import WithoutJitter
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    ServiceUnavailable,
    from_status,
)
from twisted_exec.control.retries import RETRY_AFTER_SECONDS, STARTING_SECONDS, Pauses, Retries


class RetriesTests(SynchronousTestCase):
    """When attempts are made, and when no more."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.times: list[float] = []
        self.attempts: list[Deferred[None]] = []
        self.reasons: list[str] = []
        self.answer: Exception | None = BadGateway("connection refused")
        self.cancelled = 0
        self.retries = self.make()

    def make(self, limit_seconds: float | None = None, **more: Any) -> Retries[None]:
        """Return retries with the longest pauses."""
        return Retries(
            self.attempt,
            lambda _: None,
            lambda error: self.reasons.append(error.message),
            self.clock,
            limit_seconds=limit_seconds,
            attempt_seconds=10.0,
            **{"rng": WithoutJitter(), **more},
        )

    def attempt(self) -> Deferred[None]:
        self.times.append(round(self.clock.seconds(), 3))
        deferred: Deferred[None] = Deferred(lambda _: self.count_cancelled())
        self.attempts.append(deferred)
        if self.answer is not None:
            deferred.errback(self.answer)
        return deferred

    def count_cancelled(self) -> None:
        self.cancelled += 1

    def run_for(self, seconds: float) -> list[float]:
        """Return the times of the attempts in this time."""
        self.times.clear()
        pass_seconds(self.clock, seconds)
        return self.times

    def test_waits(self) -> None:
        """Waits double up to 0.4 s, after three seconds to a second, and after two minutes to ten seconds."""
        self.retries.start()
        times = self.run_for(600)
        waits = [round(late - soon, 1) for soon, late in pairwise(times)]
        self.assertEqual([times[0], *waits[:9]], [0.1, 0.2, *[0.4] * 7, 0.8])
        eager = [wait for time, wait in zip(times, waits, strict=False) if time < 119]
        self.assertEqual(max(eager), 1.0)
        self.assertEqual(waits[-3:], [10.0, 10.0, 10.0])
        self.retries.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_problem(self) -> None:
        """The reason of the last failure is known, until another outage begins."""
        self.retries.start()
        self.assertEqual(self.retries.problem, "")
        self.run_for(1)
        self.assertEqual(self.retries.problem, "connection refused")
        self.retries.stop()
        self.retries.start()
        self.assertEqual(self.retries.problem, "")

    def test_random(self) -> None:
        """Pauses are shortened by up to half."""
        self.retries = self.make(rng=random.Random(7))
        self.retries.start()
        (call,) = self.clock.getDelayedCalls()
        self.assertTrue(0.05 <= call.getTime() <= 0.1)

    def test_at_once(self) -> None:
        """The first attempt may come without a pause."""
        self.retries.start(at_once=True)
        self.assertEqual(self.run_for(0.35), [0.1, 0.3])
        self.assertEqual(len(self.attempts), 3)

    def test_success(self) -> None:
        """After a success there are no attempts; the next outage begins with a short wait."""
        self.retries.start()
        self.run_for(10)
        self.answer = None
        self.run_for(1)
        self.attempts[-1].callback(None)
        self.assertEqual((self.run_for(60), self.clock.getDelayedCalls()), ([], []))
        self.retries.start()
        self.assertEqual(len(self.run_for(0.15)), 1)

    def test_error_behind_success(self) -> None:
        """A fault in an attempt that has succeeded is logged, and nothing is tried again."""
        self.answer = None
        self.retries.start()
        self.run_for(1)
        self.retries.succeeded()
        self.attempts[-1].errback(ValueError())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(
            (self.run_for(60), self.reasons, self.clock.getDelayedCalls()), ([], [], [])
        )

    def test_slow_attempt(self) -> None:
        """An attempt without an answer is given up after ten seconds."""
        self.answer = None
        self.retries.start()
        self.assertEqual(self.run_for(10), [0.1])
        self.assertEqual(self.run_for(0.4), [10.3])
        self.assertEqual((self.cancelled, self.reasons), (1, []))

    def test_busy_server(self) -> None:
        """
        After an attempt that was too slow the next may take longer: a server to which many clients
        return at once might finish none of them.
        """
        self.answer = None
        self.retries.start()
        self.assertEqual(self.run_for(100), [0.1, 10.3, 30.7, 51.5, 72.5, 93.5])
        self.retries.stop()

    def test_refused(self) -> None:
        """A refusal that another attempt does not change ends the attempts with its reason."""
        for error, reason in (
            (APIError("m", code=404, reason="NotFound"), "m"),
            (APIError("from beyond the end", code=400, reason="BadRequest"), "from beyond the end"),
        ):
            self.setUp()
            self.answer = error
            self.retries.start()
            self.run_for(60)
            self.assertEqual((len(self.attempts), self.reasons), (1, [reason]))

    def test_program_error(self) -> None:
        """An error of this program ends the attempts and is logged."""
        self.answer = ZeroDivisionError("oops")
        self.retries.start()
        self.run_for(1)
        self.assertEqual(self.reasons, ["internal error"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_error_of_owner(self) -> None:
        """An error of the part that gets the result ends the outage as well."""
        self.answer = None
        self.retries._reached = lambda _: 1 / 0
        self.retries.start(at_once=True)
        self.attempts[0].callback(None)
        self.assertEqual(self.reasons, ["internal error"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_starting_server(self) -> None:
        """
        A server may refuse a user at first, because it is still starting.

        kube-apiserver answers 403 for some seconds before it knows the rights.  It may have begun to
        answer before the first attempt, or during the outage.
        """
        forbidden = APIError("forbidden", code=403, reason="Forbidden")
        for down_seconds, answer in (
            (0, BadGateway("refused")),
            (5, BadGateway("refused")),
            (30, ServiceUnavailable("no server is ready")),
        ):
            self.setUp()
            self.answer = answer
            self.retries.start()
            self.run_for(down_seconds)
            self.answer = forbidden
            self.run_for(STARTING_SECONDS - 2)
            self.assertEqual(self.reasons, [])
            self.run_for(4)
            self.assertEqual(self.reasons, ["forbidden"])

    def test_decided(self) -> None:
        """A 403 of our own servers, which do not serve before they know the rights, is final."""
        for refusal in (Forbidden("no"), from_status(Forbidden("no").to_status())):
            self.setUp()
            self.retries.start()
            self.run_for(5)
            attempts = len(self.attempts)
            self.answer = refusal
            self.run_for(STARTING_SECONDS)
            self.assertEqual((len(self.attempts), self.reasons), (attempts + 1, ["no"]))

    def test_retried(self) -> None:
        """Servers that are busy or not there may be ready soon."""
        for code in (429, 500, 502, 503, 504):
            self.setUp()
            self.answer = APIError("busy", code=code, reason="")
            self.retries.start()
            self.run_for(1)
            self.assertEqual((len(self.attempts), self.reasons), (3, []))

    def test_retry_after(self) -> None:
        """A server may set the wait, up to 30 s."""
        for asked, obeyed in ((7, 7.1), (3600, 30.1)):
            self.setUp()
            self.answer = APIError("m", code=429, reason="", retry_after_seconds=asked)
            self.retries.start()
            self.assertEqual(self.run_for(obeyed + 0.1), [0.1, obeyed])

    def test_limit(self) -> None:
        """With a limit the attempts end, and the reason has the last error."""
        self.retries = self.make(limit_seconds=5)
        self.retries.start()
        self.run_for(60)
        self.assertEqual(self.reasons, ["no connection within 5 s: connection refused"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_limit_before_retry_after(self) -> None:
        """The last attempt is at the limit, also if the server asks for a longer wait."""
        self.retries = self.make(limit_seconds=5)
        self.answer = ServiceUnavailable("busy", retry_after_seconds=20)
        self.retries.start()
        self.assertEqual(self.run_for(60), [0.1, 5])
        self.assertEqual(self.reasons, ["no connection within 5 s: busy"])

    def test_lost_again(self) -> None:
        """A success that is lost again at once does not begin another outage."""
        self.retries = self.make(limit_seconds=5)
        self.answer = None
        self.retries.start()
        while not self.reasons:
            self.run_for(1)
            self.attempts[-1].callback(None)
            self.retries.refused(BadGateway("lost"))
        self.assertEqual(self.reasons, ["no connection within 5 s: lost"])
        self.assertLess(self.clock.seconds(), 7)

    def test_stop(self) -> None:
        """Stopping cancels the attempt."""
        self.answer = None
        self.retries.start()
        self.run_for(1)
        self.retries.stop()
        self.assertEqual((self.cancelled, self.reasons), (1, []))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class PausesTests(SynchronousTestCase):
    """The pauses of loops that make their attempts themselves."""

    def test_apart(self) -> None:
        """Clients of one server that stopped do not return together."""
        clock = Clock()
        clients = [Pauses(clock, random.Random(seed)) for seed in range(100)]
        self.assertGreater(len({round(each.next_seconds(), 3) for each in clients}), 30)

    def test_retry_after(self) -> None:
        """The server's Retry-After is obeyed within a limit."""
        pauses = Pauses(Clock())
        for asked, seconds in ((7, 7.0), (3600, RETRY_AFTER_SECONDS)):
            refusal = ServiceUnavailable("busy", retry_after_seconds=asked)
            self.assertEqual(pauses.next_seconds(refusal), seconds)

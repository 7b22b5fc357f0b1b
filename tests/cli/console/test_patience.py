"""
Tests for :mod:`twisted_exec.cli.console.patience`: waiting for a busy server.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import (
    BadGateway,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from twisted_exec.cli.console.patience import patiently


class PatienceTests(SynchronousTestCase):
    """Tests for :func:`patiently`."""

    def setUp(self) -> None:
        self.clock, self.answers, self.said = Clock(), [], []
        self.asked = 0

    answers: list[Any]
    said: list[str]

    def ask(self) -> Deferred[Any]:
        self.asked += 1
        answer = self.answers.pop(0)
        return fail(answer) if isinstance(answer, Exception) else succeed(answer)

    def opening(self, *answers: Any) -> Deferred[Any]:
        self.answers = list(answers)
        return patiently(self.ask, self.clock, self.said.append)

    def test_comes_again(self) -> None:
        """
        A refusal is retried after the delay that the server gives, and the user gets a message.
        """
        opening = self.opening(
            TooManyRequests("full", 3), ServiceUnavailable("starting", retry_after_seconds=1), "ok"
        )
        self.clock.advance(2.9)
        self.assertEqual((self.asked, self.said), (1, ["full; trying again in 3 s"]))
        self.clock.advance(1.1)
        self.assertEqual(self.asked, 2)
        self.clock.advance(2)
        self.assertEqual(self.successResultOf(opening), "ok")
        self.assertEqual(self.said[1:], ["starting; trying again in 1 s"])

    def test_not_for_ever(self) -> None:
        """
        After a minute of retries the last refusal is returned; a longer Retry-After fails at once.
        """
        opening = self.opening(*[TooManyRequests("full", 10)] * 9)
        self.clock.pump([1.0] * 70)
        self.failureResultOf(opening, TooManyRequests)
        self.assertIn(self.asked, (6, 7))
        opening = self.opening(TooManyRequests("full", 3600))
        self.failureResultOf(opening, TooManyRequests)

    def test_other_refusals(self) -> None:
        """Refusals that a retry would not help fail at once."""
        for refusal in (NotFound("machines", "vm"), TooManyRequests("full"), BadGateway("no")):
            refusal.retry_after_seconds = None if refusal.code == 429 else 1
            self.failureResultOf(self.opening(refusal), type(refusal))
        self.assertEqual((self.said, self.clock.getDelayedCalls()), ([], []))

    def test_cancelled(self) -> None:
        """Cancelling ends the wait."""
        opening = self.opening(TooManyRequests("full", 3), "ok")
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

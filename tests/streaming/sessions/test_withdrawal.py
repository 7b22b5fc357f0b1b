"""Tests for :mod:`twisted_exec.streaming.sessions.withdrawal`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.sessions.test_registry import Records
from twisted_exec.api.status import Forbidden, ServiceUnavailable, Unauthorized
from twisted_exec.auth.delegated import MAX_CACHE_SECONDS
from twisted_exec.observe.audit import Trail
from twisted_exec.streaming.interfaces import REVOKED, Ending, Subject
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.withdrawal import REVIEW_SECONDS, Withdrawal


class Reviewer:
    """Says of each session what the test says."""

    def __init__(self) -> None:
        self.problems: dict[str, Exception] = {}
        self.asked: list[str] = []
        self.kept: set[str] = set()

    async def review(self, subject: Subject) -> None:
        self.asked.append(subject.session)
        if subject.session in self.problems:
            raise self.problems[subject.session]

    def forget_all_but(self, sessions: Iterable[str]) -> None:
        self.kept = set(sessions)


class WithdrawalTests(SynchronousTestCase):
    """Tests for :class:`Withdrawal`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sessions = Sessions(Trail(Records(), "poollet", self.clock))
        self.reviewer: Any = Reviewer()
        self.endings: dict[str, Ending] = {}
        for name in ("a", "b"):
            self.open(name)
        self.withdrawal = Withdrawal(self.sessions, self.reviewer, self.clock)
        self.withdrawal.start()
        self.addCleanup(self.withdrawal.stop)

    def open(self, name: str) -> None:
        def end(ending: Ending) -> None:
            self.endings[name] = ending

        self.sessions.open(Subject(name)).carry(end, lambda: None)

    def test_within_half_a_minute(self) -> None:
        """What was withdrawn ends the session in less than 30 seconds, cached answers included."""
        self.assertLess(REVIEW_SECONDS + MAX_CACHE_SECONDS, 30)
        self.reviewer.problems["a"] = Forbidden("not any more")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {"a": Ending(REVOKED, "not any more")})

    def test_unknown_by_now(self) -> None:
        """So does a credential that is no more."""
        self.reviewer.problems["b"] = Unauthorized("the token has expired")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {"b": Ending(REVOKED, "the token has expired")})

    def test_nobody_to_ask(self) -> None:
        """An API server that cannot be asked withdraws nothing; the others are asked about."""
        self.reviewer.problems["a"] = ServiceUnavailable("away")
        with capturedLogs() as events:
            self.clock.pump([REVIEW_SECONDS] * 3)
        self.assertEqual(self.endings, {})
        self.assertEqual(self.reviewer.asked, ["a", "b"] * 3)
        self.assertEqual(
            [formatEvent(event) for event in events], ["sessions cannot be reviewed: away"]
        )

    def test_bug(self) -> None:
        """What goes wrong with one session is logged; the next round asks about all of them."""
        self.reviewer.problems["a"] = LookupError("ours")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.reviewer.problems = {"b": Forbidden("not any more")}
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(list(self.endings), ["b"])

    def test_memory(self) -> None:
        """Of sessions that are over nothing is kept."""
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reviewer.kept, {"a", "b"})

    def test_stopped(self) -> None:
        """After the stop nobody is asked about."""
        self.successResultOf(self.withdrawal.stop())
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual((self.reviewer.asked, self.clock.getDelayedCalls()), ([], []))

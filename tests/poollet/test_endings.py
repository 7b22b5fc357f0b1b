"""Tests for :mod:`twisted_exec.poollet.endings`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.test_sessions import Records
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import Forbidden, ServiceUnavailable, Unauthorized
from twisted_exec.auth.delegated import MAX_CACHE_SECONDS
from twisted_exec.observe.audit import Trail
from twisted_exec.poollet.endings import (
    REVIEW_SECONDS,
    Withdrawal,
    machine_ending,
    pool_ending,
)
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    Ending,
    Subject,
)
from twisted_exec.streaming.sessions import Sessions


class Locator:
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
        self.locator: Any = Locator()
        self.endings: dict[str, Ending] = {}
        for name in ("a", "b"):
            self.open(name)
        self.withdrawal = Withdrawal(self.sessions, self.locator, self.clock)
        self.withdrawal.start()
        self.addCleanup(self.withdrawal.stop)

    def open(self, name: str) -> None:
        def end(ending: Ending) -> None:
            self.endings[name] = ending

        self.sessions.open(Subject(name)).carry(end, lambda: None)

    def test_within_half_a_minute(self) -> None:
        """What was withdrawn ends the session in less than 30 seconds, cached answers included."""
        self.assertLess(REVIEW_SECONDS + MAX_CACHE_SECONDS, 30)
        self.locator.problems["a"] = Forbidden("not any more")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {"a": Ending(REVOKED, "not any more")})

    def test_unknown_by_now(self) -> None:
        """So does a credential that is no more."""
        self.locator.problems["b"] = Unauthorized("the token has expired")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {"b": Ending(REVOKED, "the token has expired")})

    def test_nobody_to_ask(self) -> None:
        """An API server that cannot be asked withdraws nothing; the others are asked about."""
        self.locator.problems["a"] = ServiceUnavailable("away")
        with capturedLogs() as events:
            self.clock.pump([REVIEW_SECONDS] * 3)
        self.assertEqual(self.endings, {})
        self.assertEqual(self.locator.asked, ["a", "b"] * 3)
        self.assertEqual(
            [formatEvent(event) for event in events], ["sessions cannot be reviewed: away"]
        )

    def test_bug(self) -> None:
        """What goes wrong with one session is logged; the next round asks about all of them."""
        self.locator.problems["a"] = LookupError("ours")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.locator.problems = {"b": Forbidden("not any more")}
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(list(self.endings), ["b"])

    def test_memory(self) -> None:
        """Of sessions that are over nothing is kept."""
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.locator.kept, {"a", "b"})

    def test_stopped(self) -> None:
        """After the stop nobody is asked about."""
        self.successResultOf(self.withdrawal.stop())
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual((self.locator.asked, self.clock.getDelayedCalls()), ([], []))


class ReasonTests(SynchronousTestCase):
    """Which changes end sessions."""

    def machine(self, power: str = "On", **metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": "vm", **metadata}, "spec": {"power": power}}

    def reason(self, before: Any, after: Any) -> str | None:
        ending = machine_ending(before, after, IRONCORE)
        return ending.reason if ending is not None else None

    def test_machine(self) -> None:
        """Deleted, being deleted, switched off; not: new, changed, switched on."""
        on, off = self.machine(), self.machine("Off")
        dying = self.machine(deletionTimestamp="now")
        self.assertEqual(self.reason(on, None), MACHINE_DELETED)
        self.assertEqual(self.reason(on, dying), MACHINE_DELETED)
        self.assertEqual(self.reason(on, off), POWERED_OFF)
        for before, after in ((None, on), (on, self.machine(labels={})), (off, on), (off, off)):
            self.assertIsNone(self.reason(before, after))

    def test_pool(self) -> None:
        """Deleted or being deleted."""
        pool: dict[str, Any] = {"metadata": {"name": "p"}}
        dying = {"metadata": {"name": "p", "deletionTimestamp": "now"}}
        for after in (None, dying):
            ending = pool_ending(pool, after, IRONCORE)
            assert ending is not None
            self.assertEqual(ending, Ending(POOL_DELETED, 'machine pool "p" was deleted'))
        self.assertIsNone(pool_ending(None, pool, IRONCORE))
        self.assertIsNone(pool_ending(pool, pool, IRONCORE))

"""
Tests for :mod:`twisted_exec.runtimes.alerts.search` and :mod:`twisted_exec.runtimes.alerts.process`.
"""

from __future__ import annotations

from typing import Any
from unittest import skipUnless

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.runtimes.alerts.searching import JobsAtOnce
from tests.tiers import PROGRAMS
from twisted_exec.api.patterns import SUPPORTED, UNSUPPORTED, Pattern
from twisted_exec.program.job_processes import JobFailed, JobRefused
from twisted_exec.runtimes.alerts import process, search
from twisted_exec.runtimes.alerts.lines import Piece
from twisted_exec.runtimes.alerts.search import (
    BURST_SECONDS,
    OVER_BUDGET,
    RETRY_SECONDS,
    SECONDS_PER_BYTE,
    SHARE,
    CPUBudget,
    Group,
    LineMatch,
    OutputSearch,
    search_processes,
)

A, B = (
    Group("a", (0, 2), (Pattern("one"), Pattern("two"))),
    Group("b", (1,), (Pattern("two"),)),
)
PIECES = [
    Piece(100, b"one\r\nnone\n\x1b[1mtwo\n"),
    Piece(200, b"two", is_line=True),
    Piece(300, b"three\n"),
]


class _Unreliable(JobsAtOnce):
    """
    Fails some jobs.

    :ivar problems: raised for the next jobs.
    :ivar hostile: a group whose search fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[Exception] = []
        self.hostile = ""

    def do(self, message: bytes, key: str) -> Deferred[Any]:
        if self.problems:
            return fail(self.problems.pop(0))
        done = super().do(message, key)
        (head, _) = done.result
        job = self.jobs[-1]
        searched = [each for each in job["groups"] if each not in job["skipped"]]
        if "next" in head and self.hostile in searched[job["first"] : head["next"]]:
            return fail(JobFailed("the search for alerts failed: Killed"))
        return done


class _SearchTestCase:
    """A search with processes that are given."""

    def search_with(self, jobs: Any, clock: Any) -> None:
        self.suspended: list[str] = []
        self.search = OutputSearch(jobs, clock, self.suspended.append)

    def find(self, groups: list[Group], pieces: list[Piece] = PIECES) -> Deferred[list[LineMatch]]:
        async def found() -> list[LineMatch]:
            matches = []
            async for several in self.search.find("key", groups, pieces):
                matches += several
            return matches

        return Deferred.fromCoroutine(found())


class SearchTests(_SearchTestCase, SynchronousTestCase):
    """The search, with jobs that are done at once."""

    def setUp(self) -> None:
        self.clock, self.jobs = Clock(), _Unreliable()
        self.search_with(self.jobs, self.clock)

    def test_matches(self) -> None:
        """
        Matches have offsets in the journal and the numbers of the rule.
        """
        expected = [
            LineMatch(0, 100, b"one", [0]),
            LineMatch(0, 105, b"none", [0]),
            LineMatch(0, 110, b"two", [2]),
            LineMatch(0, 110, b"two", [1]),
            LineMatch(1, 200, b"two", [2]),
            LineMatch(1, 200, b"two", [1]),
        ]
        self.assertEqual(self.successResultOf(self.find([A, B])), expected)
        self.assertEqual(self.successResultOf(self.find([])), [])

    def test_patterns_sent_once(self) -> None:
        """
        A process learns the patterns of a group once.
        """
        self.successResultOf(self.find([A]))
        self.successResultOf(self.find([A, B]))
        sent = [sorted(job["patterns"]) for job in self.jobs.jobs]
        self.assertEqual(sent, [[], ["a"], [], ["b"]])

    def test_short_jobs(self) -> None:
        """
        A job that lasts long, or has many matches, is answered; the next one goes on behind it.
        """
        whole = self.successResultOf(self.find([A, B]))
        for name in ("TURN_SECONDS", "MOST_MATCHES"):
            self.patch(process, name, 0)
            self.jobs.jobs.clear()
            self.assertEqual(self.successResultOf(self.find([A, B])), whole)
            self.assertEqual(len(self.jobs.jobs), 6)

    def test_refused(self) -> None:
        """
        A job without a place now is given again later.
        """
        self.jobs.problems = [JobRefused("no memory")]
        finding = self.find([B])
        self.assertNoResult(finding)
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual(len(self.successResultOf(finding)), 2)

    def test_failed(self) -> None:
        """
        A group whose search ends the process is suspended, and others are searched; a failure that
        does not come again suspends none.
        """
        self.jobs.problems = [JobFailed("killed")]
        self.assertEqual(len(self.successResultOf(self.find([A, B]))), 6)
        self.assertEqual(self.suspended, [])
        self.jobs.hostile = "a"
        found = self.successResultOf(self.find([A, B]))
        self.assertEqual([match.numbers for match in found], [[1], [1]])
        self.assertEqual(self.suspended, ["a"])
        problem = "suspended: the search for alerts failed: Killed"
        self.assertEqual(self.search.suspended, {"a": problem})

    def test_over_budget(self) -> None:
        """
        A group that has used up its CPU time is not searched until its patterns change.
        """
        times = iter([step * (BURST_SECONDS + 1) for step in range(100)])
        self.patch(process, "thread_time", lambda: next(times))
        found = self.successResultOf(self.find([B], [PIECES[1], *PIECES]))
        self.assertEqual([match.piece for match in found], [0])
        self.assertEqual(self.search.suspended, {"b": OVER_BUDGET})
        self.search.keep({"b"})
        self.assertEqual(self.successResultOf(self.find([B])), [])
        self.search.keep(set())
        self.assertEqual(self.search.suspended, {})

    def test_stopped(self) -> None:
        """
        A stop ends a search.
        """
        self.jobs.problems = [JobRefused("shutting down")]
        self.successResultOf(self.search.stop())
        self.assertEqual(self.successResultOf(self.find([B])), [])

    @skipUnless(SUPPORTED, UNSUPPORTED)
    def test_too_complex_together(self) -> None:
        """
        Expressions that RE2 cannot compile together do not end the search for others.
        """
        several = tuple(Pattern(f"(a{{1,100}}){{1,10}}{n}", is_regex=True) for n in range(300))
        found = self.successResultOf(self.find([Group("x", tuple(range(300)), several), B]))
        self.assertEqual(len(found), 2)
        problem = "they are too complex together: repeat less"
        self.assertEqual(self.search.suspended, {"x": problem})


class BudgetTests(SynchronousTestCase):
    """The CPU time of a group."""

    def test_share(self) -> None:
        """
        A group may use its share for ever, and the time that its output needs; beyond them, what it has saved.
        """
        budget, second = CPUBudget(), 0
        for second in range(1000):
            size = 100_000
            self.assertTrue(budget.spend(SHARE + size * SECONDS_PER_BYTE, size, second))
        self.assertTrue(budget.spend(BURST_SECONDS, 0, second + 1))
        self.assertFalse(budget.spend(1, 0, second + 2))


class ProcessTests(_SearchTestCase, TestCase):
    """The search, in processes."""

    starts = PROGRAMS

    def setUp(self) -> None:
        from twisted.internet import reactor

        self.patch(search, "SECONDS", 3600.0)  # however late the process begins
        self.search_with(search_processes(reactor), reactor)
        self.addCleanup(self.search.stop)

    async def test_real(self) -> None:
        """
        A process of low priority finds what is to be found.
        """
        groups = [A, B]
        if SUPPORTED:
            groups.append(Group("c", (3,), (Pattern("^t[wh]", is_regex=True),)))
        found = await self.find(groups)
        self.assertEqual(len(found), 9 if SUPPORTED else 6)

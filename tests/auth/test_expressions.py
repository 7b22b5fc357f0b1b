"""
Tests for :mod:`twisted_exec.auth.expressions` and the process that it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.program.memory_processes import MemoryReactor
from tests.tiers import PROGRAMS
from twisted_exec.auth.cel import EvaluationFailed, Expressions, answer
from twisted_exec.auth.expressions import WAITING_OF_USER, Evaluator, TooManyEvaluations, command
from twisted_exec.program.job_processes import PROCESSES
from twisted_exec.program.turns import TURN_SECONDS

CLAIMS = Expressions(("claims",))
COSTLY = "claims.l.all(x, !claims.s.matches(x))"
PATTERNS = {"claims": {"l": [r"\pL{190}"] * 400, "s": "y"}}


class _SlowExpressions(Expressions):
    def __init__(self, clock: Clock) -> None:
        super().__init__(("claims",))
        self._clock = clock

    def value(self, text: str, values: Mapping[str, Any]) -> Any:
        self._clock.rightNow += TURN_SECONDS
        return super().value(text, values)


class EvaluatorTests(SynchronousTestCase):
    """Where evaluations take place."""

    def setUp(self) -> None:
        self.reactor = MemoryReactor()
        self.evaluator = Evaluator(self.reactor, lambda: ["evaluator"])

    def value(self, text: str, values: dict[str, Any], user: str = "jane") -> Deferred[Any]:
        return Deferred.fromCoroutine(self.evaluator.value(CLAIMS, text, values, user))

    def failure(self, text: str, values: dict[str, Any]) -> str:
        return str(self.failureResultOf(self.value(text, values), EvaluationFailed).value)

    def test_cheap(self) -> None:
        """An ordinary evaluation takes place at once, and starts no process."""
        value = self.value("claims.l.map(x, 'g:' + x)", {"claims": {"l": ["a", "b"]}})
        self.assertEqual(self.successResultOf(value), ["g:a", "g:b"])
        self.assertEqual(self.reactor.processes, [])

    def test_turns(self) -> None:
        """After some milliseconds of evaluations the next one waits until others were served."""
        slow = _SlowExpressions(self.reactor)

        def value() -> Deferred[Any]:
            return Deferred.fromCoroutine(self.evaluator.value(slow, "claims", {"claims": 1}, "j"))

        self.assertEqual(self.successResultOf(value()), 1)
        waiting = [value() for _ in range(3)]
        for each in waiting:
            self.assertNoResult(each)
        self.reactor.advance(0)
        self.assertEqual([self.successResultOf(each) for each in waiting], [1, 1, 1])
        self.assertNoResult(value())

    def test_costly(self) -> None:
        """A costly one is a job of a process, which gets all that it needs."""
        value = self.value(COSTLY, PATTERNS)
        (process,) = self.reactor.processes
        ((job, _),) = process.messages
        self.assertNoResult(value)
        self.assertEqual(job["values"], PATTERNS)
        process.says(answer({**job, "values": {"claims": {"l": ["a", "b"], "s": "y"}}}))
        self.assertIs(self.successResultOf(value), True)

    def test_too_costly(self) -> None:
        """The kernel ends a process whose time is over; the evaluation has failed."""
        value = self.value(COSTLY, PATTERNS)
        self.reactor.processes[0].ends()
        why = str(self.failureResultOf(value, EvaluationFailed).value)
        self.assertIn("costs too much about these values", why)

    def test_many(self) -> None:
        """One user's costly evaluations wait up to a limit, and another's are next."""
        for _ in range(PROCESSES + WAITING_OF_USER):
            self.assertNoResult(self.value(COSTLY, PATTERNS))
        self.failureResultOf(self.value(COSTLY, PATTERNS), TooManyEvaluations)
        other = self.value(COSTLY, {"claims": {"l": ["other"]}}, "joe")
        for _ in range(2):
            self.reactor.processes[0].says({"value": False})
        self.assertEqual(
            self.reactor.processes[0].messages[-1][0]["values"], {"claims": {"l": ["other"]}}
        )
        self.reactor.processes[0].says({"value": True})
        self.assertIs(self.successResultOf(other), True)

    def test_failures(self) -> None:
        """An expression without a value fails, wherever it is evaluated."""
        self.assertIn("divide by zero", self.failure("claims.n / 0 == 1", {"claims": {"n": 1}}))
        value = self.value("claims.matches(claims)", {"claims": "("})
        job, _ = self.reactor.processes[0].messages[0]
        self.reactor.processes[0].says(answer(job))
        self.failureResultOf(value, EvaluationFailed)
        for nonsense in ({}, {"failed": 1}):
            value = self.value(COSTLY, PATTERNS)
            self.reactor.processes[-1].says(nonsense)
            self.failureResultOf(value, EvaluationFailed)

    def test_no_json(self) -> None:
        """A time among the values cannot be sent to a process, nor one be its result."""
        (later,) = (CLAIMS.value("timestamp('2020-01-01T00:00:00Z')", {}),)
        values = {"claims": {"t": later, "p": "a"}}
        self.assertIn("not JSON", self.failure("'a'.matches(claims.p)", values))
        job = {"variables": ["claims"], "lenient": False, "values": {}}
        told = answer({**job, "expression": "timestamp('2020-01-01T00:00:00Z')"})
        self.assertIn("not JSON", told["failed"])


class ProcessTests(TestCase):
    """Real processes."""

    starts = PROGRAMS

    async def test_limits(self) -> None:
        """A job that takes too much costs its process and nothing else."""
        options, code, paths = command()[:4], command()[4], command()[5:]
        less = "from twisted_exec.auth import cel as process; process.MEMORY_BYTES = 200 << 20; "
        code = code.replace("from ", less + "from ", 1)
        evaluator = Evaluator(reactor, lambda: [*options, code, *paths])
        self.addCleanup(evaluator.close)
        text = "claims.l.map(x, claims.s + x)"
        hostile = {"claims": {"l": ["x"] * 9000, "s": "s" * 30_000}}
        ordinary = {"claims": {"l": ["x"] * 400, "s": "s" * 10_000}}
        value = await evaluator.value(CLAIMS, text, ordinary, "jane")
        self.assertEqual(value, ["s" * 10_000 + "x"] * 400)
        for about, values in ((text, hostile), (COSTLY, PATTERNS)):
            with self.assertRaises(EvaluationFailed):
                await evaluator.value(CLAIMS, about, values, "jane")
        again = await evaluator.value(CLAIMS, COSTLY, {"claims": {"l": ["b"], "s": "a"}}, "jane")
        self.assertIs(again, True)

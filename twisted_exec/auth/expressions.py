"""
Evaluation of CEL expressions without holding the reactor.

An evaluation with a small bound of its cost takes place in this process. All others are done by
processes of low priority, with limits of memory and CPU time; users take turns.

The author of an expression is trusted, the values are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.auth.cel import EvaluationFailed, Expressions
from twisted_exec.auth.expression_cost import growth_of
from twisted_exec.program import job_processes
from twisted_exec.program.job_messages import LARGEST, encode
from twisted_exec.program.job_processes import JobFailed, JobKind, JobProcesses, JobRefused
from twisted_exec.program.turns import TURN_SECONDS, SharedTurns

MOST_COST = 4_000_000.0
"""Largest bound of an evaluation that takes place in this process: some milliseconds."""
SECONDS = 30.0
"""Time limit of one job; its CPU time has a limit of its own."""
WAITING, WAITING_OF_USER = 256, 16
"""The most jobs that wait, and the most of one user."""


class TooManyEvaluations(Exception):
    """An evaluation is not possible now; the message quotes no values."""


def command() -> list[str]:
    """Return the command line of a process."""
    return job_processes.command("twisted_exec.auth.cel")


class Evaluator:
    """Evaluates expressions about what users send."""

    def __init__(self, reactor: Any, argv: Callable[[], list[str]] = command) -> None:
        kind = JobKind(
            _result,
            "the evaluator of CEL expressions",
            "costly CEL expressions wait to be evaluated",
            "this server",
            SECONDS,
            WAITING,
            WAITING_OF_USER,
        )
        self._processes = JobProcesses(reactor, argv, kind)
        self._clock: IReactorTime = reactor
        self._turns = SharedTurns(reactor)
        self._spent = 0.0

    async def value(
        self, expressions: Expressions, text: str, values: Mapping[str, Any], user: str
    ) -> Any:
        """
        Evaluate an expression.

        :param values: as in JSON, by variable.
        :param user: the sender of the values.
        :raises Missing: the library is not installed.
        :raises EvaluationFailed: it has no value.
        :raises TooManyEvaluations: it cannot be evaluated now.
        """
        expressions.check(text)
        if growth_of(text).bound(values) <= MOST_COST:
            return await self._here(expressions, text, values)
        job = {
            "variables": expressions.variables,
            "lenient": expressions.lenient,
            "expression": text,
            "values": values,
        }
        try:
            message = encode(job)
        except (TypeError, ValueError):
            raise EvaluationFailed(
                "it may cost much, and uses a value that is not JSON, such as a time"
            ) from None
        if len(message) > LARGEST:
            raise EvaluationFailed("its values are too large")
        try:
            answer = await self._processes.do(message, user)
        except JobFailed as problem:
            raise EvaluationFailed(f"it costs too much about these values: {problem}") from None
        except JobRefused as problem:
            raise TooManyEvaluations(str(problem)) from None
        if "failed" in answer:
            raise EvaluationFailed(answer["failed"])
        return answer["value"]

    async def _here(self, expressions: Expressions, text: str, values: Mapping[str, Any]) -> Any:
        if self._spent >= TURN_SECONDS:
            turn: Deferred[None] = Deferred()
            self._turns.soon(partial(turn.callback, None))
            await turn
            self._spent = 0.0
        began = self._clock.seconds()
        try:
            return expressions.value(text, values)
        finally:
            self._spent += self._clock.seconds() - began

    def close(self) -> Deferred[None]:
        """End all processes.  Fires when none is left."""
        return self._processes.close()


def _result(head: Any, body: bytes) -> Mapping[str, Any]:
    if not isinstance(head, dict) or not ("value" in head or isinstance(head.get("failed"), str)):
        raise ValueError("it is neither a value nor a failure")
    return head

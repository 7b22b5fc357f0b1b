"""
CEL of the host's webhooks and policies: ``matchConditions``, and the variables of expressions.

Kubernetes' own libraries, such as ``quantity()`` and ``authorizer``, are missing. An expression
that uses one of these fails to compile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.status import ServiceUnavailable, one_line
from twisted_exec.apiserver.aggregated.admission.attributes import AdmissionAttributes
from twisted_exec.apiserver.aggregated.admission.matching import NamedExpression
from twisted_exec.apiserver.aggregated.admission.review import request_facts
from twisted_exec.auth.cel import PACKAGE, EvaluationFailed, Expressions, Missing
from twisted_exec.auth.expressions import Evaluator, TooManyEvaluations

VARIABLES = ("object", "oldObject", "request", "params", "namespaceObject", "variables")
"""The variables of an expression."""

_NO_KEY = re.compile(r'NOT_FOUND: Key not found in map : "(.*)"')
_SHOWN = 200
_PACKAGE = PACKAGE
_MISSING = (
    "this server evaluates no CEL, as the Python package cel-expr-python is not installed with it"
)


class Undecided(Exception):
    """An expression failed for this request."""


class Unsupported(Undecided):
    """An expression, or its object, cannot be evaluated by this server."""


class Cel:
    """Evaluates expressions about requests."""

    def __init__(self, reactor: Any) -> None:
        self._expressions = Expressions(VARIABLES, lenient=True)
        self._evaluator = Evaluator(reactor)

    @property
    def problem(self) -> str:
        """Why no expression can be evaluated, or empty."""
        return "" if find_spec(_PACKAGE) is not None else _MISSING

    def close(self) -> Deferred[None]:
        """End the processes of costly expressions."""
        return self._evaluator.close()

    async def evaluate(self, expression: str, values: Mapping[str, Any], user: str) -> Any:
        """
        Evaluate an expression.

        :param values: by name of :data:`VARIABLES`; missing ones are null.
        :return: the value as in JSON.
        :raises Undecided: the evaluation fails.
        :raises ServiceUnavailable: too many costly evaluations wait.
        """
        try:
            self._expressions.check(expression)
        except Missing:
            raise Unsupported(_MISSING) from None
        except EvaluationFailed as error:
            raise Unsupported(_error_message(expression, error)) from None
        try:
            return await self._evaluator.value(self._expressions, expression, values, user)
        except EvaluationFailed as error:
            why = _NO_KEY.sub(r"no such key: \1", str(error))
            raise Undecided(_error_message(expression, why)) from None
        except TooManyEvaluations as problem:
            raise ServiceUnavailable(str(problem), retry_after_seconds=1) from None


def _error_message(expression: str, why: object) -> str:
    first = (str(why).splitlines() or [""])[0]
    short = expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}..."
    return one_line(f"expression '{short}' resulted in error: {first}")


class MatchConditions:
    """``matchConditions``."""

    def __init__(self, cel: Cel) -> None:
        self._cel = cel

    async def hold(
        self,
        conditions: Sequence[NamedExpression],
        attributes: AdmissionAttributes,
        more: Mapping[str, Any] | None = None,
    ) -> bool:
        """
        Return whether all conditions are true.

        :param more: values besides those of the request.
        :raises Undecided: no condition is false, and one fails.
        """
        if not conditions:
            return True
        values = {**values_of(attributes), **(more or {})}
        user, problem = attributes.user.name, None
        for condition in conditions:
            try:
                if not as_boolean(await self._cel.evaluate(condition.expression, values, user)):
                    return False
            except Undecided as why:
                problem = problem or why
        if problem is not None:
            raise problem
        return True


def values_of(attributes: AdmissionAttributes) -> Mapping[str, Any]:
    """Values of the variables that come from the request."""
    return {
        "object": attributes.new,
        "oldObject": attributes.old,
        "request": request_facts(attributes),
    }


def as_boolean(value: Any) -> bool:
    """
    Return the value of an expression that must be a boolean.

    :raises Undecided: the value is not a boolean.
    """
    if not isinstance(value, bool):
        raise Undecided("the expression is neither true nor false")
    return value

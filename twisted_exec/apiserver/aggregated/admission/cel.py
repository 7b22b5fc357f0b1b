"""
CEL, the language of ``matchConditions`` and policies.

The evaluator is the cel-cpp library with the Python package of the CEL project
(``cel-expr-python``): the core language, and its extensions for strings and optional values.
Kubernetes adds its own libraries, such as ``quantity()`` and ``authorizer``, and two extensions
that this package lacks.  An expression that uses one of these fails to compile, which is an error
of the webhook or policy and handled by its ``failurePolicy``; it is never evaluated differently.
Without the package every expression fails that way.

The host limits the cost of expressions before it stores them; the library also limits the
iterations of loops and the depth of expressions.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from twisted_exec.api.status import one_line
from twisted_exec.apiserver.aggregated.admission.hooks import Condition
from twisted_exec.apiserver.aggregated.admission.matching import AdmissionAttributes
from twisted_exec.apiserver.aggregated.admission.review import request_facts

VARIABLES = ("object", "oldObject", "request", "params", "namespaceObject", "variables")
"""The variables of an expression."""

_NO_KEY = re.compile(r'NOT_FOUND: Key not found in map : "(.*)"')
"""Reworded as by Kubernetes' CEL library."""
_MISMATCH, _UNKNOWN = "found no matching overload", "undeclared reference"
_KEPT = 1024
_SHOWN = 200
_PACKAGE = "cel_expr_python"
_MISSING = (
    "this server evaluates no CEL, as the Python package cel-expr-python is not installed with it"
)


class Undecided(Exception):
    """An expression failed for this request; the message is one line."""


class Unsupported(Undecided):
    """An expression, or the object it belongs to, cannot be evaluated by this server."""


class Cel:
    """Compiles each expression once, and evaluates it."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, Any] = OrderedDict()
        self._environment: Any = None

    @property
    def problem(self) -> str:
        """Why no expression can be evaluated, or empty; cheap to ask."""
        return "" if find_spec(_PACKAGE) is not None else _MISSING

    def evaluate(self, expression: str, values: Mapping[str, Any]) -> Any:
        """
        :param values: by name of :data:`VARIABLES`; missing ones are null.
        :return: the value as in JSON.
        :raises Undecided: the evaluation fails.
        """
        program = self._program(expression)
        try:
            value = program.eval(data={**dict.fromkeys(VARIABLES), **values})
            plain, failed = value.plain_value(), str(value.type()) == "ERROR"
        except Exception as error:  # the library's C++ raises various types
            raise Undecided(_error_message(expression, error)) from None
        if failed:
            raise Undecided(_error_message(expression, _NO_KEY.sub(r"no such key: \1", str(plain))))
        return plain

    def _program(self, expression: str) -> Any:
        program = self._compiled.get(expression)
        if program is None:
            program = self._compiled[expression] = self._compile(expression)
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(expression)
        return program

    def _compile(self, expression: str) -> Any:
        if self._environment is None:
            self._environment = _environment()
        try:
            return self._environment.compile(expression)
        except Exception as error:  # as above
            if _MISMATCH not in str(error) or _UNKNOWN in str(error):
                raise Unsupported(_error_message(expression, error)) from None
        # Kubernetes compares numbers across types; so does this library at run time, but not with
        # its type checker, so a mismatch is retried without.
        try:
            return self._environment.compile(expression, disable_check=True)
        except Exception as error:  # as above
            raise Unsupported(_error_message(expression, error)) from None


def _environment() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError:
        raise Unsupported(_MISSING) from None
    return cel.NewEnv(
        variables=dict.fromkeys(VARIABLES, cel.Type.DYN),
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
    )


def _error_message(expression: str, why: object) -> str:
    first = (str(why).splitlines() or [""])[0]
    short = expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}..."
    return one_line(f"expression '{short}' resulted in error: {first}")


class Conditions:
    """``matchConditions``."""

    def __init__(self, cel: Cel) -> None:
        self._cel = cel

    def hold(
        self,
        conditions: Sequence[Condition],
        attributes: AdmissionAttributes,
        more: Mapping[str, Any] | None = None,
    ) -> bool:
        """
        Return whether all conditions are true.  A false one decides, even if others fail.

        :param more: values besides those of the request.
        :raises Undecided: no condition is false, and this is the first that fails.
        """
        if not conditions:
            return True
        values = {**values_of(attributes), **(more or {})}
        problem: Undecided | None = None
        for condition in conditions:
            try:
                if not decided(self._cel.evaluate(condition.expression, values)):
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


def decided(value: Any) -> bool:
    """
    :raises Undecided: the value is not a boolean.
    """
    if not isinstance(value, bool):
        raise Undecided("the expression is neither true nor false")
    return value

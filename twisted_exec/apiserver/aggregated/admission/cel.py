"""
CEL, in which ``matchConditions`` and policies are written.

The language is that of the cel-cpp library, whose Python package (``cel-expr-python``) comes from
those who define CEL: the language itself, and its extensions for strings and optional values.
Kubernetes adds libraries of its own, such as ``quantity()`` and ``authorizer``, and two extensions
that this package has not.  An expression that uses one of these is not evaluated differently:
it is not evaluated, which is an error of whatever it belongs to and is answered as its
``failurePolicy`` says.  So is every expression where the package is not installed.

The host has bounded what an expression may cost before it let it in; the library bounds the
rounds of its loops and the depth of its terms besides.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from twisted_exec.api.status import one_line
from twisted_exec.apiserver.aggregated.admission.hooks import Condition
from twisted_exec.apiserver.aggregated.admission.matching import Asked
from twisted_exec.apiserver.aggregated.admission.review import request_facts

VARIABLES = ("object", "oldObject", "request", "params", "namespaceObject", "variables")
"""What an expression may name."""

_NO_KEY = re.compile(r'NOT_FOUND: Key not found in map : "(.*)"')
"""Which Kubernetes' own library words otherwise."""
_MISMATCH, _UNKNOWN = "found no matching overload", "undeclared reference"
_KEPT = 1024
_SHOWN = 200
_PACKAGE = "cel_expr_python"
_MISSING = (
    "this server evaluates no CEL, as the Python package cel-expr-python is not installed with it"
)


class Undecided(Exception):
    """An expression cannot be evaluated about this request; one line."""


class Unsupported(Undecided):
    """An expression, or what it belongs to, cannot be evaluated here at all."""


class Cel:
    """Compiles expressions, once each, and evaluates them."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, Any] = OrderedDict()
        self._environment: Any = None

    @property
    def problem(self) -> str:
        """Why nothing can be evaluated, or empty; to find out costs next to nothing."""
        return "" if find_spec(_PACKAGE) is not None else _MISSING

    def evaluate(self, expression: str, values: Mapping[str, Any]) -> Any:
        """
        :param values: of :data:`VARIABLES`; those that are left out are null.
        :return: as JSON has it.
        :raises Undecided: it cannot be evaluated.
        """
        program = self._program(expression)
        try:
            value = program.eval(data={**dict.fromkeys(VARIABLES), **values})
            plain, failed = value.plain_value(), str(value.type()) == "ERROR"
        except Exception as error:  # whatever the library's C++ finds to say
            raise Undecided(_told(expression, error)) from None
        if failed:
            raise Undecided(_told(expression, _NO_KEY.sub(r"no such key: \1", str(plain))))
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
                raise Unsupported(_told(expression, error)) from None
        # Kubernetes compares numbers of all types, and this library does so, too, if it does not
        # look at the types first.
        try:
            return self._environment.compile(expression, disable_check=True)
        except Exception as error:  # as above
            raise Unsupported(_told(expression, error)) from None


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


def _told(expression: str, why: object) -> str:
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
        asked: Asked,
        more: Mapping[str, Any] | None = None,
    ) -> bool:
        """
        Whether all are true; one that is false decides, whatever cannot be evaluated.

        :param more: values besides those of the request.
        :raises Undecided: no condition is false, and this is the first that cannot be evaluated.
        """
        if not conditions:
            return True
        values = {**values_of(asked), **(more or {})}
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


def values_of(asked: Asked) -> Mapping[str, Any]:
    """What an expression gets to see of a request."""
    return {"object": asked.new, "oldObject": asked.old, "request": request_facts(asked)}


def decided(value: Any) -> bool:
    """
    :raises Undecided: it is neither true nor false.
    """
    if not isinstance(value, bool):
        raise Undecided("the expression is neither true nor false")
    return value
